"""Transforms one behind the other, folded to one map."""

from __future__ import annotations

from functools import reduce
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.metaestimators import _BaseComposition
from sklearn.utils.validation import check_is_fitted

from isosent import _check
from isosent.errors import InputError, InputTypeError
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import unit_rows
from isosent.transforms.base import RowEstimator, as_rows, is_flow
from isosent.transforms.moment_transform import MomentTransform, Solution


class L2Normalize(RowEstimator, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scale each vector to length 1, so that an inner product is a cosine; a zero vector stays zero.

    Notes
    -----
    Not linear, and so the end of a chain.

    Examples
    --------
    >>> import numpy as np
    >>> L2Normalize().fit_transform(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Note the width; there is nothing to learn.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            Vectors.
        y : object, optional
            Ignored.

        Returns
        -------
        L2Normalize
            This object.
        """
        rows = as_rows("L2Normalize", X, at_least=1)
        _check.finite_rows("L2Normalize", "X", rows)
        self._check_features(X, reset=True)
        return self

    def transform(self, X: ArrayLike) -> NDArray[np.floating]:
        """Scale vectors.

        Parameters
        ----------
        X : array_like of shape (n_rows, dim), any real dtype
            Vectors.

        Returns
        -------
        ndarray of shape (n_rows, dim)
            Unit vectors; float64 for float64 vectors, float32 for everything else.

        Raises
        ------
        InputError
            If a row holds NaN or infinity (the message names the row).
        """
        check_is_fitted(self, "n_features_in_")
        rows = as_rows("L2Normalize", X, at_least=0)
        _check.finite_rows("L2Normalize", "X", rows)
        self._check_features(X, reset=False)
        return unit_rows(rows if rows.dtype == np.float64 else rows.astype(np.float32, copy=False))


class Chain(_BaseComposition, MomentTransform):
    """Linear transforms one behind the other; made by `chain`."""

    # Rows are looked at once: the moments behind a map follow from those in front of it (`Moments.mapped`), so that
    # every step is fitted on what the steps before it make of the rows, and the whole chain streams and merges like
    # one transform.

    def __init__(self, steps: list[tuple[str, Any]]) -> None:
        self.steps = steps

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings of the steps, named ``step__setting``."""
        params: dict[str, Any] = self._get_params("steps", deep=deep)
        return params

    def set_params(self, **kwargs: Any) -> Self:
        """Set settings, named as `get_params` does."""
        self._set_params("steps", **kwargs)
        return self

    @property
    def normalize_(self) -> bool:
        """Whether rows are scaled to length 1 at the end."""
        return isinstance(self._fitted.settings.steps[-1][1], L2Normalize)

    @property
    def uses_radial_moments(self) -> bool:
        """Whether the first step needs more than the scatter."""
        return bool(self.steps and getattr(self.steps[0][1], "uses_radial_moments", False))

    def _solve(self, moments: Moments) -> Solution:
        maps: list[LinearMap] = []
        for _, step in self.steps:
            if not isinstance(step, L2Normalize):
                maps.append(clone(step).fit_moments(moments).linear_map_)
                moments = moments.mapped(maps[-1])
        identity = LinearMap(np.eye(moments.dim), np.zeros(moments.dim))
        return Solution(reduce(LinearMap.then, maps) if maps else identity)

    def _check_settings(self, dim: int) -> None:
        transforms = [step for _, step in self.steps]
        if not transforms:
            raise InputError("chain: steps must hold at least one transform; got none.")
        for position, step in enumerate(transforms):
            is_last = position == len(transforms) - 1
            if isinstance(step, L2Normalize) and is_last:
                continue
            if isinstance(step, L2Normalize):
                raise InputError(
                    "chain: L2Normalize must be the last step, because it is not linear; "
                    f"got it as step {position + 1}."
                )
            if is_flow(step):
                raise InputError(
                    "chain: a flow must stand alone, because it is not linear; "
                    f"got it as step {position + 1}. Fit the others first, and the flow behind the model they give."
                )
            if not isinstance(step, MomentTransform) or isinstance(step, Chain):
                raise InputTypeError(f"chain: steps must be transforms of isosent; got {step!r}.")
            if step.uses_radial_moments and position:
                raise InputError(
                    f"chain: Ledoit-Wolf shrinkage must come first, because it needs the rows; got it as step "
                    f"{position + 1}. Use shrinkage='oas' there."
                )
            step._check_settings(dim)


def chain(*steps: Any) -> Chain:
    """Put transforms one behind the other.

    Parameters
    ----------
    *steps : transform
        Unfitted transforms in the order they are applied; `L2Normalize` may be the last. A chain among them stands for
        its steps.

    Returns
    -------
    Chain
        A transform; its steps are named by their classes in lower case.

    Raises
    ------
    InputError
        If there is no step. Whether the steps fit together is told when the chain is fitted.

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
        raise InputError("chain: steps must hold at least one transform; got none.")
    flat = [inner for step in steps for inner in ([s for _, s in step.steps] if isinstance(step, Chain) else [step])]
    kinds = [type(step).__name__.lower() for step in flat]
    names = [
        kind if kinds.count(kind) == 1 else f"{kind}-{kinds[: position + 1].count(kind)}"
        for position, kind in enumerate(kinds)
    ]
    return Chain(list(zip(names, flat, strict=True)))
