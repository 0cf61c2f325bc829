"""A file of vectors becomes another one: a model is applied to it block by block.

`check_source` has seen before that they are vectors of its encoder. A table keeps its other columns.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, OutputError
from isosent.io.texts import CountedTexts
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import check_vector_file, columns_beside, writing_vectors
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.pages.progress import Progress, counted
from isosent.persistence import ModelRecord, check_encoder_space
from isosent.role import Role
from isosent.storage import CODES, Storage
from isosent.transforms.maps import GroupMaps


def transform_file(
    source: VectorSource,
    record: ModelRecord,
    output: str | os.PathLike[str],
    *,
    dtype: str = Storage.float32,
    queries: bool = False,
    progress: Progress | None = None,
) -> int:
    """Apply a model's postprocessing to vectors in a file, block by block; returns the number of zero rows.

    The dtypes of `CODES` are written as the codes that the model's quantization gives the vectors scaled to length 1.
    """
    codes = Storage(dtype) if dtype in CODES else None
    stored = dtype if codes is None else codes.stored.name
    check_vector_file(output, stored, are_codes=codes is not None)
    if Path(output).exists() and source.path.samefile(output):
        raise InputError(f"transform: {output} is the file of the vectors. Name another output.")
    check_source(source, record)
    dim, space = record.dim, record.space
    if codes is not None:
        if record.quantization is None:
            raise InputError(f"transform: {dtype} needs a quantization. Fit one: isosent quantize VECTORS -m FOLDER.")
        dim, space = codes.width(dim), space.of_codes(codes)
    row, n_zero_rows = 0, 0
    other_columns = columns_beside(source, output)
    groups = groups_of_rows(record.postprocessing.groups, source, 0, source.n_rows)
    settings: dict[str, Any] = {"dtype": stored, "space": space, "are_codes": codes is not None}
    with writing_vectors(output, (source.n_rows, dim), other_columns=other_columns, **settings) as write:
        for block in counted(source.blocks(), progress, source.n_rows):
            try:
                group = None if groups is None else groups[row : row + len(block)]
                mapped = record.postprocessing.apply(block, Role(queries, group))
            except InputError:
                source.check_finite(block, row)
                raise
            if codes is None or record.quantization is None:
                write(narrowed(mapped, dtype, source.first_row + row))
            else:
                write(record.quantization.encode(unit_rows(mapped), codes))
            n_zero_rows += len(block) - int(nonzero_rows(block).sum())
            row += len(block)
    return n_zero_rows


def groups_of_rows(
    groups: GroupMaps | None, source: CountedTexts | VectorSource, first_row: int, n_rows: int
) -> list[Any] | None:
    """The group of each of these rows of a table, from the column that a model names; None for other files."""
    if groups is None or not source.is_table:
        return None
    values = source.labels(groups.column, first_row, n_rows)
    groups.rows_of(values, len(values))  # refused before anything is written
    return values


def check_source(source: VectorSource, record: ModelRecord) -> None:
    """Refuse vectors that a model cannot be applied to."""
    check_encoder_space(record, source.name, source.space)
    _check.same_dim(source.name, "vectors", source.dim, record.encoder_dim)
    if not record.fits and record.quantization is None:
        raise InputError(f"transform: {record.reference} is not fitted. Name a model folder.")


def narrowed(rows: NDArray[np.floating], dtype: str, first_row: int) -> NDArray[np.floating]:
    """Round vectors to the dtype they are stored in."""
    with np.errstate(over="ignore"):
        rounded = rows.astype(dtype, copy=False)
    if rounded.dtype != rows.dtype and not np.isfinite(rounded).all():
        row = first_row + int(np.flatnonzero(~np.isfinite(rounded).all(axis=1))[0])
        raise OutputError(f"{dtype} cannot hold a number in row {row}: it is too large. Write float32.")
    return rounded
