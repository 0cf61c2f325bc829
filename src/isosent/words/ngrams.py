"""Character n-grams as fastText hashes them: vectors of words that a vocabulary lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.io import bounds
from isosent.numeric.compiled import njit
from isosent.words.vocabulary import joined

_END_OF_SENTENCE = b"</s>"


@dataclass(frozen=True, slots=True, eq=False)
class NgramTable:
    """Vectors of hashed character n-grams."""

    vectors: NDArray[np.float32]  # (n_buckets, dim)
    lengths: tuple[int, int]  # characters of the shortest and of the longest n-gram, with the brackets of a word
    first_column: int = 0  # where its dimensions begin among those of several files

    def buckets(self, words: Sequence[bytes]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Hash the n-grams of words."""
        characters, bounds = joined([b"" if word == _END_OF_SENTENCE else b"<" + word + b">" for word in words])
        counts, n_buckets = np.empty(len(words), dtype=np.int64), len(self.vectors)
        ngram_buckets(characters, bounds, self.lengths, n_buckets, np.empty(0, dtype=np.int32), counts)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        ids = np.empty(offsets[-1], dtype=np.int32)
        ngram_buckets(characters, bounds, self.lengths, n_buckets, ids, counts)
        return ids, offsets

    def means(self, words: Sequence[bytes], word_rows: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Average the vectors of the n-grams of words."""
        ids, offsets = self.buckets(words)
        shape = len(words), self.vectors.shape[1]
        sums = np.zeros(shape, dtype=np.float32) if word_rows is None else word_rows.copy()
        add_rows(self.vectors, ids, offsets, sums)
        counts = np.diff(offsets) + (word_rows is not None)
        sums *= (1 / np.maximum(counts, 1)).astype(np.float32)[:, None]
        return sums


def vectors_of_unknown(tables: Sequence[NgramTable], words: Sequence[str], dim: int) -> NDArray[np.float32]:
    """Vectors of unknown words, (n_words, dim), made of their n-grams; each table fills other dimensions."""
    encoded = [word[: bounds.LONGEST_WORD].encode("utf-8", "replace") for word in words]
    vectors = np.zeros((len(encoded), dim), dtype=np.float32)
    for table in tables:
        means = table.means(encoded)
        vectors[:, table.first_column : table.first_column + means.shape[1]] = means
    return vectors


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
    """Hash the character n-grams of words, each word already in brackets."""
    # 32-bit FNV-1a over signed bytes, as in fastText: a byte above 127 sets the upper 24 bits, too. A bracket alone
    # is no n-gram.
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
    """Add rows of a table to sums, one after the other."""
    for row in range(len(sums)):
        for position in range(offsets[row], offsets[row + 1]):
            number = ids[position]
            for column in range(sums.shape[1]):
                sums[row, column] += table[number, column]
