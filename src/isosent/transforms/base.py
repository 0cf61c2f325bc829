"""What a transform is to a model: something fitted on vectors that yields one linear map, or a flow."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isosent.errors import InputTypeError
from isosent.numeric.glow import Glow
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import Moments

if TYPE_CHECKING:
    from typing_extensions import TypeIs

AUTO: Final = "auto"


class LinearTransform(Protocol):
    """The contract of every linear transform: fitted without labels, from vectors or from their moments alone."""

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

    def _check_settings(self, dim: int) -> None:
        """Refuse settings that are out of range for vectors of so many dimensions."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings, by name."""
        ...


@dataclass(frozen=True, slots=True)
class FitProgress:
    """How likely a flow finds vectors that it is not fitted on, on the way.

    Parameters
    ----------
    n_rows : int
        Rows fitted on so far, each epoch counted.
    n_total : int
        Rows to fit on.
    held_out_bits : float
        Negative log-likelihood of the held-out rows, in bits per dimension.
    """

    n_rows: int
    n_total: int
    held_out_bits: float


Report = Callable[[FitProgress], None]


class FlowTransform(Protocol):
    """The contract of a transform that is not linear: fitted on the vectors themselves."""

    glow_: Glow
    history_: tuple[FitProgress, ...]

    def fit(self, X: ArrayLike, y: object = None, *, report: Report | None = None) -> Self:
        """Fit on vectors."""
        ...

    def log_likelihood(self, X: ArrayLike) -> NDArray[np.float64]:
        """Logarithm of the density of each row."""
        ...

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings, by name."""
        ...


Transform = LinearTransform | FlowTransform


def is_flow(transform: object) -> TypeIs[FlowTransform]:
    """Tell a flow from a linear transform.

    Parameters
    ----------
    transform : object
        A transform, or "auto".

    Returns
    -------
    bool
        Whether it gives vectors a likelihood.
    """
    return hasattr(transform, "log_likelihood")


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
    is_transform = hasattr(transform, "fit_moments") or is_flow(transform)
    if not is_transform and not (isinstance(transform, str) and transform == AUTO):
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


def settings_of(transform: Transform) -> dict[str, Any]:
    """The settings of a transform as plain values that JSON can hold.

    Parameters
    ----------
    transform : Transform
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
