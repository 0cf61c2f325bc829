"""Running the conditions of a paper where their models are at hand."""

from __future__ import annotations

import math
import os
import shlex
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
from msgspec import structs

from isosent import _check
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
from isosent.evaluation.run import EvaluationSettings, environment, read_tasks, run_tasks
from isosent.evaluation.sts import sts_tasks
from isosent.evaluation.task import Task
from isosent.io.json import without_nan
from isosent.loading import load
from isosent.model import SentenceEncoder
from isosent.research.dims import DimsPlan, study_dims
from isosent.research.gem import SENSITIVITY, GemCell, study_gem
from isosent.research.layers import best_of_sizes, read_layers, study_layers
from isosent.research.study import NONE, LayerCell, layers_label
from isosent.transforms.base import Transform, is_flow, make_transform

FORMAT = "isosent reproduction 1"
MANY_UNKNOWN = 0.05


@dataclass(frozen=True, slots=True)
class Number:
    """A measured number."""

    value: float  # A score in [-1, 1], or sentences a second; NaN where undefined
    interval: tuple[float, float] | None = None  # 95 % bootstrap interval, where there is one
    unknown: float = 0.0  # share of the tokens that the model does not know
    at: str | None = None  # what a study chose

    @property
    def is_comparable(self) -> bool:
        """Whether the model knows nearly all words, so that the number may be held against a published one."""
        return self.unknown <= MANY_UNKNOWN


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table."""

    published: float | None  # in the unit of `Number`; None where unknown
    measured: Number | None  # none where missing

    @property
    def difference(self) -> float | None:
        """Measured minus published; None where one is not known, or they are not comparable."""
        if self.published is None or self.measured is None or not self.measured.is_comparable:
            return None
        return self.measured.value - self.published

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        measured = None if self.measured is None else asdict(self.measured)
        return {"published": self.published, "measured": measured, "difference": self.difference}


@dataclass(frozen=True, slots=True)
class StandIn:
    """Another model in the place of the one that a table names."""

    model: str  # its reference, options included
    command: str  # what was run
    measured: Mapping[str, Number]  # by name of the column


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a condition."""

    label: str  # what the table calls it
    command: str | None  # what is run for it; None where isosent has nothing of that kind
    cells: Mapping[str, Cell]  # by name of the column
    missing: tuple[str, ...]  # what was needed and not at hand
    stand_ins: tuple[StandIn, ...]  # other models in its place
    note: str | None  # what else there is to say

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "label": self.label,
            "command": self.command,
            "cells": {name: cell.to_json() for name, cell in self.cells.items()},
            "missing": list(self.missing),
            "instead": [asdict(other) for other in self.stand_ins],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What became of a table."""

    table: PaperTable  # the table
    outcomes: tuple[Outcome, ...]  # its conditions

    @property
    def scale(self) -> float:
        """What a number is multiplied by to be in the unit of the table."""
        return 100.0 if self.table.unit == SCORE else 1.0

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        said = {name: getattr(self.table, name) for name in ("name", "title", "source", "family", "unit")}
        return {**said, "notes": list(self.table.notes), "conditions": [each.to_json() for each in self.outcomes]}


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What became of the tables of a paper."""

    paper: Paper  # the paper
    tables: tuple[TableOutcome, ...]  # its tables
    environment: Mapping[str, Any]  # versions and machine

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values that JSON can hold: scores in [-1, 1], an undefined one None."""
        said = {name: getattr(self.paper, name) for name in ("name", "title", "citation", "arxiv")}
        plain: dict[str, Any] = without_nan(
            {
                "format": FORMAT,
                "paper": said,
                "tables": [table.to_json() for table in self.tables],
                "environment": dict(self.environment),
            }
        )
        return plain


INSTEAD = "instead"


@dataclass(frozen=True, slots=True)
class AtHand:
    """Models and files by the names that the tables have for them."""

    named: Mapping[str, str]  # model reference, or path, of what a table names
    # References of other models, to be measured in the place of one that a table names
    stand_ins: Mapping[str, tuple[str, ...]]


def find_available(data: Path, models: str | os.PathLike[str] | None = None, *, more: Iterable[Paper] = ()) -> AtHand:
    """Find what a data folder holds, and add what a map names."""
    found = dict(_files_below(data))
    if models is None:
        return AtHand(found, {})
    document = read_yaml(models)
    instead = document.pop(INSTEAD, {})
    if not isinstance(instead, dict):
        raise FileFormatError(f"{models}: {INSTEAD} must hold names and references; got {instead!r}.")
    stand_ins = {name: tuple(written) if isinstance(written, list) else (written,) for name, written in instead.items()}
    names = _names(more)
    for name, written in [*document.items(), *((name, each) for name, all_ in stand_ins.items() for each in all_)]:
        if name not in names:
            nearest = get_close_matches(name, names, n=1, cutoff=0)[0]
            raise FileFormatError(
                f"{models}: names must be those of the tables; got {name!r}. The nearest is {nearest}."
            )
        if not isinstance(written, str) or not written:
            raise FileFormatError(f"{models}: {name} must be a model reference or a path; got {written!r}.")

    def untrusted(reference: str) -> str:
        return without_permissions(reference, {}, file=models)[0]

    named = {name: untrusted(written) for name, written in document.items()}
    return AtHand(found | named, {name: tuple(map(untrusted, written)) for name, written in stand_ins.items()})


def _files_below(data: Path) -> Iterable[tuple[str, str]]:
    for name, known in known_models().items():
        paths = sorted(path for path in data.rglob(known.file) if path.is_file()) if known.file else []
        if paths:
            yield name, f"words:{escape(str(paths[0]))}" if known.reference else str(paths[0])


def _names(more: Iterable[Paper]) -> list[str]:
    papers = [*map(known_paper, PAPERS), *more]
    models = (condition.model for paper in papers for table in paper.tables for condition in table.conditions)
    return list(dict.fromkeys([*known_models(), *filter(None, models)]))


Pairs = tuple[tuple[str, object], ...]

_COMMANDS = {
    "sts": "evaluate sts",
    "transfer": "evaluate transfer",
    "cqa": "evaluate cqa",
    "rte": "evaluate rte",
    "dims": "study dims",
    "layers": "study layers",
    "gem": "study gem",
}
_TASKLESS = ("layers", "rte", "cqa")
_FLAGS = {"n_components": "dims"}
STSB, DEV = "STSB", "STSB-dev"


@dataclass(frozen=True, slots=True)
class Request:
    """Something to run. Equal requests give equal numbers, so each is run once for all tables."""

    family: str  # A key of `FAMILIES` of the tables
    reference: str  # model reference, without the options of the condition
    options: tuple[tuple[str, str], ...] = ()  # these options
    transform: str | None = None  # fitted behind the model
    settings: Pairs = ()  # its settings
    fit: str = TARGET  # "target", "evaluated" or a path
    sickr: str = "full"  # pairs of SICK-R
    aggregation: str | None = None  # for studies, which choose by it
    study: str | None = None  # setting that a study moves

    @property
    def model(self) -> str:
        """The model reference with all options; those of the condition win."""
        location, _, query = self.reference.partition("?")
        own = dict(part.partition("=")[::2] for part in query.split("&") if part)
        written = "&".join(f"{name}={value}" for name, value in (own | dict(self.options)).items())
        return f"{location}?{written}" if written else location

    def command(self, data: str, tasks: Sequence[str]) -> str:
        """Write it as a command."""
        if self.family == "speed":
            return shlex.join(["isosent", "encode", "SENTENCES", "-m", self.model])
        if DEV in tasks:
            others = [task for task in tasks if task != DEV]
            runs = [self.command(data, others)] if others else []
            return " && ".join([*runs, self.command("DEV", [STSB])])
        named = [] if self.family in _TASKLESS else ["--tasks", ",".join(tasks)]
        arguments = ["isosent", *_COMMANDS[self.family].split(), "--data", data, *named, "-m", self.model]
        if self.transform is not None and self.family != "layers":
            settings = ((f"--{_FLAGS.get(name, name)}", str(value)) for name, value in self.settings)
            arguments += ["--transform", self.transform, *(word for setting in settings for word in setting)]
        if self.fit != TARGET:
            arguments += ["--fit", "SENTENCES" if self.fit == EVALUATED else self.fit]
        if self.sickr != "full":
            arguments += ["--sickr", self.sickr]
        if self.aggregation is not None:
            arguments += ["--aggregation", self.aggregation]
        return shlex.join(arguments)


@dataclass(frozen=True, slots=True)
class Plan:
    """How a condition is measured."""

    request: Request | None  # what to run; None where isosent has nothing of that kind
    # What is needed and not at hand. Where there is something, the request is how it would be run
    missing: tuple[str, ...]
    stand_ins: tuple[Request, ...]  # the same with other models

    @property
    def runs(self) -> list[Request]:
        """What can be run."""
        own = [] if self.request is None or self.missing else [self.request]
        return [*own, *self.stand_ins]


def plan(table: PaperTable, condition: Condition, available: AtHand) -> Plan:
    """Say how a condition is measured."""
    model = condition.model
    if model is None or table.family is None:
        return Plan(None, condition.needs, ())
    files = [name for name in (condition.fit, *condition.options.values()) if name and _is_file(name)]
    lacking = [_asked_for(name) for name in files if name not in available.named]
    where = {name: available.named.get(name, name) for name in files}
    known = known_models().get(model)
    public = known.reference if known and known.reference else None
    reference = available.named.get(model, public)
    missing = [] if model in available.named else [_asked_for(model)]
    is_study = table.family in ("dims", "layers")
    request = Request(
        table.family,
        reference or model,
        tuple((name, where.get(value, value)) for name, value in condition.options.items()),
        condition.transform,
        tuple(condition.settings.items()),
        where.get(condition.fit or TARGET, condition.fit or TARGET),
        table.sickr,
        condition.aggregation or table.aggregation if is_study else None,
        condition.study,
    )
    others = () if lacking or condition.needs else available.stand_ins.get(model, ())
    return Plan(
        request if reference else None,
        (*missing, *lacking, *condition.needs),
        tuple(_instead(request, other) for other in others),
    )


def _instead(request: Request, reference: str) -> Request:
    """The same with another model, without the options that it does not take."""
    taken = SCHEMES[parse_reference(reference).scheme].options
    return replace(request, reference=reference, options=tuple(pair for pair in request.options if pair[0] in taken))


def _is_file(name: str) -> bool:
    known = known_models().get(name)
    return known is not None and known.reference is None


def _asked_for(name: str) -> str:
    known = known_models().get(name)
    return known.needs if known and known.needs else name


def needs(what: Iterable[str]) -> str:
    """Say what is missing."""
    return f"missing: needs {', '.join(what)}"


STS = "sts"
CPU = "CPU"
_TEST_FILE, _DEV_FILE = "sts-test.csv", "sts-dev.csv"
_WARM_UP, _LONG_ENOUGH_S = 64, 1.0

Numbers = Mapping[tuple[str, str | None], Number]


class Folder:
    """The tasks of a data folder, each read once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._jobs: dict[tuple[str, str], dict[str, Task]] = {}

    def jobs(self, family: str, sickr: str) -> Mapping[str, Task]:
        """Return the tasks of a family that the folder holds, by name; possibly none."""
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
    """The dev part of the STS benchmark as a task of its own, where it is there: read as if it were the test part."""
    dev = next((path for path in stsb.files if path.name == _DEV_FILE), None)
    if dev is None:
        return None
    with TemporaryDirectory() as folder:
        shutil.copyfile(dev, Path(folder, _TEST_FILE))
        (job,) = sts_tasks(folder)
    return replace(job, name=DEV, files=[dev])


