"""Results of evaluations: scores with intervals and circumstances, as JSON, CSV and LaTeX.

A scoring function gives `Measurement`: scores, and `Items`, what was measured item by item. `evaluation.run` adds
intervals and protocol and makes a `TaskResult` of it. An `EvaluationResult` is all tasks under one transform with
model, fitting and environment; results of further transforms are its `variants`. `to_text` writes a result file, which
`result_file.read_result` reads.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from isosent.evaluation.mteb import BENCHMARK, MtebScore, mteb_score
from isosent.evaluation.sizes import MARK, deviation_note
from isosent.io.checksum import UNSEALED, sealed
from isosent.io.json import without_nan
from isosent.numeric.statistics import Statistic, bootstrap_draws, central_interval
from isosent.pages.tables import csv_table, latex_table
from isosent.transforms.base import NO_TRANSFORM

FORMAT = "isosent result 1"
MANY_UNKNOWN = 0.05  # of the tokens; with more, a score is not comparable with published ones
ERRORS = ("mse",)  # metrics that are not shares, and better the lower
_HUB_FOLDER = re.compile("/models--(.+?)--(.+?)/snapshots/")  # where the hub of Hugging Face stores OWNER/NAME
_PARTS_OF_HUB = 2
_NO_NAME = re.compile(r"|\.+|model|\d+|[0-9a-f]{40}")  # folders so called say nothing of the model
INTERVAL_LABELS = ("95% from", "95% to")  # of the rows below scores


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What was measured item by item, so that two results can be compared item by item."""

    values: NDArray[np.float64]  # predicted score of a pair, share of correct labels, or metric of a query or draw
    gold: NDArray[np.float64] | None = None  # human scores: then the metric is a correlation, else the mean of values

    def statistics(self, metric: str) -> dict[str, Statistic]:
        """Metrics that follow from the items, and the statistic that each of them is."""
        return {metric: "mean"} if self.gold is None else {"spearman": "spearman", "pearson": "pearson"}

    def to_json(self) -> dict[str, Any]:
        """Return them as JSON values, to the last digit."""
        return {"values": _numbers(self.values), "gold": None if self.gold is None else _numbers(self.gold)}


