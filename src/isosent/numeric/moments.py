"""Weight, mean and scatter of rows: the statistic every linear transform is fitted from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError

_BLOCK_BYTES = 8 << 20
_DOUBLE_PRECISION_ROWS = 4096
_SINGLE_PRECISION_FLOOR = 1e-7


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    r"""Weight, mean and scatter of a set of rows; adding two gives those of the union.

    Parameters
    ----------
    weight : float
        Sum of the row weights, :math:`w = \sum_i w_i`; the number of rows where they are not weighted.
    mean : ndarray of shape (dim,), float64
        :math:`\mu = \frac{1}{w} \sum_i w_i x_i`.
    scatter : ndarray of shape (dim, dim), float64
        Scatter about the mean, :math:`S = \sum_i w_i (x_i - \mu)(x_i - \mu)^\top`.

    Raises
    ------
    InputError
        If the shapes do not agree.

    Notes
    -----
    This is the exact form of the running mean and covariance of Su et al. 2021, equations 10 and 11. The sum of two is
    the pairwise update of Chan, Golub & LeVeque 1983: :math:`\mu = \mu_a + \delta w_b / w` and
    :math:`S = S_a + S_b + \delta \delta^\top w_a w_b / w` with :math:`\delta = \mu_b - \mu_a`. Division by the weight
    happens on reading (`covariance`), so that merging loses nothing.

    References
    ----------
    Su, Cao, Liu & Ou 2021, *Whitening Sentence Representations for Better Semantics and Faster Retrieval*,
    arXiv 2103.15316. Chan, Golub & LeVeque 1983, *Algorithms for Computing the Sample Variance*, equation 2.1.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1.0, 2.0], [3.0, 2.0], [5.0, 5.0]])
    >>> whole = Moments.from_rows(rows)
    >>> parts = Moments.from_rows(rows[:1]) + Moments.from_rows(rows[1:])
    >>> whole.weight, whole.mean, bool(np.allclose(whole.scatter, parts.scatter))
    (3.0, array([3., 3.]), True)
    """

    weight: float
    mean: NDArray[np.float64]
    scatter: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.mean.ndim != 1 or self.scatter.shape != (self.mean.size, self.mean.size):
            raise InputError(
                "Moments: mean and scatter must have shapes (dim,) and (dim, dim); "
                f"got {self.mean.shape} and {self.scatter.shape}."
            )

    @classmethod
    def empty(cls, dim: int) -> Moments:
        """Return the moments of no rows: the neutral element of the sum.

        Parameters
        ----------
        dim : int
            Dimensions of the rows to come.

        Returns
        -------
        Moments
            Weight 0, mean and scatter of zeros.
        """
        return cls(0.0, np.zeros(dim), np.zeros((dim, dim)))

    @classmethod
    def from_rows(cls, rows: ArrayLike, weights: ArrayLike | None = None) -> Moments:
        r"""Take the moments of rows in one pass over blocks.

        Parameters
        ----------
        rows : array_like of shape (n_rows, dim), any real dtype
            One vector a row; zero rows are allowed. A memory map is read block by block.
        weights : array_like of shape (n_rows,), optional
            Weight of each row, >= 0; 1 for every row where left out.

        Returns
        -------
        Moments
            In float64, whatever the dtype of the rows.

        Raises
        ------
        InputError
            If a row holds NaN or infinity (the message names the row), the shape is not 2-D, or a weight is negative.

        Notes
        -----
        Each block is shifted by its own mean before the one symmetric product ``block.T @ block``, and the block sums
        are added in float64; the scatter between the blocks comes from their means. So a large common mean, which
        makes the textbook formula :math:`\sum x x^\top - n \mu \mu^\top` lose all digits, costs none here.

        float32 rows are multiplied in float32, at about twice the speed, as long as that is enough: where an
        eigenvalue of the result lies below 1e-7 of the largest (rank-deficient rows, for one), and for up to 4,096
        rows, the products are taken in float64.
        """
        where = "Moments.from_rows"
        array = _check.matrix(where, "rows", rows)
        row_weights = None if weights is None else _check.row_weights(where, weights, len(array))
        single = np.result_type(array.dtype, np.float32) == np.float32
        if single and len(array) > _DOUBLE_PRECISION_ROWS:
            moments = _accumulate(array, row_weights, np.float32)
            if _resolved_in_single_precision(moments.scatter):
                return moments
        moments = _accumulate(array, row_weights, np.float64)
        if not np.isfinite(moments.scatter).all():
            raise InputError(
                f"{where}: rows must have squares within float64; got values of about {np.abs(array).max()}."
            )
        return moments

    @property
    def dim(self) -> int:
        """Dimensions of the rows."""
        return self.mean.size

    @property
    def covariance(self) -> NDArray[np.float64]:
        """Covariance of shape (dim, dim), the scatter divided by the weight (1/N; zeros where there are no rows)."""
        return self.scatter / self.weight if self.weight else self.scatter

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the union of both sets of rows."""
        if not isinstance(other, Moments):
            return NotImplemented
        _check.same_dim("Moments.__add__", "other", other.dim, self.dim)
        weight = self.weight + other.weight
        if weight == 0:
            return self
        gap = other.mean - self.mean
        return Moments(
            weight,
            self.mean + gap * (other.weight / weight),
            self.scatter + other.scatter + np.outer(gap, gap * (self.weight * (other.weight / weight))),
        )


