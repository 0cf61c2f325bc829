"""How much the settings of GEM matter, as a figure: SVG that stands alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from isosent.drawing import HEIGHT, WIDTH, Axis, Frame
from isosent.studies.gem import ABLATION, SENSITIVITY, GemCell
from isosent.studies.study_figure import MARGIN, key_height, line_key, line_style, study_document

_METRICS = ("pearson", "spearman")
_LABELS = {
    "window": "words on each side (window, m)",
    "candidates": "principal vectors of the corpus (n_candidates, K)",
    "removed": "principal vectors removed (n_removed, h)",
    "power": "power of the singular values (power, t)",
}

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
    width = len(_METRICS) * WIDTH
    top = key_height(len(names), width)
    parts = line_key(names, width)
    for column, metric in enumerate(_METRICS):
        rows = {study: _lines(cells, study, metric) for study in SENSITIVITY}
        changes = [y for lines in rows.values() for points in lines.values() for _, y in points]
        y_axis = Axis(f"{metric.capitalize()} x100, change", min([*changes, -0.5]), max([*changes, 0.5]))
        for row, (study, lines) in enumerate(rows.items()):
            parts.append(_panel(study, list(lines.values()), y_axis, (column * WIDTH, top + row * HEIGHT)))
    height = top + len(SENSITIVITY) * HEIGHT + MARGIN
    return study_document(width, height, "Scores of GEM when one of its settings is moved", parts)


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
    marks = [frame.line(points, line_style(number)) for number, points in enumerate(lines)]
    return frame.panel(*corner, [frame.level(0), *marks])
