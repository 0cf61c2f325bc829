"""How evenly vectors use their space."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.numeric.spectrum import spectrum


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """A set of vectors in five numbers.

    Parameters
    ----------
    n_rows : int
        Vectors that are not zero; the figures below are theirs.
    dim : int
        Dimensions.
    size_bytes : int
        Bytes a vector takes in its dtype.
    mean_cosine : float
        Mean cosine of two different vectors, in [-1, 1]; NaN below two vectors.
    effective_rank : float
        Effective rank, in [1, dim]; NaN where all vectors are equal.
    """

    n_rows: int
    dim: int
    size_bytes: int
    mean_cosine: float
    effective_rank: float


def describe_space(rows: NDArray[np.floating]) -> SpaceReport:
    """Describe vectors by the figures that whitening changes.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim), float
        Vectors; zero rows are left out.

    Returns
    -------
    SpaceReport
        The figures.

    Examples
    --------
    >>> import numpy as np
    >>> report = describe_space(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]))
    >>> report.n_rows, report.size_bytes, round(report.mean_cosine, 3)
    (3, 16, 0.471)
    """
    known = rows[rows.any(axis=1)]
    return SpaceReport(
        n_rows=len(known),
        dim=rows.shape[1],
        size_bytes=rows.shape[1] * rows.itemsize,
        mean_cosine=mean_cosine(known),
        effective_rank=effective_rank(spectrum(Moments.from_rows(known).covariance).values),
    )


def mean_cosine(rows: NDArray[np.floating]) -> float:
    r"""Mean cosine over all pairs of two different rows: what a random pair scores on average.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim), float
        Vectors, none of them zero.

    Returns
    -------
    float
        In [-1, 1]; NaN below two rows.

    Notes
    -----
    Over unit vectors u, :math:`(\lVert \sum_i u_i \rVert^2 - n) / (n (n - 1))`: exact, with no pair drawn. It is 0 for
    any centred set and so no measure of isotropy (Rudman et al. 2022, arXiv 2108.07344); it tells how much of a cosine
    means nothing.

    Examples
    --------
    >>> import numpy as np
    >>> mean_cosine(np.array([[1.0, 0.0], [0.0, 1.0]]))
    0.0
    """
    return mean_cosine_of_sum(unit_rows(rows.astype(np.float64)).sum(axis=0), len(rows))


def mean_cosine_of_sum(unit_sum: NDArray[np.float64], n_rows: int) -> float:
    """Mean cosine over all pairs of two different rows, from the sum of their directions.

    Parameters
    ----------
    unit_sum : ndarray of shape (dim,), float64
        Sum of the rows at length 1.
    n_rows : int
        Rows, none of them zero.

    Returns
    -------
    float
        As `mean_cosine`.
    """
    if n_rows < 2:
        return float("nan")
    return float((unit_sum @ unit_sum - n_rows) / (n_rows * (n_rows - 1)))


def effective_rank(eigenvalues: NDArray[np.float64]) -> float:
    r"""Number of dimensions that the variance is spread over.

    Parameters
    ----------
    eigenvalues : ndarray of shape (dim,), float64
        Eigenvalues of a covariance, >= 0.

    Returns
    -------
    float
        In [1, dim]: dim where all are equal, 1 where one holds everything; NaN where all are zero.

    Notes
    -----
    :math:`\exp(-\sum_k p_k \log p_k)` with :math:`p_k = \lambda_k / \sum_j \lambda_j`, the singular values of the
    covariance in Roy & Vetterli 2007, *The effective rank*, definition 1.

    Examples
    --------
    >>> import numpy as np
    >>> round(effective_rank(np.array([2.0, 2.0, 0.0])), 6)
    2.0
    """
    total = eigenvalues.sum()
    if total <= 0:
        return float("nan")
    shares = eigenvalues[eigenvalues > 0] / total
    return float(np.exp(-(shares * np.log(shares)).sum()))


def participation_ratio(eigenvalues: NDArray[np.float64]) -> float:
    r"""Number of dimensions that the variance is spread over, with more weight on the large ones.

    Parameters
    ----------
    eigenvalues : ndarray of shape (dim,), float64
        Eigenvalues of a covariance, >= 0.

    Returns
    -------
    float
        In [1, dim], at most the `effective_rank`; NaN where all are zero.

    Notes
    -----
    :math:`(\sum_k \lambda_k)^2 / \sum_k \lambda_k^2`.

    Examples
    --------
    >>> import numpy as np
    >>> round(participation_ratio(np.array([2.0, 1.0, 1.0])), 4)
    2.6667
    """
    largest = eigenvalues.max()
    if largest <= 0:
        return float("nan")
    scaled = eigenvalues / largest
    return float(scaled.sum() ** 2 / (scaled @ scaled))


def isoscore(eigenvalues: NDArray[np.float64]) -> float:
    r"""How evenly the variance fills the space.

    Parameters
    ----------
    eigenvalues : ndarray of shape (dim,), float64
        Eigenvalues of a covariance, >= 0: the variances after the principal component rotation.

    Returns
    -------
    float
        In [0, 1]: 1 where every direction has the same variance, 0 where one has all of it; NaN in one dimension and
        where all are zero.

    Notes
    -----
    Rudman et al. 2022, algorithm 1, with the variances scaled to :math:`\hat\Sigma`, of length :math:`\sqrt n`: defect
    :math:`\delta = \lVert \hat\Sigma - 1 \rVert / \sqrt{2 (n - \sqrt n)}`, dimensions used
    :math:`\phi = (n - \delta^2 (n - \sqrt n))^2 / n^2`, score :math:`(n \phi - 1) / (n - 1)`. Written out,
    :math:`n \phi` is the `participation_ratio`, which is how it is computed here: both figures say the same, one in
    dimensions and one as a share.

    References
    ----------
    Rudman, Gillman, Rayne & Eickhoff 2022, *IsoScore: Measuring the Uniformity of Embedding Space Utilization*,
    arXiv 2108.07344.

    Examples
    --------
    >>> import numpy as np
    >>> isoscore(np.array([3.0, 3.0, 3.0])), isoscore(np.array([3.0, 0.0, 0.0]))
    (1.0, 0.0)
    """
    if len(eigenvalues) < 2:
        return float("nan")
    return (participation_ratio(eigenvalues) - 1) / (len(eigenvalues) - 1)


def uniformity(cosines: NDArray[np.float64]) -> float:
    r"""How evenly the directions cover the sphere.

    Parameters
    ----------
    cosines : ndarray of shape (n_pairs,), float64
        Cosines of random pairs, in [-1, 1].

    Returns
    -------
    float
        In [-8, 0], lower is more uniform; about -4 for uniform directions in many dimensions; NaN without pairs.

    Notes
    -----
    :math:`\log \mathrm{mean} \exp(-2 \lVert u - v \rVert^2)` over pairs of unit vectors, Wang & Isola 2020,
    section 4.1, with :math:`\lVert u - v \rVert^2 = 2 - 2 \cos(u, v)`.

    References
    ----------
    Wang & Isola 2020, *Understanding Contrastive Representation Learning through Alignment and Uniformity on the
    Hypersphere*, arXiv 2005.10242.

    Examples
    --------
    >>> import numpy as np
    >>> uniformity(np.zeros(5))
    -4.0
    """
    if not len(cosines):
        return float("nan")
    return float(np.log(np.exp(4 * cosines - 4).mean()))