@dataclass(frozen=True, slots=True, eq=False)
class Measurement:
    """What scoring a task gives; fields as those of `TaskResult`."""

    metric: str
    scores: Mapping[str, float]
    items: Items
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class TaskResult:
    """Scores of a model on one task."""

    kind: str  # sts, pairs, transfer, cqa, rte, retrieval, clustering or classification
    metric: str  # the main metric of the task, one of `scores`
    scores: Mapping[str, float]  # all metrics, in [-1, 1] or [0, 1], an error ("mse") in its own unit; NaN if undefined
    intervals: Mapping[str, tuple[float, float]]  # 95% bootstrap intervals of metrics that follow from the items
    protocol: Mapping[str, Any]  # how the task is scored; only results of equal protocols can be compared
    data: Mapping[str, str]  # SHA-256 of each file, by its path within the folder of the data
    n_items: int  # pairs, texts, queries or draws that were scored
    dim: int
    n_zero_rows: int  # texts without a vector
    n_tokens: int  # tokens of the texts; 0 if none can be unknown
    n_unknown: int  # those among them that the encoder does not know
    elapsed_s: float  # time of fitting and scoring; encoding is shared by all tasks
    items: Items
    details: Mapping[str, Any] = field(default_factory=dict)  # further facts, as JSON values
    choice: Mapping[str, Any] | None = None  # what "auto" considered and chose for the task
    n_known: int | None = None  # items that the known set of this name has; None if no such set is known
    deviations: tuple[str, ...] = ()  # how the data differ from that set, or words are unknown; then no others compare

    def __post_init__(self) -> None:
        if self.n_unknown > MANY_UNKNOWN * self.n_tokens:
            unknown = f"{self.n_unknown / self.n_tokens:.0%} of the tokens are unknown"
            object.__setattr__(self, "deviations", tuple(dict.fromkeys((*self.deviations, unknown))))

    @property
    def is_comparable(self) -> bool:
        """Whether nothing is known that forbids to compare the scores with published ones."""
        return not self.deviations

    @property
    def mark(self) -> str:
        """What follows a score in tables: a dagger if it is not comparable."""
        return "" if self.is_comparable else f" {MARK}"

    def mteb(self, name: str) -> MtebScore | None:
        """Return the score of MTEB that the score of this task, of a name, compares with; None if there is none."""
        return mteb_score(self.kind, name, self.protocol) if self.is_comparable else None

    @property
    def score(self) -> float:
        """The score by the main metric."""
        return self.scores[self.metric]

    @property
    def interval(self) -> tuple[float, float]:
        """95% bootstrap interval of `score`."""
        return self.intervals[self.metric]


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationResult:
    """Scores of a model on tasks; returned by `isosent.evaluate`.

    Parameters
    ----------
    model : mapping
        Reference, options, dimensions, fits and fingerprint of the model.
    fitting : mapping
        What was fitted for the evaluation: ``transform``, its ``parameters``, the ``fit`` corpus, and whether that is
        ``transductive``, that is, the texts of the task under evaluation. With another corpus, ``overlap`` counts the
        texts of each task that occur in it; ``distilled_from`` counts those that a distilled model was fitted on.
    tasks : mapping of str to TaskResult
        Each task by its name: ``result.tasks["STSB"].score``.
    environment : mapping
        Versions of isosent, Python and the packages that compute, and the machine.
    seed : int
        Seed of all random numbers.
    n_resamples : int
        Draws of the bootstrap.
    n_texts, n_cut : int
        Distinct texts that were encoded, and those among them that were cut at the encoder's maximum.
    encode_s, elapsed_s : float
        Time of encoding, and of the whole run.
    variants : tuple of EvaluationResult
        The results of the second and further transforms, if several were evaluated.
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

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {_shown(task.metric, task.score)}{task.mark}" for name, task in self.tasks.items())
        return f"<EvaluationResult {self._title(self.fitting['transform'] or 'none')}: {scores}>"

    def __str__(self) -> str:
        """Return a table of the main scores with their 95% intervals, x100."""
        rows = []
        for label, result in self.by_transform().items():
            rows.append((self._title(label), "metric", "score", "95% interval", "items"))
            for name, task in result.tasks.items():
                interval = task.intervals.get(task.metric, ())
                ends = [_shown(task.metric, end) for end in interval if not math.isnan(end)]
                score = _shown(task.metric, task.score) + task.mark
                rows.append((name, task.metric, score, " to ".join(ends), f"{task.n_items:,}"))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, *self.deviation_notes])

    @property
    def deviation_notes(self) -> list[str]:
        """A line for each task that is not comparable with published scores."""
        return [deviation_note(name, task.deviations) for name, task in self.tasks.items() if task.deviations]

    def average_mark(self, kind: str | None = None, metric: str | None = None) -> str:
        """What follows an average over tasks, of a kind with a main metric: a dagger if a task is not comparable."""
        tasks = (task for task in self.tasks.values() if kind in (None, task.kind) and metric in (None, task.metric))
        return next((task.mark for task in tasks if task.mark), "")

    def _title(self, label: str) -> str:
        fitted = [fit["transform"] for fit in self.model.get("fits", ())]
        return " -> ".join([self.model["reference"], *fitted, *([] if label == "none" else [label])])

    @property
    def _model_name(self) -> str:
        """The model and what it was fitted with before; without the transform of this result."""
        fitted = [fit["transform"] for fit in self.model.get("fits", ())]
        if self.fitting["transform"] is not None and not self.fitting["transductive"]:
            fitted = fitted[:-1]  # fitted once for all tasks, and so in the record of the model
        return " -> ".join([self.model["reference"], *(name for name in fitted if name != "none")])

    def average(self, metric: str) -> float:
        """Unweighted mean of a metric over the tasks that have it; NaN if one is undefined or none has it.

        Parameters
        ----------
        metric : str
            A key of the tasks' `scores`, such as ``"spearman"``.

        Returns
        -------
        float
            The mean, in the unit of the metric (correlations in [-1, 1], shares in [0, 1]).
        """
        scores = [task.scores[metric] for task in self.tasks.values() if metric in task.scores]
        return float(np.mean(scores)) if scores else float("nan")

    def average_of(self, kind: str, metric: str) -> float:
        """Unweighted mean over the tasks of a kind with that main metric; NaN if one is undefined or there is none.

        Parameters
        ----------
        kind : str
            Kind of task, such as ``"sts"`` or ``"transfer"``.
        metric : str
            Main metric of the tasks that count.

        Returns
        -------
        float
            The mean of their main scores.
        """
        scores = [task.score for task in self.tasks.values() if (task.kind, task.metric) == (kind, metric)]
        return float(np.mean(scores)) if scores else float("nan")

    def average_interval(self, names: Iterable[str], metric: str) -> tuple[float, float]:
        """95% interval of the unweighted mean of a metric over some tasks, whose items are drawn apart.

        Parameters
        ----------
        names : iterable of str
            The tasks.
        metric : str
            A metric that follows from the items of each of them, such as ``"spearman"``.

        Returns
        -------
        tuple of (float, float)
            Percentile interval of the bootstrap, in the unit of the metric; NaN if the metric does not follow from the
            items of each task, or one has fewer than two.
        """
        draws = []
        for name in names:
            items = self.tasks[name].items
            statistic = items.statistics(self.tasks[name].metric).get(metric)
            if statistic is None or len(items.values) < 2:
                return math.nan, math.nan
            seed = task_seed(self.seed, name)
            draws.append(bootstrap_draws(statistic, items.values, items.gold, n_resamples=self.n_resamples, seed=seed))
        return central_interval(np.mean(draws, axis=0)) if draws else (math.nan, math.nan)

    def by_transform(self) -> dict[str, EvaluationResult]:
        """Return the result of each transform, by its name, with the settings that distinguish equal names.

        Returns
        -------
        dict of str to EvaluationResult
            This result and its `variants`, in the order in which they were requested.
        """
        results = (self, *self.variants)
        names = [result.fitting["transform"] or "none" for result in results]
        labels: dict[str, EvaluationResult] = {}
        for name, result in zip(names, results, strict=True):
            settings = result.fitting["parameters"]
            alike = [other.fitting["parameters"] for other, same in zip(results, names, strict=True) if same == name]
            differing = [
                key
                for key, value in settings.items()
                if value is not None and any(other.get(key) != value for other in alike)
            ]
            label = f"{name}({', '.join(f'{key}={settings[key]}' for key in differing)})" if differing else name
            labels[label if label not in labels else f"{label} #{len(labels) + 1}"] = result
        return labels

    def to_csv(self) -> str:
        """Return every score as CSV: one row per transform, task and metric, with its 95% interval if it has one.

        Returns
        -------
        str
            The table with a header. An undefined score is an empty cell; numbers have all their digits. The last
            columns are the items of the known set of that name, and whether scores are comparable with published ones.
        """
        columns = ["model", "transform", "fit_on", "task", "kind", "metric", "score", "lower", "upper", "items", "dim"]
        columns += ["known_items", "comparable"]
        rows = []
        for label, result in self.by_transform().items():
            circumstances = (result._model_name, label, result.fitting["fit"] or "")
            for name, task in result.tasks.items():
                known = ("", "") if task.n_known is None else (str(task.n_known), "yes" if task.is_comparable else "no")
                for metric, score in task.scores.items():
                    numbers = (score, *task.intervals.get(metric, (math.nan, math.nan)))
                    cells = ("" if math.isnan(number) else repr(float(number)) for number in numbers)
                    counts = (str(task.n_items), str(task.dim))
                    rows.append((*circumstances, name, task.kind, metric, *cells, *counts, *known))
        return csv_table(columns, rows)

    def to_latex(self) -> str:
        """Return the main scores x100 as a LaTeX table for booktabs: a row per transform, one column per task.

        Returns
        -------
        str
            The table, with the ends of the 95% intervals in two rows below the scores, where tasks have them, and an
            average if all tasks have the same kind and metric. Rows name the model as `isosent report` does.
        """
        metrics = {(task.kind, task.metric) for task in self.tasks.values()}
        has_average = len(metrics) == 1 and len(self.tasks) > 1
        rows, results = [], (self, *self.variants)
        for label, result in zip(labels_of(results), results, strict=True):
            scores = [task.score for task in result.tasks.values()]
            intervals = [task.interval for task in result.tasks.values()]
            if has_average:
                scores.append(result.average_of(*next(iter(metrics))))
                intervals.append(result.average_interval(self.tasks, next(iter(metrics))[1]))
            rows.append([label, *("" if math.isnan(score) else f"{100 * score:.2f}" for score in scores)])
            rows += interval_rows(intervals)
        judged = "; ".join(
            f"{metric}: {', '.join(name for name, task in self.tasks.items() if task.metric == metric)}"
            for metric in dict.fromkeys(task.metric for task in self.tasks.values())
        )
        columns = ["model", *(name + task.mark for name, task in self.tasks.items())]
        if has_average:
            columns.append(f"average{self.average_mark()}")
        caption = " ".join([f"x100. {judged}.", *protocol_notes(results), *self.deviation_notes])
        return latex_table(columns, rows, caption=caption)

    def to_json(self, *, items: bool = True) -> dict[str, Any]:
        """Return the result as JSON values; an undefined score is None.

        Parameters
        ----------
        items : bool, default True
            Whether to include what was measured item by item: most of a file, with the human scores of the data.
        """
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in ("tasks", "variants")}
        document = {"format": FORMAT, **fields}
        document["tasks"] = {
            name: {field: getattr(task, field) for field in task.__slots__ if field != "items"}
            | {"is_comparable": task.is_comparable, "mteb": mteb and mteb._asdict()}
            for name, task in self.tasks.items()
            for mteb in [task.mteb(name)]
        }
        if items:
            document["items"] = {name: task.items.to_json() for name, task in self.tasks.items()}
        if self.variants:
            document["variants"] = [variant.to_json(items=items) for variant in self.variants]
        return without_nan(document)

    def to_text(self) -> str:
        """Return the text of a result file: JSON with the items of a task on one line, and its checksum at the end.

        Returns
        -------
        str
            What ``isosent evaluate -o FILE.json`` writes and `compare` reads.
        """
        document = self.to_json()
        items, variants = document.pop("items"), document.pop("variants", [])
        head = json.dumps(document, indent=2, ensure_ascii=False).removesuffix("\n}")
        lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(values)}" for name, values in items.items())
        further = f',\n  "variants": {json.dumps(variants, ensure_ascii=False)}' if variants else ""
        text = f'{head},\n  "items": {{\n{lines}\n  }}{further},\n  "checksum": "{UNSEALED}"\n}}\n'
        return sealed(text.encode()).decode()


def task_seed(seed: int, name: str) -> int:
    """The seed of the draws of a task: tasks are drawn apart, or their average would vary too much."""
    return seed + zlib.crc32(name.encode())


def texts_in_corpus(results: Iterable[EvaluationResult]) -> dict[str, Mapping[str, int]]:
    """By task, how many of its texts are in the corpus that was fitted on or distilled from; empty without one."""
    seen = [
        (name, counts)
        for result in results
        for key in ("distilled_from", "overlap")
        for name, counts in result.fitting.get(key, {}).items()
    ]
    return dict(sorted(seen, key=lambda each: each[1]["n_same"]))  # of several corpora, the one that holds more


def seen_notes(name: str, in_corpus: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """A sentence, if a corpus holds texts of tasks."""
    seen = [
        f"{counts['n_same']:,} of the {counts['n_texts']:,} texts of {task}"
        for task, counts in in_corpus.items()
        if counts["n_same"]
    ]
    if seen:
        yield f"{name} was fitted on a corpus that contains {', '.join(seen)}."


def protocol_notes(results: Iterable[EvaluationResult]) -> list[str]:
    """Sentences for a caption: how subsets are put together, what was fitted on, and what the intervals are."""
    results = list(results)
    notes = list(fit_notes(result.fitting for result in results))
    if any(task.kind == "sts" for result in results for task in result.tasks.values()):
        notes.insert(0, "STS: one correlation over all pairs of a task.")
    drawn = [result for result in results if any(len(task.items.values) for task in result.tasks.values())]
    numbers = " or ".join(f"{number:,}" for number in sorted({result.n_resamples for result in drawn}))
    return [*notes, f"95%: percentile bootstrap over items, {numbers} resamples."] if drawn else notes


def fit_notes(fittings: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each thing that something was fitted on."""
    for fit, is_transductive in dict.fromkeys((each["fit"], each["transductive"]) for each in fittings):
        if is_transductive:
            yield "Transforms: fitted on the texts of each task, without labels (transductive)."
        elif fit is not None:
            yield f"Transforms: fitted on {fit}."


