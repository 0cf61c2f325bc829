"""Who are the nearest: the k rows of the highest inner product, of unit vectors. Nobody else selects them.

`best_columns` takes the k highest of scores that are there, `nearest_columns` those of a product whose last digits are
uncertain, and `best` joins what several searches found. On these stand the searches of rows: `nearest_of_blocks`, exact
on every processor, `nearest_others`, of rows among themselves, and `nearest_in_lists`, which compares a row of a large
set with those around it; `near_others` chooses between these two. `fast_nearest` is by FAISS: several times as fast,
with the last digits of float32 sums.

Equal scores are taken in their order. Which of them `numpy.argpartition` takes depends on the processor, and so do
the last digits of a float32 product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.numeric.similarity import unit_rows
from isosent.numeric.threads import over_blocks

TIE: Final = np.float32(1e-6)  # what the order of summation can change
_MOST_CANDIDATES: Final = 4  # times k; of a row with more, all scores are computed again
_RECALLED: Final = 10
_BLOCK_QUERIES: Final = 256
_BLOCK_ROWS: Final = 1 << 15
_LISTS_PER_ROOT: Final = 4  # lists per square root of the number of rows
_SAMPLED_A_LIST: Final = 16
_ROUNDS: Final = 4  # of k-means
_RECALL_OF_NEXT: Final = 0.9  # share of the three nearest of a row that lie in the lists it is compared with
_FEWEST_PROBED: Final = 8
_MOST_PROBED: Final = 64
_ROWS_LISTED: Final = 1 << 14  # rows whose candidates are kept at a time
_LIST_ROWS: Final = 128
_SAMPLE: Final = 4096  # rows of a large set that are compared with all others, to measure what lists miss


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
    if numbers.shape[1] > max(_MOST_CANDIDATES * k, _RECALLED):  # many ties
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
    numbers, columns = _candidates(scores, k, _bound(scores, k) - TIE)
    least = np.partition(numbers, -k, axis=1)[:, -k, None]
    is_candidate = numbers >= least - TIE
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


def best(
    scores: NDArray[np.float32], positions: NDArray[np.int64], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The k best of each row, best first; equal scores in the order of their positions."""
    if scores.shape[1] >= k and (scores[:, :-1] > scores[:, 1:]).all():
        return scores[:, :k], positions[:, :k]
    order = np.lexsort((positions, -scores), axis=1)[:, :k]
    return _padded(np.take_along_axis(scores, order, 1), np.take_along_axis(positions, order, 1), k)


