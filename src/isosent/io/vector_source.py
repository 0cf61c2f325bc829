"""Vectors in blocks: of .npy, .fvecs, .bvecs and .safetensors through a memory map, of lists in JSON, and of arrays.

A `VectorSource` is what every format opens as: shape, `Storage` and vector space are known, and the vectors are read
when its `blocks` are iterated, after the checksum was compared once. `open_npy`, `open_vecs` and `open_safetensors`
check the header and the size of a file, and leave the reading to `_StoredRows`; `open_json` counts the lists, and reads
them again for each pass. `isosent.io.parquet` has the last format, and `isosent.io.vectors` chooses among them.
"""

from __future__ import annotations

import mmap
import os
import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent._check import brief
from isosent.errors import FileFormatError, InputError, option
from isosent.io.bounds import LONGEST_VECTOR_LINE, MOST_DIMENSIONS
from isosent.io.checksum import FileState, check_unchanged, file_state, verify_file
from isosent.io.notes import INDEX_FILE, file_identity, read_note
from isosent.io.system import naming, open_to_read
from isosent.io.tensors import SEAL, safetensors_header
from isosent.space import Space
from isosent.storage import READ, Storage

BLOCK_BYTES = 32 << 20
ARRAY_BLOCK_ROWS = 8192
BLOCK_ROWS_A_DIM = 4  # fewer rows than dimensions have no full rank, which moments would notice block by block

_LONGEST_HEADER = 1 << 20  # bytes of a .npy file
_NPY_MAGIC = b"\x93NUMPY"
_JSON_CHUNK = 1 << 20  # bytes
_JSON_START = 4096  # bytes that show what a file of JSON holds

Array = NDArray[Any]


