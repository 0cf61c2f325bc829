"""How much of a file is read at once, and text files read piece by piece within these bounds.

The constants bound what is kept in memory: longer lines and larger documents are refused before they fill it. They are
far above what data sets of the field hold; `docs/limits.md` lists them. `check_growth` bounds what a tokenizer makes
of a text.

Text files pass through here on their way to all readers. `open_content` opens a file, or copies standard input and
pipes; `whole_lines` cuts it into blocks of whole lines; `DecodedBlocks` decodes these, and notices Korean in cp949.
`lines_in` and `lines_of` yield the lines, `read_bounded` reads a document that is parsed as one.
"""

from __future__ import annotations

import base64
import gzip
import os
import re
import shutil
import sys
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, islice
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, BinaryIO, Final, cast

from isosent import _check
from isosent.errors import FileFormatError, InputFileError, OutputError
from isosent.io.signatures import GZIP, START_BYTES, refuse_other_formats
from isosent.io.system import open_to_read, system_code

LONGEST_LINE = 16 << 20  # bytes of a line of text, or of a row of a table: several novels
LARGEST_JSON = 256 << 20  # bytes of a .json table, which is parsed as one: it takes 5 to 30 times that
LARGEST_DOCUMENT = 256 << 20  # bytes of a model file, a result, a config; results of a million items have 40 MB
LARGEST_YAML = 128 << 10  # bytes; tables of a paper have 10 KiB, and numbers to the base 60 take quadratic time
LARGEST_XML = 32 << 20  # bytes; parsed it takes up to 40 times that, and the files of SemEval have 4 MiB
MOST_DIMENSIONS = 1 << 16  # of a vector; published ones have 25 to 8,192
LONGEST_NUMBER = 32  # characters of a number and a blank; a float64 takes 25
LONGEST_WORD = 1 << 16  # bytes; the longest of published word vectors are URLs
LONGEST_VECTOR_LINE = LONGEST_WORD + MOST_DIMENSIONS * LONGEST_NUMBER
LARGEST_TOKEN_ID = 1 << 24  # tables have a row for each id up to the largest; vocabularies have up to 1 M tokens
MOST_GROWTH = 16  # characters that a tokenizer makes of one; published ones make at most 2
LONGEST_INSERTED = 64  # characters that a tokenizer puts before a word, or makes of one; NFKC makes 18 of one
LONGEST_SPLIT_WORD = 10_000  # characters of a word that WordPiece cuts, in quadratic time; BERT's are 100
LONGEST_NGRAM = 256  # characters; fastText's default is 6
LARGEST_EXPANSION = 100  # bytes for each packed byte; text and word vectors pack 3:1, zeros 1000:1
FREELY_EXPANDED = 64 << 20  # bytes up to which a packed file may expand by any factor

_UNITS: Final = ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "bytes"))


def shown_bytes(n_bytes: int) -> str:
    """A number of bytes in a unit that fits: 16 MiB."""
    exponent, unit = next((power, unit) for power, unit in _UNITS if n_bytes >> power or not power)
    return f"{n_bytes / (1 << exponent):.3g} {unit}"


def line_too_long(
    where: str, number: int, longest: int, advice: str = "Split the text into shorter lines."
) -> FileFormatError:
    """What is raised for a line beyond its bound."""
    return FileFormatError(f"{where}, line {number}: longer than {shown_bytes(longest)}. {advice}")


