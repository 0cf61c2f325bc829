"""What a transform is to a model: something fitted on vectors that yields one linear map."""

from __future__ import annotations

import re
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputTypeError
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments

AUTO: Final = "auto"


class LinearTransform(Protocol):
    """The contract of every transform: fitted without labels, from vectors or from their moments alone."""

    @property
    def linear_map_(self) -> LinearMap:
        """The fitted map."""
        ...

    @property
    def normalize_(self) -> bool:
        """Whether rows are scaled to length 1 behind the map."""
        ...

    @property
    def uses_radial_moments(self) -> bool:
        """Whether `fit_moments` needs moments with their radial part."""
        ...

    def fit_moments(self, moments: Moments) -> Self:
        """Fit on the moments of vectors."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings, by name."""
        ...


def known_rows(vectors: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Tell the vectors of texts from the zero rows that stand for "no vector".

    Parameters
    ----------
    vectors : ndarray of shape (n_texts, dim), float
        Sentence vectors.

    Returns
    -------
    ndarray of shape (n_texts,), bool
        False where the row is zero.
    """
    known = np.asarray(vectors[:, 0] != 0)
    doubtful = np.flatnonzero(~known)  # few: a whole pass over the vectors would cost as much as mapping them
    known[doubtful] = vectors[doubtful].any(axis=1)
    return known


def check_transform(transform: object) -> None:
    """Refuse what is neither a transform nor "auto".

    Parameters
    ----------
    transform : object
        What was given.

    Raises
    ------
    InputTypeError
        If it is neither.
    """
    if not hasattr(transform, "fit_moments") and not (isinstance(transform, str) and transform == AUTO):
        raise InputTypeError(f'fit: transform must be an object such as Whitening(128), or "auto"; got {transform!r}.')


def transform_name(transform: object) -> str:
    """Name of a transform in snake case, as the command line writes it.

    Parameters
    ----------
    transform : object
        A transform.

    Returns
    -------
    str
        Such as ``all_but_the_top``.
    """
    return re.sub(r"(?<!^)(?=[A-Z])", "_", type(transform).__name__).lower()


def settings_of(transform: LinearTransform) -> dict[str, Any]:
    """The settings of a transform as plain values that JSON can hold.

    Parameters
    ----------
    transform : LinearTransform
        A transform.

    Returns
    -------
    dict
        Name and value of each setting; for a chain, the list of its steps.
    """
    settings = transform.get_params(deep=False)
    if "steps" in settings:
        return {"steps": [{"transform": transform_name(step)} | settings_of(step) for _, step in settings["steps"]]}
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
