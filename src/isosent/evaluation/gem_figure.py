"""How much the settings of GEM matter, as a figure: SVG that stands alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from isosent.drawing import HEIGHT, WIDTH, Axis, Frame
from isosent.evaluation.gem_study import ABLATION, SENSITIVITY, GemCell

_METRICS = ("pearson", "spearman")
_LABELS = {
    "window": "words on each side (window, m)",
    "candidates": "principal vectors of the corpus (n_candidates, K)",
    "removed": "principal vectors removed (n_removed, h)",
    "power": "power of the singular values (power, t)",
}
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5d5d5d")
_KEYS_A_ROW, _KEY_HEIGHT, _MARGIN = 3, 22, 14
_STYLE = (
    'text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #4a525c } '
    ".grid { stroke: #e4e2dc } .axis { stroke: #8a929c } .mark { stroke: #8a929c; stroke-dasharray: 4 3 } "
    "polyline { fill: none; stroke-width: 2; stroke-linejoin: round } "
    ".more { stroke-dasharray: 6 3 } "
    + " ".join(f".c{number} {{ stroke: {colour} }}" for number, colour in enumerate(_COLOURS))
)

_Lines = Mapping[str, Sequence[tuple[float, float]]]


def gem_figure(cells: Sequence[GemCell]) -> str:
    """Draw the studies of sensitivity: a row a setting, Pearson on the left and Spearman on the right.

    Parameters
    ----------
    cells : sequence of GemCell
        What `study_gem` returned, of one model or of several.

    Returns
    -------
    str
        An ``svg`` document: a line a task (and model), in points x100 above or below the settings that are not moved.
    """
    names = list(dict.fromkeys(map(_name, cells)))
    top = _MARGIN + _KEY_HEIGHT * math.ceil(len(names) / _KEYS_A_ROW)
    parts = [_key(number, name) for number, name in enumerate(names)]
    for column, metric in enumerate(_METRICS):
        rows = {study: _lines(cells, study, metric) for study in SENSITIVITY}
        changes = [y for lines in rows.values() for points in lines.values() for _, y in points]
        y_axis = Axis(f"{metric.capitalize()} x100, change", min([*changes, -0.5]), max([*changes, 0.5]))
        for row, (study, lines) in enumerate(rows.items()):
            parts.append(_panel(study, list(lines.values()), y_axis, (column * WIDTH, top + row * HEIGHT)))
    width, height = len(_METRICS) * WIDTH, top + len(SENSITIVITY) * HEIGHT + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>Scores of GEM when one of its settings is moved</title><style>{_STYLE}</style>"
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _name(cell: GemCell) -> str:
    return f"{cell.model.rpartition('/')[2]}, {cell.task}"


def _lines(cells: Sequence[GemCell], study: str, metric: str) -> _Lines:
    """Points of each line: the value of the setting, and how far the score is from that of the first cell."""
    start: dict[str, float] = {}
    lines: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        score = 100 * getattr(cell, metric)
        if cell.study == ABLATION:
            start.setdefault(_name(cell), score)
        points = lines.setdefault(_name(cell), [])
        if cell.study == study and not math.isnan(score - start[_name(cell)]):
            points.append((float(cell.condition), score - start[_name(cell)]))
    return lines


def _panel(
    study: str, lines: Sequence[Sequence[tuple[float, float]]], y_axis: Axis, corner: tuple[float, float]
) -> str:
    values = sorted({x for points in lines for x, _ in points}) or [0.0]
    x_axis = Axis(_LABELS[study], values[0], max(values[-1], values[0] + 1), at=values)
    frame = Frame(x_axis, y_axis)
    marks = [frame.line(points, _style(number)) for number, points in enumerate(lines)]
    return frame.panel(*corner, [frame.level(0), *marks])


def _key(number: int, name: str) -> str:
    left = _MARGIN + number % _KEYS_A_ROW * (2 * WIDTH // _KEYS_A_ROW)
    y = _MARGIN + number // _KEYS_A_ROW * _KEY_HEIGHT
    return (
        f'<polyline class="{_style(number)}" points="{left},{y} {left + 20},{y}"/>'
        f'<text x="{left + 26}" y="{y + 4}">{escape(name)}</text>'
    )


def _style(number: int) -> str:
    return f"c{number % len(_COLOURS)}" + (" more" if number >= len(_COLOURS) else "")
