"""Compiled kernels of GEM: coarse vectors, and weights of words, their sum, and removal of principal vectors.

`coarse_kernel` decomposes the Gram matrix of the words of each text. `gem_kernel` weighs the words of a text: the Gram
matrix near its diagonal (`fill_band`) feeds the inverse that slides along the text (`sliding_weights`), a text that
float32 cannot resolve is repeated in float64 (`careful_weights`), and `_sum_up` adds the words and removes the chosen
vectors. Kernels take rows by their ids, write the texts of one chunk, and share nothing: threads run one chunk each.

numba compiles a kernel once more for an argument that is a literal, so where one begins at 0, it is ``np.int64(0)``.

The eigen-solver is our own. `np.linalg.eigh` gives the same coarse vectors, in 23 instead of 11 us for a text of STS-B:
GEM would fit and encode 32,400 instead of 42,600 texts/s in one thread (bench/words.py, dim 300). And it calls the
LAPACK of scipy, whose threads nothing limits here: 120 words take six times as long if it starts them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.compiled import njit

RANK_TOLERANCE = 1e-6

Single = NDArray[np.float32]
Double = NDArray[np.float64]
Ids = NDArray[np.int32]
Bounds = NDArray[np.int64]


@njit(cache=True, nogil=True)
def longest_text(offsets: Bounds, chunk: tuple[int, int]) -> int:
    """Words of the longest text of a chunk, at least 1."""
    longest = 1
    for text in range(chunk[0], chunk[1]):
        longest = max(longest, offsets[text + 1] - offsets[text])
    return longest


@njit(cache=True, nogil=True)
def padded(n: int) -> int:
    """The next multiple of 16: loops of this length are compiled to vector instructions only."""
    return (n + 15) // 16 * 16


@njit(cache=True, nogil=True, fastmath=True)
def add_rows(total: NDArray[Any], rows: Single, picks: NDArray[Any], shares: NDArray[Any], n: int) -> None:
    """Add rows, each times its share, four at a time; shares have the dtype of the total."""
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


@njit(cache=True, nogil=True)
def band_room(longest: int, reach: int) -> Double:
    """Memory that `fill_band` writes to for texts of up to `longest` words; some of the numbers mean nothing."""
    return np.empty((longest + 1, reach + 5))


@njit(cache=True, nogil=True)
def recent_rows(reach: int) -> int:
    """Number of rows that `fill_band` keeps, a power of two."""
    size = 1
    while size < reach + 5:
        size *= 2
    return size


@njit(cache=True, nogil=True, fastmath=True)
def fill_band(rows: Single, words: Ids, reach: int, recent: NDArray[Any], band: Double) -> None:
    """Gram matrix of the words of a text near its diagonal: ``band[i, k]`` is word i times word i - k."""
    # Two words are multiplied by four others at a time, in the precision of ``recent``, which holds the last rows.
    mask = len(recent) - 1
    zero = recent[0, 0] - recent[0, 0]
    for i in range(0, len(words), 2):
        u, v = i & mask, (i + 1) & mask
        word = words[i]
        for k in range(rows.shape[1]):
            recent[u, k] = rows[word, k]
        if i + 1 < len(words):
            word = words[i + 1]
            for k in range(rows.shape[1]):
                recent[v, k] = rows[word, k]
        for p in range(i + 1, max(-1, i - reach), -4):
            a, b, c, d = p & mask, (p - 1) & mask, (p - 2) & mask, (p - 3) & mask
            ua, ub, uc, ud = zero, zero, zero, zero
            va, vb, vc, vd = zero, zero, zero, zero
            for k in range(recent.shape[1]):
                x, y = recent[u, k], recent[v, k]
                ua += x * recent[a, k]
                ub += x * recent[b, k]
                uc += x * recent[c, k]
                ud += x * recent[d, k]
                va += y * recent[a, k]
                vb += y * recent[b, k]
                vc += y * recent[c, k]
                vd += y * recent[d, k]
            near = i - p
            if near >= 0:
                band[i, near] = ua
            band[i, near + 1], band[i, near + 2], band[i, near + 3] = ub, uc, ud
            band[i + 1, near + 1], band[i + 1, near + 2] = va, vb
            band[i + 1, near + 3], band[i + 1, near + 4] = vc, vd


_EPS = float(np.finfo(np.float64).eps)
_FAST = {"contract", "nsz", "arcp", "reassoc"}

Room = tuple[tuple[Double, Double, Double], tuple[Double, Double, Double, Double], Double]


@njit(cache=True, nogil=True)
def coarse_kernel(words: tuple[Single, Ids, Bounds], power: float, chunk: tuple[int, int], out: Single) -> None:
    """Write the coarse vectors of the texts of a chunk, see `coarse_vectors`."""
    rows, ids, offsets = words
    dim = rows.shape[1]
    width = min(longest_text(offsets, chunk), dim)
    recent = np.zeros((recent_rows(width - 1), padded(dim)))
    band = band_room(width, width - 1)
    a, b = np.empty((3, width, width)), np.empty((5, width))
    room = ((a[0], a[1], a[2]), (b[0], b[1], b[2], b[3]), b[4])
    shares = np.empty(width)
    total = np.empty(dim)
    for text in range(chunk[0], chunk[1]):
        picks = ids[offsets[text] : offsets[text + 1]]
        for k in range(dim):
            total[k] = 0.0
        if len(picks) > dim:
            _add_left_vectors(rows, picks, power, total, room)
        elif len(picks):
            fill_band(rows, picks, width - 1, recent, band)
            _right_combination(band, len(picks), power, shares, room)
            add_rows(total, rows, picks, shares, len(picks))
        for k in range(dim):
            out[text, k] = total[k]


@njit(cache=True, nogil=True, error_model="numpy")
def _right_combination(band: Double, n: int, power: float, shares: Double, room: Room) -> None:
    """Shares of the words in a coarse vector: eigenvectors of the n x n Gram matrix are right singular vectors."""
    (matrix, reflectors, vectors), (values, beside, scales, image), toward = room
    for i in range(n):
        toward[i], shares[i] = 1.0, 0.0
        for j in range(i + 1):
            matrix[i, j] = matrix[j, i] = band[i, i - j]
    _tridiagonalize(matrix, n, reflectors, (values, beside, scales, image))
    _diagonalize(values, beside, vectors, n)
    _turn(reflectors, scales, n, toward, np.bool_(True))
    floor = n * _EPS * values[:n].max()
    for j in range(n):
        if values[j] > floor:
            total = 0.0
            for i in range(n):
                total += vectors[j, i] * toward[i]
            strength = values[j] ** ((power - 1) / 2)
            if abs(total) <= RANK_TOLERANCE * np.sqrt(n):
                entries = vectors[j, :n].copy()
                _turn(reflectors, scales, n, entries, np.bool_(False))
                total = _side(entries)
            strength *= 1.0 if total > 0 else -1.0
            for i in range(n):
                shares[i] += strength * vectors[j, i]
    _turn(reflectors, scales, n, shares, np.bool_(False))


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _add_left_vectors(rows: Single, words: Ids, power: float, total: Double, room: Room) -> None:
    """Coarse vector of a long text: eigenvectors of the dim x dim second moments are left singular vectors."""
    (matrix, reflectors, vectors), (values, beside, scales, image), left = room
    n, dim = len(words), rows.shape[1]
    for i in range(dim):
        for k in range(dim):
            matrix[i, k] = 0.0
    for word in words:
        for i in range(dim):
            x = np.float64(rows[word, i])
            for k in range(dim):
                matrix[i, k] += x * rows[word, k]
    _tridiagonalize(matrix, dim, reflectors, (values, beside, scales, image))
    _diagonalize(values, beside, vectors, dim)
    floor = dim * _EPS * values.max()
    entries = np.empty(n)
    for j in range(dim):
        if values[j] > floor:
            for k in range(dim):
                left[k] = vectors[j, k]
            _turn(reflectors, scales, dim, left, np.bool_(False))
            for i in range(n):
                entries[i] = 0.0
                for k in range(dim):
                    entries[i] += rows[words[i], k] * left[k]
                entries[i] /= np.sqrt(values[j])
            strength = values[j] ** (power / 2) * _side(entries)
            for k in range(dim):
                total[k] += strength * left[k]


@njit(cache=True, nogil=True)
def _side(entries: Double) -> float:
    """Sign that turns a left singular vector to the side of the text's mean, from its right singular vector."""
    total = entries.sum()
    if abs(total) > RANK_TOLERANCE * np.sqrt(len(entries)):
        return 1.0 if total > 0 else -1.0
    for entry in entries:
        if abs(entry) > RANK_TOLERANCE:
            return 1.0 if entry > 0 else -1.0
    return 1.0


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _tridiagonalize(matrix: Double, n: int, reflectors: Double, columns: tuple[Double, Double, Double, Double]) -> None:
    """Householder reduction of the leading n x n block, in place; `_turn` applies the reflectors."""
    # Loops begin at 0, over zeros, because only then the compiler uses vector instructions.
    values, beside, scales, image = columns
    for step in range(n):
        values[step] = matrix[step, step]
        rest = 0.0
        for k in range(n):
            reflectors[step, k] = matrix[step, k] if k > step else 0.0
            rest += reflectors[step, k] ** 2
        scales[step] = beside[step] = 0.0
        if step + 1 == n:
            break
        first = beside[step] = matrix[step, step + 1]
        if rest <= first * first:
            continue
        beside[step] = np.sqrt(rest) if first < 0 else -np.sqrt(rest)
        scale = scales[step] = 1 / (beside[step] * (beside[step] - first))
        reflectors[step, step + 1] -= beside[step]
        overlap = 0.0
        for i in range(step + 1, n):
            total = 0.0
            for k in range(n):
                total += matrix[i, k] * reflectors[step, k]
            image[i] = total * scale
            overlap += image[i] * reflectors[step, i]
        overlap *= scale / 2
        for i in range(n):
            image[i] = image[i] - overlap * reflectors[step, i] if i > step else 0.0
        for i in range(step + 1, n):
            a, b = reflectors[step, i], image[i]
            for k in range(n):
                matrix[i, k] -= a * image[k] + b * reflectors[step, k]


