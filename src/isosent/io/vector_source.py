"""Formats that are read through a memory map: .npy, .fvecs, .bvecs and .safetensors."""

from __future__ import annotations

import ast
import mmap
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from isosent import _check
from isosent._check import brief
from isosent.errors import FileFormatError, InputError
from isosent.io.bounds import MOST_DIMENSIONS
from isosent.io.checksum import SEAL, FileState, check_unchanged, file_state, verify_file
from isosent.io.json import check_schema, parse_json
from isosent.io.number_types import NUMBER_TYPES, NumberType
from isosent.io.schemas import Count
from isosent.io.shards import INDEX_FILE
from isosent.io.space import FileIdentity, Space, read_note, space_in

BLOCK_BYTES = 32 << 20
BLOCK_ROWS_A_DIM = 4  # fewer rows than dimensions have no full rank, which moments would notice block by block


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Vectors in a file, of any size; only a block of them is in memory at a time."""

    path: Path  # the file, or a folder of shards
    n_rows: int  # vectors in it
    dim: int  # their dimensions
    number_type: NumberType  # what its numbers are
    space: Space | None  # the space that the file says its vectors belong to
    # Takes the first row and a number of rows; yields blocks of so many rows, the last one shorter
    read: Callable[[int, int], Iterator[NDArray[Any]]]
    column: str | None = None  # column or tensor that holds the vectors, where the format has names
    # Over all bytes of the file, where it was written by isosent; compared before the first block is read
    checksum: str | None = None
    seal_at: int | None = None  # byte at which the file holds that checksum itself
    # What the file was when it was opened, see `file_state`: the blocks of another one are not read
    state: FileState | None = None

    @property
    def dtype(self) -> str:
        """Name of the number type, ``bfloat16`` included."""
        return self.number_type.name

    @property
    def eps(self) -> float:
        """Relative rounding of the numbers; 0 for integers."""
        return self.number_type.eps

    @property
    def block_rows(self) -> int:
        """Rows of a block: 32 MiB of them, or four times as many as dimensions if that is more."""
        return max(1, BLOCK_ROWS_A_DIM * self.dim, BLOCK_BYTES // (self.dim * self.number_type.size_bytes))

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this data from other data, as plain values; the name of the file does not count."""
        path = self.path / INDEX_FILE if self.path.is_dir() else self.path
        file = FileIdentity.of(path)
        return {
            "size_bytes": file.size_bytes,
            "sample_sha256": file.sample_sha256,
            "mtime_ns": path.stat().st_mtime_ns,
            "shape": [self.n_rows, self.dim],
            "dtype": self.dtype,
            "column": self.column,
        }

    def blocks(self, start_row: int = 0) -> Iterator[NDArray[Any]]:
        """Read the vectors from a row on."""
        self.verify()
        return self.read(start_row, self.block_rows)

    def verify(self) -> None:
        """Refuse a file that is damaged: its checksum differs."""
        if self.checksum is not None:
            verify_file(self.path, self.checksum, self.seal_at, self.state)

    def check_finite(self, block: NDArray[Any], start_row: int) -> None:
        """Refuse NaN and infinity."""
        try:
            _check.finite_rows(str(self.path), "vectors", block, start_row)
        except InputError as error:
            raise FileFormatError(str(error)) from None


def in_blocks(pieces: Iterator[NDArray[Any]], n_rows: int) -> Iterator[NDArray[Any]]:
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


_LISTED = ", ".join(NUMBER_TYPES)
_NPY_HEADER_LENGTH = {1: "<H", 2: "<I", 3: "<I"}
_LONGEST_HEADER = 1 << 20
_BFLOAT16 = ("bfloat16", "<V2", "|V2")  # ml_dtypes names it or leaves two bytes of unknown meaning
_OWN_FORMATS = "isosent-"  # whose matrices are no vectors
_SAFETENSORS_NAMES = {
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "I8": "int8",
    "U8": "uint8",
}

Array = NDArray[Any]


class _NpyHeader(Struct, forbid_unknown_fields=True):
    """What numpy writes in front of an array."""

    descr: Any
    fortran_order: bool
    shape: tuple[Count, ...]


class _TensorHeader(Struct):
    """What a .safetensors file says of a tensor."""

    dtype: str
    shape: list[Count]
    data_offsets: tuple[Count, Count]


