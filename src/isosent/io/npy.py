"""Arrays of numpy, .npy, and several in an archive, .npz: read through a memory map; .npy is written block by block."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, cast
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from isosent._check import brief
from isosent.errors import FileFormatError, IsosentError
from isosent.io.bounds import FREELY_EXPANDED, LARGEST_EXPANSION, expands_too_far
from isosent.io.checksum import FileState, HashingFile, check_unchanged, file_state
from isosent.io.formats import ending_of
from isosent.io.notes import read_note
from isosent.io.system import open_to_read, system_code
from isosent.io.vector_source import (
    Array,
    Read,
    StoredRows,
    VectorSource,
    Write,
    check_size,
    chosen_array,
    matrix_shape,
    no_column,
)
from isosent.storage import NUMPY, Storage

LONGEST_HEADER = 1 << 20  # bytes
_MAGIC = b"\x93NUMPY"
_HEADER_BYTES: Final = 1 << 14  # numpy refuses a longer header itself
_ARCHIVE: Final = ".npz"
_MEMBER: Final = ".npy"  # of the names of arrays in the archive
_CHUNK_BYTES: Final = 1 << 20
_LOCAL_BYTES: Final = 30  # of the header of a member, before its name


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
    """Open an array saved by numpy, in C or Fortran order, or one of an archive."""
    if ending_of(path) == _ARCHIVE:
        return _open_archive(path, column)
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


# -- archives: stored arrays are read where they lie, compressed ones are unpacked block by block --------------------


def _open_archive(path: Path, column: str | None) -> VectorSource:
    """Open the array that is named, or the only matrix of numbers."""
    state = file_state(path)
    with _archive(path) as archive:
        members = {
            info.filename.removesuffix(_MEMBER): info for info in archive.infolist() if info.filename.endswith(_MEMBER)
        }
        is_chosen = column is not None or len(members) == 1
        matrices = [name for name, info in members.items() if is_chosen or _is_matrix(path, archive, info)]
        name = chosen_array(path, "array", members, matrices, column)
        where, info = f"{path}, array {name},", members[name]
        if info.file_size > max(FREELY_EXPANDED, LARGEST_EXPANSION * info.compress_size):
            raise expands_too_far(str(path), info.file_size)
        header = matrix_header(where, _start(archive, info))
        if info.file_size != header.promised:
            raise FileFormatError(
                f"{where} is damaged: its header says {header.promised} bytes, and it has {info.file_size}. Save it "
                "again."
            )
        start = _start_of_data(archive, info)
        if info.compress_type == ZIP_STORED:
            _check_stored(where, archive, info, start)
    if info.compress_type == ZIP_STORED:
        read = stored_blocks(path, state, header, start)
    elif header.is_fortran:
        raise FileFormatError(f"{where} is compressed column by column. Save it with numpy.savez, or in C order.")
    else:
        read = _unpacked_blocks(path, state, info, header)
    return VectorSource(path, *header.shape, header.storage, None, read, name, state=state)


def _unpacked_blocks(path: Path, state: FileState, info: ZipInfo, header: Header) -> Read:
    row_bytes = header.storage.n_bytes(header.dim)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        with _archive(path) as archive, archive.open(info) as member:
            check_unchanged(path, state)
            member.seek(header.n_bytes + start_row * row_bytes)
            for start in range(start_row, header.n_rows, block_rows):
                n_rows = min(block_rows, header.n_rows - start)
                rows = np.frombuffer(member.read(n_rows * row_bytes), header.dtype)  # the last compares the CRC
                yield header.storage.decoded(rows.reshape(n_rows, header.dim))

    return read


def _is_matrix(path: Path, archive: ZipFile, info: ZipInfo) -> bool:
    shape, _, dtype, _ = array_header(f"{path}, {info.filename},", _start(archive, info))
    return len(shape) == 2 and dtype.name in NUMPY


def _start(archive: ZipFile, info: ZipInfo) -> bytes:
    with archive.open(info) as member:
        return member.read(_HEADER_BYTES)


def _start_of_data(archive: ZipFile, info: ZipInfo) -> int:
    """The byte of the archive at which the content of a member begins."""
    file = archive.fp
    assert file is not None
    file.seek(info.header_offset)
    header = file.read(_LOCAL_BYTES)
    n_name, n_extra = np.frombuffer(header[26:], "<u2")
    return info.header_offset + _LOCAL_BYTES + int(n_name) + int(n_extra)


def _check_stored(where: str, archive: ZipFile, info: ZipInfo, start: int) -> None:
    """Refuse a member that is not as long as the archive says, or has other bytes; it is read past zipfile."""
    file, checksum, n_left = archive.fp, 0, info.file_size
    assert file is not None
    if info.compress_size == info.file_size:
        file.seek(start)
        while n_left and (chunk := file.read(min(n_left, _CHUNK_BYTES))):
            checksum, n_left = zlib.crc32(chunk, checksum), n_left - len(chunk)
    if n_left or info.compress_size != info.file_size or checksum != info.CRC:
        raise FileFormatError(f"{where} is damaged: its length or its checksum (CRC-32) is another. Copy it again.")


@contextmanager
def _archive(path: Path) -> Iterator[ZipFile]:
    try:
        with open_to_read(path) as file, ZipFile(file) as archive:
            yield archive
    except IsosentError:
        raise
    # zipfile raises all of these for a damaged archive, and the others for one of a kind that it cannot read
    except (
        BadZipFile,
        zlib.error,
        lzma.LZMAError,
        EOFError,
        ValueError,
        RuntimeError,
        OverflowError,
        OSError,
    ) as error:
        if isinstance(error, OSError) and (system_code(error) is not None or error.filename is not None):
            raise
        reason = brief(error).rstrip(".")
        raise FileFormatError(f"{path} is a damaged archive of arrays: {reason}. Save it again.") from None
