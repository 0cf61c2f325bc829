"""Files of TEXMEX, .fvecs, .bvecs (uint8) and .ivecs: each row is its dimensions as int32, then its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.errors import FileFormatError
from isosent.io.bounds import LARGEST_DOCUMENT, read_bounded
from isosent.io.checksum import HashingFile, file_state
from isosent.io.formats import format_by_name
from isosent.io.neighbors import Neighbors
from isosent.io.notes import read_note
from isosent.io.system import open_to_read
from isosent.io.vector_source import Array, StoredRows, VectorSource, Write, no_column


def open_vectors(path: Path, column: str | None) -> VectorSource:
    """Open a file of rows of one length."""
    no_column(path, column)
    state = file_state(path)
    (storage,) = format_by_name(path).dtypes
    with open_to_read(path) as file:
        start = file.read(4)
    dim, size = int.from_bytes(start, "little", signed=True), state[1]
    if len(start) < 4 or not 1 <= dim * storage.decoded_bytes <= size - 4:
        raise FileFormatError(
            f"{path} is damaged: its first row says {dim} dimensions, and it has {size} bytes. Copy the file again."
        )
    record = np.dtype([("dim", "<i4"), ("values", storage.stored, (dim,))])
    n_rows = size // record.itemsize

    stored = StoredRows(path, state, (n_rows,), record, 0)

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


def read_neighbors(path: Path) -> Neighbors:
    """Read .ivecs: each row is the number of its neighbors, then these."""
    with open_to_read(path) as file:
        content = read_bounded(str(path), file, LARGEST_DOCUMENT)
    k = int.from_bytes(content[:4], "little", signed=True)
    if k < 1 or len(content) % (4 * (k + 1)):
        raise FileFormatError(f"{path} is damaged: its rows have not all {k} neighbors, as its first. Copy it again.")
    table = np.frombuffer(content, "<i4").reshape(-1, k + 1)
    if (table[:, 0] != k).any():
        row = int(np.flatnonzero(table[:, 0] != k)[0])
        raise FileFormatError(f"{path}: row {row}, counted from 0, has {table[row, 0]} neighbors, and the first {k}.")
    return Neighbors(str(path), table[:, 1:].astype(np.int64), None, "", None)


def writer(file: HashingFile, shape: tuple[int, int], dtype: str) -> Write:
    """Write .fvecs."""
    dim = shape[1]
    record = np.dtype([("dim", "<i4"), ("values", "<f4", (dim,))])

    def write(rows: NDArray[Any]) -> None:
        records = np.empty(len(rows), record)
        records["dim"], records["values"] = dim, rows
        file.write(records.data)

    return write
