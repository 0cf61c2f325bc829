"""Files of word vectors: text (GloVe, word2vec, fastText's .vec), and the binary formats of word2vec and fastText.

`open_rows` opens any of them. `open_bytes` gives a file, packed or not, as a stream of bytes; `plain_rows` tells text
and word2vec apart by its beginning, and `fasttext_rows` maps a model of fastText, which begins with `MAGIC`. Each
yields blocks of rows: `RowBlock` holds some words and their vectors, which `checked_block` has found to be finite and
in UTF-8. Blocks are parsed several at a time, in as many threads as there are processors, and come in the order of the
file. `WordCollector` makes the vocabulary of their words and leaves out repeated ones.
"""

from __future__ import annotations

import gzip
import mmap
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import FileFormatError, InputFileError
from isosent.io import bounds
from isosent.io.bounds import whole_lines
from isosent.io.signatures import READ_AS_WORDS, START_BYTES, refuse_other_formats
from isosent.io.system import naming, open_to_read
from isosent.io.tables import is_number
from isosent.pages.progress import Progress
from isosent.words.binary import binary_rows
from isosent.words.blocks import RowBlock, checked_block, in_threads, is_utf8, rows_of, word_too_long
from isosent.words.ngrams import NgramTable
from isosent.words.vocabulary import Vocabulary

_HEAD_BYTES = 1 << 20
_BLOCK_BYTES = 4 << 20
_UNPACKED = ("fasttext", "word2vec")
_GZIP_MAGIC, _ZIP_MAGIC = b"\x1f\x8b", b"PK\x03\x04"
_LARGEST_DEFLATE_RATIO = 1032
_RESOURCE_FORKS = "__MACOSX/"  # macOS adds them to archives
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\r\n"
_BLANK_FOR_TAB = bytes.maketrans(b"\t", b" ")
_FIELD = re.compile(rb"[^ \t]+")
_FIRST_ROW = 2  # line of the first row behind a header
_PARTS_OF_CHARACTERS = bytes(range(0x80, 0x100))  # of UTF-8
_MOST_DIGITS = 19  # of an int64

MAGIC = struct.pack("<i", 793712314)  # of fastText
_VERSIONS = (11, 12)
_SETTINGS = "<12id"
_SUPERVISED = 3
_BLOCK_WORDS = 4096
_BLOCK_BUCKETS = 1 << 14


class FileRows(NamedTuple):
    """A file of word vectors, opened."""

    format: str
    blocks: Iterable[RowBlock]  # to be read once
    tables: tuple[NgramTable, ...] = ()  # of n-grams; empty where it has none


def is_safetensors(path: Path) -> bool:
    """Whether a file is .safetensors, by its first bytes."""
    with open_to_read(path) as file:
        start = file.read(9)
    return start[8:] == b"{" and int.from_bytes(start[:8], "little") < path.stat().st_size


def may_hold_words(path: Path) -> bool:
    """Whether a file may hold word vectors, by its beginning: its first lines end with a number, or it is no text."""
    with open_bytes(path) as stream:
        if stream.is_packed or stream.head.startswith(MAGIC):
            return True
        first, _, rest = stream.head.removeprefix(_BYTE_ORDER_MARK).partition(b"\n")
        is_header = len(first.split()) == 2 and all(field.isdigit() for field in first.split())  # bytes may follow
        lines = [first] if is_header else [first, rest.partition(b"\n")[0]]
        return all(is_number(field) for line in lines for field in line.split()[-1:])


def format_of(path: Path) -> str:
    """Name the format of a file."""
    if is_safetensors(path):
        return "isosent safetensors"
    with open_rows(path) as rows:
        return rows.format


