"""A matrix of scores as coloured cells with the number in each: SVG for the figures of studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

HEAT_STYLE = (
    " .cell { stroke: #ffffff } .best { fill: none; stroke: #d55e00; stroke-width: 2.5 } "
    ".value { font-size: 11px } .dark { fill: #000000 } .light { fill: #ffffff }"
)

_LIGHTEST, _DARKEST = (0xEF, 0xF4, 0xFA), (0x08, 0x3F, 0x73)
_NARROWEST, _CELL_HEIGHT = 38, 22
_TOP, _RIGHT, _BOTTOM = 34, 18, 44
LETTER = 7
_TURN = 0.68  # black figures up to here, white ones beyond: a contrast of at least 4.5 on either side


@dataclass(frozen=True, slots=True, eq=False)
class HeatMap:
    """Cells in rows and columns, the lighter the lower.

    Parameters
    ----------
    title : str
        What stands above.
    rows, columns : sequence of str
        Names of the rows, left of them, and of the columns, below them.
    label : str
        What the columns are.
    values : ndarray of shape (n_rows, n_columns), float
        Numbers to print, with one decimal; NaN leaves a cell out.
    span : tuple of (float, float)
        Numbers that the lightest and the darkest colour stand for.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    label: str
    values: NDArray[np.float64]
    span: tuple[float, float]

    @property
    def width(self) -> int:
        """Pixels from left to right."""
        least = LETTER * len(self.title)
        return max(self._left + self._step * len(self.columns), least) + _RIGHT

    @property
    def height(self) -> int:
        """Pixels from top to bottom."""
        return _TOP + _CELL_HEIGHT * len(self.rows) + _BOTTOM

    @property
    def _left(self) -> int:
        return 20 + LETTER * max(map(len, self.rows))

    @property
    def _step(self) -> int:
        return max(_NARROWEST, 8 + LETTER * max(map(len, self.columns)))

    def panel(self, left: float, top: float) -> str:
        """Draw it, for one of several figures in one drawing.

        Parameters
        ----------
        left, top : float
            Where its corner stands, in pixels.

        Returns
        -------
        str
            A ``g`` element; the cell of the highest number is framed.
        """
        parts = [f'<text class="label" x="{self._left}" y="16">{escape(self.title)}</text>']
        for row, name in enumerate(self.rows):
            y = _TOP + _CELL_HEIGHT * row + 15
            parts.append(f'<text class="tick" x="{self._left - 7}" y="{y}" text-anchor="end">{escape(name)}</text>')
        bottom = _TOP + _CELL_HEIGHT * len(self.rows)
        for column, name in enumerate(self.columns):
            x = self._left + self._step * (column + 0.5)
            parts.append(f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">{escape(name)}</text>')
        middle = self._left + self._step * len(self.columns) / 2
        parts.append(
            f'<text class="label" x="{middle}" y="{bottom + 36}" text-anchor="middle">{escape(self.label)}</text>'
        )
        parts += [self._cell(row, column) for row, column in np.argwhere(~np.isnan(self.values)).tolist()]
        if not np.isnan(self.values).all():
            best = divmod(int(np.nanargmax(self.values.round(6))), len(self.columns))  # of equal ones, the first
            parts.append(f'<rect class="best" {self._place(*best)}/>')
        return f'<g transform="translate({left:g} {top:g})">{"".join(parts)}</g>'

    def shade(self, value: float) -> tuple[str, str]:
        """Return the colour of a cell with that number, and whether what stands on it is ``light`` or ``dark``."""
        low, high = self.span
        share = min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 1.0
        colour = "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(_LIGHTEST, _DARKEST, strict=True))
        return f"#{colour}", "light" if share > _TURN else "dark"

    def _cell(self, row: int, column: int) -> str:
        value = float(self.values[row, column])
        colour, ink = self.shade(value)
        x, y = self._left + self._step * (column + 0.5), _TOP + _CELL_HEIGHT * row + 15
        tip = f"{self.rows[row]}, {self.columns[column]}: {value:.2f}"
        return (
            f'<rect class="cell" {self._place(row, column)} fill="{colour}"><title>{escape(tip)}</title></rect>'
            f'<text class="value {ink}" x="{x}" y="{y}" text-anchor="middle">'
            f"{value:.1f}</text>"
        )

    def _place(self, row: int, column: int) -> str:
        x, y = self._left + self._step * column, _TOP + _CELL_HEIGHT * row
        return f'x="{x}" y="{y}" width="{self._step}" height="{_CELL_HEIGHT}"'