def _on_evaluated_pairs(job: Task) -> Task:
    """The same task, with what is fitted on it fitted on the sentences of its evaluated pairs."""
    if job.kind != STS:
        raise InputError(f"reproduce: fit: {EVALUATED} must stand with tasks of STS; got {job.name}.")
    return replace(job, target_texts=job.all_texts)


def open_model(request: Request, **options: str) -> SentenceEncoder:
    """Open the model of a request, with further options."""
    return load(request.reference, options=dict(request.options) | options)


def transform_of(request: Request, dim: int) -> Transform | None:
    """Make the transform of a request, for vectors of `dim` dimensions."""
    if request.transform is None:
        return None
    return make_transform(request.transform, dim=dim, settings=dict(request.settings))


def evaluate(request: Request, tasks: Sequence[str], folder: Folder, run: EvaluationSettings) -> Numbers:
    """Score a model on tasks of one family."""
    jobs = [job for name, job in folder.jobs(request.family, request.sickr).items() if name in tasks]
    fit = request.fit
    if fit == EVALUATED:
        jobs, fit = [_on_evaluated_pairs(job) for job in jobs], TARGET
    if not jobs:
        return {}
    model = open_model(request)
    transform = transform_of(request, model.dim)
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
    return {(name, metric): number for name, task in result.tasks.items() for metric, number in _numbers(task)}