def open_npy(path: Path, column: str | None) -> VectorSource:
    """Open an array as numpy writes it, in C or Fortran order."""
    _no_column(path, column)
    state = file_state(path)
    with path.open("rb") as file:
        header, offset = _npy_header(path, file)
    try:
        check_schema(header, "header", _NpyHeader)
        number_type, stored = _npy_numbers(path, header["descr"])
    except (FileFormatError, TypeError, ValueError) as error:
        if isinstance(error, FileFormatError) and str(error).startswith(str(path)):
            raise
        raise FileFormatError(f"{path} must be an array saved by numpy; its header is damaged: {error}.") from None
    n_rows, dim = _matrix_shape(path, header["shape"])
    _check_size(path, state, offset + n_rows * dim * stored.itemsize)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        stored_rows = _by_columns if header["fortran_order"] else _mapped
        for block in stored_rows(path, state, (n_rows, dim), stored, offset, start_row, block_rows):
            yield number_type.decoded(block)

    space, checksum = read_note(path)
    return VectorSource(path, n_rows, dim, number_type, space, read, checksum=checksum, state=state)


def _npy_header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], int]:
    """Read the header by hand: numpy's reader stops at the names of types that it does not have."""
    magic = file.read(8)
    if magic[:6] != b"\x93NUMPY" or len(magic) < 8 or magic[6] not in _NPY_HEADER_LENGTH:
        raise FileFormatError(f"{path} must be an array saved by numpy; it starts otherwise.")
    length_format = _NPY_HEADER_LENGTH[magic[6]]
    try:
        (length,) = struct.unpack(length_format, file.read(struct.calcsize(length_format)))
        if length > _LONGEST_HEADER:
            raise ValueError(f"it is {length} bytes long")
        header = ast.literal_eval(file.read(length).decode("utf-8"))
    except (struct.error, ValueError, SyntaxError, RecursionError, MemoryError) as error:
        reason = brief(str(error).partition("<")[0].rstrip(": "))  # behind it stands an address in memory
        raise FileFormatError(f"{path} must be an array saved by numpy; its header is damaged: {reason}.") from None
    return header, file.tell()


def _npy_numbers(path: Path, descr: Any) -> tuple[NumberType, np.dtype[Any]]:
    if descr in _BFLOAT16:
        number_type = NUMBER_TYPES["bfloat16"]
        return number_type, number_type.stored
    dtype = np.dtype(descr)
    if dtype.hasobject:
        raise FileFormatError(f"{path} must hold numbers; it holds pickled objects, which are not read. Save numbers.")
    if dtype.name not in NUMBER_TYPES:
        raise FileFormatError(f"{path} must hold {_LISTED}; it holds {dtype}. Convert it with astype.")
    return NUMBER_TYPES[dtype.name], dtype


def open_vecs(path: Path, column: str | None) -> VectorSource:
    """Open .fvecs (float32) or .bvecs (uint8): each row its dimensions as int32, then its numbers."""
    _no_column(path, column)
    state = file_state(path)
    number_type = NUMBER_TYPES["float32" if path.suffix.lower() == ".fvecs" else "uint8"]
    with path.open("rb") as file:
        start = file.read(4)
    dim, size = int.from_bytes(start, "little", signed=True), state[1]
    if len(start) < 4 or not 1 <= dim * number_type.size_bytes <= size - 4:
        raise FileFormatError(
            f"{path} must start with the dimensions of a row and that row; got {dim} dimensions in {size} bytes."
        )
    record = np.dtype([("dim", "<i4"), ("values", number_type.stored, (dim,))])
    n_rows = size // record.itemsize

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        first = start_row
        for block in _mapped(path, state, (n_rows,), record, 0, start_row, block_rows):
            wrong = np.flatnonzero(block["dim"] != dim)
            if wrong.size:
                raise FileFormatError(
                    f"{path}: every row must have {dim} dimensions, those of the first; "
                    f"got {block['dim'][wrong[0]]} in row {first + wrong[0]}, counted from 0."
                )
            yield number_type.decoded(block["values"])
            first += len(block)

    if size % record.itemsize:
        for _ in read(0, 1 << 16):
            pass
        raise FileFormatError(f"{path} must end with a whole row; row {n_rows} is truncated. Copy the file again.")
    space, checksum = read_note(path)
    return VectorSource(path, n_rows, dim, number_type, space, read, checksum=checksum, state=state)


