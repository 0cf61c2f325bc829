"""Recall: the share of the rows nearest by an exact search that an index finds, or a static model of queries.

`original_queries` draws the rows whose neighbors before the map are found while an index is built; `build` compares
them. `recall_of_originals` does it for other vectors of the same texts, and `query_recall` for a static model of
queries, in place of the model.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from isosent.encoders.load import encoder_for
from isosent.errors import InputError
from isosent.io.vector_source import VectorSource, picked_rows
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import nonzero_rows
from isosent.search.commits import QueryRecall
from isosent.search.engine import K_MEASURED, OriginalNeighbors
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
