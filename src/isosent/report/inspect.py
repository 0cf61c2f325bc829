"""`inspect_texts` and `inspect_vectors`: all there is to say about a vector space before it is transformed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Progress
from isosent.errors import InputError, RankWarning, TruncationWarning
from isosent.io.json import without_nan
from isosent.model import SentenceEncoder
from isosent.numeric.isotropy import effective_rank, isoscore, mean_cosine_of_sum, participation_ratio, uniformity
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import random_cosines, unit_rows
from isosent.numeric.spectrum import spectrum
from isosent.postprocessing import NO_POSTPROCESSING
from isosent.transforms.auto import LEAVE, AutoChoice, choose_from_moments, choose_from_texts
from isosent.transforms.base import LinearTransform, make_linear
from isosent.transforms.calibration import FEWEST_PAIRS

_BLOCK_ROWS = 8192


class VectorBlocks(Protocol):
    """What `survey` reads; a `VectorSource` is one."""

    @property
    def n_rows(self) -> int:
        """Vectors in all."""
        ...

    @property
    def dim(self) -> int:
        """Their dimensions."""
        ...

    @property
    def dtype(self) -> str:
        """Name of the type that their numbers came in."""
        ...

    @property
    def eps(self) -> float | None:
        """Relative rounding of that type, 0 for integers; None for that of the arrays' own type."""
        ...

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Read them in their order, as arrays of shape (n, dim)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class ArrayBlocks:
    """An array, block by block."""

    rows: NDArray[Any]  # the vectors

    @property
    def n_rows(self) -> int:
        """Vectors in all."""
        return len(self.rows)

    @property
    def dim(self) -> int:
        """Their dimensions."""
        return int(self.rows.shape[1])

    @property
    def dtype(self) -> str:
        """Name of the type of their numbers."""
        return self.rows.dtype.name

    @property
    def eps(self) -> None:
        """The rounding of the array's own type."""
        return None

    def blocks(self) -> Iterator[NDArray[Any]]:
        """Read them in their order."""
        for start in range(0, len(self.rows), _BLOCK_ROWS):
            yield self.rows[start : start + _BLOCK_ROWS]


SAMPLE_ROWS = 20_000
COSINE_PAIRS = 100_000


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows, and what is wrong with them."""

    n_rows: int  # all rows
    n_used: int  # rows that are neither zero nor non-finite: all other figures are theirs
    dim: int  # dimensions
    dtype: str  # type of the numbers as they came
    n_zero: int  # rows of zeros, which stand for "no vector"
    n_non_finite: int  # rows with NaN or infinity
    n_duplicates: int  # used rows that equal an earlier one, number by number
    n_duplicate_texts: int | None  # texts that equal an earlier one; None where only vectors are known

    @property
    def rows_per_dim(self) -> float:
        """Used rows for each dimension."""
        return self.n_used / self.dim

    @property
    def n_pairs(self) -> int:
        """Pairs of different used rows."""
        return self.n_used * (self.n_used - 1) // 2


@dataclass(frozen=True, slots=True)
class SpaceFigures:
    """How vectors fill their space. A figure that is undefined is NaN."""

    dim: int  # dimensions
    relative_mean_norm: float  # length of the mean over the mean length, in [0, 1]
    mean_cosine: float  # mean cosine of two different vectors, over all pairs
    cosine_sd: float  # standard deviation over random pairs
    cosine_p05: float  # percentiles over random pairs
    cosine_p50: float  # percentiles over random pairs
    cosine_p95: float  # percentiles over random pairs
    isoscore: float  # in [0, 1], see `isoscore`
    effective_rank: float  # in [1, dim]
    participation_ratio: float  # in [1, dim]
    uniformity: float  # at most 0, lower is more uniform
    top_dimension_share: float  # share of the variance that the coordinate of largest variance has
    top_axis_share: float  # share of the variance along the first principal axis


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What one pass over vectors tells."""

    counts: RowCounts  # rows, good and bad
    moments: Moments  # those of the used rows
    mean_norm: float  # their mean length
    unit_sum: NDArray[np.float64]  # sum of their directions
    sample: NDArray[np.floating]  # A random part of them, at most `SAMPLE_ROWS`, in their order

    def eigenvalues(self) -> NDArray[np.float64]:
        """Return the variances along the principal axes, descending, rounding noise as 0."""
        found = spectrum(self.moments.covariance, noise=self.moments.rounding_variance)
        values = found.values.copy()
        values[found.rank :] = 0
        return values

    def cosines(self, *, seed: int) -> NDArray[np.float64]:
        """Draw pairs from the sample."""
        if len(self.sample) < 2:
            return np.empty(0)
        return random_cosines(self.sample, n_pairs=COSINE_PAIRS, seed=seed)

    def figures(self, cosines: NDArray[np.float64], eigenvalues: NDArray[np.float64]) -> SpaceFigures:
        """Describe the space."""
        moments, nan = self.moments, float("nan")
        some = eigenvalues[0] > 0
        low, middle, high = np.quantile(cosines, [0.05, 0.5, 0.95]) if len(cosines) else (nan, nan, nan)
        return SpaceFigures(
            dim=moments.dim,
            relative_mean_norm=float(np.linalg.norm(moments.mean / self.mean_norm)) if self.mean_norm else nan,
            mean_cosine=mean_cosine_of_sum(self.unit_sum, self.counts.n_used),
            cosine_sd=float(cosines.std()) if len(cosines) else nan,
            cosine_p05=float(low),
            cosine_p50=float(middle),
            cosine_p95=float(high),
            isoscore=isoscore(eigenvalues),
            effective_rank=effective_rank(eigenvalues),
            participation_ratio=participation_ratio(eigenvalues),
            uniformity=uniformity(cosines),
            top_dimension_share=float(moments.scatter.diagonal().max() / np.trace(moments.scatter)) if some else nan,
            top_axis_share=float(eigenvalues[0] / eigenvalues.sum()) if some else nan,
        )


