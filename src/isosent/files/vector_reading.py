"""Opening vectors that somebody already has, whatever format they are in."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from isosent import _check
from isosent.errors import FileFormatError, InputError
from isosent.files.mapped_vectors import open_npy, open_safetensors, open_vecs
from isosent.files.parquet_vectors import open_parquet, vector_columns
from isosent.files.vector_source import VectorSource

_OPENERS: dict[str, Callable[[Path, str | None], VectorSource]] = {
    ".npy": open_npy,
    ".fvecs": open_vecs,
    ".bvecs": open_vecs,
    ".safetensors": open_safetensors,
    ".parquet": open_parquet,
}


def open_vectors(path: str | os.PathLike[str], *, column: str | None = None) -> VectorSource:
    """Open a file of vectors; nothing but its header is read yet.

    Parameters
    ----------
    path : path-like
        ``.npy`` (C or Fortran order), ``.fvecs``, ``.bvecs``, ``.safetensors`` with one 2-D tensor, or ``.parquet``
        with a column of lists, large lists or fixed-size lists. float16, bfloat16, float32, float64, int8 or uint8.
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
        If its content is not what its format promises, or what stands beside it about its space is of another file.
    InputError
        If the ending is unknown, or the column is not there or not the only one.
    """
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
        A file.
    column : str, optional
        The column that is meant.

    Returns
    -------
    bool
        Whether `open_vectors` should read it, and not `read_texts`; a table with columns of both kinds holds vectors,
        unless a column of texts is named.
    """
    ending = Path(path).suffix.lower()
    if ending != ".parquet":
        return ending in _OPENERS
    vectors = vector_columns(_check.input_file(path))
    if column is not None:
        return column in vectors
    return bool(vectors)
