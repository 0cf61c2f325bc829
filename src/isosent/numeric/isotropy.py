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
    n = len(rows)
    if n < 2:
        return float("nan")
    total = unit_rows(rows.astype(np.float64)).sum(axis=0)
    return float((total @ total - n) / (n * (n - 1)))


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