@contextmanager
def open_rows(path: Path, wanted: Vocabulary | None = None, progress: Progress | None = None) -> Iterator[FileRows]:
    """Open a file of text, of word2vec's binary format, or of fastText."""
    _extras.require("numba")  # the words will be looked up: refused before a file of gigabytes is read
    with open_bytes(path, progress) as stream:
        if not stream.head.startswith(MAGIC):
            name, blocks = plain_rows(stream, wanted)
            yield FileRows(name, _at_least_one(path, blocks))
            return
        if stream.is_packed:
            raise FileFormatError(f"{path} is a packed fastText model. Unpack it first.")
        blocks, table = fasttext_rows(path, wanted, progress)
        yield FileRows("fastText binary", _at_least_one(path, blocks), () if table is None else (table,))


def _at_least_one(path: Path, blocks: Iterator[RowBlock]) -> Iterator[RowBlock]:
    first = next(blocks, None)
    if first is None:
        raise FileFormatError(f"{path} holds no word vectors.")
    yield first
    yield from blocks


# -- where the bytes come from ---------------------------------------------------------------------------------------


class ByteStream:
    """Bytes that are read once, from their beginning."""

    def __init__(
        self, path: Path, file: IO[bytes], on_disk: IO[bytes], most_bytes: int, progress: Progress | None
    ) -> None:
        self.path, self.most_bytes = path, most_bytes  # there are no more bytes than this
        self.is_packed = file is not on_disk
        self.head = file.read(_HEAD_BYTES)
        self._file, self._on_disk, self._progress = file, on_disk, progress
        if self.is_packed:
            refuse_other_formats(f"{path}, unpacked,", self.head[:START_BYTES], reads=_UNPACKED)

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes, `head` first, and report the bytes of the file on the disk that they took."""
        piece, size = self.head, self.path.stat().st_size
        n_bytes = len(piece)
        most = max(bounds.FREELY_EXPANDED, bounds.LARGEST_EXPANSION * size)
        while piece:
            if self._progress:
                self._progress(self._on_disk.tell(), size)
            yield piece
            piece = self._file.read(_BLOCK_BYTES)
            n_bytes += len(piece)
            if self.is_packed and n_bytes > most:
                raise FileFormatError(
                    f"{self.path} unpacks to more than {bounds.LARGEST_EXPANSION} times its size; word vectors do "
                    "not. Unpack it first if you trust it."
                )


@contextmanager
def open_bytes(path: Path, progress: Progress | None = None) -> Iterator[ByteStream]:
    """Open a file; gzip and zip are detected by their first bytes."""
    with open_to_read(path) as on_disk:
        start, size = on_disk.read(START_BYTES), path.stat().st_size
        on_disk.seek(0)
        refuse_other_formats(str(path), start, reads=READ_AS_WORDS)
        magic = start[:4]
        try:
            if magic == _ZIP_MAGIC:
                with zipfile.ZipFile(on_disk) as archive:
                    member = _only_member(path, archive)
                    with archive.open(member) as file:
                        yield ByteStream(path, file, on_disk, member.file_size, progress)
            elif magic[:2] == _GZIP_MAGIC:
                with gzip.open(on_disk) as unpacked:
                    file = cast("IO[bytes]", unpacked)
                    yield ByteStream(path, file, on_disk, size * _LARGEST_DEFLATE_RATIO, progress)
            else:
                yield ByteStream(path, on_disk, on_disk, size, progress)
        except (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error) as error:
            kind = "zip archive" if magic == _ZIP_MAGIC else "gzip file"
            raise FileFormatError(f"{path} is damaged or truncated, not a complete {kind}: {error}.") from None


def _only_member(path: Path, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
    members = [
        info for info in archive.infolist() if not info.is_dir() and not info.filename.startswith(_RESOURCE_FORKS)
    ]
    if not members:
        raise InputFileError(f"{path} holds no file. Name another.")
    if len(members) != 1:
        listed = ", ".join(info.filename for info in members)
        raise InputFileError(f"{path} holds several files: {listed}. Unpack it, and name one of them.")
    if members[0].flag_bits & 1:
        raise FileFormatError(f"{path}: {members[0].filename} is encrypted. Unpack it first.")
    return members[0]


# -- text ------------------------------------------------------------------------------------------------------------


def plain_rows(stream: ByteStream, wanted: Vocabulary | None) -> tuple[str, Iterator[RowBlock]]:
    """Rows of text or of word2vec, whose header both may have; the name of the format comes first."""
    where, pieces = str(stream.path), stream.pieces()
    head = next(pieces, b"").removeprefix(_BYTE_ORDER_MARK)
    first_line, _, rest = head.partition(b"\n")
    fields = first_line.split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < _MOST_DIGITS for field in fields):
        return "text", _text_rows(where, chain([head], pieces), None, wanted)
    n_rows, dim = map(int, fields)
    _check_dim(f"{where}, line 1", dim)
    if not dim or not _continues_in_binary(rest, dim):
        return "text with header", _text_rows(where, chain([rest], pieces), (n_rows, dim), wanted)
    if n_rows * (4 * dim + 2) > stream.most_bytes:
        raise FileFormatError(
            f"{where}: its header says {n_rows} vectors of {dim} floats, but it ends before. Is the file complete?"
        )
    return "word2vec binary", binary_rows(where, chain([rest], pieces), (n_rows, dim), wanted)


def _check_dim(where: str, dim: int) -> None:
    if dim > bounds.MOST_DIMENSIONS:
        raise FileFormatError(f"{where}: {dim} dimensions; a word vector may have {bounds.MOST_DIMENSIONS:,} at most.")


def _text_rows(
    where: str, pieces: Iterable[bytes], header: tuple[int, int] | None, wanted: Vocabulary | None
) -> Iterator[RowBlock]:
    dim = None if header is None else header[1]
    first_words = None if wanted is None else {word.encode().split(b" ")[0] for word in wanted}
    n_rows = 0

    def tasks() -> Iterator[Callable[[], RowBlock]]:
        nonlocal dim, n_rows
        for numbers, lines in _lines_with_rows(where, pieces, 1 if header is None else _FIRST_ROW):
            if dim is None:
                dim = len(lines.split(b"\n", 1)[0].split()) - 1
                _check_dim(f"{where}, line {numbers.start}", dim)
            if dim < 1:
                shown = _quoted(lines.split(b"\n", 1)[0])
                raise FileFormatError(f"{where}, line {numbers.start}: expected a word and its vector, found {shown}.")
            parse = _LineParser(where, dim, has_header=header is not None)
            yield partial(_parse, parse, lines, numbers, wanted, first_words)
            n_rows += len(numbers)

    yield from in_threads(tasks())
    if header is not None and n_rows != header[0]:
        raise FileFormatError(
            f"{where}: its header says {header[0]} rows, but there are {n_rows}. Is the file complete?"
        )


def _lines_with_rows(where: str, pieces: Iterable[bytes], first: int) -> Iterator[tuple[range, bytes]]:
    """Blocks of lines and their numbers; blank lines at the end of the file belong to none."""
    blank: int | None = None  # the first of those that the blocks so far end with
    advice = f"A line is a word and at most {bounds.MOST_DIMENSIONS:,} numbers."
    for numbers, block in whole_lines(where, pieces, bounds.LONGEST_VECTOR_LINE, first=first, advice=advice):
        lines = block.rstrip(_BLANKS)
        n_lines = len(numbers) - block.count(b"\n", len(lines)) + block.endswith(b"\n") if lines else 0
        if lines:
            if blank is not None:
                yield range(blank, blank + 1), b"\n"  # is refused by its number: rows follow it
            yield numbers[:n_lines], lines
            blank = None
        if blank is None and n_lines < len(numbers):
            blank = numbers[n_lines]


def _parse(
    parse: _LineParser, block: bytes, numbers: range, wanted: Vocabulary | None, first_words: set[bytes] | None
) -> RowBlock:
    """Words and vectors of some lines: pyarrow reads plain ones, what it refuses is read one by one."""
    # line by line: bytes.replace searches for two bytes 50 times as slowly as for one
    text, dim = block.translate(_BLANK_FOR_TAB) if b"\t" in block else block, parse.dim
    lines = [line.rstrip(_BLANKS) for line in text.split(b"\n")][: len(numbers)]
    places = np.arange(len(numbers))
    if first_words is not None:  # numbers of other words are not parsed
        is_candidate = [line.partition(b" ")[0] in first_words or line.count(b" ") != dim for line in lines]
        places = np.flatnonzero(is_candidate)
        lines = [lines[place] for place in places]
    words, vectors = _parse_plain(lines, dim) if lines else ([], np.empty((0, dim), dtype=np.float32))
    if vectors is None:  # an odd line among them
        if text is not block:  # a word may hold a tab
            unchanged = block.split(b"\n")
            lines = [unchanged[place].rstrip(_BLANKS) for place in places]
        words, vectors = parse.rows([numbers[place] for place in places], lines)
    if wanted is not None:
        rows = rows_of(wanted, words)
        words, vectors, places = [words[row] for row in rows], vectors[rows], places[rows]
    return checked_block(f"{parse.where}: line", numbers[0] + places, words, vectors)


def _parse_plain(lines: list[bytes], dim: int) -> tuple[list[bytes], NDArray[np.float32] | None]:
    """Lines of one word and `dim` numbers, a blank between them; no vectors if another line is among them."""
    pa = _extras.require("pyarrow", extra="words")

    parts = [line.partition(b" ") for line in lines]
    words, text = [word for word, _, _ in parts], b"\n".join([numbers for _, _, numbers in parts])
    characters = np.frombuffer(text, dtype=np.uint8)
    is_separator = characters <= ord(" ")
    ends = np.flatnonzero(is_separator)  # of all numbers but the last
    line_ends = np.cumsum([len(numbers) + 1 for _, _, numbers in parts]) - 1
    n_blanks = np.count_nonzero(characters[ends] == ord(" "))  # other control characters are refused
    is_plain = len(ends) + 1 == len(lines) * dim and n_blanks == len(lines) * (dim - 1) and all(words)
    if not is_plain or not np.array_equal(ends[dim - 1 :: dim], line_ends[:-1]):
        return [], None
    # Without separators, this is an array of strings as Arrow stores it. Its cast is twice as fast as a reader of CSV.
    digits = characters[~is_separator]
    offsets = np.zeros(len(ends) + 2, dtype=np.int32)
    offsets[1:-1], offsets[-1] = ends, len(digits)
    offsets[1:-1] -= np.arange(len(ends), dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(digits)]
    try:
        numbers = pa.Array.from_buffers(pa.string(), len(ends) + 1, buffers).cast(pa.float64())
    except pa.ArrowInvalid:
        return [], None
    with np.errstate(over="ignore"):  # infinity is refused later, with its line
        # decimal -> float64 -> float32, as Python reads it: two roundings
        return words, numbers.to_numpy().astype(np.float32).reshape(len(lines), dim)


class _LineParser:
    """What is known of all lines of a file: the dimensions, by its header or by its first row."""

    def __init__(self, where: str, dim: int, *, has_header: bool) -> None:
        self.where, self.dim, self._has_header = where, dim, has_header

    def rows(self, numbers: list[int], lines: list[bytes]) -> tuple[list[bytes], NDArray[np.float32]]:
        """The words and vectors of lines, whose words may hold blanks."""
        words: list[bytes] = []
        vectors = np.empty((len(lines), self.dim), dtype=np.float32)
        for row, (number, line) in enumerate(zip(numbers, lines, strict=True)):
            word, vectors[row] = self._row(number, line)
            words.append(word)
        if self._has_header and numbers[0] == _FIRST_ROW and all(map(_ends_in_number, words)):
            raise FileFormatError(
                f"{self.where}: its header says {self.dim} dimensions, but every row has more numbers, or a word "
                "that ends in one. Correct the header."
            )
        return words, vectors

    def _row(self, number: int, line: bytes) -> tuple[bytes, NDArray[np.float32]]:
        """The word of a line, and its last numbers."""
        fields = list(_FIELD.finditer(line))  # a word may hold rarer white space, as in a plain line
        n_word_fields, values = len(fields) - self.dim, b" ".join([field[0] for field in fields[-self.dim :]])
        word = line[: fields[n_word_fields].start()] if n_word_fields >= 0 else b""
        # behind a header, the word is all that the numbers and a separator follow, such as a blank
        is_blank = n_word_fields == 0 and len(word) > 1
        is_exact = (self._has_header or is_blank) and len(line) - len(word) == len(values)
        advice = ""
        if not is_exact:
            word = b" ".join([field[0] for field in fields[: max(0, n_word_fields)]])
            surplus = fields[1:n_word_fields]
            if surplus and not self._has_header and all(parse_numbers(field[0]) is not None for field in surplus):
                word = b""  # rather a row with too many numbers
                advice = " A word may end in a number only after a header line, the numbers of rows and of dimensions."
        if not word:
            got = f"{len(fields)} fields: {_quoted(line)}" if fields else "a blank line"
            raise FileFormatError(
                f"{self.where}, line {number}: expected a word and {self.dim} numbers, as the file begins, found {got}."
                f"{advice}"
            )
        vector = parse_numbers(values)
        if vector is None or len(vector) != self.dim:  # rarer white space may lie between numbers, too
            raise FileFormatError(f"{self.where}, line {number}: expected {self.dim} numbers, found {_quoted(values)}.")
        return word[:-1] if is_exact else word, vector


def _ends_in_number(word: bytes) -> bool:
    """Whether the last of several fields of a word is a number."""
    fields = word.split()
    return len(fields) > 1 and parse_numbers(fields[-1]) is not None


def parse_numbers(values: bytes) -> NDArray[np.float32] | None:
    """Read numbers between blanks; None if they are none."""
    if b"_" in values:  # Python allows it between digits
        return None
    try:
        with np.errstate(over="ignore"):
            return np.array([float(field) for field in values.split()], dtype=np.float32)
    except ValueError:
        return None


def _quoted(line: bytes) -> str:
    return repr(line[:60].decode("utf-8", "replace"))


def _continues_in_binary(rows: bytes, dim: int) -> bool:
    """Whether floats follow rather than text: there is no row of numbers, but bytes that are in no text."""
    first_row = rows.split(b"\n", 1)[0].split()
    if len(first_row) > dim and parse_numbers(b" ".join(first_row[-dim:])) is not None:
        return False
    start = rows[: 1024 + 4 * dim]
    return any(byte < 32 and byte not in b"\t\n\r" for byte in start) or not is_utf8(start.rstrip(_PARTS_OF_CHARACTERS))


# -- fastText's binary format: settings, words, and matrices of words and of n-grams ---------------------------------


class _Mapped:
    """A file that is read front to back through a memory map."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = 0
        with open_to_read(path) as file, naming(path):
            self.content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def numbers(self, layout: str) -> tuple[Any, ...]:
        start = self.advance(struct.calcsize(layout))
        return struct.unpack_from(layout, self.content, start)

    def string(self) -> bytes:
        start = self.position
        stop = self.content.find(b"\0", start, start + bounds.LONGEST_WORD + 1)
        if stop < 0 and start + bounds.LONGEST_WORD < len(self.content):
            raise word_too_long(f"{self.path}, byte {start}")
        self.advance(stop + 1 - start if stop >= 0 else len(self.content))
        return self.content[start:stop]

    def matrix(self, n_columns: int) -> NDArray[np.float32]:
        n_rows, width = self.numbers("<qq")
        if width != n_columns or n_rows < 0:
            raise FileFormatError(
                f"{self.path} is damaged: a matrix is {n_rows} x {width}, but {n_columns} columns are expected."
            )
        start = self.advance(4 * n_rows * width)
        return np.ndarray((n_rows, width), "<f4", buffer=self.content, offset=start)

    def advance(self, n_bytes: int) -> int:
        """Skip some bytes, and return where they begin."""
        start = self.position
        if start + n_bytes > len(self.content):
            raise FileFormatError(f"{self.path} is a truncated fastText model. Copy it again.")
        self.position += n_bytes
        return start


