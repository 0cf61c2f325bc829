"""How long an exact search takes, against the width of the vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

TOP = 10
N_DOCS, N_QUERIES, N_REPEATS = 100_000, 100, 5
_MAX_BYTES = 1 << 29
_BLOCK, _CHUNK = 64, 4096


@dataclass(frozen=True, slots=True)
class SearchTime:
    """Time of an exact search at one width.

    Parameters
    ----------
    k : int
        Dimensions of the vectors.
    n_docs, n_queries : int
        Vectors searched, and queries searched for at once.
    n_repeats : int
        Searches timed, after one that was not.
    elapsed_s : float
        Median time of a search, divided by the queries.
    """

    k: int
    n_docs: int
    n_queries: int
    n_repeats: int
    elapsed_s: float


def exact_top(
    queries: NDArray[np.float32], docs: NDArray[np.float32], n_top: int
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """The documents of largest inner product with each query, by looking at all of them.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, k), float32
        Vectors.
    docs : ndarray of shape (n_docs, k), float32
        Vectors, as many as are asked for or more.
    n_top : int
        Documents a query.

    Returns
    -------
    indices : ndarray of shape (n_queries, n_top), intp
        Documents, best first.
    scores : ndarray of shape (n_queries, n_top), float32
        Their inner products.

    Notes
    -----
    Products are taken in chunks that stay in the cache, and of these only the largest one of every block of documents
    is kept. The best documents lie in the blocks whose largest products are best; those are taken again.

    Examples
    --------
    >>> docs = np.eye(3, dtype=np.float32)
    >>> indices, _ = exact_top(np.array([[0.5, 0.1, 1.0]], dtype=np.float32), docs, 2)
    >>> indices
    array([[2, 0]])
    """
    n_queries, n_docs = len(queries), len(docs)
    starts = range(0, n_docs, _CHUNK)
    largest = np.full((n_queries, len(starts) * (_CHUNK // _BLOCK)), -np.inf, dtype=np.float32)
    products = np.empty((n_queries, _CHUNK), dtype=np.float32)
    for start in starts:
        chunk = docs[start : start + _CHUNK]
        if len(chunk) < _CHUNK:
            products.fill(-np.inf)
        products[:, : len(chunk)] = queries @ chunk.T
        first = start // _BLOCK
        products.reshape(n_queries, -1, _BLOCK).max(axis=2, out=largest[:, first : first + _CHUNK // _BLOCK])
    blocks = np.sort(np.argpartition(-largest, n_top - 1, axis=1)[:, :n_top], axis=1)
    indices = np.empty((n_queries, n_top), dtype=np.intp)
    scores = np.empty((n_queries, n_top), dtype=np.float32)
    for row, query in enumerate(queries):
        candidates = (blocks[row, :, None] * _BLOCK + np.arange(_BLOCK)).ravel()
        candidates = candidates[candidates < n_docs]
        found = docs[candidates] @ query
        best = np.argsort(-found, kind="stable")[:n_top]
        indices[row], scores[row] = candidates[best], found[best]
    return indices, scores


def measure_search(
    widths: Sequence[int], *, n_docs: int = N_DOCS, n_queries: int = N_QUERIES, n_repeats: int = N_REPEATS
) -> list[SearchTime]:
    """Time the exact search of the ten best on one thread, at several widths.

    Parameters
    ----------
    widths : sequence of int
        Dimensions of the vectors.
    n_docs, n_queries : int
        Vectors searched, and queries searched for at once. There are fewer vectors where those of the largest width
        would take more than half a gibibyte.
    n_repeats : int, default 5
        Searches timed at each width.

    Returns
    -------
    list of SearchTime
        One a width.

    Notes
    -----
    Random float32 vectors, for their values do not matter to the time; the same number of them at every width.
    """
    widest = max(widths)
    n_docs = max(TOP, min(n_docs, _MAX_BYTES // (widest * np.dtype(np.float32).itemsize)))
    rng = np.random.default_rng(0)
    docs, queries = (rng.standard_normal((rows, widest), dtype=np.float32) for rows in (n_docs, n_queries))
    times = []
    for k in widths:
        narrow_docs, narrow_queries = np.ascontiguousarray(docs[:, :k]), np.ascontiguousarray(queries[:, :k])
        seconds = []
        with threadpool_limits(1):
            for _ in range(1 + n_repeats):
                start = perf_counter()
                exact_top(narrow_queries, narrow_docs, TOP)
                seconds.append(perf_counter() - start)
        times.append(SearchTime(k, n_docs, n_queries, n_repeats, median(seconds[1:]) / n_queries))
    return times
