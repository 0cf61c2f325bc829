"""The scatter of rows with too many dimensions for a covariance, kept as a few rows with a bound of the error."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent import _check
from isosent.numeric.similarity import nonzero_rows
from isosent.numeric.spectrum import Spectrum

Double = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FrequentDirections:
    r"""Sketch of the scatter of rows, in memory for 3 x `size` x dim numbers.

    A few rows :math:`B` stand for all: with :math:`S` the scatter of the rows about their mean, and any number k of
    axes below `size`,

    .. math:: 0 \preceq S - B^\top B \preceq \delta I, \quad \delta \le \frac{\sum_{i > k} \lambda_i(S)}{size + 1 - k}.

    So it is exact for rows that vary along `size` axes or fewer, and good where few axes hold most of the variance.
    :math:`\delta` is `error`, which is measured. `PrincipalComponents` and `Whitening` can be fitted on it
    (``fit_moments``).

    Parameters
    ----------
    size : int
        Rows that are kept.
    weight : float
        Number of rows that were seen.
    mean : ndarray of shape (dim,), float64
        Their mean.
    rows : ndarray of shape (n, dim), float64, n <= size
        :math:`B`.
    error : float
        :math:`\delta`, in units of the scatter: divide it by `weight` to compare it with variances.

    References
    ----------
    Liberty 2013, "Simple and Deterministic Matrix Sketching", with the buffer of Ghashami, Liberty, Phillips & Woodruff
    2016, "Frequent Directions: Simple and Deterministic Matrix Sketching", sections 1.3 and 2. Rows are centred as in
    the sum of two `Moments`: blocks about their own means, and one row for the distance of two means.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(500, 2)) @ np.ones((2, 6000))
    >>> sketch = FrequentDirections.empty(6000, size=8).updated(rows)
    >>> sketch.rows.shape, bool(sketch.error < 1e-6)
    ((1, 6000), True)
    """

    size: int
    weight: float
    mean: Double
    rows: Double
    error: float

    @classmethod
    def empty(cls, dim: int, size: int) -> FrequentDirections:
        """Sketch of no rows."""
        _check.whole_number("FrequentDirections", "size", size, 1)
        return cls(int(size), 0.0, np.zeros(dim), np.empty((0, dim)), 0.0)

    @property
    def dim(self) -> int:
        """Dimensions of the rows."""
        return self.mean.size

    def updated(self, rows: ArrayLike) -> FrequentDirections:
        """Return the sketch of these rows as well, shape (n_rows, dim); zero rows are left out.

        Raises
        ------
        InputError
            If a row holds NaN or infinity, or has another number of dimensions.
        """
        array = _check.matrix("FrequentDirections", "rows", rows)
        _check.same_dim("FrequentDirections", "rows", array.shape[1], self.dim)
        _check.finite_rows("FrequentDirections", "rows", array)
        array, sketch = array[nonzero_rows(array)], self
        for start in range(0, len(array), self.size):
            block = array[start : start + self.size].astype(np.float64)
            mean = block.mean(axis=0)
            sketch = sketch._merged(float(len(block)), mean, block - mean, 0.0)
        return sketch

    def __add__(self, other: FrequentDirections) -> FrequentDirections:
        """Return the sketch of the rows of both; the errors add up."""
        if not isinstance(other, FrequentDirections):
            return NotImplemented
        _check.same_dim("FrequentDirections.__add__", "other", other.dim, self.dim)
        return self._merged(other.weight, other.mean, other.rows, other.error)

    def _merged(self, weight: float, mean: Double, rows: Double, error: float) -> FrequentDirections:
        total = self.weight + weight
        if not total:
            return self
        gap = mean - self.mean
        between = gap * np.sqrt(self.weight * weight / total)
        kept, lost = _shrunk(np.vstack([self.rows, rows, between]), self.size)
        return FrequentDirections(self.size, total, self.mean + gap * (weight / total), kept, self.error + error + lost)

    @cached_property
    def spectrum(self) -> Spectrum:
        """The axes of the sketch and their variances, at most `size` of them, descending."""
        values, left = _decomposed(self.rows)
        vectors = np.linalg.qr(self.rows.T @ left).Q if len(values) else np.empty((self.dim, 0))
        largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None, :], axis=0)
        return Spectrum(values / (self.weight or 1.0), vectors * np.sign(largest), len(values))


def _shrunk(rows: Double, size: int) -> tuple[Double, float]:
    """At most `size` rows with nearly the same scatter, and how much less it may be along an axis."""
    values, left = _decomposed(rows)
    lost = float(values[size]) if len(values) > size else 0.0
    kept = values[:size][values[:size] > lost]
    return np.sqrt(1 - lost / kept)[:, None] * (left[:, : len(kept)].T @ rows), lost


def _decomposed(rows: Double) -> tuple[Double, Double]:
    """Squared singular values above rounding, descending, and left singular vectors as columns."""
    # from the small Gram matrix: its relative error of 1e-16 of the largest value is that of the scatter as well
    ascending, left = np.linalg.eigh(rows @ rows.T)
    values = ascending[::-1]
    is_signal = values > len(values) * np.finfo(np.float64).eps * values.max(initial=0.0)
    return values[is_signal], left[:, ::-1][:, is_signal]