def fasttext_rows(
    path: Path, wanted: Vocabulary | None = None, progress: Progress | None = None
) -> tuple[Iterator[RowBlock], NgramTable | None]:
    """Open a model of fastText."""
    file = _Mapped(path)
    _, version = file.numbers("<2i")
    if version not in _VERSIONS:
        raise FileFormatError(
            f"{path} is a fastText model of version {version}, only {' and '.join(map(str, _VERSIONS))} can be read."
        )
    dim, _, _, _, _, _, _, model, n_buckets, shortest, longest, _, _ = file.numbers(_SETTINGS)
    if version == 11 and model == _SUPERVISED:
        longest = 0
    if not 0 < dim <= bounds.MOST_DIMENSIONS or longest > bounds.LONGEST_NGRAM:
        raise FileFormatError(
            f"{path} has {dim} dimensions and n-grams of up to {longest} characters. At most "
            f"{bounds.MOST_DIMENSIONS:,} dimensions and {bounds.LONGEST_NGRAM} characters can be read."
        )
    words, has_ngrams = _dictionary(file)
    (is_quantized,) = file.numbers("<?")
    if is_quantized:
        raise FileFormatError(f"{path} is quantised, as .ftz files are. Use the .bin that it was made of.")
    matrix = file.matrix(dim)
    if len(matrix) != len(words) + n_buckets:
        raise FileFormatError(
            f"{path} is damaged: {len(matrix)} vectors of {len(words)} words and {n_buckets} buckets of n-grams."
        )
    file.numbers("<?")
    file.matrix(dim)
    table = None
    if has_ngrams and longest > 0 and n_buckets > 0:
        table = NgramTable(matrix[len(words) :], (shortest, longest))
        _check_buckets(path, table)
    return in_threads(_tasks(path, words, matrix, table, wanted, progress)), table


