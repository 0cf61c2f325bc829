"""Which penalty is chosen and what is predicted with it, against plain loops over scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from isosent.evaluation.transfer import fold_means, probe_by_dev, probe_by_folds, probe_each_fold, stratified_folds
from isosent.numeric.similarity import pearson

STRENGTHS = (0.05, 0.5, 5.0)


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).normal(size=(180, 5)).astype(np.float32) * 2 + 1


def labels_of(rows, n_classes):
    noise = np.random.default_rng(1).gumbel(size=(len(rows), n_classes))
    return (rows[:, :n_classes] + noise).argmax(axis=1).astype(float)


def fit(rows, labels, strength, variance_of=None, **how):
    rows, whole = rows.astype(float), (rows if variance_of is None else variance_of).astype(float)
    C = strength / whole.var(axis=0).sum()
    return LogisticRegression(C=C, tol=1e-8, max_iter=100_000).fit(rows, labels, **how)


def folds_of(rows, labels):
    return StratifiedKFold(10, shuffle=True, random_state=3).split(rows, labels)


def chosen_by_folds(rows, labels):
    """Strength, its accuracy over folds, and the model on all rows."""
    means = [
        np.mean([fit(rows[a], labels[a], s, rows).score(rows[b], labels[b]) for a, b in folds_of(rows, labels)])
        for s in STRENGTHS
    ]
    best = int(np.argmax(means))
    return STRENGTHS[best], means[best], fit(rows, labels, STRENGTHS[best])


@pytest.mark.parametrize("n_classes", [2, 4])
def test_dev_chooses_what_a_loop_would(rows, n_classes):
    labels = labels_of(rows, n_classes)
    train, dev, test = slice(0, 90), slice(90, 140), slice(140, 180)
    models = [fit(rows[train], labels[train], strength) for strength in STRENGTHS]
    accuracies = [model.score(rows[dev], labels[dev]) for model in models]
    probe = probe_by_dev(rows[train], labels[train], rows[dev], labels[dev], strengths=STRENGTHS)
    best = int(np.argmax(accuracies))
    assert probe.strength == STRENGTHS[best]
    assert probe.dev == accuracies[best]
    assert pytest.approx(models[best].C) == probe.C
    assert np.array_equal(probe.predict(rows[test]), models[best].predict(rows[test]))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_folds_choose_what_a_loop_would(rows, n_classes):
    labels = labels_of(rows, n_classes)
    strength, accuracy, model = chosen_by_folds(rows, labels)
    probe = probe_by_folds(rows, labels, strengths=STRENGTHS, seed=3)
    assert probe.strength == strength
    assert probe.dev == pytest.approx(accuracy)
    assert np.array_equal(probe.predict(rows), model.predict(rows))


def test_folds_within_folds_predict_what_a_loop_would(rows):
    rows = rows[:110]
    labels = labels_of(rows, 2)
    expected, strengths = np.empty(len(rows)), []
    for others, own in folds_of(rows, labels):
        strength, _, model = chosen_by_folds(rows[others], labels[others])
        strengths.append(strength)
        expected[own] = model.predict(rows[own])
    predicted, fold, probes = probe_each_fold(rows, labels, strengths=STRENGTHS, seed=3)
    assert np.array_equal(predicted, expected)
    assert [probe.strength for probe in probes] == strengths
    assert [set(np.flatnonzero(fold == number)) for number in range(10)] == [
        set(own) for _, own in folds_of(rows, labels)
    ]


def test_scores_are_the_mean_of_a_distribution_over_whole_ones(rows):
    scores = np.clip(2.5 + rows[:, 0] / 2, 0, 5).astype(float).round(1)
    train, dev, test = slice(0, 100), slice(100, 140), slice(140, 180)
    levels = np.arange(6)
    shares = np.maximum(1 - np.abs(scores[train][:, None] - levels), 0)
    models = [
        fit(np.repeat(rows[train], 6, axis=0), np.tile(levels, 100), s, rows[train], sample_weight=shares.ravel())
        for s in STRENGTHS
    ]
    told = [model.predict_proba(rows[dev]) @ levels for model in models]
    best = int(np.argmax([pearson(of, scores[dev]) for of in told]))
    probe = probe_by_dev(rows[train], scores[train], rows[dev], scores[dev], strengths=STRENGTHS, is_scored=True)
    assert probe.strength == STRENGTHS[best]
    assert probe.dev == pytest.approx(pearson(told[best], scores[dev]), abs=1e-4)
    assert probe.predict(rows[test]) == pytest.approx(models[best].predict_proba(rows[test]) @ levels, abs=1e-3)


def test_levels_that_no_score_is_near_are_left_out(rows):
    scores = np.where(rows[:, 0] > 1, 4.5, 2.0)
    probe = probe_by_dev(rows, scores, rows, scores, strengths=STRENGTHS, is_scored=True)
    assert probe.levels.tolist() == [2, 4, 5]
    assert probe.dev > 0.5


@pytest.mark.parametrize(("factor", "shift"), [(1000, 0), (1e-3, 0), (1, 50)])
def test_neither_unit_nor_origin_of_the_vectors_matters(rows, factor, shift):
    labels = labels_of(rows, 3)
    one = probe_by_folds(rows, labels, strengths=STRENGTHS, seed=0)
    moved = rows.astype(float) * factor + shift
    other = probe_by_folds(moved, labels, strengths=STRENGTHS, seed=0)
    assert (other.strength, other.dev) == (one.strength, one.dev)
    assert np.array_equal(other.predict(moved), one.predict(rows))


def test_of_equally_good_penalties_the_strongest_is_taken():
    rows = np.repeat([[-1.0], [1.0]], 20, axis=0)
    labels = np.repeat([0.0, 1.0], 20)
    assert probe_by_dev(rows, labels, rows, labels, strengths=STRENGTHS).strength == STRENGTHS[0]


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_vectors_that_are_all_the_same_tell_nothing(value):
    rows, scores = np.full((60, 3), value, dtype=np.float32), np.arange(60) % 5 + 0.5
    probe = probe_by_dev(rows, scores, rows, scores, strengths=STRENGTHS, is_scored=True)
    assert np.isnan(probe.dev)
    assert np.ptp(probe.predict(rows)) == 0
    assert probe.predict(rows)[0] == pytest.approx(scores.mean(), abs=1e-3)


def test_labels_that_were_not_learnt_are_not_told(rows):
    labels = labels_of(rows, 4)
    learnt = labels != 1
    probe = probe_by_dev(rows[learnt], labels[learnt], rows, labels, strengths=STRENGTHS)
    assert set(probe.predict(rows)) == {0, 2, 3}


def test_every_fold_holds_each_label_alike():
    labels = np.repeat([0.0, 1.0], [100, 40])
    fold = stratified_folds(labels, 0)
    assert np.bincount(fold).tolist() == [14] * 10
    assert fold_means(labels, fold) == pytest.approx(4 / 14)
    assert not np.array_equal(fold, stratified_folds(labels, 1))