def _numbers(task: TaskResult) -> Iterator[tuple[str | None, Number]]:
    unknown = task.n_unknown / task.n_tokens if task.n_tokens else 0.0
    for metric, score in task.scores.items():
        yield metric, Number(score, task.intervals.get(metric), unknown)
    yield None, Number(task.score, task.interval, unknown)


def measure_speed(request: Request, tasks: Sequence[str], folder: Folder, run: EvaluationSettings) -> Numbers:
    """Count the sentences of the STS benchmark's test part that a model encodes in a second, on the CPU."""
    stsb = folder.jobs(STS, request.sickr).get(STSB)
    if stsb is None or CPU not in tasks:
        return {}
    parsed = parse_reference(request.model)
    is_network = parsed.scheme == "hf" and not parsed.options.get("static")
    model = open_model(request, **({"devices": "cpu"} if is_network else {}))
    texts = stsb.all_texts
    if model.encoder.needs_corpus:
        model = model.fitted(texts, transform=None, source=TARGET)
    model.encode(texts[:_WARM_UP])
    n_encoded, elapsed_s, started = 0, 0.0, perf_counter()
    while elapsed_s < _LONG_ENOUGH_S:
        model.encode(texts)
        n_encoded, elapsed_s = n_encoded + len(texts), perf_counter() - started
    n_tokens, n_unknown = model.encoder.coverage(texts)
    return {(CPU, None): Number(n_encoded / elapsed_s, unknown=n_unknown / n_tokens if n_tokens else 0.0)}