def survey(
    vectors: VectorBlocks,
    *,
    seed: int,
    n_duplicate_texts: int | None = None,
    progress: Callable[[int], Callable[[int], None]] | None = None,
) -> Survey:
    """Look at vectors once, block by block."""
    # Memory: a block, the sample, a few matrices of shape (dim, dim), and for the duplicates, told by a 64-bit hash,
    # eight bytes a row. -0 equals 0.
    rng, n_rows, dim = np.random.default_rng(seed), vectors.n_rows, vectors.dim
    wanted = np.sort(rng.choice(n_rows, min(n_rows, SAMPLE_ROWS), replace=False))
    advance = None if progress is None else progress(n_rows)
    start = n_zero = n_non_finite = 0
    moments, unit_sum, norms = Moments.empty(dim), np.zeros(dim), 0.0
    hashes, sample = [np.empty(0, np.int64)], [np.empty((0, dim), np.float32)]
    for block in vectors.blocks():
        finite, filled = np.isfinite(block).all(axis=1), block.any(axis=1)
        used = finite & filled
        n_non_finite += int((~finite).sum())
        n_zero += int((~filled).sum())
        first, last = np.searchsorted(wanted, [start, start + len(block)])
        picked = wanted[first:last] - start
        sample.append(_floats(block[picked[used[picked]]]))
        start += len(block)
        rows = block if used.all() else block[used]
        hashes.append(_row_hashes(rows))
        moments += Moments.from_rows(rows, eps=vectors.eps, n_rows_total=n_rows)
        directions, lengths = _directions(rows)
        unit_sum += directions
        norms += lengths
        if advance:
            advance(len(block))
    all_hashes = np.concatenate(hashes)
    counts = RowCounts(
        n_rows=start,
        n_used=len(all_hashes),
        dim=dim,
        dtype=vectors.dtype,
        n_zero=n_zero,
        n_non_finite=n_non_finite,
        n_duplicates=len(all_hashes) - len(np.unique(all_hashes)),
        n_duplicate_texts=n_duplicate_texts,
    )
    return Survey(counts, moments, norms / max(len(all_hashes), 1), unit_sum, np.concatenate(sample))


def _floats(rows: NDArray[Any]) -> NDArray[np.floating]:
    return rows if rows.dtype == np.float64 else rows.astype(np.float32)


