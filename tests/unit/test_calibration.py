import json
import pickle

import numpy as np
import pytest
from scipy.stats import percentileofscore
from sklearn.isotonic import IsotonicRegression

from isosent.errors import InputError
from isosent.numeric.similarity import random_cosines
from isosent.transforms.calibration import Calibration

GRID = np.linspace(-1, 1, 401)


@pytest.fixture
def vectors():
    return np.random.default_rng(0).normal(size=(400, 12)) + 0.5


@pytest.fixture
def labeled():
    rng = np.random.default_rng(0)
    cosines = rng.uniform(-0.2, 1, size=500)
    return cosines, (5 * np.clip(cosines + rng.normal(scale=0.2, size=500), 0, 1)).round(1)


def test_the_null_gives_the_percentile_among_random_pairs(vectors):
    calibration = Calibration.from_random_pairs(vectors, n_pairs=20_000, seed=3)
    null = random_cosines(vectors, n_pairs=20_000, seed=3)
    expected = percentileofscore(null, GRID, kind="mean") / 100
    np.testing.assert_allclose(calibration(GRID), expected, atol=0.003)


def test_the_null_resolves_the_upper_tail():
    null = np.random.default_rng(0).normal(scale=0.1, size=1_000_000).clip(-1, 1)
    calibration = Calibration.from_null(null)
    rare = np.quantile(null, [0.999, 0.9999, 0.99995])
    np.testing.assert_allclose(1 - calibration(rare), [1e-3, 1e-4, 5e-5], rtol=0.15)


def test_ties_take_their_middle_rank():
    calibration = Calibration.from_null(np.repeat([0.0, 0.5], [60, 40]))
    np.testing.assert_allclose(calibration([-1, 0, 0.5, 1]), [0, 0.3, 0.8, 1])


def test_the_value_jumps_at_a_cosine_that_many_pairs_have():
    null = np.append(np.full(100_000, 0.5), 0.6)
    calibration = Calibration.from_null(null)
    np.testing.assert_allclose(calibration([0.4999, 0.55]), [0, 0.99999], atol=1e-5)
    assert (np.diff(calibration(np.linspace(-1, 1, 100_001))) >= 0).all()
    again = Calibration.from_json(json.loads(json.dumps(calibration.to_json())))
    np.testing.assert_array_equal([again.cosines, again.values], [calibration.cosines, calibration.values])


@pytest.mark.parametrize("kind", ["null", "labels"])
def test_a_calibration_never_falls_and_stays_within_0_and_1(kind, vectors, labeled):
    made = Calibration.from_random_pairs(vectors) if kind == "null" else Calibration.from_labels(*labeled)
    values = made(np.linspace(-1.5, 1.5, 5001))
    assert (np.diff(values) >= 0).all()
    assert values[0] >= 0
    assert values[-1] <= 1


def test_random_pairs_are_of_different_rows_and_the_same_for_a_seed():
    rows = np.eye(50)
    assert (random_cosines(rows, n_pairs=5000, seed=0) == 0).all()
    rows = np.random.default_rng(0).normal(size=(50, 3))
    first, again, other = (random_cosines(rows, n_pairs=100, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_the_cosines_are_those_of_all_pairs(vectors):
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    every = (units @ units.T)[np.triu_indices(len(units), 1)]
    drawn = random_cosines(vectors, n_pairs=200_000, seed=0)
    assert drawn.mean() == pytest.approx(every.mean(), abs=0.002)
    np.testing.assert_allclose(np.quantile(drawn, [0.05, 0.5, 0.95]), np.quantile(every, [0.05, 0.5, 0.95]), atol=0.01)


def test_zero_rows_are_left_out_of_the_null(vectors):
    padded = np.concatenate([vectors, np.zeros((300, 12))])
    assert Calibration.from_random_pairs(padded)(0.0) == pytest.approx(
        Calibration.from_random_pairs(vectors)(0.0), abs=0.01
    )


def test_labels_give_what_isotonic_regression_predicts(labeled):
    cosines, labels = labeled
    expected = IsotonicRegression(out_of_bounds="clip").fit(cosines, labels / 5).predict(GRID)
    made = Calibration.from_labels(cosines, labels)
    np.testing.assert_allclose(made(GRID), expected, atol=1e-12)
    assert made.label_range == (0, 5)


def test_yes_and_no_labels_give_the_share_of_yes():
    cosines = np.repeat([0.1, 0.9], 100)
    labels = np.concatenate([np.repeat([0, 1], [80, 20]), np.repeat([0, 1], [10, 90])])
    np.testing.assert_allclose(Calibration.from_labels(cosines, labels)([0.1, 0.5, 0.9]), [0.2, 0.55, 0.9])


def test_a_calibration_keeps_the_shape_of_what_it_is_given(vectors):
    made = Calibration.from_random_pairs(vectors)
    assert made(np.zeros((3, 2))).shape == (3, 2)
    assert made(0.5).shape == ()


@pytest.mark.parametrize("kind", ["null", "labels"])
def test_json_keeps_every_bit(kind, vectors, labeled):
    made = Calibration.from_random_pairs(vectors) if kind == "null" else Calibration.from_labels(*labeled)
    again = Calibration.from_json(json.loads(json.dumps(made.to_json())))
    np.testing.assert_array_equal(made.cosines, again.cosines)
    np.testing.assert_array_equal(made.values, again.values)
    assert (made.kind, made.n_pairs, made.label_range) == (again.kind, again.n_pairs, again.label_range)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "guess"}, "kind must be"),
        ({"cosines": [0.5, 0.1]}, "cosines must rise"),
        ({"cosines": [0.5, float("nan")]}, "cosines must rise"),
        ({"values": [0.5, 0.1]}, "values must not fall"),
        ({"values": [0.5, 1.1]}, "must lie in"),
        ({"cosines": [-2.0, 0.1]}, "must lie in"),
        ({"values": [0.5]}, "must have the same shape"),
        ({"values": ["x", "y"]}, "not a result of to_json"),
        ({"n_pairs": None}, "not a result of to_json"),
        ({"n_pairs": float("inf")}, "not a result of to_json"),
        ({"label_range": [1]}, "not a result of to_json"),
    ],
)
def test_a_damaged_document_is_refused(change, words):
    document = {"kind": "labels", "n_pairs": 30, "label_range": [0, 1], "cosines": [0.0, 1.0], "values": [0.0, 1.0]}
    Calibration.from_json(document)
    with pytest.raises(InputError, match=words):
        Calibration.from_json(document | change)
    del document["kind"]
    with pytest.raises(InputError, match="not a result of to_json"):
        Calibration.from_json(document)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.ones(40), r"labels of all 40 pairs are 1\."),
        (
            np.where(np.arange(40) == 7, np.nan, 1.0),
            r"label 7 is nan, not finite \(1 such pairs\)",
        ),
        (np.linspace(1, 0, 40), "labels do not rise with the cosine"),
        (np.arange(39), r"expected labels of the shape \(40,\)"),
        (["high"] * 40, "labels must be numbers"),
        (
            np.where(np.arange(40) < 20, -1e308, 1e308),
            r"labels, from -1e\+308 to 1e\+308, have too large a range",
        ),
    ],
)
def test_labels_that_tell_nothing_are_refused(labels, words):
    with pytest.raises(InputError, match=words):
        Calibration.from_labels(np.linspace(0, 1, 40), labels)


