"""Base classes of the transforms: checks as in scikit-learn, and linear transforms that are fitted from moments.

`RowEstimator` checks rows and columns. `MomentTransform` adds `fit`, `partial_fit`, `fit_moments` and `merge`, which
all end in the moments of the rows seen; a subclass says only how moments become a map (`_solve`) and which settings it
accepts. `_Fit` keeps the moments with the settings of that time, and computes the map when it is first needed: so a
stream decomposes one covariance, and a later `set_params` changes nothing. `transform` is the map alone
(`LinearMap.apply`). `InvertibleTransform` adds the way back, by the pseudo-inverse of the map.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from isosent import _check
from isosent.errors import InputError, InputTypeError, wrong_value
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.numeric.spectrum import Spectrum
from isosent.storage import Storage

_SMALLEST, _LARGEST = 1e-70, 1e70  # squares of variances must stay within float64


class RowEstimator(TransformerMixin, BaseEstimator):
    """Base of all transforms: rows and columns are checked as scikit-learn does, float32 and float64 are kept."""

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _rows(self, X: ArrayLike, *, min_rows: int = 0) -> NDArray[Any]:
        """Return anything scikit-learn takes as rows, such as a data frame, as an array; values are not checked."""
        _check.not_masked(self._name, "X", X)
        try:
            rows = check_array(X, dtype="numeric", ensure_all_finite=False, ensure_min_samples=min_rows, input_name="X")
        except TypeError as error:
            raise InputTypeError(error, where=self._name) from None
        except ValueError as error:
            raise InputError(error, where=self._name) from None
        return _check.matrix(self._name, "X", rows)

    def _check_features(self, X: ArrayLike, *, reset: bool) -> None:
        """Compare number and names of the columns with those of the fit, or store them (`reset`)."""
        try:
            validate_data(self, X, reset=reset, skip_check_array=True)
        except (ValueError, TypeError) as error:
            raise InputError(error, where=self._name) from None

    def __sklearn_tags__(self) -> Tags:
        """Declare to scikit-learn which dtypes are preserved."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = [Storage.float64, Storage.float32]
        return tags


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The map that was computed from moments and settings; a whitening adds how."""

    linear_map: LinearMap
    offset: NDArray[np.float64] | None = None  # what is subtracted first, (dim,)
    spectrum: Spectrum | None = None  # of the matrix that was decomposed
    n_axes: int = 0  # axes kept
    strength: float = 0.0  # value used where "auto" was asked for
    shrinkage: float = 0.0  # value used where an estimator was asked for
    steps: tuple[dict[str, Any], ...] = ()  # of a chain: each step's name and settings, with the values used


class _Fit:
    """Moments, and the settings at the time of the fit. The map is computed when it is first needed."""

    # So a stream of `partial_fit` calls decomposes one covariance, and a later `set_params` does not change the fit.

    def __init__(self, moments: Any, settings: MomentTransform) -> None:  # `Moments`, or those with labels
        self.moments, self.settings = moments, settings

    @cached_property
    def solution(self) -> Solution:
        return self.settings._solve(self.moments)

    @cached_property
    def inverse_map(self) -> LinearMap:
        weight, offset = self.solution.linear_map.weight, self.solution.offset
        inverse = np.linalg.pinv(weight, rcond=np.finfo(np.float64).eps * max(weight.shape))
        return LinearMap(inverse.astype(np.float64), np.zeros(len(weight)) if offset is None else offset)


class MomentTransform(ClassNamePrefixFeaturesOutMixin, RowEstimator, ABC):
    """Base of the linear transforms: a scikit-learn estimator that is fitted from the moments of rows.

    A subclass says how moments become a map (`_solve`) and which settings it accepts (`check_settings`).

    Attributes
    ----------
    moments_ : Moments
        Weight, mean and scatter of all rows seen; everything else follows from it and the settings.
    linear_map_ : LinearMap
        The fitted map.
    n_components_ : int
        Dimensions of the result.
    n_features_in_ : int
        Dimensions of the rows.
    """

    @property
    def normalize_(self) -> bool:
        """Whether rows are scaled to length 1 after the map."""
        return False

    @abstractmethod
    def _solve(self, moments: Moments) -> Solution:
        """Turn the moments of at least one row into a map."""

    def check_settings(self, dim: int) -> None:
        """Refuse settings that are out of range for vectors of `dim` dimensions.

        Parameters
        ----------
        dim : int
            Dimensions of the vectors.

        Raises
        ------
        InputError
            If a setting is out of range; the message names it with its value.
        """

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit on vectors. Forgets all vectors seen before.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            One vector per row.
        y : object, optional
            Ignored; no labels are needed.
        sample_weight : array_like of shape (n_rows,), optional
            Weight of each row, >= 0.

        Returns
        -------
        MomentTransform
            This object.

        Raises
        ------
        InputError
            If a row holds NaN or infinity (the message names the row), the rows do not suffice (for example, all are
            equal), or a setting is out of range.
        """
        fit = _Fit(self._moments_of(X, y, sample_weight), clone(self))
        _ = fit.solution  # errors and warnings belong to this call
        self._check_features(X, reset=True)
        self._fit = fit
        return self

    def partial_fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Add vectors to those seen before. The result is that of one `fit` on all of them.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            More vectors, one per row.
        y : object, optional
            Ignored.
        sample_weight : array_like of shape (n_rows,), optional
            Weight of each row, >= 0.

        Returns
        -------
        MomentTransform
            This object. The map is computed when it is first used.

        Raises
        ------
        InputError
            If a row holds NaN or infinity, the width differs from before, or a setting is out of range.
        """
        is_first = not hasattr(self, "_fit")
        if not is_first:
            self._check_features(X, reset=False)
        moments = self._moments_of(X, y, sample_weight)
        if is_first:
            self._check_features(X, reset=True)
        self._refit(moments if is_first else self._fit.moments + moments)
        return self

    def fit_moments(self, moments: Moments) -> Self:
        """Fit on the moments of vectors, as if `fit` had seen the vectors.

        Parameters
        ----------
        moments : Moments
            Moments of at least one row.

        Returns
        -------
        MomentTransform
            This object.

        Raises
        ------
        InputError
            If there are no rows, the rows do not suffice, or a setting is out of range.
        """
        self.check_settings(moments.dim)
        if moments.weight == 0:
            raise InputError("the moments are those of no row. At least one is needed.", where=self._name)
        fit = _Fit(moments, clone(self))
        _ = fit.solution
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = moments.dim
        self._fit = fit
        return self

    def merge(self, other: Self) -> Self:
        """Add all vectors that another transform of this class has seen.

        Parameters
        ----------
        other : MomentTransform
            A fitted transform of the same dimensions.

        Returns
        -------
        MomentTransform
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
        self.check_settings(self.moments_.dim)
        self._refit(self._fit.moments + other._fit.moments)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Transform vectors.

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
        rows = self._rows(X)
        self._check_features(X, reset=False)
        mapped = self.linear_map_.apply(rows)
        return unit_rows(mapped) if self.normalize_ else mapped

    @property
    def moments_(self) -> Moments:
        """Weight, mean and scatter of all rows seen."""
        moments: Moments = self._fit.moments
        return moments

    @property
    def linear_map_(self) -> LinearMap:
        """The fitted map."""
        return self._fit.solution.linear_map

    @property
    def n_components_(self) -> int:
        """Dimensions of the result."""
        return self.linear_map_.n_components

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_is_fitted__(self) -> bool:
        """Whether the transform is fitted, for scikit-learn."""
        return hasattr(self, "_fit")

    def _moments_of(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None) -> Any:
        """Check rows and settings, and take the moments; labels are ignored."""
        rows = self._rows(X, min_rows=1)
        self.check_settings(rows.shape[1])
        moments = Moments.from_rows(rows, sample_weight)
        if moments.weight == 0:
            raise wrong_value(self._name, "sample_weight", "not be zero for every row", "zeros only")
        return moments

    def _refit(self, moments: Any) -> None:
        self._fit = _Fit(moments, clone(self))

    def _check_size(self, moments: Moments) -> None:
        """Refuse moments of numbers so large or so small that the squares of their variances leave float64."""
        variance = max(0.0, float(moments.scatter.diagonal().max())) / moments.weight
        size = max(float(np.abs(moments.mean).max()), variance**0.5)
        if size and not _SMALLEST < size < _LARGEST:
            raise InputError(
                f"the numbers of the rows are {size:.3g} in size, not between {_SMALLEST:g} and {_LARGEST:g}. "
                "Multiply all rows by one number.",
                where=self._name,
            )


class InvertibleTransform(MomentTransform):
    """Base of the transforms that can be undone."""

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Map transformed vectors back. Axes that were left out get their mean.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_components), any real dtype
            Transformed vectors.

        Returns
        -------
        ndarray of shape (n_rows, dim)
            float64 for float64 vectors, float32 for everything else.

        Raises
        ------
        InputError
            If a row holds NaN or infinity, or the width differs.
        NotFittedError
            If nothing was fitted.
        """
        check_is_fitted(self)
        return self._fit.inverse_map.apply(self._rows(X))
