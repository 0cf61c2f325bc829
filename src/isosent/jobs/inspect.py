"""`inspect_texts` and `inspect_vectors`: statistics of a vector space, and what auto would choose.

`inspect_texts` encodes texts, `inspect_vectors` reads vectors of any size; both hand their rows to a `Survey`, which
sees them once: it counts what is wrong (`RowCounts`), sums moments, and keeps a sample. From moments come the figures
of the space before and after a transform (`Stage`); from the sample separate groups (`find_groups`) and the
neighbors that fewer dimensions keep (`held_out_recall`). Texts also let auto choose. `_conclude` puts all of it into
an `Inspection`, whose recommendation is `advise`. `inspect_moments` does what moments alone allow.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError, MissingExtraError, RankWarning
from isosent.io.json import without_nan
from isosent.io.pairs import read_matches
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import source_of
from isosent.model import SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.ranking import FOUND, reciprocal_ranks
from isosent.numeric.similarity import random_cosines, sampled_rows, unit_rows
from isosent.numeric.spectrum import (
    effective_rank,
    isoscore,
    mean_cosine_of_sum,
    participation_ratio,
    spectrum,
    uniformity,
)
from isosent.pages.progress import Progress, counted
from isosent.postprocessing import NO_POSTPROCESSING
from isosent.search.smaller import Sizes, sizes
from isosent.space import refuse_codes
from isosent.transforms.agreement import distinct_rows
from isosent.transforms.auto import AutoChoice, choose_from_texts, choose_without_texts
from isosent.transforms.base import Auto, LinearTransform, make_linear
from isosent.transforms.calibration import FEWEST_PAIRS
from isosent.transforms.groups import separate_groups

AS_THEY_ARE = "as they are"
MARKS = tuple(tenth / 10 for tenth in range(1, 10))  # the cosines that percentiles are reported for
COSINE_PAIRS = 100_000
_BINS = 60
_FEW_ROWS_PER_DIM = 2
_GROUP_ROWS = 4000


class PairRecalls(NamedTuple):
    """Known pairs, such as translations, of which one text is among the ten nearest of the other, as shares."""

    before: float
    after: float
    n_pairs: int
    n_texts: int  # that are searched


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
class SeparateGroups:
    """Separate groups of rows, such as texts in two languages."""

    share: float  # of the smallest group
    cosine_within: tuple[float, float]  # mean over random pairs within the smallest and within the largest group
    cosine_between: float  # of these two
    n_groups: int = 2
    by_words: bool = True  # whether their texts share hardly a word; vectors alone do not say what sets them apart


@dataclass(frozen=True, slots=True)
class Inspection:
    """Statistics of a vector space, the choice of auto, and a recommendation."""

    source: str  # where the texts or vectors come from
    model: str | None  # None for vectors alone
    seed: int
    counts: RowCounts
    eigenvalues: tuple[float, ...]  # variance along each principal axis, descending; rounding noise is 0
    choice: AutoChoice | None  # None if the vectors do not vary
    before: Stage
    after: Stage | None  # sampled vectors after the choice of auto, or after full whitening if auto chooses none
    groups: SeparateGroups | None  # if the rows are separate groups
    sizes: Sizes | None  # what smaller vectors keep; None for few vectors, and without FAISS
    advice: str  # the verdict of auto, and what to look out for
    marks: tuple[float, ...]  # cosines that percentiles are given for
    cosine_edges: tuple[float, ...]  # of the bins of the histograms

    def __repr__(self) -> str:
        return f"<Inspection of {self.source}: {self.advice}>"

    def to_json(self) -> dict[str, Any]:
        """Return values that JSON can hold; an undefined number is None."""
        document = asdict(self) | {
            "choice": None if self.choice is None else self.choice.to_json(),
            "sizes": None if self.sizes is None else self.sizes.to_json(),
            "isosent_version": version("isosent"),
        }
        document["counts"]["rows_per_dim"] = self.counts.rows_per_dim
        return without_nan(document)


def inspect_texts(
    model: SentenceEncoder,
    texts: Sequence[str],
    *,
    purpose: str | None = None,
    seed: int = 0,
    source: str = "texts in memory",
    codecs: bool = False,
    progress: Progress | None = None,
) -> Inspection:
    """Look at the vectors of texts, and say which transform they need, if any.

    Parameters
    ----------
    model : SentenceEncoder
        The model, with its postprocessing.
    texts : sequence of str
        Texts like those to be compared later.
    purpose : str, optional
        "pairs", "topics" or "search": what the vectors are for, which auto then judges alone (see `fitted`).
    seed : int, default 0
        Seed of every sample.
    source : str, optional
        Where the texts come from, for the record.
    codecs : bool, default False
        Whether product quantization is tried among the sizes, too, which takes seconds (see `isosent.search.sizes`).
    progress : callable, optional
        Called as ``progress(done, total)``, counted in texts.

    Returns
    -------
    Inspection
        Statistics, and the choice of auto: the same that `SentenceEncoder.fitted` makes.

    Raises
    ------
    InputError
        If there is no text, or no such purpose.

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
    vectors = model.encode(texts, progress=progress)
    survey = Survey(
        source_of(vectors, where="inspect_texts"), seed=seed, n_duplicate_texts=len(texts) - len(set(texts))
    )
    choice = choose_from_texts(vectors, texts, Auto(purpose=purpose)) if survey.varies else None
    sampled = [texts[row] for row in survey.sampled_rows]
    reference = f"{model.encoder.reference}{''.join(f' -> {fit.transform}' for fit in model.fits)}"
    groups = find_groups(vectors, texts, seed=seed)
    return _conclude(survey, choice, groups, source=source, model=reference, seed=seed, texts=sampled, codecs=codecs)


