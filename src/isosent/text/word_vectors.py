"""Word vectors in the formats of GloVe and word2vec."""

from __future__ import annotations

import gzip
import os
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import DuplicateWordWarning, FileFormatError

_BLOCK_BYTES = 8 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, eq=False)
class WordVectors:
    """Words and their vectors.

    Parameters
    ----------
    index : dict of str to int
        Row of each word, in the order of the rows.
    vectors : ndarray of shape (vocab_size, dim), float32
        One vector a word.
    """

    index: dict[str, int]
    vectors: NDArray[np.float32]


def read_word_vectors(paths: Sequence[str | os.PathLike[str]]) -> WordVectors:
    """Read word vectors from one file, or concatenate those of several word by word.

    Parameters
    ----------
    paths : sequence of path-like
        GloVe or word2vec text, with or without the header ``vocab_size dim``, or word2vec binary; each may be gzipped.
        The format is read off the content. In text, a word may hold spaces: the last `dim` fields are its vector.

    Returns
    -------
    WordVectors
        The words of all files, in the order of the first that has them. With several files the width is the sum of
        theirs, and a file that lacks a word contributes zeros.

    Raises
    ------
    InputFileError
        If a file is missing, empty or a directory.
    FileFormatError
        If a row is short, not numeric, not finite or not UTF-8 (the message gives its line), or the header promises
        another number of rows.

    Warns
    -----
    DuplicateWordWarning
        If a file lists words more than once: the first row of each is kept.
    """
    parts = [_read_file(_check.input_file(path)) for path in paths]
    return parts[0] if len(parts) == 1 else _concatenate(parts)


def _concatenate(parts: list[WordVectors]) -> WordVectors:
    words = dict.fromkeys(word for part in parts for word in part.index)
    index = {word: row for row, word in enumerate(words)}
    bounds = np.cumsum([0, *(part.vectors.shape[1] for part in parts)])
    vectors = np.zeros((len(index), bounds[-1]), dtype=np.float32)
    for part, (first, last) in zip(parts, pairwise(bounds), strict=True):
        vectors[[index[word] for word in part.index], first:last] = part.vectors
    return WordVectors(index, vectors)


def _read_file(path: Path) -> WordVectors:
    try:
        with _open(path) as file:
            mark = len(_BYTE_ORDER_MARK) if file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK else 0
            file.seek(mark)
            header = _header(file.readline())
            if header is not None and _continues_in_binary(file, header[1]):
                words, vectors = _read_binary(path, file, header)
            else:
                if header is None:
                    file.seek(mark)
                words, vectors = _read_text(path, file, header)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FileFormatError(f"{path} is not a whole gzip file: {error}.") from None
    if not words:
        raise FileFormatError(f"{path} must hold at least one word vector; got none.")
    return _first_of_each(path, words, vectors)


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
    return cast("BinaryIO", gzip.open(path, "rb")) if zipped else path.open("rb")


def _header(line: bytes) -> tuple[int, int] | None:
    """Rows and dimensions, if the line is a header of word2vec."""
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        return int(fields[0]), int(fields[1])
    return None


def _continues_in_binary(file: BinaryIO, dim: int) -> bool:
    """Whether the rows after the header hold raw floats: no row of numbers, but control characters; does not move."""
    start = file.tell()
    first_row = file.readline(_BLOCK_BYTES).split()
    file.seek(start)
    rows = file.read(1024 + 4 * dim)
    file.seek(start)
    if len(first_row) > dim and _parse_numbers(b" ".join(first_row[-dim:])) is not None:
        return False
    return any(byte < 32 and byte not in b"\t\n\r" for byte in rows)


def _read_binary(path: Path, file: BinaryIO, header: tuple[int, int]) -> tuple[list[str], NDArray[np.float32]]:
    n_rows, dim = header
    content = file.read()
    n_bytes = 4 * dim
    if len(content) < n_rows * (n_bytes + 2):
        raise FileFormatError(f"{path} must hold {n_rows} vectors of {dim} floats, as its header says; it ends before.")
    vectors = np.empty((n_rows, dim), dtype=np.float32)
    words = []
    position = 0
    for row in range(n_rows):
        space = content.find(b" ", position)
        if space < 0 or space + 1 + n_bytes > len(content):
            raise FileFormatError(
                f"{path} must hold {n_rows} vectors, as its header says; it ends in vector {row + 1}."
            )
        words.append(_decode(path, f"vector {row + 1}", content[position:space].lstrip(b"\n")))
        vectors[row] = np.frombuffer(content, dtype="<f4", count=dim, offset=space + 1)
        position = space + 1 + n_bytes
    if content[position:].strip(b"\n"):
        raise FileFormatError(f"{path} must hold {n_rows} vectors, as its header says; it goes on behind them.")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        raise FileFormatError(f"{path}: vector {bad[0] + 1} must be finite; got NaN or infinity.")
    return words, vectors


