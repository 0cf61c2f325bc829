"""Weight, mean and scatter of rows: the statistic every linear transform is fitted from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.errors import InputError

_BLOCK_BYTES = 16 << 20
_BLOCK_ROWS = 8192
_CHEAP_PRODUCTS = 2e10
_SINGLE_PRECISION_FLOOR = 1e-6
_POWER_STEPS = 8
_SHIFT_ROWS = 256


@dataclass(frozen=True, slots=True, eq=False, repr=False)
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

    def __repr__(self) -> str:
        return f"<Moments of weight {self.weight:g}, {self.dim} dimensions>"

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
        Each block is shifted, by the mean of some of its rows, ahead of the one symmetric product ``block.T @ block``;
        the block sums are added in float64, and the scatter between the blocks comes from their means. So a large
        common mean, which makes the textbook formula :math:`\sum x x^\top - n \mu \mu^\top` lose all digits, costs
        none here.

        float32 rows are multiplied in float64 where that is cheap (up to 2e10 products, a fraction of a second), and
        in float32, at about twice the speed, beyond; but where an eigenvalue of the result then lies below 1e-6 of the
        largest (rank-deficient rows, for one), the products are taken in float64 after all. An entry is within 1e-7 of
        the largest of the float64 result, and a variance along any axis within about 1e-3 of itself; without float32
        products, within rounding of float64.
        """
        where = "Moments.from_rows"
        array = _check.matrix(where, "rows", rows)
        row_weights = None if weights is None else _check.row_weights(where, weights, len(array))
        if row_weights is not None and not row_weights.all():
            _check.finite_rows(where, "rows", array)
            array, row_weights = array[row_weights > 0], row_weights[row_weights > 0]
        if not len(array):
            return cls.empty(array.shape[1])
        single = np.result_type(array.dtype, np.float32) == np.float32
        if single and len(array) * float(array.shape[1]) ** 2 > _CHEAP_PRODUCTS:
            for n_rows in (_BLOCK_ROWS, len(array)):  # the first block tells most cases
                some_weights = None if row_weights is None else row_weights[:n_rows]
                moments = _accumulate(array[:n_rows], some_weights, np.float32)
                if not _resolved_in_single_precision(moments.scatter):
                    break
            else:
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

    def rounding_variance(self, eps: float) -> NDArray[np.float64]:
        r"""Variance that the rounding of the rows themselves can leave in each dimension.

        Parameters
        ----------
        eps : float
            Relative rounding of the dtype that the rows are stored in, such as ``np.finfo(np.float32).eps``.

        Returns
        -------
        ndarray of shape (dim,), float64
            :math:`\varepsilon^2 E[x_j^2]`: a large mean costs the digits behind it.
        """
        return eps**2 * (self.mean**2 + self.covariance.diagonal())

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

    def __radd__(self, other: object) -> Moments:
        """Let the built-in `sum` start from 0."""
        return self if other == 0 else NotImplemented


def _accumulate(rows: NDArray[Any], weights: NDArray[np.float64] | None, dtype: type[np.floating]) -> Moments:
    """Moments of rows with the products taken in `dtype` and summed in float64."""
    n_rows, dim = rows.shape
    size = min(n_rows, _BLOCK_ROWS, max(1, _BLOCK_BYTES // (dim * np.dtype(dtype).itemsize)))
    buffer = np.empty((size, dim), dtype=dtype)
    ones = np.ones(size, dtype=dtype)
    scatter = np.zeros((dim, dim))
    block_weights, block_means, residuals = [], [], []
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        for start in range(0, n_rows, size):
            part = slice(start, min(start + size, n_rows))
            sample = slice(part.start, part.stop, max(1, (part.stop - part.start) // _SHIFT_ROWS))
            sample_weights = None if weights is None else weights[sample]
            shift = np.average(rows[sample].astype(np.float64), axis=0, weights=sample_weights).astype(dtype)
            block = np.subtract(rows[part], shift, out=buffer[: part.stop - start], casting="same_kind")
            if weights is None:
                block_weight, residual = float(len(block)), ones[: len(block)] @ block
            else:
                block_weight = float(weights[part].sum())
                residual = weights[part].astype(dtype) @ block
                block *= np.sqrt(weights[part]).astype(dtype)[:, None]
            if not np.isfinite(residual).all():
                _check.finite_rows("Moments.from_rows", "rows", rows[part], start)
            scatter += block.T @ block
            if block_weight:
                residuals.append(residual.astype(np.float64) / block_weight)
                block_weights.append(block_weight)
                block_means.append(shift + residuals[-1])
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


def _resolved_in_single_precision(scatter: NDArray[np.float64]) -> bool:
    """Whether every eigenvalue is large enough, against the largest, to have survived products in float32."""
    scale = _largest_eigenvalue(scatter)
    if not (np.isfinite(scale) and scale > np.finfo(np.float32).tiny / _SINGLE_PRECISION_FLOOR):
        return False
    try:
        np.linalg.cholesky(scatter / scale - _SINGLE_PRECISION_FLOOR * np.eye(len(scatter)))
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
