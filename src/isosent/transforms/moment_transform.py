"""What every linear transform has in common: it is fitted from `Moments`, and yields one `LinearMap`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from isosent.errors import InputError
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.transforms.base import RowEstimator, as_rows

_SMALLEST, _LARGEST = 1e-70, 1e70
_ROUNDING = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """What follows from moments and settings."""

    linear_map: LinearMap  # the map
    offset: NDArray[np.float64] | None = None  # what is subtracted first


@dataclass(frozen=True, eq=False)
class Fitted:
    """Moments, the settings in force when they were taken, and what follows from both, solved when it is asked for."""

    moments: Moments  # of all rows seen
    settings: MomentTransform  # an unfitted copy of the transform

    @cached_property
    def solution(self) -> Solution:
        """The map and what belongs to it."""
        return self.settings._solve(self.moments)

    @cached_property
    def inverse_map(self) -> LinearMap:
        """The way back, nearest to the offset where the map loses something."""
        weight, offset = self.solution.linear_map.weight, self.solution.offset
        return LinearMap(
            np.linalg.pinv(weight, rcond=_ROUNDING * max(weight.shape)).astype(np.float64),
            np.zeros(len(weight)) if offset is None else offset,
        )


def check_size(name: str, moments: Moments) -> None:
    """Refuse moments of numbers so large or so small that the squares of their variances leave float64."""
    variance = max(0.0, float(moments.scatter.diagonal().max())) / moments.weight
    size = max(float(np.abs(moments.mean).max()), variance**0.5)
    if size and not _SMALLEST < size < _LARGEST:
        raise InputError(
            f"{name}: the numbers of the rows must be between {_SMALLEST:g} and {_LARGEST:g} in size; got {size:.3g}. "
            "Multiply all rows by one number."
        )


class MomentTransform(RowEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):
    """Base of the linear transforms: a scikit-learn estimator over weight, mean and scatter.

    A subclass says how moments become a map (`_solve`) and which settings it accepts (`_check_settings`).

    Attributes
    ----------
    moments_ : Moments
        Weight, mean and scatter of all rows seen; everything else follows from it and the settings.
    linear_map_ : LinearMap
        The fitted map.
    n_components_ : int
        Dimensions that come out.
    n_features_in_ : int
        Dimensions that go in.
    """

    @property
    def normalize_(self) -> bool:
        """Whether rows are scaled to length 1 behind the map."""
        return False

    @property
    def uses_radial_moments(self) -> bool:
        """Whether the fit needs more than weight, mean and scatter."""
        return False

    @abstractmethod
    def _solve(self, moments: Moments) -> Solution:
        """Turn the moments of at least one row into a map."""

    def _check_settings(self, dim: int) -> None:
        """Refuse settings that are out of range for vectors of `dim` dimensions."""

    def fit(self, X: ArrayLike, y: object = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit on vectors, forgetting those seen before.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            One vector a row.
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
            If a row holds NaN or infinity (the message names the row), the rows do not tell enough (all are equal,
            for one), or a setting is out of range.
        """
        fitted = Fitted(self._moments_of(X, sample_weight), clone(self))
        _ = fitted.solution  # solved at once, so that it fails or warns at once
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
        MomentTransform
            This object. The map is computed when it is first asked for.

        Raises
        ------
        InputError
            If a row holds NaN or infinity, the width differs from before, or a setting is out of range.
        """
        if not hasattr(self, "_fitted"):
            moments = self._moments_of(X, sample_weight)
            self._check_features(X, reset=True)
        else:
            self._check_features(X, reset=False)
            moments = self.moments_ + self._moments_of(X, sample_weight)
        self._fitted = self._refitted(moments)
        return self

    def fit_moments(self, moments: Moments) -> Self:
        """Fit on the moments of vectors that were seen elsewhere.

        Parameters
        ----------
        moments : Moments
            Their moments.

        Returns
        -------
        MomentTransform
            This object, as if `fit` had been given the vectors.

        Raises
        ------
        InputError
            If the moments are those of no row, do not tell enough, or a setting is out of range.
        """
        self._check_settings(moments.dim)
        if moments.weight == 0:
            raise InputError(f"{self._name}: moments must be those of at least one row; got none.")
        fitted = Fitted(moments, clone(self))
        _ = fitted.solution
        if hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = moments.dim
        self._fitted = fitted
        return self

    def merge(self, other: Self) -> Self:
        """Take in what another transform of this kind has seen, as if its vectors had been given to this one.

        Parameters
        ----------
        other : MomentTransform
            A fitted one, of the same dimensions.

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
        self._check_settings(self.moments_.dim)
        self._fitted = self._refitted(self.moments_ + other.moments_)
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
        rows = as_rows(self._name, X, at_least=0)
        self._check_features(X, reset=False)
        mapped = self.linear_map_.apply(rows)
        return unit_rows(mapped) if self.normalize_ else mapped

    @property
    def moments_(self) -> Moments:
        """Weight, mean and scatter of all rows seen."""
        return self._fitted.moments

    @property
    def linear_map_(self) -> LinearMap:
        """The fitted map."""
        return self._fitted.solution.linear_map

    @property
    def n_components_(self) -> int:
        """Dimensions that come out."""
        return self.linear_map_.n_components

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @property
    def _name(self) -> str:
        return type(self).__name__

    def __sklearn_is_fitted__(self) -> bool:
        """Tell scikit-learn whether anything was fitted."""
        return hasattr(self, "_fitted")

    def _moments_of(self, X: ArrayLike, sample_weight: ArrayLike | None) -> Moments:
        """What one call's rows tell, after every check on them and on the settings."""
        rows = as_rows(self._name, X, at_least=1)
        self._check_settings(rows.shape[1])
        moments = Moments.from_rows(rows, sample_weight, radial=self.uses_radial_moments)
        if moments.weight == 0:
            raise InputError(f"{self._name}: sample_weight must not be zero for every row; got zeros only.")
        return moments

    def _refitted(self, moments: Moments) -> Fitted:
        """Moments and the settings of now, after a check that they go together."""
        if self.uses_radial_moments and moments.radial is None:
            raise InputError(
                f"{self._name}: Ledoit-Wolf shrinkage must see all rows itself; some were seen without it. Fit again."
            )
        return Fitted(moments, clone(self))


class InvertibleTransform(MomentTransform):
    """Base of the transforms that have a way back."""

    def inverse_transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Map transformed vectors back; what the left-out axes held is replaced by its mean."""
        check_is_fitted(self)
        return self._fitted.inverse_map.apply(as_rows(self._name, X, at_least=0))