def _read_text(path: Path, file: BinaryIO, header: tuple[int, int] | None) -> tuple[list[str], NDArray[np.float32]]:
    dim = None if header is None else header[1]
    line_number = 1 if header is None else 2
    words: list[str] = []
    blocks: list[NDArray[np.float32]] = []
    for lines in _line_blocks(file):
        if dim is None:
            dim = len(lines[0].split()) - 1
        if dim < 1:
            raise FileFormatError(
                f"{path}: line {line_number} must hold a word and its vector; got {_shown(lines[0])}."
            )
        block_words, vectors = _parse_lines(path, lines, line_number, dim)
        words += block_words
        blocks.append(vectors)
        line_number += len(lines)
    if header is not None and len(words) != header[0]:
        raise FileFormatError(f"{path} must hold {header[0]} rows, as its header says; got {len(words)}.")
    return words, np.concatenate(blocks) if blocks else np.empty((0, 0), dtype=np.float32)


def _line_blocks(file: BinaryIO) -> Iterator[list[bytes]]:
    while lines := file.readlines(_BLOCK_BYTES):
        yield [line.rstrip(b" \r\n").replace(b"\t", b" ") for line in lines]


def _parse_lines(path: Path, lines: list[bytes], first_number: int, dim: int) -> tuple[list[str], NDArray[np.float32]]:
    """Words and vectors of some lines: all numbers in one call, line by line only where that fails."""
    words, numbers = [], []
    for number, line in enumerate(lines, start=first_number):
        word, values = _split_row(path, number, line, dim)
        words.append(_decode(path, f"line {number}", word))
        numbers.append(values)
    parsed = _parse_numbers(b" ".join(numbers))
    if parsed is None or parsed.size != len(lines) * dim:
        parsed = np.concatenate([_parse_row(path, n, values, dim) for n, values in enumerate(numbers, first_number)])
    vectors = parsed.reshape(len(lines), dim)
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if bad.size:
        raise FileFormatError(f"{path}: line {first_number + bad[0]} must be finite; got NaN or infinity.")
    return words, vectors


def _parse_row(path: Path, number: int, values: bytes, dim: int) -> NDArray[np.float32]:
    parsed = _parse_numbers(values)
    if parsed is None or parsed.size != dim:
        raise FileFormatError(f"{path}: line {number} must hold {dim} numbers; got {_shown(values)}.")
    return parsed


def _split_row(path: Path, number: int, line: bytes, dim: int) -> tuple[bytes, bytes]:
    """The word and the numbers of a row; a word may hold spaces, as some of GloVe's do."""
    if line.count(b" ") == dim and not line.startswith(b" "):
        word, _, values = line.partition(b" ")
        return word, values
    fields = line.split()
    word_parts, value_fields = fields[:-dim], fields[-dim:]
    surplus = word_parts[1:]
    if not word_parts or (surplus and all(_parse_numbers(field) is not None for field in surplus)):
        got = f"{len(fields)} fields: {_shown(line)}" if fields else "a blank line"
        raise FileFormatError(
            f"{path}: line {number} must hold a word and {dim} numbers, as the file begins; got {got}."
        )
    return b" ".join(word_parts), b" ".join(value_fields)


def _parse_numbers(values: bytes) -> NDArray[np.float32] | None:
    """Numbers between spaces, or None where something else stands there."""
    if not values:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(values, dtype=np.float32, sep=" ")
        except (DeprecationWarning, ValueError):
            return None


def _decode(path: Path, place: str, word: bytes) -> str:
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        raise FileFormatError(f"{path}: {place} must start with a word in UTF-8; got {word!r}.") from None


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("utf-8", "replace"))


def _first_of_each(path: Path, words: list[str], vectors: NDArray[np.float32]) -> WordVectors:
    first: dict[str, int] = {}
    for row, word in enumerate(words):
        first.setdefault(word, row)
    n_repeated = len(words) - len(first)
    if n_repeated:
        warnings.warn(
            f"{path} repeats words: rows left out: {n_repeated}; the first row of each word is kept.",
            DuplicateWordWarning,
            stacklevel=2,
        )
        vectors = vectors[list(first.values())]
    return WordVectors({word: row for row, word in enumerate(first)}, vectors)
