"""The figures of a report: the scores of a leaderboard, and those of studies, which describe theirs themselves.

`scores_figure` describes the `Figure` of one kind of task; `pages.figures` lays it out and draws it. `_figures` says
which figures a report has, and `write_figures` writes all into a folder as SVG, PNG and PDF.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from isosent.errors import OutputError
from isosent.evaluation.sizes import MARK
from isosent.io.atomic import check_destination, check_parent, replacing
from isosent.pages.figures import FORMATS, LETTER, Axis, Figure, Key, Panel, check_format, color_of, render
from isosent.report.leaderboard import Column, Leaderboard, ReportData, kind_title

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
    for study in data.studies:
        if study.figure is not None:
            yield study.name, study.figure()


def scores_figure(kind: str, columns: Sequence[Column], labels: Sequence[str]) -> Figure:
    """A band for each column, in it a dot with its interval for each model."""
    cells = [cell for column in columns for cell in column.cells.values() if not math.isnan(cell.score)]
    ends = [100 * end for cell in cells for end in cell.whisker]
    low, high = min(ends, default=0.0), max(ends, default=100.0)
    room = max(0.03 * (high - low), 0.5)
    metrics = " or ".join(dict.fromkeys(column.metric.replace("_", " ") for column in columns))
    names = ["\n".join(_short_name(line) for line in (column.title, column.subtitle) if line) for column in columns]
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
                panel.text(x_axis.low, y, "undefined", shift=(4, 4), color=color_of(number))
                continue
            interval = (100 * cell.whisker[0], 100 * cell.whisker[1])
            tip = f"{label}, {column.title}: {cell.text}"
            panel.dot(100 * cell.score, y, color_of(number), interval=interval, shape=number, tip=tip)
    title = f"{kind_title(kind)}: scores by task"
    marked = f" {MARK}: not comparable with published scores." if any(column.mark for column in columns) else ""
    description = f"The numbers are those of the leaderboard.{marked}"
    return Figure(title, description, [("", [panel])], model_legend(labels))


def model_legend(labels: Sequence[str]) -> list[Key]:
    return [Key(label, color_of(number), shape=number) for number, label in enumerate(labels)]


def _short_name(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
