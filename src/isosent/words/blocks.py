"""Blocks of rows of a file of word vectors: some words and their vectors, checked, and what is made of all of them.

Readers yield `RowBlock`s, which `checked_block` has found to be finite and in UTF-8, and may make several at a time
(`in_threads`). `WordCollector` makes the vocabulary of their words and leaves out repeated ones.
"""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.errors import DuplicateWordWarning, FileFormatError, UndecodableWordWarning
from isosent.io import bounds
from isosent.numeric.threads import n_workers
from isosent.words.vocabulary import Vocabulary, first_rows, joined, take_words


class RowBlock(NamedTuple):
    """Some words, in UTF-8, and their vectors, finite; rows whose word is not UTF-8 are left out and counted."""

    words: list[bytes]
    vectors: NDArray[np.float32]
    n_undecodable: int = 0


def checked_block(where: str, numbers: NDArray[np.int64], words: list[bytes], vectors: NDArray[np.float32]) -> RowBlock:
    """Refuse vectors that are not finite and overlong words, and leave out words that are not UTF-8."""
    if max(map(len, words), default=0) > bounds.LONGEST_WORD:
        row = next(row for row, word in enumerate(words) if len(word) > bounds.LONGEST_WORD)
        raise word_too_long(f"{where} {numbers[row]}")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        word = words[bad[0]].decode("utf-8", "replace")
        raise FileFormatError(f"{where} {numbers[bad[0]]}: the vector of {word!r} holds NaN or infinity.")
    if is_utf8(b"\n".join(words)):
        return RowBlock(words, vectors)
    rows = [row for row, word in enumerate(words) if is_utf8(word)]
    return RowBlock([words[row] for row in rows], vectors[rows], len(words) - len(rows))


def is_utf8(text: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def word_too_long(where: str) -> FileFormatError:
    """What is raised for a word beyond its bound."""
    return FileFormatError(f"{where}: its word is longer than {bounds.shown_bytes(bounds.LONGEST_WORD)}.")


def rows_of(wanted: Vocabulary, words: list[bytes]) -> NDArray[np.intp]:
    """Find the words that are wanted."""
    characters, offsets = joined(words)
    return np.flatnonzero(wanted.ids_of_spans(characters, offsets[:-1], offsets[1:]) >= 0)


def in_threads(tasks: Iterable[Callable[[], RowBlock]]) -> Iterator[RowBlock]:
    """Make blocks in as many threads as there are processors, in their order."""
    running: deque[Future[RowBlock]] = deque()
    with ThreadPoolExecutor(n_workers()) as pool:
        for task in tasks:
            running.append(pool.submit(task))
            if len(running) > n_workers():
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


class WordCollector:
    """The words of all blocks of a file."""

    def __init__(self, where: str) -> None:
        self._where, self._n_undecodable = where, 0
        self._words: list[bytes] = []

    def add(self, block: RowBlock) -> None:
        """Add the words of a block."""
        self._words += block.words
        self._n_undecodable += block.n_undecodable

    def finish(self) -> tuple[Vocabulary, NDArray[np.int64] | None]:
        """Make the vocabulary, and warn of rows that are left out; the rows that stay, None if all do."""
        if self._n_undecodable:
            sentence = f"{self._where} holds words that are not UTF-8: rows left out: {self._n_undecodable}."
            warnings.warn(sentence, UndecodableWordWarning, stacklevel=2)
        characters, offsets = joined(self._words)
        rows = first_rows(characters, offsets)
        n_repeated = len(self._words) - len(rows)
        if not n_repeated:
            return Vocabulary.from_bytes(characters, offsets), None
        sentence = f"{self._where} repeats words: rows left out: {n_repeated}; the first row of each word is kept."
        warnings.warn(sentence, DuplicateWordWarning, stacklevel=2)
        return Vocabulary.from_bytes(*take_words(characters, offsets, rows)), rows


def in_memory(where: str, blocks: Iterable[RowBlock]) -> tuple[Vocabulary, NDArray[np.float32]]:
    """Bring the rows of a file into one array."""
    words, parts = WordCollector(where), []
    for block in blocks:
        words.add(block)
        parts.append(block.vectors)
    vocabulary, rows = words.finish()
    vectors = np.empty((sum(map(len, parts)), parts[0].shape[1]), dtype=np.float32)
    end = len(vectors)
    while parts:  # each block is released as soon as it is copied
        last = parts.pop()
        vectors[end - len(last) : end] = last
        end -= len(last)
    return vocabulary, vectors if rows is None else vectors[rows]
