"""word2vec's binary format: each word, a blank, its floats in 4 bytes each, and what the writer puts after them.

Nothing in a row says where its word ends. word2vec writes words without blanks; other writers, such as gensim, do not
care. So every blank that text leads to may be the one before the floats (`_Rows._blanks`), and one of them is chosen:

- Where a line feed follows every vector, as word2vec writes it (`_Rows.begin`), the right blank has one after its
  floats, and another row like it follows.
- Elsewhere only the floats can tell. Read some bytes off, they have exponents of any size (they are "odd"): the first
  blank is believed if its floats look like those of other rows, and those of every other blank do not. Else the file is
  refused.

What follows a row that is read wrong is a torn word: `_Rows._check_words` looks for these. The last row ends with the
file.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.errors import FileFormatError
from isosent.io import bounds
from isosent.words.blocks import RowBlock, checked_block, is_utf8, rows_of, word_too_long
from isosent.words.vocabulary import Vocabulary

_ROW_ENDS = (b"\n", b"\r\n")
_TRIED_ROWS = 3  # to tell what follows each row
_MORE_OF_A_WORD = re.compile(rb"[^\x00-\x08\x0e-\x20\x7f]*+ ")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_EXPONENT_RANGE = 25  # how far exponents of a file may lie from each other; a fifth of random ones lie as close
_MAGNITUDE = np.uint32(0x7FFFFFFF)  # the bits of a float32 but its sign
_LAST_NUMBERS = 16  # of a vector, which lie elsewhere if bytes before them are lost
_SHOWN_BLANKS = 20
_SAMPLED_ROWS, _FEWEST_NUMBERS = 256, 16


def binary_rows(
    where: str, pieces: Iterable[bytes], header: tuple[int, int], wanted: Vocabulary | None
) -> Iterator[RowBlock]:
    """Rows of the bytes that follow the header; a word that may end at several blanks is refused."""
    n_rows, dim = header
    rows: _Rows | None = None
    text, margin = b"", 2 * (bounds.LONGEST_WORD + 4 * dim + 4)  # what a row and the next may take
    for piece, is_end in _with_end(pieces):
        text += piece
        if len(text) < margin and not is_end:
            continue
        if rows is None:
            rows = _Rows(where, n_rows, dim)
            text = rows.begin(text, is_end=is_end, margin=margin)
        first = rows.number
        words, starts, position = rows.complete(text, is_end=is_end, margin=margin)
        if words:
            chosen = np.arange(len(words)) if wanted is None else rows_of(wanted, words)
            floats = b"".join(text[starts[row] : starts[row] + 4 * dim] for row in chosen)
            vectors = np.frombuffer(floats, dtype="<f4").reshape(len(chosen), dim)
            rows.check_floats(text, [(first + row, words[row], starts[row]) for row in chosen.tolist()], vectors)
            yield checked_block(f"{where}: vector", first + chosen, [words[row] for row in chosen], vectors)
        text = text[position:]
        if rows.number > n_rows:  # it ends with the file, or is refused
            return


def _with_end(pieces: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """The pieces of a file, and at last an empty one that marks its end."""
    for piece in pieces:
        yield piece, False
    yield b"", True


class _Place(NamedTuple):
    """Where a row begins in a text, and which one it is."""

    position: int
    number: int  # counted from 1
    is_end: bool  # whether the file ends with the text


class _Rows:
    """The rows of a file that are still to be read."""

    def __init__(self, where: str, n_rows: int, dim: int) -> None:
        self.number = 1  # of the next row
        self._where, self._n_rows, self._dim = where, n_rows, dim
        self._row_end, self._exponent = b"", math.nan
        self._last_floats = b""  # of the row before

    def begin(self, text: bytes, *, is_end: bool, margin: int) -> bytes:
        """Find out what follows each row, or how large its numbers are; the rows, without an empty line before them."""
        without_empty_line = text.lstrip(b"\n")
        fitting = []
        for row_end in _ROW_ENDS:
            self._row_end = row_end
            rows = next((rows for rows in (text, without_empty_line) if self._ends_so(rows, is_end, margin)), None)
            if rows is not None:
                fitting.append((row_end, rows))
        if self._n_rows == 1:
            fitting = []  # what follows the last row is no evidence
        self._row_end, rows = fitting[0] if fitting else (b"", text)
        # a single line feed may be a part of a float
        is_proven = len(fitting) < 2 and (self._n_rows > 2 or rows.endswith(self._row_end))
        if not is_proven and len(list(self._blanks(rows, 0))) > 1:
            raise self._word_with_blanks(rows, _Place(0, 1, is_end))
        self._exponent = self._usual_exponent(rows)
        return rows

    def _ends_so(self, text: bytes, is_end: bool, margin: int) -> bool:
        """Whether the first rows end as is assumed."""
        position = 0
        for number in range(1, min(_TRIED_ROWS, self._n_rows) + 1):
            if number > 1 and not is_end and (number == self._n_rows or len(text) - position < margin // 2):
                return True
            blanks = self._right_blanks(text, _Place(position, number, is_end))
            if not blanks:  # a truncated file has fewer rows
                end = text.find(b" ", position) + 1 + 4 * self._dim
                return number > 1 and is_end and end > len(text)
            if blanks[0] == position:  # where no line feeds follow rows, some words may begin with one
                return False
            position = blanks[0] + 1 + 4 * self._dim + len(self._row_end)
        return True

    def _usual_exponent(self, text: bytes) -> float:
        """The median exponent of the numbers in rows whose words can end at one blank only."""
        position, exponents = 0, []
        for _ in range(min(_SAMPLED_ROWS, self._n_rows)):
            blanks = list(self._blanks(text, position))
            if not blanks or blanks[0] + 1 + 4 * self._dim > len(text):
                break
            if len(blanks) == 1:
                magnitudes = self._floats(text, blanks[0]) & _MAGNITUDE
                exponents.append(magnitudes[magnitudes > 0] >> 23)
            position = blanks[0] + 1 + 4 * self._dim + len(self._row_end)
        numbers = np.concatenate(exponents) if exponents else np.empty(0)
        if len(numbers) < _FEWEST_NUMBERS:
            return math.nan  # no number is odd then, and where a word may end at two blanks, neither is believed
        return float(np.median(numbers))

    def complete(self, text: bytes, *, is_end: bool, margin: int) -> tuple[list[bytes], list[int], int]:
        """Words of the rows in a text, where the floats of each start, and where the next row starts."""
        words, starts, position, n_bytes, row_end = [], [], 0, 4 * self._dim, self._row_end
        last_start = len(text) - (0 if is_end else margin)
        more_of_a_word = _MORE_OF_A_WORD.match
        for number in range(self.number, self._n_rows + 1):
            if position > last_start:
                break
            blank = text.find(b" ", position)
            start = blank + 1
            if (
                blank < 0
                or number == self._n_rows
                or more_of_a_word(text, start)
                or not text.startswith(row_end, start + n_bytes)
            ):
                blank = self._blank_of(text, _Place(position, number, is_end))
                start = blank + 1
            words.append(text[position:blank])
            starts.append(start)
            position = start + n_bytes + len(row_end)
        self._check_words(text, words, starts)
        self.number += len(words)
        return words, starts, position

    def _blank_of(self, text: bytes, place: _Place) -> int:
        """The blank before the floats of a row; refused where there is none, or where it could be another."""
        position, number, _ = place
        blank = text.find(b" ", position, position + bounds.LONGEST_WORD + 1)
        if blank < 0 and len(text) - position > bounds.LONGEST_WORD:
            raise word_too_long(f"{self._where}: vector {number}")
        if blank < 0 or blank + 1 + 4 * self._dim > len(text):
            raise FileFormatError(
                f"{self._where}: its header says {self._n_rows} vectors, but it ends in vector {number}. Is the file "
                "complete?"
            )
        if not self._row_end and number < self._n_rows:
            return self._likely_blank(text, place)
        blanks = self._right_blanks(text, place)
        if len(blanks) > 1:  # of the last row, after which some line feeds may be missing or follow
            best, *others = sorted(blanks, key=lambda each: text[each + 1 + 4 * self._dim :] != self._row_end)
            floats = self._floats(text, best)
            surplus = min(self._n_odd(self._floats(text, other)) for other in others) - self._n_odd(floats)
            if surplus < (0 if self._row_end else _margin(floats)):
                raise self._word_with_blanks(text, place)
            return best
        if blanks:
            return blanks[0]
        if number == self._n_rows:
            raise FileFormatError(
                f"{self._where}: its header says {self._n_rows} vectors, but more bytes follow. Is its last word one "
                "with blanks, or the file damaged?"
            )
        raise self._lost(text[position:blank], number)

    def _right_blanks(self, text: bytes, place: _Place) -> list[int]:
        """Blanks whose floats end where a row must."""
        right = [blank for blank in self._blanks(text, place.position) if self._is_end(text, blank, place)]
        if len(right) < 2 or place.number == self._n_rows:
            return right
        following = [  # a float may hold the byte of a line feed, too, but what follows that is no row
            place._replace(position=blank + 1 + 4 * self._dim + len(self._row_end), number=place.number + 1)
            for blank in right
        ]
        return [
            blank
            for blank, then in zip(right, following, strict=True)
            if any(self._is_end(text, other, then) for other in self._blanks(text, then.position))
        ]

    def _is_end(self, text: bytes, blank: int, place: _Place) -> bool:
        """Whether a row may end after the floats behind a blank."""
        end = blank + 1 + 4 * self._dim
        if place.number < self._n_rows:
            return text.startswith(self._row_end, end)
        return place.is_end and end <= len(text) and not text[end:].strip(b"\r\n")

    def _blanks(self, text: bytes, position: int) -> Iterator[int]:
        """Blanks that may end the word at a position: the first, and those that only text lies before."""
        stop = position + bounds.LONGEST_WORD + 1
        if self._row_end and (line_feed := text.find(b"\n", position, stop)) >= 0:
            stop = line_feed
        blank = text.find(b" ", position, stop)
        while blank >= 0:
            yield blank
            more = _MORE_OF_A_WORD.match(text, blank + 1, stop)
            blank = more.end() - 1 if more else -1

    def _likely_blank(self, text: bytes, place: _Place) -> int:
        """The first blank, if the floats after it look like those of other rows, and not those after any other."""
        first, *others = (
            blank for blank in self._blanks(text, place.position) if blank + 1 + 4 * self._dim <= len(text)
        )
        floats = self._floats(text, first)
        n_odd, margin = self._n_odd(floats), _margin(floats)
        for other in others:
            surplus = self._n_odd(self._floats(text, other)) - n_odd
            # bytes that are no text are hardly a part of the word, unless the floats say so
            is_text = is_utf8(text[first + 1 : other])
            is_first = n_odd < margin <= surplus if is_text else surplus > -margin
            if not is_first:
                raise self._word_with_blanks(text, place)
        return first

    def _floats(self, text: bytes, blank: int) -> NDArray[np.uint32]:
        return np.frombuffer(text, dtype="<u4", count=self._dim, offset=blank + 1)

    def _n_odd(self, floats: NDArray[np.uint32]) -> int:
        return int(np.count_nonzero(self._are_odd(floats)))

    def _are_odd(self, floats: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which numbers, but zeros, are far larger or far smaller than those of the file."""
        magnitudes = floats & _MAGNITUDE
        is_odd = np.abs((magnitudes >> 23).astype(np.float32) - self._exponent) > _EXPONENT_RANGE
        return is_odd & (magnitudes > 0)

    def _check_words(self, text: bytes, words: list[bytes], starts: list[int]) -> None:
        """Refuse words that are torn: a row before them was read wrong."""
        joined = b"".join(words)
        if self._row_end:
            if b"\n" in joined:
                row = next(row for row, word in enumerate(words) if b"\n" in word)
                raise self._lost(words[row], self.number + row)
        elif _begin_alike(words[self.number == 1 :]):
            raise FileFormatError(
                f"{self._where}: all words but the first begin with {_quoted(words[-1][:1])}. Does each row end so? "
                "Write a line feed after each vector, or nothing; a word with a line feed looks like this too."
            )
        elif _CONTROL.search(joined) or not is_utf8(b"\n".join(words)):
            for row, word in enumerate(words):
                if _CONTROL.search(word) or not is_utf8(word):
                    start = starts[row - 1] if row else 0
                    before = text[start : start + 4 * self._dim] if row else self._last_floats
                    floats = np.frombuffer(before, dtype="<u4")
                    if self._n_odd(floats) >= _margin(floats):
                        raise self._lost(words[row - 1] if row else b"", self.number + row - 1)
        if words:
            self._last_floats = text[starts[-1] : starts[-1] + 4 * self._dim]

    def check_floats(self, text: bytes, rows: list[tuple[int, bytes, int]], vectors: NDArray[np.float32]) -> None:
        """Refuse vectors whose last numbers look like the others only when they are read one to three bytes before."""
        if self._row_end or self._dim <= _LAST_NUMBERS:
            return
        n_odd = self._are_odd(vectors[:, -_LAST_NUMBERS:].view(np.uint32)).sum(axis=1)
        for row in np.flatnonzero(n_odd > _LAST_NUMBERS // 2):
            number, word, start = rows[row]
            start += 4 * (self._dim - _LAST_NUMBERS)
            for shift in (1, 2, 3):
                if self._n_odd(np.frombuffer(text, "<u4", _LAST_NUMBERS, start - shift)) < _LAST_NUMBERS // 4:
                    raise self._lost(word, number)

    def _lost(self, word: bytes, number: int) -> FileFormatError:
        return FileFormatError(
            f"{self._where}: vector {number}, of {_quoted(word)}: the row does not end after {self._dim} floats of 4 "
            "bytes. Words with blanks, numbers of another type and damage look like this. Copy the file again, or save "
            "it as text: save_word2vec_format(FILE, binary=False) in gensim."
        )

    def _word_with_blanks(self, text: bytes, place: _Place) -> FileFormatError:
        blanks = islice(self._blanks(text, place.position), _SHOWN_BLANKS)
        words = [text[place.position : blank] for blank in blanks]
        word = next(filter(is_utf8, reversed(words)), words[0])
        return FileFormatError(
            f"{self._where}: vector {place.number}: whether its word is {_quoted(word)} or ends "
            "before, cannot be told: this binary format is not made for words with blanks. Save the vectors as text: "
            "save_word2vec_format(FILE, binary=False) in gensim."
        )


def _begin_alike(words: list[bytes]) -> bool:
    """Whether several words all begin with the same white space, which rather ends the rows before."""
    if len(words) < 2 or max(map(len, words)) > bounds.LONGEST_WORD:
        return False
    return words[0][:1] in (b"\n", b"\r", b"\t") and len({word[:1] for word in words}) == 1


def _margin(floats: NDArray[np.uint32]) -> int:
    """How many odd numbers tell a vector that is read wrong, of which three in four are odd, from a right one."""
    return max(1, int(np.count_nonzero(floats)) // 4)


def _quoted(word: bytes) -> str:
    return repr(word[:60].decode("utf-8", "replace"))