def check_growth(name: str, tokenizer: Mapping[str, Any]) -> None:
    """Refuse a ``tokenizer.json`` that makes a text many times longer, or is slow by design."""
    steps = [*_steps(tokenizer.get("normalizer")), *_steps(tokenizer.get("pre_tokenizer"))]
    for step in steps:
        charsmap = base64.b64decode(step.get("precompiled_charsmap") or "")
        longest = max(map(len, charsmap[4 + int.from_bytes(charsmap[:4], "little") :].split(b"\0")))
        inserted = [len(step.get(field) or "") for field in ("prepend", "replacement")]
        if max(longest, *inserted) > LONGEST_INSERTED:
            raise FileFormatError(f"{name} makes texts many times longer: {step.get('type')}. Use another tokenizer.")
    if _growth([step for step in steps if step.get("type") == "Replace"]) > MOST_GROWTH:
        raise FileFormatError(f"{name} makes texts many times longer: Replace. Use another tokenizer.")
    template = (tokenizer.get("post_processor") or {}).get("single") or ()
    model = tokenizer.get("model") or {}
    if (
        len(template) > LONGEST_INSERTED
        or len(model.get("continuing_subword_prefix") or "") > LONGEST_INSERTED
        or (model.get("max_input_chars_per_word") or 0) > LONGEST_SPLIT_WORD
    ):
        raise FileFormatError(f"{name} repeats or cuts words without a bound. Use another tokenizer.")


def _steps(step: Mapping[str, Any] | None) -> Iterator[Mapping[str, Any]]:
    """A step of a tokenizer, and those in it, in their order."""
    if step:
        yield step
        for inner in (*step.get("normalizers", ()), *step.get("pretokenizers", ())):
            yield from _steps(inner)


def _growth(replacements: Sequence[Mapping[str, Any]]) -> float:
    """Characters that replacements make of one, at most."""
    lengths: dict[str, float] = {}  # of what the later steps make of a character, where it is not `other`
    other = 1.0
    for step in reversed(replacements):
        content, pattern = step.get("content") or "", step.get("pattern") or {}
        length = sum(lengths.get(character, other) for character in content)
        if text := pattern.get("String"):
            for character in text:  # each takes its part of what it is replaced by
                lengths[character] = max(length / len(text), 0 if len(text) == 1 else lengths.get(character, other))
        else:  # a regular expression may match any character, and some match between two
            is_between = not pattern.get("Regex") or re.search(
                r"\(\?|\\[bBAGzZ]|[\^$*?|]|\{0?,", pattern.get("Regex") or ""
            )
            lengths = {each: max(old, length) + length * bool(is_between) for each, old in lengths.items()}
            other = max(other, length) + length * bool(is_between)
    return max(other, *lengths.values(), 0.0)


def expands_too_far(name: str, n_bytes: int) -> FileFormatError:
    """What is raised for a file that unpacks to far more than texts or vectors do."""
    return FileFormatError(
        f"{name} unpacks to {shown_bytes(n_bytes)} or more, over {LARGEST_EXPANSION} times its size; texts and vectors "
        "do not. Write it again without compression and without dictionaries if you trust it."
    )


def read_bounded(name: str, file: IO[bytes], largest: int, advice: str = "") -> bytes:
    """Read a file that is parsed as one, packed or not."""
    content = file.read(largest + 1)
    if len(content) > largest:
        raise FileFormatError(f"{name}: larger than {shown_bytes(largest)}.{advice and ' '}{advice}")
    return content


# -- reading ---------------------------------------------------------------------------------------------------------


STANDARD_INPUT = "-"
KOREAN = "cp949"

_SPOOLED_BYTES: Final = 64 << 20
_PIECE_BYTES: Final = 1 << 20
_KOREAN_SHARE: Final = 0.9
_TWO_BYTES: Final = re.compile(rb"([\xb0-\xc8][\xa1-\xfe])|[\x80-\xff].", re.DOTALL)  # the group: a Hangul syllable


def _unless_skipped(error: OSError) -> None:
    """Stop a walk at a folder that cannot be listed now; those of other people are skipped."""
    if system_code(error) is not None and not isinstance(error, PermissionError):
        raise error


