"""Word vectors as text, a word and its numbers a line: GloVe, word2vec and the .vec files of fastText."""

from __future__ import annotations

import gzip
import os
import warnings
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import DuplicateWordWarning, FileFormatError, InputFileError, UndecodableWordWarning
from isosent.io import bounds
from isosent.io.lines import whole_lines
from isosent.numeric.compiled import njit
from isosent.numeric.threads import n_workers
from isosent.words.vocabulary import Vocabulary, first_rows, take_words

Progress = Callable[[int], object]

_HEAD_BYTES = 1 << 20
_BLOCK_BYTES = 8 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
_LARGEST_DEFLATE_RATIO = 1032
_NOT_MEANT = "__MACOSX/"


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A file, or a member of a zip archive."""

    path: Path  # the file or the archive
    member: str | None = None  # the member; None for a file, or for the only member of an archive

    @classmethod
    def of(cls, written: str | os.PathLike[str]) -> FilePlace:
        """Read ``FILE`` or ``ARCHIVE.zip!MEMBER``."""
        text = os.fspath(written)
        for position, character in enumerate(text):
            if character == "!" and Path(text[:position]).is_file() and not Path(text).exists():
                return cls(_check.input_file(text[:position]), text[position + 1 :])
        return cls(_check.input_file(text))

    def __str__(self) -> str:
        return str(self.path) if self.member is None else f"{self.path}!{self.member}"


@dataclass(frozen=True, slots=True, eq=False)
class ByteStream:
    """Bytes that are read once, from their beginning."""

    place: FilePlace  # where they come from, for messages
    head: bytes  # the first of them
    is_packed: bool  # whether they are compressed or in an archive
    most_bytes: int  # there are no more than this
    _file: IO[bytes]
    _on_disk: IO[bytes]
    _progress: Progress | None

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes, `head` first, and tell `progress` the bytes of the file on the disk that they took."""
        told, piece = 0, self.head
        n_bytes = len(piece)
        most = max(bounds.FREELY_EXPANDED, bounds.LARGEST_EXPANSION * self.place.path.stat().st_size)
        while piece:
            if self._progress is not None:
                self._progress(self._on_disk.tell() - told)
                told = self._on_disk.tell()
            yield piece
            piece = self._file.read(_BLOCK_BYTES)
            n_bytes += len(piece)
            if self.is_packed and n_bytes > most:
                raise FileFormatError(
                    f"{self.place} unpacks to more than {bounds.LARGEST_EXPANSION} times its size; word vectors do "
                    "not. Unpack it first if you trust it."
                )


