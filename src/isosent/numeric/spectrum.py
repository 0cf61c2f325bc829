"""How many axes to keep."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.moments import Moments


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


LARGEST_MEAN_SHARE = 0.2
MILD_STRENGTH = 0.5


def mean_share(moments: Moments) -> float:
    r"""Share of the mean in the mean squared length of the vectors.

    Parameters
    ----------
    moments : Moments
        Of the vectors.

    Returns
    -------
    float
        :math:`\lVert \mu \rVert^2 / E \lVert x \rVert^2`, in [0, 1]: for unit vectors, the mean cosine of random pairs;
        0 where all vectors are zero.

    Examples
    --------
    >>> import numpy as np
    >>> mean_share(Moments.from_rows(np.array([[1.0, 1.0], [1.0, -1.0]])))
    0.5
    """
    of_mean = float(moments.mean @ moments.mean)
    total = of_mean + float(np.trace(moments.covariance))
    return of_mean / total if total else 0.0


def spectral_strength(moments: Moments) -> float:
    """Strength of whitening that the moments suggest.

    Parameters
    ----------
    moments : Moments
        Of the vectors.

    Returns
    -------
    float
        1/2 where the mean holds more than a fifth of the squared length, as raw transformers and word vectors have it;
        otherwise 0, because variances of well-trained vectors carry meaning.
    """
    return MILD_STRENGTH if mean_share(moments) > LARGEST_MEAN_SHARE else 0.0


def width_of_share(variances: NDArray[np.float64], share: float) -> int:
    """Fewest axes that hold a share of the total variance.

    Parameters
    ----------
    variances : ndarray of shape (n_axes,), float64
        Variance along each axis, descending, not all zero.
    share : float
        In (0, 1].

    Returns
    -------
    int
        In 1 ... n_axes.

    Examples
    --------
    >>> width_of_share(np.array([6.0, 3.0, 1.0]), 0.85)
    2
    """
    held = np.cumsum(variances) / variances.sum()
    return min(int(np.searchsorted(held, share * (1 - 1e-12))) + 1, len(variances))


def width_within_spread(variances: NDArray[np.float64], loss: float) -> int:
    r"""Fewest axes over which unrelated vectors are told apart nearly as sharply as over all axes.

    Parameters
    ----------
    variances : ndarray of shape (n_axes,), float64
        Variance along each axis of the transformed vectors, in the order the axes are kept, not all zero.
    loss : float
        Accepted loss, in [0, 1): over all axes, the cosines of unrelated vectors spread by 1 minus this share of their
        spread over the axes kept.

    Returns
    -------
    int
        In 1 ... n_axes.

    Notes
    -----
    The cosine of two independent centred vectors has about the standard deviation :math:`1 / \sqrt{D_k}` with
    :math:`D_k = (\sum_{i \le k} v_i)^2 / \sum_{i \le k} v_i^2` the participation ratio, the number of axes that the
    variance is spread over: the smaller it is, the more often texts look alike by chance. The width is the smallest k
    with :math:`1 - \sqrt{D_k / D} \le \mathrm{loss}`. It is an expectation: axes are uncorrelated, not independent.

    Examples
    --------
    >>> width_within_spread(np.ones(100), 0.05)
    91
    """
    ratios = np.cumsum(variances) ** 2 / np.cumsum(variances**2)
    within = np.sqrt(ratios / ratios[-1]) >= 1 - loss
    return int(np.argmax(within)) + 1
