"""The tables of a paper, measured again where their models are available, next to the published numbers.

`reproduce` reads a paper (tables in YAML), and `_plan` makes a `Plan` of every condition: the `Request` that would
measure it, what is missing for that, and other models in its place. `find_available` says which models and files there
are. `_Measurements` runs requests, each once, whatever number of cells needs it: an evaluation, a study, or a
measurement of speed. `_outcome` puts the numbers next to those that were published; `research.reproduction` holds and
prints them.
"""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from msgspec import structs

from isosent import _check
from isosent.encoders.reference import SCHEMES, escape, parse_reference, with_options, without_permissions
from isosent.errors import FileFormatError, InputError, ModelReferenceError, TaskNotFoundError
from isosent.evaluation.evaluate import read_tasks
from isosent.evaluation.published import (
    PAPERS,
    SCORE,
    TARGET,
    Condition,
    Paper,
    PaperTable,
    known_models,
    known_paper,
    read_paper,
    read_yaml,
)
from isosent.evaluation.run import environment, run_tasks
from isosent.evaluation.sts import SICKR_PARTS, stsb_dev_task
from isosent.evaluation.task import Task
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.numeric.statistics import N_RESAMPLES
from isosent.pages.progress import Progress
from isosent.research.dims import study_dims
from isosent.research.gem import SENSITIVITY, study_gem
from isosent.research.layer_tables import NONE, best_of_sizes
from isosent.research.layers import study_layers
from isosent.research.reproduction import Cell, Number, Numbers, Outcome, Reproduction, StandIn, TableOutcome
from isosent.research.study import ALL, layers_label
from isosent.transforms.base import Transform, make_transform, needs_vectors

EVALUATED = "evaluated"  # fitted on the sentences of the evaluated pairs alone
STS, CPU = "sts", "CPU"
STSB, DEV = "STSB", "STSB-dev"
_INSTEAD = "instead"
_STUDY_FAMILIES = ("dims", "layers", "gem")  # the other families are evaluated, but for "speed"
_WARM_UP, _LONG_ENOUGH_S = 64, 1.0
_ABSENT = {"speed": "a run on the {}", "layers": "as many as {} layers"}


def reproduce(
    paper: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    models: str | os.PathLike[str] | None = None,
    tables: Sequence[str] | None = None,
    seed: int = 0,
    n_resamples: int = N_RESAMPLES,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
) -> Reproduction:
    """Measure the conditions of a paper's tables for which models are available. Equal conditions are run once."""
    measurements = _Measurements(_check.input_folder(data).resolve(), seed, n_resamples, progress)
    chosen = _read_paper(paper)
    available = find_available(Path(data), models, more=[chosen])
    plans = [
        (table, [_plan(table, condition, available) for condition in table.conditions])
        for table in _select(chosen, tables)
    ]
    tasks_of: dict[Request, dict[str, None]] = {}
    for table, table_plans in plans:
        for plan in table_plans:
            for request in plan.runs:
                tasks_of.setdefault(request, {}).update(dict.fromkeys(_tasks_of(table)))
    measured = {}
    for request, tasks in tasks_of.items():
        measured[request] = measurements.of(request, list(tasks))
        if tell:
            tell(request.command(str(data), list(tasks)))
    outcomes = [
        TableOutcome(
            table,
            [_outcome(table, *each, measured, str(data)) for each in zip(table.conditions, table_plans, strict=True)],
        )
        for table, table_plans in plans
    ]
    return Reproduction(chosen, outcomes, environment())


def _read_paper(paper: str | os.PathLike[str]) -> Paper:
    if paper in PAPERS:
        return known_paper(str(paper))
    if not Path(paper).exists():
        raise InputError(f"reproduce: {str(paper)!r} is no paper. Use {', '.join(PAPERS)}, or a YAML file.")
    stored = read_paper(paper)
    tables = []
    for table in stored.tables:  # a file must not grant its models permissions, such as to run code
        options = [without_permissions("", condition.options, file=paper)[1] for condition in table.conditions]
        pairs = zip(table.conditions, options, strict=True)
        conditions = tuple(structs.replace(each, options=some) for each, some in pairs)
        tables.append(structs.replace(table, conditions=conditions))
    return structs.replace(stored, tables=tuple(tables))


