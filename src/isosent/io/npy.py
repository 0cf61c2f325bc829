"""Arrays of numpy, .npy: read through a memory map, and written block by block."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from isosent._check import brief
from isosent.errors import FileFormatError
from isosent.io.checksum import FileState, HashingFile, file_state
from isosent.io.notes import read_note
from isosent.io.system import open_to_read
from isosent.io.vector_source import Array, Read, StoredRows, VectorSource, Write, check_size, matrix_shape, no_column
from isosent.storage import NUMPY, Storage

LONGEST_HEADER = 1 << 20  # bytes
_MAGIC = b"\x93NUMPY"


class Header(NamedTuple):
    """What the header of an array says."""

    n_rows: int
    dim: int
    dtype: np.dtype[Any]
    is_fortran: bool
    n_bytes: int  # of the header itself

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimensions."""
        return self.n_rows, self.dim

    @property
    def storage(self) -> Storage:
        """The dtype."""
        return Storage(self.dtype.name)

    @property
    def promised(self) -> int:
        """Bytes of the header and of all rows."""
        return self.n_bytes + self.n_rows * self.storage.n_bytes(self.dim)


def open_vectors(path: Path, column: str | None) -> VectorSource:
    """Open an array saved by numpy, in C or Fortran order."""
    no_column(path, column)
    state = file_state(path)
    with open_to_read(path) as file:
        header = matrix_header(str(path), file.read(LONGEST_HEADER))
    check_size(path, state, header.promised)
    space, checksum = read_note(path)
    read = stored_blocks(path, state, header, 0)
    return VectorSource(path, *header.shape, header.storage, space, read, checksum=checksum, state=state)


def stored_blocks(path: Path, state: FileState, header: Header, start: int) -> Read:
    """What reads an array that lies in a file as it is, from a byte on."""
    stored = StoredRows(path, state, header.shape, header.dtype, start + header.n_bytes)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        blocks = stored.blocks_of_columns if header.is_fortran else stored.blocks
        yield from map(header.storage.decoded, blocks(start_row, block_rows))

    return read


def matrix_header(where: str, start: bytes) -> Header:
    """Read the header of an array from its first bytes, and refuse what is no matrix of numbers."""
    shape, is_fortran, dtype, n_bytes = array_header(where, start)
    if dtype.hasobject:
        raise FileFormatError(f"{where} holds pickled objects, which are not read. Save numbers.")
    if dtype.name not in NUMPY:
        raise FileFormatError(f"{where} holds {dtype}. Convert it to {', '.join(NUMPY)}, with astype.")
    return Header(*matrix_shape(where, shape), dtype, is_fortran, n_bytes)


def array_header(where: str, start: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order, dtype and length of a header."""
    if not start.startswith(_MAGIC):
        raise FileFormatError(
            f"{where} is not an array saved by numpy: its header is damaged, or it is another kind of file. Save "
            "vectors with numpy.save, and texts as .txt."
        )
    file = BytesIO(start)  # numpy would read up to 4 GiB where a header is damaged
    try:
        is_first = np.lib.format.read_magic(file) == (1, 0)  # version 3 is version 2 with names that are not ASCII
        read_header = np.lib.format.read_array_header_1_0 if is_first else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read_header(file)
        if not all(type(n) is int for n in shape):
            raise ValueError(f"its shape is {shape}")
    except Exception as error:  # numpy raises IndexError, SyntaxError, TokenError and others for a damaged header
        first = error.args[0] if error.args else error  # a TokenError adds a place
        reason = brief(str(first).partition("<")[0].rstrip(": "))  # numpy puts an address in memory after it
        raise FileFormatError(
            f"{where} is no array of numpy: its header is damaged, {reason}. Save it again."
        ) from None
    return shape, is_fortran, dtype, file.tell()


def writer(file: HashingFile, shape: tuple[int, int], dtype: str) -> Write:
    """Write as `numpy.save` does, but through the file object, which reports a full disk where numpy does not."""
    stored = np.dtype(dtype).newbyteorder("<")
    header = {"descr": stored.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(cast("IO[bytes]", file), header)

    def write(rows: NDArray[Any]) -> None:
        file.write(np.ascontiguousarray(rows, stored).data)

    return write
