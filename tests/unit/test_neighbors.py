"""Searches of rows: the neighbors of a sort in float64, ties in their order."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from isosent.numeric.neighbors import fast_nearest, nearest_cosines, nearest_of_blocks, nearest_others
from isosent.numeric.similarity import unit_rows

N_ROWS = 700


@pytest.fixture(scope="module")
def rows():
    rows = unit_rows(np.random.default_rng(0).normal(size=(N_ROWS, 12)).astype(np.float32))
    rows[100:160] = rows[0]  # more copies than neighbors
    return rows


def blocks(rows, size):
    places = np.arange(N_ROWS)
    return [(rows[start : start + size], places[start : start + size]) for start in range(0, N_ROWS, size)]


def sorted_neighbors(queries, rows, k, own=None):
    scores = (queries.astype(float) @ rows.astype(float).T).astype(np.float32)
    if own is not None:
        scores[np.arange(len(queries)), own] = -np.inf
    order = np.lexsort((np.broadcast_to(np.arange(len(rows)), scores.shape), -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


# the last blocks hold fewer rows than neighbors
@pytest.mark.parametrize(("size", "n_queries"), [(N_ROWS, 3), (N_ROWS, N_ROWS), (300, N_ROWS), (7, 3)])
def test_rows_in_blocks_are_found_in_the_order_of_their_positions(rows, size, n_queries):
    queries = rows[:n_queries]
    for own in (None, np.arange(n_queries)):
        found = nearest_of_blocks(queries, blocks(rows, size), 10, self_rows=own)
        for array, expected in zip(found, sorted_neighbors(queries, rows, 10, own), strict=True):
            assert_array_equal(array, expected)


def test_other_rows_are_found(rows, monkeypatch):
    some = np.array([5, 100, 699])
    monkeypatch.setattr("isosent.numeric.neighbors._BLOCK_ROWS", 128)
    expected = sorted_neighbors(rows[some], rows, 3, some)
    for found, wanted in zip(nearest_others(rows, 3, rows=some), expected, strict=True):
        assert_array_equal(found, wanted)
    assert_allclose(nearest_cosines(rows, some), expected[0][:, 0], atol=1e-6)


def test_where_there_are_fewer_rows_than_neighbors_the_rest_is_none(rows):
    for scores, positions in (
        nearest_of_blocks(rows[:2], [(rows[:3], np.arange(3))], 5),
        fast_nearest(rows[:2], [rows[:3]], 5),
    ):
        assert_array_equal(positions, np.hstack([sorted_neighbors(rows[:2], rows[:3], 3)[1], np.full((2, 2), -1)]))
        assert np.isneginf(scores[:, 3:]).all()
    assert nearest_of_blocks(rows[:0], [(rows, np.arange(N_ROWS))], 5)[0].shape == (0, 5)
    assert (nearest_of_blocks(rows[:2], [], 5)[1] == -1).all()


def test_faiss_finds_the_same_rows(rows):
    distinct = np.delete(rows, np.arange(100, 160), axis=0)
    scores, positions = fast_nearest(rows[:9], [distinct[:0], distinct[:300], distinct[300:]], 10)
    expected = sorted_neighbors(rows[:9], distinct, 10)
    assert_array_equal(positions, expected[1])
    assert_allclose(scores, expected[0], atol=1e-6)
