"""Word vectors as word2vec writes them in binary: each word, a blank, and its raw floats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from isosent.errors import FileFormatError
from isosent.io import bounds
from isosent.words.formats import RowBlock, checked_block, parse_numbers, rows_of, word_too_long
from isosent.words.vocabulary import Vocabulary

_MOST_DIGITS = 19  # of an int64


def read_header(line: bytes) -> tuple[int, int] | None:
    """Read the header of word2vec, binary or text."""
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() and len(field) < _MOST_DIGITS for field in fields):
        return int(fields[0]), int(fields[1])
    return None


def continues_in_binary(rows: bytes, dim: int) -> bool:
    """Tell raw floats from text: no row of numbers, but control characters."""
    first_row = rows.split(b"\n", 1)[0].split()
    if len(first_row) > dim and parse_numbers(b" ".join(first_row[-dim:])) is not None:
        return False
    return any(byte < 32 and byte not in b"\t\n\r" for byte in rows[: 1024 + 4 * dim])


def binary_rows(
    where: str, pieces: Iterable[bytes], header: tuple[int, int], wanted: Vocabulary | None = None
) -> Iterator[RowBlock]:
    """Read raw rows."""
    n_rows, dim = header
    first, rest = 1, b""
    for piece in pieces:
        rest += piece
        words, spans, position = _whole_rows(rest, n_rows - first + 1, 4 * dim)
        if words:
            numbers = np.arange(len(words)) if wanted is None else rows_of(wanted, words)
            floats = b"".join(rest[spans[number] : spans[number] + 4 * dim] for number in numbers)
            vectors = np.frombuffer(floats, dtype="<f4").reshape(len(numbers), dim)
            yield checked_block(f"{where}: vector", first + numbers, [words[number] for number in numbers], vectors)
        first += len(words)
        rest = rest[position:]
        if first > n_rows:
            rest = rest.strip(b"\n")
            if rest:
                raise FileFormatError(
                    f"{where} must hold {n_rows} vectors, as its header says; it goes on behind them."
                )
        elif len(rest) > bounds.LONGEST_WORD + 1 + 4 * dim:
            raise word_too_long(f"{where}: vector {first}")
    if first <= n_rows:
        raise FileFormatError(f"{where} must hold {n_rows} vectors, as its header says; it ends in vector {first}.")


def _whole_rows(text: bytes, n_rows: int, n_bytes: int) -> tuple[list[bytes], list[int], int]:
    """Words of at most so many rows, where the floats of each start, and where the last row ends."""
    words, starts, position = [], [], 0
    for _ in range(n_rows):
        blank = text.find(b" ", position)
        if blank < 0 or blank + 1 + n_bytes > len(text):
            break
        words.append(text[position:blank].lstrip(b"\n"))
        starts.append(blank + 1)
        position = blank + 1 + n_bytes
    return words, starts, position
