"""Files of vectors: opened by their extension, and written block by block, with a note or a checksum inside.

`open_vectors` chooses the reader of `isosent.io.vector_source` or `isosent.io.parquet`, or opens a complete folder of
shards as if it were one file. `writing_vectors` writes .npy and .fvecs here, .parquet with `isosent.io.parquet`.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.errors import FileFormatError, InputError
from isosent.io.atomic import check_destination, fsync, locked, replacing
from isosent.io.checksum import HashingFile
from isosent.io.parquet import VECTOR_COLUMN, ColumnsBeside, open_parquet, vector_columns, writing_parquet
from isosent.io.remote import is_folder
from isosent.io.shards import ShardIndex, check_complete, read_index
from isosent.io.signatures import refuse_other_file
from isosent.io.space import INDEX_FILE, Space, note_entry, note_path, older_entry, write_note
from isosent.io.vector_source import (
    DTYPES,
    NUMBER_TYPES,
    VectorSource,
    holds_json_lists,
    in_blocks,
    open_json,
    open_npy,
    open_safetensors,
    open_vecs,
)

_OPENERS: dict[str, Callable[[Path, str | None], VectorSource]] = {
    ".npy": open_npy,
    ".fvecs": open_vecs,
    ".bvecs": open_vecs,
    ".safetensors": open_safetensors,
    ".parquet": open_parquet,
    ".json": open_json,
    ".jsonl": open_json,
}


VECTOR_ENDINGS = tuple(name for name in _OPENERS if name != ".json")  # of the files of a folder, where .json are notes


def open_vectors(path: str | os.PathLike[str], *, column: str | None = None) -> VectorSource:
    """Open a file of vectors, or a folder of shards; nothing but headers is read yet."""
    index = read_index(path) if is_folder(path) else None
    if index is not None:
        return _open_folder(Path(path), index, column)
    file = _check.input_file(path)
    opener = _OPENERS.get(file.suffix.lower())
    if opener is None:
        _no_archive(file)
        refuse_other_file(file)
        raise InputError(f"{file} is no file of vectors. Use one that ends in {', '.join(_OPENERS)}.")
    try:
        return opener(file, column)
    except PermissionError as error:
        raise FileFormatError(f"{file} could not be read: {error.strerror}.") from error
    except FileFormatError:
        refuse_other_file(file)  # better says what it is than what is missing
        raise


def holds_vectors(path: str | os.PathLike[str], *, column: str | None = None) -> bool:
    """Whether a file holds vectors rather than texts, by its ending and, for tables and JSON, what is in it."""
    if is_folder(path) and (Path(path) / INDEX_FILE).exists():
        return True
    ending = Path(path).suffix.lower()
    if ending in (".json", ".jsonl"):
        return holds_json_lists(_check.input_file(path))
    if ending != ".parquet":
        _no_archive(Path(path))
        return ending in _OPENERS
    try:
        names = vector_columns(_check.input_file(path))
    except FileFormatError:
        refuse_other_file(path)
        raise
    return bool(names) if column is None else column in names


def _no_archive(path: Path) -> None:
    if path.suffix.lower() == ".npz":
        raise InputError(f"{path} is an archive of arrays, not vectors. Save the array that holds them: numpy.save.")


def open_shard(folder: Path, index: ShardIndex, number: int) -> VectorSource:
    """Open a shard that is whole."""
    source = open_vectors(folder / index.shard_name(number))
    actual = (source.n_rows, source.dim, source.dtype, source.space)
    expected = (index.plan[number].n_rows, index.dim, index.sharding.dtype, index.space)
    if actual != expected:
        listed = ("{} x {} {} of the space {}".format(*facts) for facts in (expected, actual))
        raise FileFormatError("{}: expected {}, found {}. Encode again.".format(source.path, *listed))
    return source


def _open_folder(folder: Path, index: ShardIndex, column: str | None) -> VectorSource:
    if index.holds != "vectors":
        raise FileFormatError(f"{folder} holds {index.holds}, not vectors. Name a folder that isosent encode wrote.")
    check_complete(folder, index)
    if column not in (None, VECTOR_COLUMN):
        raise InputError(f"{folder} holds shards of vectors, which have no column {column!r}. Leave it out.")
    shards = [open_shard(folder, index, number) for number in range(index.n_shards)]
    stops = list(accumulate(shard.n_rows for shard in index.plan))

    def read(start_row: int, block_rows: int) -> Iterator[NDArray[Any]]:
        first = bisect_right(stops, start_row)
        row = start_row - (stops[first - 1] if first else 0)

        def pieces() -> Iterator[NDArray[Any]]:
            for number, shard in enumerate(shards[first:]):
                shard.verify()
                yield from shard.read(0 if number else row, block_rows)

        return in_blocks(pieces(), block_rows)

    number_type = NUMBER_TYPES[index.sharding.dtype]
    return VectorSource(folder, sum(shard.n_rows for shard in shards), index.dim, number_type, index.space, read)


ENDINGS = (".npy", ".fvecs", ".parquet")

Write = Callable[[NDArray[Any]], None]


def check_vector_file(path: str | os.PathLike[str], dtype: str = "float32", *, are_codes: bool = False) -> None:
    """Refuse a file that `writing_vectors` cannot write, before any work is done."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        listed = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise InputError(f"{path}: vectors cannot be written to this kind of file. Use {listed}.")
    if are_codes:
        if ending != ".npy":
            raise InputError(f"{path}: codes can be written to an .npy file only. Name one.")
    elif dtype not in DTYPES:
        raise InputError(f"{path}: there is no dtype {dtype!r}. Choose one of {', '.join(DTYPES)}.")
    if ending == ".fvecs" and dtype != "float32":
        raise InputError(f"{path}: a .fvecs file holds float32, not {dtype}. Name a .npy or .parquet file.")
    if ending == ".parquet":
        _extras.require("pyarrow")
    check_destination(path)


