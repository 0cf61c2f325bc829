"""The recall of every kind of index and number type, after each kind of change."""

import numpy as np
import pytest

from isosent.numeric.similarity import unit_rows
from isosent.search import Index

pytest.importorskip("faiss")

# Of fresh queries, after build, add, remove and compact; below the smallest of 15 seeds:
# flat 1, binary 0.982, ivf 0.942, hnsw 0.970
FLOORS = {
    ("flat", "float32"): 1,
    ("flat", "float16"): 1,
    ("flat", "int8"): 0.995,
    ("flat", "binary"): 0.97,
    ("ivf", "float32"): 0.925,
    ("ivf", "float16"): 0.925,
    ("ivf", "int8"): 0.925,
    ("ivf", "binary"): 0.925,
    ("hnsw", "float32"): 0.955,
    ("hnsw", "float16"): 0.955,
    ("hnsw", "int8"): 0.955,
}
N_BUILT, N_ADDED, N_REMOVED = 1500, 300, 400


@pytest.mark.parametrize(("kind", "store"), FLOORS)
def test_the_nearest_rows_are_found_after_every_kind_of_change(kind, store):
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 16))
    vectors, queries = (
        (centres[rng.integers(40, size=n)] + rng.normal(size=(n, 16))).astype(np.float32)
        for n in (N_BUILT + N_ADDED, 200)
    )
    index = Index.create(vectors=vectors[:N_BUILT], ids=list(range(N_BUILT)), kind=kind, store=store)
    rows = np.arange(N_BUILT)
    recalls = {"build": recall(index, vectors, rows, queries)}
    rows = np.arange(len(vectors))
    index.add(vectors=vectors[N_BUILT:], ids=rows[N_BUILT:])
    recalls["add"] = recall(index, vectors, rows, queries)
    if kind != "hnsw":
        rows = rng.permutation(rows)[N_REMOVED:]
        index.remove(np.setdiff1d(np.arange(len(vectors)), rows))
        recalls["remove"] = recall(index, vectors, rows, queries)
    index.compact()
    recalls["compact"] = recall(index, vectors, rows, queries)
    assert min(recalls.values()) >= FLOORS[kind, store], recalls


def recall(index, vectors, rows, queries):
    """Share of the ten nearest rows that are found; by score, since stored vectors are rounded."""
    cosines = unit_rows(queries) @ unit_rows(vectors).T
    tenth = np.partition(cosines[:, rows], -10, axis=1)[:, -10]
    ids = index.search(queries, 10).ids
    assert np.isin(ids, rows).all()
    return float((np.take_along_axis(cosines, ids, 1) >= tenth[:, None] - 1e-3).mean())
