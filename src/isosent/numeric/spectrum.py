"""Eigenpairs of a covariance, the rule that separates variance from rounding noise, and how many axes to keep."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Spectrum(NamedTuple):
    """Eigenpairs of a covariance."""

    values: NDArray[np.float64]  # (dim,), >= 0: first those above the noise, descending, then the rest
    vectors: NDArray[np.float64]  # (dim, dim), unit eigenvectors as columns, in the order of the values
    rank: int  # number of values above the noise


def spectrum(covariance: NDArray[np.float64], *, noise: NDArray[np.float64] | None = None) -> Spectrum:
    """Decompose a covariance of shape (dim, dim); `noise`, (dim,), is the variance that rounding of rows can add."""
    # Eigenvalues of at most dim * eps * largest, or of at most the noise along their eigenvector, are rounding noise.
    # Recipes without such a rule divide by the roots of these eigenvalues and get infinities.
    ascending, vectors = np.linalg.eigh(covariance)
    values = np.maximum(ascending[::-1], 0.0)
    vectors = vectors[:, ::-1]
    floor = np.full(len(values), len(values) * np.finfo(np.float64).eps * values[0])
    if noise is not None:
        floor = np.maximum(floor, noise @ vectors**2)
    is_signal = values > floor
    order = np.argsort(~is_signal, kind="stable")
    # The largest entry of each eigenvector is made positive, so that results do not depend on the library.
    largest_entry = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=0)[None, :], axis=0)
    return Spectrum(values[order], (vectors * np.sign(largest_entry))[:, order], int(is_signal.sum()))


def inverse_deviations(variances: NDArray[np.float64], noise: NDArray[np.float64]) -> NDArray[np.float64]:
    """One over the standard deviation of each dimension; 1 for a dimension that is constant up to noise."""
    floor = np.maximum(noise, len(variances) * np.finfo(np.float64).eps * variances.max())
    varies = variances > floor
    return np.where(varies, 1 / np.sqrt(np.where(varies, variances, 1.0)), 1.0)


AUTO_LOSS = 0.05


def resolve_width(wanted: int | float | str, variances: NDArray[np.float64]) -> int:
    """Number of axes for a number, a share of the variance in (0, 1], or "auto"; variances are descending."""
    if isinstance(wanted, str):
        return width_within_spread(variances, AUTO_LOSS)
    return width_of_share(variances, float(wanted)) if isinstance(wanted, (float, np.floating)) else int(wanted)


def width_of_share(variances: NDArray[np.float64], share: float) -> int:
    """Fewest axes that hold a share of the total variance."""
    cumulative = np.cumsum(variances) / variances.sum()
    return min(int(np.searchsorted(cumulative, share * (1 - 1e-12))) + 1, len(variances))


def width_within_spread(variances: NDArray[np.float64], loss: float) -> int:
    """Fewest axes over which cosines of unrelated vectors spread little more than over all axes."""
    # The cosine of two independent centred vectors over k axes has a standard deviation of about 1 / sqrt(D_k), with
    # D_k = (sum_{i<=k} v_i)^2 / sum_{i<=k} v_i^2 the participation ratio. The larger it is, the more often texts look
    # alike by chance. The width is the smallest k with 1 - sqrt(D_k / D) <= loss. This is an expectation: axes are
    # uncorrelated, but not independent.
    ratios = np.cumsum(variances) ** 2 / np.cumsum(variances**2)
    return int(np.argmax(np.sqrt(ratios / ratios[-1]) >= 1 - loss)) + 1
