"""Arrays of numpy, .npy: read through a memory map, and written block by block."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from isosent._check import brief
from isosent.errors import FileFormatError
from isosent.io.checksum import HashingFile, file_state
from isosent.io.notes import read_note
from isosent.io.system import open_to_read
from isosent.io.vector_source import Array, StoredRows, VectorSource, Write, check_size, matrix_shape, no_column
from isosent.storage import NUMPY, Storage

_LONGEST_HEADER = 1 << 20  # bytes
_MAGIC = b"\x93NUMPY"


def open_vectors(path: Path, column: str | None) -> VectorSource:
    """Open an array saved by numpy, in C or Fortran order."""
    no_column(path, column)
    state = file_state(path)
    with open_to_read(path) as file:
        start = BytesIO(file.read(_LONGEST_HEADER))  # numpy would read up to 4 GiB where a header is damaged
    if not start.getvalue().startswith(_MAGIC):
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
    if dtype.name not in NUMPY:
        raise FileFormatError(f"{path} holds {dtype}. Convert it to {', '.join(NUMPY)}, with astype.")
    n_rows, dim = matrix_shape(path, shape)
    check_size(path, state, offset + n_rows * dim * dtype.itemsize)
    storage = Storage(dtype.name)

    stored = StoredRows(path, state, (n_rows, dim), dtype, offset)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        blocks = stored.blocks_of_columns if is_fortran else stored.blocks
        yield from map(storage.decoded, blocks(start_row, block_rows))

    space, checksum = read_note(path)
    return VectorSource(path, n_rows, dim, storage, space, read, checksum=checksum, state=state)


def writer(file: HashingFile, shape: tuple[int, int], dtype: str) -> Write:
    """Write as `numpy.save` does, but through the file object, which reports a full disk where numpy does not."""
    stored = np.dtype(dtype).newbyteorder("<")
    header = {"descr": stored.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(cast("IO[bytes]", file), header)

    def write(rows: NDArray[Any]) -> None:
        file.write(np.ascontiguousarray(rows, stored).data)

    return write
