"""The published and the measured numbers of a paper's tables, as text, JSON and Markdown."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from isosent.evaluation.published import SCORE, Paper, PaperTable
from isosent.evaluation.result import MANY_UNKNOWN
from isosent.evaluation.sizes import MARK
from isosent.io.json import without_nan

FORMAT = "isosent reproduction 1"
UNKNOWN = "unknown"
LEGEND = (
    f"A cell: the published number, or {UNKNOWN}. If measured: the number, (published) and the difference.\n"
    f"{MARK}: more than {MANY_UNKNOWN:.0%} of the tokens have no vector, or the task has other items than the known "
    "set; not comparable."
)


class Number(NamedTuple):
    """A measured number."""

    value: float  # a score in [-1, 1], or sentences per second; NaN where undefined
    interval: tuple[float, float] | None = None  # 95% bootstrap interval
    unknown: float = 0.0  # share of the tokens that the model does not know
    at: str | None = None  # what a study chose
    deviations: str = ""  # how the data differ from the known set of the task, if they do

    @property
    def is_comparable(self) -> bool:
        return self.unknown <= MANY_UNKNOWN and not self.deviations


Numbers = Mapping[tuple[str, str | None], Number]  # by task and metric; metric None is the main one


class Cell(NamedTuple):
    """A cell of a table, both numbers in the unit of `Number`."""

    published: float | None  # None where unknown
    measured: Number | None  # None where not measured

    @property
    def difference(self) -> float | None:
        """Measured minus published; None where one is missing, or they are not comparable."""
        if self.published is None or self.measured is None or not self.measured.is_comparable:
            return None
        return self.measured.value - self.published

    def to_json(self) -> dict[str, Any]:
        measured = None if self.measured is None else self.measured._asdict()
        return {"published": self.published, "measured": measured, "difference": self.difference}


class StandIn(NamedTuple):
    """Another model, measured instead of the one that a table names."""

    model: str  # its reference
    command: str
    measured: Mapping[str, Number]  # by column

    def to_json(self) -> dict[str, Any]:
        measured = {name: number._asdict() for name, number in self.measured.items()}
        return {"model": self.model, "command": self.command, "measured": measured}


@dataclass(frozen=True, slots=True)
class Outcome:
    """A condition of a table, published and measured."""

    label: str
    command: str | None  # None where isosent has no such model
    cells: Mapping[str, Cell]  # by column
    missing: tuple[str, ...]  # what was needed and is not available
    stand_ins: tuple[StandIn, ...]
    note: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "command": self.command,
            "cells": {name: cell.to_json() for name, cell in self.cells.items()},
            "missing": list(self.missing),
            "instead": [other.to_json() for other in self.stand_ins],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """A table of a paper, published and measured."""

    table: PaperTable
    outcomes: Sequence[Outcome]

    def to_json(self) -> dict[str, Any]:
        described = {name: getattr(self.table, name) for name in ("name", "title", "source", "family", "unit")}
        conditions = [outcome.to_json() for outcome in self.outcomes]
        return {**described, "notes": list(self.table.notes), "conditions": conditions}

    @property
    def header(self) -> list[str]:
        """Headings of the columns."""
        return ["condition", *(column.name for column in self.table.columns), "measured"]

    def rows(self, *, line_end: str = "\n", emphasis: str = "") -> list[list[str]]:
        """The table as text: a row per condition, and one per stand-in below it."""

        def written(value: float) -> str:
            if math.isnan(value):
                return "undefined"
            return f"{100 * value:.2f}" if self.table.unit == SCORE else f"{value:,.0f}"

        def measured(number: Number) -> str:
            mark = "" if number.is_comparable else f" {MARK}"
            text = f"{emphasis}{written(number.value)}{emphasis}{mark}"
            return f"{text}{line_end}{number.at}" if number.at else text

        def cell_text(cell: Cell) -> str:
            published = UNKNOWN if cell.published is None else written(cell.published)
            if cell.measured is None:
                return published
            parts = [measured(cell.measured), f"({published})"]
            if cell.difference is not None and self.table.unit == SCORE:
                parts.append(f"{round(100 * cell.difference, 2) + 0.0:+.2f}")  # + 0.0: no minus before zero
            return line_end.join(parts)

        rows = []
        for outcome in self.outcomes:
            label = f"{outcome.label} ({outcome.note})" if outcome.note else outcome.label
            cells = [cell_text(outcome.cells[column.name]) for column in self.table.columns]
            state = f"missing: needs {', '.join(outcome.missing)}" if outcome.missing else "yes"
            rows.append([label, *cells, state])
            for other in outcome.stand_ins:
                numbers = (other.measured.get(column.name) for column in self.table.columns)
                texts = [measured(number) if number else "missing" for number in numbers]
                rows.append([f"  {other.model} instead", *texts, "another model"])
        return rows

    @property
    def caption(self) -> list[str]:
        """Unit, source and notes."""
        metric = f"{self.table.metric} " if self.table.metric else ""
        how = f", {self.table.aggregation}" if self.table.aggregation else ""
        return [f"{metric}{self.table.unit}{how}. Published numbers: {self.table.source}.", *self.table.notes]

    @property
    def commands(self) -> dict[str, str]:
        """The command of every condition that has one, and of every stand-in, by label."""
        commands = {}
        for outcome in self.outcomes:
            if outcome.command is not None:
                commands[outcome.label] = outcome.command
            commands |= {f"{outcome.label}, {other.model} instead": other.command for other in outcome.stand_ins}
        return commands


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The tables of a paper, published and measured."""

    paper: Paper
    tables: Sequence[TableOutcome]
    environment: Mapping[str, Any]  # versions and machine

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can hold: scores in [-1, 1], an undefined one None."""
        described = {name: getattr(self.paper, name) for name in ("name", "title", "citation", "arxiv")}
        return without_nan(
            {
                "format": FORMAT,
                "paper": described,
                "tables": [table.to_json() for table in self.tables],
                "environment": dict(self.environment),
            }
        )

    def to_markdown(self, *, with_commands: bool = False) -> str:
        def escaped(text: str) -> str:
            return text.replace("|", "\\|").replace("[", "\\[").strip()

        paper = self.paper
        arxiv = f", arXiv {paper.arxiv}" if paper.arxiv else ""
        lines = [f"## {paper.name}: {paper.title}", "", f"{paper.citation}{arxiv}."]
        for table in self.tables:
            lines += ["", f"### {paper.name}, {table.table.name}: {table.table.title}", ""]
            lines += [f"- {escaped(sentence)}" for sentence in table.caption]
            head, *body = (
                f"| {' | '.join(map(escaped, row))} |"
                for row in (table.header, *table.rows(line_end=" ", emphasis="**"))
            )
            lines += ["", head, f"|{'---|' * len(table.header)}", *body]
            if with_commands and table.commands:
                listed = (f"{command}  # {label}" for label, command in table.commands.items())
                lines += ["", "```bash", *listed, "```"]
        return "\n".join(lines) + "\n"
