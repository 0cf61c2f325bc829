"""Whitening (Su et al. 2021, section 3) and its relatives."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.numeric.moments import Moments
from isosent.numeric.shrinkage import SHRINKAGES
from isosent.transforms.moment_transform import InvertibleTransform
from isosent.transforms.whitening_solution import AUTO, METHODS, WhiteningSettings, WhiteningSolution, solve_whitening


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
