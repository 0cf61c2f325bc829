"""`inspect_texts` and `inspect_vectors`: statistics of a vector space, what auto would choose, and a recommendation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.encoders.base import Progress
from isosent.errors import InputError, RankWarning, TruncationWarning
from isosent.io.json import without_nan
from isosent.io.vector_source import VectorSource
from isosent.model import SentenceEncoder
from isosent.numeric.isotropy import effective_rank, isoscore, mean_cosine_of_sum, participation_ratio, uniformity
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import random_cosines, unit_rows
from isosent.numeric.spectrum import spectrum
from isosent.numeric.statistics import bootstrap_interval
from isosent.postprocessing import NO_POSTPROCESSING
from isosent.transforms.auto import AutoChoice, choose_from_moments, choose_from_texts
from isosent.transforms.base import NO_TRANSFORM, LinearTransform, make_linear
from isosent.transforms.calibration import FEWEST_PAIRS

AS_THEY_ARE = "as they are"
MARKS = tuple(tenth / 10 for tenth in range(1, 10))  # the cosines that percentiles are reported for
SAMPLE_ROWS = 20_000
COSINE_PAIRS = 100_000
HELD_OUT_TEXTS = 2000
_BLOCK_ROWS = 8192
_BINS = 60
_WORDS_DROPPED = 0.3
_RESAMPLES = 2000
_FEWEST_HELD_OUT = 30
_FEW_ROWS_PER_DIM = 2
_MEASURED = (
    "The transform was fitted on half of the texts. Each text of the other half was copied twice, and 30% of the words "
    "of each copy were dropped at random. The first copy of a text should be most similar to its second copy. Copies "
    "stand in for texts of the same meaning; they are not human judgments."
)
_TOO_FEW = "There are too few texts to fit a transform on half of them and measure it on the other half."
_NO_TEXTS = "Vectors alone do not tell which of them belong together, so no effect on pairs can be measured."


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows, and what is wrong with them."""

    n_rows: int
    n_used: int  # rows that are neither zero nor non-finite: all other statistics are of these
    dim: int
    dtype: str  # as the numbers came
    n_zero: int  # rows of zeros, which mean "no vector"
    n_non_finite: int  # rows with NaN or infinity
    n_duplicates: int  # used rows that equal an earlier one in every number
    n_duplicate_texts: int | None  # texts that equal an earlier one; None for vectors alone

    @property
    def rows_per_dim(self) -> float:
        return self.n_used / self.dim

    @property
    def n_pairs(self) -> int:
        return self.n_used * (self.n_used - 1) // 2


@dataclass(frozen=True, slots=True)
class SpaceFigures:
    """How vectors fill their space. An undefined figure is NaN."""

    dim: int
    relative_mean_norm: float  # length of the mean over the mean length, in [0, 1]
    mean_cosine: float  # of two different vectors, over all pairs
    cosine_sd: float  # over random pairs, as the three percentiles
    cosine_p05: float
    cosine_p50: float
    cosine_p95: float
    isoscore: float  # in [0, 1]
    effective_rank: float  # in [1, dim]
    participation_ratio: float  # in [1, dim]
    uniformity: float  # at most 0; lower is more uniform
    top_dimension_share: float  # share of the variance in the coordinate of largest variance
    top_axis_share: float  # share of the variance along the first principal axis


@dataclass(frozen=True, slots=True)
class Stage:
    """Vectors before or after a transform."""

    label: str  # "as they are", or the transform
    figures: SpaceFigures
    cosine_shares: tuple[float, ...]  # share of the random pairs in each bin of `Inspection.cosine_edges`
    percentiles: tuple[float, ...]  # share of the random pairs below each of `Inspection.marks`


