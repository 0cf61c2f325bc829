"""Weight, mean and scatter of many rows, in one pass over blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError

_BLOCK_BYTES = 16 << 20
_BLOCK_ROWS = 8192
_CHEAP_PRODUCTS = 2e10
_SINGLE_PRECISION_FLOOR = 1e-6
_POWER_STEPS = 8
_SHIFT_ROWS = 256

Sums = tuple[float, NDArray[np.float64], NDArray[np.float64]]


def accumulate(rows: NDArray[Any], weights: NDArray[np.float64] | None, n_rows_total: int | None = None) -> Sums:
    r"""Weight, mean and scatter of rows.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim), any real dtype
        One vector a row, at least one.
    weights : ndarray of shape (n_rows,), float64, or None
        Weight of each row, >= 0; None weighs every row 1.
    n_rows_total : int, optional
        Rows of the whole set, or at least so many, where these are a block of it.

    Returns
    -------
    weight : float
        Sum of the weights.
    mean : ndarray of shape (dim,), float64
        Mean of the rows.
    scatter : ndarray of shape (dim, dim), float64
        Scatter about the mean.

    Raises
    ------
    InputError
        If a row holds NaN or infinity (the message names the row), or its squares overflow.

    Notes
    -----
    See `Moments.from_rows`.
    """
    n_rows, dim = rows.shape
    single = np.result_type(rows.dtype, np.float32) == np.float32
    if single and n_rows > dim and max(n_rows, n_rows_total or 0) * float(dim) ** 2 > _CHEAP_PRODUCTS:
        sums = _accumulate(rows, weights, np.float32)
        if sums is not None:
            return sums
    sums = _accumulate(rows, weights, np.float64)
    if sums is None or not np.isfinite(sums[2]).all():
        raise InputError(
            f"Moments.from_rows: rows must have squares within float64; got values of about {np.abs(rows).max()}."
        )
    return sums


def _accumulate(rows: NDArray[Any], weights: NDArray[np.float64] | None, dtype: type[np.floating]) -> Sums | None:
    """Moments of rows, products in `dtype`, sums in float64; None where float32 does not resolve the spectrum."""
    n_rows, dim = rows.shape
    size = min(n_rows, _BLOCK_ROWS, max(1, _BLOCK_BYTES // (dim * np.dtype(dtype).itemsize)))
    buffer = np.empty((size, dim), dtype=dtype)
    product = np.empty((dim, dim), dtype=dtype)
    ones = np.ones(size, dtype=dtype)
    scatter = np.zeros((dim, dim))
    block_weights, block_means, residuals = [], [], []
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for start in range(0, n_rows, size):
            stop = min(start + size, n_rows)
            some, some_weights = rows[start:stop], None if weights is None else weights[start:stop]
            shift = _sample_mean(some, some_weights).astype(dtype)
            block = np.subtract(some, shift, out=buffer[: len(some)], casting="same_kind")
            if some_weights is None:
                block_weight, residual = float(len(block)), ones[: len(block)] @ block
            else:
                block_weight, residual = float(some_weights.sum()), some_weights.astype(dtype) @ block
                block *= np.sqrt(some_weights).astype(dtype)[:, None]
            if not np.isfinite(residual).all():
                _check.finite_rows("Moments.from_rows", "rows", some, start)
            if not block_weight:
                continue
            scatter += np.matmul(block.T, block, out=product)
            if dtype == np.float32 and not start and n_rows > 4 * size and not _resolved_in_single_precision(scatter):
                return None  # the first block tells most cases
            residuals.append(residual.astype(np.float64) / block_weight)
            block_weights.append(block_weight)
            block_means.append(shift + residuals[-1])
        if not block_weights:
            return 0.0, np.zeros(dim), scatter
        sums = _total(scatter, np.array(block_weights), np.array(block_means), np.array(residuals))
        return sums if dtype == np.float64 or _resolved_in_single_precision(sums[2]) else None


def _sample_mean(rows: NDArray[Any], weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Mean of some rows spread over a block: near enough to its mean to shift by."""
    sample = slice(None, None, max(1, len(rows) // _SHIFT_ROWS))
    some_weights = None if weights is None or not weights[sample].any() else weights[sample]
    return np.average(rows[sample].astype(np.float64), axis=0, weights=some_weights)


def _total(
    scatter: NDArray[np.float64],
    block_weights: NDArray[np.float64],
    block_means: NDArray[np.float64],
    residuals: NDArray[np.float64],
) -> Sums:
    """Scatter within the blocks, less what their shifts missed, plus the scatter of their means."""
    weight = float(block_weights.sum())
    mean = block_means[0] + (block_weights / weight) @ (block_means - block_means[0])
    root = np.sqrt(block_weights)[:, None]
    missed = root * residuals
    between = root * (block_means - mean)
    scatter -= missed.T @ missed
    scatter += between.T @ between
    return weight, mean, scatter


def _resolved_in_single_precision(scatter: NDArray[np.float64]) -> bool:
    """Whether every eigenvalue is large enough, against the largest, to have survived products in float32."""
    scale = _largest_eigenvalue(scatter)
    if not (np.isfinite(scale) and scale > np.finfo(np.float32).tiny / _SINGLE_PRECISION_FLOOR):
        return False
    lowered = scatter / scale
    lowered.flat[:: len(scatter) + 1] -= _SINGLE_PRECISION_FLOOR
    try:
        np.linalg.cholesky(lowered)
    except np.linalg.LinAlgError:
        return False
    return True


def _largest_eigenvalue(scatter: NDArray[np.float64]) -> float:
    """A lower bound close to the largest eigenvalue, by power iteration from the column of the largest variance."""
    vector, value = scatter[:, scatter.diagonal().argmax()], 0.0
    for _ in range(_POWER_STEPS):
        length = np.linalg.norm(vector)
        if not (np.isfinite(length) and length > 0):
            return float(length)
        vector = vector / length
        product = scatter @ vector
        value, vector = float(vector @ product), product
    return value
