"""The best of many scores, exact ranks of relevant documents, and the retrieval metrics computed from them.

Equal scores are taken in their order. Which of them `numpy.argpartition` takes depends on the processor, and so do
the last digits of a float32 product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.similarity import unit_rows

_TIE = np.float32(1e-6)
_BLOCK_DOCUMENTS = 16384
_BLOCK_QUERIES = 256
FOUND = 0.1  # the least reciprocal rank among the first ten

_NEIGHBOURS = 10
_MOST_CANDIDATES = 4  # times k; of a row with more, all scores are computed again

Ranks = NDArray[np.int64]


def best_columns(scores: NDArray[np.floating], k: int) -> NDArray[np.intp]:
    """Columns of the k highest scores of each row, best first, equal ones in their order, (n_rows, min(k, n_columns)).

    NaN counts as -inf.
    """
    k = min(k, scores.shape[1])
    if not k or not len(scores):
        return np.empty((len(scores), k), np.intp)
    numbers, columns = _candidates(scores, k, _bound(scores, k))
    if np.isneginf(numbers[:, k - 1]).any() and np.isnan(scores).any():
        return best_columns(np.where(np.isnan(scores), -np.inf, scores), k)
    if numbers.shape[1] > max(_MOST_CANDIDATES * k, _NEIGHBOURS):  # many ties
        least = np.partition(numbers, -k, axis=1)[:, -k, None]
        is_better, is_tie = numbers > least, numbers == least
        is_tie &= np.cumsum(is_tie, axis=1) <= k - np.count_nonzero(is_better, axis=1)[:, None]
        numbers, columns = (each[is_better | is_tie].reshape(-1, k) for each in (numbers, columns))
    order = np.argsort(-numbers, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(columns, order, axis=1)


def nearest_columns(
    scores: NDArray[np.float32], queries: NDArray[np.float32], rows: NDArray[np.float32], k: int
) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Scores and numbers of the k nearest rows of each query, nearest first, equally near ones in their order.

    `scores` are ``queries @ rows.T`` of unit vectors; a row of -inf is none. What is returned is exact: see
    `exact_products`.
    """
    k = min(k, len(rows))
    if not k or not len(queries):
        return np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.intp)
    numbers, columns = _candidates(scores, k, _bound(scores, k) - _TIE)
    least = np.partition(numbers, -k, axis=1)[:, -k, None]
    is_candidate = numbers >= least - _TIE
    is_crowded = np.count_nonzero(is_candidate, axis=1) > _MOST_CANDIDATES * k
    found, places = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.intp)
    if is_crowded.any():
        exact = exact_products(queries[is_crowded], rows)
        exact[np.isneginf(scores[is_crowded])] = -np.inf
        places[is_crowded] = best_columns(exact, k)
        found[is_crowded] = np.take_along_axis(exact, places[is_crowded], axis=1)
    for query in np.flatnonzero(~is_crowded):
        chosen = columns[query, is_candidate[query]]
        exact = exact_products(queries[query], rows[chosen])
        exact[np.isneginf(scores[query, chosen])] = -np.inf
        order = np.argsort(-exact, kind="stable")[:k]
        found[query], places[query] = exact[order], chosen[order]
    return found, places


def exact_products(queries: NDArray[np.floating], rows: NDArray[np.floating]) -> NDArray[np.float32]:
    """``queries @ rows.T``, added up in float64 and rounded once to float32; stacks of matrices as `numpy.matmul`.

    So equal rows have the same product, on every machine, unless it is within 1e-16 of the middle of two numbers.
    """
    exact = np.matmul(queries.astype(np.float64), np.swapaxes(rows.astype(np.float64), -1, -2))
    return np.asarray(exact, np.float32)


