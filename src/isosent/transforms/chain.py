"""Transforms applied one after another, folded into one map."""

from __future__ import annotations

from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import OneToOneFeatureMixin, clone
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import check_is_fitted

from isosent import _check
from isosent.errors import InputError, InputTypeError, wrong_value
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.transforms.base import needs_vectors, resolved_settings, transform_name
from isosent.transforms.estimator import MomentTransform, RowEstimator, Solution


def chain(*steps: Any) -> Chain:
    """Combine transforms that are applied one after another.

    Parameters
    ----------
    *steps : transform
        Unfitted transforms in the order they are applied. `L2Normalize` can only be the last one. A chain among them
        is replaced by its steps.

    Returns
    -------
    Chain
        A transform. Its steps are named by their classes in lower case.

    Raises
    ------
    InputError
        If there is no step. Steps that do not fit together are refused when the chain is fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from isosent import L2Normalize, MeanCentering, Whitening
    >>> rows = np.random.default_rng(0).normal(size=(100, 4))
    >>> vectors = chain(MeanCentering(), Whitening(2), L2Normalize()).fit_transform(rows)
    >>> vectors.shape, np.linalg.norm(vectors, axis=1).round(6).max()
    ((100, 2), np.float64(1.0))
    """
    if not steps:
        raise wrong_value("chain", "steps", "hold at least one transform", "none")
    flat = [inner for step in steps for inner in ([s for _, s in step.steps] if isinstance(step, Chain) else [step])]
    kinds = [type(step).__name__.lower() for step in flat]
    names = [
        kind if kinds.count(kind) == 1 else f"{kind}-{kinds[: position + 1].count(kind)}"
        for position, kind in enumerate(kinds)
    ]
    return Chain(list(zip(names, flat, strict=True)))


class Chain(_BaseComposition, MomentTransform):
    """Linear transforms applied one after another; made by `chain`."""

    # Rows are read once: the moments after a map follow from those before it (`Moments.mapped`). So each step is fitted
    # on the result of the previous steps, and the chain streams and merges like a single transform.

    def __init__(self, steps: list[tuple[str, Any]]) -> None:
        self.steps = steps

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings of the steps, named ``step__setting``."""
        return self._get_params("steps", deep=deep)

    def set_params(self, **kwargs: Any) -> Self:
        """Set settings, named as `get_params` does."""
        self._set_params("steps", **kwargs)
        return self

    @property
    def normalize_(self) -> bool:
        """Whether the last step scales rows to length 1."""
        return isinstance(self._fit.settings.steps[-1][1], L2Normalize)

    @property
    def resolved_steps_(self) -> list[dict[str, Any]]:
        """Name and settings of each step, with the values that were used for "auto"."""
        return list(self._fit.solution.steps)

    def _solve(self, moments: Moments) -> Solution:
        maps: list[LinearMap] = []
        steps: list[dict[str, Any]] = []
        for _, step in self.steps:
            fitted = step if isinstance(step, L2Normalize) else clone(step).fit_moments(moments)
            steps.append({"transform": transform_name(fitted)} | resolved_settings(fitted))
            if fitted is not step:
                maps.append(fitted.linear_map_)
                moments = moments.mapped(maps[-1])
        identity = LinearMap(np.eye(moments.dim), np.zeros(moments.dim))
        return Solution(reduce(LinearMap.then, maps) if maps else identity, steps=tuple(steps))

    def check_settings(self, dim: int) -> None:
        transforms = [step for _, step in self.steps]
        if not transforms:
            raise wrong_value("chain", "steps", "hold at least one transform", "none")
        for number, step in enumerate(transforms, start=1):
            if isinstance(step, L2Normalize):
                if number < len(transforms):
                    raise InputError(
                        f"chain: l2_normalize is step {number}, but it is not linear. Make it the last step."
                    )
                continue
            if needs_vectors(step):
                raise InputError(
                    f"chain: step {number} is a {step.kind}, which is not linear and cannot be part of a chain. "
                    f"Fit the other steps first, and then the {step.kind} on the model they give."
                )
            if not isinstance(step, MomentTransform) or isinstance(step, Chain):
                raise wrong_value("chain", "steps", "be transforms of isosent", repr(step), error=InputTypeError)
            step.check_settings(dim)


class L2Normalize(OneToOneFeatureMixin, RowEstimator):
    """Scale each vector to length 1, so that an inner product is a cosine. A zero vector stays zero.

    Notes
    -----
    Not linear, so it can only end a chain.

    Examples
    --------
    >>> import numpy as np
    >>> L2Normalize().fit_transform(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Store the width; there is nothing to learn.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            At least one vector.
        y : object, optional
            Ignored.

        Returns
        -------
        L2Normalize
            This object.

        Raises
        ------
        InputError
            If a row holds NaN or infinity (the message names the row), or there is no row.
        """
        _check.finite_rows(self._name, "X", self._rows(X, min_rows=1))
        self._check_features(X, reset=True)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Scale vectors to length 1.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            Vectors; zero rows are allowed.

        Returns
        -------
        ndarray of shape (n_rows, dim)
            float64 for float64 vectors, float32 for everything else.

        Raises
        ------
        InputError
            If a row holds NaN or infinity (the message names the row), or the width differs from that of the fit.
        NotFittedError
            If nothing was fitted.
        """
        check_is_fitted(self, "n_features_in_")
        rows = self._rows(X)
        _check.finite_rows(self._name, "X", rows)
        self._check_features(X, reset=False)
        return unit_rows(rows if rows.dtype == np.float64 else rows.astype(np.float32, copy=False))
