"""Compiled kernels of GEM's weights: what of a word is new against the other words of its window."""

from __future__ import annotations

import numpy as np
from numba import njit

from isosent.numeric.gram_kernel import RANK_TOLERANCE, Bounds, Double, Ids, Single, padded

_TOLERANCE_SQUARED = RANK_TOLERANCE**2
_LEAST_SHARE = 0.03

Scores = tuple[bool, bool, bool]
Settings = tuple[int, Scores, int]
Scratch = tuple[Double, Double, Double, Double, Bounds, Bounds, Bounds]


@njit(cache=True, nogil=True)
def window_scratch(longest: int, window: int, n_chosen: int) -> Scratch:
    """Room that `sliding_weights` works in.

    Parameters
    ----------
    longest : int
        Words of the longest text.
    window : int
        Words on each side of a word.
    n_chosen : int
        Corpus vectors that count for a text.

    Returns
    -------
    tuple of ndarrays
        The inverse, three rows, slot of each word, word and number of words in each slot.
    """
    size = min(longest, 2 * window + 1)
    width = padded(size)
    inverse, border, column = np.empty((size, width)), np.empty(width), np.empty(width)
    slots = np.empty(longest, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    return inverse, border, column, np.empty(n_chosen), slots[0], slots[1], slots[2]


@njit(cache=True, nogil=True, error_model="numpy")
def sliding_weights(
    band: Double, words: Ids, near: Double, sigma: Double, settings: Settings, scratch: Scratch, weights: Double
) -> bool:
    """Weights of the words of a text, by the inverse of the window's Gram matrix, which changes word by word.

    The residual of word t behind all others of its window is the combination of words in column t of the inverse, over
    its diagonal. A word that comes in borders the inverse, one that leaves is eliminated from it; repeated words share
    a slot, and have no residual.

    Parameters
    ----------
    band : ndarray of shape (n, 2 * window + 1), float64
        ``band[i, k]`` is word i times word i - k.
    words : ndarray of shape (n,), int32
        The words.
    near : ndarray of shape (n, h), float64
        Products of the words with the h corpus vectors that count for the text.
    sigma : ndarray of shape (h,), float64
        Strength of each of these.
    settings : tuple
        Window; whether novelty, significance and uniqueness count; divisor of the significance score or 0.
    scratch : tuple of ndarrays
        What `window_scratch` returned.
    weights : ndarray of shape (n,), float64
        Written here.

    Returns
    -------
    bool
        False if a residual is too small a share of its word for products in float32: see `careful_weights`.
    """
    window, scores, divisor = settings
    inverse, border, column, own, slot_of, place_of, count = scratch
    n = len(words)
    for p in range(len(inverse)):
        place_of[p] = -1
        count[p] = 0
        border[p] = 0.0
        for k in range(len(column)):
            inverse[p, k] = 0.0
    head = used = 0
    for i in range(n):
        if i > window:
            slot = slot_of[i - window - 1]
            count[slot] -= 1
            if count[slot] == 0:
                place_of[slot] = -1
                _leave(inverse, used, slot, column)
        while head < n and head <= i + window:
            slot = used
            for p in range(used):
                if place_of[p] < 0:
                    slot = p
                elif words[place_of[p]] == words[head]:
                    slot = p
                    break
            if place_of[slot] < 0:
                used = max(used, slot + 1)
                for p in range(used):
                    border[p] = band[head, head - place_of[p]] if place_of[p] >= 0 else 0.0
                if not _enter(inverse, used, slot, border, band[head, 0], column):
                    return False
            place_of[slot] = head
            slot_of[head] = slot
            count[slot] += 1
            head += 1
        slot = slot_of[i]
        residual, distinct = 0.0, 0.0
        if count[slot] == 1:
            residual = 1 / np.sqrt(inverse[slot, slot])
            if scores[2]:
                distinct = _distinctness(inverse, used, slot, place_of, near, sigma, own) * residual
        n_columns = head - max(0, i - window)
        weights[i] = _score(residual, np.sqrt(band[i, 0]), distinct, scores, divisor if divisor else n_columns)
    return True


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _enter(inverse: Double, used: int, slot: int, border: Double, square: float, column: Double) -> bool:
    """Border the inverse of a Gram matrix; False if the word is nearly in the span of the others."""
    for k in range(len(column)):
        column[k] = 0.0
    for p in range(used):
        share = border[p]
        for k in range(len(column)):
            column[k] += share * inverse[p, k]
    pivot = square
    for k in range(used):
        pivot -= border[k] * column[k]
    if pivot <= _LEAST_SHARE * square:
        return False
    scale = 1 / pivot
    for p in range(used):
        share = column[p] * scale
        for k in range(len(column)):
            inverse[p, k] += share * column[k]
    for p in range(used):
        inverse[p, slot] = -column[p] * scale
    for k in range(len(column)):
        inverse[slot, k] = -column[k] * scale
    inverse[slot, slot] = scale
    return True


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _leave(inverse: Double, used: int, slot: int, column: Double) -> None:
    """Turn the inverse of a Gram matrix into that of the matrix without one word."""
    for k in range(len(column)):
        column[k] = inverse[slot, k]
    scale = 1 / column[slot]
    for p in range(used):
        share = column[p] * scale
        for k in range(len(column)):
            inverse[p, k] -= share * column[k]
    for p in range(used):
        inverse[p, slot] = 0.0
    for k in range(len(column)):
        inverse[slot, k] = 0.0


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _distinctness(
    inverse: Double, used: int, slot: int, place_of: Bounds, near: Double, sigma: Double, own: Double
) -> float:
    """Length of the products of a column of the inverse with the corpus vectors, each times its strength."""
    for j in range(len(own)):
        own[j] = 0.0
    for p in range(used):
        place, share = place_of[p], inverse[slot, p]
        if place >= 0:
            for j in range(len(own)):
                own[j] += share * near[place, j]
    total = 0.0
    for j in range(len(own)):
        total += (sigma[j] * own[j]) ** 2
    return float(np.sqrt(total))


@njit(cache=True, nogil=True, error_model="numpy")
def careful_weights(
    rows: Single, words: Ids, vectors: Double, sigma: Double, settings: Settings, weights: Double
) -> None:
    """Weights of the words of a text by Gram-Schmidt in float64, window by window, the word itself last.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim), float32
        Word vectors.
    words : ndarray of shape (n,), int32
        Row of each word.
    vectors : ndarray of shape (h, dim), float64
        Corpus vectors that count for the text.
    sigma : ndarray of shape (h,), float64
        Strength of each of these.
    settings : tuple
        Window; whether novelty, significance and uniqueness count; divisor of the significance score or 0.
    weights : ndarray of shape (n,), float64
        Written here.
    """
    window, scores, divisor = settings
    n, dim = len(words), rows.shape[1]
    basis = np.empty((min(n, 2 * window + 1, dim) + 1, dim))
    for i in range(n):
        first, last = max(0, i - window), min(n - 1, i + window)
        rank = 0
        for place in range(first, last + 1):
            if place != i and rank < dim and _orthogonalize(rows, words[place], basis, rank)[0] > 0.0:
                rank += 1
        residual, length = _orthogonalize(rows, words[i], basis, rank)
        distinct = 0.0
        if residual > 0.0:
            for j in range(len(sigma)):
                product = 0.0
                for k in range(dim):
                    product += vectors[j, k] * basis[rank, k]
                distinct += (sigma[j] * product) ** 2
        n_columns = last - first + 1
        weights[i] = _score(residual, length, np.sqrt(distinct), scores, divisor if divisor else n_columns)


@njit(cache=True, nogil=True, fastmath=True, error_model="numpy")
def _orthogonalize(rows: Single, word: int, basis: Double, rank: int) -> tuple[float, float]:
    """Write the unit residual of a word behind a basis as its next row; returns lengths of residual (or 0) and word."""
    dim = rows.shape[1]
    square = 0.0
    for k in range(dim):
        basis[rank, k] = rows[word, k]
        square += basis[rank, k] ** 2
    for _ in range(2):  # once is not enough for a word that is nearly in the span
        for b in range(rank):
            product = 0.0
            for k in range(dim):
                product += basis[b, k] * basis[rank, k]
            for k in range(dim):
                basis[rank, k] -= product * basis[b, k]
    remaining = 0.0
    for k in range(dim):
        remaining += basis[rank, k] ** 2
    if remaining <= _TOLERANCE_SQUARED * square:
        return 0.0, np.sqrt(square)
    scale = 1 / np.sqrt(remaining)
    for k in range(dim):
        basis[rank, k] *= scale
    return np.sqrt(remaining), np.sqrt(square)


@njit(cache=True, nogil=True, error_model="numpy")
def _score(residual: float, length: float, distinct: float, scores: Scores, divisor: float) -> float:
    """Sum of the scores that count."""
    novelty, significance, uniqueness = scores
    weight = 0.0
    if novelty:
        weight += np.exp(residual / length) if residual > 0.0 else 1.0
    if significance:
        weight += residual / divisor
    if uniqueness:
        weight += np.exp(-distinct) if residual > 0.0 else 1.0
    return weight
