"""Compiled loops over words as UTF-8 bytes: a hash table of them, and texts cut into words that are looked up in it.

All are in one module because compiled code is cached by module: a change of one would not be noticed by another's.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

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
    for i in range(stop - start):  # noqa: SIM110 - no generators in compiled code
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
