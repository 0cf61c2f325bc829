"""Result files become the rows and columns of a leaderboard, and the best of a column is tested.

`read_report` reads files of results and studies into `ReportData`; what studies are is known to the package at the
edge, which is imported by name when a report has one (`EDGE`). `make_leaderboard` lays out the results: `make_rows`
gives each model with its settings a `Row`, named as briefly as tells it apart (`labels_of`); `_task_columns` gives a
`Column` to each task and each way in which it was measured, because only equal terms may share one (`_terms`);
`_with_averages` adds those of each kind. `_significant` tests whether the best of a column beats the second best.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import pairwise
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np

from isosent.errors import InputError, InputTypeError, wrong_value
from isosent.evaluation.compare import (
    ALL_TASKS,
    BETTER,
    LEAST_TASKS,
    compare_over_tasks,
    compare_results,
    means_of_tasks,
)
from isosent.evaluation.mteb import BENCHMARK
from isosent.evaluation.result import (
    EvaluationResult,
    TaskResult,
    interval_rows,
    interval_x100,
    labels_of,
    seen_notes,
    texts_in_corpus,
)
from isosent.evaluation.result_file import is_result, read_result
from isosent.evaluation.sizes import deviation_note
from isosent.evaluation.tables import x100
from isosent.numeric.statistics import LEVEL, N_RESAMPLES, holm
from isosent.pages.figures import Figure
from isosent.pages.progress import Progress, counted
from isosent.space import hash_of

EDGE = "isosent.research.sections"  # reads the files of studies, and shows them; above this package
# What a star says
STAR = (
    f"significantly better than the second best, in a paired test on the same items (p < {1 - LEVEL:.2g}; stars of "
    "tasks are corrected by Holm's method, that of an average is not)"
)
_CHECKSUM_DIGITS = 8
_ACRONYM = 3


class ResultFile(NamedTuple):
    """A result, and the file that holds it, perhaps with the results of other transforms."""

    path: str
    result: EvaluationResult


class StudyPart(NamedTuple):
    """What the files of one kind of study add to a report."""

    name: str  # dims, layers, pooling or auto
    section: Callable[[], str]  # HTML
    figure: Callable[[], Figure] | None = None


class ReportData(NamedTuple):
    """What a report is made of."""

    results: tuple[ResultFile, ...] = ()
    studies: tuple[StudyPart, ...] = ()  # in the order of their sections


def read_report(paths: Sequence[str | os.PathLike[str]]) -> ReportData:
    """Read results of evaluations and studies; the content of a file shows which it is."""
    if isinstance(paths, (str, os.PathLike)):
        raise wrong_value("report", "paths", "be a sequence of files", "one path", "Pass [path].", error=InputTypeError)
    names = [os.fspath(path) for path in paths]
    if not names:
        raise InputError("report: name at least one result file. isosent evaluate ... -o OUT.json writes one.")
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise InputError(f"report: {repeated[0]} is named {names.count(repeated[0])} times. Name each file once.")
    results: list[ResultFile] = []
    studies: list[Any] = []
    for name in names:
        if is_result(name):
            result = read_result(name)
            by_identity = {_identity(each): each for each in (result, *result.variants)}
            results += [ResultFile(name, each) for each in by_identity.values()]
        else:
            studies.append(import_module(EDGE).read_shown_study(name))
    return ReportData(tuple(results), import_module(EDGE).study_parts(studies) if studies else ())


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A model with its transforms, and all files of its results, no two of which hold the same task."""

    label: str  # unique in a leaderboard
    files: tuple[ResultFile, ...]

    @property
    def tasks(self) -> dict[str, TaskResult]:
        return {name: task for file in self.files for name, task in file.result.tasks.items()}

    @property
    def result(self) -> EvaluationResult:
        """The first result with the tasks of all files."""
        return replace(self.files[0].result, tasks=self.tasks)

    @property
    def overlap(self) -> dict[str, Mapping[str, int]]:
        """By task, how many of its texts are in the corpus that was fitted on or distilled from; empty without one."""
        return texts_in_corpus(file.result for file in self.files)

    @property
    def model(self) -> str:
        """The model without what was fitted after its encoder, equal for all transforms of it."""
        model = self.files[0].result.model
        return json.dumps([model["reference"], model["options"]], sort_keys=True)

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self.files]


