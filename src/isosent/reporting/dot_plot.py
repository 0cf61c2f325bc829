"""Scores of a kind of task as dots with their intervals: SVG that takes its colours from the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from isosent.drawing import WIDTH, Axis
from isosent.evaluation.tables import interval_x100, x100
from isosent.reporting.html_parts import drawing
from isosent.reporting.leaderboard import Cell, Column
from isosent.reporting.palette import colour_class, dot

_TOP, _BOTTOM, _RIGHT, _GAP = 24, 42, 14, 10
_LETTER, _MOST_LETTERS = 8.2, 18
_LINE, _LEAST_BAND = 12, 32


@dataclass(frozen=True, slots=True)
class DotPlot:
    """A band for each column, a dot for each model in it.

    Parameters
    ----------
    columns : sequence of Column
        Columns of one kind.
    labels : sequence of str
        Labels of the models, in their order.
    """

    columns: Sequence[Column]
    labels: Sequence[str]

    @property
    def axis(self) -> Axis:
        """Where the scores lie, x100."""
        cells = (cell for column in self.columns for cell in column.cells.values() if not math.isnan(cell.score))
        ends = [100 * end for cell in cells for end in cell.whisker]
        low, high = min(ends, default=0.0), max(ends, default=100.0)
        room = max(0.03 * (high - low), 0.5)
        metrics = " or ".join(dict.fromkeys(column.metric.replace("_", " ") for column in self.columns))
        return Axis(f"{metrics} x100", low - room, high + room)

    def drawing(self, name: str, title: str) -> str:
        """Return the figure.

        Parameters
        ----------
        name : str
            Id of the figure in its page.
        title : str
            Read out by a screen reader.

        Returns
        -------
        str
            An ``svg`` element.
        """
        letters = max(len(line) for column in self.columns for line in (column.title, column.subtitle))
        left = 10 + _LETTER * min(letters, _MOST_LETTERS)
        axis, top, bands = self.axis, float(_TOP), []
        for column in self.columns:
            shown = [label for label in self.labels if label in column.cells]
            height = max(_LINE * len(shown) + _GAP, _LEAST_BAND)
            bands.append(self._band(column, shown, (left, top, height), axis))
            top += height
        description = "The numbers are those of the leaderboard."
        inside = _grid(axis, left, top) + "".join(bands)
        return drawing(name, (WIDTH, top + _BOTTOM), title, description, inside)

    def _band(self, column: Column, shown: Sequence[str], place: tuple[float, float, float], axis: Axis) -> str:
        left, top, height = place
        y = top + (height - _LINE * (len(shown) - 1)) / 2
        style = "name strong" if column.is_average else "name"
        lines = [line for line in (column.title, column.subtitle) if line]
        middle = top + height / 2 + 4.5 - 7 * (len(lines) - 1)
        parts = [f'<line class="grid" x1="0" x2="{WIDTH}" y1="{top:.1f}" y2="{top:.1f}"/>'] if top > _TOP else []
        parts += [
            f'<text class="{style if row == 0 else "tick"}" x="{left - 10:.1f}" y="{middle + 14 * row:.1f}" '
            f'text-anchor="end">{escape(_cut(line))}</text>'
            for row, line in enumerate(lines)
        ]
        for row, label in enumerate(shown):
            tip = _tip(label, column, column.cells[label])
            parts.append(_mark(self.labels.index(label), column.cells[label], axis, (left, y + _LINE * row), tip))
        return "".join(parts)


def _grid(axis: Axis, left: float, bottom: float) -> str:
    parts = []
    for tick in axis.ticks:
        x = f"{_x(axis, left, tick):.1f}"
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom:.1f}"/>')
        parts += (
            f'<text class="tick" x="{x}" y="{y:.1f}" text-anchor="middle">{axis.write(tick)}</text>'
            for y in (_TOP - 8, bottom + 17)
        )
    middle = (left + WIDTH - _RIGHT) / 2
    label = f'<text x="{middle:.1f}" y="{bottom + 36:.1f}" text-anchor="middle">{escape(axis.label)}</text>'
    return "".join([*parts, f'<line class="axis" x1="{left:.1f}" x2="{WIDTH}" y1="{bottom}" y2="{bottom}"/>', label])


def _mark(number: int, cell: Cell, axis: Axis, place: tuple[float, float], tip: str) -> str:
    left, y = place
    style = colour_class(number)
    if math.isnan(cell.score):
        return f'<text class="tick {style}" x="{left + 4:.1f}" y="{y + 4:.1f}">undefined</text>'
    low, high = (f"{_x(axis, left, 100 * end):.1f}" for end in cell.whisker)
    whisker = f'<line class="whisker {style}" x1="{low}" x2="{high}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return whisker + dot(number, _x(axis, left, 100 * cell.score), y, f"<title>{escape(tip)}</title>")


def _x(axis: Axis, left: float, score: float) -> float:
    return left + (WIDTH - _RIGHT - left) * axis.place(score)


def _tip(label: str, column: Column, cell: Cell) -> str:
    interval = "" if cell.interval is None else f" ({interval_x100(cell.interval)})"
    return f"{label}, {column.title}: {x100(cell.score)}{interval}"


def _cut(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 1] + "…"
