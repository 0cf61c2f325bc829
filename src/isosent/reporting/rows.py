"""Models as rows of a leaderboard: which files belong to one, and what it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from isosent.evaluation.result import EvaluationResult, TaskResult
from isosent.reporting.naming import identity_of, labels_of
from isosent.reporting.reading import ResultFile


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """A model with what was fitted for the evaluation, and all that was measured of it.

    Parameters
    ----------
    label : str
        What it is called; no two rows are called the same.
    files : tuple of ResultFile
        What it was read from: of one model and the same settings, and no task in two of them.
    """

    label: str
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
    """Put result files together to rows: files of one model and the same settings share a row unless they share a task.

    Parameters
    ----------
    files : sequence of ResultFile
        Result files.

    Returns
    -------
    rows : list of Row
        In the order of the files.
    notes : list of str
        A sentence for each label that stands for several rows; these bear the names of their files.
    """
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
