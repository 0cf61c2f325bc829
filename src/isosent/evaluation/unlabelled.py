"""Compare models on texts without labels: which is better, what each costs, and what it contains of the others.

Models are compared by the halves of texts, which `halves_of` cuts, and by word overlap: `compare_vectors` judges all
pairs of models, and `compare_models` adds what each costs. `compare_stored` compares vectors whose models are not
known, so that no half can be encoded: by word overlap and by the topics of neighbors. Both of these rest on words. So
`explained_by_words` measures how much a model works by words, and the verdicts of `UnlabelledComparison` and of
`VectorComparison` do not let it win by that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.numeric.moments import JointFolds, JointMoments
from isosent.numeric.ranking import reciprocal_ranks
from isosent.numeric.similarity import mean_ranks, nonzero_rows, unit_rows
from isosent.numeric.statistics import central_interval, mean_draws, resampled_counts, weighted_pearson
from isosent.numeric.threads import one_thread_products
from isosent.pages.progress import Progress, part_of
from isosent.storage import Storage
from isosent.transforms.agreement import distinct_rows, sample_pairs, topical_agreement, word_counts
from isosent.transforms.groups import separate_groups

FEWEST_TEXTS = 30
_FEWEST_WORDS = 6
_MOST_TEXTS = 2000
_FOLDS = 3
_LEAST_TOPICS = 0.01  # what the interval of topical agreement must be beyond
_BY_WORDS = 0.03  # difference in `explained_by_words` from which on one model works more by words
_PENALTY = 0.1  # of `explained_by_words`, times the mean of the diagonal
_MOST_EXPLAINED = 1000  # texts
_SAME = 1e-6
_SURE_SD = 3  # standard deviations above chance


class Difference(NamedTuple):
    """How much better a way is than another one, with its 95% interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.3f}, 95% interval {self.low:+.3f} to {self.high:+.3f}"


class VectorComparison(NamedTuple):
    """Which of two files of vectors of the same texts is better, where nobody knows how they were made."""

    overlap: Difference  # of B over A, in the agreement of cosines with word overlap
    topics: Difference  # in the topical agreement of neighbors; NaN if the texts share too few words
    words: tuple[float, float]  # how much of A and of B the words of a text explain, as R2

    @property
    def verdict(self) -> str:
        """Whether B is "better" than A, "worse", "the same", or "cannot tell".

        Both signals rest on words, so a model that works by words is ahead in both. Its lead counts for nothing: a
        model must be ahead in both, and be explained less by the words of a text. bench/verdicts.py measures the rule.
        """
        measured = [each for each in (self.overlap, self.topics) if not np.isnan(each.value)]
        if measured and np.abs(measured).max() < _SAME:
            return "the same"
        more = self.words[1] - self.words[0]
        if self.overlap.low > 0 and self.topics.low > _LEAST_TOPICS and more <= -_BY_WORDS:
            return "better"
        is_worse = self.overlap.high < 0 and self.topics.high < -_LEAST_TOPICS and more >= _BY_WORDS
        return "worse" if is_worse else "cannot tell"


@dataclass(frozen=True, slots=True)
class UnlabelledComparison:
    """Which of two models ranks related texts higher, by the halves of texts and by word overlap."""

    n_texts: int  # that were long enough to be cut in halves
    score_a: float  # mean reciprocal rank of the other half, in [0, 1]
    score_b: float
    difference: float  # of model B over model A
    low: float  # ends of its 95% bootstrap interval
    high: float
    overlap: float  # difference in the agreement of cosines with word overlap; NaN if too few texts share words
    overlap_low: float
    overlap_high: float
    words_a: float = float("nan")  # how much of the vectors the words of a text explain, as R2; NaN if unknown
    words_b: float = float("nan")

    @property
    def verdict(self) -> str:
        """Whether B is "better" than A, "worse", or "cannot tell": clear only if both intervals lie on one side."""
        # Either measure alone is wrong too often: halves share what a writer repeats, and overlap sees words only.
        # A model that works by words is ahead in both for that reason alone.
        more = self.words_b - self.words_a
        if self.low > 0 and self.overlap_low > 0 and not more > _BY_WORDS:
            return "better"
        is_worse = self.high < 0 and self.overlap_high < 0 and not more < -_BY_WORDS
        return "worse" if is_worse else "cannot tell"


@dataclass(frozen=True, slots=True)
class ComparedModel:
    """How a model compares on texts without labels, and what it costs."""

    score: float  # mean reciprocal rank of the other half of a text, in [0, 1]
    better_than: tuple[str, ...]  # names; what is missing in both of two models is not known
    dim: int
    ms: float  # to encode a text

    @property
    def n_bytes(self) -> int:
        """Bytes of a float32 vector."""
        return Storage.float32.n_bytes(self.dim)