def _tasks_of(table: PaperTable) -> list[str]:
    """What the columns of a table are about, each once."""
    return list(dict.fromkeys(column.task for column in table.columns))


def _select(paper: Paper, names: Sequence[str] | None) -> list[PaperTable]:
    tables = {table.name: table for table in paper.tables}
    chosen = tables if names is None else [name if name in tables else f"table {name}" for name in names]
    if absent := [name for name in chosen if name not in tables]:
        raise InputError(f"reproduce: {paper.name} has no {absent[0]!r}. Its tables: {'; '.join(tables)}.")
    return [tables[name] for name in dict.fromkeys(chosen)]


# -- which models are available ----------------------------------------------------------------------------------------


class Available(NamedTuple):
    """Models and files by the names that the tables have for them."""

    named: Mapping[str, str]  # model reference, or path
    stand_ins: Mapping[str, tuple[str, ...]]  # references of other models to measure instead


def find_available(
    data: Path, models: str | os.PathLike[str] | None = None, *, more: Iterable[Paper] = ()
) -> Available:
    """Models and files in a data folder, and those that a YAML file names."""
    named = {}
    for name, known in known_models().items():
        paths = sorted(path for path in data.rglob(known.file) if path.is_file()) if known.file else []
        if paths:
            named[name] = f"words:{escape(str(paths[0]))}" if known.reference else str(paths[0])
    if models is None:
        return Available(named, {})
    document = read_yaml(models)
    instead = document.pop(_INSTEAD, {})
    if not isinstance(instead, dict):
        raise FileFormatError(
            f"{models}: {_INSTEAD} does not hold names and references, but {_check.brief(repr(instead))}."
        )
    stand_ins = {name: tuple(value) if isinstance(value, list) else (value,) for name, value in instead.items()}
    papers = [*map(known_paper, PAPERS), *more]
    in_tables = (condition.model for paper in papers for table in paper.tables for condition in table.conditions)
    names = list(dict.fromkeys([*known_models(), *filter(None, in_tables)]))
    for name, value in [*document.items(), *((name, value) for name, values in stand_ins.items() for value in values)]:
        if name not in names:
            nearest = get_close_matches(name, names, n=1, cutoff=0)[0]
            raise FileFormatError(f"{models}: no table has a model or file named {name!r}. Did you mean {nearest}?")
        if not isinstance(value, str) or not value:
            raise FileFormatError(
                f"{models}: {name} is {_check.brief(repr(value))}, neither a model reference nor a path."
            )

    def untrusted(reference: str) -> str:
        return without_permissions(reference, {}, file=models)[0]

    named |= {name: untrusted(value) for name, value in document.items()}
    return Available(named, {name: tuple(map(untrusted, values)) for name, values in stand_ins.items()})


# -- what is run -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """Something to run. Equal requests give equal numbers, so each is run once for all tables."""

    family: str  # a key of `FAMILIES` of the tables
    reference: str  # without the options of the condition
    options: tuple[tuple[str, str], ...] = ()
    transform: str | None = None
    settings: tuple[tuple[str, object], ...] = ()  # of the transform
    fit: str = TARGET  # "target", "evaluated" or a path
    sickr: str = "full"
    aggregation: str | None = None  # for studies, which choose by it
    study: str | None = None  # the setting that a study varies

    @property
    def model(self) -> str:
        """The model reference with all options; those of the condition win."""
        location, _, query = self.reference.partition("?")
        options = dict(part.partition("=")[::2] for part in query.split("&") if part) | dict(self.options)
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"{location}?{query}" if query else location

    @property
    def pooling(self) -> str:
        return dict(self.options).get("pooling", "mean")

    def command(self, data: str, tasks: Sequence[str]) -> str:
        """The request as a command line."""
        if self.family == "speed":
            return shlex.join(["isosent", "encode", "SENTENCES", "-m", self.model])
        if DEV in tasks:
            others = [task for task in tasks if task != DEV]
            runs = [self.command(data, others)] if others else []
            return " && ".join([*runs, self.command("DEV", [STSB])])
        if self.family in _STUDY_FAMILIES:
            task_names = [] if self.family == "layers" else ["--tasks", ",".join(tasks)]
            arguments = ["isosent", "research", "study", self.family, "--data", data, *task_names, "-m", self.model]
        else:
            task_names = [self.family] if self.family in ("rte", "cqa") else list(tasks)
            arguments = ["isosent", "evaluate", *task_names, "--data", data, "-m", self.model]
        if self.transform is not None and self.family != "layers":
            settings = "&".join(f"{name}={value}" for name, value in self.settings)
            arguments += ["--transform", f"{self.transform}?{settings}" if settings else self.transform]
        if self.fit != TARGET:
            arguments += ["--fit-on", "SENTENCES" if self.fit == EVALUATED else self.fit]
        if self.sickr != "full":
            arguments += ["--sickr", self.sickr]
        if self.family == "layers" and self.pooling != "mean":
            arguments += ["--pooling", self.pooling]
        if self.aggregation is not None:
            arguments += ["--aggregation", self.aggregation]
        return shlex.join(arguments)

    def load(self) -> SentenceEncoder:
        try:
            return load(with_options(self.reference, dict(self.options)))
        except ModelReferenceError as error:  # whose other lines say what may be typed
            raise ModelReferenceError(str(error).splitlines()[0]) from None

    def make_transform(self, dim: int) -> Transform | None:
        if self.transform is None:
            return None
        return make_transform(self.transform, dim=dim, settings=dict(self.settings))


