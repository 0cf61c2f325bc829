"""What "auto" chooses among, and what it says about its choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from isosent.transforms.base import LinearTransform
from isosent.transforms.choice import make_linear

LEAVE = "none"
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
WIDTHS = (1.0, 0.5, 0.25)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that "auto" may do.

    Parameters
    ----------
    name : str
        ``none``, which leaves the vectors alone, or the name of a transform.
    strength : float, optional
        Strength of a whitening.
    n_components : int, optional
        Dimensions kept.

    Examples
    --------
    >>> str(Candidate("whitening", 0.5, 128)), str(Candidate("none"))
    ('whitening (strength 0.5, 128 dimensions)', 'leave the vectors alone')
    """

    name: str = LEAVE
    strength: float | None = None
    n_components: int | None = None

    def __str__(self) -> str:
        if self.name == LEAVE:
            return "leave the vectors alone"
        strength = [] if self.strength is None else [f"strength {self.strength:g}"]
        width = [] if self.n_components is None else [f"{self.n_components} dimensions"]
        name = self.name.replace("_", " ")
        return f"{name} ({', '.join(strength + width)})" if strength or width else name

    def transform(self) -> LinearTransform | None:
        """Make the transform.

        Returns
        -------
        LinearTransform or None
            Unfitted; None for leaving the vectors alone.
        """
        if self.name == LEAVE:
            return None
        given = {"strength": self.strength, "n_components": self.n_components}
        return make_linear(self.name, settings={name: value for name, value in given.items() if value is not None})


def half_whitening(dim: int, rank: int) -> Candidate:
    """Whitening of strength 1/2 to half the dimensions.

    Parameters
    ----------
    dim : int
        Dimensions of the vectors.
    rank : int
        Axes with more than noise along them.

    Returns
    -------
    Candidate
        The whitening.
    """
    return Candidate("whitening", 0.5, _width(0.5, dim, rank))


def candidates(dim: int, rank: int) -> tuple[Candidate, ...]:
    """All that "auto" weighs.

    Parameters
    ----------
    dim : int
        Dimensions of the vectors.
    rank : int
        Axes with more than noise along them, at least 1.

    Returns
    -------
    tuple of Candidate
        Leaving the vectors alone, mean projection, centring, and whitenings of four strengths to all, half and a
        quarter of the dimensions.
    """
    widths = dict.fromkeys(_width(share, dim, rank) for share in WIDTHS)
    grid = (Candidate("whitening", strength, width) for width in widths for strength in STRENGTHS)
    return Candidate(), Candidate("mean_projection"), Candidate("mean_centering"), *grid


def _width(share: float, dim: int, rank: int) -> int:
    return min(max(1, int(share * dim)), rank)


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate and how it did.

    Parameters
    ----------
    candidate : Candidate
        The candidate.
    score : float, optional
        How well it keeps meaning, where that was measured; higher is better; only scores of one choice can be compared.
    separation : float, optional
        How well it tells related texts from unrelated ones, where that was measured.
    """

    candidate: Candidate
    score: float | None = None
    separation: float | None = None


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """What was weighed, what was chosen, and why.

    Parameters
    ----------
    chosen : Candidate
        The choice.
    candidates : tuple of ScoredCandidate
        All that were weighed.
    reason : str
        Why, in a sentence for people.
    """

    chosen: Candidate
    candidates: tuple[ScoredCandidate, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values.

        Returns
        -------
        dict
            The choice, the reason, and name and score of every candidate.
        """
        return {
            "chosen": str(self.chosen),
            "reason": self.reason,
            "candidates": [
                {
                    "candidate": str(scored.candidate),
                    "name": scored.candidate.name,
                    "strength": scored.candidate.strength,
                    "n_components": scored.candidate.n_components,
                    "score": scored.score,
                    "separation": scored.separation,
                }
                for scored in self.candidates
            ],
        }
