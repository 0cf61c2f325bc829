"""Whitening (Su et al. 2021, section 3) and its relatives."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, RankWarning
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import SHRINKAGES, Moments
from isosent.numeric.spectrum import (
    Spectrum,
    inverse_deviations,
    spectral_strength,
    spectrum,
    width_of_share,
    width_within_spread,
)
from isosent.transforms.moment_transform import InvertibleTransform, Solution, check_size

METHODS = ("pca", "zca", "pca_cor", "zca_cor", "cholesky")
AUTO = "auto"
AUTO_LOSS = 0.05


@dataclass(frozen=True, slots=True)
class WhiteningSettings:
    """The settings of a whitening, checked."""

    n_components: int | float | str | None = None  # axes kept; a float is a share of the variance
    method: str = "pca"  # one of `METHODS`
    strength: float | str = 1.0  # exponent of the variances
    shrinkage: float | str | None = None  # pull towards a multiple of the identity
    center: bool = True  # whether the mean is subtracted
    eps: float = 0.0  # added to the variances before they are evened out


@dataclass(frozen=True, slots=True, eq=False)
class WhiteningSolution(Solution):
    """A whitening map and the figures it was made of."""

    spectrum: Spectrum = field(kw_only=True)  # eigenpairs of the matrix that was decomposed
    n_axes: int = field(kw_only=True)  # axes kept
    strength: float = field(kw_only=True)  # strength in force
    shrinkage: float = field(kw_only=True)  # shrinkage in force


def solve_whitening(name: str, moments: Moments, settings: WhiteningSettings) -> WhiteningSolution:
    """Solve for the map of a whitening."""
    # Every method is one map :math:`S\, U_k (\Lambda_k + \varepsilon)^{-\gamma/2} Q` with :math:`U \Lambda U^\top`
    # the eigenpairs of the covariance, or of the correlation for the ``_cor`` methods, S the inverse standard
    # deviations there and the identity elsewhere, and Q a matrix of orthonormal rows: the identity for PCA,
    # :math:`U_k^\top` for ZCA, and for Cholesky the one that makes the map lower triangular.
    check_size(name, moments)
    strength = spectral_strength(moments) if isinstance(settings.strength, str) else float(settings.strength)
    if not settings.center:
        moments = moments.about_zero()
    shrinkage, covariance = _shrinkage(moments, settings.shrinkage), moments.covariance
    if shrinkage:
        level = np.trace(covariance) / moments.dim
        covariance = (1 - shrinkage) * covariance + shrinkage * level * np.eye(moments.dim)
    scale, noise = np.ones(moments.dim), moments.rounding_variance
    if settings.method.endswith("_cor"):
        scale = inverse_deviations(covariance.diagonal(), noise)
        covariance, noise = covariance * np.outer(scale, scale), noise * scale**2
    found = spectrum(covariance, noise=noise)
    if found.rank == 0:
        raise InputError(
            f"{name}: the rows must vary; got rank 0, as with n_samples = 1 or rows that are all equal. "
            "Fit on more texts."
        )
    n_axes = _n_axes(name, moments, found, settings.n_components, strength)
    axes, roots = found.vectors[:, :n_axes], (found.values[:n_axes] + settings.eps) ** (strength / 2)
    weight = _turned(settings.method, scale[:, None] * axes / roots, axes)
    return WhiteningSolution(
        LinearMap(weight, -moments.mean @ weight),
        moments.mean,
        spectrum=found,
        n_axes=n_axes,
        strength=strength,
        shrinkage=shrinkage,
    )


def _shrinkage(moments: Moments, wanted: float | str | None) -> float:
    return SHRINKAGES[wanted](moments) if isinstance(wanted, str) else float(wanted or 0.0)


def _turned(method: str, weight: NDArray[np.float64], axes: NDArray[np.float64]) -> NDArray[np.float64]:
    """The map of PCA times the matrix of orthonormal rows that tells the methods apart."""
    if method.startswith("zca"):
        return weight @ axes.T
    if method == "cholesky":
        _, upper = np.linalg.qr(weight.T)
        lower: NDArray[np.float64] = (upper * np.where(upper.diagonal() < 0, -1.0, 1.0)[:, None]).T
        return lower
    return weight


def _n_axes(name: str, moments: Moments, found: Spectrum, wanted: int | float | str | None, strength: float) -> int:
    """Axes kept: those asked for, as far as the rank reaches."""
    values = found.values[: found.rank]
    if isinstance(wanted, str):
        return width_within_spread(values ** (1 - strength), AUTO_LOSS)
    if isinstance(wanted, (float, np.floating)):
        return width_of_share(values, float(wanted))
    asked = moments.dim if wanted is None else int(wanted)
    if found.rank < asked:
        rows = moments.weight
        warnings.warn(
            f"{name}: components kept: {found.rank} instead of {asked}, because the {rows:g} rows vary along "
            f"{found.rank} of their {moments.dim} axes and the rest is rounding noise."
            f"{' Fit on more texts for more.' if rows <= asked else ''}",
            RankWarning,
            stacklevel=2,
        )
    return min(asked, found.rank)


class Whitening(InvertibleTransform):
    r"""Centre vectors, rotate them to their principal axes, and even out the variance along these.

    Parameters
    ----------
    n_components : int, float, "auto" or None, default None
        Axes kept, those of largest variance: a number; a float in (0, 1], the share of variance that they must hold;
        "auto", as few as keep unrelated vectors apart (see Notes); None, all.
    method : {"pca", "zca", "pca_cor", "zca_cor", "cholesky"}, default "pca"
        Which of the whitening maps; all give the same cosines as long as every axis is kept, the ``_cor`` ones, which
        standardise each dimension first, at strength 1 only. ZCA turns back to the axes of the input, so that its
        vectors keep all their dimensions whatever `n_components` says.
    strength : float or "auto", default 1.0
        How far the variances are evened out, in [0, 1]: 1 is whitening, every variance 1; 0 only centres and rotates,
        which is PCA; "auto" follows the spectrum, see `spectral_strength`.
    shrinkage : float, "ledoit_wolf", "oas" or None, default None
        Pull of the covariance towards a multiple of the identity, in [0, 1], or the estimator that says how far.
    center : bool, default True
        Whether the mean is subtracted; if not, variances are about zero.
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
        Axes with more than noise along them.
    strength_, shrinkage_ : float
        Those in force.
    n_components_ : int
        Dimensions that come out.
    n_features_in_ : int
        Dimensions that go in.

    Warns
    -----
    RankWarning
        If `rank_` is below the number of components asked for, as with fewer rows than dimensions.

    Notes
    -----
    :math:`y = (x - \mu) U_k \Lambda_k^{-\gamma/2}` with the covariance (divided by N)
    :math:`\Sigma = U \Lambda U^\top`, eigenvalues descending, and :math:`\gamma` the strength; Su et al. 2021,
    equations 2-9 and algorithm 1, where :math:`\gamma = 1`; the other methods after Kessy et al. 2018, table 1, see
    `solve_whitening`. The moments and eigenpairs are float64; the map is applied in float32, or in float64 to float64
    vectors. Eigenvalues that are rounding noise are left out (see `spectrum`), where the published recipe returns
    infinities.

    ``n_components="auto"`` keeps the fewest axes over which the cosines of unrelated vectors spread at most 1/0.95
    times as much as over all axes (see `width_within_spread`). At strength 1 no axis matters less than another, and
    nine in ten are kept.

    Whitening helps raw word vectors and raw transformers. It often hurts encoders that were trained to spread their
    vectors (sentence-transformers models): measure before shipping.

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
        strength: float | str = 1.0,
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

    def _solve(self, moments: Moments) -> WhiteningSolution:
        settings = WhiteningSettings(
            self.n_components, self.method, self.strength, self.shrinkage, self.center, float(self.eps)
        )
        return solve_whitening(self._name, moments, settings)

    def _check_settings(self, dim: int) -> None:
        _check.one_of(self._name, "method", self.method, METHODS)
        if self.n_components != AUTO:
            _check.component_count_or_share(self._name, self.n_components, dim)
        if self.strength != AUTO:
            _check.fraction(self._name, "strength", self.strength)
        if isinstance(self.shrinkage, str):
            _check.one_of(self._name, "shrinkage", self.shrinkage, tuple(SHRINKAGES))
        elif self.shrinkage is not None:
            _check.fraction(self._name, "shrinkage", self.shrinkage)
        _check.not_negative(self._name, "eps", self.eps)

    @property
    def uses_radial_moments(self) -> bool:
        """Whether the shrinkage asked for needs more than the scatter."""
        return self.shrinkage == "ledoit_wolf"

    @property
    def mean_(self) -> NDArray[np.float64]:
        """Mean of the rows seen."""
        return self.moments_.mean

    @property
    def explained_variance_(self) -> NDArray[np.float64]:
        """Variance along each kept axis before evening out."""
        return self._solution.spectrum.values[: self._solution.n_axes]

    @property
    def explained_variance_ratio_(self) -> NDArray[np.float64]:
        """Share of the total variance along each kept axis."""
        total: np.float64 = self._solution.spectrum.values.sum()
        return self.explained_variance_ / total

    @property
    def rank_(self) -> int:
        """Axes with more than noise along them."""
        return self._solution.spectrum.rank

    @property
    def strength_(self) -> float:
        """Strength in force."""
        return self._solution.strength

    @property
    def shrinkage_(self) -> float:
        """Shrinkage in force."""
        return self._solution.shrinkage

    @property
    def _solution(self) -> WhiteningSolution:
        return cast("WhiteningSolution", self._fitted.solution)


class PrincipalComponents(InvertibleTransform):
    r"""Centre vectors and rotate them to their principal axes; the variances stay as they are.

    Parameters
    ----------
    n_components : int, float, "auto" or None, default None
        Axes kept, as for `Whitening`.

    Notes
    -----
    :math:`y = (x - \mu) U_k`: the whitening of strength 0.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[0.0, 0.0], [2.0, 2.0], [4.0, 4.0]])
    >>> PrincipalComponents(1).fit_transform(rows).round(4) + 0.0
    array([[-2.8284],
           [ 0.    ],
           [ 2.8284]])
    """

    def __init__(self, n_components: int | float | str | None = None) -> None:
        self.n_components = n_components

    def _solve(self, moments: Moments) -> WhiteningSolution:
        return solve_whitening(self._name, moments, WhiteningSettings(self.n_components, strength=0.0))

    def _check_settings(self, dim: int) -> None:
        if self.n_components != AUTO:
            _check.component_count_or_share(self._name, self.n_components, dim)
