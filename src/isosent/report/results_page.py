"""A report: results and studies as one HTML page that needs nothing else, and no network."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from isosent.evaluation.result import ERRORS, EvaluationResult, TaskResult
from isosent.evaluation.run import TARGET
from isosent.evaluation.sts import AGGREGATIONS
from isosent.evaluation.tables import interval_x100, x100
from isosent.pages.figures import HEIGHT, SECOND_AXIS, WIDTH, Axis, colour_class, colour_rules, dot
from isosent.pages.html import NONE, drawing, figure, folded, html_document, key, lead, listed, section, table
from isosent.report.leaderboard import (
    Cell,
    Column,
    Leaderboard,
    Row,
    kind_title,
    score_table,
    short_reference,
    steps_of,
)
from isosent.report.result_files import ReportData
from isosent.report.study_figures import (
    HeatMap,
    best_panel,
    by_model,
    curve_styles,
    dims_panel,
    dims_title,
    line_style,
    pair_maps,
    pooling_maps,
    title,
)
from isosent.research.auto import ROWS, AutoCell, judge
from isosent.research.dims import DimsStudy
from isosent.research.study import TRANSFORMS, LayerCell

_TOP, _BOTTOM, _RIGHT, _GAP = 24, 42, 14, 10
_LETTER, _MOST_LETTERS = 8.2, 18
_LINE, _LEAST_BAND = 12, 32


@dataclass(frozen=True, slots=True)
class DotPlot:
    """A band for each column, a dot for each model in it."""

    columns: Sequence[Column]  # columns of one kind
    labels: Sequence[str]  # labels of the models, in their order

    @property
    def axis(self) -> Axis:
        """Where the scores lie, x100."""
        cells = (cell for column in self.columns for cell in column.cells.values() if not math.isnan(cell.score))
        ends = [100 * end for cell in cells for end in cell.whisker]
        low, high = min(ends, default=0.0), max(ends, default=100.0)
        room = max(0.03 * (high - low), 0.5)
        metrics = " or ".join(dict.fromkeys(column.metric.replace("_", " ") for column in self.columns))
        return Axis(f"{metrics} x100", low - room, high + room)

    def drawing(self, name: str, title: str) -> str:
        """Return the figure."""
        letters = max(len(line) for column in self.columns for line in (column.title, column.subtitle))
        left = 10 + _LETTER * min(letters, _MOST_LETTERS)
        axis, top, bands = self.axis, float(_TOP), []
        for column in self.columns:
            shown = [label for label in self.labels if label in column.cells]
            height = max(_LINE * len(shown) + _GAP, _LEAST_BAND)
            bands.append(self._band(column, shown, (left, top, height), axis))
            top += height
        description = "The numbers are those of the leaderboard."
        inside = _grid(axis, left, top) + "".join(bands)
        return drawing(name, (WIDTH, top + _BOTTOM), title, description, inside)

    def _band(self, column: Column, shown: Sequence[str], place: tuple[float, float, float], axis: Axis) -> str:
        left, top, height = place
        y = top + (height - _LINE * (len(shown) - 1)) / 2
        style = "name strong" if column.is_average else "name"
        lines = [line for line in (column.title, column.subtitle) if line]
        middle = top + height / 2 + 4.5 - 7 * (len(lines) - 1)
        parts = [f'<line class="grid" x1="0" x2="{WIDTH}" y1="{top:.1f}" y2="{top:.1f}"/>'] if top > _TOP else []
        parts += [
            f'<text class="{style if row == 0 else "tick"}" x="{left - 10:.1f}" y="{middle + 14 * row:.1f}" '
            f'text-anchor="end">{escape(_cut(line))}</text>'
            for row, line in enumerate(lines)
        ]
        for row, label in enumerate(shown):
            tip = _tip(label, column, column.cells[label])
            parts.append(_mark(self.labels.index(label), column.cells[label], axis, (left, y + _LINE * row), tip))
        return "".join(parts)


def _grid(axis: Axis, left: float, bottom: float) -> str:
    parts = []
    for tick in axis.ticks:
        x = f"{_x(axis, left, tick):.1f}"
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom:.1f}"/>')
        parts += (
            f'<text class="tick" x="{x}" y="{y:.1f}" text-anchor="middle">{axis.write(tick)}</text>'
            for y in (_TOP - 8, bottom + 17)
        )
    middle = (left + WIDTH - _RIGHT) / 2
    label = f'<text x="{middle:.1f}" y="{bottom + 36:.1f}" text-anchor="middle">{escape(axis.label)}</text>'
    return "".join([*parts, f'<line class="axis" x1="{left:.1f}" x2="{WIDTH}" y1="{bottom}" y2="{bottom}"/>', label])


def _mark(number: int, cell: Cell, axis: Axis, place: tuple[float, float], tip: str) -> str:
    left, y = place
    style = colour_class(number)
    if math.isnan(cell.score):
        return f'<text class="tick {style}" x="{left + 4:.1f}" y="{y + 4:.1f}">undefined</text>'
    low, high = (f"{_x(axis, left, 100 * end):.1f}" for end in cell.whisker)
    whisker = f'<line class="whisker {style}" x1="{low}" x2="{high}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return whisker + dot(number, _x(axis, left, 100 * cell.score), y, f"<title>{escape(tip)}</title>")


def _x(axis: Axis, left: float, score: float) -> float:
    return left + (WIDTH - _RIGHT - left) * axis.place(score)


def _tip(label: str, column: Column, cell: Cell) -> str:
    interval = "" if cell.interval is None else f" ({interval_x100(cell.interval)})"
    return f"{label}, {column.title}: {x100(cell.score)}{interval}"


def _cut(name: str) -> str:
    return name if len(name) <= _MOST_LETTERS else name[: _MOST_LETTERS - 1] + "…"


_FLOAT32_BYTES = 4


def choices_section(board: Leaderboard) -> str:
    """Return what "auto" chose for each task, and why; nothing where it chose nothing."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in board.rows:
        for name, task in row.tasks.items():
            if task.choice is not None:
                found.setdefault((row.label, task.choice["chosen"], task.choice["reason"]), []).append(name)
    if not found:
        return ""
    rows = [(label, ", ".join(tasks), chosen, reason) for (label, chosen, reason), tasks in found.items()]
    return section(
        "choices",
        "What auto chose",
        lead("From the texts alone: auto never sees a label."),
        table("What auto chose", ("model", "tasks", "chosen", "why"), rows),
    )


