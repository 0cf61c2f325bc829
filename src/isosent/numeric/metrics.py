"""Correlations that score similarity against human judgement."""

import numpy as np
import scipy  # scipy.stats is loaded when it is first used
from numpy.typing import NDArray


def pearson(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Pearson correlation.

    Parameters
    ----------
    a, b : ndarray of shape (n_pairs,), float
        Paired values.

    Returns
    -------
    float
        In [-1, 1]; NaN, undefined, where either is constant or there are fewer than two pairs.

    Examples
    --------
    >>> import numpy as np
    >>> pearson(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 6.0]))
    1.0
    """
    if len(a) < 2 or a.min() == a.max() or b.min() == b.max():
        return float("nan")
    x, y = a.astype(np.float64), b.astype(np.float64)
    x, y = x - x.mean(), y - y.mean()
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))


def spearman(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Spearman rank correlation; ties get their mean rank.

    Parameters
    ----------
    a, b : ndarray of shape (n_pairs,), float
        Paired values.

    Returns
    -------
    float
        In [-1, 1]; NaN, undefined, where either is constant or there are fewer than two pairs.

    Examples
    --------
    >>> import numpy as np
    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 8.0, 9.0]))
    1.0
    """
    return pearson(scipy.stats.rankdata(a), scipy.stats.rankdata(b))
