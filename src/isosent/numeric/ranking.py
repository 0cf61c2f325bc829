"""Exact ranks of relevant documents, and the retrieval metrics computed from them. Equal scores rank in their order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.neighbors import TIE
from isosent.numeric.similarity import unit_rows

_BLOCK_DOCUMENTS = 16384
_BLOCK_QUERIES = 256
FOUND = 0.1  # the least reciprocal rank among the first ten

Ranks = NDArray[np.int64]


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
                n_before[pair] += np.count_nonzero(row[:position] >= cosines[pair] - TIE)
                n_before[pair] += np.count_nonzero(row[position:] > cosines[pair] + TIE)
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
    own_rows: NDArray[np.intp] | None = None,
    also_right: Sequence[NDArray[np.intp]] | None = None,
) -> NDArray[np.float64]:
    """One over the rank of each query's own document among all, by cosine; ties count half.

    `own_rows`, (n_queries,), is the row of each query's document; by default, that of the query. Other rows that are
    right for a query, `also_right`, do not count.
    """
    queries, documents = (unit_rows(rows.astype(np.float64)) for rows in (queries, documents))
    own_rows = np.arange(len(queries)) if own_rows is None else own_rows
    ranks = np.empty(len(queries))
    for start in range(0, len(queries), _BLOCK_QUERIES):
        cosines = queries[start : start + _BLOCK_QUERIES] @ documents.T
        reached = cosines[np.arange(len(cosines)), own_rows[start : start + len(cosines)]][:, None]
        for place, right in enumerate(also_right[start : start + len(cosines)] if also_right is not None else ()):
            cosines[place, right[right != own_rows[start + place]]] = -np.inf
        n_ties = (cosines == reached).sum(axis=1)
        ranks[start : start + len(cosines)] = 0.5 + (cosines > reached).sum(axis=1) + 0.5 * n_ties
    return 1 / ranks