@njit(cache=True, nogil=True, fastmath=_FAST)
def _turn(reflectors: Double, scales: Double, n: int, x: Double, forward: bool | np.bool_) -> None:
    """Change a vector to the basis in which the matrix is tridiagonal, or back."""
    for i in range(n - 1):
        step = i if forward else n - 2 - i
        total = 0.0
        for k in range(n):
            total += reflectors[step, k] * x[k]
        total *= scales[step]
        for k in range(n):
            x[k] -= total * reflectors[step, k]


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _diagonalize(values: Double, off_diagonal: Double, vectors: Double, n: int) -> None:
    """Eigenvalues of a tridiagonal matrix, in place of its diagonal, and eigenvectors as rows: QL, implicit shifts."""
    for i in range(n):
        for k in range(n):
            vectors[i, k] = 0.0
        vectors[i, i] = 1.0
    floor = 0.0
    for i in range(n):
        floor = max(floor, abs(values[i]) + abs(off_diagonal[i]))
    floor *= _EPS
    for start in range(n):
        for _ in range(60):
            stop = start
            while stop < n - 1 and abs(off_diagonal[stop]) > floor:
                stop += 1
            if stop == start:
                break
            half = (values[start + 1] - values[start]) / (2 * off_diagonal[start])
            root = np.sqrt(half * half + 1)
            bulge = values[stop] - values[start] + off_diagonal[start] / (half + (root if half >= 0 else -root))
            sine, cosine, moved = 1.0, 1.0, 0.0
            for i in range(stop - 1, start - 1, -1):
                chased, kept = sine * off_diagonal[i], cosine * off_diagonal[i]
                root = np.sqrt(chased * chased + bulge * bulge)
                off_diagonal[i + 1] = root
                if root == 0.0:
                    values[i + 1] -= moved
                    break
                scale = 1 / root
                sine, cosine = chased * scale, bulge * scale
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
                off_diagonal[start] = bulge
            off_diagonal[stop] = 0.0


