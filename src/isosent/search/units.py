"""Unit vectors that an index stores and searches: of texts, of vectors in memory and in files, and of queries."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, IsosentWarning, option
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import open_vectors
from isosent.loading import check_model
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import unit_rows
from isosent.pages.progress import Progress, counted
from isosent.persistence import ModelRecord, check_encoder_space
from isosent.role import Role
from isosent.space import refuse_codes
from isosent.storage import Storage

BATCH_ROWS: Final = 8192  # that are encoded, or read, at once


def opened_vectors(vectors: Any) -> NDArray[np.floating] | VectorSource | None:
    """Vectors as an array, or a file of vectors that is open; codes are refused, as far as they are known."""
    if vectors is None:
        return None
    if isinstance(vectors, (str, os.PathLike)):
        vectors = open_vectors(vectors)
    if isinstance(vectors, VectorSource):
        refuse_codes(str(vectors.path), vectors.space)
        name, is_suspect = (
            str(vectors.path),
            vectors.storage is Storage.uint8 and vectors.path.suffix.lower() != ".bvecs",
        )
    else:
        vectors = _check.matrix("index", "vectors", vectors)
        name, is_suspect = "index: an array", vectors.dtype == np.uint8
    if is_suspect:
        warnings.warn(
            f"{name} of uint8 is read as numbers from 0 to 255. If it holds packed bits, cosines of them mean nothing: "
            f"make the index of the vectors, with {option('store', Storage.binary)}.",
            IsosentWarning,
            stacklevel=3,
        )
    return vectors


def is_of_model(record: ModelRecord, vectors: NDArray[np.floating] | VectorSource | None) -> bool:
    """Whether vectors have been mapped already, as their file says."""
    space = vectors.space if isinstance(vectors, VectorSource) else None
    return space is not None and space.fingerprint == record.fingerprint


def raw_blocks(record: ModelRecord, vectors: NDArray[np.floating] | VectorSource) -> Iterator[NDArray[np.floating]]:
    """Blocks of vectors of a model's encoder, or of the model itself if their file says so."""
    if isinstance(vectors, np.ndarray):
        _check.same_dim("index", "vectors", vectors.shape[1], record.encoder_dim)
    elif not is_of_model(record, vectors):
        check_encoder_space(record, str(vectors.path), vectors.space)
        _check.same_dim(str(vectors.path), "vectors", vectors.dim, record.encoder_dim)
    return checked_blocks(vectors)


def checked_blocks(vectors: NDArray[np.floating] | VectorSource) -> Iterator[NDArray[np.floating]]:
    """Blocks of vectors without NaN and infinity; those of float16 as float32, in which lengths are exact enough."""
    if isinstance(vectors, np.ndarray):
        _check.finite_rows("index", "vectors", vectors)
        for start in range(0, len(vectors), BATCH_ROWS):
            block = vectors[start : start + BATCH_ROWS]
            yield block.astype(np.result_type(block, np.float32), copy=False)
        return
    first_row = 0
    for block in vectors.blocks():
        vectors.check_finite(block, first_row)
        first_row += len(block)
        yield block.astype(np.result_type(block, np.float32), copy=False)


def compared_units(
    where: str,
    texts: Sequence[str] | None,
    model: SentenceEncoder | None,
    vectors: Any,
    progress: Progress | None,
) -> NDArray[np.float32]:
    """Unit vectors of texts, or of vectors of the encoder of a model, (n_texts, dim)."""
    if vectors is None:
        if texts is None:
            raise InputError("there are neither texts nor vectors. Give one of them.", where=where)
        check_model(where, model)
        assert model is not None
        return unit_rows(model.encode(list(texts), progress=progress)).astype(np.float32, copy=False)
    if model is not None:
        check_model(where, model)
    source = opened_vectors(vectors)
    assert source is not None
    n_rows = len(source) if isinstance(source, np.ndarray) else source.n_rows
    if texts is not None and len(texts) != n_rows:
        raise InputError(
            f"there are {len(texts):,} texts and {n_rows:,} vectors. One text per vector is needed.", where=where
        )
    if not n_rows:
        raise InputError("no vectors.", where=where)
    if model is None:
        blocks = checked_blocks(source)
    else:
        post = None if is_of_model(model.record, source) else model.record.postprocessing
        blocks = (block if post is None else post.apply(block) for block in raw_blocks(model.record, source))
    return np.concatenate([unit_vectors(block) for block in counted(blocks, progress, n_rows)])


def unit_vectors(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.ascontiguousarray(unit_rows(vectors), np.float32)


def query_texts(queries: str | Sequence[str] | NDArray[np.floating] | VectorSource) -> list[str] | None:
    """Texts of queries; None if they are vectors."""
    if isinstance(queries, np.ndarray) and queries.dtype.kind in "UO":
        queries = queries.tolist()
    if isinstance(queries, (np.ndarray, VectorSource)):
        return None
    texts = _check.some_texts("search", [queries] if isinstance(queries, str) else queries)
    if any(not text.strip() for text in texts):
        raise InputError("search: a query is empty.")
    return texts


def row_groups(record: ModelRecord, table: Any) -> list[Any] | None:
    """The group of each row, from the column that the model names; None if it has no maps of groups."""
    groups = record.postprocessing.groups
    if groups is None:
        return None
    if groups.column not in table.column_names:
        raise InputError(
            f"index: the model has a map for each {groups.column} ({_check.brief(', '.join(groups.names))}), so the "
            f"rows need a column {groups.column}. They have: {_check.brief(', '.join(table.column_names))}."
        )
    values: list[Any] = table.column(groups.column).to_pylist()
    groups.rows_of(values, len(values))  # refused before anything is encoded
    return values


def query_units(record: ModelRecord, queries: Any, group: str | None = None) -> NDArray[np.float32]:
    """Unit vectors of queries that are vectors, (n_queries, dim)."""
    role = Role(is_query=True, group=group)
    if isinstance(queries, VectorSource):
        is_mapped = is_of_model(record, queries)
        blocks = (
            unit_vectors(block if is_mapped else record.postprocessing.apply(block, role))
            for block in raw_blocks(record, queries)
        )
        return np.concatenate([np.empty((0, record.dim), np.float32), *blocks])
    vectors = _check.matrix("search", "queries", queries[None, :] if queries.ndim == 1 else queries)
    _check.same_dim("search", "queries", vectors.shape[1], record.encoder_dim)
    _check.finite_rows("search", "queries", vectors)
    return unit_vectors(record.postprocessing.apply(vectors, role))


def units_of_lists(column: Any, dim: int) -> NDArray[np.float32]:
    """Vectors of a column of lists; null is the zero row."""
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    vectors = np.zeros((len(column), dim), np.float32)
    values = column.drop_null().flatten().to_numpy(zero_copy_only=False)
    if values.size != valid.sum() * dim:
        raise InputError(
            f"index: expected vectors of {dim} dimensions, found {values.size} numbers in {valid.sum()} rows."
        )
    vectors[valid] = values.reshape(-1, dim)
    return unit_vectors(vectors)
