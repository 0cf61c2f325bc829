"""The recall of every kind of index and number type, after each kind of change."""

import numpy as np
import pytest

from isosent import SentenceEncoder
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
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
    ("flat", "product"): 0.97,
    ("ivf", "float32"): 0.925,
    ("ivf", "float16"): 0.925,
    ("ivf", "int8"): 0.925,
    ("ivf", "binary"): 0.925,
    ("ivf", "product"): 0.925,
    ("hnsw", "float32"): 0.955,
    ("hnsw", "float16"): 0.955,
    ("hnsw", "int8"): 0.955,
}
N_BUILT, N_ADDED, N_REMOVED = 1500, 300, 400


@pytest.mark.parametrize(("kind", "store"), FLOORS)
def test_the_nearest_rows_are_found_after_every_kind_of_change(kind, store):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(40, 16))
    vectors, queries = (
        (centers[rng.integers(40, size=n)] + rng.normal(size=(n, 16))).astype(np.float32)
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


@pytest.fixture(scope="module")
def mapped():
    """Vectors with copies and a zero row, and a model that keeps 8 of their 32 dimensions."""
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(40, 32))[rng.integers(40, size=800)] + rng.normal(size=(800, 32))).astype(np.float32)
    vectors[5], vectors[6:9] = 0, vectors[9]
    model = SentenceEncoder(PrecomputedVectors(32))
    return vectors, model.fitted_on_vectors(vectors, "principal_components", settings={"n_components": 8})


def original_recall(index, vectors):
    """Share of the ten nearest others by the original vectors that are among those by the index, of all texts."""
    rows = np.flatnonzero(vectors.any(axis=1))
    cosines = unit_rows(vectors) @ unit_rows(vectors).T
    ids = index.more_like(rows, 10).ids
    np.fill_diagonal(cosines, -1)
    tenth = np.partition(cosines[rows], -10, axis=1)[:, -10]
    return float((np.take_along_axis(cosines[rows], ids, 1) >= tenth[:, None] - 1e-5).mean())


@pytest.mark.parametrize("kind", ["flat", "ivf", "hnsw"])
def test_the_recall_of_the_original_vectors_is_that_of_map_and_index(mapped, kind):
    vectors, model = mapped
    index = Index.create(vectors=vectors, model=model, kind=kind)
    measured = index.stats().recall
    assert measured.recall > 0.9
    assert measured.original_recall == pytest.approx(original_recall(index, vectors), abs=0.05)
    assert measured.original_recall < 0.8
    index.compact()
    assert index.recall.original_recall == measured.original_recall  # nothing has changed
    index.add(vectors=vectors[:50])
    index.compact()
    assert index.recall.original_recall is None


def test_recall_is_measured_against_vectors_that_somebody_has(mapped, tmp_path):
    vectors, model = mapped
    ids = [f"r{row}" for row in range(len(vectors))]
    index = Index.create(vectors=vectors, model=model, ids=ids)
    expected = original_recall(Index.create(vectors=vectors, model=model), vectors)
    recall, n_queries = index.recall_against(vectors)
    assert recall == pytest.approx(expected, abs=0.05)
    assert n_queries == pytest.approx(len(vectors) // 4, abs=5)
    order = np.random.default_rng(0).permutation(len(vectors))
    other, _ = index.recall_against(vectors[order], ids=[ids[row] for row in order])
    assert other == pytest.approx(expected, abs=0.05)
    assert index.recall_against(vectors[order])[0] < 0.1  # rows of other texts
    np.save(tmp_path / "mapped.npy", model.transform(vectors))
    assert index.recall_against(tmp_path / "mapped.npy")[0] == 1
    with pytest.raises(InputError, match="799 vectors, and the index 800 texts"):
        index.recall_against(vectors[1:])
    with pytest.raises(InputError, match="other ids"):
        index.recall_against(vectors, ids=["r0", *ids[:-1]])
    with pytest.raises(InputError, match="40 different"):
        Index.create(vectors=vectors[:30]).recall_against(vectors[:30])


def test_vectors_of_float16_are_their_own_neighbors():
    rows = (np.random.default_rng(0).normal(size=(2000, 32)) * np.geomspace(1, 0.05, 32) + 0.3).astype(np.float16)
    assert Index.create(vectors=rows).recall_against(rows) == (1, 500)


def test_texts_are_measured_as_their_vectors_are(texts, wordllama):
    model = wordllama.fitted(texts, "whitening", settings={"n_components": 32})
    by_texts = Index.create(texts, model).recall
    by_vectors = Index.create(vectors=wordllama.encode(texts), model=model).recall
    assert by_texts == by_vectors
    assert 0.2 < by_texts.original_recall < 0.9
    assert Index.create(texts, wordllama).recall.original_recall is None  # no map


def recall(index, vectors, rows, queries):
    """Share of the ten nearest rows that are found; by score, since stored vectors are rounded."""
    cosines = unit_rows(queries) @ unit_rows(vectors).T
    tenth = np.partition(cosines[:, rows], -10, axis=1)[:, -10]
    ids = index.search(queries, 10).ids
    assert np.isin(ids, rows).all()
    return float((np.take_along_axis(cosines, ids, 1) >= tenth[:, None] - 1e-3).mean())
