"""Vectors in a file, read block by block."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError
from isosent.files.checksum import FileState, verify_file
from isosent.files.number_types import NumberType
from isosent.files.shards import INDEX_FILE
from isosent.files.space import FileIdentity, Space

BLOCK_BYTES = 32 << 20
BLOCK_ROWS_A_DIM = 4  # fewer rows than dimensions have no full rank, which moments would notice block by block


@dataclass(frozen=True, slots=True)
class VectorSource:
    """Vectors in a file, of any size; only a block of them is in memory at a time.

    Parameters
    ----------
    path : Path
        The file, or a folder of shards.
    n_rows : int
        Vectors in it.
    dim : int
        Their dimensions.
    number_type : NumberType
        What its numbers are.
    space : Space or None
        The space that the file says its vectors belong to.
    read : callable
        Takes the first row and a number of rows; yields blocks of so many rows, the last one shorter.
    column : str or None
        Column or tensor that holds the vectors, where the format has names.
    checksum : str or None
        Over all bytes of the file, where it was written by isosent; compared before the first block is read.
    seal_at : int or None
        Byte at which the file holds that checksum itself.
    state : tuple or None
        What the file was when it was opened, see `file_state`: the blocks of another one are not read.
    """

    path: Path
    n_rows: int
    dim: int
    number_type: NumberType
    space: Space | None
    read: Callable[[int, int], Iterator[NDArray[Any]]]
    column: str | None = None
    checksum: str | None = None
    seal_at: int | None = None
    state: FileState | None = None

    @property
    def dtype(self) -> str:
        """Name of the number type, ``bfloat16`` included."""
        return self.number_type.name

    @property
    def eps(self) -> float:
        """Relative rounding of the numbers; 0 for integers."""
        return self.number_type.eps

    @property
    def block_rows(self) -> int:
        """Rows of a block: 32 MiB of them, or four times as many as dimensions if that is more."""
        return max(1, BLOCK_ROWS_A_DIM * self.dim, BLOCK_BYTES // (self.dim * self.number_type.size_bytes))

    @property
    def identity(self) -> dict[str, Any]:
        """What tells this data from other data, as plain values; the name of the file does not count."""
        path = self.path / INDEX_FILE if self.path.is_dir() else self.path
        file = FileIdentity.of(path)
        return {
            "size_bytes": file.size_bytes,
            "sample_sha256": file.sample_sha256,
            "mtime_ns": path.stat().st_mtime_ns,
            "shape": [self.n_rows, self.dim],
            "dtype": self.dtype,
            "column": self.column,
        }

    def blocks(self, start_row: int = 0) -> Iterator[NDArray[Any]]:
        """Read the vectors from a row on.

        Parameters
        ----------
        start_row : int, default 0
            First row, counted from 0.

        Yields
        ------
        ndarray of shape (block_rows, dim)
            In the type of the file, bfloat16 as float32. The last block may be shorter. A block may be a view of a
            memory map.

        Raises
        ------
        FileFormatError
            If the file turns out to be damaged; the message names the row or the row group.
        """
        self.verify()
        return self.read(start_row, self.block_rows)

    def verify(self) -> None:
        """Refuse a file that is damaged: its checksum differs."""
        if self.checksum is not None:
            verify_file(self.path, self.checksum, self.seal_at, self.state)

    def check_finite(self, block: NDArray[Any], start_row: int) -> None:
        """Refuse NaN and infinity.

        Parameters
        ----------
        block : ndarray of shape (n_rows, dim)
            Vectors.
        start_row : int
            Row of the file that the block starts with.

        Raises
        ------
        FileFormatError
            If there is one; the message names its row in the file.
        """
        try:
            _check.finite_rows(str(self.path), "vectors", block, start_row)
        except InputError as error:
            raise FileFormatError(str(error)) from None


def in_blocks(pieces: Iterator[NDArray[Any]], n_rows: int) -> Iterator[NDArray[Any]]:
    """Cut and join pieces so that every block but the last has `n_rows` rows.

    Parameters
    ----------
    pieces : iterator of ndarray of shape (any number, dim)
        Rows.
    n_rows : int
        Rows of a block.

    Yields
    ------
    ndarray of shape (n_rows, dim)
        The next rows; the last block may be shorter.
    """
    block, n_filled = None, 0
    for piece in pieces:
        start = 0
        while start < len(piece):
            if block is None:
                block, n_filled = np.empty((n_rows, piece.shape[1]), piece.dtype), 0
            part = piece[start : start + n_rows - n_filled]
            block[n_filled : n_filled + len(part)] = part
            start, n_filled = start + len(part), n_filled + len(part)
            if n_filled == n_rows:
                yield block
                block = None
    if block is not None:
        yield block[:n_filled]
