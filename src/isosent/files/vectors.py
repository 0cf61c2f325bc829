"""Writing vectors block by block: an array, float vectors, or a table with other columns beside them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError
from isosent.files.atomic import check_destination, fsync, locked, replacing
from isosent.files.checksum import HashingFile
from isosent.files.number_types import DTYPES
from isosent.files.parquet_writing import ColumnsBeside, writing_parquet
from isosent.files.space import Space, note_entry, note_path, older_entry, write_note
from isosent.files.vector_source import BLOCK_BYTES

ENDINGS = (".npy", ".fvecs", ".parquet")

Write = Callable[[NDArray[Any]], None]


@dataclass(frozen=True, slots=True)
class VectorFile:
    """A file of vectors to be written.

    Parameters
    ----------
    n_rows : int
        Vectors that will be written.
    dim : int
        Their dimensions.
    dtype : str, default "float32"
        One of `DTYPES`.
    space : Space, optional
        Where they belong. A .parquet file keeps it in its metadata, beside any other lies ``FILE.isosent.json``.
    """

    n_rows: int
    dim: int
    dtype: str = "float32"
    space: Space | None = None


def check_vector_file(path: str | os.PathLike[str], dtype: str = "float32") -> None:
    """Refuse a file that `writing_vectors` cannot write, before any work is done.

    Parameters
    ----------
    path : path-like
        The file to write.
    dtype : str, default "float32"
        Type of its numbers.

    Raises
    ------
    InputError
        If the name has another ending than those of `ENDINGS`, or the format has no such numbers.
    OutputError
        If it is a directory, or its folder does not exist.
    """
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        listed = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise InputError(f"{path} must end in {listed}; got {Path(path).suffix or 'no ending'}.")
    if dtype not in DTYPES:
        raise InputError(f"{path}: dtype must be one of {', '.join(DTYPES)}; got {dtype}.")
    if ending == ".fvecs" and dtype != "float32":
        raise InputError(f"{path}: a .fvecs file holds float32; got {dtype}. Name a .npy or .parquet file.")
    check_destination(path)


@contextmanager
def writing_vectors(
    path: str | os.PathLike[str], file: VectorFile, beside: ColumnsBeside | None = None
) -> Iterator[Write]:
    """Write vectors under a temporary name and rename the file when it is whole.

    Parameters
    ----------
    path : path-like
        ``.npy``, ``.fvecs`` or ``.parquet``.
    file : VectorFile
        What it will hold.
    beside : ColumnsBeside, optional
        Columns of a .parquet file beside the vectors; the other formats have no place for them.

    Yields
    ------
    callable
        Takes the next block of vectors, shape (any number, dim). All must have been given when the block ends.

    Raises
    ------
    InputError
        If the name has another ending.
    OutputError
        If the file cannot be written; what was there is intact.

    Notes
    -----
    Beside an array lies its note, ``FILE.isosent.json``, with the space and a checksum. The note is put in place first
    and describes the older array as well, so that the array that a killed run leaves always has a note that fits.
    """
    check_vector_file(path, file.dtype)
    path = Path(path).resolve()  # the note belongs to the file, not to a link to it
    if path.suffix.lower() == ".parquet":
        metadata = {} if file.space is None else file.space.metadata
        with (
            replacing(path) as temporary,
            writing_parquet(temporary, file.dim, file.dtype, metadata, beside) as write,
        ):
            yield write
        return
    writing = _writing_npy if path.suffix.lower() == ".npy" else _writing_fvecs
    is_new = not path.exists()
    try:
        with ExitStack() as commit:
            with replacing(path) as temporary:
                with temporary.open("wb") as opened:
                    hashing = HashingFile(opened)
                    yield writing(hashing, file)
                fsync(temporary)
                facts = {"shape": (file.n_rows, file.dim), "dtype": file.dtype}
                entry = note_entry(temporary, hashing.checksum, facts, file.space)
                # of two processes that write the same file, one puts array and note in place, then the other
                commit.enter_context(locked(path.parent))
                write_note(path, entry, older_entry(path))
            write_note(path, entry)
    except BaseException:
        if is_new and path.parent.is_dir():
            with locked(path.parent):
                if not path.exists():
                    note_path(path).unlink(missing_ok=True)
        raise


def write_vectors(
    path: str | os.PathLike[str], vectors: NDArray[np.floating], texts: Sequence[str], space: Space | None = None
) -> None:
    """Write the vectors of texts.

    Parameters
    ----------
    path : path-like
        ``.npy`` or ``.fvecs``: the vectors. ``.parquet``: columns ``text`` and ``vector`` (fixed-size list).
    vectors : ndarray of shape (n_texts, dim), float32
        Row i belongs to text i.
    texts : sequence of str
        The texts.
    space : Space, optional
        Where the vectors belong.

    Raises
    ------
    InputError
        If the name has another ending.
    OutputError
        If the file cannot be written; what was there is intact.
    """
    n_rows, dim = vectors.shape
    beside = ColumnsBeside.of_texts([texts]) if Path(path).suffix.lower() == ".parquet" else None
    size = max(1, BLOCK_BYTES // (dim * vectors.itemsize))
    with writing_vectors(path, VectorFile(n_rows, dim, vectors.dtype.name, space), beside) as write:
        for start in range(0, n_rows, size):
            write(vectors[start : start + size])


def _writing_npy(opened: HashingFile, file: VectorFile) -> Write:
    """Write as `numpy.save` does, but through the file object, which reports a full disk where numpy does not."""
    dtype = np.dtype(file.dtype).newbyteorder("<")
    header = {"descr": dtype.str, "fortran_order": False, "shape": (file.n_rows, file.dim)}
    np.lib.format.write_array_header_1_0(cast("IO[bytes]", opened), header)

    def write(rows: NDArray[Any]) -> None:
        opened.write(np.ascontiguousarray(rows, dtype).data)

    return write


def _writing_fvecs(opened: HashingFile, file: VectorFile) -> Write:
    record = np.dtype([("dim", "<i4"), ("values", "<f4", (file.dim,))])

    def write(rows: NDArray[Any]) -> None:
        records = np.empty(len(rows), record)
        records["dim"], records["values"] = file.dim, rows
        opened.write(records.data)

    return write
