"""Published STS scores (Spearman x100) of the tables of `isosent.papers`, to stand beside measured ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.resources import as_file, files
from typing import Any, TypeVar, get_type_hints

import yaml

from isosent import _check
from isosent.errors import FileFormatError
from isosent.evaluation.sts_files import TASKS
from isosent.io.json import check_schema
from isosent.networks.layer_pooling import resolve_layers, written_layers

PAPERS = ("S1", "S2", "S3", "S4", "others")
_UNKNOWN = "unknown"

T = TypeVar("T")


@cache
def known_models() -> Mapping[str, KnownModel]:
    """Return what the names in the tables stand for."""
    with as_file(files("isosent") / "data" / "papers" / "models.yaml") as path:
        return {name: _make(KnownModel, f"{path}: {name}", entry) for name, entry in read_yaml(path).items()}


@cache
def known_paper(name: str) -> Paper:
    """Read one of the papers that come with isosent."""
    _check.one_of("reproduce", "paper", name, PAPERS)
    with as_file(files("isosent") / "data" / "papers" / f"{name.lower()}.yaml") as path:
        return read_paper(path)


def read_paper(path: str | os.PathLike[str]) -> Paper:
    """Read the tables of a paper."""
    document = read_yaml(path)
    where = os.fspath(path)
    tables = [_table(f"{where}: {_name(table)}", table) for table in _entries(where, document, "tables")]
    _all_differ(where, [table.name for table in tables])
    return _make(Paper, where, {**document, "tables": tuple(tables)})


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a YAML file of names and values."""
    content = _check.input_file(path).read_bytes()
    try:
        document = yaml.load(content, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise FileFormatError(f"{path} must be YAML; it cannot be read: {' '.join(str(error).split())}.") from None
    if not isinstance(document, dict) or not all(isinstance(name, str) for name in document):
        raise FileFormatError(f"{path} must hold names and their values; got {type(document).__name__}.")
    return document


def _table(where: str, entry: Mapping[str, Any]) -> PaperTable:
    columns = tuple(
        _make(Column, f"{where}, columns", column) if isinstance(column, dict) else Column(str(column), str(column))
        for column in _list(where, entry, "columns")
    )
    if (family := entry.get("family")) not in (None, *FAMILIES):
        raise FileFormatError(f"{where}: family must be null or one of {', '.join(FAMILIES)}; got {family!r}.")
    conditions = tuple(_condition(where, row, columns) for row in _entries(where, entry, "conditions"))
    _all_differ(where, [column.name for column in columns])
    _all_differ(where, [condition.label for condition in conditions])
    return _make(
        PaperTable,
        where,
        {**entry, "columns": columns, "conditions": conditions, "notes": tuple(entry.get("notes", ()))},
    )


def _condition(where: str, row: Mapping[str, Any], columns: Sequence[Column]) -> Condition:
    where = f"{where}, {row.get('label', 'a condition without label')}"
    options = row.get("options", {})
    if not isinstance(options, dict):
        raise FileFormatError(f"{where}: options must be names and their values; got {options!r}.")
    options = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
    needs = tuple(_list(where, row, "needs")) if "needs" in row else ()
    if row.get("model") is None and not needs:
        raise FileFormatError(f"{where}: a condition must name its model, or what isosent needs to have one.")
    return _make(
        Condition,
        where,
        {**row, "options": options, "needs": needs, "published": _published(where, row.get("published"), columns)},
    )


def _published(where: str, written: Any, columns: Sequence[Column]) -> dict[str, float]:
    if written == _UNKNOWN:
        return {}
    if not isinstance(written, list) or len(written) != len(columns):
        raise FileFormatError(
            f"{where}: published must be a list of {len(columns)} numbers, one a column, or the word {_UNKNOWN}; got "
            f"{written!r}."
        )
    known = {column.name: number for column, number in zip(columns, written, strict=True) if number is not None}
    if wrong := [
        number for number in known.values() if isinstance(number, bool) or not isinstance(number, int | float)
    ]:
        raise FileFormatError(f"{where}: published must hold numbers or null; got {wrong[0]!r}.")
    return known


def _make(kind: type[T], where: str, entry: Mapping[str, Any]) -> T:
    """Make a dataclass, refusing fields that it does not know and asking for those that it needs."""
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    if unknown := [name for name in entry if name not in known]:
        raise FileFormatError(f"{where}: fields must be among {', '.join(known)}; got {unknown[0]!r}.")
    needed = [name for name, each in known.items() if each.default is MISSING and each.default_factory is MISSING]
    if missing := [name for name in needed if name not in entry]:
        raise FileFormatError(f"{where}: fields must include {', '.join(needed)}; {missing[0]} is missing.")
    types = get_type_hints(kind)
    for name, value in entry.items():
        if name not in ("tables", "conditions", "columns"):  # which are made here
            check_schema(value, f"{where}, {name}", types[name])
    return kind(**entry)


def _entries(where: str, entry: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    listed = _list(where, entry, name)
    if not all(isinstance(each, dict) for each in listed):
        raise FileFormatError(f"{where}: {name} must be a list of fields and their values.")
    return listed


def _list(where: str, entry: Mapping[str, Any], name: str) -> list[Any]:
    listed = entry.get(name)
    if not isinstance(listed, list) or not listed:
        raise FileFormatError(f"{where}: {name} must be a list of at least one; got {listed!r}.")
    return listed


def _all_differ(where: str, names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise FileFormatError(f"{where}: names must differ; got {twice!r} twice.")


def _name(table: Mapping[str, Any]) -> str:
    return str(table.get("name", "a table without name"))


FAMILIES = ("sts", "transfer", "cqa", "rte", "dims", "layers", "gem", "speed")
TARGET, EVALUATED = "target", "evaluated"
SCORE = "x100"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str  # its heading
    task: str  # what is measured for it: a task; for ``layers`` a number of layers
    metric: str | None = None  # where it is not that of the table


@dataclass(frozen=True, slots=True)
class Condition:
    """A row of a table: what was measured, and which numbers it gave."""

    label: str  # what the table calls it
    # Numbers by name of their column, x100 unless the table has another unit; those that are not known are not there
    published: Mapping[str, float]
    model: str | None = None  # A name of `known_models`, or any other; None where isosent opens nothing of that kind
    # Options of the model's reference. A value that names a file of `known_models` stands for it
    options: Mapping[str, str] = field(default_factory=dict)
    transform: str | None = None  # fitted behind the model
    settings: Mapping[str, Any] = field(default_factory=dict)  # settings of the transform
    # "target"; "evaluated": the sentences of the evaluated pairs alone; or a name of `known_models`
    fit: str | None = None
    aggregation: str | None = None  # where it is not that of the table
    needs: tuple[str, ...] = ()  # what isosent does not have
    quoted: str | None = None  # the work that the paper took the numbers from
    beside: bool = True  # whether the numbers stand beside those that anybody measures under this condition
    study: str | None = None  # which setting a study moves
    note: str | None = None  # what else there is to say


@dataclass(frozen=True, slots=True)
class PaperTable:
    """A table or figure."""

    name: str  # such as "table 1"
    title: str  # what it shows
    source: str  # where its numbers were read
    family: str | None  # one of `FAMILIES`, which says how it is measured; None where isosent has no such task
    columns: tuple[Column, ...]  # the columns
    metric: str | None  # what is reported; None for the metric that each task is judged by
    conditions: tuple[Condition, ...]  # the rows
    aggregation: str | None = None  # how subsets are put together; None for one score over all
    sickr: str = "full"  # pairs of SICK-R
    unit: str = SCORE  # "x100" for scores
    citation: str | None = None  # where it is not that of the paper
    notes: tuple[str, ...] = ()  # what to know when reading it, where an evaluation of isosent differs included

    @property
    def tasks(self) -> list[str]:
        """What its columns are about, each once."""
        return list(dict.fromkeys(column.task for column in self.columns))

    def metric_of(self, column: Column, condition: Condition) -> str | None:
        """Name, in a result of isosent, of the metric in a cell; None for the one that the task is judged by."""
        metric = column.metric or self.metric
        how = condition.aggregation or self.aggregation
        return metric if metric is None or how in (None, "all") else f"{metric}_{how}"


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper."""

    name: str  # such as "S1"
    title: str  # title; authors and year
    citation: str  # title; authors and year
    tables: tuple[PaperTable, ...]  # its tables and figures
    arxiv: str | None = None  # number on arXiv


@dataclass(frozen=True, slots=True)
class KnownModel:
    """What a name in a table stands for."""

    reference: str | None = None  # model reference under which it is to be had; None for a file that is no model
    file: str | None = None  # pattern of its file name below a data folder
    needs: str | None = None  # how to ask for it, where not by its name
    pattern: str | None = None  # regular expression for references, in lower case, that mean it
    n_layers: int | None = None  # layers of the network


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """One row of a published table."""

    label: str  # model and source
    aggregation: str  # how the subsets were put together, which decides what it can be compared with
    scores: tuple[float, ...]  # STS12, 13, 14, 15, 16, STS-B, SICK-R
    reference: str  # regular expression that the model's reference matches in lower case
    # Regular expressions that options of the model must match as a whole; one that it lacks is empty
    options: Mapping[str, str]
    sickr: str  # pairs that the score of SICK-R is over
    transform: str | None = None  # transform that is required; None for none
    fit: str | None = None  # what the transform was fitted on
    n_components: int | None = None  # width that is required behind a transform; None for the full one

    def scores_of(self, tasks: Iterable[str], sickr: str) -> dict[str, float]:
        """Return the scores of some tasks, without SICK-R where ours is over other pairs."""
        scores = dict(zip(TASKS, self.scores, strict=True))
        return {task: scores[task] for task in tasks if task != "SICKR" or sickr == self.sickr}


_WORDS = {
    "lowercase": "true",
    "tokenizer": "wordpunct",
    "stop_words": "keep",
    "weighting": "mean",
    "zipfian": "(false)?",
}
_UNSEEN = ("max_length", "punctuation")  # few texts of STS are that long; punctuation changes a score by tenths


@cache
def all_published() -> Sequence[PublishedRow]:
    """Return every row of `PAPERS` that tells all STS scores of a condition that isosent can be in."""
    return tuple(
        _row(paper, table, condition, known_models()[condition.model])
        for paper in map(known_paper, reversed(PAPERS))
        for table in paper.tables
        if table.family == "sts" and table.metric == "spearman"
        for condition in table.conditions
        if condition.model is not None and _stands_beside(condition)
    )


def _stands_beside(condition: Condition) -> bool:
    own = condition.beside and condition.quoted is None and condition.model in known_models() and not condition.needs
    return own and condition.fit in (None, TARGET) and set(TASKS) == set(condition.published)


def _row(paper: Paper, table: PaperTable, condition: Condition, model: KnownModel) -> PublishedRow:
    reference = (model.reference or "").lower()
    return PublishedRow(
        f"{condition.label}, {table.citation or paper.citation}",
        condition.aggregation or table.aggregation or "all",
        tuple(condition.published[task] for task in TASKS),
        model.pattern or rf"^hf:(.*/)?{re.escape(reference.rpartition('/')[2].removeprefix('hf:'))}(@.*)?$",
        _options(condition, model),
        table.sickr,
        condition.transform,
        None if condition.transform is None else condition.fit,
        condition.settings.get("n_components"),
    )


def _options(condition: Condition, model: KnownModel) -> dict[str, str]:
    """Options of a condition, as patterns for those that a model has in force."""
    patterns = dict(_WORDS) if (model.reference or "").startswith("words:") else {}
    for name, value in condition.options.items():
        if name == "layers" and model.n_layers:
            value = written_layers(resolve_layers(value, model.n_layers))
        if name not in _UNSEEN:
            known = known_models().get(value)
            patterns[name] = known.pattern if known and known.pattern else re.escape(value)
    return patterns


def published_rows(model: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[PublishedRow]:
    """Published rows for the same model under the same transform."""
    if model["fits"] or protocol["missing_subsets"] or protocol["parameters"].get("strength", 1.0) != 1.0:
        return []
    reference = model["reference"].lower()
    return [
        row
        for row in all_published()
        if re.search(row.reference, reference)
        and all(re.fullmatch(pattern, model["options"].get(name, "")) for name, pattern in row.options.items())
        and row.transform == protocol["transform"]
        and (row.transform is None or row.fit == protocol["fit"])
        and row.n_components == protocol["parameters"].get("n_components")
    ]
