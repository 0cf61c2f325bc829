"""The compiled kernel of GEM's coarse vectors."""

from __future__ import annotations

import numpy as np
from numba import njit

from isosent.numeric.gram_kernel import (
    RANK_TOLERANCE,
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

_EPS = float(np.finfo(np.float64).eps)
_FAST = {"contract", "nsz", "arcp", "reassoc"}

Room = tuple[tuple[Double, Double, Double], tuple[Double, Double, Double, Double], Double]


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
    width = min(longest_text(offsets, chunk), dim)
    recent = np.zeros((recent_rows(width - 1), padded(dim)))
    band = band_room(width, width - 1)
    a, b = np.empty((3, width, width)), np.empty((5, width))
    room = ((a[0], a[1], a[2]), (b[0], b[1], b[2], b[3]), b[4])
    shares = np.empty(width)
    total = np.empty(dim)
    for text in range(chunk[0], chunk[1]):
        own = ids[offsets[text] : offsets[text + 1]]
        for k in range(dim):
            total[k] = 0.0
        if len(own) > dim:
            _add_left_vectors(rows, own, power, total, room)
        elif len(own):
            fill_band(rows, own, width - 1, recent, band)
            _right_combination(band, len(own), power, shares, room)
            add_rows(total, rows, own, shares, len(own))
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
    _turn(reflectors, scales, n, toward, True)
    floor = n * _EPS * values[:n].max()
    for j in range(n):
        if values[j] > floor:
            total = 0.0
            for i in range(n):
                total += vectors[j, i] * toward[i]
            strength = values[j] ** ((power - 1) / 2)
            if abs(total) <= RANK_TOLERANCE * np.sqrt(n):
                entries = vectors[j, :n].copy()
                _turn(reflectors, scales, n, entries, False)
                total = _side(entries)
            strength *= 1.0 if total > 0 else -1.0
            for i in range(n):
                shares[i] += strength * vectors[j, i]
    _turn(reflectors, scales, n, shares, False)


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
            _turn(reflectors, scales, dim, left, False)
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
    """Householder reduction of the leading n x n block, which is lost; `_turn` takes the reflectors.

    For the small matrices of sentences a call of LAPACK takes twice as long as this with `_diagonalize`. Loops begin at
    0, over zeros, because only then they become vector instructions.
    """
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
def _turn(reflectors: Double, scales: Double, n: int, x: Double, forward: bool) -> None:
    """Take a vector to the basis in which the matrix is tridiagonal, or back."""
    for i in range(n - 1):
        step = i if forward else n - 2 - i
        total = 0.0
        for k in range(n):
            total += reflectors[step, k] * x[k]
        total *= scales[step]
        for k in range(n):
            x[k] -= total * reflectors[step, k]


@njit(cache=True, nogil=True, fastmath=_FAST, error_model="numpy")
def _diagonalize(values: Double, beside: Double, vectors: Double, n: int) -> None:
    """Eigenvalues of a tridiagonal matrix, in place of its diagonal, and eigenvectors as rows: QL, implicit shifts."""
    for i in range(n):
        for k in range(n):
            vectors[i, k] = 0.0
        vectors[i, i] = 1.0
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
                beside[start] = bulge
            beside[stop] = 0.0
