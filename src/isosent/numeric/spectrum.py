"""How many axes to keep."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.moments import Moments


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """Eigenpairs of a covariance, largest first."""

    values: NDArray[np.float64]  # eigenvalues, never negative: first those above the noise, descending, then the rest
    vectors: NDArray[np.float64]  # unit eigenvectors as columns, in the order of the values
    rank: int  # number of eigenvalues that are more than noise


def spectrum(covariance: NDArray[np.float64], *, noise: NDArray[np.float64] | None = None) -> Spectrum:
    """Decompose a covariance."""
    # Eigenvalues of at most :math:`\mathrm{dim} \cdot \varepsilon_{64} \cdot \lambda_1`, or of at most the `noise`
    # along their eigenvector, are rounding noise: dividing by their root is what gives infinities in recipes that
    # have no such rule. The entry of largest magnitude of each eigenvector is made positive, so that the result does
    # not depend on the linear-algebra library.
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
    """One over the standard deviation of each dimension, and 1 where a dimension is constant up to noise."""
    floor = np.maximum(noise, len(variances) * np.finfo(np.float64).eps * variances.max())
    varies = variances > floor
    return np.where(varies, 1 / np.sqrt(np.where(varies, variances, 1.0)), 1.0)


LARGEST_MEAN_SHARE = 0.2
MILD_STRENGTH = 0.5


def mean_share(moments: Moments) -> float:
    """Share of the mean in the mean squared length of the vectors."""
    of_mean = float(moments.mean @ moments.mean)
    total = of_mean + float(np.trace(moments.covariance))
    return of_mean / total if total else 0.0


def spectral_strength(moments: Moments) -> float:
    """Strength of whitening that the moments suggest."""
    return MILD_STRENGTH if mean_share(moments) > LARGEST_MEAN_SHARE else 0.0


def width_of_share(variances: NDArray[np.float64], share: float) -> int:
    """Fewest axes that hold a share of the total variance."""
    held = np.cumsum(variances) / variances.sum()
    return min(int(np.searchsorted(held, share * (1 - 1e-12))) + 1, len(variances))


def width_within_spread(variances: NDArray[np.float64], loss: float) -> int:
    """Fewest axes over which unrelated vectors are told apart nearly as sharply as over all axes."""
    # The cosine of two independent centred vectors has about the standard deviation :math:`1 / \sqrt{D_k}` with
    # :math:`D_k = (\sum_{i \le k} v_i)^2 / \sum_{i \le k} v_i^2` the participation ratio, the number of axes that the
    # variance is spread over: the smaller it is, the more often texts look alike by chance. The width is the smallest
    # k with :math:`1 - \sqrt{D_k / D} \le \mathrm{loss}`. It is an expectation: axes are uncorrelated, not
    # independent.
    ratios = np.cumsum(variances) ** 2 / np.cumsum(variances**2)
    within = np.sqrt(ratios / ratios[-1]) >= 1 - loss
    return int(np.argmax(within)) + 1
