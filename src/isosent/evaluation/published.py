"""Published tables: read from YAML, and their STS rows (Spearman x100) for the same model as a measured one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import as_file, files
from typing import Any, Final, Literal

import msgspec
import yaml
from msgspec import Struct

from isosent import _check
from isosent.errors import FileFormatError
from isosent.evaluation.sts import TASKS
from isosent.io import bounds
from isosent.io.json import check_schema
from isosent.io.system import open_to_read
from isosent.networks.layer_pooling import format_layers, resolve_layers

_MOST_VALUES: Final = 100_000  # of a YAML file

PAPERS = ("bert-whitening", "whitening-bert", "gem", "sentence-bert", "others")
TARGET = "target"
SCORE = "x100"


class _Entry(Struct, kw_only=True, forbid_unknown_fields=True):
    """An entry of a YAML file; the fields are those of the file."""


class Column(_Entry):
    """A column of a table."""

    name: str
    task: str  # what is measured for it: a task; for the family "layers" a number of layers
    metric: str | None = None  # if it is not that of the table


class Condition(_Entry):
    """A row of a table: what was measured, and its published numbers."""

    label: str
    numbers: list[float | None] | Literal["unknown"] = msgspec.field(name="published")  # one for each column
    published: Mapping[str, float] = msgspec.field(default_factory=dict, name="by column")  # the known ones, by column
    model: str | None = None  # a name of `known_models`, or any other; None if isosent has no such model
    # Options of the model's reference. The name of a file of `known_models` is replaced by its path
    options: Mapping[str, Any] = {}
    transform: str | None = None
    settings: Mapping[str, Any] = {}  # settings of the transform
    # "target"; "evaluated": the sentences of the evaluated pairs alone; or a name of `known_models`
    fit: str | None = None
    aggregation: str | None = None  # if it is not that of the table
    needs: tuple[str, ...] = ()  # what isosent does not have
    quoted: str | None = None  # the work that the paper took the numbers from
    beside: bool = True  # whether to show the numbers next to measured ones under this condition
    study: str | None = None  # which setting a study varies
    note: str | None = None

    def __post_init__(self) -> None:
        texts = {
            name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in self.options.items()
        }
        self.options = texts
        if self.model is None and not self.needs:
            raise ValueError(f"{self.label}: name the model of this condition, or what it needs")


class PaperTable(_Entry):
    """A table or figure."""

    name: str  # such as "table 1"
    title: str
    source: str  # where its numbers were read
    # How it is measured; None if isosent has no such task
    family: Literal["sts", "transfer", "cqa", "rte", "dims", "layers", "gem", "speed"] | None
    columns: tuple[Column, ...]
    metric: str | None  # what is reported; None for the main metric of each task
    conditions: tuple[Condition, ...]
    aggregation: str | None = None  # how subsets are put together; None for one score over all pairs
    sickr: Literal["full", "test"] = "full"  # pairs of SICK-R
    unit: str = SCORE
    citation: str | None = None  # if it is not that of the paper
    notes: tuple[str, ...] = ()  # what to know when reading it, and where an evaluation by isosent differs

    def __post_init__(self) -> None:
        if not self.columns or not self.conditions:
            raise ValueError(f"{self.name}: a table needs at least one column and one condition")
        columns = [column.name for column in self.columns]
        for names in (columns, [condition.label for condition in self.conditions]):
            if repeated := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"{self.name}: the name {repeated[0]!r} occurs twice")
        for condition in self.conditions:
            numbers = [None] * len(columns) if isinstance(condition.numbers, str) else condition.numbers
            if len(numbers) != len(columns):
                raise ValueError(
                    f"{self.name}, {condition.label}: published is {numbers}; expected {len(columns)} numbers or null, "
                    "one per column, or the word unknown"
                )
            known = {name: number for name, number in zip(columns, numbers, strict=True) if number is not None}
            condition.published = known


class Paper(_Entry):
    """A paper."""

    name: str  # such as "gem"
    title: str
    citation: str  # authors and year
    tables: tuple[PaperTable, ...]
    arxiv: str | None = None

    def __post_init__(self) -> None:
        names = [table.name for table in self.tables]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"the name {repeated[0]!r} occurs twice")


class KnownModel(_Entry):
    """The model or file that a name in a table means."""

    reference: str | None = None  # model reference; None for a file that is no model
    file: str | None = None  # pattern of its file name below a data folder
    needs: str | None = None  # how to ask for it, if not by its name
    pattern: str | None = None  # regular expression for references, in lower case, that mean it
    n_layers: int | None = None  # layers of the network


@cache
def known_models() -> Mapping[str, KnownModel]:
    """Return the models and files that the names in the tables mean."""
    with as_file(files("isosent") / "data" / "papers" / "models.yaml") as path:
        return check_schema(read_yaml(path), os.fspath(path), dict[str, KnownModel])


@cache
def known_paper(name: str) -> Paper:
    """Read one of `PAPERS`, which come with isosent."""
    with as_file(files("isosent") / "data" / "papers" / f"{name}.yaml") as path:
        return read_paper(path)


def read_paper(path: str | os.PathLike[str]) -> Paper:
    """Read the tables of a paper."""
    document = read_yaml(path)
    for table in document["tables"] if isinstance(document.get("tables"), list) else ():
        if isinstance(table, dict) and isinstance(
            columns := table.get("columns"), list
        ):  # a column may be a task's name
            table["columns"] = [{"name": each, "task": each} if isinstance(each, str) else each for each in columns]
    return check_schema(document, os.fspath(path), Paper)


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a YAML file of names and values."""
    with open_to_read(_check.input_file(path)) as file:
        content = bounds.read_bounded(str(path), file, bounds.LARGEST_YAML)
    try:
        document = yaml.safe_load(content)  # libyaml, which is faster, crashes on deep nesting
        n_values = _n_values(document, {})
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise FileFormatError(f"{path} is not valid YAML: {' '.join(str(error).split())}.") from None
    if n_values > _MOST_VALUES:  # aliases of aliases grow without a bound
        raise FileFormatError(f"{path}: holds more than {_MOST_VALUES:,} values. Write them without aliases.")
    if not isinstance(document, dict) or not all(isinstance(name, str) for name in document):
        found = {dict: "a name that is not a text", list: "a list", type(None): "nothing"}.get(
            type(document), "one value"
        )
        raise FileFormatError(f"{path} holds {found} instead of names and their values.")
    return document


