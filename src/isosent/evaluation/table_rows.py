"""Reading a table of any of the usual formats, row by row, each a mapping from the names of the columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from isosent import _check
from isosent.errors import FileFormatError, InputFileError
from isosent.evaluation.json_rows import json_lines
from isosent.evaluation.tab_files import read_lines
from isosent.files import bounds
from isosent.files.texts import csv_rows_in, ending_of


class Row(NamedTuple):
    """A row of a table.

    Parameters
    ----------
    where : str
        File and line, which begin a message about it.
    fields : mapping of str to object
        Its fields by column; those of nested objects by their path, joined by dots.
    """

    where: str
    fields: Mapping[str, Any]


def read_table(path: Path, *, has_header: bool | None = None) -> tuple[list[str], Iterator[Row]]:
    """Read a table.

    Parameters
    ----------
    path : Path
        ``.csv`` (commas, standard quoting), ``.tsv`` or ``.txt`` (tabs, no quoting), ``.jsonl`` (an object a line),
        ``.json`` (a list of objects) or ``.parquet``.
    has_header : bool, optional
        Whether the first line of ``.csv``, ``.tsv`` and ``.txt`` names the columns; where left out, it does unless it
        holds a number. Columns without names are called 1, 2, 3 ...

    Returns
    -------
    names : list of str
        The columns.
    rows : iterator of Row
        The rows.

    Raises
    ------
    InputFileError
        If the file is missing, or its ending is none of these.
    FileFormatError
        If it is malformed; of a row, while the rows are read.
    """
    _check.input_file(path)
    ending = ending_of(path)
    if ending in _LINES:
        return _named(path, _LINES[ending](path), has_header)
    if ending not in _OBJECTS:
        raise InputFileError(f"{path} must end with one of {', '.join([*_LINES, *_OBJECTS])}; got {ending or 'none'}.")
    rows = (Row(where, dict(_flat(fields))) for where, fields in _OBJECTS[ending](path))
    first = next(rows, None)
    if first is None:
        raise FileFormatError(f"{path} must hold at least one row; got none.")
    return list(first.fields), chain([first], rows)


def _csv_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    with path.open("rb") as file:
        yield from csv_rows_in(str(path), file)


def _tab_lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    return ((number, line.split("\t") if line else []) for number, line in enumerate(read_lines(path), start=1))


def _named(
    path: Path, lines: Iterable[tuple[int, list[str]]], has_header: bool | None
) -> tuple[list[str], Iterator[Row]]:
    lines = (line for line in lines if line[1])
    first = next(lines, None)
    if first is None:
        raise FileFormatError(f"{path} must hold at least one line; got none.")
    if has_header is None:
        has_header = not any(map(_is_number, first[1]))
    names = [name.strip() for name in first[1]] if has_header else [str(place + 1) for place in range(len(first[1]))]
    if twice := [name for name in names if names.count(name) > 1]:
        raise FileFormatError(f"{path}: line {first[0]} must name every column differently; got {twice[0]!r} twice.")
    return names, _rows(path, names, lines if has_header else chain([first], lines))


def _rows(path: Path, names: Sequence[str], lines: Iterable[tuple[int, list[str]]]) -> Iterator[Row]:
    for number, fields in lines:
        if len(fields) != len(names):
            raise FileFormatError(f"{path}: line {number} must have {len(names)} fields; got {len(fields)}.")
        yield Row(f"{path}: line {number}", dict(zip(names, fields, strict=True)))


def _is_number(written: str) -> bool:
    try:
        return isfinite(float(written))
    except ValueError:
        return False


def _jsonl_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((f"{path}: line {number}", fields) for number, fields in json_lines(path))


def _json_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with path.open("rb") as file:
        content = bounds.read_document(str(path), file, bounds.LARGEST_JSON, "Write it as .jsonl, an object a line.")
    try:
        listed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} must be JSON; got: {error}.") from None
    if not isinstance(listed, list):
        raise FileFormatError(f"{path} must be a list of JSON objects; got {type(listed).__name__}.")
    for number, fields in enumerate(listed):
        where = f"{path}: row {number}, counted from 0"
        if not isinstance(fields, dict):
            raise FileFormatError(f"{where}, must be a JSON object; got {type(fields).__name__}.")
        yield where, fields


def _parquet_objects(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as table:
            batches = table.iter_batches(bounds.parquet_batch_rows(str(path), table.metadata))
            for number, fields in enumerate(chain.from_iterable(batch.to_pylist() for batch in batches)):
                yield f"{path}: row {number}, counted from 0", fields
    except FileFormatError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{path} is not a readable parquet file: {_check.brief(error)}.") from None


def _flat(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


_LINES: Mapping[str, Callable[[Path], Iterator[tuple[int, list[str]]]]] = {
    ".csv": _csv_lines,
    ".tsv": _tab_lines,
    ".txt": _tab_lines,
}
_OBJECTS: Mapping[str, Callable[[Path], Iterator[tuple[str, dict[str, Any]]]]] = {
    ".jsonl": _jsonl_objects,
    ".json": _json_objects,
    ".parquet": _parquet_objects,
}
