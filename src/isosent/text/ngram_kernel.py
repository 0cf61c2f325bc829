"""Compiled loops over the character n-grams of words, as fastText takes them."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

_BASIS, _PRIME = np.uint32(2166136261), np.uint32(16777619)


@njit(cache=True, nogil=True)
def ngram_buckets(
    characters: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    lengths: tuple[int, int],
    n_buckets: int,
    buckets: NDArray[np.int32],
    counts: NDArray[np.int64],
) -> None:
    """Hash the n-grams of words that stand between their brackets.

    Parameters
    ----------
    characters, offsets : ndarray of uint8, and of shape (n_words + 1,), int64
        UTF-8 of the words, one behind the other, with the brackets.
    lengths : tuple of two int
        Characters of the shortest and of the longest n-gram.
    n_buckets : int
        Hashes are taken modulo this.
    buckets : ndarray of int32
        Filled: the buckets of all words, one behind the other; of length 0 to count only.
    counts : ndarray of shape (n_words,), int64
        Filled: n-grams of each word.

    Notes
    -----
    32-bit FNV-1a over signed bytes, as in fastText: a byte above 127 sets the upper 24 bits, too. A bracket alone is
    no n-gram.
    """
    shortest, longest = lengths
    n_found = 0
    for word in range(len(offsets) - 1):
        n_before, stop = n_found, offsets[word + 1]
        for start in range(offsets[word], stop):
            if characters[start] & 0xC0 == 0x80:
                continue
            value, at = _BASIS, start
            for length in range(1, longest + 1):
                if at == stop:
                    break
                while True:
                    value = np.uint32((value ^ np.uint32(np.int8(characters[at]))) * _PRIME)
                    at += 1
                    if at == stop or characters[at] & 0xC0 != 0x80:
                        break
                if length >= shortest and not (length == 1 and (start == offsets[word] or at == stop)):
                    if len(buckets):
                        buckets[n_found] = np.int32(value % np.uint32(n_buckets))
                    n_found += 1
        counts[word] = n_found - n_before


@njit(cache=True, nogil=True)
def add_rows(
    table: NDArray[np.float32], ids: NDArray[np.int32], offsets: NDArray[np.int64], sums: NDArray[np.float32]
) -> None:
    """Add rows of a table to sums, one after the other.

    Parameters
    ----------
    table : ndarray of shape (n_rows, dim), float32
        The rows; need not be aligned in memory.
    ids : ndarray of int32
        Rows to add, those of all sums one behind the other.
    offsets : ndarray of shape (n_sums + 1,), int64
        Where those of each sum begin in `ids`, and the end.
    sums : ndarray of shape (n_sums, dim), float32
        Added to.
    """
    for row in range(len(sums)):
        for position in range(offsets[row], offsets[row + 1]):
            number = ids[position]
            for column in range(sums.shape[1]):
                sums[row, column] += table[number, column]
