"""Texts in a file of any size, read block by block and as often as needed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from itertools import islice
from typing import BinaryIO

from isosent.errors import FileFormatError, InputError, InputFileError
from isosent.io.lines import STANDARD_INPUT as STANDARD_INPUT
from isosent.io.lines import lines_in, open_content
from isosent.io.tables import ending_of, table_in

_TABLES = (".csv", ".tsv", ".jsonl", ".parquet")
_BLOCK_TEXTS = 1024
_SEPARATOR = "\ud800"  # a lone surrogate is in no text


def read_texts(path: str | os.PathLike[str], *, column: str | None = None) -> list[str]:
    """Read the texts of a file.

    Parameters
    ----------
    path : path-like
        A table with a header: ``.csv``, ``.tsv`` (no quoting), ``.jsonl`` or ``.parquet``. Any other file, and ``-``
        for standard input: one text per line, an empty line is an empty text. UTF-8, with or without byte order mark.
    column : str, optional
        Column that holds the texts. Not needed if the table has only one.

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
        texts = list(_texts_in(name, ending_of(path), file, column))
    if not texts:
        raise _no_texts(name)
    return texts


def is_table(path: str | os.PathLike[str]) -> bool:
    """Tell a table, which has columns, from plain lines."""
    return ending_of(path) in _TABLES


def _texts_in(name: str, ending: str, file: BinaryIO, column: str | None) -> Iterator[str]:
    """Read texts one after the other, with memory for a piece of the file."""
    if ending not in _TABLES:
        if column is not None:
            raise InputError(
                f"{name} is read as plain lines and has no columns; got column {column}. "
                "Leave it out, or name a .csv, .tsv, .jsonl or .parquet file."
            )
        yield from lines_in(name, file)
        return
    table = table_in(name, ending, file, header=True)
    if column is None:
        if len(table.columns) != 1:
            raise InputError(
                f"{name} has {len(table.columns)} columns ({', '.join(table.columns)}). "
                "Choose one: column=NAME, on the command line --column NAME."
            )
        column = table.columns[0]
    for number, (text,) in table.rows(column):
        yield table.text(number, column, text)


def _no_texts(name: str) -> FileFormatError:
    return FileFormatError(f"{name} must hold at least one text; got zero texts.")


@dataclass(frozen=True, slots=True)
class TextSource:
    """Texts in a file; only a block of them is in memory at a time."""

    name: str  # for messages
    n_texts: int
    sha256: str  # of the texts in their order, whatever file they are in
    read: Callable[[], Iterator[str]]  # starts from the first text; only one such iterator may be in use
    is_unchanged: Callable[[], bool]  # since the texts were counted

    def check_unchanged(self) -> None:
        """Refuse texts that are not those that were counted."""
        if not self.is_unchanged():
            raise InputFileError(f"{self.name} was changed while it was read. Start again.")


@contextmanager
def open_texts(path: str | os.PathLike[str], *, column: str | None = None) -> Iterator[TextSource]:
    """Count the texts of a file. This reads all of it once, so that a bad line is refused before any work."""
    with open_content(path) as (name, file):

        def read() -> Iterator[str]:
            file.seek(0)
            return _texts_in(name, ending_of(path), file, column)

        def stamp() -> tuple[int, int] | None:
            if not isinstance(file, BufferedReader):
                return None  # a copy of standard input or of a pipe
            state = os.fstat(file.fileno())
            return state.st_size, state.st_mtime_ns

        before = stamp()
        n_texts, digest = 0, hashlib.sha256()
        for block in text_blocks(read(), _BLOCK_TEXTS):
            n_texts += len(block)
            digest.update(_SEPARATOR.join([*block, ""]).encode("utf-8", "surrogatepass"))
        if not n_texts:
            raise _no_texts(name)
        yield TextSource(name, n_texts, digest.hexdigest(), read, lambda: stamp() == before)


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
