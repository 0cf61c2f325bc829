"""The tables of a paper, measured again as far as their models are available, beside what was published."""

from __future__ import annotations

import math
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, NamedTuple

from msgspec import structs

from isosent import _check
from isosent.encoders.base import Progress
from isosent.encoders.reference import SCHEMES, escape, parse_reference, without_permissions
from isosent.errors import FileFormatError, InputError, TaskNotFoundError
from isosent.evaluation.published import (
    EVALUATED,
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
from isosent.evaluation.result import TaskResult
from isosent.evaluation.run import environment, read_tasks, run_tasks
from isosent.evaluation.sts import sts_tasks
from isosent.evaluation.task import Task
from isosent.io.json import without_nan
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.numeric.statistics import N_RESAMPLES
from isosent.research.dims import study_dims
from isosent.research.gem import SENSITIVITY, study_gem
from isosent.research.layers import NONE, best_of_sizes, study_layers
from isosent.research.study import ALL, GemCell, LayerCell, layers_label
from isosent.transforms.base import Transform, is_flow, make_transform

FORMAT = "isosent reproduction 1"
MANY_UNKNOWN = 0.05
UNKNOWN = "unknown"
_DAGGER = "\u2020"
LEGEND = (
    f"A cell: the published number, or {UNKNOWN}; if measured: the measured number, then (published) and their "
    f"difference.\n{_DAGGER}: more than {MANY_UNKNOWN:.0%} of the tokens have no vector; not comparable."
)
STS, CPU = "sts", "CPU"
STSB, DEV = "STSB", "STSB-dev"
_INSTEAD = "instead"
_STUDY_FAMILIES = ("dims", "layers", "gem")  # the other families are evaluated
_TEST_FILE, _DEV_FILE = "sts-test.csv", "sts-dev.csv"
_WARM_UP, _LONG_ENOUGH_S = 64, 1.0
_ABSENT = {"speed": "a run on the {}", "layers": "as many as {} layers"}


class Number(NamedTuple):
    """A measured number."""

    value: float  # a score in [-1, 1], or sentences per second; NaN where undefined
    interval: tuple[float, float] | None = None  # 95% bootstrap interval
    unknown: float = 0.0  # share of the tokens that the model does not know
    at: str | None = None  # what a study chose

    @property
    def is_comparable(self) -> bool:
        return self.unknown <= MANY_UNKNOWN


class Cell(NamedTuple):
    """A cell of a table, both numbers in the unit of `Number`."""

    published: float | None  # None where unknown
    measured: Number | None  # None where not measured

    @property
    def difference(self) -> float | None:
        """Measured minus published; None where one is missing, or they are not comparable."""
        if self.published is None or self.measured is None or not self.measured.is_comparable:
            return None
        return self.measured.value - self.published

    def to_json(self) -> dict[str, Any]:
        measured = None if self.measured is None else self.measured._asdict()
        return {"published": self.published, "measured": measured, "difference": self.difference}


class StandIn(NamedTuple):
    """Another model in the place of the one that a table names."""

    model: str  # its reference
    command: str
    measured: Mapping[str, Number]  # by column

    def to_json(self) -> dict[str, Any]:
        measured = {name: number._asdict() for name, number in self.measured.items()}
        return {"model": self.model, "command": self.command, "measured": measured}


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """Settings of every evaluation of a reproduction; hashable, so that studies can be cached by them."""

    seed: int = 0
    n_resamples: int = N_RESAMPLES
    progress: Callable[[int], Progress] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A condition of a table, published and measured."""

    label: str
    command: str | None  # None where isosent has nothing of that kind
    cells: Mapping[str, Cell]  # by column
    missing: tuple[str, ...]  # what was needed and is not available
    stand_ins: tuple[StandIn, ...]
    note: str | None

    def to_json(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "command": self.command,
            "cells": {name: cell.to_json() for name, cell in self.cells.items()},
            "missing": list(self.missing),
            "instead": [other.to_json() for other in self.stand_ins],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """A table of a paper, published and measured."""

    table: PaperTable
    outcomes: tuple[Outcome, ...]

    def to_json(self) -> dict[str, Any]:
        described = {name: getattr(self.table, name) for name in ("name", "title", "source", "family", "unit")}
        conditions = [outcome.to_json() for outcome in self.outcomes]
        return {**described, "notes": list(self.table.notes), "conditions": conditions}

    @property
    def header(self) -> list[str]:
        """Headings of the columns."""
        return ["condition", *(column.name for column in self.table.columns), "measured"]

    def rows(self, *, line_end: str = "\n", emphasis: str = "") -> list[list[str]]:
        """The table as text: a row per condition, and one per stand-in below it."""

        def written(value: float) -> str:
            if math.isnan(value):
                return "undefined"
            return f"{100 * value:.2f}" if self.table.unit == SCORE else f"{value:,.0f}"

        def measured(number: Number) -> str:
            mark = "" if number.is_comparable else f" {_DAGGER}"
            text = f"{emphasis}{written(number.value)}{emphasis}{mark}"
            return f"{text}{line_end}{number.at}" if number.at else text

        def cell_text(cell: Cell) -> str:
            published = UNKNOWN if cell.published is None else written(cell.published)
            if cell.measured is None:
                return published
            parts = [measured(cell.measured), f"({published})"]
            if cell.difference is not None and self.table.unit == SCORE:
                parts.append(f"{round(100 * cell.difference, 2) + 0.0:+.2f}")  # + 0.0: no minus before zero
            return line_end.join(parts)

        rows = []
        for outcome in self.outcomes:
            label = f"{outcome.label} ({outcome.note})" if outcome.note else outcome.label
            cells = [cell_text(outcome.cells[column.name]) for column in self.table.columns]
            state = f"missing: needs {', '.join(outcome.missing)}" if outcome.missing else "yes"
            rows.append([label, *cells, state])
            for other in outcome.stand_ins:
                numbers = (other.measured.get(column.name) for column in self.table.columns)
                texts = [measured(number) if number else "missing" for number in numbers]
                rows.append([f"  {other.model} instead", *texts, "another model"])
        return rows

    @property
    def caption(self) -> list[str]:
        """Unit, source and notes."""
        metric = f"{self.table.metric} " if self.table.metric else ""
        how = f", {self.table.aggregation}" if self.table.aggregation else ""
        return [f"{metric}{self.table.unit}{how}. Published numbers: {self.table.source}.", *self.table.notes]

    @property
    def commands(self) -> dict[str, str]:
        """The command of every condition that has one, and of every stand-in, by label."""
        commands = {}
        for outcome in self.outcomes:
            if outcome.command is not None:
                commands[outcome.label] = outcome.command
            commands |= {f"{outcome.label}, {other.model} instead": other.command for other in outcome.stand_ins}
        return commands


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The tables of a paper, published and measured."""

    paper: Paper
    tables: tuple[TableOutcome, ...]
    environment: Mapping[str, Any]  # versions and machine

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can hold: scores in [-1, 1], an undefined one None."""
        described = {name: getattr(self.paper, name) for name in ("name", "title", "citation", "arxiv")}
        values: dict[str, Any] = without_nan(
            {
                "format": FORMAT,
                "paper": described,
                "tables": [table.to_json() for table in self.tables],
                "environment": dict(self.environment),
            }
        )
        return values

    def to_markdown(self, *, with_commands: bool = False) -> str:
        def escaped(text: str) -> str:
            return text.replace("|", "\\|").replace("[", "\\[").strip()

        paper = self.paper
        arxiv = f", arXiv {paper.arxiv}" if paper.arxiv else ""
        lines = [f"## {paper.name}: {paper.title}", "", f"{paper.citation}{arxiv}."]
        for table in self.tables:
            lines += ["", f"### {paper.name}, {table.table.name}: {table.table.title}", ""]
            lines += [f"- {escaped(sentence)}" for sentence in table.caption]
            head, *body = (
                f"| {' | '.join(map(escaped, row))} |"
                for row in (table.header, *table.rows(line_end=" ", emphasis="**"))
            )
            lines += ["", head, f"|{'---|' * len(table.header)}", *body]
            if with_commands and table.commands:
                listed = (f"{command}  # {label}" for label, command in table.commands.items())
                lines += ["", "```bash", *listed, "```"]
        return "\n".join(lines) + "\n"


def reproduce(
    paper: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    models: str | os.PathLike[str] | None = None,
    tables: Sequence[str] | None = None,
    run: EvaluationSettings | None = None,
    tell: Callable[[str], None] | None = None,
) -> Reproduction:
    """Measure the conditions of a paper's tables for which models are available. Equal conditions are run once."""
    folder = Folder(_check.input_folder(data).resolve())
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
                tasks_of.setdefault(request, {}).update(dict.fromkeys(table.tasks))
    measured = {}
    for request, tasks in tasks_of.items():
        measure = _STUDIES.get(request.family, _evaluate)
        measured[request] = measure(request, list(tasks), folder, run or EvaluationSettings())
        if tell:
            tell(request.command(str(data), list(tasks)))
    outcomes = (
        TableOutcome(
            table,
            tuple(
                _outcome(table, condition, plan, measured, str(data))
                for condition, plan in zip(table.conditions, table_plans, strict=True)
            ),
        )
        for table, table_plans in plans
    )
    return Reproduction(chosen, tuple(outcomes), environment())


def _read_paper(paper: str | os.PathLike[str]) -> Paper:
    if paper in PAPERS:
        return known_paper(str(paper))
    if not Path(paper).exists():
        raise InputError(f"reproduce: paper must be one of {', '.join(PAPERS)}, or a YAML file; got {str(paper)!r}.")
    stored = read_paper(paper)
    tables = []
    for table in stored.tables:  # a file must not grant its models permissions, such as to run code
        options = [without_permissions("", condition.options, file=paper)[1] for condition in table.conditions]
        pairs = zip(table.conditions, options, strict=True)
        conditions = tuple(structs.replace(each, options=some) for each, some in pairs)
        tables.append(structs.replace(table, conditions=conditions))
    return structs.replace(stored, tables=tuple(tables))


def _select(paper: Paper, names: Sequence[str] | None) -> list[PaperTable]:
    tables = {table.name: table for table in paper.tables}
    chosen = tables if names is None else [name if name in tables else f"table {name}" for name in names]
    if absent := [name for name in chosen if name not in tables]:
        raise InputError(f"reproduce: {paper.name} has no {absent[0]!r}. Its tables: {'; '.join(tables)}.")
    return [tables[name] for name in dict.fromkeys(chosen)]


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
        raise FileFormatError(f"{models}: {_INSTEAD} must hold names and references; got {instead!r}.")
    stand_ins = {name: tuple(value) if isinstance(value, list) else (value,) for name, value in instead.items()}
    papers = [*map(known_paper, PAPERS), *more]
    in_tables = (condition.model for paper in papers for table in paper.tables for condition in table.conditions)
    names = list(dict.fromkeys([*known_models(), *filter(None, in_tables)]))
    for name, value in [*document.items(), *((name, value) for name, values in stand_ins.items() for value in values)]:
        if name not in names:
            nearest = get_close_matches(name, names, n=1, cutoff=0)[0]
            raise FileFormatError(f"{models}: no table has a model or file named {name!r}. Did you mean {nearest}?")
        if not isinstance(value, str) or not value:
            raise FileFormatError(f"{models}: {name} must be a model reference or a path; got {value!r}.")

    def untrusted(reference: str) -> str:
        return without_permissions(reference, {}, file=models)[0]

    named |= {name: untrusted(value) for name, value in document.items()}
    return Available(named, {name: tuple(map(untrusted, values)) for name, values in stand_ins.items()})


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
            arguments = ["isosent", "study", self.family, "--data", data, *task_names, "-m", self.model]
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
        if self.aggregation is not None:
            arguments += ["--aggregation", self.aggregation]
        return shlex.join(arguments)

    def load(self, **options: str) -> SentenceEncoder:
        return load(self.reference, options=dict(self.options) | options)

    def make_transform(self, dim: int) -> Transform | None:
        if self.transform is None:
            return None
        return make_transform(self.transform, dim=dim, settings=dict(self.settings))


class Plan(NamedTuple):
    """How a condition is measured."""

    request: Request | None  # None where isosent has nothing of that kind
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


Numbers = Mapping[tuple[str, str | None], Number]  # by task and metric; metric None is the main one


def _outcome(
    table: PaperTable, condition: Condition, plan: Plan, measured: Mapping[Request, Numbers], data: str
) -> Outcome:
    def numbers_and_command(request: Request) -> tuple[dict[str, Number], str]:
        """Measured numbers by column, and the command for their tasks; for all tasks where there are none."""
        numbers = _by_column(table, condition, measured[request]) if request in plan.runs else {}
        tasks = dict.fromkeys(column.task for column in table.columns if column.name in numbers)
        return numbers, request.command(data, list(tasks) or table.tasks)

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
        metric = table.metric_of(column, condition)
        metrics = [name for task, name in numbers if task == column.task]
        if metrics and metric not in metrics:
            listed = ", ".join(name for name in metrics if name)
            raise InputError(f"reproduce: {table.name}: {column.task} has no metric {metric}; it has {listed}.")
        if metrics:
            by_column[column.name] = numbers[column.task, metric]
    return by_column


class Folder:
    """The tasks of a data folder, each read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._jobs: dict[tuple[str, str], dict[str, Task]] = {}

    def jobs(self, family: str, sickr: str) -> Mapping[str, Task]:
        """The tasks of a family that the folder holds, by name; may be empty."""
        key = (family, sickr)
        if key not in self._jobs:
            try:
                jobs = read_tasks(self.path, family, sickr=sickr)
            except TaskNotFoundError:
                jobs = []
            dev = [_dev_part(job) for job in jobs if job.name == STSB]
            self._jobs[key] = {job.name: job for job in [*jobs, *filter(None, dev)]}
        return self._jobs[key]


def _dev_part(stsb: Task) -> Task | None:
    """The development set of the STS benchmark as a separate task, read as if it were the test set."""
    dev = next((path for path in stsb.files if path.name == _DEV_FILE), None)
    if dev is None:
        return None
    with TemporaryDirectory() as folder:
        shutil.copyfile(dev, Path(folder, _TEST_FILE))
        (job,) = sts_tasks(folder)
    return replace(job, name=DEV, files=[dev])


def _on_evaluated_pairs(job: Task) -> Task:
    """The same task, with transforms fitted on the sentences of its evaluated pairs."""
    if job.kind != STS:
        raise InputError(f"reproduce: fit: {EVALUATED} works with STS tasks only; got {job.name}.")
    return replace(job, target_texts=job.all_texts)


def _evaluate(request: Request, tasks: Sequence[str], folder: Folder, run: EvaluationSettings) -> Numbers:
    """Score a model on tasks of one family."""
    jobs = [job for name, job in folder.jobs(request.family, request.sickr).items() if name in tasks]
    fit = request.fit
    if fit == EVALUATED:
        jobs, fit = [_on_evaluated_pairs(job) for job in jobs], TARGET
    if not jobs:
        return {}
    model = request.load()
    transform = request.make_transform(model.dim)
    result = run_tasks(
        model,
        jobs,
        folder.path,
        transforms=[transform],
        fit_on=fit,
        seed=run.seed,
        n_resamples=run.n_resamples,
        progress=run.progress,
    )
    return {(name, metric): number for name, task in result.tasks.items() for metric, number in _numbers_of(task)}


def _numbers_of(task: TaskResult) -> Iterator[tuple[str | None, Number]]:
    unknown = task.n_unknown / task.n_tokens if task.n_tokens else 0.0
    for metric, score in task.scores.items():
        yield metric, Number(score, task.intervals.get(metric), unknown)
    yield None, Number(task.score, task.interval, unknown)


def _measure_speed(request: Request, tasks: Sequence[str], folder: Folder, run: EvaluationSettings) -> Numbers:
    """Count the sentences of the STS benchmark's test set that a model encodes per second on the CPU."""
    stsb = folder.jobs(STS, request.sickr).get(STSB)
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


def _best_widths(request: Request, tasks: Sequence[str], folder: Folder, run: EvaluationSettings) -> Numbers:
    """The width at which each task has its highest score."""
    available = [task for task in tasks if task in folder.jobs(STS, request.sickr)]
    if not available:
        return {}
    model, how = request.load(), request.aggregation or ALL
    transform = request.make_transform(model.dim)
    if is_flow(transform):
        raise InputError(f"reproduce: {request.transform} keeps all dimensions. It cannot be in a study of dimensions.")
    study = study_dims(
        model,
        folder.path,
        name=request.model,
        transform=transform,
        fit=request.fit,
        sickr=request.sickr,
        n_docs=0,
        tasks=available,
        progress=run.progress,
    )
    widths = {task: study.best(task, how) for task in study.tasks}
    return {
        (task, _spearman(how)): Number(study.curve(task, how)[width], at=f"{width} dimensions")
        for task, width in widths.items()
        if width is not None
    }


def _best_layers(request: Request, tasks: Sequence[str], folder: Folder, run: EvaluationSettings) -> Numbers:
    """The layers of each number that are the best on average over the available tasks."""
    if not folder.jobs(STS, request.sickr):
        return {}
    how = request.aggregation or ALL
    cells = _layer_cells(replace(request, transform=None, settings=()), folder, run)
    best = best_of_sizes(cells, how)[request.transform or NONE]
    return {
        (str(size), _spearman(how)): Number(best_set.average, at=layers_label(best_set.layers))
        for size, best_set in best.items()
        if str(size) in tasks
    }


@lru_cache(maxsize=16)
def _layer_cells(request: Request, folder: Folder, run: EvaluationSettings) -> list[LayerCell]:
    return study_layers(
        request.load(),
        folder.path,
        name=request.model,
        tasks=[name for name in folder.jobs(STS, request.sickr) if name != DEV],
        sickr=request.sickr,
        pooling=dict(request.options).get("pooling", "mean"),
        aggregation=request.aggregation or ALL,
        progress=run.progress,
    )


def _best_settings(request: Request, tasks: Sequence[str], folder: Folder, run: EvaluationSettings) -> Numbers:
    """The best value of one setting of GEM, and how far the score moves with it."""
    available = tuple(task for task in tasks if task in folder.jobs(STS, request.sickr))
    if not available:
        return {}
    cells = _gem_cells(replace(request, study=None), available, folder, run)
    setting = SENSITIVITY[request.study or "window"][0]
    numbers: dict[tuple[str, str | None], Number] = {}
    for task in available:
        varied = [cell for cell in cells if (cell.task, cell.study) == (task, request.study)]
        for metric in ("pearson", "spearman"):
            scores = {cell.condition: getattr(cell, metric) for cell in varied}
            best = max(scores, key=lambda value: -math.inf if math.isnan(scores[value]) else scores[value])
            at = f"{setting} = {best}; {100 * min(scores.values()):.2f} at the least"
            numbers[task, metric] = Number(scores[best], at=at)
    return numbers


@lru_cache(maxsize=16)
def _gem_cells(request: Request, tasks: tuple[str, ...], folder: Folder, run: EvaluationSettings) -> list[GemCell]:
    return study_gem(request.load(), folder.path, name=request.model, tasks=tasks, progress=run.progress)


def _spearman(how: str) -> str:
    return "spearman" if how == ALL else f"spearman_{how}"


_STUDIES: Mapping[str, Callable[[Request, Sequence[str], Folder, EvaluationSettings], Numbers]] = {
    "dims": _best_widths,
    "layers": _best_layers,
    "gem": _best_settings,
    "speed": _measure_speed,
}
