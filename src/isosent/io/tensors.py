"""Files of safetensors: their header, their tensors through a memory map, and those of isosent with a checksum.

The library itself neither reads bfloat16 into numpy nor writes the same bytes for the same content twice.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from collections.abc import Collection, Mapping
from io import BytesIO
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputFileError
from isosent.io.checksum import UNSEALED, damaged, is_intact, sealed
from isosent.io.json import check_schema, parse_json
from isosent.io.schemas import Count
from isosent.io.system import naming, open_to_read, read_bytes, system_error
from isosent.storage import TENSORS

SEAL = "isosent.checksum"
# numpy has no bfloat16: its bytes are read as uint16
TENSOR_TYPES = {storage.tensor: storage.stored for storage in TENSORS} | {
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
}


class MappedTensor(NamedTuple):
    """A tensor in a file, read-only."""

    dtype: str  # as safetensors names it
    array: NDArray[Any]


class _TensorHeader(Struct):
    dtype: str
    shape: list[Count]
    data_offsets: tuple[Count, Count]


def safetensors_header(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str], int]:
    """Read the header: the entry of each tensor, the metadata, and the byte at which the numbers start."""
    with open_to_read(path) as file:
        return _header_in(file, path, os.fstat(file.fileno()).st_size)


def _header_in(file: IO[bytes], path: Path, n_bytes: int) -> tuple[dict[str, dict[str, Any]], dict[str, str], int]:
    try:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > n_bytes:
            raise ValueError("it is longer than the file")
        header = parse_json(file.read(length), "header")
        metadata = header.pop("__metadata__", {})
        check_schema(metadata, "metadata", dict[str, str])
        check_schema(header, "tensors", dict[str, _TensorHeader])
        return header, metadata, 8 + length
    except (struct.error, ValueError) as error:
        raise FileFormatError(
            f"{path} is no safetensors file, or its header is damaged: {error}. Save it again."
        ) from None


def map_tensors(path: Path) -> tuple[dict[str, MappedTensor], dict[str, str]]:
    """Open a file without reading its numbers: its tensors and its metadata."""
    with open_to_read(path) as file:
        header, metadata, data_start = _header_in(file, path, os.fstat(file.fileno()).st_size)
        with naming(path):
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    tensors = {}
    try:
        for name, entry in header.items():
            if entry["dtype"] not in TENSOR_TYPES:
                continue
            shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
            dtype = TENSOR_TYPES[entry["dtype"]]
            if end - begin != prod(shape) * dtype.itemsize:
                raise ValueError(f"tensor {name} has the wrong number of bytes")
            array: NDArray[Any] = np.ndarray(shape, dtype, buffer=mapped, offset=data_start + begin)
            tensors[name] = MappedTensor(entry["dtype"], array)
    except (TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{path} is damaged: {error}. Save it again.") from None
    return tensors, metadata


def open_tensors(path: str | os.PathLike[str], framework: str) -> Any:
    """Open a file as ``safetensors.safe_open`` does."""
    from safetensors import safe_open

    try:
        return safe_open(path, framework)
    except FileNotFoundError:  # the library says so whatever was wrong
        open_to_read(path).close()
        return safe_open(path, framework)


def plain_tensors_bytes(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as the content of a file without metadata, whose checksum is elsewhere; nothing for no arrays."""
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()}) if arrays else b""


def plain_tensors(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of `plain_tensors_bytes`; damage raises the error of safetensors."""
    from safetensors.numpy import load

    return load(content)


def tensors_bytes(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> bytes:
    """Arrays and metadata as a file of safetensors that holds its own checksum."""
    from safetensors.numpy import save

    content = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    length = int.from_bytes(content[:8], "little")
    # the library writes its metadata in another order in every process
    header = {"__metadata__": dict(sorted(metadata.items())) | {SEAL: UNSEALED}} | json.loads(content[8 : 8 + length])
    encoded = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    encoded += b" " * (-len(encoded) % 8)  # the format aligns the tensors
    return sealed(len(encoded).to_bytes(8, "little") + encoded + content[8 + length :])


def read_tensors(path: Path, fields: Collection[str]) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read what `tensors_bytes` gave, and its metadata, which may have these fields only."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    content = read_bytes(path)  # once: another process may replace the file at any time
    metadata = _header_in(BytesIO(content), path, len(content))[1]
    if unknown := sorted(set(metadata) - {*fields, SEAL}):
        raise FileFormatError(f"{path}: damaged. Its metadata has an unknown field {unknown[0]!r}. Write it again.")
    if SEAL in metadata and not is_intact(content, metadata[SEAL]):  # of files of an index, the manifest has it
        raise damaged(str(path))
    try:
        return load(content), metadata
    except SafetensorError as error:
        raise FileFormatError(f"{path}: damaged or truncated: {error}.") from None


def read_all_tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read every tensor of a safetensors file."""
    from safetensors import SafetensorError

    try:
        with open_tensors(path, "numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputFileError(f"{path}: no such file.") from None
    except (OSError, SafetensorError, TypeError) as error:
        if unreadable := system_error(error, path):
            raise unreadable from None
        raise FileFormatError(
            f"{path} is no safetensors file of int8, float16 or float32: {_check.brief(error)}. Save it again."
        ) from None