def cost_section(board: Leaderboard) -> str:
    """Return time and memory of every file's run."""
    results = [(row.label, file.path, file.result) for row in board.rows for file in row.files]
    environments = list(dict.fromkeys(_environment(result) for *_, result in results))
    rows = [
        (label, path, f"{1 + environments.index(_environment(result))}", *_cost(result))
        for label, path, result in results
    ]
    columns = (
        *("model", "file", "environment", "texts", "encoding, s", "texts a second", "in all, s"),
        *("dimensions", "bytes a vector, MB a million", "texts cut"),
    )
    return section(
        "cost",
        "Speed and memory",
        lead(
            "One run each, its start included; texts are distinct ones, vectors float32. Times can be compared only "
            "where the environment is the same."
        ),
        table("Speed and memory", columns, rows, numbers=range(2, 10)),
        lead(*(f"Environment {number}: {told}." for number, told in enumerate(environments, start=1))),
    )


def _cost(result: EvaluationResult) -> tuple[str, ...]:
    dims = sorted({task.dim for task in result.tasks.values()})
    speed = f"{result.n_texts / result.encode_s:,.0f}" if result.encode_s > 0 else NONE
    sizes = [_FLOAT32_BYTES * dim for dim in dims]
    return (
        f"{result.n_texts:,}",
        f"{result.encode_s:,.2f}",
        speed,
        f"{result.elapsed_s:,.2f}",
        *(_span(numbers) for numbers in (dims, sizes)),
        f"{result.n_cut:,}",
    )


def _span(numbers: Sequence[int]) -> str:
    ends = dict.fromkeys((numbers[0], numbers[-1])) if numbers else ()
    return " to ".join(f"{number:,}" for number in ends)


def _environment(result: EvaluationResult) -> str:
    of = result.environment
    versions = ", ".join(f"{name} {version}" for name, version in of["versions"].items())
    return f"{of['system']} {of['machine']}, {of['n_cpus']} CPUs; {versions}"


