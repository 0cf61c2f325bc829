"""Unit vectors that an index stores and searches: of texts, of vectors in memory and in files, and of queries.

What a caller passes as vectors is opened once: `opened_vectors` gives a source of a path, an open file or an array, and
`opened_queries` texts or a source. `encoded_units` makes the unit vectors of an index, `query_units` those of queries,
and `compared_units` those of texts that are compared with each other. Vectors of the encoder of a model are mapped;
those of the model itself, as their file says (`is_of_model`), are not.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.load import encoder_for
from isosent.errors import InputError, IsosentWarning, next_step, option
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import source_of
from isosent.loading import check_model
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import unit_rows
from isosent.pages.progress import Progress, counted, encoding_bar, part_of
from isosent.persistence import ModelRecord, check_encoder_space
from isosent.role import Role
from isosent.space import refuse_codes
from isosent.storage import Storage

BATCH_ROWS: Final = 8192  # that are encoded, or read, at once
VectorsLike: TypeAlias = NDArray[np.floating] | str | os.PathLike[str] | VectorSource  # in memory, or in a file
Queries: TypeAlias = str | Sequence[str] | NDArray[np.floating] | VectorSource  # texts, or vectors


def opened_vectors(
    where: str, vectors: VectorsLike | None, name: str = "vectors", *, are_queries: bool = False
) -> VectorSource | None:
    """Vectors of a caller, in memory or in a file; codes are refused, as far as they are known."""
    if vectors is None:
        return None
    source = source_of(vectors, where=where, name=name, are_queries=are_queries)
    refuse_codes(source.name, source.space)
    if source.may_be_bits:
        what = source.name if source.where is None else f"{where}: an array"
        warnings.warn(
            f"{what} of uint8 is read as numbers from 0 to 255. If it holds packed bits, cosines of them mean nothing: "
            f"make the index of the vectors, with {option('store', Storage.binary)}.",
            IsosentWarning,
            stacklevel=3,
        )
    return source


def opened_queries(queries: Queries) -> list[str] | VectorSource:
    """Texts of queries, or their vectors."""
    if isinstance(queries, np.ndarray) and queries.dtype.kind not in "UO":
        return source_of(queries[None, :] if queries.ndim == 1 else queries, where="search", name="queries")
    if getattr(queries, "kind", None) == "vectors":
        return cast("VectorSource", queries)
    return some_queries(queries.tolist() if isinstance(queries, np.ndarray) else queries)


def some_queries(queries: Any) -> list[str]:
    """A text, or a list of them, as a list; none of them is empty."""
    texts = _check.some_texts("search", [queries] if isinstance(queries, str) else queries)
    if any(not text.strip() for text in texts):
        raise InputError("search: a query is empty.")
    return texts


def is_of_model(record: ModelRecord, vectors: VectorSource | None) -> bool:
    """Whether vectors have been mapped already, as their file says."""
    space = None if vectors is None else vectors.space
    return space is not None and space.fingerprint == record.fingerprint


def raw_blocks(record: ModelRecord, vectors: VectorSource) -> Iterator[NDArray[np.floating]]:
    """Blocks of vectors of a model's encoder, or of the model itself if their file says so."""
    if not is_of_model(record, vectors):
        check_encoder_space(record, vectors.name, vectors.space)
        where, name = (vectors.name, "vectors") if vectors.where is None else (vectors.where, vectors.name)
        _check.same_dim(where, name, vectors.dim, record.encoder_dim)
    return checked_blocks(vectors)


def checked_blocks(vectors: VectorSource) -> Iterator[NDArray[np.floating]]:
    """Blocks of vectors without NaN and infinity; those of float16 as float32, in which lengths are exact enough."""
    first_row = 0
    for block in vectors.blocks():
        vectors.check_finite(block, first_row)
        first_row += len(block)
        yield block.astype(np.result_type(block, np.float32), copy=False)


