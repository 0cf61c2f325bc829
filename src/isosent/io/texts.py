"""Texts in a file of any size, read block by block and as often as needed.

`read_texts` reads all of them, `open_texts` counts them first (`CountedTexts`), `read_labels` reads another column of a
table; a `TextSource` is a file that is named, and offers all three. They find the column in the same way
(`text_column`), and refuse vectors where texts are read (`refuse_vectors`; the rule is that of
`isosent.io.number_lists`). A `TextTable` has all columns, to be written next to the vectors of the texts; `text_blocks`
cuts texts into blocks that fit in memory.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

from isosent import _check, _extras
from isosent.errors import FileFormatError, InputError, InputFileError, IsosentWarning, option
from isosent.io import bounds
from isosent.io.bounds import lines_in, open_content
from isosent.io.checksum import FileState, open_file_state
from isosent.io.columns import USUAL_COLUMN, contents_of
from isosent.io.formats import TABLES, Format, ending_of, format_by_name
from isosent.io.number_lists import (
    SAMPLED_ROWS,
    SAVE_ADVICE,
    VECTORS_ADVICE,
    are_written_lists,
    is_unclear,
    kind_of,
    kind_of_lines,
    parse_numbers,
)
from isosent.io.tables import Table, check_depth, header_advice, is_number, table_in
from isosent.io.typed_tables import VECTOR_COLUMN
from isosent.io.vector_source import no_column_error
from isosent.storage import Storage

_BLOCK_TEXTS = 1024
_MOST_COLUMNS = 1000  # among which one of texts is looked for: a row of a small file may name a million
_SAMPLED_CHARACTERS = 4 << 20
_SEPARATOR = "\ud800"  # a lone surrogate is in no text


def read_texts(path: str | os.PathLike[str], *, column: str | None = None) -> list[str]:
    """Read the texts of a file.

    Parameters
    ----------
    path : path-like
        A table with a header: ``.csv``, ``.tsv`` (no quoting), ``.jsonl`` or ``.parquet``. Any other file, and ``-``
        for standard input: one text per line, an empty line is an empty text. UTF-8, with or without byte order mark.
    column : str, optional
        Column that holds the texts. Default: the one called text, else the only one, or the only one of texts.

    Returns
    -------
    list of str
        The texts in the order of the file, at least one.

    Raises
    ------
    InputFileError
        If the file is missing, empty or a directory.
    FileFormatError
        If the file is not UTF-8 (the message names the line), a row is malformed, or a text is missing (its row).
    InputError
        If there is no such column (the message lists the columns), or `column` is set for plain lines.
    """
    with open_content(path) as (name, file):
        texts = list(_texts_in(name, format_by_name(path), file, column))
    if not texts:
        raise _no_texts_error(name)
    return texts


def read_labels(
    path: str | os.PathLike[str], column: str, *, first_row: int = 0, n_rows: int | None = None
) -> list[Any]:
    """Values of a column of a table as they are, from a row on; None or empty where missing."""
    if not is_table(path):
        raise no_column_error(path, column)
    with open_content(path) as (name, file):
        table = table_in(name, format_by_name(path), file, header=True, first_row=first_row, is_streamed=True)
        skipped = first_row - table.first_row
        end = None if n_rows is None else skipped + n_rows
        return [value for _, (value,) in islice(table.rows(column), skipped, end)]


def is_table(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a table with columns rather than plain lines."""
    return format_by_name(path).is_table


def name_of_texts(name: str) -> str:
    """The name of a copy of a file of texts: of its own name only an ending that says how it is read."""
    return f"texts{ending_of(name) if is_table(name) else '.txt'}"


