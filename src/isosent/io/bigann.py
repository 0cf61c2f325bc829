"""Files of big-ann-benchmarks and DiskANN: rows and dimensions as uint32, then the rows one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from isosent.errors import FileFormatError
from isosent.io.checksum import file_state
from isosent.io.formats import format_by_name
from isosent.io.notes import read_note
from isosent.io.system import open_to_read
from isosent.io.vector_source import Array, StoredRows, VectorSource, matrix_shape, no_column

_HEADER_BYTES = 8


def open_vectors(path: Path, column: str | None) -> VectorSource:
    """Open .fbin, .u8bin or .i8bin."""
    no_column(path, column)
    state = file_state(path)
    with open_to_read(path) as file:
        header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        raise FileFormatError(f"{path} is truncated: it has {state[1]} bytes, and its header alone has 8.")
    n_rows, dim = matrix_shape(path, [int(n) for n in np.frombuffer(header, "<u4")])
    (storage,) = format_by_name(path).dtypes
    promised = _HEADER_BYTES + n_rows * storage.n_bytes(dim)
    if state[1] != promised:  # a header of another byte order or dtype is seen by that, too
        raise FileFormatError(
            f"{path} is truncated or of another dtype: {n_rows} rows of {dim} {storage} and the header are {promised} "
            f"bytes, and it has {state[1]}. Copy the file again, or rename it."
        )
    stored = StoredRows(path, state, (n_rows, dim), storage.stored, _HEADER_BYTES)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        yield from map(storage.decoded, stored.blocks(start_row, block_rows))

    space, checksum = read_note(path)
    return VectorSource(path, n_rows, dim, storage, space, read, checksum=checksum, state=state)