def small_print_section(board: Leaderboard) -> str:
    """Return protocol, data and circumstances of every score."""
    return section(
        "small-print",
        "Small print",
        lead(
            "Intervals are 95 % percentile bootstrap intervals over the items of a task. Only scores of the same data "
            "by the same protocol share a column. Averages are unweighted and have no interval."
        ),
        folded("Protocol of every task", _protocols(board)),
        folded("Data", _data(board)),
        *(folded(row.label, _circumstances(row)) for row in board.rows),
    )


def _protocols(board: Leaderboard) -> str:
    rows = []
    for column in board.columns:
        if not column.is_average:
            task = next(row.tasks[column.title] for row in board.rows if row.label in column.cells)
            rows.append(
                (column.title, kind_title(column.kind), column.metric, f"{task.n_items:,}", _settings(task.protocol))
            )
    return table("Protocol of every task", ("task", "kind", "judged by", "items", "settings"), rows, numbers=[3])


def _data(board: Leaderboard) -> str:
    used: dict[tuple[str, str], dict[str, None]] = {}
    for row in board.rows:
        for name, task in row.tasks.items():
            for file in task.data.items():
                used.setdefault(file, {})[name] = None
    rows = [(path, ", ".join(tasks), checksum) for (path, checksum), tasks in used.items()]
    return table("Data", ("file", "tasks", "SHA-256"), rows)


def _circumstances(row: Row) -> str:
    result = row.files[0].result
    kinds: dict[str, dict[str, TaskResult]] = {}
    for name, task in row.tasks.items():
        kinds.setdefault(task.kind, {})[name] = task
    return "".join(
        [
            table(row.label, ("what", "value"), _facts(row, result)),
            *(_all_scores(f"{row.label}: {kind_title(kind)}", tasks) for kind, tasks in kinds.items()),
        ]
    )


def _facts(row: Row, result: EvaluationResult) -> Iterable[tuple[str, str]]:
    model, fitting = result.model, result.fitting
    yield "reference", model["reference"]
    yield "options", _settings(model["options"])
    for step in steps_of(result):
        yield "behind it", f"{step.transform} ({_settings(step.parameters)}), fitted on {step.source}"
    source = "the texts of each task, without labels" if fitting["fit"] == TARGET else fitting["fit"]
    yield "fitted for the evaluation on", source or "nothing"
    yield "transductive", "yes: on the texts that are scored" if fitting["transductive"] else "no"
    for task, counts in row.overlap.items():
        told = f"{counts['n_same']:,} of {counts['n_texts']:,} the same, {counts['n_near']:,} the same or nearly"
        yield f"texts of {task} in the corpus", told
    yield "fingerprint", model["fingerprint"]
    for file in row.files:
        yield file.path, f"seed {file.result.seed}, {file.result.n_resamples:,} resamples, {_environment(file.result)}"


def _all_scores(name: str, tasks: Mapping[str, TaskResult]) -> str:
    metrics = list(dict.fromkeys(metric for task in tasks.values() for metric in task.scores))
    counts = ("items", "dimensions", "texts without a vector", "unknown tokens", "fitting and scoring, s")
    rows = [
        (
            task_name,
            f"{task.n_items:,}",
            f"{task.dim:,}",
            f"{task.n_zero_rows:,}",
            f"{task.n_unknown:,} of {task.n_tokens:,}" if task.n_tokens else NONE,
            f"{task.elapsed_s:,.2f}",
            *(_score(metric, task) for metric in metrics),
        )
        for task_name, task in tasks.items()
    ]
    return table(name, ("task", *counts, *metrics), rows, numbers=range(1, 6 + len(metrics)))


def _score(metric: str, task: TaskResult) -> str:
    if metric not in task.scores:
        return NONE
    if metric in ERRORS:
        return f"{task.scores[metric]:.4f}"
    interval = f" ({interval_x100(task.intervals[metric])})" if metric in task.intervals else ""
    return x100(task.scores[metric]) + interval


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or NONE


HOW = AGGREGATIONS[0]
_LINE_study_sections = '<polyline class="{}" points="1,7 23,7"/>'


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
        key((_LINE_study_sections.format(style), name) for name, style in names.items()),
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


