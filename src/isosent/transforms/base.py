"""What a transform is to a model: something fitted on vectors that yields one linear map."""

from __future__ import annotations

from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.linear_map import LinearMap


class LinearTransform(Protocol):
    """The contract of every linear transform."""

    @property
    def linear_map_(self) -> LinearMap:
        """The fitted map."""
        ...

    def fit(self, X: NDArray[np.floating]) -> Self:
        """Fit on vectors of shape (n_rows, dim)."""
        ...

    def get_params(self) -> dict[str, object]:
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
    return np.asarray(vectors.any(axis=1), dtype=np.bool_)


def settings_of(transform: LinearTransform) -> dict[str, object]:
    """The settings of a transform as plain values that JSON can hold.

    Parameters
    ----------
    transform : LinearTransform
        A transform.

    Returns
    -------
    dict
        Name and value of each setting.
    """
    settings = transform.get_params().items()
    return {name: value.item() if isinstance(value, np.generic) else value for name, value in settings}


def map_known_rows(linear_map: LinearMap, vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Apply a map, leaving the rows of texts without a vector zero.

    Parameters
    ----------
    linear_map : LinearMap
        The map.
    vectors : ndarray of shape (n_texts, dim), float
        Sentence vectors; a zero row has no direction, and the bias of the map must not give it one.

    Returns
    -------
    ndarray of shape (n_texts, n_components)
        Mapped vectors.
    """
    mapped = linear_map.apply(vectors)
    mapped[~known_rows(vectors)] = 0
    return mapped
