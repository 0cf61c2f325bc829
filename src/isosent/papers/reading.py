"""Reading the tables of a paper from YAML."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from functools import cache
from importlib.resources import as_file, files
from typing import Any, TypeVar, get_type_hints

import yaml

from isosent import _check
from isosent.errors import FileFormatError
from isosent.files.documents import check_schema
from isosent.papers.tables import FAMILIES, Column, Condition, KnownModel, Paper, PaperTable

PAPERS = ("S1", "S2", "S3", "S4", "others")
_UNKNOWN = "unknown"

T = TypeVar("T")


@cache
def known_models() -> Mapping[str, KnownModel]:
    """Return what the names in the tables stand for."""
    with as_file(files(__package__) / "models.yaml") as path:
        return {name: _make(KnownModel, f"{path}: {name}", entry) for name, entry in read_yaml(path).items()}


@cache
def known_paper(name: str) -> Paper:
    """Read one of the papers that come with isosent.

    Parameters
    ----------
    name : str
        One of `PAPERS`.

    Returns
    -------
    Paper
        The paper.

    Raises
    ------
    InputError
        If there is none of that name.

    Examples
    --------
    >>> known_paper("S1").tables[0].conditions[9].published["STSB"]
    71.34
    """
    _check.one_of("reproduce", "paper", name, PAPERS)
    with as_file(files(__package__) / f"{name.lower()}.yaml") as path:
        return read_paper(path)


def read_paper(path: str | os.PathLike[str]) -> Paper:
    """Read the tables of a paper.

    Parameters
    ----------
    path : path-like
        YAML: the fields of `Paper`, and below ``tables`` and ``conditions`` those of `PaperTable` and `Condition`.
        Columns are tasks, or mappings of `Column`. ``published`` is a list, one number a column and null where it is
        not known, or the word unknown.

    Returns
    -------
    Paper
        The paper.

    Raises
    ------
    InputFileError
        If there is no such file.
    FileFormatError
        If it is no YAML, a field is missing or unknown, or numbers and columns do not agree.
    """
    document = read_yaml(path)
    where = os.fspath(path)
    tables = [_table(f"{where}: {_name(table)}", table) for table in _entries(where, document, "tables")]
    _all_differ(where, [table.name for table in tables])
    return _make(Paper, where, {**document, "tables": tuple(tables)})


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a YAML file of names and values.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    dict
        What it holds.

    Raises
    ------
    InputFileError
        If there is no such file.
    FileFormatError
        If it holds anything else.
    """
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