def _texts_in(
    name: str, file_format: Format, file: BinaryIO, column: str | None, first_row: int = 0, *, is_streamed: bool = False
) -> Iterator[str]:
    """Read texts one after the other from a row on, with memory for a piece of the file."""
    if not file_format.is_table:
        if column is not None:
            raise InputError(
                f"{name} is read as plain lines, so there is no column {column!r}. Leave it out, or name a {TABLES} "
                "file."
            )
        if file_format.refusal:
            raise FileFormatError(f"{name} {file_format.refusal}")
        if file_format.module:
            raise FileFormatError(f"{name} holds vectors, not texts. Name a file of texts.")
        lines = lines_in(name, file, first_row=first_row)
        sampled = _sampled(lines, len)
        refuse_vectors(name, None, sampled)
        yield from sampled
        yield from lines
        return
    table = table_in(name, file_format, file, header=True, first_row=first_row, is_streamed=is_streamed)
    column = text_column(table, column)
    rows = islice(table.rows(column), first_row - table.first_row, None)
    first = _sampled(rows, lambda row: len(row[1][0]) if isinstance(row[1][0], str) else 1)
    refuse_vectors(name, column, [value for _, (value,) in first])
    for number, (value,) in chain(first, rows):
        is_short_ascii = isinstance(value, str) and value.isascii() and len(value) <= bounds.LONGEST_LINE
        yield value if is_short_ascii else text_in(table, number, column, value)  # the call takes longer than the check


def text_column(table: Table, column: str | None, *, without: str | None = None) -> str:
    """The column that is named, or called text, or is the only one, or the only one of texts but the ids."""
    if column is not None:
        return column
    if USUAL_COLUMN in table.columns:
        return USUAL_COLUMN
    names = list(table.columns)
    if 1 < len(names) <= _MOST_COLUMNS:
        names = _columns_of_texts(table.name, without)
    advice = header_advice(table.name, table.columns)
    if len(names) != 1:
        first = next(table.rows(optional=table.columns), (0, ("",)))[1]
        if all(map(is_number, table.columns)) or all(map(is_number, first)):
            raise FileFormatError(numbers_error(table.name))
        strings = {name for name, value in zip(table.columns, first, strict=False) if isinstance(value, str)} - {"id"}
        for name, value in zip(table.columns, first, strict=False):
            if strings <= {name} and kind_of([value], name) == "vectors":
                refuse_vectors(table.name, name, [value])
        raise InputError(
            f"{table.name} has {len(table.columns)} columns ({_check.brief(', '.join(table.columns), 600)}). "
            f"Choose one: {option('column', 'NAME')}.{advice and ' '}{advice}"
        )
    if advice:
        warnings.warn(f"{table.name}: {advice[0].lower()}{advice[1:]}", IsosentWarning, stacklevel=2)
    return names[0]


def _columns_of_texts(path: str, without: str | None) -> list[str]:
    """The columns of sentences of a table; none of a pipe, which can be read only once, or of a faulty file."""
    file = _check.input_file(path)
    try:
        contents = contents_of(file) if file.is_file() else None
    except InputError:  # whoever reads the rows meets the fault
        return []
    if contents is None or contents.empty:  # later rows may have texts in those
        return []
    names = [name for name in contents.texts if name != without]
    return names if set(names) <= set(contents.prose) else []


def _sampled(rows: Iterator[Any], size: Callable[[Any], int]) -> list[Any]:
    """The first rows, or fewer where they are long."""
    sampled: list[Any] = []
    n_characters = 0
    for row in islice(rows, SAMPLED_ROWS):
        sampled.append(row)
        n_characters += size(row)
        if n_characters > _SAMPLED_CHARACTERS:
            break
    return sampled


def refuse_vectors(name: str, column: str | None, values: Sequence[Any]) -> None:
    """Refuse lists of numbers, written out or not, where texts are read; of lines, the column is None."""
    kind = kind_of_lines(values) if column is None else kind_of(values)
    if kind in ("vectors", "cut") or (column is not None and are_written_lists(values)):
        what = name if column is None else f"{name}: its column {column}"
        is_numbers = any(parse_numbers(value) for value in values) or kind == "cut"
        if not is_numbers:
            raise FileFormatError(f"{what} holds lists, not texts. Join the parts of each into one text.")
        advice = ""
        if kind == "cut":
            lacks = 'Numbers are missing in it: printing has left them out ("...")'
            fault = "Its commas may be a part of its numbers" if any(map(is_unclear, values)) else lacks
            advice = f" {fault}. {SAVE_ADVICE}."
        raise FileFormatError(f"{what} holds vectors, not texts.{advice} {VECTORS_ADVICE}")


