"""Tests of whether the difference of two results over the same items could be chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
import scipy
from numpy.typing import NDArray

Statistic = Literal["spearman", "pearson", "mean"]
Weighted = Callable[[NDArray[np.float64]], NDArray[np.float64]]

N_RESAMPLES = 1000
LEVEL = 0.95
_CELLS = 250_000  # a block and what is made of it stay in the cache
_ROUNDING = 1e-12


def resampled_counts(n_items: int, *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> Iterator[NDArray[np.float64]]:
    """Draw items with replacement, as often as there are items; the same draws for the same seed and number."""
    random = np.random.default_rng(seed)
    size = max(1, _CELLS // n_items)
    for start in range(0, n_resamples, size):
        rows = min(size, n_resamples - start)
        drawn = random.integers(n_items, size=(rows, n_items)) + n_items * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * n_items).reshape(rows, n_items).astype(np.float64)


def weighted_statistic(
    statistic: Statistic, values: NDArray[np.floating], gold: NDArray[np.floating] | None = None
) -> Weighted:
    """Make what computes a statistic of items that count several times."""
    # Ranks of a draw follow from the order of all items, which is found once: an item's mean rank is the number of
    # drawn items below its group of equal ones, plus half of that group and one half. No draw is sorted.
    x = values.astype(np.float64)
    if statistic == "mean":
        return lambda counts: counts @ x / counts.sum(axis=1)
    if gold is None:
        raise TypeError(f"{statistic} needs gold scores")
    y = gold.astype(np.float64)
    if statistic == "pearson":
        x, y = x - x.mean(), y - y.mean()
        columns = np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)
        return lambda counts: _pearson_of_sums(*(counts @ columns).T)
    ranks_of_x, ranks_of_y = _drawn_ranks(x), _drawn_ranks(y)

    def spearman_of(counts: NDArray[np.float64]) -> NDArray[np.float64]:
        a, b = ranks_of_x(counts), ranks_of_y(counts)
        middle = (counts.sum(axis=1, keepdims=True) + 1) / 2
        a, b = a - middle, b - middle
        weighted = counts * a
        return _correlation(
            np.einsum("ij,ij->i", weighted, a),
            np.einsum("ij,ij->i", counts * b, b),
            np.einsum("ij,ij->i", weighted, b),
        )

    return spearman_of


def bootstrap_interval(
    statistic: Statistic,
    values: NDArray[np.floating],
    gold: NDArray[np.floating] | None = None,
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """Percentile interval of a statistic over resampled items, at 95 %."""
    if len(values) < 2:
        return float("nan"), float("nan")
    of = weighted_statistic(statistic, values, gold)
    draws = [of(counts) for counts in resampled_counts(len(values), n_resamples=n_resamples, seed=seed)]
    return central_interval(np.concatenate(draws))


def central_interval(draws: NDArray[np.float64], level: float = LEVEL) -> tuple[float, float]:
    """Percentiles that leave out the same share of draws at both ends, `level` between them; NaN if a draw is NaN."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _drawn_ranks(values: NDArray[np.float64]) -> Weighted:
    """From counts to the mean rank of each item within its draw."""
    order = np.argsort(values, kind="stable")
    sorted_values = values[order]
    first = np.flatnonzero(np.concatenate([[True], sorted_values[1:] != sorted_values[:-1]]))
    group = np.empty(len(values), dtype=np.intp)
    group[order] = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(values))))

    def ranks(counts: NDArray[np.float64]) -> NDArray[np.float64]:
        sizes = np.add.reduceat(counts[:, order], first, axis=1)
        middle = np.cumsum(sizes, axis=1) - sizes / 2 + 0.5
        spread: NDArray[np.float64] = middle[:, group]
        return spread

    return ranks


def _pearson_of_sums(
    n: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    xx: NDArray[np.float64],
    yy: NDArray[np.float64],
    xy: NDArray[np.float64],
) -> NDArray[np.float64]:
    return _correlation(_about_the_mean(n, x, xx), _about_the_mean(n, y, yy), xy - x * y / n)


def _about_the_mean(n: NDArray[np.float64], x: NDArray[np.float64], xx: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of squares about the mean, 0 where nothing but rounding is left of it: the drawn values are all the same."""
    about = xx - x * x / n
    return np.where(about > _ROUNDING * xx, about, 0)


def _correlation(xx: NDArray[np.float64], yy: NDArray[np.float64], xy: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((xx > 0) & (yy > 0), np.clip(xy / np.sqrt(xx * yy), -1, 1), np.nan)


_ROUNDING_significance = 1e-12  # of a correlation: predictions that are this close are the same


def williams_test(first: float, second: float, between: float, n_items: int) -> tuple[float, float]:
    """Test whether two correlations with the same third variable differ, on the same items."""
    # .. math::
    # t = (r_1 - r_2) \sqrt{\frac{(n - 1)(1 + r_{12})} {2 \frac{n - 1}{n - 3} |R| + \bar{r}^2 (1 - r_{12})^3}}
    # with :math:`|R| = 1 - r_1^2 - r_2^2 - r_{12}^2 + 2 r_1 r_2 r_{12}` and :math:`\bar{r} = (r_1 + r_2) / 2`:
    # Williams's statistic as given by Steiger 1980, equation 7. It assumes that the three variables are jointly
    # normal. Predictions that correlate to within 1e-12 of 1 are taken as the same ones.
    if n_items < 4 or np.isnan([first, second, between]).any():
        return float("nan"), float("nan")
    if first == second or 1 - between < _ROUNDING_significance:
        return 0.0, 1.0
    determinant = max(0.0, 1 - first**2 - second**2 - between**2 + 2 * first * second * between)
    spread = 2 * (n_items - 1) / (n_items - 3) * determinant + ((first + second) / 2) ** 2 * (1 - between) ** 3
    with np.errstate(divide="ignore"):
        t = (first - second) * np.sqrt(np.float64((n_items - 1) * (1 + between)) / spread)
    return float(t), float(2 * scipy.special.stdtr(n_items - 3, -abs(t)))


def mcnemar_exact(first: NDArray[np.floating], second: NDArray[np.floating]) -> float:
    """Test whether two results are right equally often, by the items that only one of them gets right."""
    # Of the items that one of the two gets right, each falls to either with the same chance: an exact binomial test.
    # It takes items as drawn on their own; where several were predicted by one classifier, the chance in its training
    # is left out.
    only_first, only_second = int((first > second).sum()), int((second > first).sum())
    fewer, n_told = min(only_first, only_second), only_first + only_second
    return min(1.0, 2 * float(scipy.special.bdtr(fewer, n_told, 0.5)))


def bootstrap_differences(
    statistic: Statistic,
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    gold: NDArray[np.floating] | None = None,
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Resample a statistic of two results over the same items, the same items drawn for both."""
    of_first, of_second = (weighted_statistic(statistic, values, gold) for values in (first, second))
    draws = resampled_counts(len(first), n_resamples=n_resamples, seed=seed)
    return np.concatenate([of_second(counts) - of_first(counts) for counts in draws])


def bootstrap_p_value(differences: NDArray[np.float64]) -> float:
    """Two-sided p-value of the hypothesis that there is no difference, from resampled differences."""
    if np.isnan(differences).any():
        return float("nan")
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (rarer + 1) / (len(differences) + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for the number of tests, so that one false finding among all of them is as rare as in one test."""  # noqa: E501
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values)[: int((~np.isnan(values)).sum())]
    corrected = np.full(len(values), np.nan)
    corrected[order] = np.maximum.accumulate(values[order] * np.arange(len(order), 0, -1)).clip(max=1)
    return [float(value) for value in corrected]