_SPEARMAN, _PEARSON = "spearman", "pearson"
_ALL = "all"


def best_widths(request: Request, tasks: Sequence[str], folder: Folder, run: EvaluationSettings) -> Numbers:
    """Find the width at which each task has its highest score."""
    held = [task for task in tasks if task in folder.jobs(STS, request.sickr)]
    if not held:
        return {}
    model, how = open_model(request), request.aggregation or _ALL
    transform = transform_of(request, model.dim)
    if is_flow(transform):
        raise InputError(f"reproduce: {request.transform} must not be in a study of dimensions; a flow keeps them all.")
    plan = DimsPlan(fit=request.fit, sickr=request.sickr, n_docs=0)
    plan = plan if transform is None else replace(plan, transform=transform)
    study = study_dims(model, folder.path, name=request.model, plan=plan, tasks=held, progress=run.progress)
    widths = {task: study.best(task, how) for task in study.tasks}
    return {
        (task, _metric(_SPEARMAN, how)): Number(study.curve(task, how)[width], at=f"{width} dimensions")
        for task, width in widths.items()
        if width is not None
    }


def best_layers(request: Request, tasks: Sequence[str], folder: Folder, run: EvaluationSettings) -> Numbers:
    """Find the layers of each number that are the best on average over the tasks at hand."""
    if not folder.jobs(STS, request.sickr):
        return {}
    how = request.aggregation or _ALL
    cells = _layer_cells(replace(request, transform=None, settings=()), folder, run)
    best = best_of_sizes(cells, how)[request.transform or NONE]
    return {
        (str(size), _metric(_SPEARMAN, how)): Number(found.average, at=layers_label(found.layers))
        for size, found in best.items()
        if str(size) in tasks
    }


