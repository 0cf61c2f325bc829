"""What a reproduction found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from isosent.files.plain import without_nan
from isosent.papers.tables import SCORE, Paper, PaperTable

FORMAT = "isosent reproduction 1"
MANY_UNKNOWN = 0.05


@dataclass(frozen=True, slots=True)
class Number:
    """A measured number.

    Parameters
    ----------
    value : float
        A score in [-1, 1], or sentences a second; NaN where undefined.
    interval : pair of float or None
        95 % bootstrap interval, where there is one.
    unknown : float
        Share of the tokens that the model does not know.
    at : str or None
        What a study chose.
    """

    value: float
    interval: tuple[float, float] | None = None
    unknown: float = 0.0
    at: str | None = None

    @property
    def is_comparable(self) -> bool:
        """Whether the model knows nearly all words, so that the number may be held against a published one."""
        return self.unknown <= MANY_UNKNOWN


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table.

    Parameters
    ----------
    published : float or None
        In the unit of `Number`; None where unknown.
    measured : Number or None
        None where missing.
    """

    published: float | None
    measured: Number | None

    @property
    def difference(self) -> float | None:
        """Measured minus published; None where one is not known, or they are not comparable."""
        if self.published is None or self.measured is None or not self.measured.is_comparable:
            return None
        return self.measured.value - self.published

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        measured = None if self.measured is None else asdict(self.measured)
        return {"published": self.published, "measured": measured, "difference": self.difference}


@dataclass(frozen=True, slots=True)
class StandIn:
    """Another model in the place of the one that a table names.

    Parameters
    ----------
    model : str
        Its reference, options included.
    command : str
        What was run.
    measured : mapping of str to Number
        By name of the column.
    """

    model: str
    command: str
    measured: Mapping[str, Number]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a condition.

    Parameters
    ----------
    label : str
        What the table calls it.
    command : str or None
        What is run for it; None where isosent has nothing of that kind.
    cells : mapping of str to Cell
        By name of the column.
    missing : tuple of str
        What was needed and not at hand.
    stand_ins : tuple of StandIn
        Other models in its place.
    note : str or None
        What else there is to say.
    """

    label: str
    command: str | None
    cells: Mapping[str, Cell]
    missing: tuple[str, ...]
    stand_ins: tuple[StandIn, ...]
    note: str | None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "label": self.label,
            "command": self.command,
            "cells": {name: cell.to_json() for name, cell in self.cells.items()},
            "missing": list(self.missing),
            "instead": [asdict(other) for other in self.stand_ins],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What became of a table.

    Parameters
    ----------
    table : PaperTable
        The table.
    outcomes : tuple of Outcome
        Its conditions.
    """

    table: PaperTable
    outcomes: tuple[Outcome, ...]

    @property
    def scale(self) -> float:
        """What a number is multiplied by to be in the unit of the table."""
        return 100.0 if self.table.unit == SCORE else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        said = {name: getattr(self.table, name) for name in ("name", "title", "source", "family", "unit")}
        return {**said, "notes": list(self.table.notes), "conditions": [each.to_json() for each in self.outcomes]}


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What became of the tables of a paper.

    Parameters
    ----------
    paper : Paper
        The paper.
    tables : tuple of TableOutcome
        Its tables.
    environment : mapping
        Versions and machine.
    """

    paper: Paper
    tables: tuple[TableOutcome, ...]
    environment: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values that JSON can hold: scores in [-1, 1], an undefined one None."""
        said = {name: getattr(self.paper, name) for name in ("name", "title", "citation", "arxiv")}
        plain: dict[str, Any] = without_nan(
            {
                "format": FORMAT,
                "paper": said,
                "tables": [table.to_json() for table in self.tables],
                "environment": dict(self.environment),
            }
        )
        return plain
