"""Reading a result file: one that was changed by hand, or is of another kind, is refused by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError
from isosent.io.checksum import UNSEALED, sealed
from isosent.io.json import check_schema, nan_where_none, read_json, without_nan
from isosent.io.schemas import Result
from isosent.numeric.statistics import Statistic

FORMAT = "isosent result 1"
ERRORS = ("mse",)  # scores that are no shares of anything, and better the lower


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What was measured item by item, so that two results can be compared pair by pair."""

    # The predicted score of each pair, 1 or 0 for right or wrong, or the metric of each query
    values: NDArray[np.float64]
    # The human score of each pair. Where there is one the metric is a correlation, else the mean of the values
    gold: NDArray[np.float64] | None = None

    def statistics(self, metric: str) -> dict[str, Statistic]:
        """Metrics that follow from the items, and the statistic that each of them is."""
        return {metric: "mean"} if self.gold is None else {"spearman": "spearman", "pearson": "pearson"}

    def to_json(self) -> dict[str, Any]:
        """Return them as plain values, to the last digit."""
        return {"values": _plain(self.values), "gold": None if self.gold is None else _plain(self.gold)}


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What scoring a task gives."""

    metric: str  # the metric that the task is judged by, one of `scores`
    # All metrics, in [-1, 1] or [0, 1], an error (``mse``) in its own unit; NaN where undefined
    scores: Mapping[str, float]
    items: Items  # what `metric` is the statistic of
    details: Mapping[str, Any] = field(default_factory=dict)  # what else people want to know, as plain values


@dataclass(frozen=True, slots=True, eq=False)
class TaskResult:
    """Scores of a model on one task."""

    kind: str  # family of the task: sts, transfer, cqa, rte, retrieval
    metric: str  # the metric that the task is judged by, one of `scores`
    # All metrics, in [-1, 1] or [0, 1], an error (``mse``) in its own unit; NaN where undefined
    scores: Mapping[str, float]
    # 95 % bootstrap interval of `metric`, and of others that follow from the items; NaN where undefined
    intervals: Mapping[str, tuple[float, float]]
    protocol: Mapping[str, Any]  # how the task is scored. Only results of the same protocol can be compared
    data: Mapping[str, str]  # SHA-256 of each file, by its name within the folder of the data
    n_items: int  # pairs, texts or queries that were scored
    dim: int  # dimensions of the vectors
    n_zero_rows: int  # texts among those encoded for the task without a vector
    n_tokens: int  # tokens of these, and those among them that the encoder does not know; 0 where none can be unknown
    n_unknown: int  # tokens of these, and those among them that the encoder does not know; 0 where none can be unknown
    elapsed_s: float  # time of fitting and scoring; encoding is shared by all tasks
    items: Items  # what was measured item by item
    details: Mapping[str, Any] = field(default_factory=dict)  # what else people want to know, as plain values
    choice: Mapping[str, Any] | None = None  # what "auto" weighed and chose for the task, where it did

    @property
    def score(self) -> float:
        """The score that the task is judged by."""
        return self.scores[self.metric]

    @property
    def interval(self) -> tuple[float, float]:
        """95 % bootstrap interval of `score`."""
        return self.intervals[self.metric]


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationResult:
    """Scores of a model over tasks.

    Parameters
    ----------
    model : mapping
        Reference, options, dimensions, fits and fingerprint of the model.
    fitting : mapping
        What was fitted for the evaluation: ``transform``, its ``parameters``, the ``fit`` corpus, and whether that is
        ``transductive``, which it is on the texts of the task under evaluation. With a corpus of its own, ``overlap``:
        what of each task occurs in it, see `count_overlap`.
    tasks : mapping of str to TaskResult
        Each task.
    environment : mapping
        Versions of isosent, Python and the packages that compute, and the machine.
    seed : int
        Of all random numbers.
    n_resamples : int
        Draws of the bootstrap.
    n_texts, n_cut : int
        Distinct texts that were encoded, and those among them that were cut at the encoder's maximum.
    encode_s, elapsed_s : float
        Time of encoding, and of everything.
    """

    model: Mapping[str, Any]
    fitting: Mapping[str, Any]
    tasks: Mapping[str, TaskResult]
    environment: Mapping[str, Any]
    seed: int
    n_resamples: int
    n_texts: int
    n_cut: int
    encode_s: float
    elapsed_s: float
    variants: tuple[EvaluationResult, ...] = ()

    def average(self, metric: str) -> float:
        """Unweighted mean of a metric over the tasks that have it; NaN where one is undefined or none has it."""
        scores = [task.scores[metric] for task in self.tasks.values() if metric in task.scores]
        return float(np.mean(scores)) if scores else float("nan")

    def average_of(self, kind: str, metric: str) -> float:
        """Unweighted mean over the tasks of a kind that are judged by a metric; NaN where one is undefined."""
        of_kind = [task.score for task in self.tasks.values() if (task.kind, task.metric) == (kind, metric)]
        return float(np.mean(of_kind)) if of_kind else float("nan")

    def to_json(self, *, items: bool = True) -> dict[str, Any]:
        """Return the result as plain values that JSON can hold.

        Parameters
        ----------
        items : bool, default True
            Whether what was measured item by item is among them; it makes most of a file, and holds human scores of
            the data.

        Returns
        -------
        dict
            The same nesting; an undefined score is None.
        """
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in ("tasks", "variants")}
        document = {"format": FORMAT, **fields}
        document["tasks"] = {name: _task_json(task) for name, task in self.tasks.items()}
        if items:
            document["items"] = {name: task.items.to_json() for name, task in self.tasks.items()}
        if self.variants:
            document["variants"] = [variant.to_json(items=items) for variant in self.variants]
        plain: dict[str, Any] = without_nan(document)
        return plain

    def to_text(self) -> str:
        """Return what a result file holds: JSON, items on one line each, that ends with its own checksum."""
        document = self.to_json()
        items, variants = document.pop("items"), document.pop("variants", [])
        head = json.dumps(document, indent=2, ensure_ascii=False).removesuffix("\n}")
        lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(of)}" for name, of in items.items())
        further = f',\n  "variants": {json.dumps(variants, ensure_ascii=False)}' if variants else ""
        text = f'{head},\n  "items": {{\n{lines}\n  }}{further},\n  "checksum": "{UNSEALED}"\n}}\n'
        return sealed(text.encode()).decode()


def _task_json(task: TaskResult) -> dict[str, Any]:
    return {name: getattr(task, name) for name in task.__slots__ if name != "items"}


def _plain(values: NDArray[np.float64]) -> list[float]:
    whole = bool(np.all(values == np.round(values)))
    return [int(value) for value in values] if whole else values.tolist()


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
    variants = tuple(_result_of_json(variant, path) for variant in document.pop("variants", []))
    return replace(_result_of_json(document, path), variants=variants)


def _result_of_json(document: dict[str, Any], path: Path) -> EvaluationResult:
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
