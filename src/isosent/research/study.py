"""Studies: lists of records that hold the scores of one setting on one task, their file format, CSV, and averages.

Each study (`layers`, `dims`, `gem`, `auto`, `flow`, `retrieval`) is a module: a function from a model and a folder of
STS tasks to records, the tables and the figure of records, which are averages of them (`pivot`), and a `StudyKind` that
names these for `research.commands`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

import msgspec
import numpy as np
from msgspec import Meta, Struct

from isosent import _check
from isosent.errors import FileFormatError
from isosent.evaluation.sizes import MARK, deviation_note, warn_of_deviations
from isosent.evaluation.sts import AGGREGATIONS, SICKR_PARTS, Lookup, STSSet, read_sts, score_task
from isosent.io.json import check_schema, nan_where_none, read_json, without_nan
from isosent.io.schemas import Checksum, Finite, Seconds, Size, Whole
from isosent.model import SentenceEncoder
from isosent.pages.figures import Figure
from isosent.pages.report import ReportTable
from isosent.pages.tables import csv_table

if TYPE_CHECKING:
    Score = float  # NaN where undefined
    Layers = tuple[int, ...]
else:
    Score = Annotated[float, Meta(ge=-1, le=1)] | None  # None in a file, NaN once it was read
    Layers = Annotated[tuple[Annotated[int, Meta(ge=0, le=10_000)], ...], Meta(min_length=1)]

ALL = AGGREGATIONS[0]
RAW, WHITENING, HALF, PROJECTION, AUTO_ROW, BEST = ROWS = (  # of the study of auto
    "as they are",
    "whitening",
    "whitening to half",
    "mean projection",
    "auto",
    "best in hindsight",
)
AT_RANDOM = "random dimensions"
_MILLION, _FLOAT32_BYTES = 10**6, 4


class StudyKind(NamedTuple):
    """A study, as the command line runs it."""

    run: Callable[..., list[Any]]  # model, folder, options; name, tasks, progress -> records
    tables: Callable[[Sequence[Any], str], Iterable[ReportTable | str]]  # records, aggregation
    figure: Callable[[Sequence[Any], str], Figure] | None = None
    options: tuple[str, ...] = ()  # of the command, those that only some studies have
    settings: tuple[str, ...] = ()  # after the question mark
    has_joint_tables: bool = False  # of all models together


class TaskCell(Protocol):
    """A record with the score of a task."""

    @property
    def task(self) -> str:
        """Name of the task."""

    @property
    def deviations(self) -> str:
        """How its data differ from the known set."""


R = TypeVar("R")
K = TypeVar("K", bound=Hashable)


def pivot(records: Iterable[R], key: Callable[[R], K], score: Callable[[R], float]) -> dict[K, float]:
    """Mean score of the records of each key, in the order of the records; NaN where one of them is NaN."""
    groups: dict[K, list[float]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(score(record))
    return {name: float(np.mean(scores)) for name, scores in groups.items()}


def read_sets(
    folder: str | os.PathLike[str], *, tasks: Sequence[str] | None = None, sickr: str = SICKR_PARTS[0]
) -> tuple[STSSet, ...]:
    """Read the STS sets of a study, with a warning of those that differ from the known ones."""
    sets = read_sts(folder, tasks=tasks, sickr=sickr)
    for sts_set in sets:
        warn_of_deviations(sts_set.name, sts_set.deviations, stacklevel=3)
    return sets


def deviations_of(task: STSSet) -> str:
    """How a set differs from the known one, as a record stores it."""
    return "; ".join(task.deviations)


def study_notes(cells: Iterable[TaskCell]) -> list[str]:
    """A line for each task whose data differ from the known set."""
    return list(dict.fromkeys(deviation_note(cell.task, [cell.deviations]) for cell in cells if cell.deviations))


def task_titles(cells: Iterable[TaskCell]) -> dict[str, str]:
    """Headings of tasks: their names, with a mark where a score is not comparable."""
    marks = {cell.task: f" {MARK}" if cell.deviations else "" for cell in cells}
    return {task: task + mark for task, mark in marks.items()}


def spearman_of(task: STSSet, model: SentenceEncoder, encoded: Lookup) -> float:
    """Spearman (all) of a model on a task; `encoded` looks up vectors of its bare encoder."""
    return score_task(task, lambda texts: model.transform(encoded(texts))).spearman[ALL]


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """One record of a study, as its file stores it."""

    score_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in self.score_fields:
            msgspec.structs.force_setattr(self, name, _nan_where_none(getattr(self, name)))

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can hold; an undefined score is None."""
        return without_nan(msgspec.to_builtins(self))

    def rows(self) -> list[dict[str, Any]]:
        """Rows of a CSV file."""
        return [self.to_json()]


