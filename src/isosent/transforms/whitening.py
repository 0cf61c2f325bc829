"""Whitening (Su et al. 2021, section 3)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from isosent import _check
from isosent.errors import InputError, InputTypeError, RankWarning
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.spectrum import Spectrum, spectrum


class Whitening(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Centre vectors, rotate them to their principal axes, and even out the variance along these.

    Parameters
    ----------
    n_components : int or None, default None
        Dimensions kept, those of largest variance; None keeps as many as the vectors have.
    strength : float, default 1.0
        How far the variances are evened out, in [0, 1]: 1 is whitening, every variance 1; 0 only centres and rotates,
        which is PCA.

    Attributes
    ----------
    moments_ : Moments
        Weight, mean and scatter of all rows seen; everything below follows from it.
    linear_map_ : LinearMap
        :math:`W` of shape (n_features_in, n_components) and :math:`b = -\mu W`.
    mean_ : ndarray of shape (n_features_in,), float64
        :math:`\mu`.
    explained_variance_ : ndarray of shape (n_components,), float64
        Variance along each kept axis before evening out, descending.
    explained_variance_ratio_ : ndarray of shape (n_components,), float64
        The same as shares of the total variance.
    rank_ : int
        Axes with more than noise along them.
    n_components_ : int
        Dimensions that come out: the smaller of `n_components` and `rank_`.
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
    equations 2-9 and algorithm 1, where :math:`\gamma = 1`. The moments and eigenpairs are float64; the map is applied
    in float32, or in float64 to float64 vectors. Eigenvalues that are rounding noise are left out (see `spectrum`),
    where the published recipe returns infinities.

    Whitening helps raw word vectors and raw transformers. It often hurts encoders that were trained to spread their
    vectors (sentence-transformers models): measure before shipping.

    References
    ----------
    Su, Cao, Liu & Ou 2021, *Whitening Sentence Representations for Better Semantics and Faster Retrieval*,
    arXiv 2103.15316.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).normal(size=(1000, 3)) * [5.0, 1.0, 0.1] + 7.0
    >>> whitening = Whitening(n_components=2).fit(rows)
    >>> np.cov(whitening.transform(rows).T, ddof=0).round(6) + 0.0
    array([[1., 0.],
           [0., 1.]])
    """

    def __init__(self, n_components: int | None = None, *, strength: float = 1.0) -> None:
        self.n_components = n_components
        self.strength = strength

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit on vectors, forgetting those seen before.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            One vector a row, at least two that differ.
        y : object, optional
            Ignored; no labels are needed.
        sample_weight : array_like of shape (n_rows,), optional
            Weight of each row, >= 0.

        Returns
        -------
        Whitening
            This object.

        Raises
        ------
        InputError
            If a row holds NaN or infinity (the message names the row), all rows are equal, or a setting is out of
            range.
        """
        return self._adopt(self._moments_of(X, sample_weight), X, restart=True)

    def partial_fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Add vectors to those seen before; in the end as if all had been given to `fit` at once.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            Further vectors, one a row.
        y : object, optional
            Ignored.
        sample_weight : array_like of shape (n_rows,), optional
            Weight of each row, >= 0.

        Returns
        -------
        Whitening
            This object. The map is computed when it is first asked for.

        Raises
        ------
        InputError
            If a row holds NaN or infinity, the width differs from before, or a setting is out of range.
        """
        added = self._moments_of(X, sample_weight)
        seen = self.moments_ if hasattr(self, "_fitted") else Moments.empty(added.dim)
        return self._adopt(seen + added, X, restart=False)

    def merge(self, other: Whitening) -> Self:
        """Take in what another whitening has seen, as if its vectors had been given to this one.

        Parameters
        ----------
        other : Whitening
            A fitted one, of the same dimensions.

        Returns
        -------
        Whitening
            This object.

        Raises
        ------
        InputError
            If the dimensions differ.
        NotFittedError
            If either has not been fitted.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        return self._adopt(self.moments_ + other.moments_, None, restart=False)

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Whiten vectors.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            Vectors of the space that was fitted.

        Returns
        -------
        ndarray of shape (n_rows, n_components)
            float64 for float64 vectors, float32 for everything else.

        Raises
        ------
        InputError
            If a row holds NaN or infinity (the message names the row).
        NotFittedError
            If nothing was fitted.
        """
        check_is_fitted(self)
        validate_data(self, X, reset=False, skip_check_array=True)
        return self.linear_map_.apply(_as_array(X))

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Map whitened vectors back; what the left-out axes held is replaced by its mean.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_components), any real dtype
            Whitened vectors.

        Returns
        -------
        ndarray of shape (n_rows, dim)
            Vectors of the fitted space, the nearest ones that whiten to `X`.

        Raises
        ------
        InputError
            If a row holds NaN or infinity, or the width is another one.
        NotFittedError
            If nothing was fitted.
        """
        check_is_fitted(self)
        return self._fitted.inverse_map.apply(_as_array(X))

    @property
    def moments_(self) -> Moments:
        """Weight, mean and scatter of all rows seen."""
        return self._fitted.moments

    @property
    def linear_map_(self) -> LinearMap:
        """The fitted map."""
        return self._fitted.linear_map

    @property
    def mean_(self) -> NDArray[np.float64]:
        """Mean of the rows seen."""
        return self._fitted.moments.mean

    @property
    def explained_variance_(self) -> NDArray[np.float64]:
        """Variance along each kept axis before evening out."""
        return self._fitted.spectrum.values[: self.n_components_]

    @property
    def explained_variance_ratio_(self) -> NDArray[np.float64]:
        """Share of the total variance along each kept axis."""
        total: np.float64 = self._fitted.spectrum.values.sum()
        return self.explained_variance_ / total

    @property
    def rank_(self) -> int:
        """Axes with more than noise along them."""
        return self._fitted.spectrum.rank

    @property
    def n_components_(self) -> int:
        """Dimensions that come out."""
        return self._fitted.n_components

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_is_fitted__(self) -> bool:
        """Tell scikit-learn whether anything was fitted."""
        return hasattr(self, "_fitted")

    def __sklearn_tags__(self) -> Tags:
        """Tell scikit-learn which dtypes are kept."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _moments_of(self, X: ArrayLike, sample_weight: ArrayLike | None) -> Moments:
        """Moments of one call's rows, after every check on them and on the settings."""
        rows = _as_array(X)
        _check.component_count("Whitening", self.n_components, rows.shape[1])
        _check.fraction("Whitening", "strength", self.strength)
        return Moments.from_rows(rows, sample_weight)

    def _adopt(self, moments: Moments, X: ArrayLike | None, *, restart: bool) -> Self:
        """Replace the state in one assignment; a whole fit is solved at once, so that it fails or warns at once."""
        fitted = _Fitted(moments, self.n_components, float(self.strength))
        if restart:
            _ = fitted.linear_map
        if X is not None:
            validate_data(self, X, reset=restart or not hasattr(self, "_fitted"), skip_check_array=True)
        self._fitted = fitted
        return self


