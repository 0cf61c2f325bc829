"""Tests of whether the difference of two results over the same items could be chance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy  # scipy.special is loaded when it is first used
from numpy.typing import NDArray

from isosent.numeric.resampling import N_RESAMPLES, Statistic, resampled_counts, weighted_statistic

_ROUNDING = 1e-12  # of a correlation: predictions that are this close are the same


def williams_test(first: float, second: float, between: float, n_items: int) -> tuple[float, float]:
    r"""Test whether two correlations with the same third variable differ, on the same items.

    Parameters
    ----------
    first, second : float
        Correlation of either variable with the shared one, in [-1, 1].
    between : float
        Correlation of these two with each other.
    n_items : int
        Items.

    Returns
    -------
    t : float
        The statistic, positive where `first` is the higher one; it has ``n_items - 3`` degrees of freedom.
    p_value : float
        Two-sided. Both are NaN where a correlation is undefined or there are fewer than four items.

    Notes
    -----
    .. math::

        t = (r_1 - r_2) \sqrt{\frac{(n - 1)(1 + r_{12})}
            {2 \frac{n - 1}{n - 3} |R| + \bar{r}^2 (1 - r_{12})^3}}

    with :math:`|R| = 1 - r_1^2 - r_2^2 - r_{12}^2 + 2 r_1 r_2 r_{12}` and :math:`\bar{r} = (r_1 + r_2) / 2`: Williams's
    statistic as given by Steiger 1980, equation 7. It assumes that the three variables are jointly normal.
    Predictions that correlate to within 1e-12 of 1 are taken as the same ones.

    References
    ----------
    Williams 1959, *The comparison of regression variables*. Steiger 1980, *Tests for comparing elements of a
    correlation matrix*.

    Examples
    --------
    >>> t, p_value = williams_test(0.80, 0.72, 0.89, 26)
    >>> round(t, 3), round(p_value, 3)
    (1.361, 0.187)
    """
    if n_items < 4 or np.isnan([first, second, between]).any():
        return float("nan"), float("nan")
    if first == second or 1 - between < _ROUNDING:
        return 0.0, 1.0
    determinant = max(0.0, 1 - first**2 - second**2 - between**2 + 2 * first * second * between)
    spread = 2 * (n_items - 1) / (n_items - 3) * determinant + ((first + second) / 2) ** 2 * (1 - between) ** 3
    with np.errstate(divide="ignore"):
        t = (first - second) * np.sqrt(np.float64((n_items - 1) * (1 + between)) / spread)
    return float(t), float(2 * scipy.special.stdtr(n_items - 3, -abs(t)))


def mcnemar_exact(first: NDArray[np.floating], second: NDArray[np.floating]) -> float:
    """Test whether two results are right equally often, by the items that only one of them gets right.

    Parameters
    ----------
    first, second : ndarray of shape (n_items,), float
        1 where an item is right, 0 where it is wrong.

    Returns
    -------
    float
        Two-sided p-value; 1 where no item tells the two apart.

    Notes
    -----
    Of the items that one of the two gets right, each falls to either with the same chance: an exact binomial test. It
    takes items as drawn on their own; where several were predicted by one classifier, the chance in its training is
    left out.

    References
    ----------
    McNemar 1947, *Note on the sampling error of the difference between correlated proportions or percentages*.

    Examples
    --------
    >>> mcnemar_exact(np.array([1, 1, 1, 1, 1, 1, 0]), np.array([0, 0, 0, 0, 0, 0, 0]))
    0.03125
    """
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
    """Resample a statistic of two results over the same items, the same items drawn for both.

    Parameters
    ----------
    statistic : {"spearman", "pearson", "mean"}
        The statistic.
    first, second, gold : ndarray of shape (n_items,), float
        Items of the two results and, unless it is a mean, what both are correlated with.
    n_resamples : int, default 1000
        Draws.
    seed : int, default 0
        Of the random numbers.

    Returns
    -------
    ndarray of shape (n_resamples,), float64
        Statistic of `second` minus that of `first` in each draw; NaN where one is undefined.

    References
    ----------
    Efron and Tibshirani 1993, *An introduction to the bootstrap*.
    """
    of_first, of_second = (weighted_statistic(statistic, values, gold) for values in (first, second))
    draws = resampled_counts(len(first), n_resamples=n_resamples, seed=seed)
    return np.concatenate([of_second(counts) - of_first(counts) for counts in draws])


def bootstrap_p_value(differences: NDArray[np.float64]) -> float:
    """Two-sided p-value of the hypothesis that there is no difference, from resampled differences.

    Parameters
    ----------
    differences : ndarray of shape (n_resamples,), float64
        What `bootstrap_differences` gives.

    Returns
    -------
    float
        Twice the share of draws on the rarer side of 0, one more counted on each, at most 1; NaN if a draw is NaN. It
        is below 0.05 where the percentile interval of 95 % leaves out 0, up to one draw.

    Examples
    --------
    >>> bootstrap_p_value(np.full(999, 0.01))
    0.002
    """
    if np.isnan(differences).any():
        return float("nan")
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    return min(1.0, 2 * (rarer + 1) / (len(differences) + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for the number of tests, so that one false finding among all of them is as rare as in one test.

    Parameters
    ----------
    p_values : sequence of float
        P-values; those that are NaN are of no test.

    Returns
    -------
    list of float
        Corrected ones in the same order, at most 1; NaN stays NaN.

    References
    ----------
    Holm 1979, *A simple sequentially rejective multiple test procedure*.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values)[: int((~np.isnan(values)).sum())]
    corrected = np.full(len(values), np.nan)
    corrected[order] = np.maximum.accumulate(values[order] * np.arange(len(order), 0, -1)).clip(max=1)
    return [float(value) for value in corrected]
