"""Vectors in a 2-D tensor of a .safetensors file, read through a memory map."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from isosent._check import brief
from isosent.errors import FileFormatError
from isosent.io.checksum import file_state
from isosent.io.tensors import SEAL, safetensors_header
from isosent.io.vector_source import Array, StoredRows, VectorSource, check_size, chosen_array, matrix_shape
from isosent.space import Space
from isosent.storage import TENSORS


def open_vectors(path: Path, column: str | None) -> VectorSource:
    """Open the 2-D tensor of a .safetensors file."""
    state = file_state(path)
    tensors, metadata, data_start = safetensors_header(path)
    # a saved transform or word vectors of isosent; either sign is enough, as one of them may be damaged
    if metadata.get("format", "").startswith("isosent-") or SEAL in metadata:
        other = "a map that isosent export wrote" if "isosent.normalize" in metadata else "something else"
        raise FileFormatError(f"{path} holds {brief(metadata.get('format', other))}, not vectors.")
    matrices = [name for name, tensor in tensors.items() if len(tensor["shape"]) == 2]
    name = chosen_array(path, "tensor", tensors, matrices, column)
    dtype, (begin, end) = tensors[name]["dtype"], tensors[name]["data_offsets"]
    storages = {storage.tensor: storage for storage in TENSORS}
    if dtype not in storages:
        raise FileFormatError(f"{path}: tensor {name} holds {dtype!r}. Expected {', '.join(storages)}.")
    storage = storages[dtype]
    n_rows, dim = matrix_shape(path, tensors[name]["shape"])
    if end - begin != n_rows * dim * storage.stored.itemsize:
        raise FileFormatError(f"{path} is damaged: tensor {name} has the wrong number of bytes. Save it again.")
    check_size(path, state, data_start + end)

    stored = StoredRows(path, state, (n_rows, dim), storage.stored, data_start + begin)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        yield from map(storage.decoded, stored.blocks(start_row, block_rows))

    return VectorSource(path, n_rows, dim, storage, Space.in_metadata(metadata), read, name, state=state)