@dataclass(frozen=True, slots=True)
class ModelsComparison:
    """Models compared in pairs on texts, without labels."""

    n_texts: int
    models: Mapping[str, ComparedModel]
    pairs: Mapping[tuple[str, str], UnlabelledComparison]  # of the names A and B
    r2: Mapping[tuple[str, str], float]  # of A and B: how much of A a linear map finds in B, on folds
    caution: str | None  # what the texts do not measure, such as searches across languages

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        ends = ("difference", "low", "high", "overlap", "overlap_low", "overlap_high", "words_a", "words_b")
        return {
            "n_texts": self.n_texts,
            "models": {
                name: {"better_than": list(model.better_than), "dimensions": model.dim, "bytes": model.n_bytes}
                | {"ms": model.ms, "score": model.score}
                for name, model in self.models.items()
            },
            "pairs": [
                {"a": a, "b": b, "verdict": pair.verdict} | {end: getattr(pair, end) for end in ends}
                for (a, b), pair in self.pairs.items()
            ],
            "contains": [{"of": of, "within": within, "r2": r2} for (of, within), r2 in self.r2.items()],
            "caution": self.caution,
        }


def compare_on_texts(
    a: SentenceEncoder, b: SentenceEncoder, texts: Sequence[str], *, seed: int = 0
) -> UnlabelledComparison:
    """Compare two models on texts, without labels.

    Each text is cut in the middle. The halves of a text are about the same: the better model ranks the second half
    higher among the second halves of all texts. The score is the mean reciprocal rank. The cosines of the better model
    also agree better with word overlap, and it does not work more by words than the other; otherwise the verdict is
    "cannot tell".

    Parameters
    ----------
    a, b : SentenceEncoder
        The models.
    texts : sequence of str
        Texts like those to be searched or compared later; those of fewer than six words are left out, and at most 2,000
        are used.
    seed : int, default 0
        Seed of the sample and of the interval.

    Returns
    -------
    UnlabelledComparison
        Both scores, and the differences with their intervals over texts.

    Raises
    ------
    InputError
        If fewer than 30 distinct texts are long enough.
    """
    halves = halves_of(_check.text_list("compare_on_texts", texts), seed=seed)
    return compare_vectors([model.encode(halves, show_progress_bar=False) for model in (a, b)], halves, seed=seed)[0, 1]


def compare_models(
    models: Mapping[str, SentenceEncoder],
    texts: Sequence[str],
    *,
    seed: int = 0,
    progress: Progress | None = None,
) -> ModelsComparison:
    """Compare models in pairs on texts, without labels; say what each costs and how much of it the others contain.

    Parameters
    ----------
    models : mapping of str to SentenceEncoder
        Two models or more, by name.
    texts : sequence of str
        As for `compare_on_texts`.
    seed : int, default 0
        Seed of the sample, the folds and the intervals.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in texts.

    Returns
    -------
    ModelsComparison
        Each model, and each pair of them.

    Raises
    ------
    InputError
        If there are fewer than two models, or fewer than 30 distinct texts are long enough.
    """
    if len(models) < 2:
        raise InputError(f"compare: {len(models)} model. Give two different models or more: -m MODEL -m MODEL.")
    halves = halves_of(_check.text_list("compare", texts), seed=seed)
    n_texts = len(halves) // 2
    vectors: list[NDArray[np.float32]] = []
    ms: list[float] = []
    for model in models.values():
        parts: list[NDArray[np.float32]] = []
        times_s = []
        for part in (halves[:n_texts], halves[n_texts:]):
            counting = part_of(progress, (2 * len(vectors) + len(parts)) * n_texts, len(models) * len(halves))
            start_s = time.perf_counter()
            parts.append(model.encode(part, show_progress_bar=False, progress=counting))
            times_s.append(time.perf_counter() - start_s)
        vectors.append(np.concatenate(parts))
        ms.append(2 * 1000 * min(times_s) / n_texts)  # the first call also pays for what is made once
    names = list(models)
    pairs = {(names[a], names[b]): compared for (a, b), compared in compare_vectors(vectors, halves, seed=seed).items()}
    scores: dict[str, float] = {}
    better_than: dict[str, list[str]] = {name: [] for name in names}
    for (a, b), compared in pairs.items():
        scores |= {a: compared.score_a, b: compared.score_b}
        if compared.verdict != "cannot tell":
            better, worse = (a, b) if compared.verdict == "worse" else (b, a)
            better_than[better].append(worse)
    facts = {
        name: ComparedModel(scores[name], tuple(better_than[name]), model.dim, elapsed)
        for (name, model), elapsed in zip(models.items(), ms, strict=True)
    }
    texts = [f"{halves[row]} {halves[n_texts + row]}" for row in range(n_texts)]
    cautions = [_caution_of_chance(scores, n_texts), caution_of_halves(models.values(), vectors[0][:n_texts], texts)]
    r2 = _contained(dict(zip(names, vectors, strict=True)), seed=seed)
    return ModelsComparison(n_texts, facts, pairs, r2, " ".join(filter(None, cautions)) or None)


