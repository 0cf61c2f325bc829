"""Rows of word-vector files on their way from a format to an array or a file."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from isosent.errors import DuplicateWordWarning, FileFormatError, UndecodableWordWarning
from isosent.files import bounds
from isosent.numeric.workers import n_workers
from isosent.text.vocabulary import Vocabulary, first_rows, take_words


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Some words and their vectors.

    Parameters
    ----------
    words : list of bytes
        The words, in UTF-8.
    vectors : ndarray of shape (n_words, dim), float32
        Their vectors, finite.
    n_undecodable : int, default 0
        Rows beside these that were left out because their word is not UTF-8.
    """

    words: list[bytes]
    vectors: NDArray[np.float32]
    n_undecodable: int = 0


def checked_block(where: str, numbers: NDArray[np.int64], words: list[bytes], vectors: NDArray[np.float32]) -> RowBlock:
    """Refuse vectors that are not finite and overlong words, and leave out words that are not UTF-8.

    Parameters
    ----------
    where : str
        File and what its rows are called, for messages.
    numbers : ndarray of shape (n_words,), int64
        Number of each row.
    words : list of bytes
        The words.
    vectors : ndarray of shape (n_words, dim), float32
        Their vectors.

    Returns
    -------
    RowBlock
        The rows that can be used.

    Raises
    ------
    FileFormatError
        If a vector holds NaN or infinity, or a word is longer than `bounds.LONGEST_WORD`; the message names the row.
    """
    if max(map(len, words), default=0) > bounds.LONGEST_WORD:
        row = next(row for row, word in enumerate(words) if len(word) > bounds.LONGEST_WORD)
        raise word_too_long(f"{where} {numbers[row]}")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        word = words[bad[0]].decode("utf-8", "replace")
        raise FileFormatError(f"{where} {numbers[bad[0]]} must be finite; got NaN or infinity for the word {word!r}.")
    if _is_utf8(b"\n".join(words)):
        return RowBlock(words, vectors)
    kept = [row for row, word in enumerate(words) if _is_utf8(word)]
    return RowBlock([words[row] for row in kept], vectors[kept], len(words) - len(kept))


def word_too_long(where: str) -> FileFormatError:
    """What is raised for a word beyond its bound."""
    return FileFormatError(f"{where}: its word is longer than {bounds.shown_bytes(bounds.LONGEST_WORD)}.")


def rows_of(wanted: Vocabulary, words: list[bytes]) -> NDArray[np.intp]:
    """Find the words that are wanted.

    Parameters
    ----------
    wanted : Vocabulary
        Words.
    words : list of bytes
        The words of some rows, in UTF-8 or not.

    Returns
    -------
    ndarray of shape (n_rows,), intp
        Rows whose word is among those wanted, rising.
    """
    characters, offsets = joined(words)
    return np.flatnonzero(wanted.ids_of_spans(characters, offsets[:-1], offsets[1:]) >= 0)


def joined(words: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Write words one behind the other.

    Parameters
    ----------
    words : sequence of bytes
        The words.

    Returns
    -------
    characters : ndarray of shape (n_bytes,), uint8
        Read-only.
    offsets : ndarray of shape (n_words + 1,), int64
        Where each word begins, and the end.
    """
    offsets = np.fromiter(accumulate(map(len, words), initial=0), dtype=np.int64, count=len(words) + 1)
    return np.frombuffer(b"".join(words), dtype=np.uint8), offsets


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def in_threads(tasks: Iterable[Callable[[], RowBlock]]) -> Iterator[RowBlock]:
    """Make blocks in as many threads as there are processors.

    Parameters
    ----------
    tasks : iterable of callable
        Each makes a block; looked up one by one.

    Yields
    ------
    RowBlock
        The blocks, in order. No more are held than keep the threads busy.
    """
    running: deque[Future[RowBlock]] = deque()
    with ThreadPoolExecutor(n_workers()) as pool:
        for task in tasks:
            running.append(pool.submit(task))
            if len(running) > n_workers():
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


class WordCollector:
    """The words of all blocks of a file.

    Parameters
    ----------
    where : str
        The file, for messages.
    """

    def __init__(self, where: str) -> None:
        self._where = where
        self._words: list[bytes] = []
        self._n_undecodable = 0

    def add(self, block: RowBlock) -> None:
        """Add the words of a block.

        Parameters
        ----------
        block : RowBlock
            The next block.
        """
        self._words += block.words
        self._n_undecodable += block.n_undecodable

    def finish(self) -> tuple[Vocabulary, NDArray[np.int64] | None]:
        """Make the vocabulary, and warn of rows that are left out.

        Returns
        -------
        vocabulary : Vocabulary
            The distinct words.
        rows : ndarray of shape (vocab_size,), int64, or None
            The first row of each word; None where no word is repeated.

        Warns
        -----
        UndecodableWordWarning
            If words were not UTF-8.
        DuplicateWordWarning
            If words are repeated.
        """
        if self._n_undecodable:
            _warn(
                f"{self._where} holds words that are not UTF-8: rows left out: {self._n_undecodable}.",
                UndecodableWordWarning,
            )
        characters, offsets = joined(self._words)
        rows = first_rows(characters, offsets)
        n_repeated = len(self._words) - len(rows)
        if not n_repeated:
            return Vocabulary.from_bytes(characters, offsets), None
        _warn(
            f"{self._where} repeats words: rows left out: {n_repeated}; the first row of each word is kept.",
            DuplicateWordWarning,
        )
        return Vocabulary.from_bytes(*take_words(characters, offsets, rows)), rows


def _warn(sentence: str, category: type[Warning]) -> None:
    warnings.warn(sentence, category, stacklevel=3)


def in_memory(where: str, blocks: Iterable[RowBlock]) -> tuple[Vocabulary, NDArray[np.float32]]:
    """Bring the rows of a file into one array.

    Parameters
    ----------
    where : str
        The file, for messages.
    blocks : iterable of RowBlock
        Its rows.

    Returns
    -------
    vocabulary : Vocabulary
        The distinct words.
    vectors : ndarray of shape (vocab_size, dim), float32
        Their vectors.
    """
    words, kept = WordCollector(where), []
    for block in blocks:
        words.add(block)
        kept.append(block.vectors)
    vocabulary, rows = words.finish()
    vectors = np.empty((sum(map(len, kept)), kept[0].shape[1]), dtype=np.float32)
    end = len(vectors)
    while kept:  # each block is let go of as soon as it is copied
        last = kept.pop()
        vectors[end - len(last) : end] = last
        end -= len(last)
    return vocabulary, vectors if rows is None else vectors[rows]