def _directions(rows: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    """Sum of the unit vectors, and sum of the lengths: products with them, which never underflow as squares do."""
    floats = rows.astype(np.float64)
    units = unit_rows(floats)
    return units.sum(axis=0), float(np.einsum("ij,ij->", floats, units))


def _row_hashes(rows: NDArray[Any]) -> NDArray[np.int64]:
    """A 64-bit hash of the bytes of each row."""
    positive = np.ascontiguousarray(rows if rows.dtype.kind != "f" else rows + rows.dtype.type(0))
    whole_rows = positive.view(np.dtype((np.void, positive.dtype.itemsize * positive.shape[1]))).ravel()
    return np.fromiter(map(hash, whole_rows.tolist()), np.int64, len(rows))


DROPPED = 0.3
HELD_OUT_TEXTS = 2000
RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Change:
    """A share before and after, and how sure the difference is."""

    before: float  # in [0, 1]
    after: float  # in [0, 1]
    low: float  # ends of the 95 % bootstrap interval of ``after - before``
    high: float  # ends of the 95 % bootstrap interval of ``after - before``

    @property
    def difference(self) -> float:
        """What was gained; negative where something was lost."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """Whether the interval lies above 0, below 0, or around it: ``gain``, ``loss`` or ``unclear``."""
        if self.low > 0:
            return "gain"
        return "loss" if self.high < 0 else "unclear"


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a map on held-out texts."""

    label: str  # the transform that was fitted, on the other half of the texts
    n_texts: int  # held-out texts, two copies of each
    # Share of the texts whose one copy is nearest to its other copy, among the copies of all held-out texts
    found: Change
    # How often two copies of one text have a higher cosine than copies of two different texts: area under the ROC
    # curve
    ranked: Change


def drop_words(texts: Sequence[str], *, seed: int) -> list[str]:
    """Copy texts with 30 % of their words left out at random, one word at least kept."""
    rng = np.random.default_rng(seed)
    augmentations = []
    for text in texts:
        words = text.split()
        glue = " " if len(words) > 1 else ""
        parts = words if glue else list(text.strip())
        kept = rng.random(len(parts)) >= DROPPED
        if parts and not kept.any():
            kept[rng.integers(len(parts))] = True
        augmentations.append(glue.join(part for part, keep in zip(parts, kept, strict=True) if keep))
    return augmentations


def rank_augmentations(
    first: NDArray[np.floating], second: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Look for the second copy of each text among those of all texts."""
    cosines = unit_rows(first) @ unit_rows(second).T
    own = cosines.diagonal()
    others = np.sort(cosines[~np.eye(len(cosines), dtype=bool)])
    found = (cosines >= own[:, None]).sum(axis=1) == 1
    ranked = (np.searchsorted(others, own, "left") + np.searchsorted(others, own, "right")) / (2 * len(others))
    return found.astype(np.float64), ranked


def paired_change(before: NDArray[np.float64], after: NDArray[np.float64], *, seed: int) -> Change:
    """Compare two scores of the same texts, with a percentile bootstrap over the texts."""
    differences, rng = after - before, np.random.default_rng(seed)
    means = [differences[rng.integers(len(before), size=len(before))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Change(float(before.mean()), float(after.mean()), float(low), float(high))


@dataclass(frozen=True, slots=True)
class Stage:
    """Vectors before or after a transform."""

    label: str  # ``as they are``, or the transform
    figures: SpaceFigures  # how they fill their space
    cosine_shares: tuple[float, ...]  # share of the random pairs in each bin of `Inspection.cosine_edges`
    percentiles: tuple[float, ...]  # share of the random pairs below each of `Inspection.marks`


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was seen, what auto would choose, what it would change, and an advice."""

    source: str  # where the texts or vectors came from
    model: str | None  # the model that made the vectors; None for bare vectors
    seed: int  # of every sample
    counts: RowCounts  # rows, good and bad
    eigenvalues: tuple[float, ...]  # variance along each principal axis, descending; rounding noise is 0
    choice: AutoChoice | None  # what auto would choose; None where the vectors leave nothing to choose
    before: Stage  # the vectors as they are
    # Behind what auto would choose, or behind full whitening where auto would leave them alone; on the sample
    after: Stage | None
    effect: Effect | None  # what that does to held-out pairs; None where it cannot be told
    effect_note: str  # what was measured, or why nothing was
    advice: str  # one sentence
    marks: tuple[float, ...]  # the cosines that percentiles are given for
    cosine_edges: tuple[float, ...]  # ends of the histogram's bins

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values that JSON can hold."""
        document = asdict(self) | {
            "choice": None if self.choice is None else self.choice.to_json(),
            "isosent_version": version("isosent"),
        }
        document["counts"]["rows_per_dim"] = self.counts.rows_per_dim
        plain: dict[str, Any] = without_nan(document)
        return plain


_FEW_ROWS_PER_DIM = 2


def advise(counts: RowCounts, choice: AutoChoice | None, effect: Effect | None, *, is_text: bool) -> str:
    """Say what to do with the vectors."""
    if choice is None:
        return _nothing(counts, "texts" if is_text else "vectors")
    sentence = _verdict(choice, effect)
    if counts.rows_per_dim < _FEW_ROWS_PER_DIM:
        sentence += f" (only {counts.rows_per_dim:.1f} rows a dimension: a fit needs more)"
    return f"{sentence}."


def _nothing(counts: RowCounts, kind: str) -> str:
    if counts.n_pairs < FEWEST_PAIRS:
        return f"Nothing can be said yet: {counts.n_used} usable {kind} are too few; give more of them."
    if counts.n_duplicates == counts.n_used - 1:
        return f"Nothing can be said yet: all {counts.n_used} usable vectors are equal; give {kind} that differ."
    return f"Nothing can be said yet: no variance of the {counts.n_used} usable vectors can be told from zero."


def _verdict(choice: AutoChoice, effect: Effect | None) -> str:
    label, leave = str(choice.chosen), "Leave these vectors alone"
    if choice.chosen.name == LEAVE:
        if effect is None:
            return f"{leave}: auto sees nothing to gain"
        gains, losses = (_changes(effect, verdict, ("find", "tell")) for verdict in ("gain", "loss"))
        if losses:
            return f"{leave}: {effect.label} would {losses}{f', though it would {gains}' if gains else ''}"
        if gains:
            return (
                f"Auto would leave these vectors alone, but {effect.label} would {gains} in this test: "
                "try it on pairs of your own"
            )
        return f"{leave}: auto sees nothing to gain"
    if effect is None:
        return f"Try {label}, and test it on pairs of your own: its effect could not be measured here"
    gains, losses = (_changes(effect, verdict, ("finds", "tells")) for verdict in ("gain", "loss"))
    if gains and losses:
        return f"Test {label} on pairs of your own before you fit it: it {gains}, but {losses}"
    if gains:
        return f"Fit {label}: it {gains}"
    return f"{leave}: auto would choose {label}, which {losses or 'gains nothing that can be told'}"


def _changes(effect: Effect, verdict: str, verbs: tuple[str, str]) -> str:
    """What the map gains, or loses, in words; empty where it does not."""
    found = f"{verbs[0]} the nearest held-out text {_more(effect.found)}"
    ranked = f"{verbs[1]} held-out pairs apart {_by(effect.ranked)}"
    measured = ((effect.found, found), (effect.ranked, ranked))
    return " and ".join(words for change, words in measured if change.verdict == verdict)


def _by(change: Change) -> str:
    return f"{'better' if change.difference > 0 else 'worse'} by {_points(change)}"


def _more(change: Change) -> str:
    return f"{'more' if change.difference > 0 else 'less'} often by {_points(change)}"


def _points(change: Change) -> str:
    size = 100 * abs(change.difference)
    return f"{size:.{1 if size >= 0.95 else 2}f} points"


AS_THEY_ARE = "as they are"
MARKS = tuple(tenth / 10 for tenth in range(1, 10))
_BINS = 60
_FEWEST_HELD_OUT = 30
_MEASURED = (
    "The map was fitted on one half of the texts. Each text of the other half was copied twice, each time with 30 % of "
    "its words dropped at random, and the one copy was looked for among the other copies of all of them. Copies "
    "stand in for texts that mean the same; they are no human judgement."
)
_TOO_FEW = "There are too few texts to fit on one half of them and measure on the other."
_NO_TEXTS = "Bare vectors do not tell which of them belong together, so no effect on pairs can be measured from them."


Map = Callable[[NDArray[np.floating]], NDArray[np.floating]]


def inspect_texts(
    model: SentenceEncoder,
    texts: Sequence[str],
    *,
    seed: int = 0,
    source: str = "texts in memory",
    progress: Callable[[int], Progress] | None = None,
) -> Inspection:
    """Look at the vectors that a model gives to texts, and say whether they should be transformed.

    Parameters
    ----------
    model : SentenceEncoder
        The model; what it already has behind its encoder is part of it.
    texts : sequence of str
        Texts like those to be compared later.
    seed : int, default 0
        Of every sample.
    source : str, optional
        Where the texts come from, for the record.
    progress : callable, optional
        Called once with the number of texts to encode; returns what is called with the number of texts finished.

    Returns
    -------
    Inspection
        Figures, what auto would choose, its effect on held-out pairs, and an advice.

    Raises
    ------
    InputError
        If there is no text.

    Notes
    -----
    The texts themselves are encoded once, and two copies of up to 2,000 of them for the effect, beside what the choice
    needs. The choice is made on all texts; for the effect its map is fitted on one half and measured on the other.
    """
    texts = _check.some_texts("inspect_texts", texts)
    if model.encoder.needs_corpus:
        model = model.fitted(texts, transform=None)
    encoded = model.encode(texts, progress=None if progress is None else progress(len(texts)))
    n_duplicates = len(texts) - len(set(texts))
    seen = survey(ArrayBlocks(encoded), seed=seed, n_duplicate_texts=n_duplicates)
    choice, effect = None, None
    if _varies(seen):
        choice = choose_from_texts(model.encode, texts, seen.moments, seed=seed)
        effect = _effect(model, encoded, _halves(texts, encoded, seed), _compared(choice), texts, seed)
    note = _TOO_FEW if effect is None else _MEASURED
    reference = f"{model.encoder.reference}{''.join(f' -> {fit.transform}' for fit in model.fits)}"
    return _conclude(seen, choice, effect=(effect, note), origin=(source, reference), seed=seed)


def inspect_vectors(
    vectors: VectorBlocks | NDArray[Any],
    *,
    seed: int = 0,
    source: str = "vectors in memory",
    progress: Callable[[int], Progress] | None = None,
) -> Inspection:
    """Look at vectors that somebody already has, and say whether they should be transformed.

    Parameters
    ----------
    vectors : ndarray of shape (n_rows, dim), any real dtype, or VectorBlocks
        The vectors, or what `open_vectors` gives, which is read once. NaN and infinity are counted and left out.
    seed : int, default 0
        Of every sample.
    source : str, optional
        Where they come from, for the record.
    progress : callable, optional
        Called once with the number of rows; returns what is called with the number of rows finished.

    Returns
    -------
    Inspection
        As `inspect_texts` gives, without an effect: vectors do not tell which of them belong together.

    Raises
    ------
    InputError
        If an array is not 2-D or holds no real numbers.
    """
    if isinstance(vectors, np.ndarray):
        vectors = ArrayBlocks(_check.matrix("inspect_vectors", "vectors", vectors))
    seen = survey(vectors, seed=seed, progress=progress)
    choice = choose_from_moments(seen.moments) if _varies(seen) else None
    return _conclude(seen, choice, effect=(None, _NO_TEXTS), origin=(source, None), seed=seed)


def _varies(seen: Survey) -> bool:
    return seen.counts.n_pairs >= FEWEST_PAIRS and bool(seen.eigenvalues()[0] > 0)


def _compared(choice: AutoChoice) -> tuple[str, LinearTransform]:
    """What stands beside the vectors as they are: the choice, or full whitening where it is to leave them alone."""
    chosen = choice.chosen.transform()
    if chosen is None:
        return "full whitening", make_linear("whitening")
    return str(choice.chosen), chosen


def _fit(transform: LinearTransform, moments: Moments) -> Map:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        return NO_POSTPROCESSING.fitted(transform, moments).apply


def _conclude(
    seen: Survey,
    choice: AutoChoice | None,
    *,
    effect: tuple[Effect | None, str],
    origin: tuple[str, str | None],
    seed: int,
) -> Inspection:
    """Put the figures of both stages together, and say what follows."""
    values, cosines = seen.eigenvalues(), seen.cosines(seed=seed)
    stages = [(AS_THEY_ARE, seen, values, cosines)]
    if choice is not None:
        label, compared = _compared(choice)
        mapped = _fit(compared, seen.moments)(seen.sample)
        postprocessing = survey(ArrayBlocks(mapped), seed=seed)
        stages.append((label, postprocessing, postprocessing.eigenvalues(), postprocessing.cosines(seed=seed)))
    drawn = [stage[3] for stage in stages]
    edges = _edges(np.concatenate(drawn))
    before, *rest = [_stage(*stage, edges) for stage in stages]
    after = rest[0] if rest else None
    return Inspection(
        source=origin[0],
        model=origin[1],
        seed=seed,
        counts=seen.counts,
        eigenvalues=tuple(values.tolist()),
        choice=choice,
        before=before,
        after=after,
        effect=effect[0],
        effect_note=effect[1],
        advice=advise(seen.counts, choice, effect[0], is_text=origin[1] is not None),
        marks=MARKS,
        cosine_edges=tuple(edges.tolist()),
    )


def _edges(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(cosines):
        return np.linspace(-1, 1, _BINS + 1)
    low, high = np.quantile(cosines, [0.0005, 0.9995])
    margin = 0.02 + 0.05 * (high - low)
    return np.linspace(max(-1.0, low - margin), min(1.0, high + margin), _BINS + 1)


def _stage(
    label: str,
    seen: Survey,
    values: NDArray[np.float64],
    cosines: NDArray[np.float64],
    edges: NDArray[np.float64],
) -> Stage:
    shares = np.histogram(np.clip(cosines, edges[0], edges[-1]), edges)[0] / max(len(cosines), 1)
    percentiles: tuple[float, ...] = (float("nan"),) * len(MARKS)
    if len(cosines):
        percentiles = tuple(float((cosines < mark).mean()) for mark in MARKS)
    return Stage(label, seen.figures(cosines, values), tuple(shares.tolist()), percentiles)


def _halves(
    texts: Sequence[str], encoded: NDArray[np.floating], seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of two halves of the distinct texts that have a vector; of the second at most `HELD_OUT_TEXTS`."""
    first_rows = {text: row for row, text in reversed(list(enumerate(texts)))}
    rows = np.sort(np.fromiter(first_rows.values(), np.intp))
    rows = rows[encoded[rows].any(axis=1)]
    shuffled = np.random.default_rng(seed).permutation(rows)
    half = len(shuffled) // 2
    return shuffled[:half], shuffled[half : half + HELD_OUT_TEXTS]


def _effect(
    model: SentenceEncoder,
    encoded: NDArray[np.float32],
    halves: tuple[NDArray[np.intp], NDArray[np.intp]],
    compared: tuple[str, LinearTransform],
    texts: Sequence[str],
    seed: int,
) -> Effect | None:
    """Fit on one half and look for the copies of the other; None where a half is too little for that."""
    fitted_on, held_out = halves
    if len(held_out) < _FEWEST_HELD_OUT:
        return None
    label, transform = compared
    try:
        apply = _fit(transform, Moments.from_rows(encoded[fitted_on]))
    except InputError:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        augmentations = [
            model.encode(drop_words([texts[row] for row in held_out], seed=seed + number)) for number in (1, 2)
        ]
    known = augmentations[0].any(axis=1) & augmentations[1].any(axis=1)
    first, second = (vectors[known] for vectors in augmentations)
    before, after = rank_augmentations(first, second), rank_augmentations(apply(first), apply(second))
    found, ranked = (paired_change(*scores, seed=seed) for scores in zip(before, after, strict=True))
    return Effect(label, int(known.sum()), found, ranked)
