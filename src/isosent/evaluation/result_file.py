"""Reading a result file: one that was changed by hand, or is of another kind, is refused by name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from isosent import _check
from isosent.errors import FileFormatError
from isosent.evaluation.result import ERRORS, FORMAT, EvaluationResult, Items, TaskResult
from isosent.files.documents import check_schema, read_json
from isosent.files.plain import nan_where_none
from isosent.files.result_schemas import Result


def read_result(path: str | os.PathLike[str]) -> EvaluationResult:
    """Read a result file.

    Parameters
    ----------
    path : path-like
        What ``isosent evaluate ... --json`` wrote.

    Returns
    -------
    EvaluationResult
        The result; tasks of a file without items have none.

    Raises
    ------
    InputFileError
        If there is no such file.
    FileFormatError
        If it is not a result file of this format, or was changed since it was written.
    """
    path = _check.input_file(path)
    document = read_json(path)
    if document.get("format") != FORMAT:
        raise FileFormatError(
            f"{path} must be a result file of format {FORMAT!r}, written by isosent evaluate ... --json OUT; got "
            f"{document.get('format')!r}."
        )
    check_schema(document, str(path), Result)
    items = document.pop("items", {})
    tasks = {name: _task_of_json(task, items.get(name)) for name, task in document.pop("tasks").items()}
    facts = {name: value for name, value in document.items() if name not in ("format", "checksum")}
    result = EvaluationResult(tasks=tasks, **facts)
    if wrong := next(_wrong_fields(result, items), None):
        raise FileFormatError(f"{path} must be as isosent evaluate ... --json wrote it; {wrong}. Evaluate again.")
    return result


def _task_of_json(document: dict[str, Any], items: Mapping[str, Any] | None) -> TaskResult:
    intervals = {name: tuple(_floats(ends)) for name, ends in document["intervals"].items()}
    read = {"scores": nan_where_none(document["scores"]), "intervals": intervals, "items": Items(np.zeros(0))}
    if items is not None:
        read["items"] = Items(_floats(items["values"]), None if items["gold"] is None else _floats(items["gold"]))
    return TaskResult(**document | read)


def _floats(values: list[float | None]) -> Any:
    """Numbers as an array, an undefined one NaN."""
    return np.array(values, dtype=np.float64)


def _wrong_fields(result: EvaluationResult, items: Mapping[str, Any]) -> Iterator[str]:
    """What a schema cannot say."""
    fitted = result.fitting["transform"] is not None and not result.fitting["transductive"]
    if fitted and not result.model["fits"]:
        yield "model, fits: none, and a transform was fitted"
    for name, task in result.tasks.items():
        if not {task.metric} <= task.scores.keys() & task.intervals.keys():
            yield f"{name}, scores: none of its metric {task.metric}"
        if worst := [score for metric, score in task.scores.items() if metric not in ERRORS and abs(score) > 1]:
            yield f"{name}, scores: must lie in [-1, 1]; got {worst[0]}"
        arrays = (task.items.values, task.items.gold) if name in items else ()
        if any(array is not None and len(array) != task.n_items for array in arrays):
            yield f"{name}, items: must be {task.n_items} numbers"
