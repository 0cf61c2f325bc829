"""Reading JSON, a line an object, with messages that tell the line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from isosent import _check
from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.io import bounds
from isosent.io.bounds import lines_of
from isosent.io.texts import csv_rows_in, ending_of, lines_in, read_texts


def read_numbers(path: str | os.PathLike[str], *, column: str) -> list[float]:
    """Read a column of numbers."""
    file = _check.input_file(path)
    numbers = []
    for row, value in enumerate(_values(file, column)):
        try:
            numbers.append(float(value))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise FileFormatError(
                f"{path}: column {column} must hold a number in every row; got {value!r} in row {row}, counted from 0."
            ) from None
    return numbers


def _values(file: Path, column: str) -> list[object]:
    ending = file.suffix.lower()
    if ending == ".jsonl":
        return _jsonl_values(file, column)
    if ending == ".parquet":
        return _parquet_values(file, column)
    return list(read_texts(file, column=column))


def _jsonl_values(file: Path, column: str) -> list[object]:
    values = []
    with file.open("rb") as content:
        for number, line in enumerate(lines_in(str(file), content), start=1):
            if not line.strip():
                continue
            try:
                values.append(json.loads(line)[column])
            except (ValueError, RecursionError, TypeError):
                raise FileFormatError(f"{file}: line {number} must be a JSON object; it is none.") from None
            except KeyError:
                raise InputError(f"{file}: line {number} has no column {column}.") from None
    return values


def _parquet_values(file: Path, column: str) -> list[object]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        names = table.schema_arrow.names
        if column not in names:
            raise InputError(f"{file} has no column {column}; it has: {_check.brief(', '.join(names), 600)}.")
        n_rows = bounds.parquet_batch_rows(str(file), table.metadata, column)
        batches = table.iter_batches(n_rows, columns=[column])
        values: list[object] = [value for batch in batches for value in batch.column(0).to_pylist()]
    except FileFormatError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{file} is not a readable parquet file: {_check.brief(error)}.") from None
    return values


class Row(NamedTuple):
    """A row of a table."""

    where: str  # file and line, which begin a message about it
    fields: Mapping[str, Any]  # its fields by column; those of nested objects by their path, joined by dots


def read_table(path: Path, *, has_header: bool | None = None) -> tuple[list[str], Iterator[Row]]:
    """Read a table."""
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


def folders_below(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Walk through a folder and all below it, links followed, each folder once."""
    visited: set[str] = set()
    for path, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(folder for folder in folders if os.path.realpath(Path(path, folder)) not in visited)
        visited.update(os.path.realpath(Path(path, folder)) for folder in folders)
        yield Path(path), files


def read_lines(path: Path, encoding: str = "UTF-8") -> list[str]:
    """Return the lines of a file, split at line feeds only; there must be one."""
    with _check.input_file(path).open("rb") as file:
        lines = list(lines_in(str(path), file, encoding))
    if not lines:
        raise FileFormatError(f"{path} must hold at least one line; it is empty.")
    return lines


def split_fields(path: Path, number: int, line: str, at_least: int) -> list[str]:
    """Split a line at its tabs."""
    fields = line.split("\t")
    if len(fields) < at_least:
        raise FileFormatError(
            f"{path}: line {number} must have at least {at_least} fields between tabs; got {len(fields)}."
        )
    return fields


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the objects of a JSON lines file one after the other; blank lines are passed over."""
    with _check.input_file(path).open("rb") as file:
        for number, line in enumerate(lines_of(str(path), file), start=1):
            if line.strip():
                yield number, json_object(f"{path}: line {number}", line)


def json_object(where: str, line: bytes) -> dict[str, Any]:
    """Parse a line."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{where} must be a JSON object; got: {error}.") from None
    if not isinstance(row, dict):
        raise FileFormatError(f"{where} must be a JSON object; got {type(row).__name__}.")
    return row


def text_of(where: str, row: Mapping[str, Any], name: str) -> str:
    """Return a text of a row."""
    text = row.get(name)
    if not isinstance(text, str):
        got = type(text).__name__ if name in row else "no such field"
        raise FileFormatError(f"{where}: {name} must be a string; got {got}.")
    if not _check.is_unicode(text):
        raise FileFormatError(f"{where}: {name} must be valid Unicode; got a lone surrogate.")
    return text
