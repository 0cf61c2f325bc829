"""Compiled pieces that the kernels of GEM share.

Rows are addressed by two indices, never as views: those are counted references, which cost more than the short loops
over them. Compiled code is cached by module, whatever it calls: after a change here, remove ``numeric/__pycache__``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

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
    """The next multiple of 16: loops of such a length are vector instructions from end to end."""
    return (n + 15) // 16 * 16


@njit(cache=True, nogil=True, fastmath=True)
def add_rows(total: NDArray[Any], rows: Single, picks: NDArray[Any], shares: NDArray[Any], n: int) -> None:
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


@njit(cache=True, nogil=True)
def band_room(longest: int, reach: int) -> Double:
    """Room for what `fill_band` writes of texts of up to `longest` words; it writes some numbers that mean nothing."""
    return np.empty((longest + 1, reach + 5))


@njit(cache=True, nogil=True)
def recent_rows(reach: int) -> int:
    """Rows that `fill_band` keeps: a power of two."""
    size = 1
    while size < reach + 5:
        size *= 2
    return size


@njit(cache=True, nogil=True, fastmath=True)
def fill_band(rows: Single, words: Ids, reach: int, recent: NDArray[Any], band: Double) -> None:
    """Gram matrix of the words of a text near its diagonal: ``band[i, k]`` is word i times word i - k.

    Two words are multiplied with four at a time, in the precision of ``recent``, which holds the last rows.
    """
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