def _nan_where_none(scores: Any) -> Any:
    if isinstance(scores, Mapping):
        return nan_where_none(scores)
    if isinstance(scores, (list, tuple)):
        return [math.nan if score is None else score for score in scores]
    return math.nan if scores is None else scores


def _check_aggregations(scores: Mapping[str, float]) -> None:
    if set(scores) != set(AGGREGATIONS):
        raise ValueError(f"spearman must have the aggregations {', '.join(AGGREGATIONS)}; got {', '.join(scores)}")


class AutoCell(Record, frozen=True):
    """An encoder on a task, with each of `ROWS` fitted on the sentences of the task."""

    score_fields: ClassVar = ("scores",)

    model: str
    task: str
    scores: dict[str, Score]  # Spearman (all) by row
    chosen: str  # the verdict of auto
    best: str  # by the labels
    deviations: str = ""  # how the data differ from the known set of the task, if they do

    def __post_init__(self) -> None:
        super().__post_init__()
        if missing := [row for row in ROWS if row not in self.scores]:
            raise ValueError(f"there is no score of {self.task}, {missing[0]}. Run the study again")


class FlowCell(Record, frozen=True):
    """A row of the study of flows on a task."""

    score_fields: ClassVar = ("scores",)

    model: str
    task: str
    row: str  # what was fitted, and on what, such as "flow(target)"
    scores: list[Score]  # Spearman (all), one per seed
    held_out_bits: list[tuple[Finite | None, Finite | None]] = []  # bits per dimension before and after, per seed
    fit_s: Seconds = 0.0  # mean time of a fit
    n_rows: Whole = 0  # vectors it was fitted on
    deviations: str = ""  # how the data differ from the known set of the task, if they do


class RetrievalCell(Record, frozen=True):
    """An index of one kind and number type, of the vectors of a model."""

    model: str
    vectors: str  # "as they are", or the transform and its width
    kind: str
    store: str
    dim: Size
    n_rows: Size
    bytes_searched: Seconds  # per vector, in memory
    bytes_on_disk: Seconds  # per vector
    build_s: Seconds
    queries_per_s: Seconds  # in batches of 100
    plain_queries_per_s: Seconds  # the same by FAISS alone
    recall: Finite  # recall@10 against exact search
    labelled_recall: Finite  # share of queries whose paraphrase is among the first ten


class GemCell(Record, frozen=True):
    """A setting of GEM on a task, its principal vectors fitted on the sentences of the task."""

    score_fields: ClassVar = ("pearson", "spearman")

    model: str
    task: str
    study: str  # "ablation", or the setting that is varied
    condition: str  # the setting, or its value
    pearson: Score
    spearman: Score
    n_zero_rows: Whole  # sentences without a vector; their cosine counts as 0
    deviations: str = ""  # how the data differ from the known set of the task, if they do


class PublishedScore(Struct, frozen=True, forbid_unknown_fields=True):
    spearman: Finite
    source: str


class LayerCell(Record, frozen=True):
    """A layer pooling of a transformer on a task, under a transform fitted on the sentences of the task."""

    score_fields: ClassVar = ("spearman",)

    model: str
    pooling: str
    layers: Layers  # the layers whose mean is taken; 0 is the embedding layer
    transform: str  # "none", "whitening" or "auto"
    chosen: str | None  # by auto
    task: str
    spearman: dict[str, Score]  # by aggregation
    published: dict[str, PublishedScore]  # by aggregation, for the same layer pooling, transform and protocol
    deviations: str = ""  # how the data differ from the known set of the task, if they do

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_aggregations(self.spearman)

    def rows(self) -> list[dict[str, Any]]:
        """A row per aggregation."""
        values = self.to_json()
        settings = {name: values[name] for name in ("model", "pooling")}
        settings |= {"layers": layers_label(self.layers), "n_layers": len(self.layers)}
        settings |= {name: values[name] for name in ("transform", "chosen", "task")}
        nothing = {"spearman": None, "source": None}
        published = {how: values["published"].get(how, nothing) for how in self.spearman}
        return [
            settings
            | {"aggregation": how, "spearman": score}
            | {"published": published[how]["spearman"], "source": published[how]["source"]}
            | {"deviations": self.deviations}
            for how, score in values["spearman"].items()
        ]


