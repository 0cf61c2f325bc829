"""Reading texts: a line a text, or a column of a table."""

import csv
import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from isosent import _check
from isosent.errors import FileFormatError, InputError, InputFileError

STANDARD_INPUT = "-"


def read_texts(path: str | os.PathLike[str], *, column: str | None = None) -> list[str]:
    """Read the texts of a file.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv`` (no quoting), ``.jsonl`` or ``.parquet``: a table with a header. Anything else, and ``-`` for
        standard input: a line a text, an empty line an empty text. UTF-8, with or without byte order mark.
    column : str, optional
        Column that holds the texts. May be left out where the table has only one.

    Returns
    -------
    list of str
        The texts in the order of the file, at least one.

    Raises
    ------
    InputFileError
        If the file is missing, empty or a directory.
    FileFormatError
        If bytes are not UTF-8 (the message gives the line), a row is malformed, or a text is missing (its row).
    InputError
        If the column is not there (the message lists those that are), or `column` is given for plain lines.
    """
    if str(path) == STANDARD_INPUT:
        reader, name, content = _read_lines, "standard input", sys.stdin.buffer.read()
        if not content:
            raise InputFileError("standard input must hold at least one text; got nothing.")
    else:
        file = _check.input_file(path)
        reader, name = _TABLES.get(file.suffix.lower(), _read_lines), str(path)
        if reader is _read_parquet:
            return _some(name, _read_parquet(name, file, column))
        content = _bytes(file)
    return _some(name, reader(name, decode_utf8(name, content), column))


def is_table(path: str | os.PathLike[str]) -> bool:
    """Tell a table, which has columns, from plain lines.

    Parameters
    ----------
    path : path-like
        A file, or ``-``.

    Returns
    -------
    bool
        By its ending.
    """
    return Path(path).suffix.lower() in _TABLES


def decode_utf8(name: str, content: bytes) -> str:
    """Decode a file's content, naming the line of the first byte that is not UTF-8.

    Parameters
    ----------
    name : str
        The file, for the message.
    content : bytes
        Its content.

    Returns
    -------
    str
        The text without byte order mark.

    Raises
    ------
    FileFormatError
        If the content is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            f"{name}: line {line} must be UTF-8; got byte 0x{error.object[error.start]:02x}. Convert the file to UTF-8."
        ) from None


def split_lines(content: str) -> list[str]:
    r"""Split at line feeds only, so that rarer separators inside a text (U+2028, U+0085) stay where they are.

    Parameters
    ----------
    content : str
        Content of a file.

    Returns
    -------
    list of str
        Lines without their ``\n`` or ``\r\n``.

    Examples
    --------
    >>> split_lines("one\r\ntwo\n\nthree")
    ['one', 'two', '', 'three']
    """
    lines = content.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputFileError(f"{file} could not be read: {error.strerror}.") from error


def _some(name: str, texts: list[str]) -> list[str]:
    if not texts:
        raise FileFormatError(f"{name} must hold at least one text; got zero texts.")
    return texts


def _read_lines(name: str, content: str, column: str | None) -> list[str]:
    if column is not None:
        raise InputError(
            f"{name} is read as plain lines and has no columns; got column {column}. "
            "Leave it out, or name a .csv, .tsv, .jsonl or .parquet file."
        )
    return split_lines(content)


def _read_csv(name: str, content: str, column: str | None) -> list[str]:
    csv.field_size_limit(max(csv.field_size_limit(), len(content)))
    rows = csv.reader(io.StringIO(content, newline=""), strict=True)
    try:
        return _column_of(name, ((rows.line_num, row) for row in rows), column)
    except csv.Error as error:
        raise FileFormatError(f"{name}: line {rows.line_num} is not valid CSV: {error}.") from None


def _read_tsv(name: str, content: str, column: str | None) -> list[str]:
    lines = enumerate(split_lines(content), start=1)
    return _column_of(name, ((number, line.split("\t") if line else []) for number, line in lines), column)


def _column_of(name: str, rows: Iterator[tuple[int, list[str]]], column: str | None) -> list[str]:
    """One column of numbered rows, the header first; an empty row is an empty text where there is one column."""
    _, header = next(rows, (1, []))
    position = header.index(_choose_column(name, header, column))
    texts = []
    for number, row in rows:
        if not row and len(header) > 1:
            continue
        if len(row) not in (len(header), 0):
            raise FileFormatError(
                f"{name}: line {number} must have as many fields as the header, {len(header)}; got {len(row)}."
            )
        texts.append(row[position] if row else "")
    return texts


def _read_jsonl(name: str, content: str, column: str | None) -> list[str]:
    texts = []
    for number, line in enumerate(split_lines(content), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise FileFormatError(f"{name}: line {number} must be a JSON object; got: {error}.") from None
        if not isinstance(row, dict):
            raise FileFormatError(f"{name}: line {number} must be a JSON object; got {type(row).__name__}.")
        column = _choose_column(f"{name}: line {number}", list(row), column)
        text = row[column]
        if not isinstance(text, str):
            raise FileFormatError(
                f"{name}: line {number}: column {column} must be a string; got {type(text).__name__}."
            )
        if not _check.is_unicode(text):
            raise FileFormatError(f"{name}: line {number} must be valid Unicode; got a lone surrogate.")
        texts.append(text)
    return texts


def _read_parquet(name: str, file: Path, column: str | None) -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.ParquetFile(file)
        column = _choose_column(name, table.schema_arrow.names, column)
        values = table.read([column]).column(column)
    except (pa.ArrowInvalid, OSError) as error:
        raise FileFormatError(f"{name} is not a readable parquet file: {error}.") from None
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if not any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
        raise FileFormatError(f"{name}: column {column} must be of type string; got {values.type}.")
    texts: list[str | None] = values.to_pylist()
    if None in texts:
        raise FileFormatError(
            f"{name}: column {column} must have a text in every row; "
            f"got null in row {texts.index(None)}, counted from 0."
        )
    return [text for text in texts if text is not None]


_TABLES: dict[str, Callable[..., list[str]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}


def _choose_column(name: str, columns: list[str], column: str | None) -> str:
    if not columns:
        raise FileFormatError(f"{name} must name its columns; it names none.")
    listed = ", ".join(columns)
    if column is None:
        if len(columns) != 1:
            raise InputError(
                f"{name} has {len(columns)} columns ({listed}). "
                "Choose one: column=NAME, on the command line --column NAME."
            )
        return columns[0]
    if column not in columns:
        raise InputError(f"{name} has no column {column}; it has: {listed}.")
    return column