@contextmanager
def writing_vectors(
    path: str | os.PathLike[str],
    shape: tuple[int, int],
    *,
    dtype: str = "float32",
    space: Space | None = None,
    beside: ColumnsBeside | None = None,
    are_codes: bool = False,
) -> Iterator[Write]:
    """Write vectors under a temporary name, and rename the file when it is complete.

    A .parquet file keeps the space in its metadata. Next to any other file lies its note, ``FILE.isosent.json``, with
    the space and a checksum. The note is put in place first and describes the older file as well: whenever a run is
    killed, the note fits the existing file.
    """
    check_vector_file(path, dtype, are_codes=are_codes)
    path = Path(path).resolve()  # the note belongs to the file, not to a link to it
    if path.suffix.lower() == ".parquet":
        metadata = {} if space is None else space.metadata
        with replacing(path) as temporary, writing_parquet(temporary, shape[1], dtype, metadata, beside) as write:
            yield write
        return
    is_new = not path.exists()
    try:
        with ExitStack() as commit:
            with replacing(path) as temporary:
                with temporary.open("wb") as opened:
                    hashing = HashingFile(opened)
                    is_npy = path.suffix.lower() == ".npy"
                    yield _writing_npy(hashing, shape, dtype) if is_npy else _writing_fvecs(hashing, shape[1])
                fsync(temporary)
                entry = note_entry(temporary, hashing.checksum, {"shape": shape, "dtype": dtype}, space)
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


def _writing_npy(opened: HashingFile, shape: tuple[int, int], dtype: str) -> Write:
    """Write as `numpy.save` does, but through the file object, which reports a full disk where numpy does not."""
    stored = np.dtype(dtype).newbyteorder("<")
    header = {"descr": stored.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(cast("IO[bytes]", opened), header)

    def write(rows: NDArray[Any]) -> None:
        opened.write(np.ascontiguousarray(rows, stored).data)

    return write


def _writing_fvecs(opened: HashingFile, dim: int) -> Write:
    record = np.dtype([("dim", "<i4"), ("values", "<f4", (dim,))])

    def write(rows: NDArray[Any]) -> None:
        records = np.empty(len(rows), record)
        records["dim"], records["values"] = dim, rows
        opened.write(records.data)

    return write
