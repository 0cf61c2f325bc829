"""Which data goes into which figure: leaderboards, and studies of dimensions, GEM, layers and poolings.

Each kind of data has one function that describes a `Figure`: `scores_figure` for a leaderboard, `dims_figure`,
`gem_figure`, `layer_figure` and `pooling_figure` for studies. `pages.figures` lays it out and draws it. `_figures` says
which of them a report has, and `write_figures` writes all into a folder as SVG, PNG and PDF; `write_figure` writes one.
Pages use the panels too (`best_panel`, `pair_maps`, `pooling_maps`) with their own legends.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from isosent.errors import OutputError
from isosent.evaluation.sizes import MARK
from isosent.io.atomic import check_destination, check_parent, replacing
from isosent.pages.figures import (
    FORMATS,
    LETTER,
    Axis,
    Figure,
    Key,
    Panel,
    check_format,
    colour_of,
    dash_of,
    heat_map,
    render,
)
from isosent.report.leaderboard import Column, Leaderboard, ReportData, kind_title, short_reference
from isosent.research.gem import ABLATION, SENSITIVITY
from isosent.research.layers import NONE, TRANSFORMS, averages, best_of_sizes, pair_grid
from isosent.research.study import ALL, DimsStudy, GemCell, LayerCell, bytes_of_a_million, layers_label, task_titles

_AVERAGE = "average"
_SEARCH_DASH = "2 4"
_TICKS_APART = 1.9
_GEM_LABELS = {
    "window": "words on each side (window, m)",
    "candidates": "principal vectors of the corpus (n_candidates, K)",
    "removed": "principal vectors removed (n_removed, h)",
    "power": "power of the singular values (power, t)",
}
_BAND, _DOT_LINE, _LONGEST_NAME = 32, 12, 18


def check_figure(path: str | os.PathLike[str]) -> None:
    """Refuse a file that a figure cannot be written to, before any work is done."""
    ending = Path(path).suffix
    if ending not in FORMATS:
        raise OutputError(
            f"{path}: figures are written as {', '.join(FORMATS)}. Choose a name with one of these endings."
        )
    check_format(ending)
    check_destination(path)


def write_figure(path: str | os.PathLike[str], figure: Figure) -> None:
    """Write a figure as SVG, PNG or PDF, by the ending of the path."""
    check_figure(path)
    with replacing(path) as temporary:
        temporary.write_bytes(render(figure, Path(path).suffix))


def check_figures(folder: str | os.PathLike[str]) -> None:
    """Refuse a folder that figures cannot be written to, before any work is done."""
    check_format(".pdf")
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} is a file. Name a folder for the figures.")
    check_parent(folder / "figure" if folder.exists() else folder)


def write_figures(folder: str | os.PathLike[str], data: ReportData, board: Leaderboard) -> list[Path]:
    """Write every figure of a report as SVG, PNG and PDF."""
    check_figures(folder)
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    paths = []
    for name, figure in _figures(data, board):
        for ending in FORMATS:
            paths.append(folder / f"{name}{ending}")
            with replacing(paths[-1]) as temporary:
                temporary.write_bytes(render(figure, ending))
    return paths


def _figures(data: ReportData, board: Leaderboard) -> Iterator[tuple[str, Figure]]:
    labels = [row.label for row in board.rows]
    for kind, columns in board.kinds.items():
        yield f"scores_{re.sub('[^a-z0-9]+', '_', kind.lower())}", scores_figure(kind, columns, labels)
    if data.dims:
        yield "dims", dims_figure(data.dims)
    if data.layers:
        yield "layers", layer_figure(data.layers)
    if data.pooling:
        yield "pooling", pooling_figure(data.pooling)


def scores_figure(kind: str, columns: Sequence[Column], labels: Sequence[str]) -> Figure:
    """A band for each column, in it a dot with its interval for each model."""
    cells = [cell for column in columns for cell in column.cells.values() if not math.isnan(cell.score)]
    ends = [100 * end for cell in cells for end in cell.whisker]
    low, high = min(ends, default=0.0), max(ends, default=100.0)
    room = max(0.03 * (high - low), 0.5)
    metrics = " or ".join(dict.fromkeys(column.metric.replace("_", " ") for column in columns))
    names = ["\n".join(_cut(line) for line in (column.title, column.subtitle) if line) for column in columns]
    heights = [max(_DOT_LINE * len(column.cells) + 10, _BAND) for column in columns]
    bottoms = np.cumsum(heights).tolist()
    middles = [bottom - height / 2 for bottom, height in zip(bottoms, heights, strict=True)]
    name_of = dict(zip(middles, names, strict=True))
    x_axis = Axis(f"{metrics} x100, 95% intervals", low - room, high + room)
    panel = Panel(
        x_axis,
        Axis("", bottoms[-1], 0, write=name_of.__getitem__, at=middles),
        height=bottoms[-1] + 74,  # with the margins of a panel, one unit of the y axis is one pixel
        left=16 + LETTER * max(len(line) for name in names for line in name.split("\n")),
        grid="x",
        top_axis=Axis("", x_axis.low, x_axis.high),
    )
    for bottom in bottoms[:-1]:
        panel.line([(x_axis.low, bottom), (x_axis.high, bottom)], "faint", width=1)
    for column, middle in zip(columns, middles, strict=True):
        shown = [label for label in labels if label in column.cells]
        for line, label in enumerate(shown):
            cell, number = column.cells[label], labels.index(label)
            y = middle + _DOT_LINE * (line - (len(shown) - 1) / 2)
            if math.isnan(cell.score):
                panel.text(x_axis.low, y, "undefined", shift=(4, 4), colour=colour_of(number))
                continue
            interval = (100 * cell.whisker[0], 100 * cell.whisker[1])
            tip = f"{label}, {column.title}: {cell.text}"
            panel.dot(100 * cell.score, y, colour_of(number), interval=interval, shape=number, tip=tip)
    title = f"{kind_title(kind)}: scores by task"
    marked = f" {MARK}: not comparable with published scores." if any(column.mark for column in columns) else ""
    description = f"The numbers are those of the leaderboard.{marked}"
    return Figure(title, description, [("", [panel])], model_legend(labels))


def model_legend(labels: Sequence[str]) -> list[Key]:
    return [Key(label, colour_of(number), shape=number) for number, label in enumerate(labels)]


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def dims_figure(studies: Sequence[DimsStudy], how: str = ALL) -> Figure:
    """A panel per study: scores, memory and search time over the dimensions kept, the best width of a line marked."""
    keys = _task_keys(studies)
    panels = [_dims_panel(study, keys, how) for study in studies]
    rows = [("", panels[start : start + 2]) for start in range(0, len(panels), 2)]
    widths = sorted({k for study in studies for k in study.widths})
    tasks = ", ".join(key.label for key in keys.values())
    description = f"Spearman of {tasks} at {widths[0]} to {widths[-1]} dimensions."
    legend = [*keys.values()]
    legend += [
        Key(f"search of {n:,} vectors (right axis)", "mark", dash=_SEARCH_DASH)
        for n in sorted({time.n_docs for study in studies for time in study.search})
    ]
    return Figure("Scores, memory and search time by dimensions", description, rows, legend)


def _task_keys(studies: Sequence[DimsStudy]) -> dict[str | None, Key]:
    """The line of every task, and of their average (None) where there are several."""
    titles = task_titles(cell for study in studies for cell in study.cells)
    tasks = list(titles)
    keys: dict[str | None, Key] = {}
    for number, task in enumerate(tasks):
        keys[task] = Key(titles[task], colour_of(number), dash=dash_of(number))
    if len(tasks) > 1:
        keys[None] = Key(_AVERAGE, "ink", width=3)
    return keys


def dims_title(study: DimsStudy) -> str:
    return f"{study.name.rpartition('/')[2]}, {study.protocol['transform']} fitted on {study.protocol['fit']}"


def _dims_panel(study: DimsStudy, keys: Mapping[str | None, Key], how: str) -> Panel:
    shown = {task: key for task, key in keys.items() if task is None or task in study.tasks}
    curves = {task: [(k, 100 * s) for k, s in study.curve(task, how).items() if not math.isnan(s)] for task in shown}
    whole = {task: 100 * study.whole(task, how) for task in shown if not math.isnan(study.whole(task, how))}
    scores = [*whole.values(), *(score for points in curves.values() for _, score in points)] or [0.0]
    widths = sorted({*study.widths, study.dim})
    low, high = widths[0], max(widths[-1], widths[0] + 1)
    ticks: list[float] = [high]  # those widths that leave room for their numbers
    for k in reversed(widths):
        if k * _TICKS_APART <= ticks[-1]:
            ticks.append(k)
    memory = [float(bytes_of_a_million(round(k))) for k in (low, high, *ticks)]
    milliseconds = [(time.k, 1000 * time.elapsed_s) for time in study.search]
    times = Axis("ms/query", 0.0, max(time for _, time in milliseconds)) if milliseconds else None
    panel = Panel(
        Axis("dimensions kept (open circles: without the transform)", low, high, log=True, at=ticks[::-1]),
        Axis("Spearman x100", min(scores) - 1, max(scores) + 1),
        title=dims_title(study),
        top_axis=Axis("memory of a million", memory[0], memory[1], log=True, write=_bytes, at=memory[2:]),
        right_axis=times,
    )
    if times:
        panel.line(milliseconds, "mark", dash=_SEARCH_DASH, y_axis=times)
    for task, points in curves.items():
        panel.line(points, shown[task].colour, width=shown[task].width, dash=shown[task].dash)
    for task, points in curves.items():
        best = study.best(task, how)
        for k, score in points:
            if k == best:
                panel.dot(k, score, shown[task].colour, tip=f"{shown[task].label}: {score:.2f} at {k}")
    for task, score in whole.items():
        tip = f"{shown[task].label}, without the transform: {score:.2f}"
        panel.dot(study.dim, score, shown[task].colour, is_open=True, tip=tip)
    return panel


def _bytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB" if size < 1e9 else f"{size / 1e9:.3g} GB"


def gem_figure(cells: Sequence[GemCell]) -> Figure:
    """The change of Pearson (left) and Spearman (right) when one setting of GEM varies, a row per setting."""

    def name(cell: GemCell) -> str:
        return f"{cell.model.rpartition('/')[2]}, {cell.task}"

    names = list(dict.fromkeys(map(name, cells)))
    panels: dict[str, list[Panel]] = {study: [] for study in SENSITIVITY}
    for metric in ("pearson", "spearman"):
        start: dict[str, float] = {}  # scores of the model as it is: the first cell of the ablation
        changes: dict[str, dict[str, list[tuple[float, float]]]] = {
            study: {name: [] for name in names} for study in SENSITIVITY
        }
        for cell in cells:
            score = 100 * getattr(cell, metric)
            if cell.study == ABLATION:
                start.setdefault(name(cell), score)
            elif not math.isnan(score - start[name(cell)]):
                changes[cell.study][name(cell)].append((float(cell.condition), score - start[name(cell)]))
        heights = [y for lines in changes.values() for points in lines.values() for _, y in points]
        y_axis = Axis(f"{metric.capitalize()} x100, change", min([*heights, -0.5]), max([*heights, 0.5]))
        for study, lines in changes.items():
            values = sorted({x for points in lines.values() for x, _ in points}) or [0.0]
            x_axis = Axis(_GEM_LABELS[study], values[0], max(values[-1], values[0] + 1), at=values)
            panel = Panel(x_axis, y_axis)
            panel.level(0)
            for number, points in enumerate(lines.values()):
                panel.line(points, colour_of(number), dash=dash_of(number))
            panels[study].append(panel)
    legend = [Key(name, colour_of(number), dash=dash_of(number)) for number, name in enumerate(names)]
    title = "Scores of GEM when one of its settings varies"
    return Figure(title, f"Of {', '.join(names)}.", [("", row) for row in panels.values()], legend)


def layer_figure(cells: Sequence[LayerCell], how: str = ALL) -> Figure:
    """For each model a heat map of single layers and pairs per transform, and the best set of every size."""
    rows: list[tuple[str, Sequence[Panel]]] = []
    for model, of_model in by_model(cells):
        heading = f"{short_reference(model)}, average over the tasks, Spearman x100"
        rows += [(heading, pair_maps(of_model, how)), ("", [best_panel(of_model, how)])]
    return Figure("Scores of layers and their means", _ABOUT_PAIRS, rows, transform_legend())


def pooling_figure(cells: Sequence[LayerCell], how: str = ALL) -> Figure:
    """For each model a heat map of poolings by layers per transform."""
    rows = [
        (f"{short_reference(model)}, average over the tasks, Spearman x100", pooling_maps(of_model, how))
        for model, of_model in by_model(cells)
    ]
    return Figure("Scores of poolings of layers", "A row per pooling, a column per set of layers.", rows)


_ABOUT_PAIRS = "Single layers are on the diagonal, means of two layers below it; the best cell is framed."


def transform_legend() -> list[Key]:
    return [Key(transform_title(transform), colour_of(number)) for number, transform in enumerate(TRANSFORMS)]


def transform_title(transform: str) -> str:
    return "as they are" if transform == NONE else transform


def by_model(cells: Sequence[LayerCell]) -> list[tuple[str, list[LayerCell]]]:
    names = dict.fromkeys(cell.model for cell in cells)
    return [(name, [cell for cell in cells if cell.model == name]) for name in names]


def pair_maps(cells: Sequence[LayerCell], how: str = ALL) -> list[Panel]:
    """A heat map per transform, in the same colors: single layers on the diagonal, pairs below it."""
    grids = {transform: 100 * pair_grid(cells, transform, how) for transform in TRANSFORMS}
    span = _span(value for grid in grids.values() for value in grid.flat)
    names = [f"L{layer}" for layer in range(len(grids[NONE]))]
    return [
        heat_map(
            f"{transform_title(transform)}: pairs of layers",
            names,
            names,
            grid.tolist(),
            label="layer; alone on the diagonal",
            span=span,
        )
        for transform, grid in grids.items()
    ]


def pooling_maps(cells: Sequence[LayerCell], how: str = ALL) -> list[Panel]:
    """A heat map per transform, in the same colors: poolings by sets of layers."""
    scores = {key: 100 * score for key, score in averages(cells, how).items()}
    poolings = list(dict.fromkeys(cell.pooling for cell in cells))
    sets = list(dict.fromkeys(cell.layers for cell in cells))
    span = _span(scores.values())
    return [
        heat_map(
            transform_title(transform),
            poolings,
            [layers_label(layers) for layers in sets],
            [[scores.get((pooling, layers, transform), math.nan) for layers in sets] for pooling in poolings],
            label="layers",
            span=span,
        )
        for transform in TRANSFORMS
    ]


def best_panel(cells: Sequence[LayerCell], how: str = ALL) -> Panel:
    """The best set of layers of every size, a line per transform."""
    lines = {
        transform: [(size, 100 * best.average, best.layers) for size, best in sizes.items()]
        for transform, sizes in best_of_sizes(cells, how).items()
    }
    lines = {name: [point for point in line if not math.isnan(point[1])] for name, line in lines.items()}
    low, high = _span(y for line in lines.values() for _, y, _ in line)
    most = max(2, max((size for line in lines.values() for size, *_ in line), default=2))
    panel = Panel(
        Axis("layers averaged, the best set of that size", 1, most, at=range(1, most + 1)),
        Axis("Spearman x100", low - 0.5, high + 0.5),
    )
    for number, line in enumerate(lines.values()):
        panel.line([(size, score) for size, score, _ in line], colour_of(number))
        for size, score, layers in line:
            panel.dot(size, score, colour_of(number), tip=f"{layers_label(layers)}: {score:.2f}")
    return panel


def _span(values: Iterable[float]) -> tuple[float, float]:
    defined = [value for value in values if not math.isnan(value)] or [0.0]
    return min(defined), max(defined)
