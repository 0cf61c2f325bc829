"""The figures of a report as PNG and SVG, drawn by matplotlib."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isosent import _extras
from isosent.errors import OutputError
from isosent.io.atomic import check_parent, replacing
from isosent.pages.figures import COLOURS, MARKERS
from isosent.report.leaderboard import Column, Leaderboard, kind_title, short_reference
from isosent.report.result_files import ReportData
from isosent.report.results_page import HOW
from isosent.report.study_figures import HeatMap, by_model, dims_title, pair_maps, pooling_maps
from isosent.research.dims import DimsStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


ENDINGS = ("png", "svg")
_DPI = 200
_BAND, _LINE = 0.32, 0.16  # inches
_STYLE: dict[str, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e2dc",
    "font.size": 9,
    "legend.frameon": False,
    "svg.hashsalt": "isosent",
    "text.parse_math": False,  # a model may be called anything
}


def check_figures(folder: str | os.PathLike[str]) -> None:
    """Refuse, before any work is done, a folder that figures could not be written to."""
    _extras.require("matplotlib")
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise OutputError(f"{folder} must be a folder for the figures; got a file. Name a folder.")
    check_parent(folder / "figure" if folder.exists() else folder)


def write_figures(folder: str | os.PathLike[str], data: ReportData, board: Leaderboard) -> list[Path]:
    """Draw the figures of a report, each as PNG and as SVG."""
    check_figures(folder)
    folder = Path(folder)
    folder.mkdir(exist_ok=True)
    written: list[Path] = []
    with _extras.require("matplotlib").rc_context(_STYLE):
        for name, figure in _figures(data, board):
            for ending in ENDINGS:
                written.append(folder / f"{name}.{ending}")
                with replacing(written[-1]) as temporary:
                    undated = {"Date": None} if ending == "svg" else None
                    figure.savefig(temporary, dpi=_DPI, bbox_inches="tight", metadata=undated)
    return written


def _figures(data: ReportData, board: Leaderboard) -> Iterator[tuple[str, Figure]]:
    labels = [row.label for row in board.rows]
    for kind, columns in board.kinds.items():
        yield f"scores_{re.sub('[^a-z0-9]+', '_', kind.lower())}", _scores(kind_title(kind), columns, labels)
    if data.dims:
        yield "dims", _dims(data.dims)
    for name, cells, make in (("layers", data.layers, pair_maps), ("pooling", data.pooling, pooling_maps)):
        if cells:
            yield name, _heat_maps([(model, make(own, HOW)) for model, own in by_model(cells)])


def _new(width: float, height: float) -> Figure:
    figure: Figure = _extras.require("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    return figure


def _scores(title: str, columns: Sequence[Column], labels: Sequence[str]) -> Figure:
    """A band for each column, a dot with its interval for each model in it."""
    heights = [max(1, len(column.cells)) * _LINE + _BAND for column in columns]
    figure = _new(6.5, sum(heights) + 0.9 + 0.2 * len(labels))
    axes = figure.add_subplot()
    top, middles, named = 0.0, [], set()
    for column, height in zip(columns, heights, strict=True):
        shown = [label for label in labels if label in column.cells]
        middles.append(top + height / 2)
        first = top + height / 2 - _LINE * (len(shown) - 1) / 2
        for line, label in enumerate(shown):
            cell, number = column.cells[label], labels.index(label)
            if not math.isnan(cell.score):
                low, high = (abs(100 * (end - cell.score)) for end in cell.whisker)
                _dot(axes, 100 * cell.score, first + line * _LINE, (low, high), number, "" if label in named else label)
                named.add(label)
        top += height
        axes.axhline(top, color="#e4e2dc", linewidth=0.8)
    axes.set_yticks(middles, [f"{column.title}\n{column.subtitle}".strip() for column in columns])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_ylim(top, 0)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(f"{' or '.join(dict.fromkeys(column.metric for column in columns))} x100, 95 % intervals")
    if named:
        figure.legend(loc="outside lower left", ncols=1)
    return figure


def _dot(axes: Axes, x: float, y: float, ends: tuple[float, float], number: int, label: str) -> None:
    axes.errorbar(
        [x],
        [y],
        xerr=[[ends[0]], [ends[1]]],
        fmt=MARKERS[number % len(MARKERS)],
        color=COLOURS[number % len(COLOURS)][0],
        markersize=4.5,
        elinewidth=1.4,
        label=label or "_",
    )


def _dims(studies: Sequence[DimsStudy]) -> Figure:
    """A panel a study: scores over the dimensions kept, the best width of each line marked."""
    n_columns = min(2, len(studies))
    n_rows = math.ceil(len(studies) / n_columns)
    figure = _new(5.2 * n_columns, 3.8 * n_rows)
    tasks = list(dict.fromkeys(task for study in studies for task in study.tasks))
    for number, study in enumerate(studies, start=1):
        axes = figure.add_subplot(n_rows, n_columns, number)
        for task in [*study.tasks, *([None] if len(study.tasks) > 1 else [])]:
            colour = "#16191d" if task is None else COLOURS[tasks.index(task) % len(COLOURS)][0]
            curve, best = study.curve(task, HOW), study.best(task, HOW)
            name, width = task or "average", 2.4 if task is None else 1.4
            axes.plot(list(curve), [100 * score for score in curve.values()], color=colour, linewidth=width, label=name)
            axes.plot(study.untransformed[0].k, 100 * study.whole(task, HOW), "o", color=colour, mfc="white", ms=4.5)
            if best is not None:
                axes.plot(best, 100 * curve[best], "o", color=colour, ms=4.5)
        axes.set_xscale("log", base=2)
        axes.set_xticks(study.widths, map(str, study.widths), rotation=60, fontsize=7)
        axes.minorticks_off()
        axes.set_xlabel("dimensions kept (open circles: without the transform)")
        axes.set_ylabel("Spearman x100")
        axes.set_title(dims_title(study), loc="left", fontsize=9)
        axes.legend(fontsize=7)
    return figure


def _heat_maps(models: Sequence[tuple[str, Sequence[HeatMap]]]) -> Figure:
    """A row a model, a map a transform; the maps of a model share their colours."""
    n_columns = max(len(maps) for _, maps in models)
    widest = max(len(each.columns) for _, maps in models for each in maps)
    tallest = max(len(each.rows) for _, maps in models for each in maps)
    figure = _new(n_columns * (0.42 * widest + 1.1), len(models) * (0.32 * tallest + 1.2))
    for row, (model, maps) in enumerate(models):
        for column, each in enumerate(maps):
            axes = figure.add_subplot(len(models), n_columns, row * n_columns + column + 1)
            _heat_map(axes, each)
            if column == 0:
                axes.set_ylabel(short_reference(model))
    return figure


def _heat_map(axes: Axes, each: HeatMap) -> None:
    to_rgb = _extras.require("matplotlib.colors").to_rgb
    values = each.values.tolist()
    axes.imshow([[to_rgb("w" if math.isnan(value) else each.shade(value)[0]) for value in row] for row in values])
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if not math.isnan(value):
                ink = "white" if each.shade(value)[1] == "light" else "black"
                axes.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=7, color=ink)
    axes.set_aspect("auto")
    axes.set_xticks(range(len(each.columns)), each.columns)
    axes.set_yticks(range(len(each.rows)), each.rows)
    axes.grid(visible=False)
    axes.set_title(each.title, loc="left", fontsize=9)
    axes.set_xlabel(each.label)
