"""Vectors in blocks, whatever they are in: what every format of `isosent.io.formats` opens as.

Of a `VectorSource`, shape, `Storage` and vector space are known, and the vectors are read when its `blocks` are
iterated, after the checksum was compared once. A format whose rows lie one after the other checks header and size of a
file, and leaves the reading to `StoredRows`; one that is parsed keeps what it has parsed in `ParsedRows` if that is
small. `isosent.io.vectors` chooses among the formats.
"""

from __future__ import annotations

import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent._check import brief
from isosent.errors import FileFormatError, InputError, option
from isosent.io.bounds import MOST_DIMENSIONS
from isosent.io.checksum import FileState, check_unchanged, verify_file
from isosent.io.formats import TABLES, data_set_folder, format_by_name
from isosent.io.notes import INDEX_FILE, file_identity
from isosent.io.system import naming, open_to_read
from isosent.space import Space
from isosent.storage import NUMPY, Storage

BLOCK_BYTES = 32 << 20
ARRAY_BLOCK_ROWS = 8192
KEPT_BYTES = 4 * BLOCK_BYTES  # of the numbers of all text files that are open
_PARSED_BLOCK = 1024
BLOCK_ROWS_A_DIM = 4  # fewer rows than dimensions have no full rank, which moments would notice block by block