@lru_cache(maxsize=16)
def _layer_cells(request: Request, folder: Folder, run: EvaluationSettings) -> list[LayerCell]:
    vectors = read_layers(
        open_model(request),
        folder.path,
        name=request.model,
        tasks=[name for name in folder.jobs(STS, request.sickr) if name != DEV],
        sickr=request.sickr,
        pooling=dict(request.options).get("pooling", "mean"),
        progress=run.progress,
    )
    return study_layers(vectors, aggregation=request.aggregation or _ALL)


def best_settings(request: Request, tasks: Sequence[str], folder: Folder, run: EvaluationSettings) -> Numbers:
    """Find the best value of one setting of GEM, and how far the score moves with it."""
    held = tuple(task for task in tasks if task in folder.jobs(STS, request.sickr))
    if not held:
        return {}
    cells = _gem_cells(replace(request, study=None), held, folder, run)
    setting = SENSITIVITY[request.study or "window"][0]

    def scores(task: str, metric: str) -> dict[str, float]:
        moved = (cell for cell in cells if (cell.task, cell.study) == (task, request.study))
        return {cell.condition: getattr(cell, metric) for cell in moved}

    return {(task, metric): _best(setting, scores(task, metric)) for task in held for metric in (_PEARSON, _SPEARMAN)}


@lru_cache(maxsize=16)
def _gem_cells(request: Request, tasks: tuple[str, ...], folder: Folder, run: EvaluationSettings) -> list[GemCell]:
    return study_gem(open_model(request), folder.path, name=request.model, tasks=tasks, progress=run.progress)


def _best(setting: str, scores: Mapping[str, float]) -> Number:
    best = max(scores, key=lambda value: -np.inf if np.isnan(scores[value]) else scores[value])
    return Number(scores[best], at=f"{setting} = {best}; {100 * min(scores.values()):.2f} at the least")


def _metric(name: str, how: str) -> str:
    return name if how == _ALL else f"{name}_{how}"


UNKNOWN = "unknown"
_DAGGER = "\u2020"
LEGEND = (
    f"A cell: the published number, or {UNKNOWN}; where it was measured, first the measured one, then (published) and "
    f"their difference. {_DAGGER}: more than {MANY_UNKNOWN:.0%} of the tokens have no vector; not to be compared."
)


def header(done: TableOutcome) -> list[str]:
    """Headings of the columns of a table."""
    return ["condition", *(column.name for column in done.table.columns), "measured"]


def rows(done: TableOutcome, *, line_end: str = "\n", emphasis: str = "") -> list[list[str]]:
    """Lay out a table."""
    laid_out = []
    for outcome in done.outcomes:
        label = f"{outcome.label} ({outcome.note})" if outcome.note else outcome.label
        cells = [_cell(done, outcome.cells[column.name], line_end, emphasis) for column in done.table.columns]
        laid_out.append([label, *cells, _state(outcome)])
        for other in outcome.stand_ins:
            numbers = (other.measured.get(column.name) for column in done.table.columns)
            written = [_measured(done, number, line_end, emphasis) if number else "missing" for number in numbers]
            laid_out.append([f"  {other.model} in its place", *written, "another model"])
    return laid_out


