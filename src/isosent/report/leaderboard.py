"""The leaderboard as an HTML table that can be sorted."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import PurePath
from typing import Any

import numpy as np

from isosent.encoders.base import Progress
from isosent.evaluation.compare import compare_results
from isosent.evaluation.result import EvaluationResult, TaskResult
from isosent.evaluation.run import TARGET
from isosent.evaluation.tables import interval_x100, x100
from isosent.numeric.statistics import LEVEL, holm
from isosent.pages.html import NONE, breakable, scrolling
from isosent.report.result_files import ResultFile
from isosent.transforms.auto import LEAVE

_LONGEST_REFERENCE, _PARTS_SHOWN = 28, 2


@dataclass(frozen=True, slots=True)
class Step:
    """Something fitted behind an encoder."""

    transform: str  # what
    parameters: Mapping[str, Any]  # its settings
    source: str  # what on


def steps_of(result: EvaluationResult) -> list[Step]:
    """List what stands behind the encoder: what came with the model, then what was fitted for the evaluation."""
    fitting = result.fitting
    steps = [Step(fit["transform"], fit["parameters"], fit["source"]) for fit in result.model["fits"]]
    if fitting["transform"] is not None:
        if fitting["fit"] != TARGET:  # the model was fitted once for all tasks, and says so itself
            steps.pop()
        steps.append(Step(fitting["transform"], fitting["parameters"], fitting["fit"]))
    return [step for step in steps if step.transform != LEAVE]


def identity_of(result: EvaluationResult) -> str:
    """Write down model and settings, the same for any two results that measured the same thing."""
    fits = [{**fit, "fitted_at": None} for fit in result.model["fits"]]
    return json.dumps([{**result.model, "fits": fits}, {**result.fitting, "overlap": None}], sort_keys=True)


def labels_of(results: Sequence[EvaluationResult]) -> list[str]:
    """Name models by reference and transforms, and by those settings that tell namesakes apart."""
    names = [
        " + ".join([short_reference(result.model["reference"]), *(step.transform for step in steps_of(result))])
        for result in results
    ]
    settings = [_settings_of(result) for result in results]
    labels = []
    for name, own in zip(names, settings, strict=True):
        namesakes = [of for other, of in zip(names, settings, strict=True) if other == name]
        told = [name]
        for key, value in own.items():
            alike = [of for of in namesakes if of.get(key) == value]
            if len(alike) < len(namesakes) and value is not None:
                told.append(f"{key}={value}")
            namesakes = alike
        labels.append(", ".join(told))
    return labels


def short_reference(reference: str) -> str:
    """Shorten a long path to its end, for a label; the small print has the whole."""
    kind, colon, path = reference.rpartition(":")
    parts = path.split("/")
    if len(reference) <= _LONGEST_REFERENCE or len(parts) <= _PARTS_SHOWN:
        return reference
    return "/".join([f"{kind}{colon}…", *parts[-_PARTS_SHOWN:]])


def _settings_of(result: EvaluationResult) -> dict[str, Any]:
    settings = dict(result.model["options"])
    for step in steps_of(result):
        settings |= step.parameters
    return settings | {"fitted on": result.fitting["fit"]}


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A model with what was fitted for the evaluation, and all that was measured of it."""

    label: str  # what it is called; no two rows are called the same
    # What it was read from: of one model and the same settings, and no task in two of them
    files: tuple[ResultFile, ...]

    @property
    def tasks(self) -> dict[str, TaskResult]:
        """The tasks of all files."""
        return {name: task for file in self.files for name, task in file.result.tasks.items()}

    @property
    def result(self) -> EvaluationResult:
        """The first result with the tasks of all."""
        return replace(self.files[0].result, tasks=self.tasks)

    @property
    def overlap(self) -> dict[str, Mapping[str, int]]:
        """By task, how much of it is in the corpus that was fitted on, see `count_overlap`; nothing without one."""
        return {name: of for file in self.files for name, of in file.result.fitting.get("overlap", {}).items()}

    @property
    def paths(self) -> list[str]:
        """The files."""
        return [file.path for file in self.files]


