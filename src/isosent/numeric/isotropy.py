"""How evenly vectors use their space."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.numeric.spectrum import spectrum


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """A set of vectors in five numbers."""

    n_rows: int  # vectors that are not zero; the figures below are theirs
    dim: int  # dimensions
    size_bytes: int  # bytes a vector takes in its dtype
    mean_cosine: float  # mean cosine of two different vectors, in [-1, 1]; NaN below two vectors
    effective_rank: float  # effective rank, in [1, dim]; NaN where all vectors are equal


def describe_space(rows: NDArray[np.floating]) -> SpaceReport:
    """Describe vectors by the figures that whitening changes."""
    known = rows[rows.any(axis=1)]
    return SpaceReport(
        n_rows=len(known),
        dim=rows.shape[1],
        size_bytes=rows.shape[1] * rows.itemsize,
        mean_cosine=mean_cosine(known),
        effective_rank=effective_rank(spectrum(Moments.from_rows(known).covariance).values),
    )


def mean_cosine(rows: NDArray[np.floating]) -> float:
    """Mean cosine over all pairs of two different rows: what a random pair scores on average."""
    # Over unit vectors u, :math:`(\lVert \sum_i u_i \rVert^2 - n) / (n (n - 1))`: exact, with no pair drawn. It is 0
    # for any centred set and so no measure of isotropy (Rudman et al. 2022, arXiv 2108.07344); it tells how much of a
    # cosine means nothing.
    return mean_cosine_of_sum(unit_rows(rows.astype(np.float64)).sum(axis=0), len(rows))


def mean_cosine_of_sum(unit_sum: NDArray[np.float64], n_rows: int) -> float:
    """Mean cosine over all pairs of two different rows, from the sum of their directions."""
    if n_rows < 2:
        return float("nan")
    return float((unit_sum @ unit_sum - n_rows) / (n_rows * (n_rows - 1)))


def effective_rank(eigenvalues: NDArray[np.float64]) -> float:
    """Number of dimensions that the variance is spread over."""
    # :math:`\exp(-\sum_k p_k \log p_k)` with :math:`p_k = \lambda_k / \sum_j \lambda_j`, the singular values of the
    # covariance in Roy & Vetterli 2007, *The effective rank*, definition 1.
    total = eigenvalues.sum()
    if total <= 0:
        return float("nan")
    shares = eigenvalues[eigenvalues > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def participation_ratio(eigenvalues: NDArray[np.float64]) -> float:
    """Number of dimensions that the variance is spread over, with more weight on the large ones."""
    # :math:`(\sum_k \lambda_k)^2 / \sum_k \lambda_k^2`.
    largest = eigenvalues.max()
    if largest <= 0:
        return float("nan")
    scaled = eigenvalues / largest
    return float(scaled.sum() ** 2 / (scaled @ scaled))


def isoscore(eigenvalues: NDArray[np.float64]) -> float:
    """How evenly the variance fills the space."""
    # Rudman et al. 2022, algorithm 1, with the variances scaled to :math:`\hat\Sigma`, of length :math:`\sqrt n`:
    # defect :math:`\delta = \lVert \hat\Sigma - 1 \rVert / \sqrt{2 (n - \sqrt n)}`, dimensions used :math:`\phi = (n
    # - \delta^2 (n - \sqrt n))^2 / n^2`, score :math:`(n \phi - 1) / (n - 1)`. Written out, :math:`n \phi` is the
    # `participation_ratio`, which is how it is computed here: both figures say the same, one in dimensions and one as
    # a share.
    if len(eigenvalues) < 2:
        return float("nan")
    return (participation_ratio(eigenvalues) - 1) / (len(eigenvalues) - 1)


def uniformity(cosines: NDArray[np.float64]) -> float:
    """How evenly the directions cover the sphere."""
    # :math:`\log \mathrm{mean} \exp(-2 \lVert u - v \rVert^2)` over pairs of unit vectors, Wang & Isola 2020, section
    # 4.1, with :math:`\lVert u - v \rVert^2 = 2 - 2 \cos(u, v)`.
    if not len(cosines):
        return float("nan")
    return float(np.log(np.exp(4 * cosines - 4).mean()))
