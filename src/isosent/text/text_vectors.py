"""Word vectors as text, a word and its numbers a line: GloVe, word2vec and the .vec files of fastText."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from isosent.errors import FileFormatError
from isosent.files import bounds
from isosent.text.decimals import locate_rows, parse_rows
from isosent.text.row_blocks import RowBlock, checked_block, in_threads, rows_of
from isosent.text.vocabulary import Vocabulary

_BLANKS = b" \t\r\n"


def text_rows(
    where: str, pieces: Iterable[bytes], header: tuple[int, int] | None, wanted: Vocabulary | None = None
) -> Iterator[RowBlock]:
    """Read rows of text, several blocks at a time in as many threads as there are processors.

    Parameters
    ----------
    where : str
        The file, for messages.
    pieces : iterable of bytes
        Its content from the first row on, that is behind the header.
    header : tuple of (int, int) or None
        Rows and dimensions that it promises; None where it has no header.
    wanted : Vocabulary or None, default None
        Words to keep; the numbers of others are not looked at. None keeps all.

    Yields
    ------
    RowBlock
        Rows, in order. A word may hold blanks: the last `dim` fields of a line are its vector.

    Raises
    ------
    FileFormatError
        If a row is short, not numeric or not finite (the message gives its line), or there are not as many as promised.
    """
    dim = None if header is None else header[1]
    n_rows = 0

    def tasks() -> Iterator[Callable[[], RowBlock]]:
        nonlocal dim, n_rows
        for numbers, lines in _lines_with_rows(where, pieces, 1 if header is None else 2):
            if dim is None:
                dim = len(lines.split(b"\n", 1)[0].split()) - 1
                check_dim(f"{where}, line {numbers.start}", dim)
            if dim < 1:
                shown = _shown(lines.split(b"\n", 1)[0])
                raise FileFormatError(f"{where}: line {numbers.start} must hold a word and its vector; got {shown}.")
            yield partial(_parse, where, lines, numbers, dim, wanted)
            n_rows += len(numbers)

    yield from in_threads(tasks())
    if header is not None and n_rows != header[0]:
        raise FileFormatError(f"{where} must hold {header[0]} rows, as its header says; got {n_rows}.")


def check_dim(where: str, dim: int) -> None:
    """Refuse more dimensions than vectors of words have."""
    if dim > bounds.MOST_DIMENSIONS:
        raise FileFormatError(f"{where}: {dim} dimensions; a word vector may have {bounds.MOST_DIMENSIONS:,} at most.")


def _lines_with_rows(where: str, pieces: Iterable[bytes], first: int) -> Iterator[tuple[range, bytes]]:
    """Blocks of lines and their numbers; blank lines at the end of the file belong to none."""
    blank: int | None = None  # the first of those that the blocks so far end with
    advice = f"A line is a word and at most {bounds.MOST_DIMENSIONS:,} numbers."
    for numbers, block in bounds.whole_lines(where, pieces, bounds.LONGEST_VECTOR_LINE, first=first, advice=advice):
        lines = block.rstrip(_BLANKS)
        n_lines = len(numbers) - block.count(b"\n", len(lines)) + block.endswith(b"\n") if lines else 0
        if lines:
            if blank is not None:
                yield range(blank, blank + 1), b"\n"  # for its message: rows go on behind it
            yield numbers[:n_lines], lines
            blank = None
        if blank is None and n_lines < len(numbers):
            blank = numbers[n_lines]


def _parse(where: str, lines: bytes, numbers: range, dim: int, wanted: Vocabulary | None) -> RowBlock:
    """Words and vectors of some lines: compiled code reads plain ones, what it leaves is read one by one."""
    text = np.frombuffer(lines, dtype=np.uint8)
    spans = np.empty((len(numbers), 3), dtype=np.int64)
    locate_rows(text, dim, spans)

    def split(row: int) -> tuple[bytes, bytes]:
        return _split_row(where, numbers[row], lines[spans[row, 0] : spans[row, 2]].replace(b"\t", b" "), dim)

    odd = {row: split(row)[0] for row in np.flatnonzero(spans[:, 1] < 0).tolist()}  # first: blank lines end here
    words = [lines[start:stop] for start, stop, _ in spans.tolist()]
    for row, word in odd.items():
        words[row] = word
    kept = np.arange(len(words))
    if wanted is not None:
        kept = rows_of(wanted, words)
        words = [words[row] for row in kept]
    vectors = np.empty((len(kept), dim), dtype=np.float32)
    is_parsed = np.zeros(len(kept), dtype=np.bool_)
    parse_rows(text, spans[kept], vectors, is_parsed)
    for number in np.flatnonzero(~is_parsed).tolist():
        row = int(kept[number])
        vectors[number] = _parse_row(where, numbers[row], split(row)[1], dim)
    return checked_block(f"{where}: line", numbers[0] + kept, words, vectors)


def _split_row(where: str, number: int, line: bytes, dim: int) -> tuple[bytes, bytes]:
    """The word and the numbers of a row; a word may hold spaces, as some of GloVe's do."""
    fields = line.split()
    word_parts, value_fields = fields[:-dim], fields[-dim:]
    surplus = word_parts[1:]
    if not word_parts or (surplus and all(parse_numbers(field) is not None for field in surplus)):
        got = f"{len(fields)} fields: {_shown(line)}" if fields else "a blank line"
        raise FileFormatError(
            f"{where}: line {number} must hold a word and {dim} numbers, as the file begins; got {got}."
        )
    return b" ".join(word_parts), b" ".join(value_fields)


def _parse_row(where: str, number: int, values: bytes, dim: int) -> NDArray[np.float32]:
    parsed = parse_numbers(values)
    if parsed is None:
        raise FileFormatError(f"{where}: line {number} must hold {dim} numbers; got {_shown(values)}.")
    return parsed


def parse_numbers(values: bytes) -> NDArray[np.float32] | None:
    """Read numbers between blanks.

    Parameters
    ----------
    values : bytes
        Their fields.

    Returns
    -------
    ndarray of float32, or None
        The numbers; None where something else stands among them.
    """
    if b"_" in values:  # Python's digits may be grouped by it
        return None
    try:
        with np.errstate(over="ignore"):
            return np.array([float(field) for field in values.split()], dtype=np.float32)
    except ValueError:
        return None


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("utf-8", "replace"))