def _bound(scores: NDArray[Any], k: int) -> NDArray[Any]:
    """A number that is at most the k-th highest score of each row, but not much less, (n_rows, 1)."""
    n_columns, width = scores.shape[1], 8 * k
    if n_columns < 2 * width:
        return np.partition(scores, -k, axis=1)[:, -k, None]
    # the k-th highest of the maxima of some parts of a row is at most its k-th highest number
    maxima = scores[:, :width].copy()
    for first in range(width, n_columns - width + 1, width):
        np.maximum(maxima, scores[:, first : first + width], out=maxima)
    maxima.partition(width - k, axis=1)
    return maxima[:, width - k, None]


def _candidates(scores: NDArray[Any], k: int, least: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.intp]]:
    """Scores of at least so much, and their columns, in their order; each row is filled up to one length with -inf."""
    rows, columns = np.nonzero(scores >= least)
    counts = np.bincount(rows, minlength=len(scores))
    slots = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    numbers = np.full((len(scores), max(counts.max(), k)), -np.inf, scores.dtype)
    places = np.zeros(numbers.shape, np.intp)
    numbers[rows, slots], places[rows, slots] = scores[rows, columns], columns
    return numbers, places


def nearest_rows(rows: NDArray[np.floating]) -> NDArray[np.intp]:
    """The nearest other row of every row, (n_rows,)."""
    units = unit_rows(rows).astype(np.float32, copy=False)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -np.inf)
    return nearest_columns(cosines, units, units, 1)[1][:, 0]


def neighbour_recall(before: NDArray[np.floating], after: NDArray[np.floating], n_queries: int) -> float:
    """Share of the ten nearest of the first `n_queries` rows, among the others, that a map keeps."""
    neighbours = []
    for rows in (before, after):
        units = unit_rows(rows.astype(np.float32))
        queries, others = units[:n_queries], units[n_queries:]
        neighbours.append(nearest_columns(queries @ others.T, queries, others, _NEIGHBOURS)[1])
    return float(np.mean([len(np.intersect1d(*pair)) / _NEIGHBOURS for pair in zip(*neighbours, strict=True)]))


def ranks_by_score(scores: NDArray[np.floating]) -> Ranks:
    """Rank of each item, 1 for the highest score; equal scores rank in their order."""
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks


def cosine_ranks(
    queries: NDArray[np.float32],
    documents: NDArray[np.float32],
    pairs: NDArray[np.integer],
    *,
    excluded: NDArray[np.integer] | None = None,
) -> Ranks:
    """Rank of document ``pairs[i, 1]`` among all documents for query ``pairs[i, 0]``, shape (n_pairs,).

    `excluded`, shape (n_queries,), is a document that does not count for a query; -1 for none.
    """
    # Every query is compared with every document, in blocks. No (n_queries, n_docs) matrix and no top list is stored:
    # metrics need only the ranks of relevant documents, and a rank is a count. Scores within 1e-6 are ties and rank in
    # the order of the documents, because the last digit of a float32 product depends on the order of summation, which
    # depends on the machine and on the position in a block.
    query_units = unit_rows(queries)
    query_of, document_of = pairs.T
    cosines = np.empty(len(pairs), dtype=np.float32)
    for start in range(0, len(pairs), _BLOCK_DOCUMENTS):
        part = slice(start, start + _BLOCK_DOCUMENTS)
        cosines[part] = np.einsum("ij,ij->i", query_units[query_of[part]], unit_rows(documents[document_of[part]]))
    by_query = np.argsort(query_of, kind="stable")
    bounds = np.searchsorted(query_of[by_query], np.arange(len(queries) + 1))
    n_before = np.zeros(len(pairs), dtype=np.int64)
    for start in range(0, len(documents), _BLOCK_DOCUMENTS):
        units = unit_rows(documents[start : start + _BLOCK_DOCUMENTS])
        for first in range(0, len(queries), _BLOCK_QUERIES):
            last = min(first + _BLOCK_QUERIES, len(queries))
            scores = query_units[first:last] @ units.T
            if excluded is not None:
                column = excluded[first:last] - start
                rows = np.flatnonzero((column >= 0) & (column < len(units)))
                scores[rows, column[rows]] = -np.inf
            for pair in by_query[bounds[first] : bounds[last]]:
                row = scores[query_of[pair] - first]
                position = min(max(document_of[pair] - start, 0), len(units))
                n_before[pair] += np.count_nonzero(row[:position] >= cosines[pair] - _TIE)
                n_before[pair] += np.count_nonzero(row[position:] > cosines[pair] + _TIE)
    return 1 + n_before


