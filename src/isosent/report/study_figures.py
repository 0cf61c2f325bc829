"""The studies of layers and poolings as figures: SVG that stands alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from isosent.evaluation.sts import AGGREGATIONS
from isosent.pages.figures import HEIGHT, SECOND_AXIS, WIDTH, Axis, Frame
from isosent.research.dims import DimsStudy, size_of_a_million
from isosent.research.gem import ABLATION, SENSITIVITY, GemCell
from isosent.research.layers import best_of_sizes, pair_grid
from isosent.research.study import TRANSFORMS, LayerCell, averages, layers_label

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5d5d5d")
MARGIN = 14
KEY_WIDTH = 290
_KEY_HEIGHT = 22
_STYLE = (
    'text { font: 13px system-ui, "DejaVu Sans", sans-serif; fill: #4a525c } '
    ".grid { stroke: #e4e2dc } .axis { stroke: #8a929c } .mark { stroke: #8a929c; stroke-dasharray: 4 3 } "
    "polyline { fill: none; stroke-width: 2; stroke-linejoin: round } "
    ".more { stroke-dasharray: 6 3 } "
    + " ".join(f".c{number} {{ stroke: {colour} }}" for number, colour in enumerate(COLOURS))
)


def line_style(number: int) -> str:
    """Class of the line with that number: a colour each, dashed once these have run out."""
    return f"c{number % len(COLOURS)}" + (" more" if number >= len(COLOURS) else "")


def key_height(n_names: int, width: int, *, key_width: int = KEY_WIDTH) -> int:
    """Pixels that the key takes above the panels of a figure of that width."""
    return MARGIN + _KEY_HEIGHT * math.ceil(n_names / _keys_a_row(width, key_width))


def line_key(
    names: Sequence[str], width: int, styles: Sequence[str] | None = None, *, key_width: int = KEY_WIDTH
) -> list[str]:
    """Draw the key of a figure: a piece of each line, and what it stands for."""
    parts, a_row = [], _keys_a_row(width, key_width)
    for number, name in enumerate(names):
        left, y = MARGIN + number % a_row * ((width - MARGIN) // a_row), MARGIN + number // a_row * _KEY_HEIGHT
        style = line_style(number) if styles is None else styles[number]
        parts.append(f'<polyline class="{style}" points="{left},{y} {left + 20},{y}"/>')
        parts.append(f'<text x="{left + 26}" y="{y + 4}">{escape(name)}</text>')
    return parts


def study_document(width: int, height: int, title: str, parts: Iterable[str], *, style: str = "") -> str:
    """Put a figure together: SVG that stands alone."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style>"
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{"".join(parts)}</svg>\n'
    )


