"""Compiled kernels of GEM: what a sentence needs follows from its Gram matrix and the products with corpus vectors.

All are in one module because compiled code is cached by module. Rows are addressed by two indices, never as views:
those are counted references, which cost more than the short loops over them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

RANK_TOLERANCE = 1e-6
_TOLERANCE_SQUARED = RANK_TOLERANCE**2
_ENOUGH = 1e-2
_EPS = float(np.finfo(np.float64).eps)

Single = NDArray[np.float32]
Double = NDArray[np.float64]
Ids = NDArray[np.int32]
Bounds = NDArray[np.int64]
Scores = tuple[bool, bool, bool]


@njit(cache=True, nogil=True)
def gem_kernel(
    words: tuple[Single, Double, Ids, Bounds],
    corpus: tuple[Single, Double],
    options: tuple[int, int, Double, Scores, int, bool],
    chunk: tuple[int, int],
    out: Single,
) -> None:
    """Fill the vectors of some texts, see `gem_vectors`.

    Parameters
    ----------
    words : tuple of four ndarrays
        Word vectors, their products with the corpus vectors, row of each word of the texts, where texts begin.
    corpus : tuple of two ndarrays
        Vectors of shape (K, dim), and the strength that each has in the uniqueness score.
    options : tuple
        Window; vectors that count for a text; strengths to choose these by, none to take the first; scores wanted;
        divisor of the significance score, 0 for the words present; whether to remove.
    chunk : tuple of two int
        First text, and the one behind the last.
    out : ndarray of shape (n_texts, dim), float32
        Written here.
    """
    rows, products, ids, offsets = words
    vectors, sigma = corpus
    window, n_chosen, strengths, scores, divisor, removes = options
    dim = rows.shape[1]
    longest = _longest(offsets, chunk)
    width = min(2 * window + 1, longest)
    n_slots = _power_of_two(width + 3)
    single = np.zeros((n_slots, _padded(dim)), dtype=np.float32)
    double = np.zeros((1, 1))
    band = np.empty((longest, width + 3))
    chosen = np.arange(n_chosen)
    near = np.empty((longest, n_chosen))
    weights = np.empty(longest)
    inverse = np.empty((width, _padded(width)))
    table = np.empty((width, width + n_chosen))
    sums = np.empty(products.shape[1])
    chosen_sigma = np.empty(n_chosen)
    total = np.empty(dim, dtype=np.float32)
    shares = np.empty(max(longest, n_chosen), dtype=np.float32)
    common = np.empty(n_chosen)
    for text in range(chunk[0], chunk[1]):
        own = ids[offsets[text] : offsets[text + 1]]
        if len(strengths):
            _choose(products, own, strengths, chosen, sums)
        for j in range(n_chosen):
            chosen_sigma[j] = sigma[chosen[j]]
            common[j] = 0.0
        for i in range(len(own)):
            word = own[i]
            for j in range(n_chosen):
                near[i, j] = products[word, chosen[j]]
        settings = (window, scores, divisor)
        _fill_band(rows, own, width - 1, single, band)
        if not _sliding_weights(band, own, near, chosen_sigma, settings, inverse, weights):
            if len(double) == 1:
                double = np.zeros((n_slots, _padded(dim)))
            _fill_band(rows, own, width - 1, double, band)
            _careful_weights(band, own, near, chosen_sigma, settings, table, weights)
        for k in range(dim):
            total[k] = 0.0
        for i in range(len(own)):
            shares[i] = weights[i]
        _add_rows(total, rows, own, shares, len(own))
        if removes:
            for i in range(len(own)):
                weight = weights[i]
                for j in range(n_chosen):
                    common[j] -= weight * near[i, j]
            for j in range(n_chosen):
                shares[j] = common[j]
            _add_rows(total, vectors, chosen, shares, n_chosen)
        for k in range(dim):
            out[text, k] = total[k]


@njit(cache=True, nogil=True)
def coarse_kernel(words: tuple[Single, Ids, Bounds], power: float, chunk: tuple[int, int], out: Single) -> None:
    """Fill the coarse vectors of some texts, see `coarse_vectors`.

    Parameters
    ----------
    words : tuple of three ndarrays
        Word vectors, row of each word of the texts, where texts begin.
    power : float
        Power of the singular values.
    chunk : tuple of two int
        First text, and the one behind the last.
    out : ndarray of shape (n_texts, dim), float32
        Written here.
    """
    rows, ids, offsets = words
    dim = rows.shape[1]
    width = min(_longest(offsets, chunk), dim)
    recent = np.zeros((_power_of_two(width + 3), _padded(dim)))
    band = np.empty((width, width + 3))
    matrix, vectors = np.empty((width, width)), np.empty((width, width))
    shares = np.empty(width)
    total = np.empty(dim)
    for text in range(chunk[0], chunk[1]):
        own = ids[offsets[text] : offsets[text + 1]]
        for k in range(dim):
            total[k] = 0.0
        if len(own) > dim:
            _add_left_vectors(rows, own, power, total, matrix, vectors)
        elif len(own):
            _fill_band(rows, own, width - 1, recent, band)
            _right_combination(band, len(own), power, shares, matrix, vectors)
            _add_rows(total, rows, own, shares, len(own))
        for k in range(dim):
            out[text, k] = total[k]


@njit(cache=True, nogil=True)
def _longest(offsets: Bounds, chunk: tuple[int, int]) -> int:
    longest = 1
    for text in range(chunk[0], chunk[1]):
        longest = max(longest, offsets[text + 1] - offsets[text])
    return longest


@njit(cache=True, nogil=True)
def _padded(n: int) -> int:
    """The next multiple of 16: loops of such a length are vector instructions from end to end."""
    return (n + 15) // 16 * 16


@njit(cache=True, nogil=True)
def _power_of_two(least: int) -> int:
    size = 1
    while size < least:
        size *= 2
    return size


@njit(cache=True, nogil=True, fastmath=True)
def _add_rows(total: NDArray[Any], rows: Single, picks: NDArray[Any], shares: NDArray[Any], n: int) -> None:
    """Add rows, each times its share, four at a time; shares have the type of the total."""
    n_fours = n // 4 * 4
    for i in range(0, n_fours, 4):
        a, b, c, d = picks[i], picks[i + 1], picks[i + 2], picks[i + 3]
        p, q, r, s = shares[i], shares[i + 1], shares[i + 2], shares[i + 3]
        for k in range(len(total)):
            total[k] += p * rows[a, k] + q * rows[b, k] + r * rows[c, k] + s * rows[d, k]
    for i in range(n_fours, n):
        a = picks[i]
        p = shares[i]
        for k in range(len(total)):
            total[k] += p * rows[a, k]


@njit(cache=True, nogil=True, fastmath=True)
def _fill_band(rows: Single, words: Ids, reach: int, recent: NDArray[Any], band: Double) -> None:
    """Gram matrix of the words of a text near its diagonal: ``band[i, k]`` is word i times word i - k.

    ``recent`` holds the last rows, in the precision to work in; its length is a power of two.
    """
    mask = len(recent) - 1
    zero = recent[0, 0] - recent[0, 0]
    for i in range(len(words)):
        word, own = words[i], i & mask
        for k in range(rows.shape[1]):
            recent[own, k] = rows[word, k]
        for near in range(0, min(i, reach) + 1, 4):
            a, b = (i - near) & mask, (i - near - 1) & mask
            c, d = (i - near - 2) & mask, (i - near - 3) & mask
            p, q, r, s = zero, zero, zero, zero
            for k in range(recent.shape[1]):
                x = recent[own, k]
                p += x * recent[a, k]
                q += x * recent[b, k]
                r += x * recent[c, k]
                s += x * recent[d, k]
            band[i, near] = p
            band[i, near + 1] = q
            band[i, near + 2] = r
            band[i, near + 3] = s


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


@njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp", "reassoc"}, error_model="numpy")
def _sliding_weights(
    band: Double,
    words: Ids,
    near: Double,
    sigma: Double,
    settings: tuple[int, Scores, int],
    inverse: Double,
    weights: Double,
) -> bool:
    """Weights of the words of a text by the inverse of the window's Gram matrix, which changes word by word.

    The residual of word t behind all others of its window is the combination of words in column t of the inverse, over
    its diagonal. A word that comes in borders the inverse, one that leaves is eliminated from it; repeated words share
    a slot. Returns False if a residual is too small a share of its word for that.
    """
    window, scores, divisor = settings
    n, n_slots = len(words), inverse.shape[1]
    slot_of = np.empty(n, dtype=np.int64)
    word_in = np.full(n_slots, -1, dtype=np.int64)
    count = np.zeros(n_slots, dtype=np.int64)
    border = np.empty(n_slots)
    column = np.empty(n_slots)
    own = np.empty(len(sigma))
    for p in range(len(inverse)):
        for k in range(n_slots):
            inverse[p, k] = 0.0
    head = used = 0
    for i in range(n):
        if i > window:
            slot = slot_of[i - window - 1]
            count[slot] -= 1
            if count[slot] == 0:
                word_in[slot] = -1
                _leave(inverse, used, slot, column)
        while head < n and head <= i + window:
            slot, free = -1, used
            for p in range(used):
                if word_in[p] < 0:
                    free = p
                elif words[word_in[p]] == words[head]:
                    slot = p
            if slot < 0:
                slot = free
                used = max(used, slot + 1)
                for p in range(used):
                    border[p] = band[head, head - word_in[p]] if word_in[p] >= 0 else 0.0
                if not _enter(inverse, used, slot, border, band[head, 0], column):
                    return False
            word_in[slot] = head
            slot_of[head] = slot
            count[slot] += 1
            head += 1
        slot = slot_of[i]
        n_columns = min(n - 1, i + window) - max(0, i - window) + 1
        if count[slot] > 1:
            weights[i] = _score(0.0, band[i, 0], 0.0, n_columns, (scores, divisor, len(own)))
            continue
        residual = 1 / np.sqrt(inverse[slot, slot])
        distinct = 0.0
        if scores[2]:
            for j in range(len(own)):
                own[j] = 0.0
            for p in range(used):
                place, share = word_in[p], inverse[slot, p]
                if place >= 0:
                    for j in range(len(own)):
                        own[j] += share * near[place, j]
            for j in range(len(own)):
                distinct += (sigma[j] * own[j]) ** 2
        weights[i] = _score(residual, band[i, 0], np.sqrt(distinct) * residual, n_columns, (scores, divisor, len(own)))
    return True


@njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp", "reassoc"}, error_model="numpy")
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
    if pivot <= _ENOUGH * square:
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


@njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp", "reassoc"}, error_model="numpy")
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


@njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp", "reassoc"}, error_model="numpy")
def _careful_weights(
    band: Double,
    words: Ids,
    near: Double,
    sigma: Double,
    settings: tuple[int, Scores, int],
    table: Double,
    weights: Double,
) -> None:
    """Weights of the words of a text by Gram-Schmidt of each window, the word itself last: for words nearly dependent.

    Elimination on [Gram matrix, products] leaves squared residuals on the diagonal and their products behind it.
    """
    window, scores, divisor = settings
    n, n_chosen = len(words), len(sigma)
    places = np.empty(len(table), dtype=np.int64)
    for i in range(n):
        first, last = max(0, i - window), min(n - 1, i + window)
        width = last - first + 1
        for k in range(width - 1):
            places[k] = first + k + (first + k >= i)
        places[width - 1] = i
        for r in range(width):
            at = places[r]
            for k in range(width):
                table[r, k] = band[max(at, places[k]), abs(at - places[k])]
            for j in range(n_chosen):
                table[r, width + j] = near[at, j]
        for r in range(width - 1):
            if table[r, r] > _TOLERANCE_SQUARED * band[places[r], 0]:
                for later in range(r + 1, width):
                    share = table[later, r] / table[r, r]
                    for k in range(r, width + n_chosen):
                        table[later, k] -= share * table[r, k]
        square = table[width - 1, width - 1]
        if square <= _TOLERANCE_SQUARED * band[i, 0]:
            weights[i] = _score(0.0, band[i, 0], 0.0, width, (scores, divisor, n_chosen))
            continue
        distinct = 0.0
        for j in range(n_chosen):
            distinct += (sigma[j] * table[width - 1, width + j]) ** 2
        weights[i] = _score(np.sqrt(square), band[i, 0], np.sqrt(distinct / square), width, (scores, divisor, n_chosen))


@njit(cache=True, nogil=True, error_model="numpy")
def _score(residual: float, square: float, distinct: float, n_columns: int, settings: tuple[Scores, int, int]) -> float:
    """Sum of the scores that are wanted, of a word of length sqrt(square)."""
    (novelty, significance, uniqueness), divisor, n_chosen = settings
    weight = 0.0
    if novelty:
        weight += np.exp(residual / np.sqrt(square)) if residual > 0.0 else 1.0
    if significance:
        weight += residual / (divisor if divisor else n_columns)
    if uniqueness:
        weight += np.exp(-distinct / max(n_chosen, 1)) if residual > 0.0 else 1.0
    return weight


@njit(cache=True, nogil=True, error_model="numpy")
def _right_combination(band: Double, n: int, power: float, shares: Double, matrix: Double, vectors: Double) -> None:
    """Shares of the words in a coarse vector: eigenvectors of the n x n Gram matrix are right singular vectors."""
    for i in range(n):
        shares[i] = 0.0
        for j in range(i + 1):
            matrix[i, j] = matrix[j, i] = band[i, i - j]
    values = _eigenpairs(matrix, n, vectors)
    floor = n * _EPS * values.max()
    for j in range(n):
        if values[j] > floor:
            strength = values[j] ** ((power - 1) / 2) * _side(vectors, j, n)
            for i in range(n):
                shares[i] += strength * vectors[j, i]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_left_vectors(rows: Single, words: Ids, power: float, total: Double, matrix: Double, vectors: Double) -> None:
    """Coarse vector of a long text: eigenvectors of the dim x dim second moments are left singular vectors."""
    n, dim = len(words), rows.shape[1]
    for i in range(dim):
        for k in range(dim):
            matrix[i, k] = 0.0
    for word in words:
        for i in range(dim):
            x = np.float64(rows[word, i])
            for k in range(dim):
                matrix[i, k] += x * rows[word, k]
    values = _eigenpairs(matrix, dim, vectors)
    floor = dim * _EPS * values.max()
    entries = np.empty((1, n))
    for j in range(dim):
        if values[j] > floor:
            for i in range(n):
                entries[0, i] = 0.0
                for k in range(dim):
                    entries[0, i] += rows[words[i], k] * vectors[j, k]
                entries[0, i] /= np.sqrt(values[j])
            strength = values[j] ** (power / 2) * _side(entries, 0, n)
            for k in range(dim):
                total[k] += strength * vectors[j, k]


@njit(cache=True, nogil=True)
def _side(vectors: Double, row: int, n: int) -> float:
    """Sign that turns a left singular vector to the side of the text's mean, from its right singular vector."""
    total = 0.0
    for i in range(n):
        total += vectors[row, i]
    if abs(total) > RANK_TOLERANCE * np.sqrt(n):
        return 1.0 if total > 0 else -1.0
    for i in range(n):
        if abs(vectors[row, i]) > RANK_TOLERANCE:
            return 1.0 if vectors[row, i] > 0 else -1.0
    return 1.0


@njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp", "reassoc"}, error_model="numpy")
def _eigenpairs(matrix: Double, n: int, vectors: Double) -> Double:
    """Eigenvalues, in no order, and eigenvectors, as rows, of the leading n x n block, which is lost.

    Householder reduction to a tridiagonal matrix, then QL with implicit shifts. For the small matrices of sentences a
    call of LAPACK takes three times as long.
    """
    values, beside, image = np.empty(n), np.zeros(n), np.empty(n)
    for i in range(n):
        for k in range(n):
            vectors[i, k] = 0.0
        vectors[i, i] = 1.0
    for step in range(n - 2):
        first = matrix[step, step + 1]
        rest = 0.0
        for k in range(step + 2, n):
            rest += matrix[step, k] * matrix[step, k]
        if rest == 0.0:
            continue
        length = np.sqrt(first * first + rest)
        length = length if first < 0 else -length
        matrix[step, step + 1] = first - length
        scale = 1 / (length * (length - first))
        _reflect(matrix, vectors, image, (step, n), scale)
        matrix[step, step + 1] = length
    for i in range(n):
        values[i] = matrix[i, i]
        if i + 1 < n:
            beside[i] = matrix[i, i + 1]
    _diagonalize(values, beside, vectors, n)
    return values


@njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp", "reassoc"}, error_model="numpy")
def _reflect(matrix: Double, vectors: Double, image: Double, block: tuple[int, int], scale: float) -> None:
    """Reflect the block behind a row from both sides, and the vectors, by what the row holds behind its diagonal."""
    step, n = block
    overlap = 0.0
    for i in range(step + 1, n):
        total = 0.0
        for k in range(step + 1, n):
            total += matrix[i, k] * matrix[step, k]
        image[i] = total * scale
        overlap += image[i] * matrix[step, i]
    overlap *= scale / 2
    for i in range(step + 1, n):
        image[i] -= overlap * matrix[step, i]
    for i in range(step + 1, n):
        a, b = matrix[step, i], image[i]
        for k in range(step + 1, n):
            matrix[i, k] -= a * image[k] + b * matrix[step, k]
    for k in range(n):
        image[k] = 0.0
    for i in range(step + 1, n):
        a = matrix[step, i] * scale
        for k in range(n):
            image[k] += a * vectors[i, k]
    for i in range(step + 1, n):
        a = matrix[step, i]
        for k in range(n):
            vectors[i, k] -= a * image[k]


@njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp", "reassoc"}, error_model="numpy")
def _diagonalize(values: Double, beside: Double, vectors: Double, n: int) -> None:
    """Eigenvalues of a tridiagonal matrix, in place of its diagonal; the vectors turn with it."""
    floor = 0.0
    for i in range(n):
        floor = max(floor, abs(values[i]) + abs(beside[i]))
    floor *= _EPS
    for start in range(n):
        for _ in range(60):
            stop = start
            while stop < n - 1 and abs(beside[stop]) > floor:
                stop += 1
            if stop == start:
                break
            half = (values[start + 1] - values[start]) / (2 * beside[start])
            root = np.sqrt(half * half + 1)
            bulge = values[stop] - values[start] + beside[start] / (half + (root if half >= 0 else -root))
            sine, cosine, moved = 1.0, 1.0, 0.0
            for i in range(stop - 1, start - 1, -1):
                chased, kept = sine * beside[i], cosine * beside[i]
                root = np.sqrt(chased * chased + bulge * bulge)
                beside[i + 1] = root
                if root == 0.0:
                    values[i + 1] -= moved
                    break
                sine, cosine = chased / root, bulge / root
                shifted = values[i + 1] - moved
                root = (values[i] - shifted) * sine + 2 * cosine * kept
                moved = sine * root
                values[i + 1] = shifted + moved
                bulge = cosine * root - kept
                for k in range(n):
                    x = vectors[i + 1, k]
                    vectors[i + 1, k] = sine * vectors[i, k] + cosine * x
                    vectors[i, k] = cosine * vectors[i, k] - sine * x
            else:
                values[start] -= moved
                beside[start] = bulge
            beside[stop] = 0.0
