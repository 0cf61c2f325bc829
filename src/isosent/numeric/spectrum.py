"""Ranked eigenpairs: the one place that owns the tolerance, the rank rule and the sign rule."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """Eigenpairs of a covariance, largest first.

    Parameters
    ----------
    values : ndarray of shape (dim,), float64
        Eigenvalues, never negative: first those above the noise, descending, then the rest.
    vectors : ndarray of shape (dim, dim), float64
        Unit eigenvectors as columns, in the order of the values.
    rank : int
        Number of eigenvalues that are more than noise.
    """

    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    rank: int


def spectrum(covariance: NDArray[np.float64], *, noise: NDArray[np.float64] | None = None) -> Spectrum:
    r"""Decompose a covariance.

    Parameters
    ----------
    covariance : ndarray of shape (dim, dim), float64
        Symmetric and positive semi-definite up to rounding.
    noise : ndarray of shape (dim,), float64, optional
        Variance that each dimension has from rounding, see `Moments.rounding_variance`.

    Returns
    -------
    Spectrum
        Eigenpairs and rank.

    Notes
    -----
    Eigenvalues of at most :math:`\mathrm{dim} \cdot \varepsilon_{64} \cdot \lambda_1`, or of at most the `noise`
    along their eigenvector, are rounding noise: dividing by their root is what gives infinities in recipes that have no
    such rule. The entry of largest magnitude of each eigenvector is made positive, so that the result does not depend
    on the linear-algebra library.

    Examples
    --------
    >>> import numpy as np
    >>> result = spectrum(np.diag([1.0, 4.0, 0.0]))
    >>> result.values, result.rank
    (array([4., 1., 0.]), 2)
    """
    ascending, vectors = np.linalg.eigh(covariance)
    values = np.maximum(ascending[::-1], 0.0)
    vectors = vectors[:, ::-1]
    largest_entry = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None, :], axis=0)
    floor = np.full(len(values), len(values) * np.finfo(np.float64).eps * values[0])
    if noise is not None:
        floor = np.maximum(floor, noise @ vectors**2)
    kept = values > floor
    order = np.argsort(~kept, kind="stable")
    return Spectrum(values[order], (vectors * np.sign(largest_entry))[:, order], int(kept.sum()))


def inverse_deviations(variances: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """One over the standard deviation of each dimension, and 1 where a dimension is constant up to noise.

    Parameters
    ----------
    variances : ndarray of shape (dim,), float64
        Variance of each dimension.
    noise : ndarray of shape (dim,), float64
        Variance that each has from rounding, see `Moments.rounding_variance`.

    Returns
    -------
    ndarray of shape (dim,), float64
        Factors.

    Examples
    --------
    >>> import numpy as np
    >>> inverse_deviations(np.array([4.0, 0.0]), np.zeros(2))
    array([0.5, 1. ])
    """
    floor = np.maximum(noise, len(variances) * np.finfo(np.float64).eps * variances.max())
    varies = variances > floor
    return np.where(varies, 1 / np.sqrt(np.where(varies, variances, 1.0)), 1.0)