# Each metric below takes the ranks of all relevant items of one query, (n_relevant,).


def average_precision(ranks: NDArray[np.integer]) -> float:
    """Mean, over the relevant items, of the precision at their rank."""
    # sum_i i / r_i / R with the ranks r_1 < r_2 < ... of all R relevant items
    return float((np.arange(1, len(ranks) + 1) / np.sort(ranks)).sum() / max(1, len(ranks)))


def expected_average_precision(n_relevant: int, n_items: int) -> float:
    """Expected average precision of a random order."""
    # The item at rank r is relevant with probability R / n, and each item above it then with (R - 1) / (n - 1). The
    # sum over ranks is (H_n + (n - H_n) (R - 1) / (n - 1)) / n, with H_n the n-th harmonic number.
    if n_relevant == 0:
        return 0.0
    harmonic = (1 / np.arange(1, n_items + 1)).sum()
    return float((harmonic + (n_items - harmonic) * (n_relevant - 1) / max(1, n_items - 1)) / n_items)


def reciprocal_rank(ranks: NDArray[np.integer], k: int | None = None) -> float:
    """One over the best rank of a relevant item; 0 if there is none within rank k."""
    within = _within(ranks, k)
    return float(1 / within.min()) if len(within) else 0.0


def recall_at_k(ranks: NDArray[np.integer], k: int) -> float:
    """Share of the relevant items within the first k."""
    return len(_within(ranks, k)) / max(1, len(ranks))


def ndcg_at_k(ranks: NDArray[np.integer], gains: NDArray[np.floating], k: int) -> float:
    """Discounted cumulative gain of the first k items, divided by that of the best order."""
    # The gain is linear, as in trec_eval: sum_{r_i <= k} g_i / log2(1 + r_i), not 2^g_i - 1.
    ideal = np.sort(gains)[::-1][:k]
    best = (ideal / np.log2(np.arange(2, len(ideal) + 2))).sum()
    within = ranks <= k
    return float((gains[within] / np.log2(1 + ranks[within])).sum() / best) if len(ranks) else 0.0


def _within(ranks: NDArray[np.integer], k: int | None) -> NDArray[np.integer]:
    return ranks if k is None else ranks[ranks <= k]


def reciprocal_ranks(
    queries: NDArray[Any],
    documents: NDArray[Any],
    own: NDArray[np.intp] | None = None,
    also_right: Sequence[NDArray[np.intp]] | None = None,
) -> NDArray[np.float64]:
    """One over the rank of each query's own document among all, by cosine; ties count half.

    `own`, (n_queries,), is the row of each query's document; by default, that of the query. Other rows that are right
    for a query, `also_right`, do not count.
    """
    queries, documents = (unit_rows(rows.astype(np.float64)) for rows in (queries, documents))
    own = np.arange(len(queries)) if own is None else own
    ranks = np.empty(len(queries))
    for start in range(0, len(queries), _BLOCK_QUERIES):
        cosines = queries[start : start + _BLOCK_QUERIES] @ documents.T
        reached = cosines[np.arange(len(cosines)), own[start : start + len(cosines)]][:, None]
        for place, right in enumerate(also_right[start : start + len(cosines)] if also_right is not None else ()):
            cosines[place, right[right != own[start + place]]] = -np.inf
        n_ties = (cosines == reached).sum(axis=1)
        ranks[start : start + len(cosines)] = 0.5 + (cosines > reached).sum(axis=1) + 0.5 * n_ties
    return 1 / ranks