class Plan(NamedTuple):
    """How a condition is measured."""

    request: Request | None  # None where isosent has no such model
    missing: tuple[str, ...]  # what is needed and not available; the request is then only shown
    stand_ins: tuple[Request, ...]

    @property
    def runs(self) -> list[Request]:
        own = [] if self.request is None or self.missing else [self.request]
        return [*own, *self.stand_ins]


def _plan(table: PaperTable, condition: Condition, available: Available) -> Plan:
    def is_file(name: str) -> bool:
        known = known_models().get(name)
        return known is not None and known.reference is None

    def needs(name: str) -> str:
        known = known_models().get(name)
        return known.needs if known and known.needs else name

    model = condition.model
    if model is None or table.family is None:
        return Plan(None, condition.needs, ())
    files = [name for name in (condition.fit, *condition.options.values()) if name and is_file(name)]
    missing_files = [needs(name) for name in files if name not in available.named]
    path_of = {name: available.named.get(name, name) for name in files}
    known = known_models().get(model)
    public = known.reference if known and known.reference else None
    reference = available.named.get(model, public)
    missing_models = [] if model in available.named else [needs(model)]
    is_study = table.family in ("dims", "layers")
    request = Request(
        table.family,
        reference or model,
        tuple((name, path_of.get(value, value)) for name, value in condition.options.items()),
        condition.transform,
        tuple(condition.settings.items()),
        path_of.get(condition.fit or TARGET, condition.fit or TARGET),
        table.sickr,
        condition.aggregation or table.aggregation if is_study else None,
        condition.study,
    )
    others = () if missing_files or condition.needs else available.stand_ins.get(model, ())
    stand_ins = []
    for other in others:  # without the options that the other model does not take
        taken = SCHEMES[parse_reference(other).scheme].options
        options = tuple(pair for pair in request.options if pair[0] in taken)
        stand_ins.append(replace(request, reference=other, options=options))
    missing = (*missing_models, *missing_files, *condition.needs)
    return Plan(request if reference else None, missing, tuple(stand_ins))


# -- measuring ---------------------------------------------------------------------------------------------------------