def make_rows(files: Sequence[ResultFile]) -> tuple[list[Row], list[str]]:
    """Put result files together to rows: files of one model and the same settings share a row unless they share a
    task."""  # noqa: D205, D209
    parts: list[list[ResultFile]] = []
    for file in files:
        alike = [part for part in parts if identity_of(part[0].result) == identity_of(file.result)]
        free = [part for part in alike if not any(file.result.tasks.keys() & own.result.tasks for own in part)]
        if free:
            free[0].append(file)
        else:
            parts.append([file])
    labels = labels_of([part[0].result for part in parts])
    rows, notes = [], []
    for label, part in zip(labels, parts, strict=True):
        namesakes = [other for name, other in zip(labels, parts, strict=True) if name == label]
        told_apart = f"{label} ({_name_of(part[0], files)})" if len(namesakes) > 1 else label
        rows.append(Row(told_apart, tuple(part)))
        if len(namesakes) > 1 and part is namesakes[0]:
            paths = " and ".join(", ".join(file.path for file in other) for other in namesakes)
            same = len({identity_of(other[0].result) for other in namesakes}) == 1
            what = "the same model and settings" if same else "models that are described alike, not of the same space"
            notes.append(f"{paths} are of {what} ({label}): the names of the files tell them apart.")
    return rows, notes


def _name_of(file: ResultFile, files: Sequence[ResultFile]) -> str:
    """The name of a file, its whole path where several have that name."""
    name = PurePath(file.path).name
    return name if [PurePath(other.path).name for other in files].count(name) == 1 else file.path


@dataclass(frozen=True, slots=True, eq=False)
class BestTest:
    """The two best of a column."""

    tasks: tuple[str, ...]  # the task, or those of an average
    first: Row  # the best and the second best
    second: Row  # the best and the second best

    @property
    def is_average(self) -> bool:
        """Whether averages are set against each other."""
        return len(self.tasks) > 1

    @property
    def has_items(self) -> bool:
        """Whether both were written with what was measured item by item."""
        return all(len(row.tasks[task].items.values) for row in (self.first, self.second) for task in self.tasks)


def are_won(best_tests: Sequence[BestTest], advance: Progress | None) -> list[bool]:
    """Test contests."""
    p_values: dict[BestTest, float] = {}
    of_tasks: dict[tuple[Row, Row, str], float] = {}
    for best_test in sorted(
        best_tests, key=lambda best_test: -len(best_test.tasks)
    ):  # an average tests its tasks on the way
        pair = best_test.first, best_test.second
        if best_test.is_average or (*pair, best_test.tasks[0]) not in of_tasks:
            names = best_test.second.label, best_test.first.label
            found = compare_results(best_test.second.result, best_test.first.result, names=names, tasks=best_test.tasks)
            of_tasks |= {(*pair, task): of.p_value for task, of in found.tasks.items()}
        if best_test.is_average:
            (average,) = found.averages.values()
            p_values[best_test] = average.p_value
        else:
            p_values[best_test] = of_tasks[*pair, best_test.tasks[0]]
        if advance is not None:
            advance(1)
    single = [best_test for best_test in best_tests if not best_test.is_average]
    p_values |= zip(single, holm([p_values[best_test] for best_test in single]), strict=True)
    return [p_values[best_test] < 1 - LEVEL for best_test in best_tests]


