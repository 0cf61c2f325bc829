"""Words and their ids, in arrays that can be stored and opened without being read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError
from isosent.text.word_table import fill_slots, gather, look_up

Number = TypeVar("Number", bound=np.generic)


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Distinct words with the ids 0 ... vocab_size - 1.

    Parameters
    ----------
    characters : ndarray of shape (n_bytes,), uint8
        UTF-8 of all words, one behind the other in the order of their ids.
    offsets : ndarray of shape (vocab_size + 1,), int64
        Word i is ``characters[offsets[i]:offsets[i + 1]]``.
    slots : ndarray of shape (n_slots,), int32
        Hash table of the ids, -1 where free; see Notes. `from_words` and `from_bytes` build it.

    Raises
    ------
    InputError
        If the arrays do not belong together.

    Notes
    -----
    A word is searched from slot ``(h ^ h >> 32) mod n_slots`` on, one slot after the other up to a free one; h is its
    64-bit FNV-1a hash and n_slots a power of two, two to four times the number of words. Words are entered in the order
    of their ids. The arrays are therefore the same on every machine, and may lie in a file. They are kept as read-only
    views.

    Examples
    --------
    >>> vocabulary = Vocabulary.from_words(["the", "man", "straße"])
    >>> len(vocabulary), vocabulary.id_of("man"), "cat" in vocabulary, vocabulary.ids_of(["straße", "cat"])
    (3, 1, False, array([ 2, -1], dtype=int32))
    """

    characters: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    slots: NDArray[np.int32]

    def __post_init__(self) -> None:
        arrays = {"characters": np.uint8, "offsets": np.int64, "slots": np.int32}
        for name, dtype in arrays.items():
            object.__setattr__(self, name, read_only(getattr(self, name).astype(dtype, copy=False)))
        _check_offsets(self.characters, self.offsets)
        n_slots, used = len(self.slots), np.count_nonzero(self.slots >= 0)
        if n_slots & (n_slots - 1) or not used == len(self) < n_slots or self.slots.max() >= len(self):
            raise InputError(
                f"vocabulary: slots must be the hash table of {len(self)} words; got {n_slots} slots, {used} in use."
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, self.arrays  # made anew, because a pickle does not keep that they are read-only

    @classmethod
    def from_words(cls, words: Iterable[str]) -> Vocabulary:
        """Build a vocabulary from strings.

        Parameters
        ----------
        words : iterable of str
            Distinct words, in the order of their ids.

        Returns
        -------
        Vocabulary
            The same words.

        Raises
        ------
        InputError
            If a word comes twice or holds a lone surrogate.
        """
        return cls.from_bytes(*words_as_bytes(words))

    @classmethod
    def from_bytes(cls, characters: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Vocabulary:
        """Build a vocabulary from words that are UTF-8 already.

        Parameters
        ----------
        characters : ndarray of shape (n_bytes,), uint8
            UTF-8 of all words, one behind the other.
        offsets : ndarray of shape (vocab_size + 1,), int64
            Where each word begins, and the end.

        Returns
        -------
        Vocabulary
            Views of these arrays.

        Raises
        ------
        InputError
            If a word comes twice (see `first_rows`), or is not UTF-8.
        """
        _check_offsets(characters, offsets)
        slots, firsts = _enter(characters, offsets[:-1], offsets[1:])
        repeated = np.flatnonzero(firsts != np.arange(len(firsts)))
        if repeated.size:
            row, first = repeated[0], firsts[repeated[0]]
            word = characters[offsets[row] : offsets[row + 1]].tobytes().decode("utf-8", "replace")
            raise InputError(f"vocabulary: words must be distinct; got {word!r} in rows {first} and {row}.")
        _check_utf8(characters, offsets)
        return cls(characters, offsets, slots)

    def take(self, rows: NDArray[np.int64]) -> Vocabulary:
        """Select words.

        Parameters
        ----------
        rows : ndarray of shape (n_rows,), int64
            Distinct ids, in the order of the new ones.

        Returns
        -------
        Vocabulary
            These words only.
        """
        return Vocabulary.from_bytes(*take_words(self.characters, self.offsets, rows))

    @property
    def arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int32]]:
        """The three arrays, as compiled code takes them."""
        return self.characters, self.offsets, self.slots

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        characters, bounds = self.characters.tobytes(), self.offsets.tolist()
        return (characters[bounds[i] : bounds[i + 1]].decode() for i in range(len(self)))

    def __getitem__(self, word_id: int) -> str:
        return self.characters[self.offsets[word_id] : self.offsets[word_id + 1]].tobytes().decode()

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.id_of(word) >= 0

    def id_of(self, word: str) -> int:
        """Return the id of a word, -1 for an unknown one.

        Parameters
        ----------
        word : str
            The word.

        Returns
        -------
        int
            Its id.
        """
        return int(self.ids_of([word])[0])

    def ids_of(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Return the ids of words, -1 for unknown ones.

        Parameters
        ----------
        words : iterable of str
            Any words.

        Returns
        -------
        ndarray of shape (n_words,), int32
            Their ids.
        """
        text, offsets = words_as_bytes(words)
        return self.ids_of_spans(text, offsets[:-1], offsets[1:])

    def ids_of_spans(
        self, text: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the ids of words inside a text, -1 for unknown ones.

        Parameters
        ----------
        text : ndarray of shape (n_bytes,), uint8
            UTF-8.
        starts, stops : ndarray of shape (n_words,), int64
            First byte of each word, and the one behind its last.

        Returns
        -------
        ndarray of shape (n_words,), int32
            Their ids.
        """
        ids = np.empty(len(starts), dtype=np.int32)
        look_up(read_only(text), read_only(starts), read_only(stops), self.arrays, ids)
        return ids


def words_as_bytes(words: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Write words as UTF-8, one behind the other.

    Parameters
    ----------
    words : iterable of str
        The words.

    Returns
    -------
    characters : ndarray of shape (n_bytes,), uint8
        Read-only.
    offsets : ndarray of shape (n_words + 1,), int64
        Where each word begins, and the end.

    Raises
    ------
    InputError
        If a word holds a lone surrogate, which no UTF-8 can express.
    """
    try:
        encoded = [word.encode() for word in words]
    except UnicodeEncodeError as error:
        raise InputError(f"vocabulary: words must be valid Unicode; got {error.object!r}.") from None
    offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded)), out=offsets[1:])
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets


def first_rows(characters: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find the first row of each distinct word.

    Parameters
    ----------
    characters : ndarray of shape (n_bytes,), uint8
        UTF-8 of all words, one behind the other.
    offsets : ndarray of shape (n_words + 1,), int64
        Where each word begins, and the end.

    Returns
    -------
    ndarray of shape (n_distinct,), int64
        Rows, rising; all rows where no word comes twice. `take_words` selects them.

    Examples
    --------
    >>> first_rows(*words_as_bytes(["b", "a", "b", "c"]))
    array([0, 1, 3])
    """
    firsts = same_spans(characters, offsets[:-1], offsets[1:])
    return np.flatnonzero(firsts == np.arange(len(firsts)))


def same_spans(text: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int32]:
    """Find for each word inside a text the first that is the same.

    Parameters
    ----------
    text : ndarray of shape (n_bytes,), uint8
        UTF-8.
    starts, stops : ndarray of shape (n_words,), int64
        First byte of each word, and the one behind its last.

    Returns
    -------
    ndarray of shape (n_words,), int32
        Number of the first word with the same bytes, its own where there is none before it.
    """
    return _enter(text, starts, stops)[1]


def take_words(
    characters: NDArray[np.uint8], offsets: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Select words.

    Parameters
    ----------
    characters : ndarray of shape (n_bytes,), uint8
        UTF-8 of all words, one behind the other.
    offsets : ndarray of shape (n_words + 1,), int64
        Where each word begins, and the end.
    rows : ndarray of shape (n_rows,), int64
        Words wanted, in that order.

    Returns
    -------
    characters : ndarray of shape (n_bytes,), uint8
        UTF-8 of these words.
    offsets : ndarray of shape (n_rows + 1,), int64
        Where each begins, and the end.
    """
    taken = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(np.diff(offsets)[rows], out=taken[1:])
    gathered = np.empty(taken[-1], dtype=np.uint8)
    gather(read_only(characters), read_only(offsets), np.ascontiguousarray(rows, dtype=np.int64), gathered)
    return gathered, taken


def _enter(
    characters: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Hash table of words, and for each word the first that is the same."""
    slots = np.full(1 << (2 * len(starts)).bit_length(), -1, dtype=np.int32)
    firsts = np.empty(len(starts), dtype=np.int32)
    if len(starts):  # most often there are no words to leave out: do not load compiled code for it
        fill_slots(read_only(characters), read_only(starts), read_only(stops), slots, firsts)
    return slots, firsts


def read_only(array: NDArray[Number]) -> NDArray[Number]:
    """View an array as compiled code wants it: one type, whether it came from a file, from bytes or was computed.

    Parameters
    ----------
    array : ndarray
        Any array.

    Returns
    -------
    ndarray
        Contiguous and read-only.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _check_offsets(characters: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
    if not len(offsets) or offsets[0] or offsets[-1] != len(characters) or (offsets[1:] < offsets[:-1]).any():
        raise InputError(
            f"vocabulary: offsets must rise from 0 to {len(characters)}, the number of bytes; the array does not."
        )


def _check_utf8(characters: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
    """All bytes together are UTF-8, and no word begins inside a character."""
    try:
        characters.tobytes().decode()
    except UnicodeDecodeError as error:
        row = int(np.searchsorted(offsets, error.start, side="right")) - 1
        raise InputError(f"vocabulary: words must be UTF-8; got other bytes in row {row}.") from None
    begins = offsets[:-1][offsets[:-1] < len(characters)]
    inside = np.flatnonzero((characters[begins] & 0xC0) == 0x80)
    if inside.size:
        raise InputError(f"vocabulary: words must be UTF-8; row {inside[0]} begins inside a character.")
