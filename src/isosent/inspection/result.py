"""What an inspection found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from isosent.files.plain import without_nan
from isosent.inspection.effect import Effect
from isosent.inspection.survey import RowCounts, SpaceFigures
from isosent.selection.candidates import AutoChoice


@dataclass(frozen=True, slots=True)
class Stage:
    """Vectors before or after a transform.

    Parameters
    ----------
    label : str
        ``as they are``, or the transform.
    figures : SpaceFigures
        How they fill their space.
    cosine_shares : tuple of float
        Share of the random pairs in each bin of `Inspection.cosine_edges`.
    percentiles : tuple of float
        Share of the random pairs below each of `Inspection.marks`.
    """

    label: str
    figures: SpaceFigures
    cosine_shares: tuple[float, ...]
    percentiles: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was seen, what auto would choose, what it would change, and an advice.

    Parameters
    ----------
    source : str
        Where the texts or vectors came from.
    model : str or None
        The model that made the vectors; None for bare vectors.
    seed : int
        Of every sample.
    counts : RowCounts
        Rows, good and bad.
    eigenvalues : tuple of float
        Variance along each principal axis, descending; rounding noise is 0.
    choice : AutoChoice or None
        What auto would choose; None where the vectors leave nothing to choose.
    before : Stage
        The vectors as they are.
    after : Stage or None
        Behind what auto would choose, or behind full whitening where auto would leave them alone; on the sample.
    effect : Effect or None
        What that does to held-out pairs; None where it cannot be told.
    effect_note : str
        What was measured, or why nothing was.
    advice : str
        One sentence.
    marks : tuple of float
        The cosines that percentiles are given for.
    cosine_edges : tuple of float
        Ends of the histogram's bins.
    """

    source: str
    model: str | None
    seed: int
    counts: RowCounts
    eigenvalues: tuple[float, ...]
    choice: AutoChoice | None
    before: Stage
    after: Stage | None
    effect: Effect | None
    effect_note: str
    advice: str
    marks: tuple[float, ...]
    cosine_edges: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values that JSON can hold.

        Returns
        -------
        dict
            The same nesting, with the version of isosent; an undefined figure is None.
        """
        document = asdict(self) | {
            "choice": None if self.choice is None else self.choice.to_json(),
            "isosent_version": version("isosent"),
        }
        document["counts"]["rows_per_dim"] = self.counts.rows_per_dim
        plain: dict[str, Any] = without_nan(document)
        return plain
