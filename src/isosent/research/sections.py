"""Studies in a report: `report.leaderboard` finds this module by its name when a file is no result of an evaluation.

`read_shown_study` reads the file of a study, and `study_parts` gives the section and the figure of each kind.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any

from isosent import _check
from isosent.errors import FileFormatError
from isosent.evaluation.result import FORMAT, short_reference
from isosent.evaluation.tables import x100
from isosent.io.json import read_json
from isosent.pages.figures import Figure, Panel
from isosent.pages.html import NONE, bullets, figure_box, folded, lead, section, table
from isosent.report.leaderboard import StudyPart
from isosent.research.auto import judge
from isosent.research.dims import dims_figure, dims_title
from isosent.research.layer_tables import (
    best_panel,
    by_model,
    layer_figure,
    pair_maps,
    pooling_figure,
    pooling_maps,
    transform_legend,
)
from isosent.research.study import (
    ROWS,
    STUDY_FORMATS,
    AutoCell,
    DimsStudy,
    LayerCell,
    Study,
    read_study,
    study_notes,
    task_titles,
)


def read_shown_study(path: str | os.PathLike[str]) -> Study:
    """Read the file of a study that a report shows."""
    if str(read_json(_check.input_file(path)).get("format")) not in STUDY_FORMATS:
        raise FileFormatError(
            f"{path} is not a file that isosent evaluate or isosent research study wrote with -o FILE.json: its "
            f"format is none of {', '.join([FORMAT, *STUDY_FORMATS])}."
        )
    study = read_study(path)
    if study.name not in _PARTS:
        raise FileFormatError(
            f"{path} is a study of {study.name}. A report shows results and studies of {', '.join(sorted(_PARTS))}. "
            "Leave this file out; the study itself prints a table."
        )
    return study


def study_parts(studies: Sequence[Study]) -> tuple[StudyPart, ...]:
    """The section and the figure of every kind of study; files of one kind share them."""
    parts = []
    for name, (make_section, make_figure) in _PARTS.items():
        records = [record for study in studies if study.name == name for record in study.results]
        if records:
            figure = partial(make_figure, records) if make_figure else None
            parts.append(StudyPart(name, partial(make_section, records), figure))
    return tuple(parts)


def _dims(studies: Sequence[DimsStudy]) -> str:
    boxes = []
    for number, study in enumerate(studies):
        numbers = folded("Numbers", _dims_table(study))
        boxes.append(figure_box(f"dims-{number}", dims_figure([study]), more=numbers))
    return section(
        "dims",
        "Dimensions",
        lead(
            "Scores over the dimensions that a transform keeps. The best width of each line is marked. Open circles: "
            "vectors without the transform."
        ),
        bullets(study_notes(cell for study in studies for cell in study.cells)),
        f'<div class="figures">{"".join(boxes)}</div>',
    )


def _dims_table(study: DimsStudy) -> str:
    tasks: list[str | None] = [*study.tasks, *([None] if len(study.tasks) > 1 else [])]
    curves = [study.curve(task) for task in tasks]
    times = {time.k: f"{1000 * time.elapsed_s:.2f}" for time in study.search}
    titles = task_titles(study.cells)
    names = ["dimensions", *(titles[task] if task else "average" for task in tasks), *(["ms/query"] if times else [])]
    rows = [
        (str(k), *(x100(curve[k]) for curve in curves), *([times.get(k, NONE)] if times else [])) for k in study.widths
    ]
    return table(dims_title(study), names, rows, numbers=range(1, len(names)))


def _layers(cells: Sequence[LayerCell]) -> str:
    blocks = []
    for number, (model, of_model) in enumerate(by_model(cells)):
        boxes = [_map_box(f"layers-{number}-{i}", panel) for i, panel in enumerate(pair_maps(of_model))]
        note = "The labels of the tasks chose these sets: a bound, not a recipe."
        best = Figure("The best set of every size", note, [("", [best_panel(of_model)])], transform_legend())
        blocks.append(_model_block(model, of_model, [*boxes, figure_box(f"best-{number}", best, best.title, note)]))
    about = "Single layers are on the diagonal, means of two layers below it. The best cell is framed."
    return section("layers", "Layers", lead(about), bullets(study_notes(cells)), *blocks)


def _poolings(cells: Sequence[LayerCell]) -> str:
    blocks = []
    for number, (model, of_model) in enumerate(by_model(cells)):
        boxes = [_map_box(f"pooling-{number}-{i}", panel) for i, panel in enumerate(pooling_maps(of_model))]
        blocks.append(_model_block(model, of_model, boxes))
    about = "The best cell of each map is framed."
    return section("pooling", "Poolings", lead(about), bullets(study_notes(cells)), *blocks)


def _model_block(model: str, cells: Sequence[LayerCell], boxes: Sequence[str]) -> str:
    tasks = ", ".join(task_titles(cells).values())
    heading = f"{short_reference(model)}: Spearman x100, average over {tasks}"
    return f'<h3>{escape(heading)}</h3><div class="figures">{"".join(boxes)}</div>'


def _map_box(name: str, panel: Panel) -> str:
    rows, columns, values = panel.grid or ((), (), ())
    figure = Figure(panel.title, f"{len(rows)} rows, {len(columns)} columns, {panel.x.label}.", [("", [panel])])
    lines = (
        (row, *(NONE if math.isnan(value) else f"{value:.2f}" for value in numbers))
        for row, numbers in zip(rows, values, strict=True)
    )
    numbers = table(panel.title, ("", *columns), lines, numbers=range(1, len(columns) + 1))
    return figure_box(name, figure, more=folded("Numbers", numbers))


def _auto(cells: Sequence[AutoCell]) -> str:
    """The choices of auto next to fixed rules and the best in hindsight."""
    verdict = judge(cells)
    rows = []
    for model, means in verdict.averages.items():
        of_model = [cell for cell in cells if cell.model == model]
        titles = task_titles(of_model)
        lines = [(titles[cell.task], cell.scores, cell.chosen, cell.best) for cell in of_model]
        if len(lines) > 1:
            lines.append(("average", dict(means), "", ""))
        for task, scores, chosen, best in lines:
            rows.append((short_reference(model), task, *(x100(scores[row]) for row in ROWS), chosen, best))
    summary = (
        f"On average auto is {x100(verdict.mean_regret)} points below the best in hindsight; compared with no "
        f"transform it lost at most {x100(verdict.worst_loss)} points."
    )
    columns = ("model", "task", *ROWS, "verdict", "best in hindsight was")
    return section(
        "auto",
        "How good the choices of auto are",
        lead("Spearman x100, each transform fitted on the sentences of the task, without labels.", summary),
        bullets(study_notes(cells)),
        table("Auto and fixed rules", columns, rows, numbers=range(2, 2 + len(ROWS))),
    )


_PARTS: Mapping[str, tuple[Callable[[Sequence[Any]], str], Callable[[Sequence[Any]], Figure] | None]] = {
    "dims": (_dims, dims_figure),
    "layers": (_layers, layer_figure),
    "pooling": (_poolings, pooling_figure),
    "auto": (_auto, None),
}
