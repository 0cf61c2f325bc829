"""The tensors of a .safetensors file, as views of one memory map."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.errors import FileFormatError
from isosent.files.mapped_vectors import safetensors_header

TENSOR_TYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I8": "i1",
    "U8": "u1",
}


@dataclass(frozen=True, slots=True, eq=False)
class MappedTensor:
    """A tensor in a file.

    Parameters
    ----------
    kind : str
        Type of its numbers, as safetensors spells it.
    array : ndarray
        Its numbers, read-only; those of ``BF16`` as uint16.
    """

    kind: str
    array: NDArray[Any]


def map_tensors(path: Path) -> tuple[dict[str, MappedTensor], dict[str, str]]:
    """Open a .safetensors file without reading its numbers.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    tensors : dict of str to MappedTensor
        Those of a type in `TENSOR_TYPES`.
    metadata : dict of str to str
        Its metadata.

    Raises
    ------
    FileFormatError
        If the file is damaged or truncated.
    """
    header, metadata, data_start = safetensors_header(path)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    tensors = {}
    try:
        for name, entry in header.items():
            shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
            if entry["dtype"] not in TENSOR_TYPES:
                continue
            dtype = np.dtype(TENSOR_TYPES[entry["dtype"]])
            if end - begin != prod(shape) * dtype.itemsize:
                raise ValueError(f"tensor {name} has the wrong number of bytes")
            array: NDArray[Any] = np.ndarray(shape, dtype, buffer=mapped, offset=data_start + begin)
            tensors[name] = MappedTensor(entry["dtype"], array)
    except (TypeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{path} must be a whole safetensors file; it is damaged: {error}.") from None
    return tensors, metadata