class Described(Protocol):
    """A result, or what is known of one."""

    @property
    def model(self) -> Mapping[str, Any]: ...

    @property
    def fitting(self) -> Mapping[str, Any]: ...


class Step(NamedTuple):
    """A transform that was fitted after an encoder."""

    transform: str
    parameters: Mapping[str, Any]
    source: str  # what it was fitted on


def steps_of(result: Described) -> list[Step]:
    """Transforms after the encoder: those of the model, then the one that was fitted for the evaluation."""
    fitting = result.fitting
    steps = [Step(fit["transform"], fit["parameters"], fit["source"]) for fit in result.model["fits"]]
    if fitting["transform"] is not None:
        if not fitting["transductive"]:  # fitted once for all tasks, and so already in the record of the model
            steps.pop()
        steps.append(Step(fitting["transform"], fitting["parameters"], fitting["fit"]))
    return [step for step in steps if step.transform != NO_TRANSFORM]


def labels_of(results: Sequence[Described]) -> list[str]:
    """Labels of models: reference and transforms, and those settings in which models of the same label differ."""
    references = [result.model["reference"] for result in results]
    names = [
        " + ".join([short_reference(reference, references), *(step.transform for step in steps_of(result))])
        for reference, result in zip(references, results, strict=True)
    ]
    settings = [_settings_of(result) for result in results]
    labels = []
    for name, own_settings in zip(names, settings, strict=True):
        others = [other for other_name, other in zip(names, settings, strict=True) if other_name == name]
        parts = [name]
        for key, value in own_settings.items():
            alike = [other for other in others if other.get(key) == value]
            if len(alike) < len(others) and value is not None:
                parts.append(f"{key}={value}")
            others = alike
        labels.append(", ".join(parts))
    return labels


