"""Erase a known attribute, such as the language, from vectors.

`Erasure` turns the moments of vectors and labels into a map. `measure` fits it on one half of a sample and says what is
left on the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from isosent import _check
from isosent.errors import InputError, wrong_value
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.logistic import logistic_path
from isosent.numeric.moments import JointFolds, Moments
from isosent.numeric.neighbors import nearest_rows
from isosent.numeric.similarity import nonzero_rows, spearman, unit_rows
from isosent.numeric.spectrum import spectrum
from isosent.numeric.threads import one_thread_products
from isosent.transforms.agreement import distinct_rows, sample_pairs
from isosent.transforms.estimator import MomentTransform, Solution
from isosent.transforms.labels import (
    FEWEST_TEXTS,
    LabeledMoments,
    check_few,
    groups_of,
    has_label,
    is_missing,
    numbers_of,
)

SHRINKAGE = 0.1
_TOLERANCE = 1e-6  # of the largest singular value: directions below are rounding
_SAMPLE = 4000
_PENALTIES = (0.01, 0.1, 1.0)
_C = 0.01  # of the classifier, for dimensions of variance 1 on average
_CERTAIN = 3.0  # standard errors above guessing
_LEAST_R2 = 0.02
_FEWEST_IN_VALUE = 50

Double = NDArray[np.float64]


class Erasure(MomentTransform):
    r"""Remove a known attribute, so that no linear classifier tells it from the vectors (LEACE).

    `fit` and `partial_fit` take the labels as `y`: one per row, of which None, NaN and empty ones are left out.

    Parameters
    ----------
    numeric : bool, default False
        Whether labels are numbers, of which no linear regression may know anything; else they are values, such as
        languages, of which there may be 100.
    shrinkage : float, default 0.1
        How far the covariance is pulled towards a multiple of the identity, in [0, 1]. The attribute is removed at any
        shrinkage; with little of it, few rows decide what else moves.

    Notes
    -----
    With z the labels as columns of zeros and ones, or the number, S the covariance, :math:`W = S_{xx,g}^{-1/2}`,
    :math:`S_g = (1 - g) S + g \, \mathrm{tr}(S) / d \, I`, and U the left singular vectors of :math:`W S_{xz}`:
    :math:`x' = x - W^{-1} U U^\top W (x - \mu)`, where :math:`\mu` is the mean of the means of the values, to which all
    of them move: with the mean of all rows, a value of few rows would move to one of many. Belrose et al. 2023, *LEACE:
    Perfect Linear Concept Erasure in Closed Form*, arXiv 2306.03819, theorem 4.3, which has the mean of all rows, and
    no shrinkage. Afterwards the covariance of vectors and labels is
    zero. A new vector needs no label.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[5.0, 0.0], [5.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> Erasure(shrinkage=0).fit_transform(rows, ["en", "en", "de", "de"]).round(6)
    array([[3., 0.],
           [3., 1.],
           [3., 0.],
           [3., 1.]])
    """

    def __init__(self, numeric: bool = False, shrinkage: float = SHRINKAGE) -> None:
        self.numeric = numeric
        self.shrinkage = shrinkage

    @property
    def moments_(self) -> Moments:
        """Weight, mean and scatter of the rows that had a label."""
        return self._labeled.joint.x

    @property
    def values_(self) -> tuple[str, ...] | None:
        """The values seen, in alphabetical order; None for numbers."""
        return self._labeled.values

    @property
    def n_missing_(self) -> int:
        """Rows left out because their label was missing."""
        return self._labeled.n_missing

    @property
    def _labeled(self) -> LabeledMoments:
        labeled: LabeledMoments = self._fit.moments
        return labeled

    def check_settings(self, dim: int) -> None:
        _check.fraction(self._name, "shrinkage", self.shrinkage)

    def __sklearn_tags__(self) -> Tags:
        """Declare to scikit-learn that labels are needed."""
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    def _moments_of(self, X: ArrayLike, y: Any, sample_weight: ArrayLike | None) -> LabeledMoments:
        """Moments of the rows that have a label."""
        rows = self._rows(X, min_rows=1)
        self.check_settings(rows.shape[1])
        if y is None:
            raise InputError(f"{self._name} requires y to be passed, but the target y is None. Give a label per row.")
        listed = np.asarray(y, dtype=object).ravel().tolist()
        _check.same_count(self._name, "labels", len(listed), len(rows))
        _check.finite_rows(self._name, "X", rows)
        weights = None if sample_weight is None else _check.row_weights(self._name, sample_weight, len(rows))
        texts = [None if is_missing(value) else str(value).strip() for value in listed]
        labels: NDArray[Any] = np.array(texts, dtype=object)
        if self.numeric:
            numbers = numbers_of(self._name, texts)
            if numbers is None:
                raise InputError("labels must be numbers, because numeric=True; some are not.", where=self._name)
            labels = numbers
        else:
            check_few(self._name, len(set(texts) - {None}))
        if not has_label(labels).any():
            raise InputError("no row has a label. Give labels of at least two values.", where=self._name)
        return LabeledMoments.from_rows(rows, labels, weights=weights)

    def _solve(self, moments: Moments | LabeledMoments) -> Solution:
        if isinstance(moments, Moments):
            raise InputError("moments of vectors alone have no labels. Use fit(X, labels).", where=self._name)
        joint, x, z = moments.joint, moments.joint.x, moments.joint.y
        if not x.weight:
            raise wrong_value(self._name, "sample_weight", "not be zero for every row", "zeros only")
        self._check_size(x)
        spread, size = float(np.trace(z.covariance)), float(np.trace(z.second_moment))
        if not spread > 1e-12 * size:
            what = "numbers" if moments.values is None else "labels"
            raise InputError(
                f"all {what} are of one class. Two values are needed to erase what differs.", where=self._name
            )
        level = float(np.trace(x.covariance)) / x.dim
        shrunk = (1 - self.shrinkage) * x.covariance + self.shrinkage * level * np.eye(x.dim)
        eigen = spectrum(shrunk, noise=x.rounding_variance)
        if not eigen.rank:  # all vectors are equal
            return Solution(LinearMap(np.eye(x.dim), np.zeros(x.dim)), x.mean)
        axes, roots = eigen.vectors[:, : eigen.rank], np.sqrt(eigen.values[: eigen.rank])
        left, values, _ = np.linalg.svd((axes.T @ joint.cross) / roots[:, None], full_matrices=False)
        left = left[:, values > _TOLERANCE * max(values[0], _TOLERANCE * math.sqrt(spread))]
        removed = (axes / roots) @ left @ left.T @ (axes * roots).T  # of row vectors
        return Solution(LinearMap(np.eye(x.dim) - removed, moments.center @ removed), x.mean)


class Effect(NamedTuple):
    """What erasing an attribute changes, measured on rows that it was not fitted on. Shares are in [0, 1]."""

    n_texts: int  # measured on
    told: tuple[float, float, float]  # by a linear model, before, after and by guessing: right answers, each value
    # counting the same; for numbers, the share of their variance
    same: tuple[float, float, float]  # texts whose nearest has the same value (numbers: third), before, after, chance
    overlap: tuple[float, float] | None  # agreement of cosines with word overlap within a value, before and after
    is_visible: bool  # whether the attribute was told before by more than chance

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, as model folders store them."""
        return {"chosen": "erasure", "reason": self.reason, "candidates": []} | self._asdict()

    @property
    def reason(self) -> str:
        """What a linear model tells before and after."""
        before, after, chance = (f"{share:.1%}" for share in self.told)
        return f"a linear model tells it from held-out vectors in {before} before, {after} after; guessing: {chance}."


@one_thread_products()  # threads that wait for each other take ten times as long on a busy machine
def measure(vectors: NDArray[np.floating], labels: NDArray[Any], texts: Sequence[str] | None = None) -> Effect:
    """Fit an erasure on one half of a sample, and say what it changes on the other."""
    numeric = labels.dtype.kind == "f"
    rows = np.arange(len(vectors)) if texts is None else np.array(distinct_rows(texts))
    rows = rows[nonzero_rows(vectors[rows]) & has_label(labels[rows])]
    parts = _quarters(labels, np.random.default_rng(0).permutation(rows), numeric=numeric)
    fitted, held_out = np.concatenate(parts[:2]), np.concatenate(parts[2:])
    erasure = Erasure(numeric).fit(vectors[fitted], labels[fitted])
    before = vectors[held_out].astype(np.float64)
    stages, part = (
        (before, erasure.transform(before).astype(np.float64)),
        np.repeat([0, 1], [len(parts[2]), len(parts[3])]),
    )
    targets = labels[held_out]
    groups = groups_of(targets)
    counts = np.bincount(groups)
    if numeric:
        told = [max(_explained(stage, targets, part), 0.0) for stage in stages]
        guess, error = 0.0, _LEAST_R2 / _CERTAIN
    else:
        told, guess = [_accuracy(stage, groups, part) for stage in stages], 1 / len(counts)
        error = math.sqrt(guess * (1 - guess) * (1 / counts).sum()) / len(counts)
    same = [float((groups[nearest_rows(stage)] == groups).mean()) for stage in stages]
    by_chance = float((counts / len(groups) * (counts - 1) / max(len(groups) - 1, 1)).sum())
    overlap = None if texts is None else _agreement(stages, groups, [texts[row] for row in held_out])
    is_visible = told[0] - guess > _CERTAIN * error
    return Effect(len(held_out), (told[0], told[1], guess), (same[0], same[1], by_chance), overlap, is_visible)


def _quarters(labels: NDArray[Any], rows: NDArray[np.intp], *, numeric: bool) -> list[NDArray[np.intp]]:
    """Four parts of a sample, each with its share of every value."""
    if numeric:
        rows = rows[:_SAMPLE]
        rows = rows[np.argsort(labels[rows], kind="stable")]
        return [rows[each::4] for each in range(4)]
    groups = groups_of(labels[rows])
    most = max(_SAMPLE // (groups.max() + 1), 2 * FEWEST_TEXTS)
    by_value = [rows[groups == each][:most] for each in range(groups.max() + 1)]
    return [np.concatenate([part[each::4] for part in by_value]) for each in range(4)]


def _accuracy(rows: Double, groups: NDArray[np.intp], part: NDArray[np.intp]) -> float:
    """Share of right answers of a classifier fitted on the other part, each value counting the same."""
    scaled = (rows - rows.mean(axis=0)) / max(math.sqrt(rows.var(axis=0).mean()), 1e-300)
    targets, n_values = np.eye(groups.max() + 1)[groups], groups.max() + 1
    right = np.zeros(len(rows))
    for each in (0, 1):
        fitted = part != each
        shares = (1 / np.maximum(targets[fitted].sum(axis=0), 1))[groups[fitted]] * fitted.sum() / n_values
        [fit] = logistic_path(scaled[fitted], targets[fitted], shares[:, None], [_C])
        right[~fitted] = fit.probabilities(scaled[~fitted])[:, :, 0].argmax(axis=1) == groups[~fitted]
    return float(np.mean([right[groups == each].mean() for each in range(n_values)]))


def _explained(rows: Double, numbers: Double, part: NDArray[np.intp]) -> float:
    """Share of the variance of numbers that a linear regression fitted on the other part explains."""
    folds = JointFolds.from_rows(rows, numbers[:, None], part, n_folds=2)
    return max(folds.r2(penalty) for penalty in _PENALTIES)


def _agreement(stages: Sequence[Double], groups: NDArray[np.intp], texts: list[str]) -> tuple[float, float] | None:
    """Rank correlation of cosines with word overlap within each value, weighted by its texts, before and after."""
    totals, weight = np.zeros(len(stages)), 0
    for value in np.unique(groups):
        rows = np.flatnonzero(groups == value)
        if len(rows) < _FEWEST_IN_VALUE:
            continue
        for half in sample_pairs([texts[row] for row in rows]):
            units = [unit_rows(stage[rows]) for stage in stages]
            cosines = [np.einsum("ij,ij->i", each[half.first], each[half.second]) for each in units]
            found = [spearman(each, half.overlap) for each in cosines]
            if not np.isnan(found).any():
                totals, weight = totals + np.array(found) * len(rows), weight + len(rows)
    return (float(totals[0] / weight), float(totals[1] / weight)) if weight else None