def test_too_few_pairs_are_refused(vectors):
    with pytest.raises(InputError, match="29 pairs are too few; at least 30"):
        Calibration.from_labels(np.linspace(0, 1, 29), np.arange(29))
    with pytest.raises(InputError, match="8 vectors that are not zero make 28"):
        Calibration.from_random_pairs(vectors[:8])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n_pairs": 20}, "n_pairs must be a whole number >= 30; got 20"),
        ({"n_pairs": 99.5}, "n_pairs must be a whole number >= 30; got 99.5"),
        ({"seed": -1}, "seed must be a whole number >= 0; got -1"),
    ],
)
def test_a_draw_that_cannot_be_made_is_refused(change, words, vectors):
    with pytest.raises(InputError, match=words):
        Calibration.from_random_pairs(vectors, **change)


def test_vectors_that_cannot_be_a_null_are_refused(vectors):
    with pytest.raises(InputError, match="random pairs are 1"):
        Calibration.from_random_pairs(np.ones((50, 4)))
    vectors[5, 2] = np.nan
    with pytest.raises(InputError, match="row 5 of vectors, counted from 0, holds NaN"):
        Calibration.from_random_pairs(vectors)


def test_what_is_no_cosine_is_refused(vectors):
    with pytest.raises(InputError, match=r"cosines must lie in \[-1, 1\]; got 1.01"):
        Calibration.from_null(np.linspace(0, 1.5, 50))
    for make in (Calibration.from_null, lambda cosines: Calibration.from_labels(cosines, np.arange(40))):
        with pytest.raises(InputError, match="cosines must be numbers"):
            make(["near"] * 40)
    with pytest.raises(InputError, match=r"cosines of all 40 pairs are 0.5"):
        Calibration.from_labels(np.full(40, 0.5), np.arange(40))
    with pytest.raises(InputError, match="is NaN"):
        Calibration.from_random_pairs(vectors)([0.1, np.nan])


@pytest.mark.parametrize(
    ("score", "distance"),
    [
        ("cosine", lambda a, b: a @ b),
        ("cosine_distance", lambda a, b: 1 - a @ b),
        ("l2", lambda a, b: np.linalg.norm(a - b)),
        ("squared_l2", lambda a, b: ((a - b) ** 2).sum()),
    ],
)
def test_a_score_of_a_vector_store_becomes_the_percentile_of_its_cosine(vectors, score, distance):
    calibration = Calibration.from_random_pairs(vectors)
    relevance = pickle.loads(pickle.dumps(calibration.relevance_score_fn(score)))
    units = vectors[:20] / np.linalg.norm(vectors[:20], axis=1, keepdims=True)
    for unit in units[1:]:
        found = relevance(distance(units[0], unit))
        assert type(found) is float
        assert found == pytest.approx(calibration(units[0] @ unit), abs=1e-9)


def test_a_relevance_refuses_other_scores_and_nan(vectors):
    calibration = Calibration.from_random_pairs(vectors)
    with pytest.raises(InputError, match="manhattan"):
        calibration.relevance_score_fn("manhattan")
    with pytest.raises(InputError, match="NaN"):
        calibration.relevance_score_fn()(np.nan)