def _settings_of(result: Described) -> dict[str, Any]:
    settings = dict(result.model["options"])
    for step in steps_of(result):
        settings |= step.parameters
    return settings | {"fitted on": result.fitting["fit"]}


def short_reference(reference: str, others: Iterable[str] = ()) -> str:
    """The name of a model: of a path its last part, or as many as tell it from the other references."""
    if reference.startswith(f"{BENCHMARK}:"):  # published, and not measured here
        return reference
    if hub := _HUB_FOLDER.search(reference):
        return f"{hub[1]}/{hub[2]}"
    path = _telling_path(reference)
    parts = path.split("/")
    if len(parts) == _PARTS_OF_HUB and parts[0] not in ("", ".", "..", "~"):  # OWNER/NAME
        return path
    paths = {_telling_path(other) for other in others if other != reference}
    n_parts = 1
    if path in paths:  # a folder, and the one called "model" in it
        n_parts, path = 2, reference.rpartition(":")[2].rstrip("/")
        parts = path.split("/")
    alike = {other for other in paths if other.endswith(f"/{parts[-1]}")}
    while n_parts < len(parts) and any(other.endswith("/".join(parts[-n_parts:])) for other in alike):
        n_parts += 1
    return "/".join(parts[-n_parts:])


def _telling_path(reference: str) -> str:
    """The path of a model, without a last folder whose name says nothing if that before it says more."""
    path = reference.rpartition(":")[2].rstrip("/")
    *before, last = path.split("/")
    is_vague = len(before) >= _PARTS_OF_HUB and _NO_NAME.fullmatch(last) and not _NO_NAME.fullmatch(before[-1])
    return "/".join(before) if is_vague else path


def interval_x100(interval: tuple[float, float]) -> str:
    """Format an interval for a table."""
    return "undefined" if any(map(math.isnan, interval)) else " to ".join(f"{100 * end:.2f}" for end in interval)


def interval_rows(intervals: Sequence[tuple[float, float] | None]) -> list[list[str]]:
    """The rows of the ends of the intervals below a row of scores; none without one."""
    ends = [None if each is None or any(map(math.isnan, each)) else each for each in intervals]
    rows = [["" if each is None else f"{100 * each[end]:.2f}" for each in ends] for end in range(2)]
    return [[f"  {label}", *cells] for label, cells in zip(INTERVAL_LABELS, rows, strict=True)] if any(ends) else []


def _shown(metric: str, score: float) -> str:
    if math.isnan(score):
        return "undefined"
    return f"{score:.3f}" if metric in ERRORS else f"{100 * score:.2f}"


def _numbers(values: NDArray[np.float64]) -> list[float]:
    are_integers = bool(np.all(values == np.round(values)))
    return [int(value) for value in values] if are_integers else values.tolist()
