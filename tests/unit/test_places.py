"""Places of vectors in two dimensions, and how many neighbors they keep, compared with numpy."""

import sys

import numpy as np
import pytest

import isosent
from isosent.search import neighbor_map
from isosent.search import places as places_module


def clouds(n_rows, dim=16, n_clouds=4, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_clouds, dim))
    return (centers[np.arange(n_rows) % n_clouds] + 0.4 * rng.normal(size=(n_rows, dim))).astype(np.float32)


def nearest(scores, k):
    """Sets of the k columns of the highest scores of each row, but its own."""
    scores = scores.copy()
    np.fill_diagonal(scores, -np.inf)
    return [set(row) for row in np.argsort(-scores, axis=1, kind="stable")[:, :k].tolist()]


def nearest_by_cosine(vectors, k=10):
    units = vectors.astype(float) / np.linalg.norm(vectors.astype(float), axis=1, keepdims=True)
    return nearest(units @ units.T, k)


def nearest_by_distance(places, k=10):
    return nearest(-np.linalg.norm(places[:, None].astype(float) - places[None].astype(float), axis=2), k)


def share(sets, others):
    return sum(len(a & b) for a, b in zip(sets, others, strict=True)) / sum(map(len, sets))


@pytest.fixture(scope="module")
def vectors():
    return clouds(120)


@pytest.fixture(scope="module")
def drawn(vectors):
    return neighbor_map(vectors)


def test_it_says_how_many_neighbors_it_keeps(vectors, drawn):
    by_cosine = nearest_by_cosine(vectors)
    assert [set(row) for row in drawn.neighbors.tolist()] == by_cosine
    assert drawn.kept == pytest.approx(share(by_cosine, nearest_by_distance(drawn.places)))
    assert 0.3 < drawn.kept < 1
    assert drawn.method.startswith("t-SNE")


def test_clouds_stay_apart(drawn):
    cloud = np.arange(120) % 4
    near = enumerate(nearest_by_distance(drawn.places))
    same = [np.mean([cloud[other] == cloud[row] for other in others]) for row, others in near]
    assert np.mean(same) > 0.95


def test_what_another_map_keeps_of_these_neighbors(vectors, drawn):
    other = neighbor_map(vectors[:, :3])
    expected = share(nearest_by_cosine(vectors), nearest_by_distance(other.places))
    assert other.kept_of(drawn) == pytest.approx(expected)
    with pytest.raises(isosent.IsosentError, match="119"):
        neighbor_map(vectors[:119]).kept_of(drawn)


def test_equal_vectors_share_a_point_and_zero_rows_have_none(vectors, drawn):
    rows = np.concatenate([vectors, 2 * vectors[:2], np.zeros((1, 16), np.float32)])
    with_copies = neighbor_map(rows)
    np.testing.assert_array_equal(with_copies.places[:120], drawn.places)
    np.testing.assert_array_equal(with_copies.places[120:122], drawn.places[:2])
    np.testing.assert_array_equal(with_copies.neighbors[120:122], drawn.neighbors[:2])
    assert np.isnan(with_copies.places[122]).all()
    assert (with_copies.neighbors[122] == -1).all()
    assert with_copies.kept == drawn.kept


@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 9, 10, 11])
def test_few_vectors_are_drawn(n_rows):
    drawn = neighbor_map(clouds(n_rows))
    assert drawn.places.shape == (n_rows, 2)
    assert np.isfinite(drawn.places).all()
    assert len({tuple(place) for place in drawn.places.tolist()}) == n_rows
    assert (drawn.method == "PCA") == (n_rows < 10)
    assert drawn.neighbors.shape == (n_rows, min(10, n_rows - 1))
    assert np.isnan(drawn.kept) if n_rows == 1 else drawn.kept > 0
    if 1 < n_rows <= 11:  # all others are among the nearest
        assert drawn.kept == 1


@pytest.mark.parametrize(
    "vectors",
    [np.ones((50, 8)), np.arange(1.0, 51)[:, None], -np.eye(1)[[0] * 30], clouds(60, 2), 1 + 1e-7 * clouds(60)],
    ids=["all equal", "one dimension", "one number", "two dimensions", "nearly equal"],
)
def test_degenerate_vectors_are_drawn(vectors):
    drawn = neighbor_map(vectors)
    assert np.isfinite(drawn.places).all()
    assert not np.isnan(drawn.places).any()


@pytest.mark.parametrize(
    ("vectors", "word"),
    [(np.zeros((5, 3)), "zero"), (np.array([[1.0, np.nan]]), "NaN"), (np.empty((0, 3)), "no vectors")],
)
def test_what_cannot_be_drawn_is_refused(vectors, word):
    with pytest.raises(isosent.IsosentError, match=word):
        neighbor_map(vectors)


def test_beyond_the_sample_each_lies_next_to_its_nearest(vectors, monkeypatch):
    most = dict.fromkeys(places_module._MOST_FITTED, 40)
    monkeypatch.setattr(places_module, "_MOST_FITTED", most)
    drawn = neighbor_map(vectors)
    assert drawn.n_fitted == 40
    sample = np.sort(np.random.default_rng(0).permutation(120)[:40])
    rest = np.setdiff1d(np.arange(120), sample)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    expected = sample[(units[rest] @ units[sample].T).argmax(axis=1)]
    distances = np.linalg.norm(drawn.places[rest][:, None] - drawn.places[sample][None], axis=2)
    np.testing.assert_array_equal(sample[distances.argmin(axis=1)], expected)
    assert (distances.min(axis=1) > 0).all()
    assert drawn.kept == pytest.approx(share(nearest_by_cosine(vectors), nearest_by_distance(drawn.places)))


def test_of_many_vectors_a_sample_is_measured_exactly(monkeypatch):
    monkeypatch.setattr(places_module, "MOST_EXACT", 300)
    monkeypatch.setattr("isosent.numeric.neighbors._SAMPLE", 100)
    vectors = clouds(400)
    drawn = neighbor_map(vectors)
    by_cosine, by_distance = nearest_by_cosine(vectors), nearest_by_distance(drawn.places)
    assert len(drawn.measured_rows) == 100
    rows = drawn.measured_rows.tolist()
    assert [set(drawn.neighbors[row].tolist()) for row in rows] == [by_cosine[row] for row in rows]
    assert drawn.kept == pytest.approx(share([by_cosine[row] for row in rows], [by_distance[row] for row in rows]))


def test_scikit_learn_places_them_without_open_tsne(vectors, monkeypatch):
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    drawn = neighbor_map(vectors)
    assert drawn.method == "t-SNE by scikit-learn"
    assert drawn.kept == pytest.approx(share(nearest_by_cosine(vectors), nearest_by_distance(drawn.places)))


def test_open_tsne_keeps_as_many(vectors, monkeypatch):
    pytest.importorskip("openTSNE")
    steps = []
    drawn = neighbor_map(vectors, progress=lambda *step: steps.append(step))
    assert drawn.method == "t-SNE by openTSNE"
    assert steps[2:] == [(done, 750) for done in range(0, 751, 10)]  # after those of the vectors
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    assert drawn.kept > neighbor_map(vectors).kept - 0.1
