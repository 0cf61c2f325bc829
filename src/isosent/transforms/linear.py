"""Transforms that subtract, project, scale or cut, without a rotation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, wrong_value
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.spectrum import inverse_deviations, spectrum
from isosent.transforms.estimator import InvertibleTransform, MomentTransform, Solution


class MeanCentering(InvertibleTransform):
    r"""Subtract the mean: :math:`y = x - \mu`.

    Examples
    --------
    >>> import numpy as np
    >>> MeanCentering().fit_transform(np.array([[1.0, 5.0], [3.0, 5.0]]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """

    def _solve(self, moments: Moments) -> Solution:
        return Solution(LinearMap(np.eye(moments.dim), -moments.mean), moments.mean)


class MeanProjection(MomentTransform):
    r"""Remove the component along the mean: :math:`y = x - (x \cdot m) m` with m the unit vector of the mean.

    Notes
    -----
    Nothing is subtracted, so vectors keep the rest of their length ("removal by projection" in arXiv 2511.11041).
    Vectors with a mean of zero stay unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> MeanProjection().fit_transform(np.array([[1.0, 1.0], [1.0, -1.0]]))
    array([[ 0.,  1.],
           [ 0., -1.]])
    """

    def _solve(self, moments: Moments) -> Solution:
        mean = np.ldexp(moments.mean, -np.frexp(np.abs(moments.mean).max())[1])  # of a size that can be squared
        length = np.linalg.norm(mean)
        direction = mean / length if length else mean
        return Solution(_projection(direction[:, None]))


class AllButTheTop(MomentTransform):
    r"""Subtract the mean, then remove the strongest principal components (Mu & Viswanath 2018).

    Parameters
    ----------
    n_components : int or "auto", default "auto"
        Components to remove, fewer than the dimensions. "auto" is dim / 100, at least 1, as the paper recommends.

    Notes
    -----
    :math:`y = (x - \mu) (I - U_D U_D^\top)`; algorithm 1 of Mu & Viswanath 2018, *All-but-the-Top*, arXiv 1702.01417.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[-9.0, 1.0], [9.0, 1.0], [-9.0, -1.0], [9.0, -1.0]])
    >>> AllButTheTop().fit_transform(rows).round(6) + 0.0
    array([[ 0.,  1.],
           [ 0.,  1.],
           [ 0., -1.],
           [ 0., -1.]])
    """

    def __init__(self, n_components: int | str = "auto") -> None:
        self.n_components = n_components

    def _solve(self, moments: Moments) -> Solution:
        self._check_size(moments)
        n_removed = max(1, round(moments.dim / 100)) if self.n_components == "auto" else int(self.n_components)
        return Solution(_without_strongest(moments.covariance, moments, n_removed, offset=moments.mean))

    def check_settings(self, dim: int) -> None:
        _check_removed(self._name, 1 if self.n_components == "auto" else self.n_components, dim)


class CommonComponentRemoval(MomentTransform):
    r"""Remove the strongest directions of the vectors, without centring (Arora et al. 2017, SIF).

    Parameters
    ----------
    n_components : int, default 1
        Directions to remove, fewer than the dimensions.
    by_share : bool, default False
        Whether each direction is removed only in part: by its share of the second moment of all those removed
        (Ethayarajh 2018).

    Notes
    -----
    :math:`y = x (I - U_D U_D^\top)` with U the singular vectors of the rows, that is, the eigenvectors of their
    uncentred second moment; Arora, Liang & Ma 2017, *A Simple but Tough-to-Beat Baseline for Sentence Embeddings*,
    algorithm 1. By share, :math:`y = x (I - U_D \Lambda U_D^\top)` with
    :math:`\lambda_i = \sigma_i^2 / \sum_{j \le D} \sigma_j^2`; Ethayarajh 2018, *Unsupervised Random Walk Sentence
    Embeddings*, section 3.3.

    Examples
    --------
    >>> import numpy as np
    >>> CommonComponentRemoval().fit_transform(np.array([[3.0, 1.0], [3.0, -1.0]])).round(6) + 0.0
    array([[ 0.,  1.],
           [ 0., -1.]])
    """

    def __init__(self, n_components: int = 1, by_share: bool = False) -> None:
        self.n_components = n_components
        self.by_share = by_share

    def _solve(self, moments: Moments) -> Solution:
        self._check_size(moments)
        return Solution(_without_strongest(moments.second_moment, moments, self.n_components, by_share=self.by_share))

    def check_settings(self, dim: int) -> None:
        _check_removed(self._name, self.n_components, dim)


class Standardize(InvertibleTransform):
    r"""Subtract the mean and divide each dimension by its standard deviation.

    Notes
    -----
    :math:`y_j = (x_j - \mu_j) / \sigma_j` with the variance divided by N. A constant dimension is only centred.

    Examples
    --------
    >>> import numpy as np
    >>> Standardize().fit_transform(np.array([[1.0, 5.0], [3.0, 5.0]]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """

    def _solve(self, moments: Moments) -> Solution:
        self._check_size(moments)
        scale = inverse_deviations(moments.covariance.diagonal(), moments.rounding_variance)
        return Solution(LinearMap(np.diag(scale), -moments.mean * scale), moments.mean)


class Truncate(MomentTransform):
    """Keep the first dimensions, as Matryoshka-trained encoders intend. Also a baseline for all other reductions.

    Parameters
    ----------
    n_components : int or None, default None
        Dimensions to keep; None keeps all.

    Notes
    -----
    Kusupati et al. 2022, *Matryoshka Representation Learning*, arXiv 2205.13147.

    Examples
    --------
    >>> import numpy as np
    >>> Truncate(2).fit_transform(np.array([[1.0, 2.0, 3.0]]))
    array([[1., 2.]])
    """

    def __init__(self, n_components: int | None = None) -> None:
        self.n_components = n_components

    def _solve(self, moments: Moments) -> Solution:
        n_components = _check.component_count(self._name, self.n_components, moments.dim)
        return Solution(LinearMap(np.eye(moments.dim, n_components), np.zeros(n_components)))

    def check_settings(self, dim: int) -> None:
        _check.component_count(self._name, self.n_components, dim)


def _without_strongest(
    matrix: NDArray[np.float64],
    moments: Moments,
    n_removed: int,
    *,
    offset: NDArray[np.float64] | None = None,
    by_share: bool = False,
) -> LinearMap:
    """Projection away from the strongest eigenvectors; directions that hold only noise stay."""
    eigen = spectrum(matrix, noise=moments.rounding_variance)
    removed = slice(min(n_removed, eigen.rank))
    shares = eigen.values[removed] / eigen.values[removed].sum() if by_share else 1.0
    return _projection(eigen.vectors[:, removed], offset, shares)


def _projection(
    directions: NDArray[np.float64],
    offset: NDArray[np.float64] | None = None,
    shares: NDArray[np.float64] | float = 1.0,
) -> LinearMap:
    """Map that subtracts `offset` and then removes orthonormal directions, (dim, n), each by its share."""
    weight = np.eye(len(directions)) - (directions * shares) @ directions.T
    return LinearMap(weight, np.zeros(len(directions)) if offset is None else -offset @ weight)


def _check_removed(where: str, value: object, dim: int) -> None:
    if dim == 1:
        raise InputError("the vectors have 1 feature(s), of which none can be removed.", where=where)
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 1 <= value < dim:
        raise wrong_value(
            where, "n_components", f"be a whole number from 1 to {dim - 1}, below the dimensions", repr(value)
        )
