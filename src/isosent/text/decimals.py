"""Compiled reading of lines of decimal numbers."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

_POWERS = np.array([float(f"1e{exponent}") for exponent in range(309)])
_MOST_DIGITS = 18
_MARGIN = 1e-15  # above the error of a quotient of a rounded integer and a rounded power of ten


@njit(cache=True, nogil=True)
def locate_rows(text: NDArray[np.uint8], dim: int, spans: NDArray[np.int64]) -> None:
    """Find the lines of a text, and the word of each.

    Parameters
    ----------
    text : ndarray of shape (n_bytes,), uint8
        Whole lines.
    dim : int
        Numbers behind each word.
    spans : ndarray of shape (n_lines, 3), int64
        Filled: where a line starts, where its word stops (-1 where it has not `dim` blanks or starts with one), and
        where it stops, blanks at its end left out.
    """
    start, size = 0, len(text)
    for line in range(len(spans)):
        stop, n_blanks, word_stop = start, 0, -1
        while stop < size:
            if text[stop] <= 32:  # one comparison for most bytes
                if text[stop] == 10:
                    break
                if text[stop] == 32 or text[stop] == 9:
                    n_blanks += 1
                    if word_stop < 0:
                        word_stop = stop
            stop += 1
        last = stop
        while last > start and (text[last - 1] == 32 or text[last - 1] == 9 or text[last - 1] == 13):
            last -= 1
            n_blanks -= text[last] != 13
        spans[line, 0] = start
        spans[line, 1] = word_stop if n_blanks == dim and word_stop > start else -1
        spans[line, 2] = last
        start = stop + 1


@njit(cache=True, nogil=True)
def _parse_rows(
    text: NDArray[np.uint8],
    spans: NDArray[np.int64],
    powers: NDArray[np.float64],
    vectors: NDArray[np.float32],
    is_parsed: NDArray[np.bool_],
) -> None:
    for row in range(len(spans)):
        at, stop = spans[row, 1], spans[row, 2]
        column = 0 if at >= 0 else -1
        while 0 <= column < vectors.shape[1]:
            at += 1
            is_negative = at < stop and text[at] == 45
            at += at < stop and (text[at] == 45 or text[at] == 43)
            digits, n_digits, exponent = np.uint64(0), np.int64(0), np.int64(0)
            is_number, is_fraction = False, False
            while at < stop:
                digit = np.uint8(text[at] - 48)
                if digit < 10:
                    is_number = True
                    if n_digits < _MOST_DIGITS:
                        digits = digits * np.uint64(10) + np.uint64(digit)
                        n_digits += digits > 0
                        exponent -= is_fraction
                    else:
                        exponent += not is_fraction
                elif text[at] == 46 and not is_fraction:
                    is_fraction = True
                else:
                    break
                at += 1
            if is_number and at < stop and (text[at] | 32) == 101:
                at += 1
                is_small = at < stop and text[at] == 45
                at += at < stop and (text[at] == 45 or text[at] == 43)
                written, is_number = np.int64(0), False
                while at < stop and np.uint8(text[at] - 48) < 10 and written < 1000:
                    written = 10 * written + np.int64(text[at]) - 48
                    is_number = True
                    at += 1
                exponent += -written if is_small else written
            is_whole = is_number and (at == stop or text[at] == 32 or text[at] == 9)
            column = column + 1 if is_whole and -308 <= exponent <= 308 else -1
            if column > 0:
                value = np.float64(digits)
                value = value / powers[-exponent] if exponent < 0 else value * powers[exponent]
                number = np.float32(value)
                if np.float32(value * (1 - _MARGIN)) != number or np.float32(value * (1 + _MARGIN)) != number:
                    column = -1  # too close to the middle between two numbers
                else:
                    vectors[row, column - 1] = -number if is_negative else number
        is_parsed[row] = column == vectors.shape[1] and at == stop


def parse_rows(
    text: NDArray[np.uint8],
    spans: NDArray[np.int64],
    vectors: NDArray[np.float32],
    is_parsed: NDArray[np.bool_],
) -> None:
    """Read the numbers of lines, each correctly rounded.

    Parameters
    ----------
    text : ndarray of shape (n_bytes,), uint8
        The lines.
    spans : ndarray of shape (n_lines, 3), int64
        What `locate_rows` found.
    vectors : ndarray of shape (n_lines, dim), float32
        Filled with the numbers.
    is_parsed : ndarray of shape (n_lines,), bool
        Filled: whether the whole line was read. What is left out holds something else than decimal numbers with single
        blanks between them, or a number whose rounding takes more than double precision.
    """
    _parse_rows(text, spans, _POWERS, vectors, is_parsed)
