"""Ranks of what should be found, and the metrics that follow from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.similarity import unit_rows

_TIE = np.float32(1e-6)  # beyond what the order of summation does to a float32 product of unit vectors
_BLOCK_DOCUMENTS = 16384
_BLOCK_QUERIES = 256

Ranks = NDArray[np.int64]


def ranks_by_score(scores: NDArray[np.floating]) -> Ranks:
    """Rank items by their score."""
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks


def cosine_ranks(
    queries: NDArray[np.float32],
    documents: NDArray[np.float32],
    pairs: NDArray[np.integer],
    *,
    left_out: NDArray[np.integer] | None = None,
) -> Ranks:
    """Rank that a document has among all documents, for each of some pairs of a query and a document."""
    # Exact: every query is compared with every document, in blocks, by float32 products of unit vectors. Neither an
    # (n_queries, n_docs) matrix nor a list of the best is kept: only the ranks of what should be found matter to a
    # metric, and those are counts. Memory beyond the arguments: unit vectors of the queries, and about 70 MB at 256
    # dimensions. The tolerance of 1e-6 hides what the order of summation does to the last digit, which differs
    # between machines and between places in a block.
    query_units = unit_rows(queries)
    asked, found = pairs.T
    cosines = _cosines(query_units, documents, pairs)
    by_query = np.argsort(asked, kind="stable")
    begins = np.searchsorted(asked[by_query], np.arange(len(queries) + 1))
    ahead = np.zeros(len(pairs), dtype=np.int64)
    for start in range(0, len(documents), _BLOCK_DOCUMENTS):
        units = unit_rows(documents[start : start + _BLOCK_DOCUMENTS])
        for first in range(0, len(queries), _BLOCK_QUERIES):
            last = min(first + _BLOCK_QUERIES, len(queries))
            scores = query_units[first:last] @ units.T
            if left_out is not None:
                place = left_out[first:last] - start
                here = np.flatnonzero((place >= 0) & (place < len(units)))
                scores[here, place[here]] = -np.inf
            for pair in by_query[begins[first] : begins[last]]:
                row, own = scores[asked[pair] - first], min(max(found[pair] - start, 0), len(units))
                ahead[pair] += np.count_nonzero(row[:own] >= cosines[pair] - _TIE)
                ahead[pair] += np.count_nonzero(row[own:] > cosines[pair] + _TIE)
    return 1 + ahead


def _cosines(
    query_units: NDArray[np.floating], documents: NDArray[np.float32], pairs: NDArray[np.integer]
) -> NDArray[np.float32]:
    cosines = np.empty(len(pairs), dtype=np.float32)
    for start in range(0, len(pairs), _BLOCK_DOCUMENTS):
        part = slice(start, start + _BLOCK_DOCUMENTS)
        asked, found = pairs[part].T
        cosines[part] = np.einsum("ij,ij->i", query_units[asked], unit_rows(documents[found]))
    return cosines


def average_precision(ranks: NDArray[np.integer], k: int | None = None) -> float:
    """Mean, over the relevant items, of the precision at their rank."""
    # :math:`\frac{1}{R} \sum_{i=1}^{R} i / r_i` with the ranks :math:`r_1 < r_2 < \dots` of all R relevant items.
    found = np.sort(_within(ranks, k))
    return float((np.arange(1, len(found) + 1) / found).sum() / max(1, len(ranks)))


def expected_average_precision(n_relevant: int, n_items: int) -> float:
    """Average precision that a random order has on average."""
    # The item at rank r is relevant with probability :math:`R / n`, and each item above it then with :math:`(R - 1) /
    # (n - 1)`. The sum over ranks is :math:`(H_n + (n - H_n) (R - 1) / (n - 1)) / n`, :math:`H_n` the n-th harmonic
    # number.
    if n_relevant == 0:
        return 0.0
    harmonic = (1 / np.arange(1, n_items + 1)).sum()
    return float((harmonic + (n_items - harmonic) * (n_relevant - 1) / max(1, n_items - 1)) / n_items)


def reciprocal_rank(ranks: NDArray[np.integer], k: int | None = None) -> float:
    """One over the best rank of a relevant item."""
    found = _within(ranks, k)
    return float(1 / found.min()) if len(found) else 0.0


def recall_at_k(ranks: NDArray[np.integer], k: int) -> float:
    """Share of the relevant items that rank among the first k."""
    return len(_within(ranks, k)) / max(1, len(ranks))


def ndcg_at_k(ranks: NDArray[np.integer], gains: NDArray[np.floating], k: int) -> float:
    """Discounted cumulative gain of the first k items, over that of the best order."""
    # The gain is linear, as in trec_eval: :math:`\sum_{r_i \le k} g_i / \log_2(1 + r_i)`, not :math:`2^{g_i} - 1`.
    ideal = np.sort(gains)[::-1][:k]
    best = (ideal / np.log2(np.arange(2, len(ideal) + 2))).sum()
    found = ranks <= k
    return float((gains[found] / np.log2(1 + ranks[found])).sum() / best) if len(ranks) else 0.0


def _within(ranks: NDArray[np.integer], k: int | None) -> NDArray[np.integer]:
    return ranks if k is None else ranks[ranks <= k]