def numbers_error(name: str) -> str:
    """The message for a table of numbers, which may be vectors, where texts are read."""
    return f"{name} holds numbers, not texts. Save vectors as .npy: read them with numpy.loadtxt, write numpy.save."


def text_in(table: Table, number: int, column: str, value: Any) -> str:
    """The text that a value of a row is; one that is missing is empty."""
    return "" if is_missing(value) else table.text(number, column, value)


def is_missing(value: Any) -> bool:
    """Whether a value is null: an empty text, like an empty field of a .csv file and a blank cell of pandas."""
    return bool(value is None or value != value)


def _no_texts_error(name: str) -> FileFormatError:
    return FileFormatError(f"{name} holds no texts.")


class TextSource:
    """A file of texts, or standard input, of which nothing is read until its texts are asked for."""

    kind: ClassVar[Literal["texts"]] = "texts"

    def __init__(self, name: str | os.PathLike[str], column: str | None = None) -> None:
        self.name, self.column = os.fspath(name), column

    @property
    def is_table(self) -> bool:
        """Whether the file is a table."""
        return is_table(self.name)

    def in_column(self, column: str | None) -> TextSource:
        """The same file with the texts in this column, if it is a table."""
        return TextSource(self.name, column if self.is_table else None)

    def texts(self) -> list[str]:
        """Read all texts, at least one."""
        return read_texts(self.name, column=self.column)

    def counted(self) -> AbstractContextManager[CountedTexts]:
        """Open the file, and count its texts; they are read block by block."""
        return open_texts(self.name, column=self.column)

    def labels(self, column: str) -> list[Any]:
        """Values of another column, as they are."""
        return read_labels(self.name, column)


@dataclass(frozen=True, slots=True)
class CountedTexts:
    """Texts in an open file; only a block of them is in memory at a time."""

    name: str  # for messages
    n_texts: int
    sha256: str  # of the texts in their order, whatever file they are in
    read: Callable[..., Iterator[str]]  # from a row on, or the first; only one such iterator may be in use
    state: FileState | None  # of the file when it was opened; None for a copy of standard input or of a pipe
    is_unchanged: Callable[[], bool]  # since it was opened
    table: Callable[[], TextTable] | None = None  # opens the table that the texts are a column of
    read_labels: Callable[..., list[Any]] | None = None  # reads a column of the file, if it is a table

    @property
    def is_table(self) -> bool:
        """Whether the file is a table."""
        return self.read_labels is not None

    def labels(self, column: str, first_row: int = 0, n_rows: int | None = None) -> list[Any]:
        """Values of another column, of all rows or of some of them, as they are."""
        if self.read_labels is None:
            raise no_column_error(self.name, column)
        return self.read_labels(column, first_row=first_row, n_rows=n_rows)

    def check_unchanged(self) -> None:
        """Refuse texts that are not those that were counted."""
        if not self.is_unchanged():
            raise InputFileError(f"{self.name} was changed while it was read. Start again.")