@dataclass(frozen=True, slots=True)
class Change:
    """A share before and after, in [0, 1], with the ends of the 95% bootstrap interval of the difference."""

    before: float
    after: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """``gain`` where the interval lies above 0, ``loss`` where it lies below, else ``unclear``."""
        if self.low > 0:
            return "gain"
        return "loss" if self.high < 0 else "unclear"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a transform, fitted on the other half of the texts, does to held-out texts."""

    label: str
    n_texts: int
    found: Change  # share of the texts whose first copy is more similar to their second one than to any other
    ranked: Change  # area under the ROC curve: two copies of one text against copies of two different texts


@dataclass(frozen=True, slots=True)
class Inspection:
    """Statistics of a vector space, the choice of auto, its effect, and a recommendation."""

    source: str  # where the texts or vectors come from
    model: str | None  # None for vectors alone
    seed: int
    counts: RowCounts
    eigenvalues: tuple[float, ...]  # variance along each principal axis, descending; rounding noise is 0
    choice: AutoChoice | None  # None if the vectors do not vary
    before: Stage
    after: Stage | None  # sampled vectors after the choice of auto, or after full whitening if auto chooses none
    effect: Effect | None  # on held-out texts; None if it cannot be measured
    effect_note: str  # how the effect was measured, or why it was not
    advice: str  # one sentence
    marks: tuple[float, ...]  # cosines that percentiles are given for
    cosine_edges: tuple[float, ...]  # of the bins of the histograms

    def __repr__(self) -> str:
        return f"<Inspection of {self.source}: {self.advice}>"

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON can hold; an undefined number is None."""
        document = asdict(self) | {
            "choice": None if self.choice is None else self.choice.to_json(),
            "isosent_version": version("isosent"),
        }
        document["counts"]["rows_per_dim"] = self.counts.rows_per_dim
        values: dict[str, Any] = without_nan(document)
        return values


def inspect_texts(
    model: SentenceEncoder,
    texts: Sequence[str],
    *,
    seed: int = 0,
    source: str = "texts in memory",
    progress: Callable[[int], Progress] | None = None,
) -> Inspection:
    """Look at the vectors of texts and recommend whether to transform them.

    Parameters
    ----------
    model : SentenceEncoder
        The model, with its postprocessing.
    texts : sequence of str
        Texts like those to be compared later.
    seed : int, default 0
        Seed of every sample.
    source : str, optional
        Where the texts come from, for the record.
    progress : callable, optional
        Called once with the number of texts to encode; returns a callable that takes the number of texts finished.

    Returns
    -------
    Inspection
        Statistics, the choice of auto, its effect on held-out texts, and a recommendation.

    Raises
    ------
    InputError
        If there is no text.

    Notes
    -----
    The choice is made on all texts. Its effect is measured on up to 2,000 texts of one half, with the transform fitted
    on the other half.

    Examples
    --------
    >>> import isosent
    >>> inspection = isosent.inspect_texts(isosent.load("wordllama"), isosent.demo_texts())
    >>> inspection.counts.n_rows
    480
    """
    texts = _check.some_texts("inspect_texts", texts)
    if model.encoder.needs_corpus:
        model = model.fitted(texts, transform=None)
    vectors = model.encode(texts, progress=None if progress is None else progress(len(texts)))
    survey = Survey(vectors, seed=seed, n_duplicate_texts=len(texts) - len(set(texts)))
    choice = effect = None
    if survey.varies:
        choice = choose_from_texts(model.encode, texts, survey.moments, seed=seed)
        effect = _measure_effect(model, texts, vectors, *_compared(choice), seed=seed)
    note = _TOO_FEW if effect is None else _MEASURED
    reference = f"{model.encoder.reference}{''.join(f' -> {fit.transform}' for fit in model.fits)}"
    return _conclude(survey, choice, effect, note, source=source, model=reference, seed=seed)


def inspect_vectors(
    vectors: ArrayLike | VectorSource,
    *,
    seed: int = 0,
    source: str = "vectors in memory",
    progress: Callable[[int], Progress] | None = None,
) -> Inspection:
    """Look at vectors from anywhere and recommend whether to transform them.

    Parameters
    ----------
    vectors : array-like of shape (n_rows, dim), any real dtype, or VectorSource
        The vectors, or an open file of vectors, which is read once. NaN and infinity are counted and left out.
    seed : int, default 0
        Seed of every sample.
    source : str, optional
        Where they come from, for the record.
    progress : callable, optional
        Called once with the number of rows; returns a callable that takes the number of rows finished.

    Returns
    -------
    Inspection
        As from `inspect_texts`, without an effect: vectors alone do not tell which of them belong together.

    Raises
    ------
    InputError
        If an array is not 2-D or does not hold real numbers.

    Examples
    --------
    >>> import isosent
    >>> isosent.inspect_vectors([[1.0, 0.0], [0.0, 2.0]]).counts.n_used
    2
    """
    if not isinstance(vectors, VectorSource):
        vectors = _check.matrix("inspect_vectors", "vectors", vectors)
    survey = Survey(vectors, seed=seed, progress=progress)
    choice = choose_from_moments(survey.moments) if survey.varies else None
    return _conclude(survey, choice, None, _NO_TEXTS, source=source, model=None, seed=seed)


