"""The studies of layers and poolings as figures: SVG that stands alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from isosent.drawing import HEIGHT, WIDTH, Axis, Frame
from isosent.studies.heat_map import HEAT_STYLE, LETTER, HeatMap
from isosent.studies.layers import best_of_sizes, pair_grid
from isosent.studies.reading_cells import ReadingCell, averages, layers_label
from isosent.studies.readings import TRANSFORMS
from isosent.studies.study_figure import COLOURS, MARGIN, key_height, line_key, line_style, study_document

_DOTS = " ".join(f"circle.c{number} {{ fill: {colour}; stroke: none }}" for number, colour in enumerate(COLOURS))
_HEADING = 26


def layer_figure(cells: Sequence[ReadingCell], aggregation: str) -> str:
    """Draw a study of layers: a heat map of every pair for each transform, and the best set of every size.

    Parameters
    ----------
    cells : sequence of ReadingCell
        What `study_layers` returned, of one model or of several.
    aggregation : str
        Which of the aggregations.

    Returns
    -------
    str
        An ``svg`` document: a block a model, averages over its tasks x100. The maps of a model share their colours.
    """
    parts: list[str] = []
    width, top = 0, MARGIN
    for name, own in by_model(cells):
        parts.append(_heading(name, top))
        top += _HEADING
        maps = pair_maps(own, aggregation)
        left = _beside(maps, top, parts)
        top += maps[0].height + MARGIN
        names_of_lines = [title(transform) for transform in TRANSFORMS]
        parts.append(f'<g transform="translate(0 {top})">{"".join(line_key(names_of_lines, left))}</g>')
        top += key_height(len(TRANSFORMS), left)
        parts.append(best_panel(own, aggregation, (MARGIN, top)))
        top += HEIGHT + MARGIN
        width = max(width, left, MARGIN + WIDTH, _heading_width(name))
    return study_document(width, top, "Scores of layers and their means", parts, style=HEAT_STYLE + _DOTS)


def pooling_figure(cells: Sequence[ReadingCell], aggregation: str) -> str:
    """Draw a study of poolings: a heat map of poolings by layers for each transform.

    Parameters
    ----------
    cells : sequence of ReadingCell
        What `study_pooling` returned, of one model or of several.
    aggregation : str
        Which of the aggregations.

    Returns
    -------
    str
        An ``svg`` document: a block a model, averages over its tasks x100. The maps of a model share their colours.
    """
    parts: list[str] = []
    width, top = 0, MARGIN
    for name, own in by_model(cells):
        parts.append(_heading(name, top))
        top += _HEADING
        maps = pooling_maps(own, aggregation)
        width = max(width, _beside(maps, top, parts), _heading_width(name))
        top += maps[0].height + MARGIN
    return study_document(width, top, "Scores of poolings of layers", parts, style=HEAT_STYLE)


def pair_maps(cells: Sequence[ReadingCell], aggregation: str) -> list[HeatMap]:
    """Lay out single layers and pairs, x100: a map for each transform, in the same colours.

    Parameters
    ----------
    cells : sequence of ReadingCell
        What `study_layers` returned of one model.
    aggregation : str
        Which of the aggregations.

    Returns
    -------
    list of HeatMap
        In the order of `TRANSFORMS`.
    """
    grids = {transform: 100 * pair_grid(cells, transform, aggregation) for transform in TRANSFORMS}
    span = _span(value for grid in grids.values() for value in grid.flat)
    names = [f"L{layer}" for layer in range(len(grids[TRANSFORMS[0]]))]
    return [
        HeatMap(f"{title(transform)}: pairs of layers", names, names, "layer; alone on the diagonal", grid, span)
        for transform, grid in grids.items()
    ]


def pooling_maps(cells: Sequence[ReadingCell], aggregation: str) -> list[HeatMap]:
    """Lay out poolings by layers, x100: a map for each transform, in the same colours.

    Parameters
    ----------
    cells : sequence of ReadingCell
        What `study_pooling` returned of one model.
    aggregation : str
        Which of the aggregations.

    Returns
    -------
    list of HeatMap
        In the order of `TRANSFORMS`.
    """
    scores = averages(cells, aggregation)
    rows = list(dict.fromkeys(cell.pooling for cell in cells))
    sets = list(dict.fromkeys(cell.layers for cell in cells))
    span = _span(100 * value for value in scores.values())
    return [
        HeatMap(
            title(transform),
            rows,
            [layers_label(layers) for layers in sets],
            "layers",
            np.array([[100 * scores.get((name, of, transform), math.nan) for of in sets] for name in rows]),
            span,
        )
        for transform in TRANSFORMS
    ]


def title(transform: str) -> str:
    """Name a transform for people."""
    return "as they are" if transform == TRANSFORMS[0] else transform


def by_model(cells: Sequence[ReadingCell]) -> list[tuple[str, list[ReadingCell]]]:
    """Part cells by their models."""
    names = dict.fromkeys(cell.model for cell in cells)
    return [(name, [cell for cell in cells if cell.model == name]) for name in names]


def _beside(maps: Iterable[HeatMap], top: float, parts: list[str]) -> int:
    """Draw maps side by side; return where the last one ends."""
    left = MARGIN
    for each in maps:
        parts.append(each.panel(left, top))
        left += each.width
    return left


def _title(name: str) -> str:
    return f"{name}, average over the tasks, Spearman x100"


def _heading(name: str, top: float) -> str:
    return f'<text x="{MARGIN}" y="{top + 14}">{escape(_title(name))}</text>'


def _heading_width(name: str) -> int:
    return 2 * MARGIN + LETTER * len(_title(name))


def _span(values: Iterable[float]) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)] or [0.0]
    return min(known), max(known)


def best_panel(cells: Sequence[ReadingCell], aggregation: str, corner: tuple[float, float]) -> str:
    """Draw the best set of layers of every size, a line a transform, for one of several figures in one drawing."""
    best = best_of_sizes(cells, aggregation)
    points = {
        transform: [
            (size, 100 * found.average, found.layers) for size, found in sizes.items() if not math.isnan(found.average)
        ]
        for transform, sizes in best.items()
    }
    low, high = _span(y for line in points.values() for _, y, _ in line)
    most = max((size for line in points.values() for size, *_ in line), default=2)
    frame = Frame(
        Axis("layers averaged, the best set of that size", 1, max(most, 2), at=range(1, max(most, 2) + 1)),
        Axis("Spearman x100", low - 0.5, high + 0.5),
    )
    marks = []
    for number, line in enumerate(points.values()):
        marks.append(frame.line([(x, y) for x, y, _ in line], line_style(number)))
        marks += [frame.dot(x, y, line_style(number), f"{layers_label(layers)}: {y:.2f}") for x, y, layers in line]
    return frame.panel(*corner, marks)