def inspect_vectors(
    vectors: ArrayLike | VectorSource,
    *,
    texts: Sequence[str] | None = None,
    purpose: str | None = None,
    seed: int = 0,
    source: str = "vectors in memory",
    codecs: bool = False,
    progress: Progress | None = None,
) -> Inspection:
    """Look at vectors from anywhere: how they fill their space, and what fewer dimensions would cost.

    Parameters
    ----------
    vectors : array-like of shape (n_rows, dim), any real dtype, or VectorSource
        The vectors, or an open file of vectors, which is read once. NaN and infinity are counted and left out.
    texts : sequence of str, optional
        The text of each vector, by which auto chooses as for `inspect_texts`.
    purpose : str, optional
        "pairs", "topics" or "search": what the vectors are for, which auto then judges alone (see `fitted`).
    seed : int, default 0
        Seed of every sample.
    source : str, optional
        Where they come from, for the record.
    codecs : bool, default False
        Whether product quantization is tried among the sizes, too, which takes seconds (see `isosent.search.sizes`).
    progress : callable, optional
        Called as ``progress(done, total)``, counted in rows.

    Returns
    -------
    Inspection
        As from `inspect_texts`. Without texts, auto applies no transform.

    Raises
    ------
    InputError
        If an array is not 2-D or does not hold real numbers, there is not one text per vector, or no such purpose.

    Examples
    --------
    >>> import isosent
    >>> isosent.inspect_vectors([[1.0, 0.0], [0.0, 2.0]]).counts.n_used
    2
    """
    measured = source_of(vectors, where="inspect_vectors")
    refuse_codes(measured.name, measured.space)
    n_duplicate_texts = None
    if texts is not None:
        texts = _check.some_texts("inspect_vectors", texts)
        if len(texts) != measured.n_rows:
            unequal = f"{len(texts)} texts for {measured.n_rows} vectors"
            raise InputError(f"inspect: there are {unequal}. Give one text per vector.")
        n_duplicate_texts = len(texts) - len(set(texts))
    survey = Survey(measured, seed=seed, n_duplicate_texts=n_duplicate_texts, progress=progress)
    sampled = None if texts is None else [texts[row] for row in survey.sampled_rows]
    wanted = Auto(purpose=purpose)
    if not survey.varies:
        choice = None
    elif sampled is None:
        choice = choose_without_texts(survey.moments, wanted)
    else:
        choice = choose_from_texts(survey.sample, sampled, wanted)
    groups = find_groups(survey.sample, sampled, seed=seed)
    return _conclude(survey, choice, groups, source=source, model=None, seed=seed, texts=sampled, codecs=codecs)