def layers_section(cells: Sequence[LayerCell]) -> str:
    """Return heat maps of pairs of layers, and the best set of every size, for each model; nothing without cells."""
    blocks = []
    for number, (name, own) in enumerate(by_model(cells)):
        entries = key((_LINE_study_sections.format(line_style(line)), title(of)) for line, of in enumerate(TRANSFORMS))
        description = "Of all sets that were scored. The labels chose: it is a bound, no recipe."
        best = drawing(
            f"best-{number}", (WIDTH, HEIGHT), "Best sets of layers", description, best_panel(own, HOW, (0, 0))
        )
        more = figure("The best set of every size", description, best, entries)
        blocks.append(_block(name, own, [*_maps(f"layers-{number}", pair_maps(own, HOW)), more]))
    about = "The diagonal holds single layers, what lies below it the means of two; the highest cell is framed."
    return section("layers", "Layers", lead(about), *blocks) if blocks else ""


def pooling_section(cells: Sequence[LayerCell]) -> str:
    """Return heat maps of poolings by layers, for each model; nothing without cells."""
    blocks = [
        _block(name, own, _maps(f"pooling-{number}", pooling_maps(own, HOW)))
        for number, (name, own) in enumerate(by_model(cells))
    ]
    return section("pooling", "Poolings", lead("The highest cell of each map is framed."), *blocks) if blocks else ""


def _block(name: str, cells: Sequence[LayerCell], figures: Sequence[str]) -> str:
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


_CONTENTS = re.compile(r'<section id="([\w-]+)"><h2>(.*?)</h2>')


def html_report(data: ReportData, board: Leaderboard) -> str:
    """Write the page."""
    sections = [
        *([_leaderboard(board), _by_task(board)] if board.rows else []),
        dims_section(data.dims),
        layers_section(data.layers),
        pooling_section(data.pooling),
        choices_section(board),
        auto_section(data.auto),
        *([cost_section(board), small_print_section(board)] if board.rows else []),
    ]
    title = report_title(data, board)
    contents = (_CONTENTS.findall(part)[:1] for part in sections)
    nav = "".join(f'<a href="#{name}">{heading}</a>' for found in contents for name, heading in found)
    css, script = (
        (files("isosent.report") / name).read_text("utf-8") for name in ("results_page.css", "results_page.js")
    )
    header = (
        f'<header><p class="made">isosent report<button type="button" id="theme" hidden>Dark</button></p>'
        f"<h1>{escape(title)}</h1><nav>{nav}</nav></header>"
    )
    footer = f"<footer>isosent {escape(version('isosent'))}</footer>"
    body = "".join([header, *sections, footer])
    return html_document(f"isosent report: {title}", body, css=css + colour_rules(), script=script)


def report_title(data: ReportData, board: Leaderboard) -> str:
    """Say in a few words what a report is of."""
    if not board.rows:
        shown = ("dims", data.dims), ("layers", data.layers), ("pooling", data.pooling), ("auto", data.auto)
        return f"Studies of {', '.join(name for name, study in shown if study)}"
    n_models = len(board.rows)
    n_tasks = len({(column.kind, column.title) for column in board.columns if not column.is_average})
    return f"{n_models} model{'s' * (n_models > 1)} on {n_tasks} task{'s' * (n_tasks > 1)}"


def _leaderboard(board: Leaderboard) -> str:
    return section(
        "leaderboard",
        "Leaderboard",
        lead(
            "Scores times 100, with 95 % intervals. A star marks the best of a column only where it beats the second "
            "beyond chance, in a paired test on the same items (p < 0.05, for tasks after Holm's correction)."
        ),
        listed(board.notes),
        score_table(board),
        '<p id="sorted" class="unseen" role="status"></p>',
    )


def _by_task(board: Leaderboard) -> str:
    labels = [row.label for row in board.rows]
    plots = (
        figure(
            kind_title(kind),
            "",
            DotPlot(columns, labels).drawing(f"dots-{number}", f"{kind_title(kind)}: scores by task"),
        )
        for number, (kind, columns) in enumerate(board.kinds.items())
    )
    return section(
        "tasks",
        "Task by task",
        lead("Dots are scores, lines their 95 % intervals."),
        key((dot(number, 12, 7), label) for number, label in enumerate(labels)),
        f'<div class="figures">{"".join(plots)}</div>',
    )