_TOLERANCE_SQUARED = RANK_TOLERANCE**2
_LEAST_SHARE = 0.03

Scores = tuple[bool, bool, bool]
Settings = tuple[int, Scores, int]
Scratch = tuple[Double, Double, Double, Double, Bounds, Bounds, Bounds]


@njit(cache=True, nogil=True)
def window_scratch(longest: int, window: int, n_chosen: int) -> Scratch:
    """Scratch memory of `sliding_weights`."""
    size = min(longest, 2 * window + 1)
    width = padded(size)
    inverse, border, column = np.empty((size, width)), np.empty(width), np.empty(width)
    slots = np.empty(longest, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    return inverse, border, column, np.empty(n_chosen), slots[0], slots[1], slots[2]


@njit(cache=True, nogil=True, error_model="numpy")
def sliding_weights(
    band: Double, words: Ids, near: Double, sigma: Double, settings: Settings, scratch: Scratch, weights: Double
) -> bool:
    """Weights of the words of a text, by the inverse of the window's Gram matrix, which changes word by word."""
    # The residual of word t with respect to all others of its window is the combination of words in column t of the
    # inverse, divided by its diagonal entry. A word that enters borders the inverse, one that leaves is eliminated from
    # it. Repeated words share a slot and have no residual. Returns False for a text that float32 cannot resolve.
    window, scores, divisor = settings
    inverse, border, column, own, slot_of, place_of, count = scratch
    n = len(words)
    for p in range(len(inverse)):
        place_of[p] = -1
        count[p] = 0
        border[p] = 0.0
        for k in range(len(column)):
            inverse[p, k] = 0.0
    head = 0
    used: Any = np.int64(0)
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
    """Border the inverse of a Gram matrix; False if the new word is nearly in the span of the others."""
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
    """Remove one word from the inverse of a Gram matrix."""
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
    """Weights of the words of a text by Gram-Schmidt in float64, window by window, the word itself last."""
    window, scores, divisor = settings
    n, dim = len(words), rows.shape[1]
    basis = np.empty((min(n, 2 * window + 1, dim) + 1, dim))
    for i in range(n):
        first, last = max(0, i - window), min(n - 1, i + window)
        rank: Any = np.int64(0)
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
    """Add the unit residual of a word to a basis as its next row; returns lengths of residual (or 0) and word."""
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
    """Sum of the scores requested."""
    novelty, significance, uniqueness = scores
    weight = 0.0
    if novelty:
        weight += np.exp(residual / length) if residual > 0.0 else 1.0
    if significance:
        weight += residual / divisor
    if uniqueness:
        weight += np.exp(-distinct) if residual > 0.0 else 1.0
    return weight


@njit(cache=True, nogil=True)
def gem_kernel(
    texts: tuple[Single, Double, Ids, Bounds],
    corpus: tuple[Double, Single, Double],
    options: tuple[int, int, Double, Scores, int, bool],
    chunk: tuple[int, int],
    out: tuple[Single, Double, Bounds],
) -> None:
    """Write vectors, weights of words and chosen corpus vectors of the texts of a chunk, see `gem_vectors`."""
    rows, products, ids, offsets = texts
    exact_vectors, vectors, sigma = corpus
    sentence_vectors, word_weights, all_chosen = out
    window, n_chosen, strengths, scores, divisor, removes = options
    longest = longest_text(offsets, chunk)
    reach = min(2 * window, longest - 1)
    recent = np.zeros((recent_rows(reach), padded(rows.shape[1])), dtype=np.float32)
    band = band_room(longest, reach)
    chosen, chosen_sigma = np.arange(n_chosen, dtype=np.int32), np.empty(n_chosen)
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
            sentence_vectors[text, k] = total[k]
        for i in range(len(words)):
            word_weights[offsets[text] + i] = weights[i]
        for j in range(n_chosen):
            all_chosen[text, j] = chosen[j]


@njit(cache=True, nogil=True, fastmath=True)
def _choose(products: Double, words: Ids, strengths: Double, chosen: Ids, sums: Double) -> None:
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
    removal: tuple[Single, Ids, bool],
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