def _state(outcome: Outcome) -> str:
    if not outcome.missing:
        return "yes"
    return needs(outcome.missing)


def _cell(done: TableOutcome, cell: Cell, line_end: str, emphasis: str) -> str:
    published = UNKNOWN if cell.published is None else _written(done, cell.published)
    if cell.measured is None:
        return published
    parts = [_measured(done, cell.measured, line_end, emphasis), f"({published})"]
    if cell.difference is not None and done.table.unit == SCORE:
        parts.append(f"{round(done.scale * cell.difference, 2) + 0.0:+.2f}")  # + 0.0: no minus before zero
    return line_end.join(parts)


def _measured(done: TableOutcome, number: Number, line_end: str, emphasis: str) -> str:
    mark = "" if number.is_comparable else f" {_DAGGER}"
    written = f"{emphasis}{_written(done, number.value)}{emphasis}{mark}"
    return f"{written}{line_end}{number.at}" if number.at else written


def _written(done: TableOutcome, value: float) -> str:
    if math.isnan(value):
        return "undefined"
    return f"{done.scale * value:.2f}" if done.table.unit == SCORE else f"{value:,.0f}"


def caption(done: TableOutcome) -> list[str]:
    """What to know when reading a table: unit, source, notes."""
    metric = f"{done.table.metric} " if done.table.metric else ""
    how = f", {done.table.aggregation}" if done.table.aggregation else ""
    return [f"{metric}{done.table.unit}{how}. Published numbers: {done.table.source}.", *done.table.notes]


def commands(done: TableOutcome) -> Mapping[str, str]:
    """The command of every condition that has one, and of every stand-in, by label."""
    found = {}
    for outcome in done.outcomes:
        if outcome.command is not None:
            found[outcome.label] = outcome.command
        found |= {f"{outcome.label}, {other.model} in its place": other.command for other in outcome.stand_ins}
    return found


def to_markdown(reproduction: Reproduction, *, with_commands: bool = False) -> str:
    """Write a reproduction as Markdown."""
    paper = reproduction.paper
    arxiv = f", arXiv {paper.arxiv}" if paper.arxiv else ""
    lines = [f"## {paper.name}: {paper.title}", "", f"{paper.citation}{arxiv}."]
    for done in reproduction.tables:
        lines += ["", f"### {paper.name}, {done.table.name}: {done.table.title}", "", *_sentences(caption(done)), ""]
        lines += _markdown_table(header(done), rows(done, line_end=" ", emphasis="**"))
        if with_commands and (listed := commands(done)):
            lines += ["", "```bash", *(f"{command}  # {label}" for label, command in listed.items()), "```"]
    return "\n".join(lines) + "\n"


def _sentences(captions: Iterable[str]) -> list[str]:
    return [f"- {_escaped(sentence)}" for sentence in captions]


def _markdown_table(head: list[str], body: list[list[str]]) -> list[str]:
    lines = [" | ".join(map(_escaped, row)) for row in (head, *body)]
    return [f"| {lines[0]} |", f"|{'---|' * len(head)}", *(f"| {line} |" for line in lines[1:])]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("[", "\\[").strip()


Measure = Callable[[Request, Sequence[str], Folder, EvaluationSettings], Numbers]

_STUDIES: Mapping[str, Measure] = {
    "dims": best_widths,
    "layers": best_layers,
    "gem": best_settings,
    "speed": measure_speed,
}


