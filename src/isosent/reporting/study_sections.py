"""Studies as sections of a page: dimensions, layers, poolings, and how good the choices of auto are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from isosent.drawing import HEIGHT, SECOND_AXIS, WIDTH
from isosent.evaluation.sts import AGGREGATIONS
from isosent.evaluation.tables import x100
from isosent.reporting.html_parts import NONE, drawing, figure, folded, key, lead, section, table
from isosent.reporting.naming import short_reference
from isosent.studies.auto import ROWS, AutoCell, judge
from isosent.studies.dims_figure import curve_styles, dims_panel, dims_title
from isosent.studies.dims_result import DimsStudy
from isosent.studies.heat_map import HeatMap
from isosent.studies.layer_figures import best_panel, by_model, pair_maps, pooling_maps, title
from isosent.studies.reading_cells import ReadingCell
from isosent.studies.readings import TRANSFORMS
from isosent.studies.study_figure import line_style

HOW = AGGREGATIONS[0]
_LINE = '<polyline class="{}" points="1,7 23,7"/>'


def dims_section(studies: Sequence[DimsStudy]) -> str:
    """Return a figure a study, scores over the dimensions kept, with the numbers; nothing without studies."""
    if not studies:
        return ""
    styles = curve_styles(studies)
    names = {**styles, "time of an exact search (right)": "search"} if any(s.search for s in studies) else styles
    figures = []
    for number, study in enumerate(studies):
        name, width = dims_title(study), WIDTH + (SECOND_AXIS if study.search else 0)
        panel = dims_panel(study, HOW, styles, (0, 0))
        description = f"Spearman of {', '.join(study.tasks)} at {study.widths[0]} to {study.widths[-1]} dimensions."
        svg = drawing(f"dims-{number}", (width, HEIGHT), name, description, panel)
        figures.append(
            figure(name, "The best width of each line is marked.", svg, folded("Numbers", _dims_table(study)))
        )
    return section(
        "dims",
        "Dimensions",
        lead("Scores over the dimensions that a transform keeps. Open circles: the vectors without it."),
        key((_LINE.format(style), name) for name, style in names.items()),
        f'<div class="figures">{"".join(figures)}</div>',
    )


def _dims_table(study: DimsStudy) -> str:
    columns: list[str | None] = [*study.tasks, *([None] if len(study.tasks) > 1 else [])]
    curves = [study.curve(column, HOW) for column in columns]
    times = {time.k: f"{1000 * time.elapsed_s:.2f}" for time in study.search}
    rows = [
        (str(k), *(x100(curve[k]) for curve in curves), *([times.get(k, NONE)] if times else [])) for k in study.widths
    ]
    names = ["dimensions", *(column or "average" for column in columns), *(["ms a query"] if times else [])]
    return table(dims_title(study), names, rows, numbers=range(1, len(names)))


def layers_section(cells: Sequence[ReadingCell]) -> str:
    """Return heat maps of pairs of layers, and the best set of every size, for each model; nothing without cells."""
    blocks = []
    for number, (name, own) in enumerate(by_model(cells)):
        entries = key((_LINE.format(line_style(line)), title(of)) for line, of in enumerate(TRANSFORMS))
        description = "Of all sets that were scored. The labels chose: it is a bound, no recipe."
        best = drawing(
            f"best-{number}", (WIDTH, HEIGHT), "Best sets of layers", description, best_panel(own, HOW, (0, 0))
        )
        more = figure("The best set of every size", description, best, entries)
        blocks.append(_block(name, own, [*_maps(f"layers-{number}", pair_maps(own, HOW)), more]))
    about = "The diagonal holds single layers, what lies below it the means of two; the highest cell is framed."
    return section("layers", "Layers", lead(about), *blocks) if blocks else ""


def pooling_section(cells: Sequence[ReadingCell]) -> str:
    """Return heat maps of poolings by layers, for each model; nothing without cells."""
    blocks = [
        _block(name, own, _maps(f"pooling-{number}", pooling_maps(own, HOW)))
        for number, (name, own) in enumerate(by_model(cells))
    ]
    return section("pooling", "Poolings", lead("The highest cell of each map is framed."), *blocks) if blocks else ""


def _block(name: str, cells: Sequence[ReadingCell], figures: Sequence[str]) -> str:
    tasks = ", ".join(dict.fromkeys(cell.task for cell in cells))
    heading = f"{short_reference(name)}: Spearman x100, average over {tasks}"
    return f'<h3>{escape(heading)}</h3><div class="figures">{"".join(figures)}</div>'


def _maps(name: str, maps: Sequence[HeatMap]) -> list[str]:
    figures = []
    for number, each in enumerate(maps):
        description = f"{len(each.rows)} rows, {len(each.columns)} columns, {each.label}."
        size = max(WIDTH, each.width), each.height
        svg = drawing(f"{name}-{number}", size, each.title, description, each.panel(0, 0))
        rows = (
            (row, *(NONE if math.isnan(value) else f"{value:.2f}" for value in values))
            for row, values in zip(each.rows, each.values.tolist(), strict=True)
        )
        numbers = table(each.title, ("", *each.columns), rows, numbers=range(1, len(each.columns) + 1))
        figures.append(figure("", "", svg, folded("Numbers", numbers)))
    return figures


def auto_section(cells: Sequence[AutoCell]) -> str:
    """Return the choices of auto beside fixed rules and the best in hindsight; nothing without cells."""
    if not cells:
        return ""
    verdict = judge(cells)
    rows = []
    for model, means in verdict.averages.items():
        own = [cell for cell in cells if cell.model == model]
        scores = [(cell.task, cell.scores, cell.chosen, cell.best) for cell in own]
        if len(own) > 1:
            scores.append(("average", means, "", ""))
        rows += [
            (short_reference(model), task, *(x100(of[row]) for row in ROWS), chosen, best)
            for task, of, chosen, best in scores
        ]
    columns = ("model", "task", *ROWS, "auto chose", "best in hindsight was")
    told = (
        f"On average auto stays {x100(verdict.mean_regret)} points below the best in hindsight; the most it lost "
        f"against leaving the vectors alone is {x100(verdict.worst_loss)} points."
    )
    numbers = range(2, 2 + len(ROWS))
    return section(
        "auto",
        "How good the choices of auto are",
        lead("Spearman x100, each map fitted on the sentences of the task, without labels.", told),
        table("Auto against fixed rules", columns, rows, numbers=numbers),
    )
