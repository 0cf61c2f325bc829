"""What auto chose, what it cost, and the small print: under which circumstances every score was measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isosent.evaluation.protocol import TARGET
from isosent.evaluation.result import ERRORS, EvaluationResult, TaskResult
from isosent.evaluation.tables import interval_x100, x100
from isosent.reporting.html_parts import NONE, folded, lead, section, table
from isosent.reporting.leaderboard import Leaderboard
from isosent.reporting.naming import steps_of
from isosent.reporting.rows import Row
from isosent.reporting.score_table import kind_title

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