def _n_values(value: Any, counted: dict[int, int]) -> int:
    """Values in a document, those of an alias each time that it is used."""
    if isinstance(value, int) and value.bit_length() > 64:  # numbers to the base 60 have no bound
        raise ValueError("a whole number is too large")
    if not isinstance(value, (dict, list, tuple, set)):
        return 1
    if id(value) in counted:
        if not counted[id(value)]:
            raise ValueError("an alias is a part of itself")
        return counted[id(value)]
    counted[id(value)] = 0
    inner = value.values() if isinstance(value, dict) else value
    counted[id(value)] = n_values = 1 + sum(_n_values(each, counted) for each in inner)
    return n_values


class PublishedRow(Struct, frozen=True):
    """One row of a published table with a score for each STS set."""

    label: str  # model and source
    aggregation: str  # how subsets were put together, which decides what it can be compared with
    scores: tuple[float, ...]  # in the order of `TASKS`
    reference: str  # regular expression that the model's reference matches in lower case
    options: Mapping[str, str]  # regular expressions that its options must match; a missing option is empty
    sickr: str  # pairs that the score of SICK-R is over
    transform: str | None = None
    fit: str | None = None  # what the transform was fitted on
    n_components: int | None = None  # width after the transform; None for the full one

    def scores_of(self, tasks: Iterable[str], sickr: str) -> dict[str, float]:
        """Return the scores of some tasks, without SICK-R if ours is over other pairs."""
        scores = dict(zip(TASKS, self.scores, strict=True))
        return {task: scores[task] for task in tasks if task != "SICKR" or sickr == self.sickr}


# Options that published averages of word vectors imply
_WORDS = {
    "lowercase": "true",
    "tokenizer": "wordpunct",
    "stop_words": "keep",
    "weighting": "mean",
    "zipfian": "(false)?",
}
_IGNORED = ("max_length", "punctuation")  # few texts of STS are that long; punctuation changes a score by tenths


@cache
def all_published() -> Sequence[PublishedRow]:
    """Return every row of `PAPERS` with all STS scores of a condition that isosent can reproduce."""
    rows = []
    for paper in map(known_paper, reversed(PAPERS)):
        for table in paper.tables:
            if table.family == "sts" and table.metric == "spearman":
                rows += [_row(paper, table, condition) for condition in table.conditions if _is_shown(condition)]
    return tuple(rows)


def _is_shown(condition: Condition) -> bool:
    is_own = condition.beside and condition.quoted is None and condition.model in known_models() and not condition.needs
    return is_own and condition.fit in (None, TARGET) and set(TASKS) == set(condition.published)


def _row(paper: Paper, table: PaperTable, condition: Condition) -> PublishedRow:
    model = known_models()[str(condition.model)]
    reference = (model.reference or "").lower()
    patterns = dict(_WORDS) if reference.startswith("words:") else {}
    for name, value in condition.options.items():
        if name == "layers" and model.n_layers:
            value = format_layers(resolve_layers(value, model.n_layers))
        if name not in _IGNORED:
            known = known_models().get(value)
            patterns[name] = known.pattern if known and known.pattern else re.escape(value)
    return PublishedRow(
        f"{condition.label}, {table.citation or paper.citation}",
        condition.aggregation or table.aggregation or "all",
        tuple(condition.published[task] for task in TASKS),
        model.pattern or rf"^hf:(.*/)?{re.escape(reference.rpartition('/')[2].removeprefix('hf:'))}(@.*)?$",
        patterns,
        table.sickr,
        condition.transform,
        None if condition.transform is None else condition.fit,
        condition.settings.get("n_components"),
    )


def published_rows(model: Mapping[str, Any], protocol: Mapping[str, Any]) -> list[PublishedRow]:
    """Published rows for the same model under the same transform."""
    if model["fits"] or protocol["parameters"].get("strength", 1.0) != 1.0:
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
