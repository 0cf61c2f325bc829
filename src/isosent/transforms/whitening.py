"""Whitening (Su et al. 2021, section 3) and principal components."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, RankWarning
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import SHRINKAGES, Moments
from isosent.numeric.spectrum import Spectrum, inverse_deviations, resolve_width, spectrum
from isosent.transforms.base import AUTO
from isosent.transforms.estimator import InvertibleTransform, Solution

METHODS = ("pca", "zca", "pca_cor", "zca_cor", "cholesky")


class Whitening(InvertibleTransform):
    r"""Center vectors, rotate them to their principal axes, and even out the variances along these axes.

    Parameters
    ----------
    n_components : int, float, "auto" or None, default None
        Axes to keep, those of the largest variance: a number; a float in (0, 1], the share of the variance that they
        must hold; "auto", as few as still keep unrelated vectors apart (see Notes); None, all.
    method : {"pca", "zca", "pca_cor", "zca_cor", "cholesky"}, default "pca"
        Which whitening map. If every axis is kept, all give the same cosines; the ``_cor`` methods, which standardize
        each dimension first, do so only at strength 1. ZCA rotates back to the axes of the input, so its vectors keep
        all their dimensions whatever `n_components` is.
    strength : float, default 1.0
        How far the variances are evened out, in [0, 1]: at 1 every variance becomes 1; 0 only centres and rotates,
        which is PCA.
    shrinkage : float, "oas" or None, default None
        Shrinks the covariance towards a multiple of the identity: by how much, in [0, 1], or "oas", the estimator of it
        by Chen et al. 2010.
    center : bool, default True
        Whether the mean is subtracted. If not, variances are taken about zero.
    eps : float, default 0.0
        Added to the variances before they are evened out (Soft-ZCA), in the unit of a variance, >= 0.

    Attributes
    ----------
    moments_ : Moments
        Weight, mean and scatter of all rows seen; everything below follows from it.
    linear_map_ : LinearMap
        :math:`W` of shape (n_features_in, n_components) and :math:`b = -\mu W`.
    mean_ : ndarray of shape (n_features_in,), float64
        :math:`\mu`.
    explained_variance_ : ndarray of shape (n_axes,), float64
        Variance along each kept axis before evening out, descending.
    explained_variance_ratio_ : ndarray of shape (n_axes,), float64
        The same as shares of the total variance.
    rank_ : int
        Number of axes whose variance is more than rounding noise.
    strength_, shrinkage_ : float
        Values used.
    n_components_ : int
        Dimensions of the result.
    n_features_in_ : int
        Dimensions of the rows.

    Warns
    -----
    RankWarning
        If `rank_` is below the number of components requested, as with fewer rows than dimensions.

    Notes
    -----
    :math:`y = (x - \mu) U_k \Lambda_k^{-\gamma/2}` with the covariance (divided by N)
    :math:`\Sigma = U \Lambda U^\top`, eigenvalues descending, and :math:`\gamma` the strength; Su et al. 2021,
    equations 2-9 and algorithm 1, where :math:`\gamma = 1`. The other methods follow Kessy et al. 2018, table 1.
    Moments and eigenpairs are float64; the map is applied in float32, or in float64 to float64 vectors. Eigenvalues
    that are rounding noise are left out, where the published recipe returns infinities: those of at most
    :math:`\mathrm{dim} \cdot \varepsilon \cdot \lambda_1`, or of at most what the rounding of the rows can add.

    ``n_components="auto"`` keeps the fewest axes over which the cosines of unrelated vectors spread at most 1/0.95
    times as much as over all axes. At strength 1 no axis matters less than another, and nine in ten are kept.

    Whitening helps raw word vectors and raw transformers. It often hurts encoders that were trained to spread their
    vectors (sentence-transformers models): measure before you ship.

    References
    ----------
    Su, Cao, Liu & Ou 2021, *Whitening Sentence Representations for Better Semantics and Faster Retrieval*,
    arXiv 2103.15316. Kessy, Lewin & Strimmer 2018, *Optimal Whitening and Decorrelation*, arXiv 1512.00809. Diera,
    Galke & Scherp 2024, *Isotropy Matters: Soft-ZCA Whitening of Embeddings for Semantic Code Search*,
    arXiv 2411.17538.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(1000, 3)) * [5.0, 1.0, 0.1] + 7.0
    >>> whitening = Whitening(n_components=2).fit(rows)
    >>> np.cov(whitening.transform(rows).T, ddof=0).round(6) + 0.0
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        method: str = "pca",
        strength: float = 1.0,
        shrinkage: float | str | None = None,
        center: bool = True,
        eps: float = 0.0,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.strength = strength
        self.shrinkage = shrinkage
        self.center = center
        self.eps = eps

    def _solve(self, moments: Moments) -> Solution:
        self._check_size(moments)
        return _solve(
            self._name,
            moments,
            n_components=self.n_components,
            method=self.method,
            strength=float(self.strength),
            shrinkage=self.shrinkage,
            center=self.center,
            eps=float(self.eps),
        )

    def check_settings(self, dim: int) -> None:
        _check.one_of(self._name, "method", self.method, METHODS)
        if self.n_components != AUTO:
            _check.component_count_or_share(self._name, self.n_components, dim)
        _check.fraction(self._name, "strength", self.strength)
        if isinstance(self.shrinkage, str):
            _check.one_of(self._name, "shrinkage", self.shrinkage, tuple(SHRINKAGES))
        elif self.shrinkage is not None:
            _check.fraction(self._name, "shrinkage", self.shrinkage)
        _check.not_negative(self._name, "eps", self.eps)

    @property
    def mean_(self) -> NDArray[np.float64]:
        """Mean of the rows seen."""
        return self.moments_.mean

    @property
    def explained_variance_(self) -> NDArray[np.float64]:
        """Variance along each kept axis before evening out."""
        return self._spectrum.values[: self._fit.solution.n_axes]

    @property
    def explained_variance_ratio_(self) -> NDArray[np.float64]:
        """Share of the total variance along each kept axis."""
        return self.explained_variance_ / np.float64(self._spectrum.values.sum())

    @property
    def rank_(self) -> int:
        """Number of axes whose variance is more than rounding noise."""
        return self._spectrum.rank

    @property
    def strength_(self) -> float:
        """Strength used."""
        return self._fit.solution.strength

    @property
    def shrinkage_(self) -> float:
        """Shrinkage used."""
        return self._fit.solution.shrinkage

    @property
    def _spectrum(self) -> Spectrum:
        eigen = self._fit.solution.spectrum
        assert eigen is not None  # every solution of a whitening has one
        return eigen