class DimsCell(Record, frozen=True):
    """A task at one width."""

    score_fields: ClassVar = ("spearman",)

    task: str
    k: Size  # dimensions asked for
    n_components: Whole  # dimensions compared: fewer where the vectors of the task vary along fewer axes
    n_pairs: Whole
    n_zero_rows: Whole  # sentences without a vector; their cosine counts as 0
    spearman: dict[str, Score]  # by aggregation
    interval: tuple[Score, Score] | None = None  # 95%, of the first aggregation; None in files of earlier versions
    deviations: str = ""  # how the data differ from the known set of the task, if they do

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_aggregations(self.spearman)


class SearchTime(Struct, frozen=True, forbid_unknown_fields=True):
    """Time of an exact search at one width."""

    k: Size
    n_docs: Whole
    n_queries: Whole  # at once
    n_repeats: Whole  # after one search that was not timed
    elapsed_s: Seconds  # median time of a search, divided by the queries


class PublishedWidth(Struct, frozen=True, forbid_unknown_fields=True):
    """Published scores of the same model under the same transform."""

    label: str
    k: Size
    transformed: bool
    aggregation: str
    scores: dict[str, Finite]  # Spearman x100 by task


class DimsStudy(Record, frozen=True):
    """A model at several widths: scores, memory and search time."""

    name: str
    model: dict[str, Any]  # reference, options, dimensions and fingerprint
    protocol: dict[str, Any]  # transform, what it was fitted on, the pairs of SICK-R
    untransformed: Annotated[tuple[DimsCell, ...], Meta(min_length=1)]  # each task without the transform
    cells: Annotated[tuple[DimsCell, ...], Meta(min_length=1)]  # each task at each width
    search: tuple[SearchTime, ...]  # empty if it was not timed
    published: tuple[PublishedWidth, ...]
    random: tuple[DimsCell, ...] = ()  # dimensions drawn at random, without the transform: means of several draws

    def __post_init__(self) -> None:
        if not all(isinstance(self.protocol.get(name), str) for name in ("transform", "fit")):
            raise ValueError("protocol must name a transform and what it was fitted on (transform, fit)")
        scores = {(cell.task, cell.k) for cell in self.cells} | {(cell.task, None) for cell in self.untransformed}
        for task, k in product(self.tasks, (*self.widths, None)):
            if (task, k) not in scores:
                raise ValueError(f"there is no score of {task} at {k or 'all'} dimensions. Run the study again")

    @property
    def widths(self) -> list[int]:
        """The widths, ascending."""
        return sorted({cell.k for cell in self.cells})

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(cell.task for cell in self.cells))

    @property
    def dim(self) -> int:
        """Dimensions without the transform."""
        return self.untransformed[0].k

    def curve(self, task: str | None = None, how: str = ALL, *, of_random: bool = False) -> dict[int, float]:
        """Spearman at each width; without a task, the average over the tasks."""
        cells = self.random if of_random else self.cells
        chosen = (cell for cell in sorted(cells, key=lambda cell: cell.k) if task in (None, cell.task))
        return pivot(chosen, lambda cell: cell.k, lambda cell: cell.spearman[how])

    def interval(self, k: int) -> tuple[float, float]:
        """95% interval of the average over the tasks at a width, as of independent tasks; NaN where it is not known."""
        cells = [cell for cell in self.cells if cell.k == k]
        known = [cell.interval for cell in cells if cell.interval is not None and None not in cell.interval]
        if not known or len(known) < len(cells):
            return math.nan, math.nan
        mean = float(np.mean([cell.spearman[ALL] for cell in cells]))
        below = [cell.spearman[ALL] - low for cell, (low, _) in zip(cells, known, strict=True)]
        above = [high - cell.spearman[ALL] for cell, (_, high) in zip(cells, known, strict=True)]
        return mean - math.hypot(*below) / len(cells), mean + math.hypot(*above) / len(cells)

    def untransformed_score(self, task: str | None = None, how: str = ALL) -> float:
        """Spearman without the transform; parameters as for `curve`."""
        return float(np.mean([cell.spearman[how] for cell in self.untransformed if task in (None, cell.task)]))

    def best(self, task: str | None = None, how: str = ALL) -> int | None:
        """Width of the highest score, the smallest of equal ones; None where all are undefined."""
        curve = {k: score for k, score in self.curve(task, how).items() if not math.isnan(score)}
        return max(curve, key=curve.__getitem__) if curve else None

    def to_json(self) -> dict[str, Any]:
        best = {task: {how: self.best(task, how) for how in AGGREGATIONS} for task in self.tasks}
        memory = {str(k): bytes_of_a_million(k) for k in self.widths}
        return super().to_json() | {"best": best, "bytes_per_million": memory}

    def rows(self) -> list[dict[str, Any]]:
        """A row per task and width."""
        times = {time.k: time for time in self.search}
        rows = []
        fitted = self.protocol["transform"]
        for transform, cells in (("none", self.untransformed), (fitted, self.cells), (AT_RANDOM, self.random)):
            for cell in cells:
                published = {
                    row.aggregation: row
                    for row in reversed(self.published)
                    if row.k == cell.k
                    and (row.transformed, transform) in ((False, "none"), (True, fitted))
                    and cell.task in row.scores
                }
                time = times.get(cell.k)
                row: dict[str, Any] = {"model": self.name, "task": cell.task, "transform": transform}
                row |= {name: getattr(cell, name) for name in ("k", "n_components", "n_pairs", "n_zero_rows")}
                row |= {f"spearman_{how}": score for how, score in cell.spearman.items()}
                row["interval_low"], row["interval_high"] = cell.interval or (None, None)
                for how in AGGREGATIONS:
                    row[f"published_{how}"] = published[how].scores[cell.task] / 100 if how in published else None
                labels = [published[how].label for how in AGGREGATIONS if how in published]
                row["published_in"] = "; ".join(labels) or None
                row["bytes_per_million"] = bytes_of_a_million(cell.k)
                row["search_s_per_query"] = None if time is None else time.elapsed_s
                row["search_n_docs"] = None if time is None else time.n_docs
                row["deviations"] = cell.deviations
                rows.append(without_nan(row))
        return rows


