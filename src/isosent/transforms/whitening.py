"""Whitening (Su et al. 2021, section 3)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from isosent import _check
from isosent.errors import InputError, InputTypeError
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.transforms.whitening_state import Seen, WhiteningState


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
        fitted = WhiteningState(self._seen_in(X, sample_weight), self.n_components, float(self.strength))
        _ = fitted.linear_map  # solved at once, so that it fails or warns at once
        self._check_features(X, reset=True)
        self._fitted = fitted
        return self

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
        seen, is_first = self._seen_in(X, sample_weight), not hasattr(self, "_fitted")
        self._check_features(X, reset=is_first)
        total = seen if is_first else self._fitted.seen + seen
        self._fitted = WhiteningState(total, self.n_components, float(self.strength))
        return self

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
        self._check_settings(self.moments_.dim)
        self._fitted = WhiteningState(self._fitted.seen + other._fitted.seen, self.n_components, float(self.strength))
        return self

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
        rows = _as_array(X, at_least=0)
        self._check_features(X, reset=False)
        return self.linear_map_.apply(rows)

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
        return self._fitted.inverse_map.apply(_as_array(X, at_least=0))

    @property
    def moments_(self) -> Moments:
        """Weight, mean and scatter of all rows seen."""
        return self._fitted.seen.moments

    @property
    def linear_map_(self) -> LinearMap:
        """The fitted map."""
        return self._fitted.linear_map

    @property
    def mean_(self) -> NDArray[np.float64]:
        """Mean of the rows seen."""
        return self.moments_.mean

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

    def _seen_in(self, X: ArrayLike, sample_weight: ArrayLike | None) -> Seen:
        """What one call's rows tell, after every check on them and on the settings."""
        rows = _as_array(X, at_least=1)
        self._check_settings(rows.shape[1])
        moments = Moments.from_rows(rows, sample_weight)
        if moments.weight == 0:
            raise InputError("Whitening: sample_weight must not be zero for every row; got zeros only.")
        eps = float(np.finfo(rows.dtype).eps) if rows.dtype.kind == "f" else 0.0
        return Seen(moments, eps)

    def _check_settings(self, dim: int) -> None:
        _check.component_count("Whitening", self.n_components, dim)
        _check.fraction("Whitening", "strength", self.strength)

    def _check_features(self, X: ArrayLike, *, reset: bool) -> None:
        """Let scikit-learn compare number and names of the columns with those of the fit, or note them."""
        try:
            validate_data(self, X, reset=reset, skip_check_array=True)
        except (ValueError, TypeError) as error:
            raise InputError(f"Whitening: {error}") from None


def _as_array(X: ArrayLike, *, at_least: int) -> NDArray[Any]:
    """Whatever scikit-learn takes as rows (a data frame, for one) as an array; values are not looked at."""
    try:
        array: NDArray[Any] = check_array(
            X, dtype="numeric", ensure_all_finite=False, ensure_min_samples=at_least, input_name="X"
        )
    except TypeError as error:
        raise InputTypeError(f"Whitening: {error}") from None
    except ValueError as error:
        raise InputError(f"Whitening: {error}") from None
    return array