Array = NDArray[Any]
Write = Callable[[Array], None]
Read = Callable[[int, int], Iterator[Array]]


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Vectors in a file of any size, of which only a block is in memory at a time; or those of an array."""

    kind: ClassVar[Literal["vectors"]] = "vectors"

    path: Path  # the file, or a folder of shards; of an array, what messages call it
    n_rows: int
    dim: int
    storage: Storage
    space: Space | None  # as the file says
    read: Read  # first row, rows of a block -> blocks; the last one may be shorter
    column: str | None = None  # column or tensor that holds the vectors, where the format has names
    checksum: str | None = None  # over all bytes, if isosent wrote the file; compared before the first block is read
    seal_at: int | None = None  # byte at which the file holds that checksum itself
    state: FileState | None = None  # of the file when it was opened: blocks of another one are not read
    first_row: int = 0  # in the file, if these are a part of its rows
    read_labels: Callable[..., list[Any]] | None = None  # reads a column of the file, if it is a table
    text_columns: tuple[str, ...] = ()  # of that table
    texts: str | None = None  # the file of texts that these are the vectors of, if they are in a temporary file
    where: str | None = None  # of an array: the function that it was passed to
    dtype_name: str = ""  # of an array, before its numbers became floats

    @classmethod
    def of_array(cls, rows: Array, where: str, name: str) -> VectorSource:
        """The rows of a 2-D array; numbers that no file holds become floats."""
        dtype_name = rows.dtype.name
        if dtype_name not in NUMPY:
            rows = rows.astype(np.float64 if rows.dtype.kind == "f" else np.result_type(rows, np.float32), copy=False)

        def read(start_row: int, block_rows: int) -> Iterator[Array]:
            for start in range(start_row, len(rows), block_rows):
                yield storage.decoded(rows[start : start + block_rows])

        storage, (n_rows, dim) = Storage(rows.dtype.name), rows.shape
        return cls(Path(name), n_rows, dim, storage, None, read, where=where, dtype_name=dtype_name)

    @property
    def name(self) -> str:
        """What messages call it: the path, if the user named it."""
        return self.texts or str(data_set_folder(self.path) or self.path)

    @property
    def is_table(self) -> bool:
        """Whether the file is a table."""
        return self.read_labels is not None

    @property
    def is_column(self) -> bool:
        """Whether the vectors are a column of a table, which may have others."""
        return self.is_table and self.column is not None

    @property
    def may_be_bits(self) -> bool:
        """Whether the numbers may be packed bits, which nothing tells from numbers of 0 to 255."""
        return self.storage is Storage.uint8 and format_by_name(self.path).dtypes != (Storage.uint8,)

    @property
    def block_rows(self) -> int:
        """Rows of a block: 32 MiB of them, or four times as many as dimensions if that is more; 8192 of an array."""
        if self.where is not None:
            return ARRAY_BLOCK_ROWS
        return max(1, BLOCK_ROWS_A_DIM * self.dim, BLOCK_BYTES // (self.dim * self.storage.decoded_bytes))

    @property
    def identity(self) -> dict[str, Any]:
        """What distinguishes this data from other data, as JSON values; the name of the file does not count."""
        path = self.path / INDEX_FILE if self.path.is_dir() else self.path
        return file_identity(path) | {
            "mtime_ns": path.stat().st_mtime_ns,
            "shape": [self.n_rows, self.dim],
            "dtype": self.storage,
            "column": self.column,
        }

    def part(self, first_row: int, n_rows: int) -> VectorSource:
        """Some of the rows, without comparing the checksum again."""

        def read(start_row: int, block_rows: int) -> Iterator[Array]:
            n_left = n_rows - start_row
            for block in self.read(first_row + start_row, block_rows):
                yield block[:n_left]
                n_left -= len(block)
                if n_left <= 0:
                    return

        return replace(self, n_rows=n_rows, read=read, checksum=None, first_row=first_row)

    def labels(self, column: str, first_row: int = 0, n_rows: int | None = None) -> list[Any]:
        """Values of another column, of all rows or of some of them; see `isosent.io.texts.read_labels`."""
        if self.read_labels is None:
            raise no_column_error(self.path, column)
        n_rows = self.n_rows - first_row if n_rows is None else n_rows
        return self.read_labels(column, first_row=self.first_row + first_row, n_rows=n_rows)

    def blocks(self, start_row: int = 0) -> Iterator[Array]:
        """Read the vectors from a row on."""
        self.verify()
        return self.read(start_row, self.block_rows)

    def verify(self) -> None:
        """Refuse a damaged file: its checksum differs."""
        if self.checksum is not None:
            verify_file(self.path, self.checksum, self.seal_at, self.state)

    def check_finite(self, block: Array, start_row: int) -> None:
        """Refuse NaN and infinity."""
        if self.where is not None:
            _check.finite_rows(self.where, self.name, block, self.first_row + start_row)
            return
        try:
            _check.finite_rows(self.name, "vectors", block, self.first_row + start_row)
        except InputError as error:
            raise FileFormatError(str(error)) from None


def no_column_error(path: str | os.PathLike[str], column: str) -> InputError:
    """The error for labels of a file that is no table."""
    return InputError(
        f"{path} has no column {column}. Labels are a column of a {TABLES} file: "
        f"write all texts into one, with the columns text and {column}."
    )


def in_blocks(pieces: Iterator[Array], n_rows: int) -> Iterator[Array]:
    """Cut and join pieces so that every block but the last has `n_rows` rows."""
    block, n_filled = None, 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            if block is None:
                block, n_filled = np.empty((n_rows, piece.shape[1]), piece.dtype), 0
            part = piece[start : start + n_rows - n_filled]
            block[n_filled : n_filled + len(part)] = part
            start, n_filled = start + len(part), n_filled + len(part)
            if n_filled == n_rows:
                yield block
                block = None
    if block is not None:
        yield block[:n_filled]


def picked_rows(blocks: Iterable[Array], rows: NDArray[np.intp]) -> Array:
    """The rows at ascending positions of all blocks together."""
    picked, start = [], 0
    for block in blocks:
        here = rows[(rows >= start) & (rows < start + len(block))]
        picked.append(block[here - start])  # a copy: the block is a view of its file
        start += len(block)
    return np.concatenate(picked)


def no_column(path: Path, column: str | None) -> None:
    if column is not None:
        raise InputError(f"{path} has no columns, so there is no {column!r}. Leave it out.")


def matrix_shape(path: str | os.PathLike[str], shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) == 2 and shape[1] > MOST_DIMENSIONS:
        raise FileFormatError(f"{path}: {shape[1]:,} dimensions; vectors may have {MOST_DIMENSIONS:,} at most.")
    if len(shape) != 2 or shape[0] < 0 or shape[1] < 1:
        raise FileFormatError(f"{path} has the shape {tuple(shape)}. Save vectors as a 2-D array, one per row.")
    return shape[0], shape[1]


def chosen_array(path: Path, what: str, names: Iterable[str], matrices: Sequence[str], column: str | None) -> str:
    """Name of the array in a file of several, such as tensors: the one that is named, or the only 2-D one."""
    if column is not None:
        if column not in names:
            raise InputError(f"{path} has no {what} {column}; it has: {brief(', '.join(names), 600) or 'none'}.")
        return column
    if not matrices:
        raise FileFormatError(f"{path} holds no 2-D {what}; it has: {brief(', '.join(names), 600) or 'none'}.")
    if len(matrices) > 1:
        raise InputError(
            f"{path} has {len(matrices)} 2-D {what}s ({brief(', '.join(matrices), 600)}). "
            f"Choose one: {option('column', 'NAME')}."
        )
    return matrices[0]


def check_size(path: Path, state: FileState, promised: int) -> None:
    """Refuse a file that ends before its last row, or goes on after it, as if a second array were saved into it."""
    if state[1] > promised:
        raise FileFormatError(
            f"{path} holds more than its header says, {promised} bytes: it has {state[1]}. Save each array to a "
            "separate file, or all rows as one array."
        )
    if state[1] < promised:
        raise FileFormatError(
            f"{path} is truncated: its header says {promised} bytes, and it has {state[1]}. Copy the file again."
        )


class ParsedRows:
    """The first pass over rows that are parsed: kept as float32 if they are few, so that there is no second pass."""

    n_bytes_of_all: ClassVar[int] = 0  # of many files that are open at once

    def __init__(self) -> None:
        self.are_kept = True
        self._blocks: list[Array] = []
        self._rows: list[Sequence[float]] = []
        self._n_bytes = 0

    def append(self, row: Sequence[float]) -> None:
        """Add a row, of as many numbers as the others."""
        if not self.are_kept:
            return
        self._rows.append(row)
        self._n_bytes += 4 * len(row)
        ParsedRows.n_bytes_of_all += 4 * len(row)
        if len(self._rows) == _PARSED_BLOCK:
            self._blocks.append(self._last_block())
            self._rows = []
        if ParsedRows.n_bytes_of_all > KEPT_BYTES:
            self.__del__()
            self.are_kept, self._rows, self._blocks, self._n_bytes = False, [], [], 0

    def __del__(self) -> None:
        ParsedRows.n_bytes_of_all -= self._n_bytes

    def _last_block(self) -> Array:
        with np.errstate(over="ignore"):  # infinity is refused by whoever reads the block
            return np.array(self._rows, np.float32)

    def blocks(self, start_row: int, block_rows: int) -> Iterator[Array]:
        """Blocks of the rows from one on."""
        kept = [*self._blocks, self._last_block()] if self._rows else self._blocks  # several threads may read
        starts = accumulate(map(len, kept), initial=0)
        pieces = (block[max(0, start_row - start) :] for start, block in zip(starts, kept, strict=False))
        return in_blocks(pieces, block_rows)


class StoredRows(NamedTuple):
    """Where the rows of an array lie in a file."""

    path: Path
    state: FileState
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    offset: int

    def blocks(self, start_row: int, block_rows: int) -> Iterator[Array]:
        """Blocks of rows as views of the file; pages that were read are released, or they would fill the memory."""
        with open_to_read(self.path) as file:
            check_unchanged(self.path, self.state)
            with naming(self.path):
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        rows: Array = np.ndarray(self.shape, self.dtype, buffer=mapped, offset=self.offset)
        for start in range(start_row, len(rows), block_rows):
            block = rows[start : start + block_rows]
            yield block if block.flags.aligned else block.copy()  # in an archive, arrays begin at any byte
            if sys.platform != "win32":
                mapped.madvise(mmap.MADV_DONTNEED)

    def blocks_of_columns(self, start_row: int, block_rows: int) -> Iterator[Array]:
        """Blocks of rows of an array in Fortran order, where each column is contiguous."""
        n_rows, dim = self.shape
        with open_to_read(self.path) as file:
            check_unchanged(self.path, self.state)
            for start in range(start_row, n_rows, block_rows):
                columns = np.empty((dim, min(block_rows, n_rows - start)), self.dtype)
                for number, column in enumerate(columns):
                    file.seek(self.offset + (number * n_rows + start) * self.dtype.itemsize)
                    file.readinto(column.data)
                yield columns.T
