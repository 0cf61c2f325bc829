"""Bootstrap intervals, and tests of whether two results over the same items differ by chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Statistic = Literal["spearman", "pearson", "mean"]
Double = NDArray[np.float64]
Weighted = Callable[[Double], Double]

INTERVAL_RESAMPLES = 1000  # for an interval
N_RESAMPLES = 2000  # of results; their smallest p-value is 2 / 2001: enough for a correction over 50 tasks
LEVEL = 0.95
_CELLS = 250_000  # a block of draws and what is computed from it stay in the cache
_ROUNDING = 1e-12


def bootstrap_interval(
    statistic: Statistic,
    values: NDArray[np.floating],
    gold: NDArray[np.floating] | None = None,
    *,
    n_resamples: int = INTERVAL_RESAMPLES,
    seed: int = 0,
) -> tuple[float, float]:
    """95% percentile interval of a statistic over resampled items; NaN for fewer than two items."""
    if len(values) < 2:
        return float("nan"), float("nan")
    return central_interval(bootstrap_draws(statistic, values, gold, n_resamples=n_resamples, seed=seed))


def bootstrap_draws(
    statistic: Statistic,
    values: NDArray[np.floating],
    gold: NDArray[np.floating] | None = None,
    *,
    n_resamples: int = INTERVAL_RESAMPLES,
    seed: int = 0,
) -> Double:
    """A statistic of resampled items, shape (n_resamples,)."""
    resampled = weighted_statistic(statistic, values, gold)
    draws = resampled_counts(len(values), n_resamples=n_resamples, seed=seed)
    return np.concatenate([resampled(counts) for counts in draws])


def bootstrap_differences(
    statistic: Statistic,
    first: NDArray[np.floating],
    second: NDArray[np.floating],
    gold: NDArray[np.floating] | None = None,
    *,
    n_resamples: int = INTERVAL_RESAMPLES,
    seed: int = 0,
) -> Double:
    """Second minus first, shape (n_resamples,), with the same items drawn for both results."""
    resampled_first, resampled_second = (weighted_statistic(statistic, values, gold) for values in (first, second))
    draws = resampled_counts(len(first), n_resamples=n_resamples, seed=seed)
    return np.concatenate([resampled_second(counts) - resampled_first(counts) for counts in draws])


def bootstrap_p_value(differences: Double) -> float:
    """Two-sided p-value of the hypothesis of no difference, from resampled differences."""
    if np.isnan(differences).any():
        return float("nan")
    n_opposite = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (n_opposite + 1) / (len(differences) + 1))


def smallest_p_value(n_resamples: int) -> float:
    """The p-value that `bootstrap_p_value` gives where all draws agree, so that it is only an upper bound."""
    return min(1.0, 2 / (n_resamples + 1))


def central_interval(draws: Double, level: float = LEVEL) -> tuple[float, float]:
    """Interval that holds a share `level` of the draws, with equal tails; NaN if a draw is NaN."""
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def resampled_counts(n_items: int, *, n_resamples: int = INTERVAL_RESAMPLES, seed: int = 0) -> Iterator[Double]:
    """How often each of n_items is drawn, with replacement, in n_resamples resamples: blocks (n_draws, n_items)."""
    random = np.random.default_rng(seed)
    size = max(1, _CELLS // n_items)
    for start in range(0, n_resamples, size):
        n_draws = min(size, n_resamples - start)
        items = random.integers(n_items, size=(n_draws, n_items)) + n_items * np.arange(n_draws)[:, None]
        yield np.bincount(items.ravel(), minlength=n_draws * n_items).reshape(n_draws, n_items).astype(np.float64)


def mean_draws(values: Double, *, seed: int = 0) -> Double:
    """Means of each row of values, (n_rows, n_items), in resamples of the items, which are the same for all rows."""
    n_items = values.shape[1]
    return np.concatenate([counts @ values.T for counts in resampled_counts(n_items, seed=seed)]).T / n_items


def weighted_statistic(
    statistic: Statistic, values: NDArray[np.floating], gold: NDArray[np.floating] | None = None
) -> Weighted:
    """Make a function from counts, (n_draws, n_items), to the statistic of each draw, (n_draws,)."""
    x = values.astype(np.float64)
    if statistic == "mean":
        return lambda counts: counts @ x / counts.sum(axis=1)
    if gold is None:
        raise TypeError(f"{statistic} needs gold scores")
    y = gold.astype(np.float64)
    if statistic == "pearson":
        return weighted_pearson(x, y, np.arange(len(x)))
    ranks_of_x, ranks_of_y = _ranks_in_draws(x), _ranks_in_draws(y)

    def spearman(counts: Double) -> Double:
        middle = (counts.sum(axis=1, keepdims=True) + 1) / 2
        a, b = ranks_of_x(counts) - middle, ranks_of_y(counts) - middle
        weighted = counts * a
        return _correlation(
            np.einsum("ij,ij->i", weighted, a),
            np.einsum("ij,ij->i", counts * b, b),
            np.einsum("ij,ij->i", weighted, b),
        )

    return spearman


def weighted_pearson(x: Double, y: Double, group: NDArray[np.intp]) -> Weighted:
    """Make a function from counts of groups, (n_draws, n_groups), to the Pearson correlation of each draw."""
    x, y = x - x.mean(), y - y.mean()
    columns = np.stack([np.bincount(group, weights=z) for z in (np.ones_like(x), x, y, x * x, y * y, x * y)], axis=1)
    return lambda counts: _pearson_of_sums(*(counts @ columns).T)


def _ranks_in_draws(values: Double) -> Weighted:
    """Make a function from counts to the mean rank of each item within its draw."""
    # No draw is sorted. The mean rank of an item is the number of drawn items with a lower value, plus half the number
    # of drawn items with the same value, plus one half. Items are grouped by value once.
    order = np.argsort(values, kind="stable")
    sorted_values = values[order]
    first = np.flatnonzero(np.concatenate([[True], sorted_values[1:] != sorted_values[:-1]]))
    group = np.empty(len(values), dtype=np.intp)
    group[order] = np.repeat(np.arange(len(first)), np.diff(np.append(first, len(values))))

    def ranks(counts: Double) -> Double:
        sizes = np.add.reduceat(counts[:, order], first, axis=1)
        rank_of_group: Double = np.cumsum(sizes, axis=1) - sizes / 2 + 0.5
        return rank_of_group[:, group]

    return ranks


def _pearson_of_sums(n: Double, x: Double, y: Double, xx: Double, yy: Double, xy: Double) -> Double:
    def centered(total: Double, squares: Double) -> Double:
        centered_squares = squares - total * total / n
        # all drawn values are the same if only rounding is left
        return np.where(centered_squares > _ROUNDING * squares, centered_squares, 0)

    return _correlation(centered(x, xx), centered(y, yy), xy - x * y / n)


def _correlation(xx: Double, yy: Double, xy: Double) -> Double:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((xx > 0) & (yy > 0), np.clip(xy / np.sqrt(xx * yy), -1, 1), np.nan)


def williams_test(first: float, second: float, between: float, n_items: int) -> tuple[float, float]:
    """Statistic and two-sided p-value of the difference of two correlations with the same third variable."""
    # t = (r1 - r2) sqrt((n - 1) (1 + r12) / (2 |R| (n - 1) / (n - 3) + r^2 (1 - r12)^3)), where
    # |R| = 1 - r1^2 - r2^2 - r12^2 + 2 r1 r2 r12 and r = (r1 + r2) / 2: Williams's statistic as in Steiger 1980,
    # equation 7. Assumes that the three variables are jointly normal.
    from scipy.special import stdtr

    if n_items < 4 or np.isnan([first, second, between]).any():
        return float("nan"), float("nan")
    if first == second or 1 - between < _ROUNDING:  # predictions this close are the same
        return 0.0, 1.0
    determinant = max(0.0, 1 - first**2 - second**2 - between**2 + 2 * first * second * between)
    spread = 2 * (n_items - 1) / (n_items - 3) * determinant + ((first + second) / 2) ** 2 * (1 - between) ** 3
    with np.errstate(divide="ignore"):
        t = (first - second) * np.sqrt(np.float64((n_items - 1) * (1 + between)) / spread)
    return float(t), float(2 * stdtr(n_items - 3, -abs(t)))


def mcnemar_exact(first: NDArray[np.floating], second: NDArray[np.floating]) -> float:
    """Two-sided p-value of two results being right equally often, from the items that only one of them gets right."""
    # An exact binomial test with probability 1/2. It assumes independent items: where one classifier predicted several
    # of them, the randomness of its training is ignored.
    from scipy.special import bdtr

    only_first, only_second = int((first > second).sum()), int((second > first).sum())
    return min(1.0, 2 * float(bdtr(min(only_first, only_second), only_first + only_second, 0.5)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for the number of tests (Holm 1979); NaN stays NaN."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")[: int((~np.isnan(values)).sum())]
    corrected = np.full(len(values), np.nan)
    corrected[order] = np.maximum.accumulate(values[order] * np.arange(len(order), 0, -1)).clip(max=1)
    return [float(value) for value in corrected]
