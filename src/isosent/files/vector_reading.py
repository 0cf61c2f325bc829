"""Opening vectors that somebody already has, whatever format they are in."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError
from isosent.files.mapped_vectors import open_npy, open_safetensors, open_vecs
from isosent.files.number_types import NUMBER_TYPES
from isosent.files.parquet_vectors import open_parquet, vector_columns
from isosent.files.parquet_writing import VECTOR_COLUMN
from isosent.files.shards import INDEX_FILE, ShardIndex, read_index
from isosent.files.vector_source import VectorSource, in_blocks

_OPENERS: dict[str, Callable[[Path, str | None], VectorSource]] = {
    ".npy": open_npy,
    ".fvecs": open_vecs,
    ".bvecs": open_vecs,
    ".safetensors": open_safetensors,
    ".parquet": open_parquet,
}


def open_vectors(path: str | os.PathLike[str], *, column: str | None = None) -> VectorSource:
    """Open a file of vectors, or a folder of shards; nothing but headers is read yet.

    Parameters
    ----------
    path : path-like
        ``.npy`` (C or Fortran order), ``.fvecs``, ``.bvecs``, ``.safetensors`` with one 2-D tensor, or ``.parquet``
        with a column of lists, large lists or fixed-size lists. float16, bfloat16, float32, float64, int8 or uint8.
        A folder that ``isosent encode`` wrote gives the vectors of its shards, one shard behind the other.
    column : str, optional
        Column of a table, or tensor, that holds the vectors. May be left out where there is only one.

    Returns
    -------
    VectorSource
        Rows, dimensions, number type and space; gives the vectors block by block.

    Raises
    ------
    InputFileError
        If the file is missing, empty, a directory or not readable.
    FileFormatError
        If its content is not what its format promises, or what stands beside it about its space is of another file, or
        a folder lacks shards.
    InputError
        If the ending is unknown, or the column is not there or not the only one.
    """
    index = read_index(Path(path)) if _is_folder(path) else None
    if index is not None:
        return _open_folder(Path(path), index, column)
    file = _check.input_file(path)
    opener = _OPENERS.get(file.suffix.lower())
    if opener is None:
        raise InputError(f"{file} must end in {', '.join(_OPENERS)}; got {file.suffix or 'no ending'}.")
    try:
        return opener(file, column)
    except PermissionError as error:
        raise FileFormatError(f"{file} could not be read: {error.strerror}.") from error


def holds_vectors(path: str | os.PathLike[str], *, column: str | None = None) -> bool:
    """Tell a file of vectors from a file of texts, by its ending and, for a table, its columns.

    Parameters
    ----------
    path : path-like
        A file, or a folder of shards.
    column : str, optional
        The column that is meant.

    Returns
    -------
    bool
        Whether `open_vectors` should read it, and not `read_texts`; a table with columns of both kinds holds vectors,
        unless a column of texts is named.
    """
    if _is_folder(path) and (Path(path) / INDEX_FILE).exists():
        return True
    ending = Path(path).suffix.lower()
    if ending != ".parquet":
        return ending in _OPENERS
    vectors = vector_columns(_check.input_file(path))
    if column is not None:
        return column in vectors
    return bool(vectors)


def open_shard(folder: Path, index: ShardIndex, number: int) -> VectorSource:
    """Open a shard that is whole.

    Parameters
    ----------
    folder : Path
        The folder.
    index : ShardIndex
        What it says it holds.
    number : int
        The shard, counted from 0.

    Returns
    -------
    VectorSource
        Its vectors.

    Raises
    ------
    InputFileError
        If it is missing.
    FileFormatError
        If it is damaged, or not the one that was written there.
    """
    source = open_vectors(folder / index.shard_name(number))
    found = (source.n_rows, source.dim, source.dtype, source.space)
    expected = (index.shard_rows(number), index.dim, index.sharding.dtype, index.space)
    if found != expected:
        listed = ("{} x {} {} of the space {}".format(*facts) for facts in (expected, found))
        raise FileFormatError("{} must hold {}; it holds {}. Encode again.".format(source.path, *listed))
    return source


def _is_folder(path: str | os.PathLike[str]) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # a name that is too long
        return False


def _open_folder(folder: Path, index: ShardIndex, column: str | None) -> VectorSource:
    if not index.is_complete:
        raise FileFormatError(
            f"{folder} must hold all its shards; {index.n_written} of {index.n_shards} are there. "
            "Run the command that began it once more: it goes on."
        )
    if column not in (None, VECTOR_COLUMN):
        raise InputError(f"{folder} holds shards of vectors; got column {column}. Leave it out.")
    shards = [open_shard(folder, index, number) for number in range(index.n_shards)]
    size = index.sharding.shard_size

    def read(start_row: int, block_rows: int) -> Iterator[NDArray[Any]]:
        first, row = divmod(start_row, size)

        def pieces() -> Iterator[NDArray[Any]]:
            for number, shard in enumerate(shards[first:]):
                shard.verify()
                yield from shard.read(0 if number else row, block_rows)

        return in_blocks(pieces(), block_rows)

    number_type = NUMBER_TYPES[index.sharding.dtype]
    return VectorSource(folder, sum(shard.n_rows for shard in shards), index.dim, number_type, index.space, read)
