"""Reading texts: a line a text, or a column of a table."""

import json
import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from isosent import _check
from isosent.errors import FileFormatError, InputError, IsosentError
from isosent.files import bounds
from isosent.files.content import opened_content
from isosent.files.csv_table import csv_rows
from isosent.files.parquet_vectors import verify_parquet

_PIECE_BYTES = 1 << 20


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
    with opened_content(path) as (name, file):
        texts = list(texts_in(name, ending_of(path), file, column))
    if not texts:
        raise no_texts(name)
    return texts


def texts_in(name: str, ending: str, file: BinaryIO, column: str | None) -> Iterator[str]:
    """Read texts one after the other, with memory for a piece of the file.

    Parameters
    ----------
    name : str
        What messages call the file.
    ending : str
        In lower case; it tells a table from plain lines.
    file : binary file
        Its content, at its beginning.
    column : str or None
        Column that holds the texts.

    Yields
    ------
    str
        A text.

    Raises
    ------
    FileFormatError
        If bytes are not UTF-8, a row is malformed, or a text is missing; the message tells where.
    InputError
        If the column is not there, or is given for plain lines.
    """
    return _TABLES.get(ending, _lines)(name, file, column)


def no_texts(name: str) -> FileFormatError:
    """Say that there is no text in a file.

    Parameters
    ----------
    name : str
        What the message calls the file.

    Returns
    -------
    FileFormatError
        To be raised.
    """
    return FileFormatError(f"{name} must hold at least one text; got zero texts.")


def ending_of(path: str | os.PathLike[str]) -> str:
    """Ending of a file's name.

    Parameters
    ----------
    path : path-like
        A file, or ``-``.

    Returns
    -------
    str
        With its dot, in lower case.
    """
    return Path(path).suffix.lower()


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
    return ending_of(path) in _TABLES


def decode_utf8(name: str, content: bytes, n_lines: int = 0) -> str:
    """Decode a file's content, naming the line of the first byte that is not UTF-8.

    Parameters
    ----------
    name : str
        The file, for the message.
    content : bytes
        Its content, or what of it lies behind a line feed.
    n_lines : int, default 0
        Lines ahead of that.

    Returns
    -------
    str
        The text, without byte order mark at its very beginning.

    Raises
    ------
    FileFormatError
        If the content is not UTF-8.
    """
    try:
        return content.decode("utf-8" if n_lines else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = n_lines + error.object.count(b"\n", 0, error.start) + 1
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


def lines_in(name: str, file: BinaryIO, encoding: str = "UTF-8") -> Iterator[str]:
    """Lines of a file without their ends, split as `split_lines` does, one after the other."""
    return chain.from_iterable(map(split_lines, _blocks(name, file, encoding)))


def csv_rows_in(name: str, file: BinaryIO, encoding: str = "UTF-8") -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV file, each with the number of its last line."""
    return csv_rows(name, _blocks(name, file, encoding))


def _blocks(name: str, file: BinaryIO, encoding: str) -> Iterator[str]:
    """The content, decoded, in blocks of whole lines."""
    for numbers, block in bounds.whole_lines(name, bounds.pieces_of(name, file), bounds.LONGEST_LINE):
        yield decode_utf8(name, block, numbers.start - 1) if encoding == "UTF-8" else block.decode(encoding)


def _lines(name: str, file: BinaryIO, column: str | None) -> Iterator[str]:
    if column is not None:
        raise InputError(
            f"{name} is read as plain lines and has no columns; got column {column}. "
            "Leave it out, or name a .csv, .tsv, .jsonl or .parquet file."
        )
    return lines_in(name, file)


def _csv_column(name: str, file: BinaryIO, column: str | None) -> Iterator[str]:
    return _column_of(name, csv_rows_in(name, file), column)


def _tsv_column(name: str, file: BinaryIO, column: str | None) -> Iterator[str]:
    lines = enumerate(lines_in(name, file), start=1)
    return _column_of(name, ((number, line.split("\t") if line else []) for number, line in lines), column)


def _column_of(name: str, rows: Iterator[tuple[int, list[str]]], column: str | None) -> Iterator[str]:
    """One column of numbered rows, the header first; an empty row is an empty text where there is one column."""
    _, header = next(rows, (1, []))
    position = header.index(_choose_column(name, header, column))
    for number, row in rows:
        if not row and len(header) > 1:
            continue
        if len(row) not in (len(header), 0):
            raise FileFormatError(
                f"{name}: line {number} must have as many fields as the header, {len(header)}; got {len(row)}."
            )
        yield row[position] if row else ""


def _jsonl_column(name: str, file: BinaryIO, column: str | None) -> Iterator[str]:
    for number, line in enumerate(lines_in(name, file), start=1):
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
        yield text


def _parquet_column(name: str, file: BinaryIO, column: str | None) -> Iterator[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    row = 0
    verify_parquet(name, file)
    try:
        table = pq.ParquetFile(file, buffer_size=_PIECE_BYTES)
        column = _choose_column(name, table.schema_arrow.names, column)
        stored = table.schema_arrow.field(column).type
        kind = stored.value_type if pa.types.is_dictionary(stored) else stored
        if not any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
            raise FileFormatError(f"{name}: column {column} must be of type string; got {stored}.")
        n_rows = bounds.parquet_batch_rows(name, table.metadata, column)
        for batch in table.iter_batches(n_rows, columns=[column]):
            texts = batch.column(0).to_pylist()
            if None in texts:
                raise FileFormatError(
                    f"{name}: column {column} must have a text in every row; "
                    f"got null in row {row + texts.index(None)}, counted from 0."
                )
            if (longest := max(map(len, texts), default=0)) > bounds.LONGEST_LINE:
                place = row + [len(text) for text in texts].index(longest)
                raise FileFormatError(
                    f"{name}: row {place}, counted from 0, is longer than {bounds.shown_bytes(bounds.LONGEST_LINE)}. "
                    "Split the text."
                )
            yield from texts
            row += len(texts)
    except IsosentError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise FileFormatError(f"{name} is not a readable parquet file: {_check.brief(error)}.") from None


_TABLES: dict[str, Callable[[str, BinaryIO, str | None], Iterator[str]]] = {
    ".csv": _csv_column,
    ".tsv": _tsv_column,
    ".jsonl": _jsonl_column,
    ".parquet": _parquet_column,
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
        raise InputError(f"{name} has no column {column}; it has: {_check.brief(listed, 600)}.")
    return column
