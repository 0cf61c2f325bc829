"""Lists of numbers in JSON: one document, ``[[0.1, 0.2], ...]``, or a list on each line of a .jsonl file."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec
import numpy as np

from isosent.errors import FileFormatError
from isosent.io.bounds import LONGEST_VECTOR_LINE
from isosent.io.checksum import FileState, check_unchanged, file_state
from isosent.io.formats import ending_of
from isosent.io.notes import read_note
from isosent.io.system import open_to_read
from isosent.io.vector_source import Array, ParsedRows, VectorSource, matrix_shape, no_column
from isosent.storage import Storage

_CHUNK = 1 << 20  # bytes
_START = 4096  # bytes that show what a file holds

_PIECES = {  # what stands before the first row, and between two rows
    ".json": (re.compile(rb"\s*\[\s*\["), re.compile(rb"\s*,\s*\[")),
    ".jsonl": (re.compile(rb"\s*\["), re.compile(rb"[ \t\r]*\n\s*\[")),
}


def holds_lists(ending: str, file: BinaryIO) -> bool:
    """Whether a file begins as lists of numbers do, rather than objects."""
    return ending in _PIECES and _PIECES[ending][0].match(file.read(_START).removeprefix(BOM_UTF8)) is not None


def open_lists(path: Path, column: str | None) -> VectorSource:
    """Open lists of numbers."""
    no_column(path, column)
    state = file_state(path)
    parsed, n_rows, dim = ParsedRows(), 0, 0
    for piece in _pieces(path, state):
        if parsed.are_kept:  # else the rows are counted only, which is far cheaper
            numbers = _numbers(path, n_rows, piece, dim)
            dim = len(numbers)
            parsed.append(numbers)
        n_rows += 1
    if not n_rows:
        raise FileFormatError(f"{path} holds no list of numbers.")
    matrix_shape(path, (n_rows, dim))

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        check_unchanged(path, state)
        if parsed.are_kept:
            yield from parsed.blocks(start_row, block_rows)
            return
        pending = islice(enumerate(_pieces(path, state)), start_row, None)
        while block := list(islice(pending, block_rows)):
            with np.errstate(over="ignore"):  # infinity is refused by whoever reads the block
                yield np.array([_numbers(path, number, piece, dim) for number, piece in block], np.float32)

    space, checksum = read_note(path)
    return VectorSource(path, n_rows, dim, Storage.float32, space, read, checksum=checksum, state=state)


def _pieces(path: Path, state: FileState) -> Iterator[bytes]:
    """The text between the brackets of each row, read piece by piece."""
    before_first, between = _PIECES[ending_of(path)]
    is_document, n_rows, rest, is_closed = ending_of(path) == ".json", 0, b"", False
    with open_to_read(path) as file:
        check_unchanged(path, state)
        while chunk := file.read(_CHUNK):
            *pieces, rest = (rest + (chunk if n_rows or rest else chunk.removeprefix(BOM_UTF8))).split(b"]")
            for piece in pieces:
                opening = (between if n_rows else before_first).match(piece)
                if is_closed or (opening is None and not (is_document and n_rows and not piece.strip())):
                    raise _no_lists_error(path, n_rows)
                if opening is None:
                    is_closed = True
                    continue
                yield piece[opening.end() :]
                n_rows += 1
            if len(rest) > LONGEST_VECTOR_LINE:
                raise FileFormatError(f"{path}: row {n_rows}, counted from 0, is too long for a vector.")
    if rest.strip() or (is_document and not is_closed):
        raise _no_lists_error(path, n_rows)


def _numbers(path: Path, number: int, piece: bytes, dim: int) -> list[float]:
    """The numbers of a row, as many as the others have; of the first, that is not known."""
    try:
        numbers = msgspec.json.decode(b"[%b]" % piece, type=list[float])
    except msgspec.MsgspecError:
        raise _no_lists_error(path, number) from None
    if number and len(numbers) != dim:
        raise FileFormatError(
            f"{path}: row {number}, counted from 0, has {len(numbers)} numbers, and the first has {dim}."
        )
    return numbers


def _no_lists_error(path: Path, number: int) -> FileFormatError:
    shape = "[[0.1, ...], ...]" if ending_of(path) == ".json" else "a list on each line, [0.1, ...]"
    return FileFormatError(
        f"{path}: row {number}, counted from 0, is no list of numbers, or the file is truncated. Write {shape}."
    )