_SAFETENSORS_NAMES = {
    "F16": Storage.float16,
    "BF16": Storage.bfloat16,
    "F32": Storage.float32,
    "F64": Storage.float64,
    "I8": Storage.int8,
    "U8": Storage.uint8,
}


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Vectors in a file of any size, of which only a block is in memory at a time; or those of an array."""

    kind: ClassVar[Literal["vectors"]] = "vectors"

    path: Path  # the file, or a folder of shards; of an array, what messages call it
    n_rows: int
    dim: int
    storage: Storage
    space: Space | None  # as the file says
    read: Callable[[int, int], Iterator[Array]]  # first row, rows of a block -> blocks; the last one may be shorter
    column: str | None = None  # column or tensor that holds the vectors, where the format has names
    checksum: str | None = None  # over all bytes, if isosent wrote the file; compared before the first block is read
    seal_at: int | None = None  # byte at which the file holds that checksum itself
    state: FileState | None = None  # of the file when it was opened: blocks of another one are not read
    first_row: int = 0  # in the file, if these are a part of its rows
    read_labels: Callable[..., list[Any]] | None = None  # reads a column of the file, if it is a table
    text_columns: tuple[str, ...] = ()  # of that table
    where: str | None = None  # of an array: the function that it was passed to

    @classmethod
    def of_array(cls, rows: Array, where: str, name: str) -> VectorSource:
        """The rows of a 2-D array; numbers that no file holds become floats."""
        if rows.dtype.name not in READ:
            rows = rows.astype(np.float64 if rows.dtype.kind == "f" else np.result_type(rows, np.float32), copy=False)

        def read(start_row: int, block_rows: int) -> Iterator[Array]:
            for start in range(start_row, len(rows), block_rows):
                yield storage.decoded(rows[start : start + block_rows])

        storage, (n_rows, dim) = Storage(rows.dtype.name), rows.shape
        return cls(Path(name), n_rows, dim, storage, None, read, where=where)

    @property
    def name(self) -> str:
        """The path, for messages."""
        return str(self.path)

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
        return self.storage is Storage.uint8 and self.path.suffix.lower() != ".bvecs"

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
            _check.finite_rows(str(self.path), "vectors", block, self.first_row + start_row)
        except InputError as error:
            raise FileFormatError(str(error)) from None


def no_column_error(path: str | os.PathLike[str], column: str) -> InputError:
    """The error for labels of a file that is no table."""
    return InputError(
        f"{path} has no column {column}. Labels are a column of a .csv, .tsv, .jsonl or .parquet file: "
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


def open_npy(path: Path, column: str | None) -> VectorSource:
    """Open an array saved by numpy, in C or Fortran order."""
    _no_column(path, column)
    state = file_state(path)
    with open_to_read(path) as file:
        start = BytesIO(file.read(_LONGEST_HEADER))  # numpy would read up to 4 GiB where a header is damaged
    if not start.getvalue().startswith(_NPY_MAGIC):
        raise FileFormatError(
            f"{path} is not an array saved by numpy: its header is damaged, or it is another kind of file. Save "
            "vectors with numpy.save, and texts as .txt."
        )
    try:
        is_first = np.lib.format.read_magic(start) == (1, 0)  # version 3 is version 2 with names that are not ASCII
        read_header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read_header(start)
        offset = start.tell()
        if not all(type(n) is int for n in shape):
            raise ValueError(f"its shape is {shape}")
    except Exception as error:  # numpy raises IndexError, SyntaxError, TokenError and others for a damaged header
        first = error.args[0] if error.args else error  # a TokenError adds a place
        reason = brief(str(first).partition("<")[0].rstrip(": "))  # numpy puts an address in memory after it
        raise FileFormatError(f"{path} is no array of numpy: its header is damaged, {reason}. Save it again.") from None
    if dtype.hasobject:
        raise FileFormatError(f"{path} holds pickled objects, which are not read. Save numbers.")
    types = [each for each in READ if each is not Storage.bfloat16]  # which numpy does not have
    if dtype.name not in types:
        raise FileFormatError(f"{path} holds {dtype}. Convert it to {', '.join(types)}, with astype.")
    n_rows, dim = _matrix_shape(path, shape)
    _check_size(path, state, offset + n_rows * dim * dtype.itemsize)
    storage = Storage(dtype.name)

    stored = _StoredRows(path, state, (n_rows, dim), dtype, offset)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        blocks = stored.blocks_of_columns if is_fortran else stored.blocks
        yield from map(storage.decoded, blocks(start_row, block_rows))

    space, checksum = read_note(path)
    return VectorSource(path, n_rows, dim, storage, space, read, checksum=checksum, state=state)


def open_vecs(path: Path, column: str | None) -> VectorSource:
    """Open .fvecs (float32) or .bvecs (uint8): each row is its dimensions as int32, then its numbers."""
    _no_column(path, column)
    state = file_state(path)
    storage = Storage.float32 if path.suffix.lower() == ".fvecs" else Storage.uint8
    with open_to_read(path) as file:
        start = file.read(4)
    dim, size = int.from_bytes(start, "little", signed=True), state[1]
    if len(start) < 4 or not 1 <= dim * storage.decoded_bytes <= size - 4:
        raise FileFormatError(
            f"{path} is damaged: its first row says {dim} dimensions, and it has {size} bytes. Copy the file again."
        )
    record = np.dtype([("dim", "<i4"), ("values", storage.stored, (dim,))])
    n_rows = size // record.itemsize

    stored = _StoredRows(path, state, (n_rows,), record, 0)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        first = start_row
        for block in stored.blocks(start_row, block_rows):
            wrong = np.flatnonzero(block["dim"] != dim)
            if wrong.size:
                raise FileFormatError(
                    f"{path}: row {first + wrong[0]}, counted from 0, has {block['dim'][wrong[0]]} dimensions, and the "
                    f"first has {dim}. Write all rows with the same."
                )
            yield storage.decoded(block["values"])
            first += len(block)

    if size % record.itemsize:
        for _ in read(0, 1 << 16):  # names a row of other dimensions, if that is the reason
            pass
        raise FileFormatError(f"{path}: row {n_rows} is truncated. Copy the file again.")
    space, checksum = read_note(path)
    return VectorSource(path, n_rows, dim, storage, space, read, checksum=checksum, state=state)


def open_safetensors(path: Path, column: str | None) -> VectorSource:
    """Open the 2-D tensor of a .safetensors file."""
    state = file_state(path)
    tensors, metadata, data_start = safetensors_header(path)
    # a saved transform or word vectors of isosent; either sign is enough, as one of them may be damaged
    if metadata.get("format", "").startswith("isosent-") or SEAL in metadata:
        other = "a map that isosent export wrote" if "isosent.normalize" in metadata else "something else"
        raise FileFormatError(f"{path} holds {brief(metadata.get('format', other))}, not vectors.")
    name = _choose_tensor(path, tensors, column)
    dtype, (begin, end) = tensors[name]["dtype"], tensors[name]["data_offsets"]
    if dtype not in _SAFETENSORS_NAMES:
        raise FileFormatError(f"{path}: tensor {name} holds {dtype!r}. Expected {', '.join(_SAFETENSORS_NAMES)}.")
    storage = _SAFETENSORS_NAMES[dtype]
    n_rows, dim = _matrix_shape(path, tensors[name]["shape"])
    if end - begin != n_rows * dim * storage.stored.itemsize:
        raise FileFormatError(f"{path} is damaged: tensor {name} has the wrong number of bytes. Save it again.")
    _check_size(path, state, data_start + end)

    stored = _StoredRows(path, state, (n_rows, dim), storage.stored, data_start + begin)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        yield from map(storage.decoded, stored.blocks(start_row, block_rows))

    return VectorSource(path, n_rows, dim, storage, Space.in_metadata(metadata), read, name, state=state)


_JSON_PIECES = {  # what stands before the first row, and between two rows
    ".json": (re.compile(rb"\s*\[\s*\["), re.compile(rb"\s*,\s*\[")),
    ".jsonl": (re.compile(rb"\s*\["), re.compile(rb"[ \t\r]*\n\s*\[")),
}


def holds_json_lists(path: Path) -> bool:
    """Whether a .json or .jsonl file begins as lists of numbers do, rather than objects."""
    with open_to_read(path) as file:
        start = file.read(_JSON_START).removeprefix(BOM_UTF8)
    return _JSON_PIECES[path.suffix.lower()][0].match(start) is not None


def open_json(path: Path, column: str | None) -> VectorSource:
    """Open lists of numbers: one JSON document, ``[[0.1, 0.2], ...]``, or a list on each line of a .jsonl file."""
    _no_column(path, column)
    state = file_state(path)
    first, n_rows = None, 0
    for piece in _json_rows(path, state):
        first = piece if first is None else first
        n_rows += 1
    if first is None:
        raise FileFormatError(f"{path} holds no list of numbers.")
    dim = len(_json_numbers(path, 0, first))
    _matrix_shape(path, (n_rows, dim))

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        rows = enumerate(_json_rows(path, state))
        pending = islice(rows, start_row, None)
        while block := list(islice(pending, block_rows)):
            vectors = np.empty((len(block), dim), np.float32)
            for vector, (number, piece) in zip(vectors, block, strict=True):
                numbers = _json_numbers(path, number, piece)
                if len(numbers) != dim:
                    raise FileFormatError(
                        f"{path}: row {number}, counted from 0, has {len(numbers)} numbers, and the first has {dim}."
                    )
                with np.errstate(over="ignore"):  # infinity is refused by whoever reads the block
                    vector[:] = numbers
            yield vectors

    space, checksum = read_note(path)
    return VectorSource(path, n_rows, dim, Storage.float32, space, read, checksum=checksum, state=state)


def _json_rows(path: Path, state: FileState) -> Iterator[bytes]:
    """The text between the brackets of each row, read piece by piece."""
    before_first, between = _JSON_PIECES[path.suffix.lower()]
    is_document, n_rows, rest, is_closed = path.suffix.lower() == ".json", 0, b"", False
    with open_to_read(path) as file:
        check_unchanged(path, state)
        while chunk := file.read(_JSON_CHUNK):
            *pieces, rest = (rest + (chunk if n_rows or rest else chunk.removeprefix(BOM_UTF8))).split(b"]")
            for piece in pieces:
                opening = (between if n_rows else before_first).match(piece)
                if is_closed or (opening is None and not (is_document and n_rows and not piece.strip())):
                    raise _not_json_lists(path, n_rows)
                if opening is None:
                    is_closed = True
                    continue
                yield piece[opening.end() :]
                n_rows += 1
            if len(rest) > LONGEST_VECTOR_LINE:
                raise FileFormatError(f"{path}: row {n_rows}, counted from 0, is too long for a vector.")
    if rest.strip() or (is_document and not is_closed):
        raise _not_json_lists(path, n_rows)


def _json_numbers(path: Path, number: int, piece: bytes) -> list[float]:
    try:
        return msgspec.json.decode(b"[%b]" % piece, type=list[float])
    except msgspec.MsgspecError:
        raise _not_json_lists(path, number) from None


def _not_json_lists(path: Path, number: int) -> FileFormatError:
    shape = "[[0.1, ...], ...]" if path.suffix.lower() == ".json" else "a list on each line, [0.1, ...]"
    return FileFormatError(
        f"{path}: row {number}, counted from 0, is no list of numbers, or the file is truncated. Write {shape}."
    )


def _choose_tensor(path: Path, tensors: dict[str, dict[str, Any]], column: str | None) -> str:
    if column is not None:
        if column not in tensors:
            raise InputError(f"{path} has no tensor {column}; it has: {', '.join(tensors)}.")
        return column
    matrices = [name for name, tensor in tensors.items() if len(tensor["shape"]) == 2]
    if not matrices:
        raise FileFormatError(f"{path} holds no 2-D tensor; it has: {', '.join(tensors) or 'none'}.")
    if len(matrices) > 1:
        raise InputError(
            f"{path} has {len(matrices)} 2-D tensors ({', '.join(matrices)}). "
            f"Choose one with {option('column', 'NAME')}."
        )
    return matrices[0]


def _no_column(path: Path, column: str | None) -> None:
    if column is not None:
        raise InputError(f"{path} has no columns, so there is no {column!r}. Leave it out.")


def _matrix_shape(path: Path, shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) == 2 and shape[1] > MOST_DIMENSIONS:
        raise FileFormatError(f"{path}: {shape[1]:,} dimensions; vectors may have {MOST_DIMENSIONS:,} at most.")
    if len(shape) != 2 or shape[0] < 0 or shape[1] < 1:
        raise FileFormatError(f"{path} has the shape {tuple(shape)}. Save vectors as a 2-D array, one per row.")
    return shape[0], shape[1]


def _check_size(path: Path, state: FileState, promised: int) -> None:
    if state[1] < promised:
        raise FileFormatError(
            f"{path} is truncated: its header says {promised} bytes, and it has {state[1]}. Copy the file again."
        )


class _StoredRows(NamedTuple):
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
            yield rows[start : start + block_rows]
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


# by the endings of files that hold nothing but vectors
OPENERS: dict[str, Callable[[Path, str | None], VectorSource]] = {
    ".npy": open_npy,
    ".fvecs": open_vecs,
    ".bvecs": open_vecs,
    ".safetensors": open_safetensors,
}