def _keys_a_row(width: int, key_width: int) -> int:
    return max(1, width // key_width)


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
    """Cells in rows and columns, the lighter the lower."""

    title: str  # what stands above
    rows: Sequence[str]  # names of the rows, left of them, and of the columns, below them
    columns: Sequence[str]  # names of the rows, left of them, and of the columns, below them
    label: str  # what the columns are
    values: NDArray[np.float64]  # numbers to print, with one decimal; NaN leaves a cell out
    span: tuple[float, float]  # numbers that the lightest and the darkest colour stand for

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
        """Draw it, for one of several figures in one drawing."""
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


_AVERAGE = "average"
_TITLE_HEIGHT, _KEY_WIDTH, _BESIDE = 24, 160, 14
_TICKS_APART = 1.9
_FILLS = {f"c{number}": colour for number, colour in enumerate(COLOURS)} | {_AVERAGE: "#16191d"}
_STYLE_dims_figure = (
    " .search { stroke: #8a929c; stroke-dasharray: 2 4 } .average { stroke: #16191d; stroke-width: 3 } "
    ".title { font-weight: 600 } "
    + " ".join(
        f"circle.{name} {{ fill: {fill}; stroke: #ffffff; stroke-width: 1.5 }} "
        f"circle.{name}.open {{ fill: #ffffff; stroke: {fill} }}"
        for name, fill in _FILLS.items()
    )
)


def dims_figure(studies: Sequence[DimsStudy], how: str = AGGREGATIONS[0]) -> str:
    """Draw studies of dimensions: a panel a model, the best width of each line marked."""
    styles = curve_styles(studies)
    keys = styles | {
        f"search of {n:,} (right)": "search" for n in sorted({t.n_docs for s in studies for t in s.search})
    }
    panel_width = WIDTH + SECOND_AXIS
    width = panel_width * min(2, len(studies))
    top = key_height(len(keys), width, key_width=_KEY_WIDTH)
    parts = line_key(list(keys), width, list(keys.values()), key_width=_KEY_WIDTH)
    for number, study in enumerate(studies):
        left, up = number % 2 * panel_width, top + number // 2 * (HEIGHT + _TITLE_HEIGHT)
        parts.append(f'<text class="title" x="{left + MARGIN}" y="{up + 10}">{escape(dims_title(study))}</text>')
        parts.append(dims_panel(study, how, styles, (left, up + _TITLE_HEIGHT)))
    height = top + math.ceil(len(studies) / 2) * (HEIGHT + _TITLE_HEIGHT) + MARGIN
    return study_document(
        width, height, "Scores, memory and search time by dimensions", parts, style=_STYLE_dims_figure
    )


def curve_styles(studies: Sequence[DimsStudy]) -> dict[str, str]:
    """Class of the line of every task, and of their average where there are several."""
    tasks = list(dict.fromkeys(task for study in studies for task in study.tasks))
    styles = {task: line_style(number) for number, task in enumerate(tasks)}
    return styles | {_AVERAGE: _AVERAGE} if len(tasks) > 1 else styles


def dims_title(study: DimsStudy) -> str:
    """Name a study for people."""
    return f"{study.name.rpartition('/')[2]}, {study.protocol['transform']} fitted on {study.protocol['fit']}"


def dims_panel(study: DimsStudy, how: str, styles: Mapping[str, str], corner: tuple[float, float]) -> str:
    """Draw one study, for one of several figures in one drawing."""
    curves = {name: _points(study, how, name) for name in styles if name == _AVERAGE or name in study.tasks}
    dim = study.untransformed[0].k
    whole = {name: 100 * study.whole(None if name == _AVERAGE else name, how) for name in curves}
    whole = {name: score for name, score in whole.items() if not math.isnan(score)}
    scores = [*whole.values(), *(score for points in curves.values() for _, score in points)] or [0.0]
    widths = sorted({*study.widths, dim})
    x_axis = _width_axis("dimensions kept (open circles: without the transform)", widths)
    frame = Frame(x_axis, Axis("", min(scores) - 1, max(scores) + 1))
    marks = [_memory_above(frame), _beside("Spearman x100", _BESIDE)]
    if study.search:
        slowest = max(time.elapsed_s for time in study.search)
        second = Frame(x_axis, Axis("", 0.0, 1000 * slowest))
        marks += [
            second.right_axis(),
            _beside("ms a query", WIDTH + SECOND_AXIS - _BESIDE),
            second.line([(t.k, 1000 * t.elapsed_s) for t in study.search], "search"),
        ]
    marks += [frame.line(points, styles[name]) for name, points in curves.items()]
    for name, points in curves.items():
        best = study.best(None if name == _AVERAGE else name, how)
        marks += [frame.dot(k, y, styles[name], f"{name}: {y:.2f} at {k}") for k, y in points if k == best]
    marks += [
        frame.dot(dim, score, f"{styles[name]} open", f"{name}, without the transform: {score:.2f}")
        for name, score in whole.items()
    ]
    return frame.panel(*corner, marks)


def _points(study: DimsStudy, how: str, name: str) -> list[tuple[float, float]]:
    curve = study.curve(None if name == _AVERAGE else name, how)
    return [(k, 100 * score) for k, score in curve.items() if not math.isnan(score)]


def _width_axis(label: str, widths: Sequence[int]) -> Axis:
    """Logarithmic, with ticks at widths that leave room for their numbers."""
    low, high = widths[0], max(widths[-1], widths[0] + 1)
    ticks = [high]
    for k in reversed(widths):
        if k * _TICKS_APART <= ticks[-1]:
            ticks.append(k)
    return Axis(label, low, high, log=True, at=ticks[::-1])


def _memory_above(frame: Frame) -> str:
    """The same axis in memory."""
    low, high, *ticks = (size_of_a_million(int(k)) for k in (frame.x.low, frame.x.high, *frame.x.ticks))
    return Frame(Axis("memory of a million", low, high, log=True, write=_bytes, at=ticks), frame.y).top_axis()


def _beside(words: str, x: float) -> str:
    """Label an axis along its side: above it stand the ticks of the memory."""
    return (
        f'<text class="label" transform="translate({x} {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{words}</text>'
    )


def _bytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.3g} GB"


