"""Texts in a file of any size, read block by block and as often as wanted."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any, BinaryIO, cast

from isosent import _check
from isosent.errors import FileFormatError, InputError, InputFileError, IsosentError, OutputError
from isosent.io import bounds
from isosent.io.atomic import replacing
from isosent.io.parquet import verify_parquet


def csv_rows(name: str, blocks: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Read rows of standard quoting, each with the number of its last line."""
    last = 0

    def too_long() -> FileFormatError:
        advice = "Close its quotation marks, or split its texts."
        return bounds.line_too_long(name, last + 1, bounds.LONGEST_LINE, advice)

    def lines() -> Iterator[io.StringIO]:
        """Blocks, as long as rows end in them: a quotation mark without its counterpart opens one that never does."""
        before, n_characters = 0, 0
        for block in blocks:
            if last > before:
                before, n_characters = last, 0
            if n_characters > bounds.LONGEST_LINE:
                raise too_long()
            n_characters += len(block)
            yield io.StringIO(block, newline="")

    csv.field_size_limit(bounds.LONGEST_LINE)
    rows = csv.reader(chain.from_iterable(lines()), strict=True)
    try:
        for row in rows:
            last = rows.line_num
            yield last, row
    except csv.Error as error:
        if "field limit" in str(error):
            raise too_long() from None
        raise FileFormatError(f"{name}: line {rows.line_num} is not valid CSV: {error}.") from None


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows under the names of their fields."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


STANDARD_INPUT = "-"

_SPOOLED_BYTES = 64 << 20
_PIECE_BYTES = 1 << 20


@contextmanager
def opened_content(path: str | os.PathLike[str]) -> Iterator[tuple[str, BinaryIO]]:
    """Open a file of texts; what cannot be read twice, such as standard input, is copied aside first."""
    if str(path) == STANDARD_INPUT:
        with _copied(sys.stdin.buffer, "standard input") as copy:
            if not copy.tell():
                raise InputFileError("standard input must hold at least one text; got nothing.")
            copy.seek(0)
            yield "standard input", copy
        return
    name, path = str(path), _check.input_file(path)
    try:
        opened = path.open("rb")
    except OSError as error:
        raise InputFileError(f"{name} could not be read: {error.strerror}.") from error
    with opened:
        if path.is_file():
            yield name, opened
            return
        with _copied(opened, name) as copy:
            copy.seek(0)
            yield name, copy


@contextmanager
def _copied(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    with SpooledTemporaryFile(_SPOOLED_BYTES) as copy:
        try:
            shutil.copyfileobj(file, copy, _PIECE_BYTES)
        except OSError as error:
            raise OutputError(f"{name} could not be copied into a temporary file: {error.strerror}.") from error
        yield cast("BinaryIO", copy)


_PIECE_BYTES_texts = 1 << 20


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
    """Read texts one after the other, with memory for a piece of the file."""
    return _TABLES.get(ending, _lines)(name, file, column)


def no_texts(name: str) -> FileFormatError:
    """Say that there is no text in a file."""
    return FileFormatError(f"{name} must hold at least one text; got zero texts.")


def ending_of(path: str | os.PathLike[str]) -> str:
    """Ending of a file's name."""
    return Path(path).suffix.lower()


def is_table(path: str | os.PathLike[str]) -> bool:
    """Tell a table, which has columns, from plain lines."""
    return ending_of(path) in _TABLES


def decode_utf8(name: str, content: bytes, n_lines: int = 0) -> str:
    """Decode a file's content, naming the line of the first byte that is not UTF-8."""
    try:
        return content.decode("utf-8" if n_lines else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = n_lines + error.object.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            f"{name}: line {line} must be UTF-8; got byte 0x{error.object[error.start]:02x}. Convert the file to UTF-8."
        ) from None


def split_lines(content: str) -> list[str]:
    """Split at line feeds only, so that rarer separators inside a text (U+2028, U+0085) stay where they are."""
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
        table = pq.ParquetFile(file, buffer_size=_PIECE_BYTES_texts)
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


_AT_ONCE = 1024
_SEPARATOR = "\ud800"  # a lone surrogate is in no text


@dataclass(frozen=True, slots=True)
class TextSource:
    """Texts in a file; only a block of them is in memory at a time."""

    name: str  # what people call it
    n_texts: int  # texts in it
    sha256: str  # hash of the texts in their order, whatever file they are in
    # Gives the texts from the first one on, one after the other; one such reading at a time
    read: Callable[[], Iterator[str]]
    is_unchanged: Callable[[], bool]  # tells whether the file is as it was when the texts were counted

    def check_unchanged(self) -> None:
        """Refuse texts that are not those that were counted."""
        if not self.is_unchanged():
            raise InputFileError(f"{self.name} must stay as it is while it is read; it was changed. Start again.")


@contextmanager
def open_texts(path: str | os.PathLike[str], *, column: str | None = None) -> Iterator[TextSource]:
    """Count the texts of a file, which reads all of it once: a bad line is refused here."""
    with opened_content(path) as (name, file):

        def read() -> Iterator[str]:
            file.seek(0)
            return texts_in(name, ending_of(path), file, column)

        def stamp() -> tuple[int, int] | None:
            if not isinstance(file, BufferedReader):
                return None  # a copy
            found = os.fstat(file.fileno())
            return found.st_size, found.st_mtime_ns

        before = stamp()
        n_texts, digest = 0, hashlib.sha256()
        for block in text_blocks(read(), _AT_ONCE):
            n_texts += len(block)
            digest.update(_SEPARATOR.join([*block, ""]).encode("utf-8", "surrogatepass"))
        if not n_texts:
            raise no_texts(name)
        yield TextSource(name, n_texts, digest.hexdigest(), read, lambda: stamp() == before)


def text_blocks(
    texts: Iterable[str], n_texts: int, *, n_characters: int = 16 << 20, at_once: int = 16
) -> Iterator[list[str]]:
    """Cut texts into blocks that fit into memory."""
    block: list[str] = []
    texts, room = iter(texts), n_characters
    while more := list(islice(texts, min(at_once, n_texts - len(block)))):
        block += more
        room -= sum(map(len, more))
        if len(block) == n_texts or room <= 0:
            yield block
            block, room = [], n_characters
    if block:
        yield block
