"""Words and their ids, in arrays that can be stored in a file and mapped from it.

A `Vocabulary` is three arrays: the bytes of all words, where each begins, and the slots of a hash table. Kernels that
numba compiles work on them: `fill_slots` enters words, `look_up` finds them, `scan` cuts texts into tokens and looks
them up in one pass. `words_as_bytes`, `first_rows`, `same_spans` and `take_words` prepare words before they have ids.
`read_wanted_words` reads a list of words from a file. All arrays are read-only views, so that a kernel is compiled
once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.io.bounds import lines_in
from isosent.io.system import open_to_read
from isosent.numeric.compiled import njit

_BASIS, _PRIME, _HALF = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(32)

Characters = NDArray[np.uint8]
Bounds = NDArray[np.int64]
Ids = NDArray[np.int32]
Words = tuple[Characters, Bounds, Ids]

SPACE, WORD, PUNCTUATION = np.uint8(0), np.uint8(1), np.uint8(2)
TEXT_END = ord("\n")


@njit(cache=True, nogil=True)
def _hash(characters: Characters, start: int, stop: int, value: np.uint64) -> np.uint64:
    """FNV-1a in 64 bits, continued from `value`."""
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
    for i in range(stop - start):  # noqa: SIM110
        if characters[start + i] != others[other_start + i]:
            return False
    return True


@njit(cache=True, nogil=True)
def fill_slots(characters: Characters, starts: Bounds, stops: Bounds, slots: Ids, firsts: Ids) -> None:
    """Enter words in a table of free slots (-1), in order; repeated words once."""
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
    return slots[slot]


@njit(cache=True, nogil=True)
def look_up(text: Characters, starts: Bounds, stops: Bounds, words: Words, ids: Ids) -> None:
    """Look words up."""
    for word in range(len(starts)):
        start, stop = starts[word], stops[word]
        ids[word] = _id_of(_hash(text, start, stop, _BASIS), text, start, stop, words)


@njit(cache=True, nogil=True)
def gather(characters: Characters, offsets: Bounds, rows: Bounds, gathered: Characters) -> None:
    """Concatenate the bytes of some words."""
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
    output: tuple[Ids, Bounds],
    unknown: tuple[Bounds, Bounds],
) -> tuple[int, int]:
    """Cut texts into tokens and look them up."""
    position, stop = bounds
    classes, by_class, drops_punctuation = rules
    ids, lengths = output
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
    """Read words, repeated ones once."""
    if isinstance(words, (str, os.PathLike)):
        path = _check.input_file(words)
        with open_to_read(path) as file:
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
    """Distinct words with the ids 0 ... vocab_size - 1."""

    # Open addressing: the search for a word starts at slot (h ^ h >> 32) mod n_slots and takes the next ones up to a
    # free one. h is the 64-bit FNV-1a hash of the word, n_slots a power of two, two to four times vocab_size. Words are
    # entered in the order of their ids, so the arrays are the same on every machine and may be stored.

    characters: NDArray[np.uint8]  # all words in UTF-8, concatenated in the order of their ids
    offsets: NDArray[np.int64]  # word i is characters[offsets[i]:offsets[i + 1]]
    slots: NDArray[np.int32]  # hash table of ids, -1 where free; `from_words` and `from_bytes` build it

    def __post_init__(self) -> None:
        arrays = {"characters": np.uint8, "offsets": np.int64, "slots": np.int32}
        for name, dtype in arrays.items():
            object.__setattr__(self, name, read_only(getattr(self, name).astype(dtype, copy=False)))
        _check_offsets(self.characters, self.offsets)
        n_slots, used = len(self.slots), np.count_nonzero(self.slots >= 0)
        if n_slots & (n_slots - 1) or not used == len(self) < n_slots or self.slots.max() >= len(self):
            raise InputError(f"vocabulary: the hash table of {len(self)} words has {n_slots} slots, {used} in use.")

    def __reduce__(self) -> tuple[Any, ...]:
        return Vocabulary, self.arrays  # made anew, because a pickle does not keep that they are read-only

    @classmethod
    def from_words(cls, words: Iterable[str]) -> Vocabulary:
        """Build a vocabulary from strings."""
        return cls.from_bytes(*words_as_bytes(words))

    @classmethod
    def from_bytes(cls, characters: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Vocabulary:
        """Build a vocabulary from words that are UTF-8 already."""
        _check_offsets(characters, offsets)
        slots, firsts = _enter(characters, offsets[:-1], offsets[1:])
        repeated = np.flatnonzero(firsts != np.arange(len(firsts)))
        if repeated.size:
            row, first = repeated[0], firsts[repeated[0]]
            word = characters[offsets[row] : offsets[row + 1]].tobytes().decode("utf-8", "replace")
            raise InputError(f"vocabulary: the word {word!r} is in rows {first} and {row}.")
        _check_utf8(characters, offsets)
        return cls(characters, offsets, slots)

    def take(self, rows: NDArray[np.int64]) -> Vocabulary:
        """Select words."""
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
        """Return the id of a word, -1 for an unknown one."""
        return int(self.ids_of([word])[0])

    def ids_of(self, words: Iterable[str]) -> NDArray[np.int32]:
        """Return the ids of words, -1 for unknown ones."""
        text, offsets = words_as_bytes(words)
        return self.ids_of_spans(text, offsets[:-1], offsets[1:])

    def ids_of_spans(
        self, text: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]
    ) -> NDArray[np.int32]:
        """Return the ids of words inside a text, -1 for unknown ones."""
        ids = np.empty(len(starts), dtype=np.int32)
        look_up(read_only(text), read_only(starts), read_only(stops), self.arrays, ids)
        return ids


def words_as_bytes(words: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Concatenate words in UTF-8, and say where each begins."""
    try:
        encoded = [word.encode() for word in words]
    except UnicodeEncodeError as error:
        raise InputError(f"vocabulary: the word {error.object!r} is not valid Unicode.") from None
    return joined(encoded)


def joined(words: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Concatenate words, and say where each begins."""
    offsets = np.fromiter(accumulate(map(len, words), initial=0), dtype=np.int64, count=len(words) + 1)
    return np.frombuffer(b"".join(words), dtype=np.uint8), offsets


def first_rows(characters: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Find the first row of each distinct word."""
    firsts = same_spans(characters, offsets[:-1], offsets[1:])
    return np.flatnonzero(firsts == np.arange(len(firsts)))


def same_spans(text: NDArray[np.uint8], starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.int32]:
    """Find for each word inside a text the first that is the same."""
    return _enter(text, starts, stops)[1]


def take_words(
    characters: NDArray[np.uint8], offsets: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Select words."""
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
    if len(starts):  # do not load compiled code for no words, as most filters have
        fill_slots(read_only(characters), read_only(starts), read_only(stops), slots, firsts)
    return slots, firsts


def read_only(array: NDArray[Number]) -> NDArray[Number]:
    """View an array as read-only: compiled code then has one type for arrays from files, bytes and computations."""
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
        raise InputError(f"vocabulary: the word in row {row} is not UTF-8.") from None
    begins = offsets[:-1][offsets[:-1] < len(characters)]
    inside = np.flatnonzero((characters[begins] & 0xC0) == 0x80)
    if inside.size:
        raise InputError(f"vocabulary: the word in row {inside[0]} is not UTF-8: it begins inside a character.")
