"""A report: results and studies as one HTML page that needs no other file and no network.

`html_report` puts the sections together: the leaderboard with its figures (`_leaderboard`, `_score_table`), those of
studies, which write their sections themselves, what auto chose (`_choices`), time and memory (`_cost`), and the
circumstances of every score (`_small_print`, `_all_scores`). Rows and columns are those of `report.leaderboard`,
pictures those of `report.figures`; this module only writes HTML. A section without data is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.metadata import version
from importlib.resources import files
from typing import Any

from isosent.evaluation.result import ERRORS, EvaluationResult, TaskResult, interval_x100, steps_of
from isosent.evaluation.run import TARGET
from isosent.evaluation.tables import x100
from isosent.pages.html import (
    NONE,
    THEME_BUTTON,
    breakable,
    bullets,
    figure_box,
    folded,
    html_document,
    lead,
    legend_list,
    scroll_box,
    section,
    table,
    theme_script,
)
from isosent.report.figures import model_legend, scores_figure
from isosent.report.leaderboard import STAR, Column, Leaderboard, ReportData, Row, kind_title
from isosent.transforms.base import AUTO

_CONTENTS = re.compile(r'<section id="([\w-]+)"><h2>(.*?)</h2>')
_FLOAT32_BYTES = 4


def html_report(data: ReportData, board: Leaderboard) -> str:
    """The page of a report."""
    sections = [
        *([_leaderboard(board), _by_task(board)] if board.rows else []),
        *(study.section() for study in data.studies if study.name != AUTO),
        _choices(board),  # and next to it how good such choices are
        *(study.section() for study in data.studies if study.name == AUTO),
        *([_cost(board), _small_print(board)] if board.rows else []),
    ]
    title = report_title(data, board)
    headings = (heading for part in sections for heading in _CONTENTS.findall(part)[:1])
    nav = "".join(f'<a href="#{name}">{heading}</a>' for name, heading in headings)
    css, script = (
        (files("isosent.report") / name).read_text("utf-8") for name in ("results_page.css", "results_page.js")
    )
    script = theme_script() + script
    header = (
        f'<header><p class="made">isosent report{THEME_BUTTON}</p><h1>{escape(title)}</h1><nav>{nav}</nav></header>'
    )
    footer = f"<footer>isosent {escape(version('isosent'))}</footer>"
    return html_document(f"isosent report: {title}", "".join([header, *sections, footer]), css=css, script=script)


def report_title(data: ReportData, board: Leaderboard) -> str:
    """What a report is about, in a few words."""
    if not board.rows:
        return f"Studies of {', '.join(study.name for study in data.studies)}"
    n_rows, n_models = len(board.rows), len({row.model for row in board.rows})
    n_tasks = len({(column.kind, column.tasks) for column in board.columns if not column.is_average})
    rows = f"{n_rows} rows of " * (n_rows > n_models)  # transforms of a model, or files
    return f"{rows}{n_models} model{'s' * (n_models > 1)} on {n_tasks} task{'s' * (n_tasks > 1)}"


def _leaderboard(board: Leaderboard) -> str:
    return section(
        "leaderboard",
        "Leaderboard",
        lead(f"Scores times 100, with 95% intervals. A star marks the best of a column where it is {STAR}."),
        bullets(board.notes),
        _score_table(board),
        '<p id="sorted" class="unseen" role="status"></p>',
    )


def _score_table(board: Leaderboard) -> str:
    """A row per model and a column per task, averages before the tasks of a kind."""
    kinds = "".join(
        f'<th scope="colgroup" colspan="{len(columns)}">{escape(kind_title(kind))}</th>'
        for kind, columns in board.kinds.items()
    )
    heads = []
    for number, column in enumerate(board.columns):
        order = "none" if number else "descending"
        notes = [column.metric.replace("_", " "), *([column.apart] if column.apart else [])]
        small = "".join(f"<small>{escape(note)}</small>" for note in notes)
        title = f"average of {len(column.tasks)}{column.mark}" if column.is_average else column.title
        style = ' class="average"' if column.is_average else ""
        button = f'<button type="button">{escape(title)}</button>'
        heads.append(f'<th scope="col"{style} aria-sort="{order}">{button}{small}</th>')
    rows = (
        f"<tr>{_model_cell(row)}{''.join(_score_cell(column, row) for column in board.columns)}</tr>"
        for row in board.rows
    )
    model = '<th scope="col" class="model" rowspan="2" aria-sort="none"><button type="button">Model</button></th>'
    caption = "Scores times 100 with 95% intervals. Click a heading to sort."
    return scroll_box(
        "Leaderboard",
        f'<table class="scores"><caption>{caption}</caption><thead><tr>{model}{kinds}</tr><tr>{"".join(heads)}</tr>'
        f"</thead><tbody>{''.join(rows)}</tbody></table>",
    )


def _model_cell(row: Row) -> str:
    dims = sorted({task.dim for task in row.tasks.values()})
    width = f"{dims[0]} to {dims[-1]} dimensions" if len(dims) > 1 else f"{dims[0]} dimensions"
    source = row.files[0].result.fitting["fit"]
    fitted = "nothing fitted" if source is None else f"fitted on {source}"
    fitted = "fitted on the texts of each task" if source == TARGET else fitted
    return f'<th scope="row">{breakable(row.label)}<small>{escape(f"{fitted}; {width}")}</small></th>'


def _score_cell(column: Column, row: Row) -> str:
    if row.label not in column.cells:
        return f'<td class="none">{NONE}<span class="unseen">not measured</span></td>'
    cell = column.cells[row.label]
    if math.isnan(cell.score):
        return '<td class="none">undefined</td>'
    interval = "" if cell.interval is None else f"<small>{interval_x100(cell.interval)}</small>"
    if column.best != row.label:
        return f'<td data-score="{cell.score:.9f}">{x100(cell.score)}{interval}</td>'
    mark = '<span class="star" aria-hidden="true">★</span><span class="unseen">best</span>'
    return f'<td class="best" data-score="{cell.score:.9f}">{mark} {x100(cell.score)}{interval}</td>'


def _by_task(board: Leaderboard) -> str:
    labels = [row.label for row in board.rows]
    plots = (
        figure_box(f"dots-{number}", scores_figure(kind, columns, labels), kind_title(kind), legend=False)
        for number, (kind, columns) in enumerate(board.kinds.items())
    )
    return section(
        "tasks",
        "Task by task",
        lead("Dots are scores, lines their 95% intervals."),
        legend_list(model_legend(labels)),
        f'<div class="figures">{"".join(plots)}</div>',
    )


def _choices(board: Leaderboard) -> str:
    """What auto chose for each task, and why."""
    tasks_of: dict[tuple[str, str], list[str]] = {}
    for row in board.rows:
        for name, task in row.tasks.items():
            if task.choice is not None:
                tasks_of.setdefault((row.label, task.choice["reason"]), []).append(name)
    if not tasks_of:
        return ""
    rows = [(label, ", ".join(tasks), reason) for (label, reason), tasks in tasks_of.items()]
    return section(
        "choices",
        "What auto chose",
        lead("Auto chooses from the texts alone and never sees a label."),
        table("What auto chose", ("model", "tasks", "verdict"), rows),
    )


def _cost(board: Leaderboard) -> str:
    """Time and memory of the run of every file."""
    results = [(row.label, file.path, file.result) for row in board.rows for file in row.files if file.result.n_texts]
    if not results:  # of MTEB alone, whose files say neither
        return ""
    environments = list(dict.fromkeys(_environment(result) for *_, result in results))
    rows = []
    for label, path, result in results:
        dims = sorted({task.dim for task in result.tasks.values()})
        speed = f"{result.n_texts / result.encode_s:,.0f}" if result.encode_s > 0 else NONE
        environment = f"{1 + environments.index(_environment(result))}"
        times = (f"{result.n_texts:,}", f"{result.encode_s:,.2f}", speed, f"{result.elapsed_s:,.2f}")
        sizes = (_range(dims), _range([_FLOAT32_BYTES * dim for dim in dims]))
        rows.append((label, path, environment, *times, *sizes, f"{result.n_cut:,}"))
    columns = (
        *("model", "file", "environment", "texts", "encoding (s)", "texts/s", "total (s)"),
        *("dimensions", "bytes per vector, MB per million", "texts cut"),
    )
    return section(
        "cost",
        "Speed and memory",
        lead(
            "One run each, start-up included, over distinct texts; vectors are float32. Compare times only within the "
            "same environment."
        ),
        table("Speed and memory", columns, rows, numbers=range(2, 10)),
        lead(*(f"Environment {number}: {text}." for number, text in enumerate(environments, start=1))),
    )


def _range(numbers: Sequence[int]) -> str:
    ends = dict.fromkeys((numbers[0], numbers[-1])) if numbers else ()
    return " to ".join(f"{number:,}" for number in ends)


def _environment(result: EvaluationResult) -> str:
    facts = result.environment
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return f"{facts['system']} {facts['machine']}, {facts['n_cpus']} CPUs; {versions}"


def _small_print(board: Leaderboard) -> str:
    """Protocol, data and circumstances of every score."""
    return section(
        "small-print",
        "Details",
        lead(
            "Intervals are 95% percentile bootstrap intervals over the items of a task. Scores share a column only if "
            "data and protocol are the same. Averages are unweighted; for their intervals the items of each task are "
            "drawn apart."
        ),
        folded("Protocol of every task", _protocols(board)),
        folded("Data", _data(board)),
        *(folded(row.label, _circumstances(row)) for row in board.rows),
    )


def _protocols(board: Leaderboard) -> str:
    rows = []
    for column in board.columns:
        if not column.is_average:
            task = next(row.tasks[column.tasks[0]] for row in board.rows if row.label in column.cells)
            kind, settings = kind_title(column.kind), _settings(task.protocol)
            rows.append((column.title, kind, column.metric, f"{task.n_items:,}", settings))
    return table("Protocol of every task", ("task", "kind", "metric", "items", "settings"), rows, numbers=[3])


def _data(board: Leaderboard) -> str:
    tasks_of: dict[tuple[str, str], dict[str, None]] = {}
    for row in board.rows:
        for name, task in row.tasks.items():
            for file in task.data.items():
                tasks_of.setdefault(file, {})[name] = None
    rows = [(path, ", ".join(tasks), checksum) for (path, checksum), tasks in tasks_of.items()]
    return table("Data", ("file", "tasks", "SHA-256"), rows)


def _circumstances(row: Row) -> str:
    kinds: dict[str, dict[str, TaskResult]] = {}
    for name, task in row.tasks.items():
        kinds.setdefault(task.kind, {})[name] = task
    facts = table(row.label, ("what", "value"), _facts(row, row.files[0].result))
    scores = (_all_scores(f"{row.label}: {kind_title(kind)}", tasks) for kind, tasks in kinds.items())
    return "".join([facts, *scores])


def _facts(row: Row, result: EvaluationResult) -> Iterable[tuple[str, str]]:
    model, fitting = result.model, result.fitting
    yield "reference", model["reference"]
    yield "options", _settings(model["options"])
    for step in steps_of(result):
        yield "transform", f"{step.transform} ({_settings(step.parameters)}), fitted on {step.source}"
    source = "the texts of each task, without labels" if fitting["fit"] == TARGET else fitting["fit"]
    yield "fitted for the evaluation on", source or "nothing"
    yield "transductive", "yes: on the texts that are scored" if fitting["transductive"] else "no"
    for task, counts in row.overlap.items():
        shares = f"{counts['n_same']:,} of {counts['n_texts']:,} the same"
        if "n_near" in counts:  # unknown of a distilled model, which keeps hashes of its texts
            shares += f", {counts['n_near']:,} the same or nearly"
        yield f"texts of {task} in the corpus", shares
    yield "fingerprint", model["fingerprint"]
    for file in row.files:
        yield file.path, f"seed {file.result.seed}, {file.result.n_resamples:,} resamples, {_environment(file.result)}"


def _all_scores(name: str, tasks: Mapping[str, TaskResult]) -> str:
    metrics = list(dict.fromkeys(metric for task in tasks.values() for metric in task.scores))
    counts = ("items", "dimensions", "texts without a vector", "unknown tokens", "fitting and scoring (s)")
    rows = [
        (
            task_name + task.mark,
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
    return x100(task.scores[metric]) + interval + task.mark


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items()) or NONE