class Survey:
    """What one pass over vectors measures: counts, moments, mean length, and a sample of the used rows.

    Memory: one block, the sample, a few matrices of shape (dim, dim), and eight bytes a row for the duplicates, which
    are detected by a 64-bit hash.
    """

    def __init__(
        self,
        vectors: NDArray[Any] | VectorSource,
        *,
        seed: int,
        n_duplicate_texts: int | None = None,
        progress: Callable[[int], Progress] | None = None,
    ) -> None:
        blocks: Iterator[NDArray[Any]]
        if isinstance(vectors, np.ndarray):
            (n_rows, dim), dtype, eps = vectors.shape, vectors.dtype.name, None
            blocks = (vectors[start : start + _BLOCK_ROWS] for start in range(0, n_rows, _BLOCK_ROWS))
        else:
            n_rows, dim, dtype, eps, blocks = vectors.n_rows, vectors.dim, vectors.dtype, vectors.eps, vectors.blocks()
        sampled = np.sort(np.random.default_rng(seed).choice(n_rows, min(n_rows, SAMPLE_ROWS), replace=False))
        advance = None if progress is None else progress(n_rows)
        start = n_zero = n_non_finite = 0
        self.moments, self.unit_sum, sum_of_norms = Moments.empty(dim), np.zeros(dim), 0.0
        hashes, samples = [np.empty(0, np.int64)], [np.empty((0, dim), np.float32)]
        for block in blocks:
            finite, nonzero = np.isfinite(block).all(axis=1), block.any(axis=1)
            used = finite & nonzero
            n_non_finite += int((~finite).sum())
            n_zero += int((~nonzero).sum())
            first, last = np.searchsorted(sampled, [start, start + len(block)])
            picked = sampled[first:last] - start
            sample = block[picked[used[picked]]]
            samples.append(sample if sample.dtype == np.float64 else sample.astype(np.float32))
            start += len(block)
            rows = block if used.all() else block[used]
            hashes.append(_row_hashes(rows))
            self.moments += Moments.from_rows(rows, eps=eps, n_rows_total=n_rows)
            floats = rows.astype(np.float64)
            units = unit_rows(floats)
            self.unit_sum += units.sum(axis=0)
            # Lengths as products with the unit vectors: squares of tiny numbers would underflow.
            sum_of_norms += float(np.einsum("ij,ij->", floats, units))
            if advance:
                advance(len(block))
        all_hashes = np.concatenate(hashes)
        n_used = len(all_hashes)
        self.counts = RowCounts(
            n_rows=start,
            n_used=n_used,
            dim=dim,
            dtype=dtype,
            n_zero=n_zero,
            n_non_finite=n_non_finite,
            n_duplicates=n_used - len(np.unique(all_hashes)),
            n_duplicate_texts=n_duplicate_texts,
        )
        self.mean_norm = sum_of_norms / max(n_used, 1)
        self.sample = np.concatenate(samples)
        principal = spectrum(self.moments.covariance, noise=self.moments.rounding_variance)
        self.eigenvalues = principal.values.copy()
        self.eigenvalues[principal.rank :] = 0  # rounding noise
        self.cosines = np.empty(0)
        if len(self.sample) > 1:
            self.cosines = random_cosines(self.sample, n_pairs=COSINE_PAIRS, seed=seed)

    @property
    def varies(self) -> bool:
        """Whether there is anything to choose from."""
        return self.counts.n_pairs >= FEWEST_PAIRS and bool(self.eigenvalues[0] > 0)

    def figures(self) -> SpaceFigures:
        values, cosines, nan = self.eigenvalues, self.cosines, float("nan")
        p05, p50, p95 = np.quantile(cosines, [0.05, 0.5, 0.95]) if len(cosines) else (nan, nan, nan)
        some, scatter = values[0] > 0, self.moments.scatter
        return SpaceFigures(
            dim=self.moments.dim,
            relative_mean_norm=float(np.linalg.norm(self.moments.mean / self.mean_norm)) if self.mean_norm else nan,
            mean_cosine=mean_cosine_of_sum(self.unit_sum, self.counts.n_used),
            cosine_sd=float(cosines.std()) if len(cosines) else nan,
            cosine_p05=float(p05),
            cosine_p50=float(p50),
            cosine_p95=float(p95),
            isoscore=isoscore(values),
            effective_rank=effective_rank(values),
            participation_ratio=participation_ratio(values),
            uniformity=uniformity(cosines),
            top_dimension_share=float(scatter.diagonal().max() / np.trace(scatter)) if some else nan,
            top_axis_share=float(values[0] / values.sum()) if some else nan,
        )

    def stage(self, label: str, edges: NDArray[np.float64]) -> Stage:
        cosines = self.cosines
        shares = np.histogram(np.clip(cosines, edges[0], edges[-1]), edges)[0] / max(len(cosines), 1)
        percentiles = tuple(float((cosines < mark).mean()) if len(cosines) else float("nan") for mark in MARKS)
        return Stage(label, self.figures(), tuple(shares.tolist()), percentiles)


