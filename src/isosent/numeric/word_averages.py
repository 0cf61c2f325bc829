"""Averages of word vectors: weighted, coordinate by coordinate (uSIF), and power means."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError
from isosent.numeric.compiled import njit
from isosent.numeric.threads import over_chunks


def sif_weights(probabilities: NDArray[np.floating], a: float = 1e-3) -> NDArray[np.float64]:
    """Smooth inverse frequency weight of each word."""
    # :math:`w_i = a / (a + p_i)`, Arora, Liang & Ma 2017, section 3. Computed in float64.
    if not a > 0:
        raise InputError(f"sif_weights: a must be > 0; got {a}.")
    return a / (a + _checked("sif_weights", probabilities))


def usif_weights(probabilities: NDArray[np.floating], mean_length: float) -> NDArray[np.float64]:
    """Weight of each word by unsupervised smooth inverse frequency."""
    # :math:`w = a / (a / 2 + p)` with :math:`a = (1 - \alpha) / (\alpha Z)`, :math:`Z = |V| / 2`, and :math:`\alpha`
    # the share of the words with :math:`p > 1 - (1 - 1 / |V|)^n`, n the mean length and V the words of known
    # frequency; Ethayarajh 2018, *Unsupervised Random Walk Sentence Embeddings*, section 3.2. Of the words, at least
    # one and not all count as above the bound, so that a stays positive and finite.
    checked = _checked("usif_weights", probabilities)
    known = checked[checked > 0]
    if not len(known):
        raise InputError("usif_weights: at least one word must have a frequency; got none.")
    if not mean_length >= 1:
        raise InputError(f"usif_weights: mean_length must be at least 1; got {mean_length}.")
    size = len(known)
    n_frequent = np.count_nonzero(known > 1 - (1 - 1 / size) ** mean_length)
    alpha = float(np.clip(n_frequent, 1, max(size - 1, 1))) / size if size > 1 else 0.5
    a = (1 - alpha) / (alpha * size / 2)
    return np.asarray(a / (a / 2 + np.where(checked > 0, checked, known.min())))


def _checked(where: str, probabilities: NDArray[np.floating]) -> NDArray[np.float64]:
    checked = np.asarray(probabilities, dtype=np.float64)
    if not ((checked >= 0) & (checked <= 1)).all():
        raise InputError(f"{where}: probabilities must lie in [0, 1]; got {checked.min()} ... {checked.max()}.")
    return checked


Single = NDArray[np.float32]
Double = NDArray[np.float64]

Ids = NDArray[np.int32]
Bounds = NDArray[np.int64]
_FAST = {"contract", "nsz"}
_SKIP: Single = np.empty(0, dtype=np.float32)


def weighted_means(
    rows: NDArray[np.float32],
    ids: NDArray[np.int32],
    offsets: NDArray[np.int64],
    weights: NDArray[np.float32] | None = None,
) -> NDArray[np.float32]:
    r"""Means of weighted word vectors, :math:`\frac{1}{n} \sum_i a_i v_i`."""
    means = np.zeros((len(offsets) - 1, rows.shape[1]), dtype=np.float32)
    token_weights = _SKIP if weights is None else weights
    over_chunks(lambda *chunk: _mean_kernel(rows, ids, offsets, chunk, token_weights, means), offsets)
    return means


def balanced_means(
    rows: NDArray[np.float32], ids: NDArray[np.int32], offsets: NDArray[np.int64], weights: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Weighted means of word vectors with each coordinate divided by its norm over the text (uSIF)."""
    # The normalisation of Ethayarajh 2018, *Unsupervised Random Walk Sentence Embeddings*, as its author's code has
    # it.
    means = np.zeros((len(offsets) - 1, rows.shape[1]), dtype=np.float32)
    over_chunks(lambda *chunk: _balanced_kernel(rows, ids, offsets, chunk, weights, means), offsets)
    return means


def power_means(
    rows: NDArray[np.float32], ids: NDArray[np.int32], offsets: NDArray[np.int64], powers: Sequence[float]
) -> NDArray[np.float32]:
    """Concatenated power means of word vectors (Rueckle et al. 2018)."""
    # :math:`\operatorname{Re} \left( \frac{1}{n} \sum_i v_i^p \right)^{1/p}` by coordinate, in complex numbers with
    # principal values, as the authors compute it: for p = 3 a negative mean :math:`-m` gives :math:`m^{1/3} \cos(\pi
    # / 3)`, which is not the signed root.
    exponents = np.array(powers, dtype=np.float64)
    means = np.zeros((len(offsets) - 1, len(exponents), rows.shape[1]), dtype=np.float32)
    over_chunks(lambda *chunk: _power_kernel(rows, ids, offsets, chunk, exponents, means), offsets)
    return means.reshape(len(means), len(exponents) * rows.shape[1])


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _mean_kernel(
    rows: Single, ids: Ids, offsets: Bounds, chunk: tuple[int, int], weights: Single, means: Single
) -> None:
    # rows are addressed by two indices, four at a time: views are counted references
    one = np.float32(1)
    for text in range(chunk[0], chunk[1]):
        first, last = offsets[text], offsets[text + 1]
        in_fours = first + (last - first) // 4 * 4
        for i in range(first, in_fours, 4):
            a, b, c, d = ids[i], ids[i + 1], ids[i + 2], ids[i + 3]
            p, q, r, s = one, one, one, one
            if len(weights):
                p, q, r, s = weights[i], weights[i + 1], weights[i + 2], weights[i + 3]
            for k in range(rows.shape[1]):
                means[text, k] = (((means[text, k] + p * rows[a, k]) + q * rows[b, k]) + r * rows[c, k]) + s * rows[
                    d, k
                ]
        for i in range(in_fours, last):
            a = ids[i]
            p = weights[i] if len(weights) else one
            for k in range(rows.shape[1]):
                means[text, k] += p * rows[a, k]
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