@dataclass(frozen=True, eq=False)
class _Fitted:
    """What was seen, the settings in force then, and what follows from both, computed when it is asked for."""

    moments: Moments
    n_components_wanted: int | None
    strength: float

    @cached_property
    def spectrum(self) -> Spectrum:
        found = spectrum(self.moments.covariance)
        if found.rank == 0:
            raise InputError(
                "Whitening: the rows must vary; got rank 0, as with n_samples = 1 or rows that are all equal. "
                "Fit on more texts."
            )
        return found

    @cached_property
    def n_components(self) -> int:
        wanted = self.n_components_wanted or self.moments.dim
        kept = min(wanted, self.spectrum.rank)
        if kept < wanted:
            rows = self.moments.weight
            warnings.warn(
                f"Whitening: {kept} components are kept instead of {wanted}, because the {rows:g} rows vary along "
                f"{kept} of their {self.moments.dim} axes and the rest is rounding noise."
                f"{' Fit on more texts for more.' if rows <= wanted else ''}",
                RankWarning,
                stacklevel=2,
            )
        return kept

    @cached_property
    def linear_map(self) -> LinearMap:
        weight = self._axes * self._kept_values ** (-self.strength / 2)
        return LinearMap(weight, -self.moments.mean @ weight)

    @cached_property
    def inverse_map(self) -> LinearMap:
        return LinearMap((self._axes * self._kept_values ** (self.strength / 2)).T, self.moments.mean)

    @property
    def _axes(self) -> NDArray[np.float64]:
        return self.spectrum.vectors[:, : self.n_components]

    @property
    def _kept_values(self) -> NDArray[np.float64]:
        return self.spectrum.values[: self.n_components]


def _as_array(X: ArrayLike) -> NDArray[Any]:
    """Whatever scikit-learn takes as rows (a data frame, for one) as an array; values are not looked at."""
    try:
        array: NDArray[Any] = check_array(X, dtype="numeric", ensure_all_finite=False, input_name="X")
    except TypeError as error:
        raise InputTypeError(f"Whitening: {error}") from None
    except ValueError as error:
        raise InputError(f"Whitening: {error}") from None
    return array