@contextmanager
def open_texts(
    path: str | os.PathLike[str], *, column: str | None = None, counted: tuple[int, str] | None = None
) -> Iterator[CountedTexts]:
    """Open a file of texts, and count them, unless their number and their hash are given.

    Counting reads all of the file once, so that a bad line is refused before any work.
    """
    with open_content(path) as (name, file):

        def read(first_row: int = 0) -> Iterator[str]:
            file.seek(0)
            return _texts_in(name, format_by_name(path), file, column, first_row, is_streamed=True)

        def state() -> FileState | None:
            return open_file_state(file) if isinstance(file, BufferedReader) else None

        before = state()
        n_texts, sha256 = counted or _count_and_hash(read())
        if not n_texts:
            raise _no_texts_error(name)

        def open_again() -> Table:
            file.seek(0)
            return table_in(name, format_by_name(path), file, header=True, is_streamed=True)

        # columns with types are read by the path, and a pipe has none
        has_columns = is_table(path) and (not format_by_name(path).is_typed or _check.input_file(path).is_file())
        table = partial(TextTable, open_again, column) if has_columns else None
        labels = partial(read_labels, path) if is_table(path) else None
        yield CountedTexts(name, n_texts, sha256, read, before, lambda: state() == before, table, labels)


def _count_and_hash(texts: Iterator[str]) -> tuple[int, str]:
    n_texts, digest = 0, hashlib.sha256()
    for block in text_blocks(texts, _BLOCK_TEXTS):
        n_texts += len(block)
        digest.update(_SEPARATOR.join([*block, ""]).encode("utf-8", "surrogatepass"))
    return n_texts, digest.hexdigest()


class TextTable:
    """All columns of a table of texts, to be written next to the vectors of the texts."""

    def __init__(self, open_table: Callable[[], Table], column: str | None) -> None:
        pa = _extras.require("pyarrow")

        table = open_table()
        self._open, self._column = open_table, text_column(table, column)
        self.typed = None if table.schema is None else Path(table.name)  # its columns are copied as they are
        if table.objects is not None:
            types = _json_types(table, table.objects)
        else:
            types = dict.fromkeys(table.columns, "string")
            table.require_distinct()  # a .parquet file with two columns of one name cannot be read
        if self._column == VECTOR_COLUMN:
            raise InputError(
                f"{table.name}: rename the column {self._column}; vectors are written to one of that name."
            )
        types.pop(VECTOR_COLUMN, None)
        self.schema = pa.schema([(name, getattr(pa, kind)()) for name, kind in types.items()])

    def rows(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield each text, and the values of its row in the order of the schema."""
        table, names = self._open(), self.schema.names
        place = names.index(self._column)
        is_text = [str(kind) == "string" for kind in self.schema.types]
        for number, (value, *values) in table.rows(self._column, optional=names):
            values[place] = text = text_in(table, number, self._column, value)
            # values of .jsonl that are not strings, numbers or bools, such as lists, are kept as JSON text
            yield (
                text,
                [
                    json.dumps(cell, ensure_ascii=False) if keep and not isinstance(cell, str | None) else cell
                    for cell, keep in zip(values, is_text, strict=True)
                ],
            )


def _json_types(table: Table, rows: Iterable[tuple[int, dict[str, Any]]]) -> dict[str, str]:
    """The columns of all rows of JSON, with the types of pyarrow that hold all their values."""
    types: dict[str, set[type]] = {}

    def add(fields: dict[str, Any], prefix: str = "", depth: int = 0) -> None:
        check_depth(table.name, depth)
        for name, value in fields.items():
            types.setdefault(prefix + name, set()).add(type(value))
            if isinstance(value, dict):
                add(value, f"{prefix}{name}.", depth + 1)

    for _, fields in rows:
        add(fields)
    names_of = {frozenset({bool}): "bool_", frozenset({int}): "int64", frozenset({float}): Storage.float64}
    names_of[frozenset({int, float})] = Storage.float64
    # what is always an object is stored by its fields
    columns = {name: kinds - {type(None)} for name, kinds in types.items() if kinds != {dict}}
    return {name: names_of.get(frozenset(kinds), "string") for name, kinds in columns.items()}


def text_blocks(
    texts: Iterable[str], n_texts: int, *, n_characters: int = 16 << 20, at_once: int = 16
) -> Iterator[list[str]]:
    """Cut texts into blocks of at most so many texts and about so many characters."""
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
