"""The bootstrap: how far a score could have fallen otherwise, had other items of the same kind been drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Statistic = Literal["spearman", "pearson", "mean"]
Weighted = Callable[[NDArray[np.float64]], NDArray[np.float64]]

N_RESAMPLES = 1000
LEVEL = 0.95
_CELLS = 250_000  # a block and what is made of it stay in the cache
_ROUNDING = 1e-12


def resampled_counts(n_items: int, *, n_resamples: int = N_RESAMPLES, seed: int = 0) -> Iterator[NDArray[np.float64]]:
    """Draw items with replacement, as often as there are items; the same draws for the same seed and number.

    Parameters
    ----------
    n_items : int
        Items, at least 1.
    n_resamples : int, default 1000
        Draws.
    seed : int, default 0
        Of the random numbers.

    Yields
    ------
    ndarray of shape (n_block, n_items), float64
        How often each item was drawn; the blocks hold `n_resamples` rows in all.
    """
    random = np.random.default_rng(seed)
    size = max(1, _CELLS // n_items)
    for start in range(0, n_resamples, size):
        rows = min(size, n_resamples - start)
        drawn = random.integers(n_items, size=(rows, n_items)) + n_items * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * n_items).reshape(rows, n_items).astype(np.float64)


def weighted_statistic(
    statistic: Statistic, values: NDArray[np.floating], gold: NDArray[np.floating] | None = None
) -> Weighted:
    """Make what computes a statistic of items that count several times.

    Parameters
    ----------
    statistic : {"spearman", "pearson", "mean"}
        The statistic; a mean needs no `gold`.
    values, gold : ndarray of shape (n_items,), float
        Items.

    Returns
    -------
    callable
        From counts of shape (n_draws, n_items) to the statistic of each draw, float64; NaN where it is undefined.

    Notes
    -----
    Ranks of a draw follow from the order of all items, which is found once: an item's mean rank is the number of drawn
    items below its group of equal ones, plus half of that group and one half. No draw is sorted.
    """
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
    """Percentile interval of a statistic over resampled items, at 95 %.

    Parameters
    ----------
    statistic : {"spearman", "pearson", "mean"}
        The statistic.
    values, gold : ndarray of shape (n_items,), float
        Items; a mean needs no `gold`.
    n_resamples : int, default 1000
        Draws.
    seed : int, default 0
        Of the random numbers.

    Returns
    -------
    low, high : float
        Ends of the interval; NaN where the statistic is undefined in any draw or there are fewer than two items.

    References
    ----------
    Efron 1979, *Bootstrap methods: another look at the jackknife*.

    Examples
    --------
    >>> bootstrap_interval("mean", np.ones(50))
    (1.0, 1.0)
    """
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