class Cell(NamedTuple):
    """A score in [-1, 1], NaN where undefined, and its 95% interval; None without items."""

    score: float
    interval: tuple[float, float] | None = None

    @property
    def whisker(self) -> tuple[float, float]:
        """Ends of the interval; the score itself without a defined one."""
        if self.interval is None or any(map(math.isnan, self.interval)):
            return self.score, self.score
        return self.interval

    @property
    def text(self) -> str:
        return x100(self.score) + ("" if self.interval is None else f" ({interval_x100(self.interval)})")


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Comparable scores: of one task on the same data under the same protocol, or averages of such scores."""

    kind: str
    metric: str
    tasks: tuple[str, ...]  # one task, or those of an average
    cells: Mapping[str, Cell]  # by label of the row
    apart: str = ""  # how it differs from other columns of the same task
    best: str | None = None  # label of the row that is significantly better than the second best
    mark: str = ""  # what follows its title: a dagger if its scores are not comparable with published ones

    @property
    def is_average(self) -> bool:
        return len(self.tasks) > 1

    @property
    def title(self) -> str:
        return ("average" if self.is_average else self.tasks[0]) + self.mark

    @property
    def subtitle(self) -> str:
        return self.metric.replace("_", " ") if self.is_average else self.apart

    @property
    def ranked(self) -> list[str]:
        """Labels of the rows whose score is defined, the highest first."""
        defined = {label: cell.score for label, cell in self.cells.items() if not math.isnan(cell.score)}
        return sorted(defined, key=defined.__getitem__, reverse=True)


@dataclass(frozen=True, slots=True, eq=False)
class Leaderboard:
    """Models and their scores."""

    rows: tuple[Row, ...]  # ordered by the first column
    columns: tuple[Column, ...]  # by kind: averages, then tasks
    notes: tuple[str, ...]  # what to know before comparing

    @property
    def kinds(self) -> dict[str, list[Column]]:
        kinds = dict.fromkeys(column.kind for column in self.columns)
        return {kind: [column for column in self.columns if column.kind == kind] for kind in kinds}

    def table(self, *, has_intervals: bool = False) -> tuple[list[str], list[list[str]]]:
        """Headings and rows as text, scores x100; a star marks the best of a column. Intervals have separate rows."""
        heads = [f"{column.title}{f' ({column.subtitle})' if column.subtitle else ''}" for column in self.columns]
        rows = []
        for row in self.rows:
            cells = [column.cells.get(row.label) for column in self.columns]
            marks = ["*" if column.best == row.label else "" for column in self.columns]
            scores = ["" if cell is None else x100(cell.score) + mark for cell, mark in zip(cells, marks, strict=True)]
            rows.append([row.label, *scores])
            if has_intervals:
                rows += interval_rows([cell and cell.interval for cell in cells])
        return ["model", *heads], rows


def kind_title(kind: str) -> str:
    return kind.upper() if len(kind) <= _ACRONYM else kind.capitalize()


def make_leaderboard(files: Sequence[ResultFile], *, progress: Progress | None = None) -> Leaderboard:
    """Lay out results.

    A task has several columns where results differ in data or protocol. Averages are over tasks of one kind with the
    same metric and one column each; a row without one of these tasks has no average.
    """
    rows, notes = make_rows(files)
    columns = _with_averages(_task_columns(rows), {row.label: row.result for row in rows})
    order = columns[0].ranked if columns else []
    rows = sorted(rows, key=lambda row: order.index(row.label) if row.label in order else len(order))
    if len(rows) > 1 and not any(len(column.cells) > 1 for column in columns):
        notes.append("No two models were measured on the same task of the same data: nothing here can be compared.")
    notes += [*_deviations(rows), *_split_tasks(columns), *_seen_texts(rows), *_close_ranks(rows, columns)]
    row_of = {row.label: row for row in rows}
    two_best = {column: [row_of[label] for label in column.ranked[:2]] for column in columns if len(column.ranked) > 1}
    untested = [
        column
        for column, pair in two_best.items()
        if not all(len(row.tasks[task].items.values) for row in pair for task in column.tasks)
    ]
    if untested:
        names = ", ".join(dict.fromkeys(column.title for column in untested))
        notes.append(
            f"{names}: no interval, or no test of the best against the second, because a file has no scores of single "
            f"items. Files of {BENCHMARK} have none."
        )
    tested = {column: (first, second) for column, (first, second) in two_best.items() if column not in untested}
    best = _significant(tested, progress if tested else None)
    marked = tuple(replace(column, best=best.get(column)) for column in columns)
    return Leaderboard(tuple(rows), marked, tuple(notes))


def make_rows(files: Sequence[ResultFile]) -> tuple[list[Row], list[str]]:
    """Rows of a leaderboard, and notes on them. Files of one model and the same settings share a row unless they share
    a task."""  # noqa: D205, D209
    groups: list[list[ResultFile]] = []
    for file in files:
        for group in groups:
            alike = _identity(group[0].result) == _identity(file.result)
            if alike and not any(file.result.tasks.keys() & other.result.tasks for other in group):
                group.append(file)
                break
        else:
            groups.append([file])
    labels = labels_of([group[0].result for group in groups])
    file_names = [PurePath(file.path).name for file in files]
    rows, notes = [], []
    for label, group in zip(labels, groups, strict=True):
        namesakes = [other for name, other in zip(labels, groups, strict=True) if name == label]
        if len(namesakes) == 1:
            rows.append(Row(label, tuple(group)))
            continue
        name = PurePath(group[0].path).name
        rows.append(Row(f"{label} ({name if file_names.count(name) == 1 else group[0].path})", tuple(group)))
        if group is namesakes[0]:
            paths = " and ".join(", ".join(file.path for file in other) for other in namesakes)
            is_same = len({_identity(other[0].result) for other in namesakes}) == 1
            what = "the same model and settings" if is_same else "models of the same description but different vectors"
            notes.append(f"{paths} are of {what} ({label}). Their rows carry the names of the files.")
    return rows, notes


def _identity(result: EvaluationResult) -> str:
    """Model and settings, equal for any two results that measured the same thing."""
    fits = [{**fit, "fitted_at": None} for fit in result.model["fits"]]
    fitting = {**result.fitting, "overlap": None, "distilled_from": None}
    model = {**result.model, "fits": fits, "fingerprint": hash_of(result.model["fingerprint"])}
    return json.dumps([model, fitting], sort_keys=True)


def _task_columns(rows: Sequence[Row]) -> list[Column]:
    """A column for each task and each way it was measured, by kind."""
    measured: dict[tuple[str, str], dict[str, TaskResult]] = {}
    for row in rows:
        for name, task in row.tasks.items():
            measured.setdefault((task.kind, name), {})[row.label] = task
    columns = []
    for (kind, name), results in measured.items():
        ways = _ways(name, results)
        firsts = [next(iter(tasks.values())) for tasks in ways]
        for first, tasks in zip(firsts, ways, strict=True):
            cells = {label: _cell(task) for label, task in tasks.items()}
            mark = next((task.mark for task in tasks.values() if task.mark), "")
            columns.append(Column(kind, first.metric, (name,), cells, apart=_apart(first, firsts), mark=mark))
    kinds = list(dict.fromkeys(column.kind for column in columns))
    return sorted(columns, key=lambda column: (kinds.index(column.kind), bool(column.mark)))


def _cell(task: TaskResult) -> Cell:
    """The score of a task, and its interval if there are items."""
    return Cell(task.score, task.interval if len(task.items.values) else None)


def _ways(name: str, tasks: Mapping[str, TaskResult]) -> list[dict[str, TaskResult]]:
    """Results of a task, by label, in groups that compare; one of MTEB joins the first group that it compares with."""
    ways: dict[str, dict[str, TaskResult]] = {}
    published = {label: task for label, task in tasks.items() if task.protocol.get("benchmark") == BENCHMARK}
    for label, task in tasks.items():
        if label not in published:
            ways.setdefault(json.dumps(_terms(task), sort_keys=True), {})[label] = task
    for label, task in published.items():
        alike = (way for way in ways.values() if next(iter(way.values())).mteb(name) == task.mteb(name))
        way = next(alike, None)
        if way is None:
            way = ways.setdefault(str(task.mteb(name)), {})
        way[label] = task
    return list(ways.values())


def _terms(task: TaskResult) -> dict[str, Any]:
    """What must be equal for two scores to be comparable; files count by their content."""
    data = hashlib.sha256("".join(sorted(set(task.data.values()))).encode()).hexdigest()[:_CHECKSUM_DIGITS]
    return {"metric": task.metric, "items": task.n_items, "data": data, **task.protocol}


def _apart(task: TaskResult, ways: Sequence[TaskResult]) -> str:
    """How one way to measure a task differs from the others."""
    terms, missing = [_terms(way) for way in ways], object()
    names = dict.fromkeys(name for each in terms for name in each)
    first = terms[0]
    differing = [name for name in names if any(each.get(name, missing) != first.get(name, missing) for each in terms)]
    return ", ".join(f"{name}: {_terms(task).get(name, 'none')}" for name in differing)


def _with_averages(columns: Sequence[Column], results: Mapping[str, EvaluationResult]) -> list[Column]:
    """Put the averages of each kind before its tasks."""
    extended: list[Column] = []
    for kind in dict.fromkeys(column.kind for column in columns):
        tasks = [column for column in columns if column.kind == kind]
        for metric in dict.fromkeys(column.metric for column in tasks):
            members = [column for column in tasks if column.metric == metric and not column.apart]
            if len(members) < 2:
                continue
            labels = [label for label in members[0].cells if all(label in member.cells for member in members)]
            names = tuple(name for member in members for name in member.tasks)
            means = {}
            for label in labels:
                mean = float(np.mean([member.cells[label].score for member in members]))
                interval = results[label].average_interval(names, metric)
                means[label] = Cell(mean, None if math.isnan(interval[0]) else interval)
            mark = next((member.mark for member in members if member.mark), "")
            extended.append(Column(kind, metric, names, means, mark=mark))
        extended += tasks
    return extended


def _deviations(rows: Sequence[Row]) -> Iterator[str]:
    differing = ((name, task.deviations) for row in rows for name, task in row.tasks.items() if task.deviations)
    yield from (f"{deviation_note(*each)}." for each in dict.fromkeys(differing))


def _split_tasks(columns: Sequence[Column]) -> Iterator[str]:
    for kind, tasks in dict.fromkeys((column.kind, column.tasks) for column in columns if column.apart):
        ways = [column.apart for column in columns if (column.kind, column.tasks) == (kind, tasks)]
        yield f"{tasks[0]} has {len(ways)} columns, because it was measured in different ways: {'; '.join(ways)}."


def _seen_texts(rows: Sequence[Row]) -> Iterator[str]:
    for row in rows:
        yield from seen_notes(row.label, row.overlap)


def _close_ranks(rows: Sequence[Row], columns: Sequence[Column]) -> Iterator[str]:
    """How many neighbors in the order by the mean over all tasks could change places with other tasks."""
    shared = {column.tasks[0] for column in columns if not column.is_average and not column.apart}
    complete = [row.tasks for row in rows if shared <= row.tasks.keys()] if len(shared) >= LEAST_TASKS else []
    scores = [means_of_tasks({name: tasks[name] for name in sorted(shared)}) for tasks in complete]
    scores = sorted((each for each in scores if np.isfinite(each).all()), key=lambda each: -float(np.mean(each)))
    if len(scores) < 3 or len(scores[0]) < LEAST_TASKS:
        return
    compared = [compare_over_tasks(second, first, n_resamples=N_RESAMPLES) for first, second in pairwise(scores)]
    n_close = sum(each.verdict != BETTER for each in compared)
    yield (
        f"By the mean over {len(scores[0])} tasks, {n_close} of {len(compared)} neighboring ranks cannot be "
        "distinguished: other tasks of this kind may reverse them (tasks drawn again, 95%)."
    )


def _significant(tested: Mapping[Column, tuple[Row, Row]], progress: Progress | None) -> dict[Column, str]:
    """Label of the best row of each column where it beats the second best: p < 0.05 in a paired test.

    The interval of the difference of a task must be on one side of zero, too. P-values of tasks get Holm's correction
    over all columns of tasks; an average has its own p-value.
    """
    p_values: dict[Column, float] = {}
    task_p_values: dict[tuple[Row, Row, str], float] = {}
    largest_first = sorted(tested, key=lambda column: -len(column.tasks))  # the test of an average tests its tasks too
    for column in counted(largest_first, progress, len(tested), lambda _: 1):
        first, second = tested[column]
        if column.is_average or (first, second, column.tasks[0]) not in task_p_values:
            names = (second.label, first.label)
            comparison = compare_results(second.result, first.result, names=names, tasks=column.tasks)
            task_p_values |= {
                (first, second, name): task.p_value if task.is_one_sided else 1.0
                for name, task in comparison.tasks.items()
            }
        if column.is_average:
            average = next(each for name, each in comparison.averages.items() if name != ALL_TASKS)
            p_values[column] = average.p_value
        else:
            p_values[column] = task_p_values[first, second, column.tasks[0]]
    single = [column for column in tested if not column.is_average]
    p_values |= zip(single, holm([p_values[column] for column in single]), strict=True)
    return {column: tested[column][0].label for column in tested if p_values[column] < 1 - LEVEL}
