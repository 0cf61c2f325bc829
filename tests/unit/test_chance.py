import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isosent.errors import InputError
from isosent.numeric.similarity import random_cosines, unit_rows
from isosent.search.chance import Chance
from isosent.transforms.calibration import Calibration


def units(n_rows, dim=48, *, shift=0.4, seed=0):
    """Directions that are random but for a common mean, as those of sentence vectors."""
    rows = np.random.default_rng(seed).normal(size=(n_rows, dim)) + shift
    return unit_rows(rows).astype(np.float32)


def search(rows, queries, k=5):
    scores = queries @ rows.T
    top = np.argsort(-scores, axis=1)[:, :k]
    return queries, rows[top], np.take_along_axis(scores, top, axis=1)


@pytest.fixture(scope="module")
def rows():
    return units(2000)


@pytest.fixture(scope="module")
def chance(rows):
    return Chance.fit(rows, n_rows=2000)


def test_the_corrected_score_is_the_cosine_of_centered_vectors(rows, chance):
    queries, hits, scores = search(rows, units(20, seed=1))
    mean = rows.astype(np.float64).mean(axis=0)
    expected = np.einsum(
        "qd,qkd->qk", unit_rows(queries - mean), unit_rows((hits - mean).reshape(100, -1)).reshape(20, 5, -1)
    )
    np.testing.assert_allclose(chance.corrected(queries, hits, scores), expected, atol=1e-5)


def test_the_share_is_that_of_random_pairs_with_a_lower_corrected_score(rows, chance):
    queries, hits, scores = search(rows, units(50, seed=1), k=2000)
    corrected = chance.corrected(queries, hits, scores)
    random = random_cosines(rows - chance.mean, n_pairs=100_000, seed=7)
    expected = np.searchsorted(np.sort(random), corrected) / len(random)
    np.testing.assert_allclose(chance.share(queries, hits, scores), expected, atol=0.01)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=2, max_size=20), st.integers(0, 1999))
def test_a_higher_score_of_the_same_pair_never_has_a_lower_share(rows, chance, scores, row):
    scores = np.sort(scores)[None]
    hits = np.broadcast_to(rows[row], (1, scores.size, rows.shape[1]))
    shares = chance.share(rows[:1], hits, scores)
    assert (np.diff(shares) >= 0).all()
    assert ((shares >= 0) & (shares <= 1)).all()


@pytest.mark.parametrize(("n_rows", "dim"), [(100, 24), (3000, 24), (3000, 30)])
@pytest.mark.parametrize("false_positives", [0.01, 0.1])
def test_random_queries_match_as_often_as_stated(n_rows, dim, false_positives):
    rows = units(n_rows, dim)
    found = search(rows, units(4000, dim, seed=1), k=3)
    rate = Chance.fit(rows, n_rows=n_rows).is_match(*found, false_positives=false_positives).any(axis=1).mean()
    assert false_positives / 3 < rate < 2 * false_positives


def test_random_queries_match_less_often_in_many_dimensions(rows, chance):
    matches = chance.is_match(*search(rows, units(2000, seed=1)), false_positives=0.01)
    assert matches.any(axis=1).mean() < 0.003


def test_a_sample_stands_for_the_index():
    rows = units(20_000, 20)
    whole, sample = Chance.fit(rows, n_rows=20_000), Chance.fit(rows[:2000], n_rows=20_000)
    assert sample.threshold(0.05) == pytest.approx(whole.threshold(0.05), abs=0.04)


def test_planted_copies_match(rows, chance):
    noise = 0.05 * np.random.default_rng(1).normal(size=(100, rows.shape[1]))
    matches = chance.is_match(*search(rows, unit_rows(rows[:100] + noise).astype(np.float32)), false_positives=0.01)
    assert matches[:, 0].all()
    assert matches[:, 1:].mean() < 0.05


def test_more_rows_or_fewer_false_positives_need_a_higher_score(chance):
    rates = [0.9, 0.5, 0.1, 0.01, 1e-6]
    thresholds = [chance.threshold(rate) for rate in rates]
    assert thresholds == sorted(thresholds)
    by_rows = [chance.threshold(0.01, n_rows=n) for n in (0, 1, 2, 10, 1000, 10**9)]
    assert by_rows == sorted(by_rows)
    assert -1 <= min(*thresholds, *by_rows) < max(*thresholds, *by_rows) < 1


