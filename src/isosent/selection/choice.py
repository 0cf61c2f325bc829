"""What "auto" chooses, from texts or from a spectrum, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.moments import Moments
from isosent.transforms.base import LinearTransform
from isosent.transforms.choice import make_transform


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that "auto" may do.

    Parameters
    ----------
    name : str
        ``none`` (leave the vectors alone) or the name of a transform.
    strength : float, optional
        Strength of a whitening.
    n_components : int, optional
        Dimensions kept.
    """

    name: str
    strength: float | None = None
    n_components: int | None = None

    def transform(self) -> LinearTransform | None:
        """Make the transform, unfitted; None for leaving the vectors alone."""
        if self.name == "none":
            return None
        settings = {"strength": self.strength, "n_components": self.n_components}
        return make_transform(self.name, settings={k: v for k, v in settings.items() if v is not None})


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate and what it scored; higher is better."""

    candidate: Candidate
    score: float


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """What was weighed, what was chosen, and why."""

    chosen: Candidate
    candidates: tuple[ScoredCandidate, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        raise NotImplementedError


def choose_from_texts(
    encode: Callable[[Sequence[str]], NDArray[np.float32]], texts: Sequence[str], vectors: NDArray[np.float32]
) -> AutoChoice:
    """Choose from texts."""
    raise NotImplementedError


def choose_from_moments(moments: Moments) -> AutoChoice:
    """Choose from a spectrum."""
    raise NotImplementedError