class _Measurements:
    """Runs requests on a data folder. Its tasks are read once, and requests share the cells of a study."""

    def __init__(self, folder: Path, seed: int, n_resamples: int, progress: Progress | None) -> None:
        self._folder, self._seed, self._n_resamples, self._progress = folder, seed, n_resamples, progress
        self._tasks: dict[tuple[str, str], dict[str, Task]] = {}
        self._cells: dict[Any, Any] = {}

    def of(self, request: Request, tasks: Sequence[str]) -> Numbers:
        """Numbers by task and metric; none for a task that the folder does not hold."""
        families = {
            "dims": self._best_widths,
            "layers": self._best_layers,
            "gem": self._best_settings,
            "speed": self._speed,
        }
        return families.get(request.family, self._evaluate)(request, tasks)

    def _available(self, family: str, sickr: str) -> Mapping[str, Task]:
        """The tasks of a family that the folder holds, by name; may be empty."""
        key = (family, sickr)
        if key not in self._tasks:
            try:
                tasks = read_tasks(self._folder, family, sickr=sickr if family == STS else SICKR_PARTS[0])
            except TaskNotFoundError:
                tasks = []
            dev = [stsb_dev_task(task) for task in tasks if task.name == STSB]
            self._tasks[key] = {task.name: task for task in [*tasks, *filter(None, dev)]}
        return self._tasks[key]

    def _deviations(self, request: Request, names: Sequence[str]) -> str:
        """How the data of STS tasks differ from the known sets."""
        tasks = self._available(STS, request.sickr)
        return "; ".join(f"{name}: {each}" for name in names for each in tasks[name].deviations)

    def _evaluate(self, request: Request, names: Sequence[str]) -> Numbers:
        tasks = [task for name, task in self._available(request.family, request.sickr).items() if name in names]
        fit = request.fit
        if fit == EVALUATED:
            tasks, fit = [_on_evaluated_pairs(task) for task in tasks], TARGET
        if not tasks:
            return {}
        model = request.load()
        result = run_tasks(
            model,
            tasks,
            self._folder,
            transforms=[request.make_transform(model.dim)],
            fit_on=fit,
            seed=self._seed,
            n_resamples=self._n_resamples,
            progress=self._progress,
        )
        numbers: dict[tuple[str, str | None], Number] = {}
        for name, task in result.tasks.items():
            unknown = task.n_unknown / task.n_tokens if task.n_tokens else 0.0
            for metric, score in task.scores.items():
                differing = "; ".join(task.deviations)
                numbers[name, metric] = Number(score, task.intervals.get(metric), unknown, deviations=differing)
            numbers[name, None] = numbers[name, task.metric]
        return numbers

    def _speed(self, request: Request, tasks: Sequence[str]) -> Numbers:
        """Count the sentences of the STS benchmark's test set that a model encodes per second on the CPU."""
        stsb = self._available(STS, request.sickr).get(STSB)
        if stsb is None or CPU not in tasks:
            return {}
        model = request.load()
        texts = stsb.all_texts
        if model.encoder.needs_corpus:
            model = model.fitted(texts, transform=None, source=TARGET)
        encode = partial(model.encode, device="cpu", show_progress_bar=False)
        encode(texts[:_WARM_UP])
        n_encoded, elapsed_s, started = 0, 0.0, perf_counter()
        while elapsed_s < _LONG_ENOUGH_S:
            encode(texts)
            n_encoded, elapsed_s = n_encoded + len(texts), perf_counter() - started
        n_tokens, n_unknown = model.encoder.coverage(texts)
        return {(CPU, None): Number(n_encoded / elapsed_s, unknown=n_unknown / n_tokens if n_tokens else 0.0)}

    def _best_widths(self, request: Request, tasks: Sequence[str]) -> Numbers:
        """The width at which each task has its highest score."""
        available = [task for task in tasks if task in self._available(STS, request.sickr)]
        if not available:
            return {}
        model, how = request.load(), request.aggregation or ALL
        transform = request.make_transform(model.dim)
        if needs_vectors(transform):
            raise InputError(
                f"reproduce: {request.transform} keeps all dimensions. It cannot be in a study of dimensions."
            )
        study = study_dims(
            model,
            self._folder,
            name=request.model,
            transform=transform,
            fit=request.fit,
            sickr=request.sickr,
            n_docs=0,
            n_resamples=0,
            tasks=available,
            progress=self._progress,
        )
        widths = {task: study.best(task, how) for task in study.tasks}
        return {
            (task, _spearman(how)): Number(
                study.curve(task, how)[width], at=f"{width} dimensions", deviations=self._deviations(request, [task])
            )
            for task, width in widths.items()
            if width is not None
        }

    def _best_layers(self, request: Request, tasks: Sequence[str]) -> Numbers:
        """The layers of each number that are the best on average over the available tasks."""
        available = [name for name in self._available(STS, request.sickr) if name != DEV]
        if not available:
            return {}
        how = request.aggregation or ALL
        key = replace(request, transform=None, settings=())  # all transforms are in one study
        if key not in self._cells:
            self._cells[key] = study_layers(
                request.load(),
                self._folder,
                name=request.model,
                tasks=available,
                sickr=request.sickr,
                pooling=request.pooling,
                aggregation=how,
                progress=self._progress,
            )
        best = best_of_sizes(self._cells[key], how)[request.transform or NONE]
        return {
            (str(size), _spearman(how)): Number(
                best_set.average, at=layers_label(best_set.layers), deviations=self._deviations(request, available)
            )
            for size, best_set in best.items()
            if str(size) in tasks
        }

    def _best_settings(self, request: Request, tasks: Sequence[str]) -> Numbers:
        """The best value of one setting of GEM, and how far the score moves with it."""
        available = tuple(task for task in tasks if task in self._available(STS, request.sickr))
        if not available:
            return {}
        key = (replace(request, study=None), available)  # all settings are in one study
        if key not in self._cells:
            self._cells[key] = study_gem(
                request.load(), self._folder, name=request.model, tasks=available, progress=self._progress
            )
        setting = SENSITIVITY[request.study or "window"][0]
        numbers: dict[tuple[str, str | None], Number] = {}
        for task in available:
            varied = [cell for cell in self._cells[key] if (cell.task, cell.study) == (task, request.study)]
            for metric in ("pearson", "spearman"):
                scores = {cell.condition: getattr(cell, metric) for cell in varied}
                best = max(scores, key=lambda value: -math.inf if math.isnan(scores[value]) else scores[value])
                at = f"{setting} = {best}; lowest {100 * min(scores.values()):.2f}"
                numbers[task, metric] = Number(scores[best], at=at, deviations=self._deviations(request, [task]))
        return numbers


