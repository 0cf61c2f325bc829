"""Correlations that score similarity against human judgement."""

from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from isosent import _check

_BLOCK_NUMBERS = 1 << 18


def unit_rows(rows: NDArray[np.floating]) -> NDArray[np.floating]:
    """Scale each row to length 1; a zero row stays zero.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim), float
        Vectors.

    Returns
    -------
    ndarray of shape (n_rows, dim), same dtype
        Unit vectors.

    Notes
    -----
    A row whose squares leave the range of its dtype is first divided by its largest number.

    Examples
    --------
    >>> import numpy as np
    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    with np.errstate(over="ignore", under="ignore"):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        units: NDArray[np.floating] = rows / np.where(norms > 0, norms, 1)
    limits = np.finfo(norms.dtype)
    trusted = (norms > np.sqrt(limits.tiny) / limits.eps) & (norms < np.inf)
    extreme = np.flatnonzero(~trusted)
    if extreme.size:
        largest = np.abs(rows[extreme]).max(axis=1, keepdims=True, initial=0)
        scaled = rows[extreme] / np.where(largest > 0, largest, 1)
        units[extreme] = scaled / np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1)
    return units


def pairwise_cosine(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.float64]:
    """Cosine of row i of `a` with row i of `b`.

    Parameters
    ----------
    a, b : ndarray of shape (n_pairs, dim), float
        Vectors.

    Returns
    -------
    ndarray of shape (n_pairs,), float64
        In [-1, 1] up to rounding; 0 where either row is zero.

    Raises
    ------
    InputError
        If the widths differ.

    Examples
    --------
    >>> import numpy as np
    >>> pairwise_cosine(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 0.0]]))
    array([1., 0.])
    """
    _check.same_dim("pairwise_cosine", "b", b.shape[1], a.shape[1])
    unit_a, unit_b = unit_rows(a.astype(np.float64)), unit_rows(b.astype(np.float64))
    cosines: NDArray[np.float64] = np.einsum("ij,ij->i", unit_a, unit_b)
    return cosines


def cosine_matrix(a: NDArray[np.floating], b: NDArray[np.floating]) -> NDArray[np.float64]:
    """Cosine of each row of `a` with each row of `b`.

    Parameters
    ----------
    a : ndarray of shape (n_a, dim), float
        Vectors.
    b : ndarray of shape (n_b, dim), float
        Vectors.

    Returns
    -------
    ndarray of shape (n_a, n_b), float64
        In [-1, 1] up to rounding; 0 where either row is zero.

    Raises
    ------
    InputError
        If the widths differ.

    Examples
    --------
    >>> import numpy as np
    >>> cosine_matrix(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0]]))
    array([[1., 0.]])
    """
    _check.same_dim("cosine_matrix", "b", b.shape[1], a.shape[1])
    cosines: NDArray[np.float64] = unit_rows(a.astype(np.float64)) @ unit_rows(b.astype(np.float64)).T
    return cosines


def nearest_rows(rows: NDArray[np.floating], k: int = 1) -> tuple[NDArray[np.intp], NDArray[np.floating]]:
    """The k nearest other rows of every row by cosine.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim), float
        Vectors, few enough for an (n_rows, n_rows) matrix.
    k : int, default 1
        Neighbours a row, below n_rows.

    Returns
    -------
    indices : ndarray of shape (n_rows, k), intp
        Neighbours, nearest first; a row is never its own neighbour, and of equal cosines the earlier row comes first.
    scores : ndarray of shape (n_rows, k)
        Their cosines.

    Examples
    --------
    >>> import numpy as np
    >>> indices, scores = nearest_rows(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]]))
    >>> indices.ravel()
    array([2, 2, 0])
    """
    units = unit_rows(rows)
    cosines = units @ units.T
    np.fill_diagonal(cosines, -np.inf)
    indices = np.argsort(-cosines, axis=1, kind="stable")[:, :k]
    return indices, np.take_along_axis(cosines, indices, axis=1)


def random_cosines(rows: NDArray[Any], *, n_pairs: int, seed: int) -> NDArray[np.float64]:
    """Draw random pairs of different rows and give their cosines.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim), any real dtype
        Vectors, two or more.
    n_pairs : int
        Pairs drawn, with replacement.
    seed : int
        Of the draw: the same pairs for every matrix of as many rows.

    Returns
    -------
    ndarray of shape (n_pairs,), float64
        Their cosines, in [-1, 1], within float32 rounding unless the rows are float64.
    """
    rng = np.random.default_rng(seed)
    first = rng.integers(len(rows), size=n_pairs)
    second = (first + rng.integers(1, len(rows), size=n_pairs)) % len(rows)
    units = unit_rows(rows if rows.dtype == np.float64 else rows.astype(np.float32))
    cosines = np.empty(n_pairs)
    step = max(1, _BLOCK_NUMBERS // rows.shape[1])
    for start in range(0, n_pairs, step):
        part = slice(start, start + step)
        cosines[part] = np.einsum("ij,ij->i", units[first[part]], units[second[part]])
    return np.clip(cosines, -1, 1)


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