def _row_hashes(rows: NDArray[Any]) -> NDArray[np.int64]:
    """A 64-bit hash of the bytes of each row. Adding zero turns -0 into 0, which it equals."""
    positive = np.ascontiguousarray(rows if rows.dtype.kind != "f" else rows + rows.dtype.type(0))
    row_bytes = positive.view(np.dtype((np.void, positive.dtype.itemsize * positive.shape[1]))).ravel()
    return np.fromiter(map(hash, row_bytes.tolist()), np.int64, len(rows))


def _compared(choice: AutoChoice) -> tuple[str, LinearTransform]:
    """The choice, or full whitening where the choice is to leave the vectors alone."""
    chosen = choice.chosen.transform()
    if chosen is None:
        return "full whitening", make_linear("whitening")
    return str(choice.chosen), chosen


def _fit(transform: LinearTransform, moments: Moments) -> Callable[[NDArray[np.floating]], NDArray[np.floating]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        return NO_POSTPROCESSING.fitted(transform, moments).apply


def _conclude(
    survey: Survey,
    choice: AutoChoice | None,
    effect: Effect | None,
    effect_note: str,
    *,
    source: str,
    model: str | None,
    seed: int,
) -> Inspection:
    surveys = [(AS_THEY_ARE, survey)]
    if choice is not None:
        label, transform = _compared(choice)
        surveys.append((label, Survey(_fit(transform, survey.moments)(survey.sample), seed=seed)))
    edges = _bin_edges(np.concatenate([each.cosines for _, each in surveys]))
    before, *rest = (each.stage(label, edges) for label, each in surveys)
    return Inspection(
        source=source,
        model=model,
        seed=seed,
        counts=survey.counts,
        eigenvalues=tuple(survey.eigenvalues.tolist()),
        choice=choice,
        before=before,
        after=rest[0] if rest else None,
        effect=effect,
        effect_note=effect_note,
        advice=advise(survey.counts, choice, effect, kind="vectors" if model is None else "texts"),
        marks=MARKS,
        cosine_edges=tuple(edges.tolist()),
    )


def _bin_edges(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(cosines):
        return np.linspace(-1, 1, _BINS + 1)
    low, high = np.quantile(cosines, [0.0005, 0.9995])
    margin = 0.02 + 0.05 * (high - low)
    return np.linspace(max(-1.0, low - margin), min(1.0, high + margin), _BINS + 1)


def _measure_effect(
    model: SentenceEncoder,
    texts: Sequence[str],
    vectors: NDArray[np.float32],
    label: str,
    transform: LinearTransform,
    *,
    seed: int,
) -> Effect | None:
    """Fit on half of the distinct texts that have a vector, rank copies of the others; None where a half is too few."""
    first_rows = {text: row for row, text in reversed(list(enumerate(texts)))}
    rows = np.sort(np.fromiter(first_rows.values(), np.intp))
    shuffled = np.random.default_rng(seed).permutation(rows[vectors[rows].any(axis=1)])
    half = len(shuffled) // 2
    held_out = [texts[row] for row in shuffled[half : half + HELD_OUT_TEXTS]]
    if len(held_out) < _FEWEST_HELD_OUT:
        return None
    try:
        apply = _fit(transform, Moments.from_rows(vectors[shuffled[:half]]))
    except InputError:  # the half does not vary
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        first, second = (model.encode(drop_words(held_out, seed=seed + number)) for number in (1, 2))
    has_vectors = first.any(axis=1) & second.any(axis=1)
    first, second = first[has_vectors], second[has_vectors]
    before, after = rank_copies(first, second), rank_copies(apply(first), apply(second))
    found, ranked = (paired_change(*scores, seed=seed) for scores in zip(before, after, strict=True))
    return Effect(label, len(first), found, ranked)


def drop_words(texts: Sequence[str], *, seed: int) -> list[str]:
    """Copy texts without a random 30% of their words (characters, where there is no space), but never without all."""
    rng = np.random.default_rng(seed)
    copies = []
    for text in texts:
        words = text.split()
        separator = " " if len(words) > 1 else ""
        parts = words if separator else list(text.strip())
        is_kept = rng.random(len(parts)) >= _WORDS_DROPPED
        if parts and not is_kept.any():
            is_kept[rng.integers(len(parts))] = True
        copies.append(separator.join(part for part, keep in zip(parts, is_kept, strict=True) if keep))
    return copies


def rank_copies(
    first: NDArray[np.floating], second: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """For each text: whether its second copy is the nearest one, and how many unrelated pairs are less similar."""
    cosines = unit_rows(first) @ unit_rows(second).T
    same = cosines.diagonal()
    others = np.sort(cosines[~np.eye(len(cosines), dtype=bool)])
    found = (cosines >= same[:, None]).sum(axis=1) == 1
    # The mean of these shares is the area under the ROC curve (Mann-Whitney); ties count one half.
    ranked = (np.searchsorted(others, same, "left") + np.searchsorted(others, same, "right")) / (2 * len(others))
    return found.astype(np.float64), ranked


def paired_change(before: NDArray[np.float64], after: NDArray[np.float64], *, seed: int) -> Change:
    """Compare two scores of the same texts, with a bootstrap over the texts."""
    low, high = bootstrap_interval("mean", after - before, n_resamples=_RESAMPLES, seed=seed)
    return Change(float(before.mean()), float(after.mean()), low, high)


def advise(counts: RowCounts, choice: AutoChoice | None, effect: Effect | None, *, kind: str = "texts") -> str:
    """The recommendation, one sentence."""
    if choice is not None:
        few = f" (only {counts.rows_per_dim:.1f} rows per dimension: fit on more)"
        return f"{_recommend(choice, effect)}{few if counts.rows_per_dim < _FEW_ROWS_PER_DIM else ''}."
    if counts.n_pairs < FEWEST_PAIRS:
        return f"Nothing can be said yet: {counts.n_used} usable {kind} are too few."
    if counts.n_duplicates == counts.n_used - 1:
        return f"Nothing can be said yet: all {counts.n_used} usable vectors are equal."
    return f"Nothing can be said yet: the {counts.n_used} usable vectors do not vary by more than rounding."


def _recommend(choice: AutoChoice, effect: Effect | None) -> str:
    label, leave = str(choice.chosen), "Leave these vectors alone"
    if choice.chosen.name == NO_TRANSFORM:
        if effect is None:
            return f"{leave}: auto expects no gain"
        gains, losses = (_changes(effect, verdict, "would find", "separate") for verdict in ("gain", "loss"))
        if losses:
            return f"{leave}: {effect.label} {losses}{f', though it {gains}' if gains else ''}"
        if gains:
            return (
                f"Auto would leave these vectors alone, but in this test {effect.label} {gains}: "
                "try it on your own pairs"
            )
        return f"{leave}: auto expects no gain"
    if effect is None:
        return f"Try {label}, and test it on your own pairs: its effect could not be measured here"
    gains, losses = (_changes(effect, verdict, "finds", "separates") for verdict in ("gain", "loss"))
    if gains and losses:
        return f"Test {label} on your own pairs before you fit it: it {gains}, but {losses}"
    if gains:
        return f"Fit {label}: it {gains}"
    return f"{leave}: auto would choose {label}, which {losses or 'makes no measurable difference'}"


def _changes(effect: Effect, verdict: str, find: str, separate: str) -> str:
    """What the transform gains, or loses, in words; empty where it does not."""
    words = []
    if effect.found.verdict == verdict:
        more = "more" if verdict == "gain" else "less"
        words.append(f"{find} the nearest held-out text {_points(effect.found)} {more} often")
    if effect.ranked.verdict == verdict:
        better = "better" if verdict == "gain" else "worse"
        would = "would " if find.startswith("would") and not words else ""
        words.append(f"{would}{separate} held-out pairs {_points(effect.ranked)} {better}")
    return " and ".join(words)


def _points(change: Change) -> str:
    size = 100 * abs(change.difference)
    return f"{size:.{1 if size >= 0.95 else 2}f} points"
