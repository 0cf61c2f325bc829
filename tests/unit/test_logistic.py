"""Many logistic regressions at once, against scikit-learn's one by one."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from isosent.errors import InputError
from isosent.numeric.logistic import logistic_path

CS = [0.25, 2.0, 32.0]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.normal(size=(300, 7)) * [3, 1, 1, 0.5, 0.1, 0.1, 0.01] + rng.normal(size=7)


def labels_of(rows, n_classes):
    rng = np.random.default_rng(1)
    likely = (rows - rows.mean(axis=0)) / rows.std(axis=0) @ rng.normal(size=(7, n_classes)) / 2
    return (likely + rng.gumbel(size=likely.shape)).argmax(axis=1)


def exact(C):
    return LogisticRegression(C=C, tol=1e-8, max_iter=100_000)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_each_fit_is_that_of_scikit_learn(rows, n_classes):
    labels = labels_of(rows, n_classes)
    weights = np.random.default_rng(2).integers(0, 3, size=(len(rows), 4)).astype(float)
    path = logistic_path(rows, np.eye(n_classes)[labels], weights, CS)
    for C, fits in zip(CS, path, strict=True):
        told = fits.probabilities(rows)
        assert told.shape == (300, n_classes, 4)
        assert told.sum(axis=1) == pytest.approx(1)
        for fit, of_rows in enumerate(weights.T):
            alone = exact(C).fit(rows, labels, sample_weight=of_rows)
            assert told[:, :, fit] == pytest.approx(alone.predict_proba(rows), abs=3e-4)
            coefficients = alone.coef_.T
            assert fits.weight[:, :, fit] == pytest.approx(coefficients, abs=1e-3 * np.abs(coefficients).max())


def test_a_soft_target_is_a_weighted_row_for_each_class(rows):
    scores = np.clip(3 + rows[:, 1] + rows[:, 2], 1, 5)
    levels = np.arange(1, 6)
    targets = np.maximum(1 - np.abs(scores[:, None] - levels), 0)
    (fits,) = logistic_path(rows, targets, np.ones((len(rows), 1)), [1.0])
    twice = exact(1.0).fit(np.repeat(rows, 5, axis=0), np.tile(levels, len(rows)), sample_weight=targets.ravel())
    assert fits.probabilities(rows)[:, :, 0] == pytest.approx(twice.predict_proba(rows), abs=3e-4)


def test_one_of_the_fits(rows):
    labels = labels_of(rows, 3)
    weights = np.random.default_rng(2).random((len(rows), 3))
    (fits,) = logistic_path(rows, np.eye(3)[labels], weights, [1.0])
    assert np.array_equal(fits.select(1).probabilities(rows)[:, :, 0], fits.probabilities(rows)[:, :, 1])


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_the_unit_of_the_rows_does_not_matter_if_the_penalty_has_it_too(rows, factor):
    targets, weights = np.eye(4)[labels_of(rows, 4)], np.ones((len(rows), 1))
    (one,) = logistic_path(rows, targets, weights, [1.0])
    (other,) = logistic_path(rows * factor, targets, weights, [factor**-2])
    assert other.probabilities(rows * factor) == pytest.approx(one.probabilities(rows), abs=3e-4)


@pytest.mark.parametrize(
    "make",
    [
        lambda rows: np.zeros_like(rows),
        lambda rows: np.ones_like(rows),
        lambda rows: rows[:, [0, 0, 1, 1, 1]],
        lambda rows: rows[:50] @ np.random.default_rng(0).normal(size=(7, 60)),
    ],
    ids=["zero", "constant", "repeated columns", "more columns than rows"],
)
def test_rows_of_low_rank(rows, make):
    made = make(rows)
    labels = labels_of(rows, 3)[: len(made)]
    (fits,) = logistic_path(made, np.eye(3)[labels], np.ones((len(made), 1)), [1.0])
    assert fits.probabilities(made)[:, :, 0] == pytest.approx(
        exact(1.0).fit(made, labels).predict_proba(made), abs=1e-3
    )


def test_a_fit_without_a_row_of_a_class_is_refused(rows):
    labels = labels_of(rows, 3)
    weights = np.column_stack([np.ones(len(rows)), labels != 2])
    with pytest.raises(InputError, match="fit 1 has no rows of class 2"):
        logistic_path(rows, np.eye(3)[labels], weights, [1.0])