def reproduce(
    paper: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    models: str | os.PathLike[str] | None = None,
    tables: Sequence[str] | None = None,
    run: EvaluationSettings | None = None,
    tell: Callable[[str], None] | None = None,
) -> Reproduction:
    """Measure the conditions of a paper's tables, as far as their models are at hand, beside what was published."""
    # What several conditions have in common is run once.
    folder = Folder(_check.input_folder(data).resolve())
    chosen = _paper(paper)
    available = find_available(Path(data), models, more=[chosen])
    planned = [
        (table, [plan(table, each, available) for each in table.conditions]) for table in _select(chosen, tables)
    ]
    wanted: dict[Request, dict[str, None]] = {}
    for table, plans in planned:
        for request in (request for how in plans for request in how.runs):
            wanted.setdefault(request, {}).update(dict.fromkeys(table.tasks))
    measured = {}
    for request, tasks in wanted.items():
        measure = _STUDIES.get(request.family, evaluate)
        measured[request] = measure(request, list(tasks), folder, run or EvaluationSettings())
        if tell:
            tell(request.command(str(data), list(tasks)))
    outcomes = (
        TableOutcome(
            table,
            tuple(
                _outcome(table, condition, how, measured, str(data))
                for condition, how in zip(table.conditions, plans, strict=True)
            ),
        )
        for table, plans in planned
    )
    return Reproduction(chosen, tuple(outcomes), environment())


def _paper(paper: str | os.PathLike[str]) -> Paper:
    if paper not in PAPERS and not Path(paper).exists():
        raise InputError(f"reproduce: paper must be one of {', '.join(PAPERS)}, or a YAML file; got {str(paper)!r}.")
    if paper in PAPERS:
        return known_paper(str(paper))
    stored = read_paper(paper)
    return structs.replace(stored, tables=tuple(_untrusted(table, paper) for table in stored.tables))


def _untrusted(table: PaperTable, paper: str | os.PathLike[str]) -> PaperTable:
    """A table out of a file, without permissions among the options of its models."""
    conditions = (
        structs.replace(condition, options=without_permissions("", condition.options, file=paper)[1])
        for condition in table.conditions
    )
    return structs.replace(table, conditions=tuple(conditions))


def _select(paper: Paper, names: Sequence[str] | None) -> list[PaperTable]:
    known = {table.name: table for table in paper.tables}
    chosen = known if names is None else [name if name in known else f"table {name}" for name in names]
    if absent := [name for name in chosen if name not in known]:
        raise InputError(f"reproduce: table must be among {'; '.join(known)}; got {absent[0]!r}.")
    return [known[name] for name in dict.fromkeys(chosen)]


def _outcome(
    table: PaperTable, condition: Condition, how: Plan, measured: Mapping[Request, Numbers], data: str
) -> Outcome:
    def numbers_and_command(request: Request) -> tuple[dict[str, Number], str]:
        """What was measured, and the command for these tasks; for all where there are none."""
        numbers = _by_column(table, condition, measured[request]) if request in how.runs else {}
        held = dict.fromkeys(column.task for column in table.columns if column.name in numbers)
        return numbers, request.command(data, list(held) or table.tasks)

    own, command = ({}, None) if how.request is None else numbers_and_command(how.request)
    scale = 100 if table.unit == SCORE else 1
    published = {name: number / scale for name, number in condition.published.items()}
    absent = dict.fromkeys(column.task for column in table.columns if column.name not in own)
    others = ((each.model, *numbers_and_command(each)) for each in how.stand_ins)
    return Outcome(
        condition.label,
        command,
        {column.name: Cell(published.get(column.name), own.get(column.name)) for column in table.columns},
        how.missing or ((_ABSENT.get(table.family or "", "files of {}").format(", ".join(absent)),) if absent else ()),
        tuple(StandIn(model, command, numbers) for model, numbers, command in others),
        condition.note,
    )


_ABSENT = {"speed": "a run on the {}", "layers": "as many as {} layers"}


def _by_column(table: PaperTable, condition: Condition, numbers: Numbers) -> dict[str, Number]:
    """Take the numbers of the columns whose tasks were measured."""
    found = {}
    for column in table.columns:
        metric = table.metric_of(column, condition)
        known = [name for task, name in numbers if task == column.task]
        if known and metric not in known:
            listed = ", ".join(name for name in known if name)
            raise InputError(f"reproduce: {table.name}: metric of {column.task} must be one of {listed}; got {metric}.")
        if known:
            found[column.name] = numbers[column.task, metric]
    return found
