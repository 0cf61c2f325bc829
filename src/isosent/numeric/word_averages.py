"""Averages of word vectors: weighted, coordinate by coordinate (uSIF), and power means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from isosent.numeric.workers import over_chunks

_SKIP: Any = np.empty(0, dtype=np.float32)


def weighted_means(
    rows: NDArray[np.float32],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    r"""Means of weighted word vectors, :math:`\frac{1}{n} \sum_i a_i v_i`.

    Parameters
    ----------
    rows : ndarray of shape (n, dim), float32
        Word vectors.
    ids : ndarray of shape (n_tokens,), int32
        Row of each word of the texts, one text behind the other.
    offsets : ndarray of shape (n_texts + 1,), int64
        Text i has ``ids[offsets[i]:offsets[i + 1]]``.
    weights : ndarray of shape (n_tokens,), float32, optional
        Weight of each word; 1 where left out. The sum is divided by the number of words, not by their weights.

    Returns
    -------
    ndarray of shape (n_texts, dim), float32
        Means, summed in the order of the words; zero for a text without words.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1.0, 0.0], [0.0, 1.0]], dtype=np.float32)
    >>> weighted_means(rows, np.array([0, 0, 1, 1], dtype=np.int32), np.array([0, 3, 3, 4]))
    array([[0.6666667 , 0.33333334],
           [0.        , 0.        ],
           [0.        , 1.        ]], dtype=float32)
    """
    means = np.zeros((len(offsets) - 1, rows.shape[1]), dtype=np.float32)
    token_weights = _SKIP if weights is None else weights
    over_chunks(lambda *chunk: _mean_kernel(rows, ids, offsets, chunk, token_weights, means), offsets)
    return means


def balanced_means(
    rows: NDArray[np.float32], ids: NDArray[np.int32], offsets: NDArray[np.int64], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    r"""Weighted means of word vectors with each coordinate divided by its norm over the text (uSIF).

    Parameters
    ----------
    rows : ndarray of shape (n, dim), float32
        Word vectors.
    ids : ndarray of shape (n_tokens,), int32
        Row of each word of the texts, one text behind the other.
    offsets : ndarray of shape (n_texts + 1,), int64
        Text i has ``ids[offsets[i]:offsets[i + 1]]``.
    weights : ndarray of shape (n_tokens,), float32
        Weight of each word.

    Returns
    -------
    ndarray of shape (n_texts, dim), float32
        :math:`\frac{1}{n} \sum_i a_i v_{ik} / \sqrt{\sum_i v_{ik}^2}`; 0 where every word has 0.

    Notes
    -----
    The normalisation of Ethayarajh 2018, *Unsupervised Random Walk Sentence Embeddings*, as its author's code has it.
    """
    means = np.zeros((len(offsets) - 1, rows.shape[1]), dtype=np.float32)
    over_chunks(lambda *chunk: _balanced_kernel(rows, ids, offsets, chunk, weights, means), offsets)
    return means


def power_means(
    rows: NDArray[np.float32], ids: NDArray[np.int32], offsets: NDArray[np.int64], powers: Sequence[float]
) -> NDArray[np.float32]:
    r"""Concatenated power means of word vectors (Rueckle et al. 2018).

    Parameters
    ----------
    rows : ndarray of shape (n, dim), float32
        Word vectors.
    ids : ndarray of shape (n_tokens,), int32
        Row of each word of the texts, one text behind the other.
    offsets : ndarray of shape (n_texts + 1,), int64
        Text i has ``ids[offsets[i]:offsets[i + 1]]``.
    powers : sequence of float
        Each > 0, or minus infinity (the minimum); infinity is the maximum.

    Returns
    -------
    ndarray of shape (n_texts, len(powers) * dim), float32
        One power behind the other; zero for a text without words.

    Notes
    -----
    :math:`\operatorname{Re} \left( \frac{1}{n} \sum_i v_i^p \right)^{1/p}` by coordinate, in complex numbers with
    principal values, as the authors compute it: for p = 3 a negative mean :math:`-m` gives
    :math:`m^{1/3} \cos(\pi / 3)`, which is not the signed root.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.array([[1.0], [3.0]], dtype=np.float32)
    >>> power_means(rows, np.array([0, 1], dtype=np.int32), np.array([0, 2]), (-np.inf, 1, 3, np.inf)).round(4)
    array([[1.    , 2.    , 2.4101, 3.    ]], dtype=float32)
    """
    exponents = np.array(powers, dtype=np.float64)
    means = np.zeros((len(offsets) - 1, len(exponents) * rows.shape[1]), dtype=np.float32)
    over_chunks(lambda *chunk: _power_kernel(rows, ids, offsets, chunk, exponents, means), offsets)
    return means


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def _mean_kernel(rows, ids, offsets, chunk, weights, means):  # type: ignore[no-untyped-def]
    dim = rows.shape[1]
    for text in range(chunk[0], chunk[1]):
        first, last = offsets[text], offsets[text + 1]
        total = means[text]
        for token in range(first, last):
            row = rows[ids[token]]
            weight = weights[token] if len(weights) else np.float32(1)
            for k in range(dim):
                total[k] += weight * row[k]
        for k in range(dim):
            total[k] /= np.float32(max(1, last - first))


@njit(cache=True, nogil=True, fastmath={"contract", "nsz"})
def _balanced_kernel(rows, ids, offsets, chunk, weights, means):  # type: ignore[no-untyped-def]
    dim = rows.shape[1]
    squares = np.empty(dim, dtype=np.float32)
    for text in range(chunk[0], chunk[1]):
        first, last = offsets[text], offsets[text + 1]
        total = means[text]
        for k in range(dim):
            squares[k] = 0
        for token in range(first, last):
            row = rows[ids[token]]
            weight = weights[token]
            for k in range(dim):
                total[k] += weight * row[k]
                squares[k] += row[k] * row[k]
        for k in range(dim):
            if squares[k] > 0:
                total[k] /= np.float32(last - first) * np.sqrt(squares[k])


@njit(cache=True, nogil=True)
def _power_kernel(rows, ids, offsets, chunk, powers, means):  # type: ignore[no-untyped-def]
    dim = rows.shape[1]
    for text in range(chunk[0], chunk[1]):
        words = ids[offsets[text] : offsets[text + 1]]
        if len(words) == 0:
            continue
        for p in range(len(powers)):
            part = means[text, p * dim : (p + 1) * dim]
            if np.isinf(powers[p]):
                _extreme(rows, words, powers[p] > 0, part)
            elif powers[p] == 1:
                for word in words:
                    row = rows[word]
                    for k in range(dim):
                        part[k] += row[k]
                for k in range(dim):
                    part[k] /= np.float32(len(words))
            else:
                _power_mean(rows, words, powers[p], part)


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _extreme(rows, words, upper, part):  # type: ignore[no-untyped-def]
    part[:] = rows[words[0]]
    for i in range(1, len(words)):
        row = rows[words[i]]
        if upper:
            for k in range(len(part)):
                part[k] = max(part[k], row[k])
        else:
            for k in range(len(part)):
                part[k] = min(part[k], row[k])


@njit(cache=True, nogil=True)
def _power_mean(rows, words, power, part):  # type: ignore[no-untyped-def]
    turn = np.exp(1j * np.pi * power)
    if power == np.round(power):
        turn = complex(1 - 2 * (power % 2), 0)
    for k in range(len(part)):
        total = 0j
        for word in words:
            size = np.float64(abs(rows[word, k])) ** power
            total += size * turn if rows[word, k] < 0 else complex(size, 0)
        mean = total / len(words)
        part[k] = abs(mean) ** (1 / power) * np.cos(np.arctan2(mean.imag, mean.real) / power)