def _caution_of_chance(scores: Mapping[str, float], n_texts: int) -> str | None:
    """Which models find the other half of a text no better than a random order does."""
    reciprocal = 1 / np.arange(1, n_texts + 1)
    chance, sd = reciprocal.mean(), reciprocal.std() / math.sqrt(n_texts)
    names = [name for name, score in scores.items() if score <= chance + _SURE_SD * sd]
    if not names:
        return None
    return (
        f"{' and '.join(names)}: the second half of a text is found as by chance ({chance:.3f}), so the score says "
        "nothing about the model, or these texts have no halves that are about the same."
    )


def caution_of_halves(
    models: Iterable[SentenceEncoder], units: NDArray[np.floating], texts: Sequence[str]
) -> str | None:
    """What halves and word overlap, which are of one language each, did not measure."""
    if any(fit.transform == "erasure" for model in models for fit in model.fits):
        what = "An attribute such as the language was erased, and both halves of a text have the same value"
    elif separate_groups(units, texts) is not None:
        what = "The texts form groups that share hardly a word, as languages do, and both halves of a text are of one"
    else:
        return None
    return f"{what}: searches across them were not measured. Give queries with their answers, such as translations."


@one_thread_products()
def _contained(vectors: Mapping[str, NDArray[Any]], *, seed: int) -> dict[tuple[str, str], float]:
    """How much of each model a linear map finds in each other one, by their vectors of `halves_of`, as R2."""
    n_texts = len(next(iter(vectors.values()))) // 2
    fold = np.tile(np.random.default_rng(seed).integers(_FOLDS, size=n_texts), 2)  # both halves of a text in one
    units = {name: unit_rows(rows.astype(np.float64)) for name, rows in vectors.items()}
    contained = {}
    for a, b in combinations(units, 2):
        folds = JointFolds.from_rows(units[a], units[b], fold, n_folds=_FOLDS)
        contained[b, a] = folds.best_r2()
        contained[a, b] = JointFolds(map(JointMoments.swapped, folds.folds)).best_r2()
    return contained