def _on_evaluated_pairs(task: Task) -> Task:
    """The same task, with transforms fitted on the sentences of its evaluated pairs."""
    if task.kind != STS:
        raise InputError(f"reproduce: fit: {EVALUATED} works with STS tasks only, not with {task.name}.")
    return replace(task, target_texts=task.all_texts)


def _spearman(how: str) -> str:
    return "spearman" if how == ALL else f"spearman_{how}"


def _outcome(
    table: PaperTable, condition: Condition, plan: Plan, measured: Mapping[Request, Numbers], data: str
) -> Outcome:
    def numbers_and_command(request: Request) -> tuple[dict[str, Number], str]:
        """Measured numbers by column, and the command for their tasks; for all tasks where there are none."""
        numbers = _by_column(table, condition, measured[request]) if request in plan.runs else {}
        tasks = dict.fromkeys(column.task for column in table.columns if column.name in numbers)
        return numbers, request.command(data, list(tasks) or _tasks_of(table))

    numbers, command = ({}, None) if plan.request is None else numbers_and_command(plan.request)
    scale = 100 if table.unit == SCORE else 1
    published = {name: number / scale for name, number in condition.published.items()}
    absent = dict.fromkeys(column.task for column in table.columns if column.name not in numbers)
    absent_files = _ABSENT.get(table.family or "", "files of {}").format(", ".join(absent))
    stand_ins = []
    for request in plan.stand_ins:
        other_numbers, other_command = numbers_and_command(request)
        stand_ins.append(StandIn(request.model, other_command, other_numbers))
    return Outcome(
        condition.label,
        command,
        {column.name: Cell(published.get(column.name), numbers.get(column.name)) for column in table.columns},
        plan.missing or ((absent_files,) if absent else ()),
        tuple(stand_ins),
        condition.note,
    )


def _by_column(table: PaperTable, condition: Condition, numbers: Numbers) -> dict[str, Number]:
    by_column = {}
    for column in table.columns:
        metric = column.metric or table.metric
        if metric is not None and (how := condition.aggregation or table.aggregation) not in (None, ALL):
            metric = f"{metric}_{how}"
        metrics = [name for task, name in numbers if task == column.task]
        if metrics and metric not in metrics:
            listed = ", ".join(name for name in metrics if name)
            raise InputError(f"reproduce: {table.name}: {column.task} has no metric {metric}; it has {listed}.")
        if metrics:
            by_column[column.name] = numbers[column.task, metric]
    return by_column