def unit_vectors(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    return np.ascontiguousarray(unit_rows(vectors), np.float32)


def encoded_units(
    model: SentenceEncoder | ModelRecord,
    texts: list[str] | None,
    vectors: VectorSource | None,
    progress: Progress | None = None,
    observers: Sequence[Callable[[NDArray[np.floating]], None]] = (),
    *,
    groups: Sequence[Any] | None = None,
) -> Iterator[NDArray[np.float32]]:
    """Unit vectors of texts, or of raw vectors; those of a file that already belong to the model are not mapped.

    Raw vectors are shown to `observers`. `groups` are those of the rows, for a model with a map of each.
    """
    record = model.record if isinstance(model, SentenceEncoder) else model
    if vectors is None:
        assert isinstance(model, SentenceEncoder)
        assert texts is not None
        encoder = encoder_for(model.encoder, "document")
        for start in range(0, len(texts), BATCH_ROWS):
            batch = texts[start : start + BATCH_ROWS]
            with encoding_bar(progress) as bar:
                rows = encoder.encode(batch, progress=part_of(bar, start, len(texts)))
            for observe in observers:
                observe(rows)
            group = None if groups is None else groups[start : start + len(batch)]
            yield unit_vectors(record.postprocessing.apply(rows, Role(group=group)))
        return
    is_mapped, start = is_of_model(record, vectors), 0
    for block in counted(raw_blocks(record, vectors), progress, vectors.n_rows):
        for observe in observers:
            observe(block)
        group = None if groups is None else groups[start : start + len(block)]
        start += len(block)
        yield unit_vectors(block if is_mapped else record.postprocessing.apply(block, Role(group=group)))


def compared_units(
    where: str,
    texts: Sequence[str] | None,
    model: SentenceEncoder | None,
    vectors: Any,
    progress: Progress | None,
) -> NDArray[np.float32]:
    """Unit vectors of texts, or of vectors of the encoder of a model, (n_texts, dim)."""
    return np.concatenate(
        [unit_vectors(block) for block in compared_blocks(where, texts, model, vectors, progress=progress)]
    )


def compared_blocks(
    where: str,
    texts: Sequence[str] | None,
    model: SentenceEncoder | None,
    vectors: Any,
    *,
    progress: Progress | None,
) -> Iterator[NDArray[np.floating]]:
    """Vectors of texts, or of vectors of the encoder of a model, in blocks of rows."""
    if vectors is None:
        if texts is None:
            raise InputError("there are neither texts nor vectors. Give one of them.", where=where)
        check_model(where, model)
        assert model is not None
        _warn_of_groups(model)
        yield model.encode(list(texts), progress=progress)
        return
    if model is not None:
        check_model(where, model)
    source = opened_vectors(where, vectors)
    assert source is not None
    if model is not None and not is_of_model(model.record, source):
        _warn_of_groups(model)
    n_rows = source.n_rows
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
    yield from counted(blocks, progress, n_rows)


def _warn_of_groups(model: SentenceEncoder) -> None:
    """Warn that the groups of texts, such as their languages, are not known here."""
    if model.groups is not None:
        step = next_step(
            "isosent encode TEXTS -m MODEL -o vectors.parquet", f"model.encode(texts, group={model.groups.column})"
        )
        warnings.warn(
            f"{model.groups.note('all texts')} Encode them first, with the column "
            f"{model.groups.column}, and name the vectors in their place: {step}.",
            IsosentWarning,
            stacklevel=4,
        )


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


def query_units(record: ModelRecord, queries: VectorSource, group: str | None = None) -> NDArray[np.float32]:
    """Unit vectors of queries that are vectors, (n_queries, dim)."""
    role = Role(is_query=True, group=group)
    is_mapped = is_of_model(record, queries)
    blocks = (
        unit_vectors(block if is_mapped else record.postprocessing.apply(block, role))
        for block in raw_blocks(record, queries)
    )
    return np.concatenate([np.empty((0, record.dim), np.float32), *blocks])


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


def row_hashes(rows: NDArray[np.float32]) -> NDArray[np.uint64]:
    """A hash of each row, by which copies are known."""
    factors = np.random.default_rng(0).integers(1 << 64, size=rows.shape[1], dtype=np.uint64)
    return rows.view(np.uint32).astype(np.uint64) @ factors