_METRICS = ("pearson", "spearman")
_LABELS = {
    "window": "words on each side (window, m)",
    "candidates": "principal vectors of the corpus (n_candidates, K)",
    "removed": "principal vectors removed (n_removed, h)",
    "power": "power of the singular values (power, t)",
}

_Lines = Mapping[str, Sequence[tuple[float, float]]]


def gem_figure(cells: Sequence[GemCell]) -> str:
    """Draw the studies of sensitivity: a row a setting, Pearson on the left and Spearman on the right."""
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


_DOTS = " ".join(f"circle.c{number} {{ fill: {colour}; stroke: none }}" for number, colour in enumerate(COLOURS))
_HEADING = 26


def layer_figure(cells: Sequence[LayerCell], aggregation: str) -> str:
    """Draw a study of layers: a heat map of every pair for each transform, and the best set of every size."""
    parts: list[str] = []
    width, top = 0, MARGIN
    for name, own in by_model(cells):
        parts.append(_heading(name, top))
        top += _HEADING
        maps = pair_maps(own, aggregation)
        left = _beside_layer_figures(maps, top, parts)
        top += maps[0].height + MARGIN
        names_of_lines = [title(transform) for transform in TRANSFORMS]
        parts.append(f'<g transform="translate(0 {top})">{"".join(line_key(names_of_lines, left))}</g>')
        top += key_height(len(TRANSFORMS), left)
        parts.append(best_panel(own, aggregation, (MARGIN, top)))
        top += HEIGHT + MARGIN
        width = max(width, left, MARGIN + WIDTH, _heading_width(name))
    return study_document(width, top, "Scores of layers and their means", parts, style=HEAT_STYLE + _DOTS)


def pooling_figure(cells: Sequence[LayerCell], aggregation: str) -> str:
    """Draw a study of poolings: a heat map of poolings by layers for each transform."""
    parts: list[str] = []
    width, top = 0, MARGIN
    for name, own in by_model(cells):
        parts.append(_heading(name, top))
        top += _HEADING
        maps = pooling_maps(own, aggregation)
        width = max(width, _beside_layer_figures(maps, top, parts), _heading_width(name))
        top += maps[0].height + MARGIN
    return study_document(width, top, "Scores of poolings of layers", parts, style=HEAT_STYLE)


def pair_maps(cells: Sequence[LayerCell], aggregation: str) -> list[HeatMap]:
    """Lay out single layers and pairs, x100: a map for each transform, in the same colours."""
    grids = {transform: 100 * pair_grid(cells, transform, aggregation) for transform in TRANSFORMS}
    span = _span(value for grid in grids.values() for value in grid.flat)
    names = [f"L{layer}" for layer in range(len(grids[TRANSFORMS[0]]))]
    return [
        HeatMap(f"{title(transform)}: pairs of layers", names, names, "layer; alone on the diagonal", grid, span)
        for transform, grid in grids.items()
    ]


def pooling_maps(cells: Sequence[LayerCell], aggregation: str) -> list[HeatMap]:
    """Lay out poolings by layers, x100: a map for each transform, in the same colours."""
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


def by_model(cells: Sequence[LayerCell]) -> list[tuple[str, list[LayerCell]]]:
    """Part cells by their models."""
    names = dict.fromkeys(cell.model for cell in cells)
    return [(name, [cell for cell in cells if cell.model == name]) for name in names]


def _beside_layer_figures(maps: Iterable[HeatMap], top: float, parts: list[str]) -> int:
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


def best_panel(cells: Sequence[LayerCell], aggregation: str, corner: tuple[float, float]) -> str:
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
