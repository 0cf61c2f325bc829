"""Vectors in a file, taken through a model into another file, block by block."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.base import Progress
from isosent.encoders.given import GIVEN, GivenVectors
from isosent.errors import InputError, OutputError
from isosent.files.parquet_writing import ColumnsBeside
from isosent.files.space import Space, same_space
from isosent.files.vector_source import VectorSource
from isosent.files.vectors import VectorFile, check_vector_file, writing_vectors
from isosent.model_record import ModelRecord
from isosent.transforms.base import known_rows


def transform_file(
    source: VectorSource,
    record: ModelRecord,
    output: str | os.PathLike[str],
    *,
    dtype: str = "float32",
    queries: bool = False,
    progress: Progress | None = None,
) -> int:
    """Take vectors through what follows a model's encoder, with memory for one block of them.

    Parameters
    ----------
    source : VectorSource
        Vectors that the encoder of the model gave.
    record : ModelRecord
        The model; its encoder is not opened.
    output : path-like
        ``.npy``, ``.fvecs`` or ``.parquet``. It carries the fingerprint of the model's space. From a .parquet to a
        .parquet file, the other columns come along.
    dtype : str, default "float32"
        Type of the numbers written, float32 or float16. Vectors in float64 are calculated with in float64.
    queries : bool, default False
        Whether the vectors are those of queries.
    progress : callable, optional
        Called with the number of rows done since the last call.

    Returns
    -------
    int
        Zero rows, which stay zero.

    Raises
    ------
    InputError
        If the vectors have other dimensions than those of the model's encoder or are known to be of another space, or
        nothing was fitted behind the encoder.
    FileFormatError
        If a row holds NaN or infinity (the message names it), or the file is damaged.
    OutputError
        If the output cannot be written; what was there is intact.
    """
    check_vector_file(output, dtype)
    if Path(output).exists() and source.path.samefile(output):
        raise InputError(f"transform: the output must be another file than the vectors; got {output} for both.")
    check_in_front(record, str(source.path), source.space)
    _check.same_dim(str(source.path), "vectors", source.dim, record.encoder_dim)
    if not record.fits:
        raise InputError(f"transform: the model must be a fitted one; {record.reference} is not. Name a model folder.")
    linear_map = record.behind.linear_map
    dim = source.dim if linear_map is None else linear_map.n_components
    space = Space(record.fingerprint, record.name)
    are_tables = source.path.suffix.lower() == Path(output).suffix.lower() == ".parquet"
    row, n_zero_rows = 0, 0
    with writing_vectors(
        output, VectorFile(source.n_rows, dim, dtype, space), ColumnsBeside.of_table(source) if are_tables else None
    ) as write:
        for block in source.blocks():
            try:
                mapped = record.behind.apply(block, queries=queries)
            except InputError:
                source.check_finite(block, row)
                raise
            write(narrowed(mapped, dtype, row))
            n_zero_rows += len(block) - int(known_rows(block).sum())
            row += len(block)
            if progress:
                progress(len(block))
    return n_zero_rows


def check_in_front(record: ModelRecord, name: str, space: Space | None) -> None:
    """Refuse vectors that are not known to be those that a model's encoder gives.

    Parameters
    ----------
    record : ModelRecord
        The model.
    name : str
        What holds the vectors, for the message.
    space : Space or None
        Their space; None where nothing is known, which is accepted.

    Raises
    ------
    InputError
        If it is another space, or the one behind the model.
    """
    if space and space.fingerprint == record.fingerprint != record.encoder_fingerprint:
        raise InputError(f"{name} must hold vectors from in front of the model; these went through it already.")
    same_space("the model", encoder_space(record), name, space)


def encoder_space(record: ModelRecord) -> Space | None:
    """Space of the vectors that go into what follows a model's encoder.

    Parameters
    ----------
    record : ModelRecord
        The model.

    Returns
    -------
    Space or None
        None for vectors of a space without a name.
    """
    if record.reference == GIVEN:
        encoder = GivenVectors(record.encoder_dim, record.options)
        return encoder.space if encoder.options else None
    return Space(record.encoder_fingerprint, record.reference)


def narrowed(rows: NDArray[np.floating], dtype: str, first_row: int) -> NDArray[np.floating]:
    """Round vectors to the type they are stored in.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim)
        Vectors.
    dtype : str
        One of `DTYPES`.
    first_row : int
        Row of the first one, for the message.

    Returns
    -------
    ndarray of shape (n_rows, dim)
        The same numbers in that type.

    Raises
    ------
    OutputError
        If a number is too large for it.
    """
    with np.errstate(over="ignore"):
        narrowed = rows.astype(dtype, copy=False)
    if narrowed.dtype != rows.dtype and not np.isfinite(narrowed).all():
        row = first_row + int(np.flatnonzero(~np.isfinite(narrowed).all(axis=1))[0])
        raise OutputError(f"{dtype} must hold every number; got a larger one in row {row}. Write float32.")
    return narrowed
