"""Words and their ids, in arrays that can be stored and opened without being read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.io.texts import lines_in

_BASIS, _PRIME, _HALF = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(32)

Characters = NDArray[np.uint8]
Bounds = NDArray[np.int64]
Ids = NDArray[np.int32]
Words = tuple[Characters, Bounds, Ids]

SPACE, WORD, PUNCTUATION = np.uint8(0), np.uint8(1), np.uint8(2)
TEXT_END = ord("\n")


@njit(cache=True, nogil=True)
def _hash(characters: Characters, start: int, stop: int, value: np.uint64) -> np.uint64:
    """FNV-1a in 64 bits, going on from `value`."""
    for i in range(start, stop):
        value = (value ^ np.uint64(characters[i])) * _PRIME
    return value


@njit(cache=True, nogil=True)
def _first_slot(value: np.uint64, n_slots: int) -> np.int64:
    """Where the search for a word begins: both halves of its hash folded; `n_slots` is a power of two."""
    return np.int64((value ^ (value >> _HALF)) & np.uint64(n_slots - 1))


@njit(cache=True, nogil=True)
def _is_same(
    characters: Characters, start: int, stop: int, others: Characters, other_start: int, other_stop: int
) -> bool:
    if stop - start != other_stop - other_start:
        return False
    for i in range(stop - start):
        if characters[start + i] != others[other_start + i]:
            return False
    return True


@njit(cache=True, nogil=True)
def fill_slots(characters: Characters, starts: Bounds, stops: Bounds, slots: Ids, firsts: Ids) -> None:
    """Enter words in a table of free slots (-1), in order; repeated words once.

    Parameters
    ----------
    characters : ndarray of shape (n_bytes,), uint8
        Text that holds the words.
    starts, stops : ndarray of shape (n_words,), int64
        First byte of each word, and the one behind its last.
    slots : ndarray of shape (n_slots,), int32
        The table, written here; a power of two above the number of words.
    firsts : ndarray of shape (n_words,), int32
        Written here: for each word, the first one that is the same.
    """
    for word in range(len(starts)):
        start, stop = starts[word], stops[word]
        slot = _first_slot(_hash(characters, start, stop, _BASIS), len(slots))
        while slots[slot] >= 0 and not _is_same(
            characters, starts[slots[slot]], stops[slots[slot]], characters, start, stop
        ):
            slot = (slot + 1) & (len(slots) - 1)
        if slots[slot] < 0:
            slots[slot] = word
        firsts[word] = slots[slot]


@njit(cache=True, nogil=True)
def _id_of(value: np.uint64, text: Characters, start: int, stop: int, words: Words) -> np.int32:
    """Id of the word with the hash `value`, -1 for an unknown one."""
    characters, offsets, slots = words
    slot = _first_slot(value, len(slots))
    while slots[slot] >= 0 and not _is_same(
        text, start, stop, characters, offsets[slots[slot]], offsets[slots[slot] + 1]
    ):
        slot = (slot + 1) & (len(slots) - 1)
    word: np.int32 = slots[slot]
    return word


@njit(cache=True, nogil=True)
def look_up(text: Characters, starts: Bounds, stops: Bounds, words: Words, ids: Ids) -> None:
    """Look words up.

    Parameters
    ----------
    text : ndarray of shape (n_bytes,), uint8
        Text that holds the words.
    starts, stops : ndarray of shape (n_words,), int64
        First byte of each word, and the one behind its last.
    words : tuple of three ndarrays
        The vocabulary's characters, offsets and slots.
    ids : ndarray of shape (n_words,), int32
        Written here: the word's id, -1 for an unknown one.
    """
    for word in range(len(starts)):
        start, stop = starts[word], stops[word]
        ids[word] = _id_of(_hash(text, start, stop, _BASIS), text, start, stop, words)


@njit(cache=True, nogil=True)
def gather(characters: Characters, offsets: Bounds, rows: Bounds, gathered: Characters) -> None:
    """Copy the bytes of some words, one behind the other.

    Parameters
    ----------
    characters, offsets : ndarray
        Words, as a vocabulary holds them.
    rows : ndarray of shape (n_rows,), int64
        Words wanted.
    gathered : ndarray of shape (n_bytes,), uint8
        Written here.
    """
    end = 0
    for row in rows:
        for i in range(offsets[row], offsets[row + 1]):
            gathered[end] = characters[i]
            end += 1


@njit(cache=True, nogil=True)
def _kind_and_width(text: Characters, position: int, classes: Characters) -> tuple[np.uint8, int]:
    """Class of the character at a position, and its bytes in UTF-8."""
    lead = np.int64(text[position])
    if lead < 0x80:
        return classes[lead], 1
    width = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    code = lead & (0x7F >> width)
    for i in range(position + 1, position + width):
        code = code << 6 | np.int64(text[i]) & 0x3F
    return classes[code], width


@njit(cache=True, nogil=True)
def scan(
    text: Characters,
    bounds: tuple[int, int],
    rules: tuple[Characters, bool, bool],
    words: Words,
    dropped: Words,
    found: tuple[Ids, Bounds],
    unknown: tuple[Bounds, Bounds],
) -> tuple[int, int]:
    """Cut texts into tokens and look them up.

    Parameters
    ----------
    text : ndarray of shape (n_bytes,), uint8
        UTF-8; each text ends with a line feed and holds no other.
    bounds : tuple of two int
        First byte of the first text, and the one behind the last.
    rules : tuple of ndarray and two bool
        Class of each code point that the texts hold: SPACE, WORD or PUNCTUATION. Whether a token ends where the class
        changes, not only at a space. Whether tokens without any WORD are left out.
    words, dropped : tuple of three ndarrays
        Characters, offsets and slots of the vocabulary, and of the tokens to leave out.
    found : tuple of ndarray of int32 and ndarray of shape (n_texts,), int64
        Written here: ids of all texts, and how many each text has. Where `unknown` has room, unknown tokens are among
        them as -1.
    unknown : tuple of two ndarrays of int64
        Written here: first byte of each unknown token, and the one behind its last. Arrays of length 0 leave unknown
        tokens out.

    Returns
    -------
    n_ids, n_unknown : int
        Ids written, and tokens that are unknown.
    """
    position, stop = bounds
    classes, by_class, drops_punctuation = rules
    ids, lengths = found
    n_texts = n_ids = n_before = n_unknown = 0
    while position < stop:
        kind, width = _kind_and_width(text, position, classes)
        if kind == SPACE:
            if text[position] == TEXT_END:
                lengths[n_texts] = n_ids - n_before
                n_texts += 1
                n_before = n_ids
            position += width
            continue
        start, first, value, has_word = position, kind, _BASIS, False
        while kind != SPACE and (kind == first or not by_class):
            value = _hash(text, position, position + width, value)
            has_word |= kind == WORD
            position += width
            kind, width = _kind_and_width(text, position, classes)
        if (drops_punctuation and not has_word) or _id_of(value, text, start, position, dropped) >= 0:
            continue
        word = _id_of(value, text, start, position, words)
        if word < 0:
            if len(unknown[0]):
                unknown[0][n_unknown], unknown[1][n_unknown] = start, position
            n_unknown += 1
        if word >= 0 or len(unknown[0]):
            ids[n_ids] = word
            n_ids += 1
    return n_ids, n_unknown


def read_wanted_words(words: Iterable[str] | str | os.PathLike[str]) -> Vocabulary:
    """Read words, repeated ones once.

    Parameters
    ----------
    words : iterable of str, or path-like
        Words, or a file of UTF-8 text with one word a line; a number behind the word, such as its count, is left out.

    Returns
    -------
    Vocabulary
        The words.

    Raises
    ------
    InputFileError
        If there is no such file, or it is empty.
    FileFormatError
        If it is not UTF-8; the message names the line.

    Examples
    --------
    >>> list(read_wanted_words(["the", "man", "the"]))
    ['the', 'man']
    """
    if isinstance(words, (str, os.PathLike)):
        path = _check.input_file(words)
        with path.open("rb") as file:
            words = [_without_count(line.split()) for line in lines_in(str(path), file) if line.strip()]
    return Vocabulary.from_words(dict.fromkeys(words))


def _without_count(fields: list[str]) -> str:
    try:
        float(fields[-1])
    except ValueError:
        return " ".join(fields)
    return " ".join(fields[:-1] or fields)


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
