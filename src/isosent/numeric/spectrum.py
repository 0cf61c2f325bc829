"""Eigenpairs of a covariance, variance apart from rounding noise, how many axes to keep, how evenly they are used."""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.moments import Moments
from isosent.numeric.similarity import rows_that_are_nonzero, unit_rows
from isosent.numeric.threads import map_blocks, one_thread_products

_FEW_DIMENSIONS = 1024
_BLOCK_ROWS = 8192


class Spectrum(NamedTuple):
    """Eigenpairs of a covariance."""

    values: NDArray[np.float64]  # (dim,), >= 0: first those above the noise, descending, then the rest
    vectors: NDArray[np.float64]  # (dim, dim), unit eigenvectors as columns, in the order of the values
    rank: int  # number of values above the noise


def spectrum(covariance: NDArray[np.float64], *, noise: NDArray[np.float64] | None = None) -> Spectrum:
    """Decompose a covariance of shape (dim, dim); `noise`, (dim,), is the variance that rounding of rows can add."""
    # Eigenvalues of at most dim * eps * largest, or of at most the noise along their eigenvector, are rounding noise.
    # Recipes without such a rule divide by the roots of these eigenvalues and get infinities.
    # Threads of LAPACK wait for each other: two take 0.49 s of processor time for 768 dimensions on a busy machine, one
    # takes 0.07, with the same bits whatever the number of threads.
    with one_thread_products() if len(covariance) <= _FEW_DIMENSIONS else nullcontext():
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


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """The statistics of a set of vectors that whitening changes."""

    n_rows: int  # nonzero rows; the other statistics are of these
    dim: int
    size_bytes: int  # of one vector
    mean_cosine: float  # of two different vectors, in [-1, 1]; NaN for fewer than two
    effective_rank: float  # in [1, dim]; NaN if all vectors are equal


def describe_space(rows: NDArray[np.floating]) -> SpaceReport:
    """Describe rows of shape (n_rows, dim)."""
    nonzero = rows_that_are_nonzero(rows)

    def unit_sum(start: int) -> NDArray[np.float64]:
        return unit_rows(nonzero[start : start + _BLOCK_ROWS].astype(np.float64)).sum(axis=0)

    sums = map_blocks(unit_sum, len(nonzero), _BLOCK_ROWS)  # all rows in float64 would be twice the memory
    return SpaceReport(
        n_rows=len(nonzero),
        dim=rows.shape[1],
        size_bytes=rows.shape[1] * rows.itemsize,
        mean_cosine=mean_cosine_of_sum(sum(sums, np.zeros(rows.shape[1])), len(nonzero)),
        effective_rank=effective_rank(spectrum(Moments.from_rows(nonzero).covariance).values),
    )


def mean_cosine_of_sum(unit_sum: NDArray[np.float64], n_rows: int) -> float:
    """Mean cosine over all pairs of two different rows, from the sum of their unit vectors, (dim,)."""
    # (|sum_i u_i|^2 - n) / (n (n - 1)): exact, without sampling pairs. It is 0 for any centred set, so it does not
    # measure isotropy (Rudman et al. 2022, arXiv 2108.07344). It is the part of a cosine that all pairs share.
    if n_rows < 2:
        return float("nan")
    return float((unit_sum @ unit_sum - n_rows) / (n_rows * (n_rows - 1)))


def effective_rank(eigenvalues: NDArray[np.float64]) -> float:
    """Number of dimensions that the variance is spread over: the exponential of the entropy of its shares."""
    # exp(-sum_k p_k log p_k) with p_k = lambda_k / sum_j lambda_j; Roy & Vetterli 2007, "The effective rank",
    # definition 1, with the covariance as the matrix.
    total = eigenvalues.sum()
    if total <= 0:
        return float("nan")
    shares = eigenvalues[eigenvalues > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def participation_ratio(eigenvalues: NDArray[np.float64]) -> float:
    """Number of dimensions that the variance is spread over, with more weight on the large eigenvalues."""
    # (sum_k lambda_k)^2 / sum_k lambda_k^2
    largest = eigenvalues.max()
    if largest <= 0:
        return float("nan")
    scaled = eigenvalues / largest
    return float(scaled.sum() ** 2 / (scaled @ scaled))


def isoscore(eigenvalues: NDArray[np.float64]) -> float:
    """IsoScore, in [0, 1]: how evenly the variance fills the space."""
    # Rudman et al. 2022, algorithm 1: with the variances v scaled to length sqrt(n), the isotropy defect is
    # d = |v - 1| / sqrt(2 (n - sqrt(n))), the share of dimensions used is phi = (n - d^2 (n - sqrt(n)))^2 / n^2, and
    # the score is (n phi - 1) / (n - 1). Multiplied out, n phi is the participation ratio.
    if len(eigenvalues) < 2:
        return float("nan")
    return (participation_ratio(eigenvalues) - 1) / (len(eigenvalues) - 1)


def uniformity(cosines: NDArray[np.float64]) -> float:
    """How evenly unit vectors cover the sphere, from cosines of pairs of them; lower is more even."""
    # log mean exp(-2 |u - v|^2), Wang & Isola 2020, section 4.1, with |u - v|^2 = 2 - 2 cos(u, v)
    if not len(cosines):
        return float("nan")
    return float(np.log(np.exp(4 * cosines - 4).mean()))
