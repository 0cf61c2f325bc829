"""Averages of word vectors: weighted, balanced by coordinate (uSIF), and power means; weights by word frequency."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError, wrong_value
from isosent.numeric.compiled import njit
from isosent.numeric.threads import over_chunks

Single = NDArray[np.float32]
Double = NDArray[np.float64]
Ids = NDArray[np.int32]
Bounds = NDArray[np.int64]

_FEW_TOKENS = 512
_FAST = {"contract", "nsz"}


def sif_weights(probabilities: NDArray[np.floating], a: float = 1e-3) -> Double:
    """Smooth inverse frequency weight a / (a + p) of each word (Arora, Liang & Ma 2017, section 3)."""
    if not a > 0:
        raise wrong_value("sif_weights", "a", "be > 0", a)
    return a / (a + _checked("sif_weights", probabilities))


def usif_weights(probabilities: NDArray[np.floating], mean_length: float) -> Double:
    """Unsupervised smooth inverse frequency weight of each word; words of probability 0 count as the rarest."""
    # w = a / (a / 2 + p) with a = (1 - alpha) / (alpha Z) and Z = |V| / 2; alpha is the share of words with
    # p > 1 - (1 - 1 / |V|)^n, n the mean length of texts and V the words with a frequency; Ethayarajh 2018,
    # "Unsupervised Random Walk Sentence Embeddings", section 3.2. At least one word, and not all, count as above the
    # bound, so that a stays positive and finite.
    checked = _checked("usif_weights", probabilities)
    frequent = checked[checked > 0]
    if not len(frequent):
        raise InputError("no word has a frequency.", where="usif_weights")
    if not mean_length >= 1:
        raise wrong_value("usif_weights", "mean_length", "be at least 1", mean_length)
    vocab_size = len(frequent)
    n_above = np.count_nonzero(frequent > 1 - (1 - 1 / vocab_size) ** mean_length)
    alpha = float(np.clip(n_above, 1, max(vocab_size - 1, 1))) / vocab_size if vocab_size > 1 else 0.5
    a = (1 - alpha) / (alpha * vocab_size / 2)
    return np.asarray(a / (a / 2 + np.where(checked > 0, checked, frequent.min())))


def _checked(where: str, probabilities: NDArray[np.floating]) -> Double:
    checked = np.asarray(probabilities, dtype=np.float64)
    if not ((checked >= 0) & (checked <= 1)).all():
        raise wrong_value(where, "probabilities", "lie in [0, 1]", f"{checked.min()} ... {checked.max()}")
    return checked


# Below, the words of text i are rows ids[offsets[i]:offsets[i + 1]]. A text without words has the zero row.


def weighted_means(rows: Single, ids: Ids, offsets: Bounds, weights: Single | None = None) -> Single:
    """Means of weighted word vectors, (n_texts, dim): the sum of a_i v_i divided by the number of words."""
    means = np.zeros((len(offsets) - 1, rows.shape[1]), dtype=np.float32)
    if weights is not None:
        over_chunks(lambda *chunk: _mean_kernel(rows, ids, offsets, chunk, weights, means), offsets)
        return means
    # Both ways add word after word in float32, so they give the same bits.
    with np.errstate(all="ignore"):
        if len(ids) <= _FEW_TOKENS:  # importing scipy.sparse takes longer
            for text, (first, last) in enumerate(pairwise(offsets)):
                if first < last:
                    means[text] += np.add.accumulate(rows.take(ids[first:last], axis=0), axis=0)[-1]
        else:
            over_chunks(lambda *chunk: _add_words(rows, ids, offsets, chunk, means), offsets)
        means /= np.maximum(np.diff(offsets), 1).astype(np.float32)[:, np.newaxis]
    return means


def _add_words(rows: Single, ids: Ids, offsets: Bounds, chunk: tuple[int, int], means: Single) -> None:
    """Sums of the word vectors of a chunk of texts: a matrix of ones for their words, times the rows."""
    from scipy.sparse import csr_array

    bounds = offsets[chunk[0] : chunk[1] + 1]
    words = ids[bounds[0] : bounds[-1]]
    ones = np.ones(len(words), dtype=np.float32)
    counts = csr_array((ones, words, bounds - bounds[0]), shape=(len(bounds) - 1, len(rows)))
    means[chunk[0] : chunk[1]] = counts @ rows


def balanced_means(rows: Single, ids: Ids, offsets: Bounds, weights: Single) -> Single:
    """Weighted means, (n_texts, dim), with each coordinate divided by its norm over the text (uSIF)."""
    # The normalisation of Ethayarajh 2018, as in its author's code.
    means = np.zeros((len(offsets) - 1, rows.shape[1]), dtype=np.float32)
    over_chunks(lambda *chunk: _balanced_kernel(rows, ids, offsets, chunk, weights, means), offsets)
    return means


def power_means(rows: Single, ids: Ids, offsets: Bounds, powers: Sequence[float]) -> Single:
    """Concatenated power means of word vectors (Rueckle et al. 2018), (n_texts, n_powers * dim)."""
    # Re((sum_i v_i^p / n)^(1/p)) by coordinate, in complex numbers with principal values, as the authors compute it:
    # for p = 3 a negative mean -m gives m^(1/3) cos(pi / 3), which is not the signed root.
    exponents = np.array(powers, dtype=np.float64)
    means = np.zeros((len(offsets) - 1, len(exponents), rows.shape[1]), dtype=np.float32)
    over_chunks(lambda *chunk: _power_kernel(rows, ids, offsets, chunk, exponents, means), offsets)
    return means.reshape(len(means), len(exponents) * rows.shape[1])


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _mean_kernel(
    rows: Single, ids: Ids, offsets: Bounds, chunk: tuple[int, int], weights: Single, means: Single
) -> None:
    # rows are addressed by two indices, four at a time: views are counted references
    for text in range(chunk[0], chunk[1]):
        first, last = offsets[text], offsets[text + 1]
        in_fours = first + (last - first) // 4 * 4
        for i in range(first, in_fours, 4):
            a, b, c, d = ids[i], ids[i + 1], ids[i + 2], ids[i + 3]
            p, q, r, s = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
            for k in range(rows.shape[1]):
                means[text, k] = (((means[text, k] + p * rows[a, k]) + q * rows[b, k]) + r * rows[c, k]) + s * rows[
                    d, k
                ]
        for i in range(in_fours, last):
            word, weight = ids[i], weights[i]
            for k in range(rows.shape[1]):
                means[text, k] += weight * rows[word, k]
        n_words = np.float32(max(1, last - first))
        for k in range(rows.shape[1]):
            means[text, k] /= n_words


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _balanced_kernel(
    rows: Single, ids: Ids, offsets: Bounds, chunk: tuple[int, int], weights: Single, means: Single
) -> None:
    dim = rows.shape[1]
    squares = np.empty(dim, dtype=np.float32)
    for text in range(chunk[0], chunk[1]):
        first, last = offsets[text], offsets[text + 1]
        for k in range(dim):
            squares[k] = 0
        for i in range(first, last):
            word, weight = ids[i], weights[i]
            for k in range(dim):
                means[text, k] += weight * rows[word, k]
                squares[k] += rows[word, k] * rows[word, k]
        for k in range(dim):
            if squares[k] > 0:
                means[text, k] /= np.float32(last - first) * np.sqrt(squares[k])


@njit(cache=True, nogil=True, error_model="numpy")
def _power_kernel(
    rows: Single, ids: Ids, offsets: Bounds, chunk: tuple[int, int], powers: Double, means: Single
) -> None:
    for text in range(chunk[0], chunk[1]):
        first, last = offsets[text], offsets[text + 1]
        if first == last:
            continue
        for p in range(len(powers)):
            if powers[p] == 1:
                _add_mean(rows, ids, (first, last), (text, p), means)
            elif np.isinf(powers[p]):
                _take_extreme(rows, ids, (first, last), (text, p), powers[p] > 0, means)
            else:
                _add_power_mean(rows, ids, (first, last), (text, p), powers[p], means)


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _add_mean(rows: Single, ids: Ids, words: tuple[int, int], place: tuple[int, int], means: Single) -> None:
    (first, last), (text, p) = words, place
    for i in range(first, last):
        word = ids[i]
        for k in range(rows.shape[1]):
            means[text, p, k] += rows[word, k]
    scale = np.float32(1) / np.float32(last - first)
    for k in range(rows.shape[1]):
        means[text, p, k] *= scale


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _take_extreme(
    rows: Single, ids: Ids, words: tuple[int, int], place: tuple[int, int], upper: bool, means: Single
) -> None:
    (first, last), (text, p) = words, place
    word = ids[first]
    for k in range(rows.shape[1]):
        means[text, p, k] = rows[word, k]
    for i in range(first + 1, last):
        word = ids[i]
        for k in range(rows.shape[1]):
            here, there = means[text, p, k], rows[word, k]
            means[text, p, k] = there if (there > here) == upper else here


@njit(cache=True, nogil=True, error_model="numpy")
def _add_power_mean(
    rows: Single, ids: Ids, words: tuple[int, int], place: tuple[int, int], power: float, means: Single
) -> None:
    (first, last), (text, p) = words, place
    turn = np.exp(1j * np.pi * power)
    if power == np.round(power):
        turn = complex(1 - 2 * (power % 2), 0)
    for k in range(rows.shape[1]):
        total = 0j
        for i in range(first, last):
            x = np.float64(rows[ids[i], k])
            total += abs(x) ** power * turn if x < 0 else complex(x**power, 0)
        mean = total / (last - first)
        means[text, p, k] = abs(mean) ** (1 / power) * np.cos(np.arctan2(mean.imag, mean.real) / power)
