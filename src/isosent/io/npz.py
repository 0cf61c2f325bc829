"""Several arrays of numpy in a file, .npz: read where they lie, or unpacked block by block if they are compressed."""

from __future__ import annotations

import lzma
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from zipfile import ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from isosent._check import brief
from isosent.errors import FileFormatError, IsosentError
from isosent.io.bounds import FREELY_EXPANDED, LARGEST_EXPANSION, expands_too_far
from isosent.io.checksum import FileState, check_unchanged, file_state
from isosent.io.npy import Header, array_header, matrix_header, stored_blocks
from isosent.io.system import open_to_read
from isosent.io.vector_source import Array, Read, VectorSource, chosen_array
from isosent.storage import NUMPY

_HEADER_BYTES: Final = 1 << 14  # numpy refuses a longer header itself
_MEMBER: Final = ".npy"  # of the names of arrays in the archive
_LOCAL_BYTES: Final = 30  # of the header of a member, before its name


def open_vectors(path: Path, column: str | None) -> VectorSource:
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


@contextmanager
def _archive(path: Path) -> Iterator[ZipFile]:
    try:
        with open_to_read(path) as file, ZipFile(file) as archive:
            yield archive
    except (IsosentError, OSError):
        raise
    # zipfile raises all of these for a damaged archive, and the others for one of a kind that it cannot read
    except (BadZipFile, zlib.error, lzma.LZMAError, EOFError, ValueError, RuntimeError, OverflowError) as error:
        reason = brief(error).rstrip(".")
        raise FileFormatError(f"{path} is a damaged archive of arrays: {reason}. Save it again.") from None