class PrincipalComponents(InvertibleTransform):
    r"""Center vectors and rotate them to their principal axes; the variances stay unchanged.

    Parameters
    ----------
    n_components : int, float, "auto" or None, default None
        Axes to keep, as for `Whitening`.
    center : bool, default True
        Whether the mean is subtracted. If not, the axes are those of the second moment about zero, and cosines stay
        closer to those of the original vectors: with all axes, they are the same.

    Notes
    -----
    :math:`y = (x - \mu) U_k`: the whitening of strength 0. Without centring :math:`y = x U_k`, with U the eigenvectors
    of :math:`\Sigma + \mu \mu^\top`, which moments hold exactly.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
    >>> PrincipalComponents(1).fit_transform(rows).round(4) + 0.0
    array([[-2.8284],
           [ 0.    ],
           [ 2.8284]])
    """

    def __init__(self, n_components: int | float | str | None = None, *, center: bool = True) -> None:
        self.n_components = n_components
        self.center = center

    def _solve(self, moments: Moments) -> Solution:
        self._check_size(moments)
        return _solve(self._name, moments, n_components=self.n_components, strength=0.0, center=self.center)

    def check_settings(self, dim: int) -> None:
        if self.n_components != AUTO:
            _check.component_count_or_share(self._name, self.n_components, dim)


def _solve(
    name: str,
    moments: Moments,
    *,
    n_components: int | float | str | None,
    strength: float,
    method: str = "pca",
    shrinkage: float | str | None = None,
    center: bool = True,
    eps: float = 0.0,
) -> Solution:
    # Every method is one map S U_k (Λ_k + ε)^(-strength/2) Q. U Λ Uᵀ are the eigenpairs of the covariance, or of the
    # correlation for the "_cor" methods; S is the inverse standard deviations there and the identity elsewhere. The
    # rows of Q are orthonormal: the identity for PCA, U_kᵀ for ZCA, and for Cholesky the one that makes the map lower
    # triangular (Kessy et al. 2018, table 1).
    scale = np.ones(moments.dim)
    moments = moments if center else moments.about_zero()
    shrinkage = SHRINKAGES[shrinkage](moments) if isinstance(shrinkage, str) else float(shrinkage or 0.0)
    covariance, noise = moments.covariance, moments.rounding_variance
    if shrinkage:
        level = np.trace(covariance) / moments.dim
        covariance = (1 - shrinkage) * covariance + shrinkage * level * np.eye(moments.dim)
    if method.endswith("_cor"):
        scale = inverse_deviations(covariance.diagonal(), noise)
        covariance, noise = covariance * np.outer(scale, scale), noise * scale**2
    eigen = spectrum(covariance, noise=noise)
    if eigen.rank == 0:
        raise InputError(
            "the rows do not vary (rank 0, as with one sample or equal rows). Fit on more texts.", where=name
        )
    n_axes = _n_axes(name, moments, eigen, n_components, strength)
    axes = eigen.vectors[:, :n_axes]
    weight = scale[:, None] * axes / (eigen.values[:n_axes] + eps) ** (strength / 2)
    if method.startswith("zca"):
        weight = weight @ axes.T
    elif method == "cholesky":
        upper = np.linalg.qr(weight.T).R
        weight = (upper * np.where(upper.diagonal() < 0, -1.0, 1.0)[:, None]).T
    return Solution(LinearMap(weight, -moments.mean @ weight), moments.mean, eigen, n_axes, strength, shrinkage)


def _n_axes(
    name: str,
    moments: Moments,
    eigen: Spectrum,
    n_components: int | float | str | None,
    strength: float,
) -> int:
    """Axes to keep: those requested, but not more than the rank."""
    values = eigen.values[: eigen.rank]
    if n_components is None:
        wanted = moments.dim
    else:
        # "auto" looks at the variances after they were evened out, a share at those before
        evened_out = values ** (1 - strength) if isinstance(n_components, str) else values
        wanted = resolve_width(n_components, evened_out)
    if eigen.rank < wanted:
        rows = moments.weight
        message = (
            f"components kept: {eigen.rank} instead of {wanted}, because the {rows:g} rows vary along "
            f"{eigen.rank} of their {moments.dim} axes and the rest is rounding noise."
            f"{' Fit on more texts to keep more.' if rows <= wanted else ''}"
        )
        warnings.warn(RankWarning(message, where=name), stacklevel=2)
    return min(wanted, eigen.rank)
