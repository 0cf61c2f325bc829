"""Recall: the share of the rows nearest by an exact search that an index finds, or a static model of queries.

`original_queries` draws the rows whose neighbors before the map are found while an index is built; `build` compares
them. `recall_of_originals` does it for other vectors of the same texts, `recall_of_neighbors` for neighbors in a file,
and `query_recall` for a static model of queries, in place of the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from isosent.encoders.load import encoder_for
from isosent.errors import InputError
from isosent.io.neighbors import Neighbors, read_neighbors
from isosent.io.vector_source import VectorSource, picked_rows
from isosent.model import SentenceEncoder
from isosent.numeric.neighbors import exact_products
from isosent.numeric.similarity import nonzero_rows
from isosent.search.commits import QueryRecall
from isosent.search.engine import K_MEASURED, OriginalNeighbors
from isosent.search.result import SearchResult
from isosent.search.rows import TEXT
from isosent.search.snapshot import Snapshot
from isosent.search.units import (
    BATCH_ROWS,
    checked_blocks,
    is_of_model,
    opened_vectors,
    raw_blocks,
    row_hashes,
    unit_vectors,
)

N_QUERIES: Final = 500
_COSINE: Final = ("angular", "cosine")  # as files of ann-benchmarks call it
_N_CHECKED, _ROUNDING, _MOST_INVERTED = 100, 1e-3, 0.1  # queries; cosines of codes are rounded; share of neighbors
RERANKED: Final = 100  # rows that a static model finds, and the model ranks again


def original_queries(
    model: SentenceEncoder,
    texts: list[str] | None,
    vectors: VectorSource | None,
    n_rows: int,
    *,
    seed: int = 0,
) -> OriginalNeighbors | None:
    """Rows drawn as queries, with their vectors before the map; None without a map, or for few rows."""
    n_queries = min(N_QUERIES, n_rows // 4)
    if model.record.postprocessing.dim is None or is_of_model(model.record, vectors) or n_queries < K_MEASURED:
        return None
    rows = np.sort(np.random.default_rng(seed).choice(n_rows, n_queries, replace=False))
    if vectors is None:
        assert texts is not None
        if n_rows <= BATCH_ROWS:  # which are encoded at once
            return OriginalNeighbors(rows)
        return OriginalNeighbors(rows, encoder_for(model.encoder, "document").encode([texts[row] for row in rows]))
    return OriginalNeighbors(rows, picked_rows(raw_blocks(model.record, vectors), rows))


def recall_of_originals(snapshot: Snapshot, vectors: Any, ids: Any = None, *, seed: int = 0) -> tuple[float, int]:
    """Recall of an index against an exact search of other vectors of its texts, and the number of queries."""
    vectors = opened_vectors("recall_against", vectors, "the array")
    if vectors is None:
        raise InputError("there are no vectors. Pass vectors.", where="recall_against")
    n_vectors = vectors.n_rows
    positions = snapshot.live if ids is None else snapshot.positions_of(ids)
    if n_vectors != len(snapshot):
        raise InputError(
            f"{vectors.name} holds {n_vectors} vectors, and the index {len(snapshot)} texts. Give the vectors that it "
            "was made of, one per text, in the same order or with the same ids."
        )
    if n_vectors != len(positions) or len(np.unique(positions)) != n_vectors or (positions < 0).any():
        raise InputError(
            f"{vectors.name} holds vectors with other ids than the index. Give one vector of each text, with its id."
        )
    masks, hashes = [np.empty(0, bool)], [np.empty(0, np.uint64)]
    for block in checked_blocks(vectors):
        masks.append(nonzero_rows(block))
        hashes.append(row_hashes(np.ascontiguousarray(block, np.float32)))
    has_vector = np.concatenate(masks)
    _, inverse, counts = np.unique(np.concatenate(hashes), return_inverse=True, return_counts=True)
    candidates = np.flatnonzero(has_vector & (counts[inverse] == 1))  # a search that finds copies says little
    rows = np.random.default_rng(seed).permutation(candidates)[: min(N_QUERIES, len(candidates) // 4)]
    rows = np.sort(rows)
    if len(rows) >= K_MEASURED:
        originals = OriginalNeighbors(rows, picked_rows(checked_blocks(vectors), rows))
        for block in checked_blocks(vectors):
            originals.add(block)
        originals = originals.distinct(has_vector)
        rows = originals.rows
    if len(rows) < K_MEASURED:
        raise InputError(
            f"the recall needs {4 * K_MEASURED} different vectors or more; there are {len(candidates)}. Add some."
        )
    row_at = np.full(snapshot.state.n_rows + 1, -1)
    row_at[positions] = np.arange(len(positions))
    _, found = snapshot.nearest(snapshot.vectors(positions[rows]), K_MEASURED + 1, None)
    others = [near[near != row][:K_MEASURED] for row, near in zip(rows, row_at[found], strict=True)]
    return originals.recall(others), len(rows)


def recall_of_neighbors(
    snapshot: Snapshot,
    search: Callable[[VectorSource, int], SearchResult],
    path: str | os.PathLike[str],
    queries: Any,
    k: int,
) -> tuple[float, int]:
    """Share of the k true neighbors of each query that a search finds, and the number of queries."""
    truth = read_neighbors(os.fspath(path))
    source = opened_vectors("recall_of_neighbors", queries, "the array", are_queries=True) or truth.queries
    if source is None:
        raise InputError(f"{truth.name} holds neighbors alone. Name a file of the vectors of their queries, too.")
    n_queries, n_neighbors = truth.rows.shape
    if source.n_rows != n_queries:
        raise InputError(
            f"{truth.name} has neighbors of {n_queries} queries, and {source.name} has vectors of "
            f"{source.n_rows}. Name those of the same queries."
        )
    if n_neighbors < k:
        raise InputError(
            f"{truth.name} has {n_neighbors} neighbors of each query. Choose a k of {n_neighbors} or less."
        )
    if snapshot.state.ids == "str":
        raise InputError(f"{truth.name} names rows by their numbers, and the ids of the index are strings.")
    every = np.arange(snapshot.state.n_rows)  # those that were removed, too
    if snapshot.state.ids == "int" and (snapshot.ids_at(every) != every).any():
        raise InputError(
            f"{truth.name} names rows by their numbers, and the ids of the index are not 0, 1, 2 and so on, in order. "
            "Make the index again of the vectors that the neighbors were computed of, all of them, without a column "
            "of ids."
        )
    named = np.unique(truth.rows)
    known = named >= 0
    known[known] = snapshot.positions_of(named[known]) >= 0
    if not known.all():
        unknown = int(named[~known][0])
        query = int(np.flatnonzero((truth.rows == unknown).any(axis=1))[0])
        raise InputError(
            f"{truth.name}: a neighbor of query {query} is row {unknown}, which the index of {len(snapshot)} rows has "
            "not: it was removed, or the neighbors are of other vectors. Make the index again of the vectors that they "
            "were computed of, all of them."
        )
    if truth.metric and truth.metric not in _COSINE:
        raise InputError(
            f"{truth.name} has the nearest by {truth.metric} distance, and an index ranks by cosine. Name a file of "
            "angular distance."
        )
    result = search(source, k)
    if not truth.metric and snapshot.record.postprocessing.dim is None:
        _check_order(snapshot, result, truth, k)
    found = [np.isin(ids, truth.nearest(query, k)).sum() for query, ids in enumerate(result.ids[:, :k])]
    return float(np.mean(np.minimum(found, k)) / k), n_queries


def _check_order(snapshot: Snapshot, result: SearchResult, truth: Neighbors, k: int) -> None:
    """Refuse neighbors that are not in the order of their cosines: another distance ranks them."""
    rows = truth.rows[:_N_CHECKED, :k]
    vectors = snapshot.vectors(snapshot.positions_of(rows.ravel()).reshape(rows.shape))
    cosines = exact_products(result.queries[: len(rows), None], vectors)[:, 0]
    if rows.shape[1] > 1 and np.mean(np.diff(cosines) > _ROUNDING) > _MOST_INVERTED:
        raise InputError(
            f"{truth.name}: its neighbors are not in the order of their cosines to the queries, by which an index "
            "ranks. Name neighbors by cosine, and the queries and vectors that they were computed of."
        )


def query_recall(
    snapshot: Snapshot, model: SentenceEncoder, query_model: SentenceEncoder, *, seed: int = 0
) -> QueryRecall:
    """How well a static model takes the place of a model for queries: texts of the index search for the others."""
    drawn = np.random.default_rng(seed).permutation(snapshot.live)[:N_QUERIES]
    texts, found = snapshot.take(drawn).column(TEXT).to_pylist(), []
    for each in (model, query_model):
        units = unit_vectors(each.encode(texts, role="query", show_progress_bar=False))
        positions = snapshot.nearest(units, min(RERANKED + 1, len(snapshot)), None)[1]
        found.append([row[(row >= 0) & (row != own)] for row, own in zip(positions, drawn, strict=True)])
    kept = [
        [np.isin(own[:K_MEASURED], static[:n]).mean() if len(own) else 1.0 for own, static in zip(*found, strict=True)]
        for n in (K_MEASURED, RERANKED)
    ]
    return QueryRecall(float(np.mean(kept[0])), float(np.mean(kept[1])), len(texts))