def bytes_of_a_million(k: int) -> int:
    """Size of a million float32 vectors of k dimensions."""
    return _MILLION * _FLOAT32_BYTES * k


def layers_label(layers: Sequence[int]) -> str:
    """Write layers as the papers do: L1+L12, or L1..L12 for more than three in a row."""
    if len(layers) > 3 and layers[-1] - layers[0] == len(layers) - 1:
        return f"L{layers[0]}..L{layers[-1]}"
    return "+".join(f"L{layer}" for layer in layers)


class _StudyFile(Struct, Generic[R], forbid_unknown_fields=True, kw_only=True):
    format: str
    checksum: Checksum | None = None  # files from before checksums have none
    results: list[R]


_RECORDS: Mapping[str, Any] = {
    "auto": AutoCell,
    "dims": DimsStudy,
    "flow": FlowCell,
    "gem": GemCell,
    "layers": LayerCell,
    "pooling": LayerCell,
    "retrieval": RetrievalCell,
}
_FORMAT = "isosent study {} 1"
STUDY_FORMATS: Mapping[str, str] = {_FORMAT.format(name): name for name in _RECORDS}


class Study(NamedTuple):
    """The content of a study's file."""

    name: str  # auto, dims, flow, gem, layers, pooling or retrieval
    results: tuple[Any, ...]  # records of that study


def study_to_json(name: str, results: Sequence[Record]) -> dict[str, Any]:
    """The document of a study's file."""
    return {"format": _FORMAT.format(name), "results": [result.to_json() for result in results]}


def study_csv(results: Sequence[Record]) -> str:
    """The records of a study as a long table."""
    rows = [row for result in results for row in result.rows()]
    return csv_table(list(rows[0]), [["" if value is None else f"{value}" for value in row.values()] for row in rows])


def read_study(path: str | os.PathLike[str]) -> Study:
    """Read the file of a study."""
    path = _check.input_file(path)
    document = read_json(path)
    name = STUDY_FORMATS.get(str(document.get("format")))
    if name is None:
        raise FileFormatError(
            f"{path} is not a study, which isosent research study ... -o OUT.json writes: its format is "
            f"{_check.brief(document.get('format', 'unknown'), 60)!r}, not one of {', '.join(STUDY_FORMATS)}."
        )
    if name == "dims" and isinstance(document.get("results"), list):
        derived = ("best", "bytes_per_million")
        document["results"] = [
            {field: value for field, value in result.items() if field not in derived}
            if isinstance(result, dict)
            else result
            for result in document["results"]
        ]
    schema: Any = _StudyFile
    return Study(name, tuple(check_schema(document, str(path), schema[_RECORDS[name]]).results))