_VARIANCE_SHARES = (0.9, 0.95, 0.99)


@dataclass(frozen=True, slots=True)
class MomentsInspection:
    """What moments alone say about a vector space, and what whitening would change."""

    n_vectors: int
    dim: int
    mean_cosine: float  # of two different vectors, if all have the same length
    effective_rank: float
    isoscore: float
    top_axis_share: float
    rank: int  # dimensions after whitening
    n_components: dict[float, int]  # share of the variance -> dimensions that hold it
    advice: str

    def rows(self) -> list[tuple[str, str, str]]:
        """Label, original value, value after full whitening."""
        return [
            ("mean cosine of random pairs", f"{self.mean_cosine:.4f}", "0.0000"),
            ("effective rank", f"{self.effective_rank:.1f}", f"{self.rank}"),
            ("isoscore", f"{self.isoscore:.4f}", "1.0000"),
            ("share of the first axis", f"{self.top_axis_share:.4f}", f"{1 / max(self.rank, 1):.4f}"),
            ("dimensions", f"{self.dim}", f"{self.rank}"),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return without_nan(asdict(self))


def inspect_moments(moments: Moments) -> MomentsInspection:
    """Say what whitening would change, of vectors whose moments alone are known.

    The mean cosine of two different vectors is the squared length of the mean over the mean squared length, for many
    vectors of the same length, as embedding APIs give them.
    """
    if moments.weight < 2:
        raise InputError(f"inspect: at least two vectors are needed, and there are {moments.weight:.0f}.")
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    values = eigen.values[: eigen.rank]
    if not eigen.rank:
        raise InputError("inspect: all vectors are equal.")
    squared_mean, total = float(moments.mean @ moments.mean), float(values.sum())
    shares = np.cumsum(values) / total
    padded = np.concatenate([values, np.zeros(moments.dim - eigen.rank)])
    return MomentsInspection(
        n_vectors=round(moments.weight),
        dim=moments.dim,
        mean_cosine=squared_mean / (squared_mean + total),
        effective_rank=effective_rank(values),
        isoscore=isoscore(padded),
        top_axis_share=float(shares[0]),
        rank=eigen.rank,
        n_components={share: int(np.searchsorted(shares, share)) + 1 for share in _VARIANCE_SHARES},
        advice=choose_without_texts(moments, Auto()).reason,
    )


class Survey:
    """What one pass over vectors measures: counts, moments, mean length, and a sample of the used rows.

    Memory: one block, the sample, a few matrices of shape (dim, dim), and eight bytes a row for the duplicates, which
    are detected by a 64-bit hash.
    """

    def __init__(
        self,
        vectors: VectorSource,
        *,
        seed: int,
        n_duplicate_texts: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        n_rows, dim = vectors.n_rows, vectors.dim
        sampled = sampled_rows(n_rows, seed)
        start = n_zero = n_non_finite = 0
        self.moments, self.unit_sum, sum_of_norms = Moments.empty(dim), np.zeros(dim), 0.0
        hashes, samples = [np.empty(0, np.int64)], [np.empty((0, dim), np.float32)]
        positions = [np.empty(0, np.intp)]
        for block in counted(vectors.blocks(), progress, n_rows):
            finite, nonzero = np.isfinite(block).all(axis=1), block.any(axis=1)
            used = np.logical_and(finite, nonzero)
            n_non_finite += int((~finite).sum())
            n_zero += int((~nonzero).sum())
            first, last = np.searchsorted(sampled, [start, start + len(block)])
            picked = sampled[first:last] - start
            picked = picked[used[picked]]
            sample = block[picked]
            positions.append(start + picked)
            samples.append(sample if sample.dtype == np.float64 else sample.astype(np.float32))
            start += len(block)
            rows = block if used.all() else block[used]
            hashes.append(_row_hashes(rows))
            self.moments += Moments.from_rows(rows, eps=vectors.storage.eps, n_rows_total=n_rows)
            floats = rows.astype(np.float64)
            units = unit_rows(floats)
            self.unit_sum += units.sum(axis=0)
            # Lengths as products with the unit vectors: squares of tiny numbers would underflow.
            sum_of_norms += float(np.einsum("ij,ij->", floats, units))
        all_hashes = np.concatenate(hashes)
        n_used = len(all_hashes)
        self.counts = RowCounts(
            n_rows=start,
            n_used=n_used,
            dim=dim,
            dtype=vectors.dtype_name or vectors.storage,
            n_zero=n_zero,
            n_non_finite=n_non_finite,
            n_duplicates=n_used - len(np.unique(all_hashes)),
            n_duplicate_texts=n_duplicate_texts,
        )
        self.mean_norm = sum_of_norms / max(n_used, 1)
        self.sample, self.sampled_rows = np.concatenate(samples), np.concatenate(positions)
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
        return "full whitening, for comparison", make_linear("whitening")
    return str(choice.chosen), chosen


def _fit(transform: LinearTransform, moments: Moments) -> Callable[[NDArray[np.floating]], NDArray[np.floating]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankWarning)
        return NO_POSTPROCESSING.fitted(transform, moments).apply


def _conclude(
    survey: Survey,
    choice: AutoChoice | None,
    groups: SeparateGroups | None,
    *,
    source: str,
    model: str | None,
    seed: int,
    texts: Sequence[str] | None = None,
    codecs: bool = False,
) -> Inspection:
    has_texts = survey.counts.n_duplicate_texts is not None
    surveys = [(AS_THEY_ARE, survey)]
    if choice is not None:
        label, transform = _compared(choice)
        transformed = _fit(transform, survey.moments)(survey.sample)
        surveys.append((label, Survey(source_of(transformed, where="inspect"), seed=seed)))
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
        groups=groups,
        sizes=_sizes(survey.sample, texts, seed=seed, codecs=codecs) if survey.varies else None,
        advice=advise(survey.counts, choice, groups, kind="texts" if has_texts else "vectors"),
        marks=MARKS,
        cosine_edges=tuple(edges.tolist()),
    )


def _bin_edges(cosines: NDArray[np.float64]) -> NDArray[np.float64]:
    if not len(cosines):
        return np.linspace(-1, 1, _BINS + 1)
    low, high = np.quantile(cosines, [0.0005, 0.9995])
    margin = 0.02 + 0.05 * (high - low)
    return np.linspace(max(-1.0, low - margin), min(1.0, high + margin), _BINS + 1)


def find_groups(
    rows: NDArray[np.floating], texts: Sequence[str] | None = None, *, seed: int = 0
) -> SeparateGroups | None:
    """Separate groups among sampled rows, (n_rows, dim), or None; texts show what vectors alone may hide."""
    picked = np.random.default_rng(seed).permutation(len(rows))[:_GROUP_ROWS]
    units = unit_rows(rows[picked].astype(np.float32))
    if texts is None:
        units, some = np.unique(units, axis=0), None
    else:
        some = [texts[row] for row in picked]
        distinct = distinct_rows(some)
        units, some = units[distinct], [some[row] for row in distinct]
    found = separate_groups(units, some, seed=seed)
    if found is None:
        return None
    parts = sorted((units[found == group] for group in np.unique(found[found >= 0])), key=len)
    within = tuple(mean_cosine_of_sum(group.sum(axis=0, dtype=np.float64), len(group)) for group in parts)
    between = float(parts[0].mean(axis=0) @ parts[-1].mean(axis=0))
    return SeparateGroups(
        len(parts[0]) / sum(map(len, parts)), (within[0], within[-1]), between, len(parts), by_words=texts is not None
    )


def _sizes(sample: NDArray[np.floating], texts: Sequence[str] | None, *, seed: int, codecs: bool) -> Sizes | None:
    try:
        return sizes(sample, texts=texts, seed=seed, codecs=codecs)
    except (MissingExtraError, InputError):  # or there are too few vectors
        return None


def groups_warning(groups: SeparateGroups, *, otherwise: str = "inspect and fit") -> str:
    """What separate groups of rows mean, and what to do."""
    two, each = groups.n_groups == 2, f"the smallest {groups.share:.0%}"
    shares = f"{groups.share:.0%} and {1 - groups.share:.0%}" if two else each
    found = f"the rows form {'two' if two else groups.n_groups} separate groups, {shares}, such as languages"
    if not groups.by_words:
        found += " or kinds of products; their texts would tell"
    return (
        f"{found}. Texts find only texts of the same group, and a cosine means something else in each. "
        f"{groups_advice(otherwise)}"
    )


def groups_advice(otherwise: str) -> str:
    """What brings separate groups together, and what to do with each one otherwise."""
    return (
        "If a column names the group, erase it: isosent fit TABLE --erase COLUMN -o FOLDER. If you have translations, "
        f"fit on them: isosent fit --pairs FILE -o FOLDER. Otherwise {otherwise} the groups separately."
    )


def advise(
    counts: RowCounts, choice: AutoChoice | None, groups: SeparateGroups | None = None, *, kind: str = "texts"
) -> str:
    """The verdict of auto, and what to look out for."""
    if choice is not None:
        advice = [choice.reason]
        if counts.rows_per_dim < _FEW_ROWS_PER_DIM:
            advice.append(f"Only {counts.rows_per_dim:.1f} rows per dimension: fit on more.")
        if groups is not None:
            advice.append(f"Warning: {groups_warning(groups)}")
        return " ".join(advice)
    if counts.n_pairs < FEWEST_PAIRS:
        return f"Nothing can be said yet: {counts.n_used} usable {kind} are too few."
    if counts.n_duplicates == counts.n_used - 1:
        return f"Nothing can be said yet: all {counts.n_used} usable vectors are equal."
    return f"Nothing can be said yet: the {counts.n_used} usable vectors do not vary by more than rounding."


def known_pairs(file: str) -> tuple[list[str], list[str]]:
    """Read pairs whose texts are searched for each other, so some must differ."""
    first, second = read_matches(file)[:2]
    if first == second:
        raise InputError(
            f"{file}: the two texts of each of the {len(first):,} pairs are equal, so there is nothing to search for. "
            "Give pairs of different texts, such as translations."
        )
    return first, second


def pairs_found(
    before: SentenceEncoder, after: SentenceEncoder, first: Sequence[str], second: Sequence[str], texts: Sequence[str]
) -> PairRecalls:
    """Search each text of the pairs for the other one, among them and the texts that were fitted on."""
    listed = list(dict.fromkeys([*first, *second, *(texts[row] for row in sampled_rows(len(texts)))]))
    row_of = {text: row for row, text in enumerate(listed)}
    one, other = (np.array([row_of[text] for text in side], np.intp) for side in (first, second))
    one, other = one[one != other], other[one != other]
    queries, own = np.concatenate([one, other]), np.concatenate([other, one])
    encoded = before.encoder.encode(listed)
    shares = []
    for vectors in (before.transform(encoded), after.transform(encoded)):
        ranks = reciprocal_ranks(vectors[queries], vectors, own, list(queries[:, None]))  # a text is not its own result
        shares.append(float((ranks >= FOUND).mean()))
    return PairRecalls(shares[0], shares[1], len(one), len(listed))