def halves_of(texts: Sequence[str], *, where: str = "compare", seed: int = 0) -> list[str]:
    """The first halves of distinct texts that have enough words, and then their second halves."""
    words = [texts[row].split() for row in distinct_rows(texts)]
    long = [each for each in words if len(each) >= _FEWEST_WORDS]
    if len(long) < FEWEST_TEXTS:
        raise InputError(
            f"{len(long)} different texts of {_FEWEST_WORDS} words or more are too few. At least "
            f"{FEWEST_TEXTS} are needed.",
            where=where,
        )
    chosen = [long[i] for i in np.random.default_rng(seed).permutation(len(long))[:_MOST_TEXTS]]
    halves = [(each[: len(each) // 2], each[len(each) // 2 :]) for each in chosen]
    return [" ".join(first) for first, _ in halves] + [" ".join(second) for _, second in halves]


def compare_vectors(
    vectors: Sequence[NDArray[Any]], halves: Sequence[str], *, seed: int = 0
) -> dict[tuple[int, int], UnlabelledComparison]:
    """Compare models in pairs by their vectors of `halves_of`; the keys are their places."""
    sides = [np.split(rows, 2) for rows in vectors]
    ranks = np.stack([reciprocal_ranks(first, second) for first, second in sides])
    draws, scores = mean_draws(ranks, seed=seed), ranks.mean(axis=1).tolist()
    distinct = distinct_rows(halves)
    equal = [(rows[distinct], rows[distinct]) for rows in vectors]
    agreements, drawn = overlap_agreements([halves[row] for row in distinct], equal, seed=seed) or (None, None)
    words = [explained_by_words(rows, halves) for rows in vectors]
    comparisons = {}
    for a, b in combinations(range(len(vectors)), 2):
        overlap = (float("nan"),) * 3
        if agreements is not None and drawn is not None:
            overlap = (float(agreements[b] - agreements[a]), *central_interval(drawn[b] - drawn[a]))
        ends = central_interval(draws[b] - draws[a])
        comparisons[a, b] = UnlabelledComparison(
            ranks.shape[1], scores[a], scores[b], scores[b] - scores[a], *ends, *overlap, words[a], words[b]
        )
    return comparisons


def compare_stored(
    a: NDArray[np.floating], b: NDArray[np.floating], texts: Sequence[str], *, seed: int = 0
) -> VectorComparison:
    """Compare two arrays of vectors of the same distinct texts, which share words, by these."""
    agreements = overlap_agreements(texts, [(a, a), (b, b)], seed=seed)
    if agreements is None:
        raise InputError("compare: the texts share no words by which vectors could be compared. Name models.")
    scores, draws = agreements
    overlap = Difference(float(scores[1] - scores[0]), *central_interval(draws[1] - draws[0]))
    topics = topical_difference(a, b, texts, seed=seed)
    return VectorComparison(overlap, topics, (explained_by_words(a, texts), explained_by_words(b, texts)))


def topical_difference(
    a: NDArray[np.floating], b: NDArray[np.floating], texts: Sequence[str], *, seed: int = 0
) -> Difference:
    """How much nearer by topic the neighbors in b are than those in a; NaN if the texts share too few words."""
    found = [topical_agreement(each, texts, seed=seed) for each in (a, b)]
    if found[0] is None or found[1] is None:
        return Difference(*(float("nan"),) * 3)
    gains = found[1] - found[0]
    gains = gains[np.isfinite(gains)]  # of texts that have a vector in both
    return Difference(float(gains.mean()), *central_interval(mean_draws(gains[None], seed=seed)[0]))


@one_thread_products()
def explained_by_words(vectors: NDArray[np.floating], texts: Sequence[str]) -> float:
    """How much of vectors the words of their texts explain, as R2 on texts held out; NaN if that is not defined.

    A ridge regression on the share of each word in a text. A mean of word vectors is such a sum, so models that work by
    words, and the first layers of a network, are explained more than others on the same texts.
    """
    rows = np.flatnonzero(nonzero_rows(vectors))
    rows = np.random.default_rng(0).permutation(rows)[:_MOST_EXPLAINED]
    counts = word_counts([texts[row] for row in rows.tolist()])
    if not counts.nnz:  # no text has a word
        return float("nan")
    shares = counts.multiply(1 / np.maximum(counts.sum(axis=1), 1)[:, np.newaxis]).tocsr()
    kernel, units = (shares @ shares.T).toarray(), unit_rows(vectors[rows].astype(np.float64))
    halves = np.array_split(np.arange(len(rows)), 2)
    left = total = 0.0
    for fitted, held_out in (halves, halves[::-1]):
        mean, inner = units[fitted].mean(axis=0), kernel[np.ix_(fitted, fitted)]
        ridge = inner + _PENALTY * max(np.diag(inner).mean(), _SAME) * np.eye(len(inner))
        weight = np.linalg.solve(ridge, units[fitted] - mean)
        left += ((units[held_out] - mean - kernel[np.ix_(held_out, fitted)] @ weight) ** 2).sum()
        total += ((units[held_out] - mean) ** 2).sum()
    return float(1 - left / total) if total > 0 else float("nan")


def overlap_agreements(
    texts: Sequence[str], rows: Sequence[tuple[NDArray[Any], NDArray[Any]]], *, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Rank correlation of cosines with word overlap, the measure of auto, and the same in resamples of the texts.

    `rows` are pairs of vectors of the distinct texts, as queries and as documents. Shapes are (n_rows,) and
    (n_rows, n_resamples); None if the texts are too few, or share no word.
    """
    halves = sample_pairs(texts, seed=seed)
    scores, draws = np.zeros(len(rows)), np.zeros((len(rows), 1))
    units = [tuple(unit_rows(side.astype(np.float64)) for side in sides) for sides in rows]
    for half in halves:
        overlap = mean_ranks(half.overlap)
        group = np.concatenate([[0], np.cumsum(half.first[1:] != half.first[:-1])])
        cosines = [np.einsum("ij,ij->i", queries[half.first], documents[half.second]) for queries, documents in units]
        agreements = [weighted_pearson(mean_ranks(each), overlap, group) for each in cosines]
        n_queries = int(group.max()) + 1
        counts = list(resampled_counts(n_queries, seed=seed))
        scores = scores + np.array([float(each(np.ones((1, n_queries)))[0]) for each in agreements]) / len(halves)
        draws = draws + np.stack([np.concatenate([each(c) for c in counts]) for each in agreements]) / len(halves)
    return (scores, draws) if halves else None
