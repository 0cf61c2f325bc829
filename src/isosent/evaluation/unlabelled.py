"""Compare two models on texts without labels."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Progress
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.numeric.moments import JointFolds
from isosent.numeric.similarity import mean_ranks, unit_rows
from isosent.numeric.statistics import central_interval, resampled_counts, weighted_pearson
from isosent.transforms.auto import distinct_rows, sample_pairs

FEWEST_TEXTS = 30
_FEWEST_WORDS = 6
_MOST_TEXTS = 2000
_BLOCK = 256
_FOLDS = 5
_PENALTIES = (0.03, 0.1, 0.3, 1.0)


@dataclass(frozen=True, slots=True)
class UnlabelledComparison:
    """Which of two models ranks related texts higher."""

    n_texts: int  # that were long enough to be cut in halves
    score_a: float  # mean reciprocal rank of the other half, in [0, 1]
    score_b: float
    difference: float  # of model B over model A
    low: float  # ends of its 95% bootstrap interval
    high: float
    overlap: float = 0.0  # difference in the agreement of cosines with word overlap

    @property
    def verdict(self) -> str:
        """Whether B is "better" than A, "worse", or "cannot tell", also if word overlap points the other way."""
        if self.overlap * self.difference < 0:
            return "cannot tell"
        return "better" if self.low > 0 else "worse" if self.high < 0 else "cannot tell"


def compare_on_texts(
    a: SentenceEncoder, b: SentenceEncoder, texts: Sequence[str], *, seed: int = 0
) -> UnlabelledComparison:
    """Compare two models on texts, without labels.

    Each text is cut in the middle. The halves of a text are about the same: the better model ranks the second half
    higher among the second halves of all texts. The score is the mean reciprocal rank. If cosines of the other model
    agree better with word overlap, the answer is "cannot tell".

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
        Both scores, and the difference with its interval over texts.

    Raises
    ------
    InputError
        If fewer than 30 distinct texts are long enough.
    """
    halves = halves_of(_check.text_list("compare_on_texts", texts), seed=seed)
    vectors = [model.encode(halves, show_progress_bar=False) for model in (a, b)]
    return compare_vectors(vectors[0], vectors[1], halves, seed=seed)


def compare_models(
    models: Mapping[str, SentenceEncoder], texts: Sequence[str], *, seed: int = 0, progress: Progress | None = None
) -> dict[str, Any]:
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
        Called with the number of texts encoded since the last call.

    Returns
    -------
    dict
        JSON values. ``models``: ``score``, ``dimensions``, ``bytes`` and ``ms`` (of a half of a text) of each.
        ``pairs``: ``a``, ``b``, ``difference`` of B over A with ``low`` and ``high``, and the ``verdict`` on B.
        ``contains``: how much of the model ``of`` a linear map finds in the model ``within``, as R2 on folds.

    Raises
    ------
    InputError
        If there are fewer than two models, or fewer than 30 distinct texts are long enough.
    """
    if len(models) < 2:
        raise InputError(f"compare: two different models or more are needed; got {len(models)}. Repeat -m MODEL.")
    halves = halves_of(_check.text_list("compare", texts), seed=seed)
    vectors, facts = {}, {}
    for name, model in models.items():
        started_s = time.perf_counter()
        vectors[name] = model.encode(halves, show_progress_bar=False, progress=progress)
        ms = 1000 * (time.perf_counter() - started_s) / len(halves)
        score = float(reciprocal_ranks(*np.split(vectors[name], 2)).mean())
        facts[name] = {"score": score, "dimensions": model.dim, "bytes": 4 * model.dim, "ms": ms}
    pairs = []
    for a, b in combinations(models, 2):
        found = compare_vectors(vectors[a], vectors[b], halves, seed=seed)
        ends = {"difference": found.difference, "low": found.low, "high": found.high}
        pairs.append({"a": a, "b": b, **ends, "verdict": found.verdict})
    # both halves of a text lie in one fold
    fold = np.tile(np.random.default_rng(seed).integers(_FOLDS, size=len(halves) // 2), 2)
    units = {name: unit_rows(rows.astype(np.float64)) for name, rows in vectors.items()}
    contains = []
    for within, of in permutations(models, 2):
        folds = JointFolds.from_rows(units[within], units[of], fold, n_folds=_FOLDS)
        contains.append({"of": of, "within": within, "r2": max(map(folds.r2, _PENALTIES))})
    return {"n_texts": len(halves) // 2, "models": facts, "pairs": pairs, "contains": contains}


def halves_of(texts: Sequence[str], *, seed: int = 0) -> list[str]:
    """The first halves of distinct texts that have enough words, and then their second halves."""
    words = [texts[row].split() for row in distinct_rows(texts)]
    long = [each for each in words if len(each) >= _FEWEST_WORDS]
    if len(long) < FEWEST_TEXTS:
        raise InputError(
            f"compare: at least {FEWEST_TEXTS} different texts of {_FEWEST_WORDS} words or more are needed; got "
            f"{len(long)}."
        )
    chosen = [long[i] for i in np.random.default_rng(seed).permutation(len(long))[:_MOST_TEXTS]]
    halves = [(each[: len(each) // 2], each[len(each) // 2 :]) for each in chosen]
    return [" ".join(first) for first, _ in halves] + [" ".join(second) for _, second in halves]


def compare_vectors(a: NDArray[Any], b: NDArray[Any], halves: Sequence[str], *, seed: int = 0) -> UnlabelledComparison:
    """Compare two models by their vectors of `halves_of`."""
    ranks = np.stack([reciprocal_ranks(*np.split(vectors, 2)) for vectors in (a, b)])
    draws = mean_draws(ranks, seed=seed)
    low, high = central_interval(draws[1] - draws[0])
    score_a, score_b = ranks.mean(axis=1).tolist()
    rows = distinct_rows(halves)
    agreements = overlap_agreements([halves[row] for row in rows], [(a[rows], a[rows]), (b[rows], b[rows])], seed=seed)
    overlap = 0.0 if agreements is None else float(agreements[0][1] - agreements[0][0])
    return UnlabelledComparison(ranks.shape[1], score_a, score_b, score_b - score_a, low, high, overlap)


def reciprocal_ranks(
    queries: NDArray[Any], documents: NDArray[Any], own: NDArray[np.intp] | None = None
) -> NDArray[np.float64]:
    """One over the rank of each query's own document among all, by cosine; ties count half.

    `own`, (n_queries,), is the row of each query's document; by default, that of the query.
    """
    queries, documents = (unit_rows(rows.astype(np.float64)) for rows in (queries, documents))
    own = np.arange(len(queries)) if own is None else own
    ranks = np.empty(len(queries))
    for start in range(0, len(queries), _BLOCK):
        cosines = queries[start : start + _BLOCK] @ documents.T
        reached = cosines[np.arange(len(cosines)), own[start : start + len(cosines)]][:, None]
        n_ties = (cosines == reached).sum(axis=1)
        ranks[start : start + len(cosines)] = 0.5 + (cosines > reached).sum(axis=1) + 0.5 * n_ties
    return 1 / ranks


def mean_draws(values: NDArray[np.float64], *, seed: int = 0) -> NDArray[np.float64]:
    """Means of each row of values, (n_rows, n_items), in resamples of the items, which are the same for all rows."""
    n_items = values.shape[1]
    return np.concatenate([counts @ values.T for counts in resampled_counts(n_items, seed=seed)]).T / n_items


def overlap_agreements(
    texts: Sequence[str], rows: Sequence[tuple[NDArray[Any], NDArray[Any]]], *, seed: int = 0
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Rank correlation of cosines with word overlap, the measure of auto, and the same in resamples of the texts.

    `rows` are pairs of vectors of the distinct texts, as queries and as documents. Shapes are (n_rows,) and
    (n_rows, n_resamples); None if the texts are too few, or share no word.
    """
    scores, draws = 0.0, 0.0
    halves = sample_pairs(texts, seed=seed)
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
    return (scores, draws) if isinstance(scores, np.ndarray) and isinstance(draws, np.ndarray) else None