def test_a_hub_loses_its_rank():
    rows = units(500, shift=2)
    hub = unit_rows(rows.mean(axis=0, keepdims=True) + 0.02 * units(1, shift=0, seed=3))
    rows = np.concatenate([rows, hub]).astype(np.float32)
    found = search(rows, units(200, shift=2, seed=1), k=501)
    is_hub = (found[1] == rows[-1]).all(axis=2)
    ranks = [
        np.argsort(np.argsort(-scores))[is_hub] for scores in (found[2], Chance.fit(rows, n_rows=501).corrected(*found))
    ]
    assert np.median(ranks[0]) == 0
    assert np.median(ranks[1]) > 100


def test_copies_of_a_row_are_one_row(rows, chance):
    repeated = np.concatenate([rows, np.repeat(rows[:1], 3000, axis=0), np.zeros((100, 48), np.float32)])
    again = Chance.fit(repeated, n_rows=len(repeated))
    np.testing.assert_array_equal(again.mean, chance.mean)
    assert again.threshold(0.01, n_rows=2000) == chance.threshold(0.01)


@pytest.mark.parametrize("n_rows", [0, 1, 2, 5, 29])
def test_few_rows_teach_nothing(rows, n_rows):
    assert Chance.fit(rows[:n_rows], n_rows=n_rows) is None


def test_equal_pairs_teach_nothing():
    assert Chance.fit(np.eye(40, dtype=np.float32), n_rows=40) is None
    assert Chance.fit(np.ones((40, 8)) / 8**0.5, n_rows=40) is None


def test_a_rank_below_the_width_and_float16_are_fine():
    narrow = units(300, 5) @ np.linalg.qr(np.random.default_rng(0).normal(size=(48, 5)))[0].T
    chance = Chance.fit(narrow.astype(np.float16), n_rows=300)
    found = [array.astype(np.float16) for array in search(narrow, narrow[:10])]
    share = chance.share(*found)
    assert share.dtype == np.float64
    assert np.isfinite(share).all()
    assert chance.is_match(*found, false_positives=0.5).shape == (10, 5)


def test_zero_rows_and_missing_hits_never_match(rows, chance):
    queries, hits, scores = search(rows, rows[:4])
    queries, hits = queries.copy(), hits.copy()
    queries[0], hits[1, 0], scores[2, 0], scores[3, 0] = 0, 0, np.nan, -np.inf
    assert not chance.is_match(queries, hits, scores, false_positives=0.5)[:, 0].any()
    np.testing.assert_array_equal(chance.share(queries, hits, scores)[:, 0], 0)


def test_no_queries_or_hits_give_empty_arrays(chance):
    for shape in ((0, 3), (2, 0)):
        found = np.zeros((shape[0], 48)), np.zeros((*shape, 48)), np.zeros(shape)
        assert chance.share(*found).shape == shape
        assert chance.is_match(*found, false_positives=0.1).shape == shape


def test_tensors_bring_it_back(rows, chance):
    again = Chance.from_tensors(chance.tensors())
    found = search(rows, units(10, seed=1))
    np.testing.assert_array_equal(again.share(*found), chance.share(*found))
    assert again.threshold(0.01) == chance.threshold(0.01)
    assert again.n_rows == 2000


@pytest.mark.parametrize("name", ["mean", "cosines", "values", "tail", "counts"])
def test_damaged_tensors_are_refused(chance, name):
    tensors = chance.tensors()
    with pytest.raises(InputError, match=name):
        Chance.from_tensors({key: array for key, array in tensors.items() if key != name})
    with pytest.raises(InputError, match=name):
        Chance.from_tensors(tensors | {name: np.full(3, np.nan)[None]})


def test_wrong_input_is_refused(rows, chance):
    queries, hits, scores = search(rows, rows[:4])
    with pytest.raises(InputError, match="48 dimensions"):
        chance.share(queries[:, :7], hits, scores)
    with pytest.raises(InputError, match="hits"):
        chance.share(queries, hits[:, :2], scores)
    with pytest.raises(InputError, match="scores"):
        chance.share(queries, hits[:3], scores[:3])
    for rate in (0, 1, -0.1, 2, "a"):
        with pytest.raises(InputError, match="false_positives"):
            chance.threshold(rate)
    with pytest.raises(InputError, match="n_rows"):
        chance.threshold(0.1, n_rows=-1)
    with pytest.raises(InputError, match="row 3"):
        Chance.fit(np.where(np.arange(2000)[:, None] == 3, np.nan, rows), n_rows=2000)
    labels = Calibration.from_labels(np.linspace(0, 1, 50), np.linspace(0, 1, 50))
    for name, value in {"calibration": labels, "isolated": 2.0, "exponent": 0.0, "n_rows": 0, "n_sample": 0}.items():
        with pytest.raises(InputError, match=name):
            dataclasses.replace(chance, **{name: value})