def _padded(
    scores: NDArray[np.float32], positions: NDArray[np.int64], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    missing = ((0, 0), (0, k - scores.shape[1]))
    scores = np.pad(scores, missing, constant_values=-np.inf) if missing[1][1] else scores
    positions = np.pad(positions, missing, constant_values=-1) if missing[1][1] else positions
    return np.where(positions < 0, np.float32(-np.inf), scores), positions


def no_neighbors(n_queries: int, k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and positions of queries that have found nothing yet."""
    return np.full((n_queries, k), -np.inf, np.float32), np.full((n_queries, k), -1)


# -- rows among rows ---------------------------------------------------------------------------------------------------


def nearest_of_blocks(
    queries: NDArray[np.float32],
    blocks: Iterable[tuple[NDArray[np.float32], NDArray[np.intp]]],
    k: int,
    *,
    self_rows: NDArray[np.intp] | None = None,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and positions of the k nearest of the rows in blocks, each with the positions of its rows, ascending.

    Best first, equally near ones in the order of their positions, (n_queries, k). `self_rows`, (n_queries,), is a
    position that a query does not find. Where there are fewer, the score is -inf, and the position -1 or that of
    `self_rows`.
    """
    scores, found = no_neighbors(len(queries), k)
    n_block = _BLOCK_QUERIES if len(queries) > 4 * _BLOCK_QUERIES else _BLOCK_QUERIES // 2  # few, for several threads
    for number, (rows, positions) in enumerate(blocks):

        def compare(first: int, number: int = number, rows: Any = rows, positions: Any = positions) -> None:
            part = slice(first, first + n_block)
            products = queries[part] @ rows.T
            if self_rows is not None:
                places = np.searchsorted(positions, self_rows[part]).clip(max=len(rows) - 1)
                is_here = np.flatnonzero(positions[places] == self_rows[part])
                products[is_here, places[is_here]] = -np.inf
            new, columns = nearest_columns(products, queries[part], rows, k)
            if number:
                both = np.hstack([found[part], positions[columns]])
                scores[part], found[part] = best(np.hstack([scores[part], new]), both, k)
            else:
                scores[part, : new.shape[1]], found[part, : new.shape[1]] = new, positions[columns]

        over_blocks(compare, len(queries), n_block)  # threads of BLAS would wait for those of other searches
    return scores, found


def nearest_others(
    units: NDArray[np.float32], k: int, *, rows: NDArray[np.intp] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Cosines and places of the k nearest other rows of each row, or of `rows`, nearest first, (n, k); k < n_rows."""
    asking = np.arange(len(units)) if rows is None else rows
    return nearest_of_blocks(units if rows is None else units[rows], _blocks(units), k, self_rows=asking)


class NearOthers(NamedTuple):
    """The nearest other rows of each row; in a large set, nearly: those of a sample are exact."""

    cosines: NDArray[np.float32]  # (n_rows, k), nearest first
    places: NDArray[np.int64]
    sample: NDArray[np.intp] | None = None  # rows that were compared with all others, if not all were
    nearest: tuple[NDArray[np.float32], NDArray[np.int64]] | None = None  # cosines and places of all these


def near_others(units: NDArray[np.float32], k: int, *, most_exact: int, seed: int) -> NearOthers:
    """The k nearest other rows of each row; of more than `most_exact` rows, those in lists around it; k < n_rows."""
    if len(units) <= most_exact:
        return NearOthers(*nearest_others(units, k))
    sample = np.sort(np.random.default_rng(seed).permutation(len(units))[:_SAMPLE])
    nearest = nearest_others(units, k, rows=sample)
    return NearOthers(*nearest_in_lists(units, k, sample, nearest[1], seed), sample, nearest)


def nearest_among(
    queries: NDArray[np.float32], units: NDArray[np.float32], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Cosines and places of the k nearest rows of each query, nearest first, (n_queries, min(k, n_rows))."""
    return nearest_of_blocks(queries, _blocks(units), min(k, len(units)))


def _blocks(units: NDArray[np.float32]) -> Iterator[tuple[NDArray[np.float32], NDArray[np.intp]]]:
    """Rows in blocks, with their places."""
    places = np.arange(len(units))
    for start in range(0, len(units), _BLOCK_ROWS):
        yield units[start : start + _BLOCK_ROWS], places[start : start + _BLOCK_ROWS]


def nearest_cosines(units: NDArray[np.floating], rows: NDArray[np.intp]) -> NDArray[np.floating]:
    """Cosine of the nearest other row of each of `rows`, (n,), as the product gives it."""
    nearest = np.empty(len(rows), units.dtype)
    for start in range(0, len(rows), _BLOCK_QUERIES):
        block = rows[start : start + _BLOCK_QUERIES]
        cosines = units[block] @ units.T
        cosines[np.arange(len(block)), block] = -np.inf
        nearest[start : start + len(block)] = cosines.max(axis=1)
    return nearest


def nearest_rows(rows: NDArray[np.floating]) -> NDArray[np.int64]:
    """The nearest other row of every row, (n_rows,)."""
    return nearest_others(unit_rows(rows).astype(np.float32, copy=False), 1)[1][:, 0]


def neighbor_recall(before: NDArray[np.floating], after: NDArray[np.floating], n_queries: int) -> float:
    """Share of the ten nearest of the first `n_queries` rows, among the others, that a map keeps."""
    neighbors = []
    for rows in (before, after):
        units = unit_rows(rows.astype(np.float32))
        queries, others = units[:n_queries], units[n_queries:]
        neighbors.append(nearest_columns(queries @ others.T, queries, others, _RECALLED)[1])
    return float(np.mean([len(np.intersect1d(*pair)) / _RECALLED for pair in zip(*neighbors, strict=True)]))


def fast_nearest(
    queries: NDArray[np.float32], blocks: Iterable[NDArray[np.float32]], k: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and numbers of the k nearest of the rows in blocks, by FAISS, (n_queries, k), best first.

    They are -inf and -1 where there are fewer. Last digits, and which of equally near rows are found, depend on the
    processor.
    """
    faiss = _extras.require("faiss")
    scores, found = no_neighbors(len(queries), k)
    n_seen = 0
    for rows in blocks:
        if len(rows) and len(queries):
            new, columns = faiss.knn(queries, rows, min(k, len(rows)), faiss.METRIC_INNER_PRODUCT)
            both = np.hstack([found, columns + n_seen]) if n_seen else columns
            scores, found = best(np.hstack([scores, new]) if n_seen else new, both, k)
        n_seen += len(rows)
    return scores, found


# -- lists: a row of a large set is compared with those around it ----------------------------------------------------


def nearest_in_lists(
    units: NDArray[np.float32], k: int, sample: NDArray[np.intp], nearest: NDArray[np.intp], seed: int
) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """As `nearest_others`, but each row is compared with a few lists; `nearest` are the exact neighbors of a sample."""
    centers = _centers(units, seed)
    lists = _nearest_lists(units[nearest[:, :3].ravel()], centers, 1).reshape(-1, 3)
    to_centers = units[sample] @ centers.T
    ranks = [(to_centers > np.take_along_axis(to_centers, each[:, None], 1)).sum(axis=1) for each in lists.T]
    n_probe = int(np.clip(np.quantile(ranks, _RECALL_OF_NEXT), _FEWEST_PROBED - 1, _MOST_PROBED - 1)) + 1
    probes = _nearest_lists(units, centers, min(n_probe, len(centers)))
    members = np.argsort(probes[:, 0], kind="stable").astype(np.int32)
    bounds = np.searchsorted(probes[members, 0], np.arange(len(centers) + 1))
    cosines, places = np.empty((len(units), k), np.float32), np.empty((len(units), k), np.intp)

    def search(start: int) -> None:
        part = probes[start : start + _ROWS_LISTED]
        order = np.argsort(part.ravel(), kind="stable")
        numbers, queries = part.ravel()[order], order // part.shape[1]
        found = _NearestRows(len(part), k + 1)  # and the row itself
        for number in np.unique(numbers):
            asking = queries[np.searchsorted(numbers, number) : np.searchsorted(numbers, number, "right")]
            rows = units[start + asking]
            for first in range(bounds[number], bounds[number + 1], _LIST_ROWS):
                others = members[first : min(first + _LIST_ROWS, bounds[number + 1])]
                found.add(asking, rows @ units[others].T, others)
        is_own = found.places == np.arange(start, start + len(part))[:, None]
        done = slice(start, start + len(part))
        scores = np.where(is_own, np.float32(-np.inf), found.cosines)
        likely = best_columns(scores, 2 * k)  # a few more than k: of equal ones, those of the first lists come first
        near = np.take_along_axis(found.places, likely, axis=1).astype(np.int64)
        cosines[done], places[done] = best(np.take_along_axis(scores, likely, axis=1), near, k)

    over_blocks(search, len(units), _ROWS_LISTED)
    short = np.flatnonzero(~np.isfinite(cosines[:, -1]))  # in small lists
    cosines[short], places[short] = nearest_others(units, k, rows=short)
    return cosines, places


def _centers(units: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """Centers of the lists: spherical k-means on a sample."""
    from scipy.sparse import csr_array

    n_lists = int(_LISTS_PER_ROOT * math.sqrt(len(units)))
    sample = units[np.random.default_rng(seed).permutation(len(units))[: _SAMPLED_A_LIST * n_lists]]
    centers = sample[:n_lists]
    for _ in range(_ROUNDS):
        lists = _nearest_lists(sample, centers, 1)[:, 0]
        ones = csr_array((np.ones(len(sample), np.float32), lists, np.arange(len(sample) + 1)), (len(sample), n_lists))
        centers = unit_rows(ones.T @ sample)
    return centers


def _nearest_lists(rows: NDArray[np.float32], centers: NDArray[np.float32], n: int) -> NDArray[np.int32]:
    """Numbers of the n lists whose centers are nearest to each row, nearest first."""
    lists = np.empty((len(rows), n), np.int32)

    def search(start: int) -> None:
        block = rows[start : start + _BLOCK_QUERIES] @ centers.T
        lists[start : start + _BLOCK_QUERIES] = block.argmax(axis=1)[:, None] if n == 1 else best_columns(block, n)

    over_blocks(search, len(rows), _BLOCK_QUERIES)
    return lists


class _NearestRows:
    """The k nearest of the rows that each query has been compared with, and room for candidates."""

    def __init__(self, n_queries: int, k: int) -> None:
        self.k = k
        self.cosines = np.full((n_queries, k + 2 * _LIST_ROWS), -np.inf, np.float32)
        self.places = np.zeros(self.cosines.shape, np.int32)
        self.counts = np.zeros(n_queries, np.intp)
        self.least = np.full(n_queries, -np.inf, np.float32)  # cosine of the k-th

    def add(self, queries: NDArray[np.intp], cosines: NDArray[np.float32], places: NDArray[np.int32]) -> None:
        """Compare queries with at most `_LIST_ROWS` rows."""
        full = queries[self.counts[queries] + len(places) > self.cosines.shape[1]]
        if full.size:
            columns = best_columns(self.cosines[full], self.k)
            numbers = np.take_along_axis(self.cosines[full], columns, axis=1)
            self.places[full, : self.k] = np.take_along_axis(self.places[full], columns, axis=1)
            self.cosines[full] = -np.inf
            self.cosines[full, : self.k] = numbers
            self.least[full], self.counts[full] = numbers.min(axis=1), self.k
        near = np.flatnonzero(cosines > self.least[queries, None])
        rows, columns = np.divmod(near, len(places))
        counts = np.bincount(rows, minlength=len(queries))
        slots = np.arange(len(rows)) + np.repeat(self.counts[queries] - (np.cumsum(counts) - counts), counts)
        self.cosines[queries[rows], slots], self.places[queries[rows], slots] = cosines.ravel()[near], places[columns]
        self.counts[queries] += counts
