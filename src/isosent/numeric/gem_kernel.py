"""The compiled kernel of GEM: weights of the words, their sum, and what the corpus has in common taken out of it."""

from __future__ import annotations

import numpy as np
from numba import njit

from isosent.numeric.gram_kernel import (
    Bounds,
    Double,
    Ids,
    Single,
    add_rows,
    band_room,
    fill_band,
    longest_text,
    padded,
    recent_rows,
)
from isosent.numeric.window_kernel import Scores, careful_weights, sliding_weights, window_scratch


@njit(cache=True, nogil=True)
def gem_kernel(
    texts: tuple[Single, Double, Ids, Bounds],
    corpus: tuple[Double, Single, Double],
    options: tuple[int, int, Double, Scores, int, bool],
    chunk: tuple[int, int],
    out: Single,
) -> None:
    """Fill the vectors of some texts, see `gem_vectors`.

    Parameters
    ----------
    texts : tuple of four ndarrays
        Word vectors, their products with the corpus vectors, row of each word of the texts, where texts begin.
    corpus : tuple of three ndarrays
        Vectors of shape (K, dim) in float64 and in float32, and the strength of each in the uniqueness score, over h.
    options : tuple
        Window; h, the vectors that count for a text; strengths to choose these by, none to take the first; whether
        novelty, significance and uniqueness count; divisor of the significance score, 0 for the words present; whether
        to remove.
    chunk : tuple of two int
        First text, and the one behind the last.
    out : ndarray of shape (n_texts, dim), float32
        Written here.
    """
    rows, products, ids, offsets = texts
    exact_vectors, vectors, sigma = corpus
    window, n_chosen, strengths, scores, divisor, removes = options
    longest = longest_text(offsets, chunk)
    reach = min(2 * window, longest - 1)
    recent = np.zeros((recent_rows(reach), padded(rows.shape[1])), dtype=np.float32)
    band = band_room(longest, reach)
    chosen, chosen_sigma = np.arange(n_chosen), np.empty(n_chosen)
    near, sums = np.empty((longest, n_chosen)), np.empty(products.shape[1])
    weights, total = np.empty(longest), np.empty(rows.shape[1], dtype=np.float32)
    shares, common = np.empty(max(longest, n_chosen), dtype=np.float32), np.empty(n_chosen)
    scratch = window_scratch(longest, window, n_chosen)
    settings = (window, scores, divisor)
    for text in range(chunk[0], chunk[1]):
        words = ids[offsets[text] : offsets[text + 1]]
        if len(strengths):
            _choose(products, words, strengths, chosen, sums)
        for j in range(n_chosen):
            chosen_sigma[j] = sigma[chosen[j]]
        for i in range(len(words)):
            word = words[i]
            for j in range(n_chosen):
                near[i, j] = products[word, chosen[j]]
        fill_band(rows, words, reach, recent, band)
        if not sliding_weights(band, words, near, chosen_sigma, settings, scratch, weights):
            careful_weights(rows, words, exact_vectors[chosen], chosen_sigma, settings, weights)
        _sum_up((rows, words), (weights, near), (vectors, chosen, removes), (shares, common), total)
        for k in range(len(total)):
            out[text, k] = total[k]


@njit(cache=True, nogil=True, fastmath=True)
def _choose(products: Double, words: Ids, strengths: Double, chosen: Bounds, sums: Double) -> None:
    """Corpus vectors with the largest sum of squared products with the words, times their strength squared."""
    for j in range(len(sums)):
        sums[j] = 0.0
    for i in range(len(words)):
        word = words[i]
        for j in range(len(sums)):
            sums[j] += products[word, j] * products[word, j]
    n_chosen = 0
    for j in range(len(strengths)):
        sums[j] *= strengths[j] * strengths[j]
        at = n_chosen
        if at == len(chosen):
            at -= 1
            if sums[j] <= sums[chosen[at]]:
                continue
        else:
            n_chosen += 1
        while at > 0 and sums[chosen[at - 1]] < sums[j]:
            chosen[at] = chosen[at - 1]
            at -= 1
        chosen[at] = j


@njit(cache=True, nogil=True)
def _sum_up(
    words: tuple[Single, Ids],
    weighted: tuple[Double, Double],
    removal: tuple[Single, Bounds, bool],
    scratch: tuple[Single, Double],
    total: Single,
) -> None:
    """Weighted sum of the words, without its components along the chosen vectors."""
    (rows, picks), (weights, near), (vectors, chosen, removes), (shares, common) = words, weighted, removal, scratch
    for k in range(len(total)):
        total[k] = 0.0
    for i in range(len(picks)):
        shares[i] = weights[i]
    add_rows(total, rows, picks, shares, len(picks))
    if removes:
        for j in range(len(chosen)):
            common[j] = 0.0
        for i in range(len(picks)):
            weight = weights[i]
            for j in range(len(chosen)):
                common[j] -= weight * near[i, j]
        for j in range(len(chosen)):
            shares[j] = common[j]
        add_rows(total, vectors, chosen, shares, len(chosen))
