"""Telling labels or scores from frozen vectors: logistic regression, its penalty chosen within what it learns from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.logistic import LogisticFits, logistic_path
from isosent.numeric.similarity import pearson

N_FOLDS = 10
LEAST_OF_A_CLASS = 12  # so that each of ten folds holds some, and each of ten folds of any nine of them

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class Probe:
    """A logistic regression whose penalty was chosen."""

    fits: LogisticFits  # one fit
    levels: NDArray[np.float64]  # the labels, or whole scores, that its probabilities are of
    is_scored: bool  # whether scores are predicted, and not labels
    strength: float  # what was chosen: inverse strength of the penalty, in units of the total variance of the rows
    C: float  # the same as scikit-learn means it: `strength` over that variance
    dev: float  # accuracy, or Pearson correlation of scores, on the items that it was chosen by

    def predict(self, rows: NDArray[np.floating]) -> NDArray[np.float64]:
        """Predict labels or scores."""
        return _told(self.fits.probabilities(rows)[:, :, 0], self.levels, self.is_scored)


def probe_by_dev(
    rows: NDArray[np.floating],
    labels: NDArray[np.float64],
    dev_rows: NDArray[np.floating],
    dev_labels: NDArray[np.float64],
    *,
    strengths: Sequence[float],
    is_scored: bool = False,
) -> Probe:
    """Learn from some rows, with the penalty that is best on others."""
    # A score between two whole ones is taken as the distribution over both with that expectation (Tai et al. 2015,
    # section 4.2); the regression predicts a distribution, and its expectation is the predicted score.
    levels, path = _path(rows, labels, np.ones((len(rows), 1)), strengths)
    probes = []
    for strength, C, fits in path:
        told = _told(fits.probabilities(dev_rows)[:, :, 0], levels, is_scored)
        dev = pearson(told, dev_labels) if is_scored else float(np.mean(told == dev_labels))
        probes.append(Probe(fits, levels, is_scored, strength, C, dev))
    return _best(probes)


def probe_by_folds(
    rows: NDArray[np.floating], labels: NDArray[np.float64], *, strengths: Sequence[float], seed: int
) -> Probe:
    """Learn labels, with the penalty that is best in cross-validation."""
    fold = stratified_folds(labels, seed)
    learnt_from = np.column_stack([fold[:, None] != np.arange(N_FOLDS), np.ones(len(rows))])
    levels, path = _path(rows, labels, learnt_from, strengths)
    probes = []
    for strength, C, fits in path:
        held_out = fits.probabilities(rows)[np.arange(len(rows)), :, fold]
        right = _told(held_out, levels, False) == labels
        dev = float(np.mean(fold_means(right, fold)))
        probes.append(Probe(fits.one(N_FOLDS), levels, False, strength, C, dev))
    return _best(probes)


def probe_each_fold(
    rows: NDArray[np.floating], labels: NDArray[np.float64], *, strengths: Sequence[float], seed: int
) -> tuple[NDArray[np.float64], NDArray[np.intp], list[Probe]]:
    """Predict the labels of every fold by what is learnt from the other nine."""
    fold = stratified_folds(labels, seed)
    predicted, probes = np.empty_like(labels), []
    for number in range(N_FOLDS):
        own = fold == number
        probes.append(probe_by_folds(rows[~own], labels[~own], strengths=strengths, seed=seed))
        predicted[own] = probes[-1].predict(rows[own])
    return predicted, fold, probes


def stratified_folds(labels: NDArray[np.float64], seed: int) -> NDArray[np.intp]:
    """Deal rows to ten folds at random, each label alike."""
    from sklearn.model_selection import StratifiedKFold

    fold = np.empty(len(labels), dtype=np.intp)
    for number, (_, own) in enumerate(StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed).split(labels, labels)):
        fold[own] = number
    return fold


def fold_means(values: NDArray[np.generic], fold: NDArray[np.intp]) -> NDArray[np.float64]:
    """Mean of the values of each fold, shape (10,)."""
    return np.bincount(fold, values) / np.bincount(fold)


def _path(
    rows: NDArray[np.floating],
    labels: NDArray[np.float64],
    learnt_from: NDArray[np.float64],
    strengths: Sequence[float],
) -> tuple[NDArray[np.float64], Iterator[tuple[float, float, LogisticFits]]]:
    """Levels that occur, and the fits for each strength."""
    levels = np.arange(np.floor(labels.min()), np.ceil(labels.max()) + 1)
    targets = np.maximum(1 - np.abs(labels[:, None] - levels), 0)
    occurs = targets.any(axis=0)
    variance = _total_variance(rows)
    Cs = [strength / variance for strength in strengths]
    return levels[occurs], zip(strengths, Cs, logistic_path(rows, targets[:, occurs], learnt_from, Cs), strict=True)


def _total_variance(rows: NDArray[np.floating]) -> float:
    """Mean squared distance from the mean; 1 where there is nothing but rounding."""
    variance = float(rows.var(axis=0, dtype=np.float64).sum())
    squared_length = float(np.vdot(rows, rows)) / len(rows)
    return variance if variance > np.finfo(np.float32).eps * squared_length else 1.0


def _told(probabilities: NDArray[np.float64], levels: NDArray[np.float64], is_scored: bool) -> NDArray[np.float64]:
    if not is_scored:
        most_probable: NDArray[np.float64] = levels[probabilities.argmax(axis=1)]
        return most_probable
    expected: NDArray[np.float64] = probabilities @ levels
    return expected if np.ptp(expected) > _ROUNDING else np.full_like(expected, expected[0])


def _best(probes: Sequence[Probe]) -> Probe:
    return max(probes, key=lambda probe: -np.inf if np.isnan(probe.dev) else probe.dev)