def _dictionary(file: _Mapped) -> tuple[list[bytes], bool]:
    """Words in the order of their rows (labels follow them), and whether n-grams may be used."""
    n_entries, n_words, n_labels, _, n_pruned = file.numbers("<3i2q")
    if not 0 <= n_words == n_entries - n_labels:
        raise FileFormatError(f"{file.path} is damaged: {n_entries} entries, {n_words} words and {n_labels} labels.")
    if n_pruned > 0:
        raise FileFormatError(f"{file.path} was pruned, and lacks n-grams. Use the model that it was made of.")
    words = []
    for _ in range(n_entries):
        words.append(file.string())
        file.advance(9)  # its count and its kind
    return words[:n_words], n_pruned < 0


def _check_buckets(path: Path, table: NgramTable) -> None:
    for start in range(0, len(table.vectors), _BLOCK_BUCKETS):
        bad = np.flatnonzero(~np.isfinite(table.vectors[start : start + _BLOCK_BUCKETS]).all(axis=1))
        if bad.size:
            raise FileFormatError(f"{path}: n-gram bucket {start + bad[0]} holds NaN or infinity.")


def _tasks(
    path: Path,
    words: list[bytes],
    matrix: NDArray[np.float32],
    table: NgramTable | None,
    wanted: Vocabulary | None,
    progress: Progress | None,
) -> Iterator[Callable[[], RowBlock]]:
    size = path.stat().st_size
    for start in range(0, len(words), _BLOCK_WORDS):
        yield partial(_block, path, start, words[start : start + _BLOCK_WORDS], matrix, table, wanted)
        if progress:
            progress(size * min(start + _BLOCK_WORDS, len(words)) // len(words), size)


def _block(
    path: Path,
    start: int,
    words: list[bytes],
    matrix: NDArray[np.float32],
    table: NgramTable | None,
    wanted: Vocabulary | None,
) -> RowBlock:
    numbers = np.arange(len(words)) if wanted is None else rows_of(wanted, words)
    chosen = [words[number] for number in numbers]
    vectors = matrix[start + numbers]
    if table is not None:
        vectors = table.means(chosen, vectors)
    return checked_block(f"{path}: vector", start + numbers + 1, chosen, vectors)