@contextmanager
def open_bytes(place: FilePlace, progress: Progress | None = None) -> Iterator[ByteStream]:
    """Open a file, and tell what it is packed in by its content."""
    with place.path.open("rb") as on_disk:
        magic, size = on_disk.read(4), place.path.stat().st_size
        on_disk.seek(0)
        if magic == _ZIP_MAGIC:
            kind = "zip archive"
        elif place.member is not None:
            raise FileFormatError(f"{place.path} must be a zip archive; it starts otherwise.")
        else:
            kind = "gzip file"
        try:
            if magic == _ZIP_MAGIC:
                with zipfile.ZipFile(on_disk) as archive:
                    found = _member(place, archive)
                    with archive.open(found) as file:
                        yield ByteStream(place, file.read(_HEAD_BYTES), True, found.file_size, file, on_disk, progress)
            elif magic[:2] == _GZIP_MAGIC:
                with gzip.open(on_disk) as unpacked:
                    most_bytes = size * _LARGEST_DEFLATE_RATIO
                    yield ByteStream(
                        place,
                        unpacked.read(_HEAD_BYTES),
                        True,
                        most_bytes,
                        cast("IO[bytes]", unpacked),
                        on_disk,
                        progress,
                    )
            else:
                yield ByteStream(place, on_disk.read(_HEAD_BYTES), False, size, on_disk, on_disk, progress)
        except (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
            raise FileFormatError(f"{place} is not a whole {kind}: {error}.") from None


def _member(place: FilePlace, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = {
        info.filename: info
        for info in archive.infolist()
        if not info.is_dir() and not info.filename.startswith(_NOT_MEANT)
    }
    listed = ", ".join(members) or "none"
    if place.member is None and len(members) != 1:
        one = next(iter(members), "MEMBER")
        raise InputFileError(f"{place.path} must hold one file; it holds: {listed}. Name one: {place.path}!{one}")
    found = next(iter(members.values())) if place.member is None else members.get(place.member)
    if found is None:
        raise InputFileError(f"{place.path} has no member {place.member}; it has: {listed}.")
    if found.flag_bits & 1:
        raise FileFormatError(f"{place.path}: member {found.filename} must not be encrypted; it is. Unpack it first.")
    return found


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Some words and their vectors."""

    words: list[bytes]  # the words, in UTF-8
    vectors: NDArray[np.float32]  # their vectors, finite
    n_undecodable: int = 0  # rows beside these that were left out because their word is not UTF-8


def checked_block(where: str, numbers: NDArray[np.int64], words: list[bytes], vectors: NDArray[np.float32]) -> RowBlock:
    """Refuse vectors that are not finite and overlong words, and leave out words that are not UTF-8."""
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
    """Find the words that are wanted."""
    characters, offsets = joined(words)
    return np.flatnonzero(wanted.ids_of_spans(characters, offsets[:-1], offsets[1:]) >= 0)


def joined(words: Sequence[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Write words one behind the other."""
    offsets = np.fromiter(accumulate(map(len, words), initial=0), dtype=np.int64, count=len(words) + 1)
    return np.frombuffer(b"".join(words), dtype=np.uint8), offsets


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def in_threads(tasks: Iterable[Callable[[], RowBlock]]) -> Iterator[RowBlock]:
    """Make blocks in as many threads as there are processors."""
    running: deque[Future[RowBlock]] = deque()
    with ThreadPoolExecutor(n_workers()) as pool:
        for task in tasks:
            running.append(pool.submit(task))
            if len(running) > n_workers():
                yield running.popleft().result()
        while running:
            yield running.popleft().result()


class WordCollector:
    """The words of all blocks of a file."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._words: list[bytes] = []
        self._n_undecodable = 0

    def add(self, block: RowBlock) -> None:
        """Add the words of a block."""
        self._words += block.words
        self._n_undecodable += block.n_undecodable

    def finish(self) -> tuple[Vocabulary, NDArray[np.int64] | None]:
        """Make the vocabulary, and warn of rows that are left out."""
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
    """Bring the rows of a file into one array."""
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


_POWERS = np.array([float(f"1e{exponent}") for exponent in range(309)])
_MOST_DIGITS = 18
_MARGIN = 1e-15  # above the error of a quotient of a rounded integer and a rounded power of ten


@njit(cache=True, nogil=True)
def locate_rows(text: NDArray[np.uint8], dim: int, spans: NDArray[np.int64]) -> None:
    """Find the lines of a text, and the word of each."""
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
    """Read the numbers of lines, each correctly rounded."""
    _parse_rows(text, spans, _POWERS, vectors, is_parsed)


_BLANKS = b" \t\r\n"


def text_rows(
    where: str, pieces: Iterable[bytes], header: tuple[int, int] | None, wanted: Vocabulary | None = None
) -> Iterator[RowBlock]:
    """Read rows of text, several blocks at a time in as many threads as there are processors."""
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
    for numbers, block in whole_lines(where, pieces, bounds.LONGEST_VECTOR_LINE, first=first, advice=advice):
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
    """Read numbers between blanks."""
    if b"_" in values:  # Python's digits may be grouped by it
        return None
    try:
        with np.errstate(over="ignore"):
            return np.array([float(field) for field in values.split()], dtype=np.float32)
    except ValueError:
        return None


def _shown(line: bytes) -> str:
    return repr(line[:60].decode("utf-8", "replace"))
