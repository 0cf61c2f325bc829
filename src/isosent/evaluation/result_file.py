"""Reading a result file: one that was changed by hand, or is of another kind, is refused by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from isosent import _check
from isosent.errors import FileFormatError
from isosent.evaluation.result import ERRORS, FORMAT, EvaluationResult, Items, TaskResult

Fields = Mapping[str, type | tuple[type, ...]]

_NONE = type(None)
_NUMBER = (int, float)
_RESULT: Fields = {
    **dict.fromkeys(("seed", "n_resamples", "n_texts", "n_cut"), int),
    **dict.fromkeys(("encode_s", "elapsed_s"), _NUMBER),
}
_MODEL: Fields = {"reference": str, "options": dict, "fits": list, "fingerprint": str}
_FIT: Fields = {"transform": str, "parameters": dict, "source": str}
_FITTING: Fields = {"transform": (str, _NONE), "parameters": dict, "fit": (str, _NONE), "transductive": bool}
_ENVIRONMENT: Fields = {"versions": dict, "machine": str, "system": str, "n_cpus": (int, _NONE)}
_TASK: Fields = {
    "kind": str,
    "elapsed_s": _NUMBER,
    **dict.fromkeys(("dim", "n_zero_rows", "n_tokens", "n_unknown"), int),
}
_CHOICE: Fields = {"chosen": str, "reason": str}


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
        If it is not a result file of this format.
    """
    path = _check.input_file(path)
    try:
        document = json.loads(path.read_bytes())
        if document["format"] != FORMAT:
            raise FileFormatError(f"{path} must be of format {FORMAT!r}; got {document['format']!r}.")
        items = document.pop("items", {})
        tasks = {name: _task_of_json(task, items.get(name)) for name, task in document.pop("tasks").items()}
        del document["format"]
        result = EvaluationResult(tasks=tasks, **document)
        wrong = next(_wrong_fields(result), None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(
            f"{path} must be a result file, written by isosent evaluate ... --json OUT; it cannot be read as one: "
            f"{type(error).__name__} {error}."
        ) from None
    if wrong is not None:
        raise FileFormatError(
            f"{path} must be as isosent evaluate ... --json wrote it; "
            f"{wrong} is missing or of another type. "
            "Evaluate again."
        )
    return result


def _task_of_json(document: dict[str, Any], items: Mapping[str, Any] | None) -> TaskResult:
    nan = float("nan")
    scores = {name: nan if score is None else float(score) for name, score in document.pop("scores").items()}
    intervals = {
        name: (nan if low is None else float(low), nan if high is None else float(high))
        for name, (low, high) in document.pop("intervals").items()
    }
    task = TaskResult(scores=scores, intervals=intervals, items=_items_of_json(items), **document)
    if task.metric not in scores or task.metric not in intervals:
        raise ValueError(f"no score of {task.metric}")
    if not (isinstance(task.protocol, dict) and isinstance(task.data, dict)):
        raise ValueError("no protocol or no data")
    arrays = [array for array in (task.items.values, task.items.gold) if array is not None]
    if items is not None and any(array.shape != (task.n_items,) for array in arrays):
        raise ValueError(f"the items are not {task.n_items} numbers")
    return task


def _items_of_json(document: Mapping[str, Any] | None) -> Items:
    if document is None:
        return Items(np.zeros(0))
    gold = document["gold"]
    return Items(
        np.array(document["values"], dtype=np.float64), None if gold is None else np.array(gold, dtype=np.float64)
    )


def _wrong_fields(result: EvaluationResult) -> Iterator[str]:
    if not result.tasks:
        yield "tasks"
    of_result = {name: getattr(result, name) for name in _RESULT}
    yield from _wrong("result", of_result, _RESULT)
    yield from _wrong("model", result.model, _MODEL)
    for fit in result.model["fits"]:
        yield from _wrong("model, fits", fit, _FIT)
    yield from _wrong("fitting", result.fitting, _FITTING)
    if result.fitting["transform"] is not None and not result.fitting["transductive"] and not result.model["fits"]:
        yield "model, fits"
    yield from _wrong("environment", result.environment, _ENVIRONMENT)
    for name, task in result.tasks.items():
        yield from _wrong(name, {field: getattr(task, field) for field in _TASK}, _TASK)
        if not all(isinstance(checksum, str) for checksum in task.data.values()):
            yield f"{name}, data"
        bounded = [score for metric, score in task.scores.items() if metric not in ERRORS]
        if any(abs(value) > 1 for value in (*bounded, *(end for ends in task.intervals.values() for end in ends))):
            yield f"{name}, scores, in [-1, 1]"
        if task.choice is not None:
            yield from _wrong(f"{name}, choice", task.choice, _CHOICE)


def _wrong(where: str, values: Any, fields: Fields) -> Iterator[str]:
    if not isinstance(values, dict):
        yield where
    else:
        yield from (f"{where}, {name}" for name, of in fields.items() if not isinstance(values.get(name, ...), of))