_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """A score."""

    score: float  # in [-1, 1]; NaN where undefined
    interval: tuple[float, float] | None = None  # its 95 % interval; an average has none

    @property
    def whisker(self) -> tuple[float, float]:
        """Ends of the interval; the score itself where it has none or an undefined one."""
        if self.interval is None or any(map(math.isnan, self.interval)):
            return self.score, self.score
        return self.interval


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Scores that can be compared: of one task, of the same data by the same protocol; or averages of such scores."""

    kind: str  # family of the tasks, and what they are judged by
    metric: str  # family of the tasks, and what they are judged by
    tasks: tuple[str, ...]  # the task, or those of an average
    cells: Mapping[str, Cell]  # by the label of the row; a row without a task has none
    apart: str = ""  # what tells it from other columns of the same task
    best: str | None = None  # label of the row that is better than the second best beyond chance

    @property
    def is_average(self) -> bool:
        """Whether it is one of averages."""
        return len(self.tasks) > 1

    @property
    def title(self) -> str:
        """Its heading."""
        return "average" if self.is_average else self.tasks[0]

    @property
    def subtitle(self) -> str:
        """What must be known beside the heading to tell it from others of its kind."""
        return self.metric.replace("_", " ") if self.is_average else self.apart

    @property
    def ranked(self) -> list[str]:
        """Labels of the rows whose score is defined, the highest first."""
        known = {label: cell.score for label, cell in self.cells.items() if not math.isnan(cell.score)}
        return sorted(known, key=known.__getitem__, reverse=True)


@dataclass(frozen=True, slots=True, eq=False)
class Leaderboard:
    """Models and what they score."""

    rows: tuple[Row, ...]  # the models, in the order of the first column
    columns: tuple[Column, ...]  # kind by kind: averages, then tasks
    notes: tuple[str, ...]  # what a reader should know before comparing

    @property
    def kinds(self) -> dict[str, list[Column]]:
        """The columns by kind."""
        kinds = dict.fromkeys(column.kind for column in self.columns)
        return {kind: [column for column in self.columns if column.kind == kind] for kind in kinds}


def make_leaderboard(files: Sequence[ResultFile], *, progress: Callable[[int], Progress] | None = None) -> Leaderboard:
    """Lay out results."""
    # A task has several columns where results are of other data or another protocol. Averages are taken over tasks of
    # one kind that are judged by the same metric and have one column each; a row that lacks one of these has no
    # average.
    # The best of a column is marked where `compare_results` tells it from the second: for a task by a p-value below
    # 0.05 after Holm's correction over all columns of tasks, for an average by its own p-value.
    rows, notes = make_rows(files)
    columns = _with_averages(_task_columns(rows))
    order = columns[0].ranked if columns else []
    rows = sorted(rows, key=lambda row: order.index(row.label) if row.label in order else len(order))
    if len(rows) > 1 and not any(len(column.cells) > 1 for column in columns):
        notes.append("No two models were measured on the same task of the same data: nothing here can be compared.")
    notes += [*_split_tasks(columns), *_seen_texts(rows)]
    best_tests = {column: best_test for column in columns if (best_test := _contest(column, rows))}
    untested = [column for column, best_test in best_tests.items() if not best_test.has_items]
    if untested:
        names = ", ".join(dict.fromkeys(column.title for column in untested))
        notes.append(f"{names}: written without items, so that the best cannot be told from the second.")
    tested = [column for column in best_tests if column not in untested]
    won = are_won([best_tests[column] for column in tested], progress(len(tested)) if progress and tested else None)
    best = {column: best_tests[column].first.label for column, is_won in zip(tested, won, strict=True) if is_won}
    marked = (replace(column, best=best.get(column)) for column in columns)
    return Leaderboard(tuple(rows), tuple(marked), tuple(notes))


def _split_tasks(columns: Sequence[Column]) -> Iterator[str]:
    """Say which tasks were not measured alike."""
    for kind, title in dict.fromkeys((column.kind, column.title) for column in columns if column.apart):
        ways = [column.apart for column in columns if (column.kind, column.title) == (kind, title)]
        yield f"{title} has {len(ways)} columns, because it was not measured alike: {'; '.join(ways)}."


def _seen_texts(rows: Sequence[Row]) -> Iterator[str]:
    """Say which models were fitted on a corpus that holds texts of a task."""
    for row in rows:
        seen = [
            f"{counts['n_same']:,} of the {counts['n_texts']:,} texts of {task}"
            for task, counts in row.overlap.items()
            if counts["n_same"]
        ]
        if seen:
            yield f"{row.label} was fitted on a corpus that holds {', '.join(seen)}."


def _contest(column: Column, rows: Sequence[Row]) -> BestTest | None:
    """The two best of a column, where there are two."""
    named = {row.label: row for row in rows}
    first, second, *_ = [*column.ranked, "", ""]
    return BestTest(column.tasks, named[first], named[second]) if second else None


def _task_columns(rows: Sequence[Row]) -> list[Column]:
    """A column for each task and each way that it was measured, kind by kind."""
    measured: dict[tuple[str, str], dict[str, dict[str, TaskResult]]] = {}
    for row in rows:
        for name, task in row.tasks.items():
            ways = measured.setdefault((task.kind, name), {})
            ways.setdefault(json.dumps(_terms(task), sort_keys=True), {})[row.label] = task
    columns = [
        Column(
            kind=kind,
            metric=next(iter(tasks.values())).metric,
            tasks=(name,),
            cells={label: Cell(task.score, task.interval) for label, task in tasks.items()},
            apart=_apart(next(iter(tasks.values())), [next(iter(others.values())) for others in ways.values()]),
        )
        for (kind, name), ways in measured.items()
        for tasks in ways.values()
    ]
    kinds = list(dict.fromkeys(column.kind for column in columns))
    return sorted(columns, key=lambda column: kinds.index(column.kind))


def _terms(task: TaskResult) -> dict[str, Any]:
    """What must be the same for two scores to be compared; files count by their content."""
    data = hashlib.sha256("".join(sorted(set(task.data.values()))).encode()).hexdigest()[:_DIGITS]
    return {"metric": task.metric, "items": task.n_items, "data": data, **task.protocol}


def _apart(task: TaskResult, ways: Sequence[TaskResult]) -> str:
    """What tells one way to measure a task from the others."""
    own, others = _terms(task), [_terms(way) for way in ways]
    telling = dict.fromkeys(
        name for terms in others for name in terms if any(name not in of or of[name] != terms[name] for of in others)
    )
    return ", ".join(f"{name}: {own.get(name, 'none')}" for name in telling)


def _with_averages(columns: Sequence[Column]) -> list[Column]:
    """Put the averages of each kind before its tasks."""
    extended: list[Column] = []
    for kind in dict.fromkeys(column.kind for column in columns):
        own = [column for column in columns if column.kind == kind]
        for metric in dict.fromkeys(column.metric for column in own):
            members = [column for column in own if column.metric == metric and not column.apart]
            if len(members) > 1:
                extended.append(_average(members))
        extended += own
    return extended


def _average(members: Sequence[Column]) -> Column:
    labels = [label for label in members[0].cells if all(label in member.cells for member in members)]
    cells = {label: Cell(float(np.mean([member.cells[label].score for member in members]))) for label in labels}
    return Column(members[0].kind, members[0].metric, tuple(name for member in members for name in member.tasks), cells)


_SHORT_KIND = 3


def kind_title(kind: str) -> str:
    """Write a kind of task as a heading."""
    return kind.upper() if len(kind) <= _SHORT_KIND else kind.capitalize()


def score_table(board: Leaderboard) -> str:
    """Return the table: a row a model, a column a task, averages before the tasks of a kind."""
    kinds = "".join(
        f'<th scope="colgroup" colspan="{len(columns)}">{escape(kind_title(kind))}</th>'
        for kind, columns in board.kinds.items()
    )
    heads = "".join(_head(column, is_sorted=column is board.columns[0]) for column in board.columns)
    rows = "".join(f"<tr>{_model(row)}{''.join(_cell(c, row) for c in board.columns)}</tr>" for row in board.rows)
    model = '<th scope="col" class="model" rowspan="2" aria-sort="none"><button type="button">Model</button></th>'
    caption = "Scores times 100 with 95 % intervals. Press a heading to sort."
    return scrolling(
        "Leaderboard",
        f'<table class="scores"><caption>{caption}</caption><thead><tr>{model}{kinds}</tr><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table>",
    )


def _head(column: Column, *, is_sorted: bool) -> str:
    order = "descending" if is_sorted else "none"
    notes = [column.metric.replace("_", " "), *([column.apart] if column.apart else [])]
    told = "".join(f"<small>{escape(note)}</small>" for note in notes)
    title = f"average of {len(column.tasks)}" if column.is_average else column.title
    style = ' class="average"' if column.is_average else ""
    return f'<th scope="col"{style} aria-sort="{order}"><button type="button">{escape(title)}</button>{told}</th>'


def _model(row: Row) -> str:
    dims = sorted({task.dim for task in row.tasks.values()})
    told = [_fitted_on(row), f"{dims[0]} to {dims[-1]} dimensions" if len(dims) > 1 else f"{dims[0]} dimensions"]
    return f'<th scope="row">{breakable(row.label)}<small>{escape("; ".join(told))}</small></th>'


def _fitted_on(row: Row) -> str:
    source = row.files[0].result.fitting["fit"]
    if source is None:
        return "nothing fitted"
    return "fitted on the texts of each task" if source == TARGET else f"fitted on {source}"


def _cell(column: Column, row: Row) -> str:
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
