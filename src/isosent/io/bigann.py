"""Files of big-ann-benchmarks and DiskANN: rows and dimensions as uint32, then the rows one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from isosent.errors import FileFormatError
from isosent.io.bounds import LARGEST_DOCUMENT, read_bounded
from isosent.io.checksum import file_state
from isosent.io.formats import format_by_name
from isosent.io.neighbors import Neighbors
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


def read_neighbors(path: Path) -> Neighbors:
    """Read .ibin: queries and neighbors of each as uint32, then these as int32, perhaps their distances as float32."""
    with open_to_read(path) as file:
        content = read_bounded(str(path), file, LARGEST_DOCUMENT)
    n_queries, k = (int(n) for n in np.frombuffer(content[:8].ljust(8, b"\0"), "<u4"))
    n_bytes = 4 * n_queries * k
    if not n_bytes or len(content) - 8 not in (n_bytes, 2 * n_bytes):
        raise FileFormatError(
            f"{path} is truncated or no file of neighbors: {n_queries} queries of {k} neighbors are {n_bytes} bytes, "
            f"and it has {len(content) - 8} after its header."
        )
    tables = [
        np.frombuffer(content[start : start + n_bytes], dtype).reshape(n_queries, k)
        for start, dtype in ((8, "<i4"), (8 + n_bytes, "<f4"))
        if start < len(content)
    ]
    return Neighbors(str(path), tables[0].astype(np.int64), tables[1] if len(tables) > 1 else None, "", None)