def open_safetensors(path: Path, column: str | None) -> VectorSource:
    """Open the 2-D tensor of a .safetensors file."""
    state = file_state(path)
    tensors, metadata, data_start = safetensors_header(path)
    # either sign is enough: one of them may be damaged
    if metadata.get("format", "").startswith(_OWN_FORMATS) or SEAL in metadata:
        raise FileFormatError(f"{path} must hold vectors; it holds {brief(metadata.get('format', 'something else'))}.")
    name = _choose_tensor(path, tensors, column)
    kind, shape = tensors[name]["dtype"], tensors[name]["shape"]
    begin, end = tensors[name]["data_offsets"]
    if kind not in _SAFETENSORS_NAMES:
        raise FileFormatError(f"{path}: tensor {name} must hold {', '.join(_SAFETENSORS_NAMES)}; it holds {kind}.")
    number_type = NUMBER_TYPES[_SAFETENSORS_NAMES[kind]]
    n_rows, dim = _matrix_shape(path, shape)
    if end - begin != n_rows * dim * number_type.stored.itemsize:
        raise FileFormatError(f"{path} must be a safetensors file; tensor {name} has the wrong number of bytes.")
    _check_size(path, state, data_start + end)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        for block in _mapped(path, state, (n_rows, dim), number_type.stored, data_start + begin, start_row, block_rows):
            yield number_type.decoded(block)

    return VectorSource(path, n_rows, dim, number_type, space_in(metadata), read, name, state=state)


def safetensors_metadata(path: Path) -> dict[str, str]:
    """Read the metadata of a .safetensors file."""
    return safetensors_header(path)[1]


def safetensors_header(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str], int]:
    """Read the header of a .safetensors file."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > path.stat().st_size:
                raise ValueError("it is longer than the file")
            header = parse_json(file.read(length), "header")
        metadata = header.pop("__metadata__", {})
        check_schema(metadata, "metadata", dict[str, str])
        check_schema(header, "tensors", dict[str, _TensorHeader])
        return header, metadata, 8 + length
    except (struct.error, ValueError) as error:
        raise FileFormatError(f"{path} must be a safetensors file; its header is damaged: {error}.") from None


def _choose_tensor(path: Path, tensors: dict[str, dict[str, Any]], column: str | None) -> str:
    if column is not None:
        if column not in tensors:
            raise InputError(f"{path} has no tensor {column}; it has: {', '.join(tensors)}.")
        return column
    matrices = [name for name, tensor in tensors.items() if len(tensor.get("shape", ())) == 2]
    if not matrices:
        raise FileFormatError(f"{path} must hold a 2-D tensor; it has: {', '.join(tensors) or 'none'}.")
    if len(matrices) > 1:
        raise InputError(
            f"{path} has {len(matrices)} 2-D tensors ({', '.join(matrices)}). "
            "Choose one: column=NAME, on the command line --column NAME."
        )
    return matrices[0]


def _no_column(path: Path, column: str | None) -> None:
    if column is not None:
        raise InputError(f"{path} has no columns; got column {column}. Leave it out.")


def _matrix_shape(path: Path, shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) == 2 and shape[1] > MOST_DIMENSIONS:
        raise FileFormatError(f"{path}: {shape[1]:,} dimensions; vectors may have {MOST_DIMENSIONS:,} at most.")
    if len(shape) != 2 or shape[1] < 1:
        raise FileFormatError(
            f"{path} must be 2-D of shape (n_rows, dim), with dim at least 1; got shape {tuple(shape)}."
        )
    return shape[0], shape[1]


def _check_size(path: Path, state: FileState, promised: int) -> None:
    size = state[1]
    if size < promised:
        raise FileFormatError(
            f"{path} must have {promised} bytes, as its header says; got {size}: it is truncated. Copy the file again."
        )


def _mapped(
    path: Path,
    state: FileState,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    offset: int,
    start_row: int,
    block_rows: int,
) -> Iterator[Array]:
    """Views of an array that lies in a file; pages that were read are let go of."""
    with path.open("rb") as file:
        check_unchanged(path, state)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    rows: Array = np.ndarray(shape, dtype, buffer=mapped, offset=offset)
    for start in range(start_row, len(rows), block_rows):
        yield rows[start : start + block_rows]
        if sys.platform != "win32":
            mapped.madvise(mmap.MADV_DONTNEED)


def _by_columns(
    path: Path,
    state: FileState,
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    offset: int,
    start_row: int,
    block_rows: int,
) -> Iterator[Array]:
    """Blocks of rows of an array in Fortran order, where each column lies in one piece."""
    n_rows, dim = shape
    with path.open("rb") as file:
        check_unchanged(path, state)
        for start in range(start_row, n_rows, block_rows):
            columns = np.empty((dim, min(block_rows, n_rows - start)), dtype)
            for number, column in enumerate(columns):
                file.seek(offset + (number * n_rows + start) * dtype.itemsize)
                file.readinto(column.data)
            yield columns.T
