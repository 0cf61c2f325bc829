"""The .bin files of fastText: vectors of words, and of the character n-grams that unknown words are made of."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.errors import FileFormatError
from isosent.io import bounds
from isosent.io.system import naming, open_to_read
from isosent.words.formats import (
    Progress,
    RowBlock,
    checked_block,
    in_threads,
    joined,
    rows_of,
    word_too_long,
)
from isosent.words.subwords import add_rows, ngram_buckets
from isosent.words.vocabulary import Vocabulary

MAGIC = struct.pack("<i", 793712314)
_VERSIONS = (11, 12)
_SETTINGS = "<12id"
_SUPERVISED = 3
_END_OF_SENTENCE = b"</s>"
_BLOCK_WORDS = 4096
_BLOCK_BUCKETS = 1 << 14


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


@dataclass(frozen=True, slots=True, eq=False)
class NgramSubwords:
    """Vectors of unknown words, made of their character n-grams."""

    tables: tuple[NgramTable, ...]  # at least one; they fill different dimensions
    dim: int  # dimensions of all

    def vectors(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Make the vectors of words."""
        encoded = [word[: bounds.LONGEST_WORD].encode("utf-8", "replace") for word in words]
        vectors = np.zeros((len(encoded), self.dim), dtype=np.float32)
        for table in self.tables:
            means = table.means(encoded)
            vectors[:, table.first_column : table.first_column + means.shape[1]] = means
        return vectors


class _Mapped:
    """A file that is read front to back through a memory map."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        with open_to_read(path) as file, naming(path):
            self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def numbers(self, layout: str) -> tuple[Any, ...]:
        start = self.advance(struct.calcsize(layout))
        return struct.unpack_from(layout, self.content, start)

    def string(self) -> bytes:
        start = self.position
        stop = self.content.find(b"\0", start, start + bounds.LONGEST_WORD + 1)
        if stop < 0 and start + bounds.LONGEST_WORD < len(self.content):
            raise word_too_long(f"{self.path}, byte {start}")
        self.advance(stop + 1 - start if stop >= 0 else len(self.content))
        return self.content[start:stop]

    def matrix(self, n_columns: int) -> NDArray[np.float32]:
        n_rows, width = self.numbers("<qq")
        if width != n_columns or n_rows < 0:
            raise FileFormatError(f"{self.path} must hold matrices of {n_columns} columns; got {n_rows} x {width}.")
        start = self.advance(4 * n_rows * width)
        return np.ndarray((n_rows, width), "<f4", buffer=self.content, offset=start)

    def advance(self, n_bytes: int) -> int:
        """Skip some bytes, and return where they begin."""
        start = self.position
        if start + n_bytes > len(self.content):
            raise FileFormatError(f"{self.path} is a truncated fastText model. Copy it again.")
        self.position += n_bytes
        return start


def fasttext_rows(
    path: Path, wanted: Vocabulary | None = None, progress: Progress | None = None
) -> tuple[Iterator[RowBlock], NgramTable | None]:
    """Open a model of fastText."""
    file = _Mapped(path)
    _, version = file.numbers("<2i")
    if version not in _VERSIONS:
        raise FileFormatError(
            f"{path} must be a fastText model of version {' or '.join(map(str, _VERSIONS))}; got {version}."
        )
    dim, _, _, _, _, _, _, model, n_buckets, shortest, longest, _, _ = file.numbers(_SETTINGS)
    if version == 11 and model == _SUPERVISED:
        longest = 0
    if not 0 < dim <= bounds.MOST_DIMENSIONS or longest > bounds.LONGEST_NGRAM:
        raise FileFormatError(
            f"{path}: 1 to {bounds.MOST_DIMENSIONS:,} dimensions and n-grams of up to {bounds.LONGEST_NGRAM} "
            f"characters are read; got {dim} and {longest}."
        )
    words, has_ngrams = _dictionary(file)
    (is_quantised,) = file.numbers("<?")
    if is_quantised:
        raise FileFormatError(f"{path} is quantised, as .ftz files are. Use the .bin that it was made of.")
    matrix = file.matrix(dim)
    if len(matrix) != len(words) + n_buckets:
        raise FileFormatError(
            f"{path} must hold {len(words)} words and {n_buckets} buckets of n-grams; got {len(matrix)} vectors."
        )
    file.numbers("<?")
    file.matrix(dim)
    table = None
    if has_ngrams and longest > 0 and n_buckets > 0:
        table = NgramTable(matrix[len(words) :], (shortest, longest))
        _check_buckets(path, table)
    return in_threads(_tasks(path, words, matrix, table, wanted, progress)), table


def _dictionary(file: _Mapped) -> tuple[list[bytes], bool]:
    """Words in the order of their rows (labels follow them), and whether n-grams may be used."""
    n_entries, n_words, n_labels, _, n_pruned = file.numbers("<3i2q")
    if not 0 <= n_words == n_entries - n_labels:
        raise FileFormatError(f"{file.path}: entries must be words and labels; got {n_entries}, {n_words} words.")
    if n_pruned > 0:
        raise FileFormatError(f"{file.path} was pruned, and lacks n-grams. Use the model that it was made of.")
    words = []
    for _ in range(n_entries):
        words.append(file.string())
        file.advance(9)  # its count and its kind
    return words[:n_words], n_pruned < 0


def _check_buckets(path: Path, table: NgramTable) -> None:
    for start in range(0, len(table.vectors), _BLOCK_BUCKETS):
        bad = np.flatnonzero(~np.isfinite(table.vectors[start : start + _BLOCK_BUCKETS]).all(axis=1))
        if bad.size:
            raise FileFormatError(f"{path}: n-gram bucket {start + bad[0]} must be finite; got NaN or infinity.")


def _tasks(
    path: Path,
    words: list[bytes],
    matrix: NDArray[np.float32],
    table: NgramTable | None,
    wanted: Vocabulary | None,
    progress: Progress | None,
) -> Iterator[Callable[[], RowBlock]]:
    size, reported = path.stat().st_size, 0
    for start in range(0, len(words), _BLOCK_WORDS):
        yield partial(_block, path, start, words[start : start + _BLOCK_WORDS], matrix, table, wanted)
        if progress is not None:
            reached = size * min(start + _BLOCK_WORDS, len(words)) // len(words)
            progress(reached - reported)
            reported = reached


def _block(
    path: Path,
    start: int,
    words: list[bytes],
    matrix: NDArray[np.float32],
    table: NgramTable | None,
    wanted: Vocabulary | None,
) -> RowBlock:
    numbers = np.arange(len(words)) if wanted is None else rows_of(wanted, words)
    chosen = [words[number] for number in numbers]
    vectors = matrix[start + numbers]
    if table is not None:
        vectors = table.means(chosen, vectors)
    return checked_block(f"{path}: vector", start + numbers + 1, chosen, vectors)