def _accumulate(rows: NDArray[Any], weights: NDArray[np.float64] | None, dtype: type[np.floating]) -> Moments:
    """Moments of rows with the products taken in `dtype` and summed in float64."""
    dim = rows.shape[1]
    scatter = np.zeros((dim, dim))
    block_weights, block_means, residuals = [], [], []
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for part in _blocks(len(rows), dim * np.dtype(dtype).itemsize):
            weight_of = np.ones(part.stop - part.start) if weights is None else weights[part]
            block_weight = float(weight_of.sum())
            block = rows[part].astype(dtype)
            shift = block.mean(axis=0)
            if not np.isfinite(shift).all():
                _check.finite_rows("Moments.from_rows", "rows", rows[part], part.start)
            if block_weight == 0:
                continue
            block -= shift
            residual = (weight_of.astype(dtype) @ block).astype(np.float64) / block_weight
            if weights is not None:
                block *= np.sqrt(weight_of, dtype=np.float64).astype(dtype)[:, None]
            scatter += block.T @ block
            block_weights.append(block_weight)
            block_means.append(shift + residual)
            residuals.append(residual)
        if not block_weights:
            return Moments.empty(dim)
        return _total(scatter, np.array(block_weights), np.array(block_means), np.array(residuals))


def _total(
    scatter: NDArray[np.float64],
    block_weights: NDArray[np.float64],
    block_means: NDArray[np.float64],
    residuals: NDArray[np.float64],
) -> Moments:
    """Scatter within the blocks, less what their shifts missed, plus the scatter of their means."""
    weight = float(block_weights.sum())
    mean = block_means[0] + (block_weights / weight) @ (block_means - block_means[0])
    root = np.sqrt(block_weights)[:, None]
    missed = root * residuals
    between = root * (block_means - mean)
    scatter -= missed.T @ missed
    scatter += between.T @ between
    return Moments(weight, mean, scatter)


def _blocks(n_rows: int, row_bytes: int) -> Iterator[slice]:
    size = max(1, _BLOCK_BYTES // row_bytes)
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def _resolved_in_single_precision(scatter: NDArray[np.float64]) -> bool:
    """Whether every eigenvalue is large enough, against the largest, to have survived products in float32."""
    scale = np.linalg.norm(scatter)
    if not (np.isfinite(scale) and scale > np.finfo(np.float32).tiny / _SINGLE_PRECISION_FLOOR):
        return False
    try:
        np.linalg.cholesky(scatter / scale - _SINGLE_PRECISION_FLOOR * np.eye(len(scatter)))
    except np.linalg.LinAlgError:
        return False
    return True
