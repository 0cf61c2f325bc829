"""Cosines of vectors, and the correlations that compare them with human scores."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check

MOST_SAMPLED = 20_000
_QUERIES = 500
_BLOCK_NUMBERS = 1 << 18


def unit_rows(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Scale each row to length 1; a zero row stays zero."""
    rows = np.ascontiguousarray(rows)  # numpy adds up a row in another order if the columns lie together in memory
    step = max(1, _BLOCK_NUMBERS // max(1, rows.shape[1]))
    if len(rows) > step and rows.dtype.kind == "f":  # the squares of all rows would leave the cache
        blocks = np.empty_like(rows)
        for start in range(0, len(rows), step):
            blocks[start : start + step] = unit_rows(rows[start : start + step])
        return blocks
    with np.errstate(over="ignore", under="ignore"):
        norms = np.sqrt(np.add.reduce(rows * rows, axis=1, keepdims=True))
        is_usual = (norms > _least_norm(norms.dtype)) & (norms < np.inf)
        if np.count_nonzero(is_usual) == len(rows):
            return rows / norms
        units: NDArray[np.floating] = rows / np.where(norms > 0, norms, 1)
    # Squares of very large or small numbers leave the range of the dtype: such rows are first divided by their largest.
    extreme = np.flatnonzero(~is_usual)
    largest = np.abs(rows[extreme]).max(axis=1, keepdims=True, initial=0)
    scaled = rows[extreme] / np.where(largest > 0, largest, 1)
    units[extreme] = scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1)
    return units


@cache
def _least_norm(dtype: np.dtype[np.floating]) -> np.floating:
    """What a norm must exceed for its squares to be within the range of a dtype."""
    limits = np.finfo(dtype)
    return np.sqrt(limits.tiny) / limits.eps


def nonzero_rows(vectors: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Which rows are not zero, shape (n_rows,). A zero row means that a text has no vector."""
    # Few rows begin with a zero. Reading every number would take as long as applying a map.
    is_nonzero = np.asarray(vectors[:, 0] != 0)
    candidates = np.flatnonzero(~is_nonzero)
    with np.errstate(invalid="ignore"):  # of a signaling NaN, as damaged files hold; it is refused elsewhere
        is_nonzero[candidates] = vectors[candidates].any(axis=1)
    return is_nonzero


def rows_that_are_nonzero(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """The rows that are not zero; the array itself where all of them are such."""
    is_nonzero = nonzero_rows(vectors)
    return vectors if is_nonzero.all() else vectors[is_nonzero]


def pairwise_cosine(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.float64]:
    """Cosine of row i of `a` with row i of `b`, shape (n_rows,)."""
    _check.same_dim("pairwise_cosine", "b", b.shape[1], a.shape[1])
    return np.einsum("ij,ij->i", unit_rows(a.astype(np.float64)), unit_rows(b.astype(np.float64)))


def cosine_matrix(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.float64]:
    """Cosine of each row of `a` with each row of `b`, shape (n_a, n_b)."""
    _check.same_dim("cosine_matrix", "b", b.shape[1], a.shape[1])
    return unit_rows(a.astype(np.float64)) @ unit_rows(b.astype(np.float64)).T


def sampled_rows(n_rows: int, seed: int = 0) -> NDArray[np.intp]:
    """Positions of the rows that a space is measured by, ascending: all, or 20,000 at random from all."""
    return np.sort(np.random.default_rng(seed).choice(n_rows, min(n_rows, MOST_SAMPLED), replace=False))


def held_out_rows(vectors: NDArray[Any], seed: int = 0) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of up to 500 queries, and of the vectors that they search: sampled rows but for zero rows and copies.

    Every recall of original neighbors is measured on these, so that two of one space are the same.
    """
    picked = sampled_rows(len(vectors), seed)
    picked = picked[nonzero_rows(vectors[picked])]
    rows = vectors[picked]
    units = np.ascontiguousarray(unit_rows(rows.astype(np.result_type(rows, np.float32), copy=False)), np.float32)
    row_bytes = units.view(np.dtype((np.void, units.itemsize * units.shape[1]))).ravel()
    picked = picked[np.sort(np.unique(row_bytes, return_index=True)[1])]
    order = picked[np.random.default_rng(seed).permutation(len(picked))]
    n_queries = min(_QUERIES, len(order) // 10)
    return order[:n_queries], order[n_queries:]


def random_cosines(rows: NDArray[Any], *, n_pairs: int, seed: int) -> NDArray[np.float64]:
    """Cosines of random pairs of different rows, shape (n_pairs,)."""
    rng = np.random.default_rng(seed)
    first = rng.integers(len(rows), size=n_pairs)
    second = (first + rng.integers(1, len(rows), size=n_pairs)) % len(rows)
    units = unit_rows(rows if rows.dtype == np.float64 else rows.astype(np.float32))
    cosines = np.empty(n_pairs)
    step = max(1, _BLOCK_NUMBERS // rows.shape[1])
    for start in range(0, n_pairs, step):
        part = slice(start, start + step)
        cosines[part] = np.einsum("ij,ij->i", units[first[part]], units[second[part]])
    return np.clip(cosines, -1, 1)


def pearson(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Pearson correlation; NaN if there are fewer than two values or one side is constant."""
    if len(a) < 2 or a.min() == a.max() or b.min() == b.max():
        return float("nan")
    x, y = a.astype(np.float64), b.astype(np.float64)
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))


def spearman(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Spearman rank correlation; ties get their mean rank."""
    return pearson(mean_ranks(a), mean_ranks(b))


def mean_ranks(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Rank of each value from 1 on; equal values share their mean rank, and NaN makes every rank NaN."""
    # scipy.stats.rankdata without scipy.stats, which takes longer to import than most evaluations take to run
    if np.isnan(values).any():
        return np.full(len(values), np.nan)
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]