def folders_below(root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Walk through a folder and all below it, with the names of their files; follows links, each folder once."""
    visited: set[str] = set()
    for path, folders, files in os.walk(root, onerror=_unless_skipped, followlinks=True):
        folders[:] = sorted(folder for folder in folders if os.path.realpath(Path(path, folder)) not in visited)
        visited.update(os.path.realpath(Path(path, folder)) for folder in folders)
        yield Path(path), files


@contextmanager
def open_content(path: str | os.PathLike[str], *, is_packed: bool = False) -> Iterator[tuple[str, BinaryIO]]:
    """Open a file, with its name for messages; standard input and pipes are copied, so that all can be read twice."""
    reads = (GZIP,) if is_packed else None
    if str(path) == STANDARD_INPUT:
        with _temporary_copy(sys.stdin.buffer, "standard input") as copy:
            if not copy.tell():
                raise InputFileError("standard input is empty; expected at least one text.")
            _refuse_other_formats("standard input", copy, reads)
            yield "standard input", copy
        return
    name, path = str(path), _check.input_file(path)
    with open_to_read(path) as file:
        if path.is_file():
            _refuse_other_formats(name, file, reads)
            yield name, file
            return
        with _temporary_copy(file, name) as copy:
            _refuse_other_formats(name, copy, reads)
            yield name, copy


def _refuse_other_formats(name: str, file: BinaryIO, reads: Collection[str] | None) -> None:
    file.seek(0)
    refuse_other_formats(name, file.read(START_BYTES), reads=reads)
    file.seek(0)


@contextmanager
def _temporary_copy(file: BinaryIO, name: str) -> Iterator[BinaryIO]:
    with SpooledTemporaryFile(_SPOOLED_BYTES) as copy:
        try:
            shutil.copyfileobj(file, copy, _PIECE_BYTES)
        except OSError as error:
            raise OutputError(f"{name} could not be copied to a temporary file: {error.strerror}.") from error
        yield cast("BinaryIO", copy)


@contextmanager
def unpacked(name: str, file: BinaryIO) -> Iterator[BinaryIO]:
    """Unpack a file of gzip into a temporary one."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    most = max(FREELY_EXPANDED, LARGEST_EXPANSION * size)
    with SpooledTemporaryFile(_SPOOLED_BYTES) as copy, gzip.GzipFile(fileobj=file) as packed:
        try:
            while piece := packed.read(_PIECE_BYTES):
                copy.write(piece)
                if copy.tell() > most:
                    raise expands_too_far(name, copy.tell())
        except (EOFError, zlib.error, gzip.BadGzipFile):
            raise FileFormatError(f"{name} is no complete file of gzip. Download it again.") from None
        if not copy.tell():
            raise InputFileError(f"{name} is empty.")
        copy.seek(0)
        yield cast("BinaryIO", copy)


def read_lines(path: Path, encoding: str = "UTF-8") -> list[str]:
    """Return the lines of a file, split at line feeds only; there must be one."""
    with open_to_read(_check.input_file(path)) as file:
        lines = list(lines_in(str(path), file, encoding))
    if not lines:
        raise FileFormatError(f"{path} is empty.")
    return lines


def split_fields(path: Path, number: int, line: str, at_least: int) -> list[str]:
    """Split a line at its tabs."""
    fields = line.split("\t")
    if len(fields) < at_least:
        raise FileFormatError(
            f"{path}, line {number}: expected at least {at_least} fields between tabs; found {len(fields)}."
        )
    return fields


def lines_in(name: str, file: BinaryIO, encoding: str = "UTF-8", *, first_row: int = 0) -> Iterator[str]:
    """Yield the lines of a file without their ends, from a row on."""
    blocks = DecodedBlocks(name, file, encoding, first_row)
    return chain.from_iterable(islice(split_lines(block), max(0, first_row - blocks.start), None) for block in blocks)


def split_lines(content: str) -> list[str]:
    """Split at line feeds only: rarer separators (U+2028, U+0085) stay inside a text."""
    lines = content.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


class DecodedBlocks:
    """The content of a file, decoded, in blocks of whole lines; blocks before a row are only counted."""

    def __init__(self, name: str, file: BinaryIO, encoding: str = "UTF-8", first_row: int = 0) -> None:
        self.encoding = encoding  # becomes cp949 where the first line that is not ASCII is Korean in that encoding
        self.start = 0  # row of the first line of the block
        self._name, self._file, self._first_row = name, file, first_row

    def __iter__(self) -> Iterator[str]:
        is_ascii = True
        for numbers, block in whole_lines(self._name, pieces_of(self._name, self._file), LONGEST_LINE):
            if self.encoding == "UTF-8" and is_ascii and _is_korean(block):
                self.encoding = KOREAN
            is_ascii = is_ascii and block.isascii()
            self.start = numbers.start - 1
            if numbers.stop - 1 <= self._first_row:
                continue
            if self.encoding == "UTF-8":
                yield decode_utf8(self._name, block, self.start)
                continue
            try:
                yield block.decode(self.encoding)
            except UnicodeDecodeError as error:
                line = numbers.start + block.count(b"\n", 0, error.start)
                raise FileFormatError(
                    f"{self._name}, line {line} is neither UTF-8 nor {self.encoding}. Convert the file to UTF-8."
                ) from None


def _is_korean(block: bytes) -> bool:
    """Whether bytes that are no UTF-8 are Korean in cp949.

    Chinese and western texts in their own encodings can be valid cp949, too: nine tenths of what is not ASCII must be
    syllables of Hangul.
    """
    try:
        block.decode()
    except UnicodeDecodeError:
        pass
    else:
        return False
    try:
        block.decode(KOREAN)
    except UnicodeDecodeError:
        return False
    are_syllables = [bool(syllable) for syllable in _TWO_BYTES.findall(block)]
    return sum(are_syllables) >= _KOREAN_SHARE * len(are_syllables)


def decode_utf8(name: str, content: bytes, n_lines: int = 0) -> str:
    """Decode content that follows so many lines; an error names the line of the first byte that is not UTF-8."""
    try:
        return content.decode("utf-8" if n_lines else "utf-8-sig")
    except UnicodeDecodeError as error:
        if not n_lines:
            refuse_other_formats(name, content[:START_BYTES])
        line = n_lines + error.object.count(b"\n", 0, error.start) + 1
        raise FileFormatError(
            f"{name}, line {line} is not UTF-8: byte 0x{error.object[error.start]:02x}. Convert the file to UTF-8."
        ) from None


def pieces_of(name: str, file: BinaryIO) -> Iterator[bytes]:
    """Read a file to its end in pieces of 1 MiB."""
    try:
        yield from iter(partial(file.read, _PIECE_BYTES), b"")
    except OSError as error:
        raise InputFileError(f"{name} could not be read: {error.strerror}.") from error


def whole_lines(
    where: str,
    pieces: Iterable[bytes],
    longest: int,
    *,
    first: int = 1,
    advice: str = "Split the text into shorter lines.",
) -> Iterator[tuple[range, bytes]]:
    """Regroup the pieces of a file into blocks of whole lines, each with the numbers of its lines."""
    rest: list[bytes] = []
    for piece in pieces:
        end = piece.rfind(b"\n") + 1
        if end:
            block = b"".join([*rest, piece[:end]])
            rest = [piece[end:]]
            start = 0
            while len(block) - start > longest + 1:  # jump to the last line that begins within the bound
                at = block.rfind(b"\n", start, start + longest + 1)
                if at < 0:
                    raise line_too_long(where, first + block.count(b"\n", 0, start), longest, advice)
                start = at + 1
            n_lines = block.count(b"\n")
            yield range(first, first + n_lines), block
            first += n_lines
        else:
            rest.append(piece)
        if sum(map(len, rest)) > longest:
            raise line_too_long(where, first, longest, advice)
    if last := b"".join(rest):
        yield range(first, first + 1), last


def lines_of(name: str, file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file as bytes, without their line feeds."""
    for _, block in whole_lines(name, pieces_of(name, file), LONGEST_LINE):
        yield from block.removesuffix(b"\n").split(b"\n")
