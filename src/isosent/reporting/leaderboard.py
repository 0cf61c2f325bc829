"""A leaderboard: which scores may stand in one column, their averages, and which is the best beyond chance."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isosent.encoders.base import Progress
from isosent.evaluation.result import TaskResult
from isosent.reporting.contests import Contest, are_won
from isosent.reporting.reading import ResultFile
from isosent.reporting.rows import Row, make_rows

_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """A score.

    Parameters
    ----------
    score : float
        In [-1, 1]; NaN where undefined.
    interval : tuple of float, optional
        Its 95 % interval; an average has none.
    """

    score: float
    interval: tuple[float, float] | None = None

    @property
    def whisker(self) -> tuple[float, float]:
        """Ends of the interval; the score itself where it has none or an undefined one."""
        if self.interval is None or any(map(math.isnan, self.interval)):
            return self.score, self.score
        return self.interval


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Scores that can be compared: of one task, of the same data by the same protocol; or averages of such scores.

    Parameters
    ----------
    kind, metric : str
        Family of the tasks, and what they are judged by.
    tasks : tuple of str
        The task, or those of an average.
    cells : mapping of str to Cell
        By the label of the row; a row without a task has none.
    apart : str
        What tells it from other columns of the same task.
    best : str, optional
        Label of the row that is better than the second best beyond chance.
    """

    kind: str
    metric: str
    tasks: tuple[str, ...]
    cells: Mapping[str, Cell]
    apart: str = ""
    best: str | None = None

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
    """Models and what they score.

    Parameters
    ----------
    rows : tuple of Row
        The models, in the order of the first column.
    columns : tuple of Column
        Kind by kind: averages, then tasks.
    notes : tuple of str
        What a reader should know before comparing.
    """

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    notes: tuple[str, ...]

    @property
    def kinds(self) -> dict[str, list[Column]]:
        """The columns by kind."""
        kinds = dict.fromkeys(column.kind for column in self.columns)
        return {kind: [column for column in self.columns if column.kind == kind] for kind in kinds}


def make_leaderboard(files: Sequence[ResultFile], *, progress: Callable[[int], Progress] | None = None) -> Leaderboard:
    """Lay out results.

    Parameters
    ----------
    files : sequence of ResultFile
        Results.
    progress : callable, optional
        Called once with the number of columns; returns what is called with the number of those tested.

    Returns
    -------
    Leaderboard
        Rows and columns.

    Notes
    -----
    A task has several columns where results are of other data or another protocol. Averages are taken over tasks of one
    kind that are judged by the same metric and have one column each; a row that lacks one of these has no average.

    The best of a column is marked where `compare_results` tells it from the second: for a task by a p-value below 0.05
    after Holm's correction over all columns of tasks, for an average by its own p-value.
    """
    rows, notes = make_rows(files)
    columns = _with_averages(_task_columns(rows))
    order = columns[0].ranked if columns else []
    rows = sorted(rows, key=lambda row: order.index(row.label) if row.label in order else len(order))
    if len(rows) > 1 and not any(len(column.cells) > 1 for column in columns):
        notes.append("No two models were measured on the same task of the same data: nothing here can be compared.")
    notes += [*_split_tasks(columns), *_seen_texts(rows)]
    contests = {column: contest for column in columns if (contest := _contest(column, rows))}
    untested = [column for column, contest in contests.items() if not contest.has_items]
    if untested:
        names = ", ".join(dict.fromkeys(column.title for column in untested))
        notes.append(f"{names}: written without items, so that the best cannot be told from the second.")
    tested = [column for column in contests if column not in untested]
    won = are_won([contests[column] for column in tested], progress(len(tested)) if progress and tested else None)
    best = {column: contests[column].first.label for column, is_won in zip(tested, won, strict=True) if is_won}
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


def _contest(column: Column, rows: Sequence[Row]) -> Contest | None:
    """The two best of a column, where there are two."""
    named = {row.label: row for row in rows}
    first, second, *_ = [*column.ranked, "", ""]
    return Contest(column.tasks, named[first], named[second]) if second else None


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
