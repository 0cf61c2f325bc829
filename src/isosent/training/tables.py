"""Tables of training data: separator, header and encoding told by the content, columns by their names."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from isosent import _check
from isosent.errors import FileFormatError, InputError
from isosent.evaluation.sts_files import TEXT_COLUMNS
from isosent.io.bounds import pieces_of
from isosent.io.tables import Row, read_table, text_of
from isosent.io.texts import csv_rows_in, ending_of, lines_in
from isosent.training.examples import SourceFile

STSB_COLUMNS = ("genre", "filename", "year", "id", "score", "sentence1", "sentence2")
SENTENCES = ("sentence1", "sentence2")
SENTENCE_COLUMNS = tuple(names for names in TEXT_COLUMNS if names != ("anchor", "positive"))
KOREAN = "cp949"
EMPTY_TEXT = "with an empty text"

_TEXT_ENDINGS = (".csv", ".tsv", ".txt")
_STSB_SCORE = STSB_COLUMNS.index("score")
_LISTED_NAMES = 3
_PIECE_BYTES = 1 << 20
_KOREAN_SHARE = 0.9
_TWO_BYTES = re.compile(rb"([\xb0-\xc8][\xa1-\xfe])|[\x80-\xff].", re.DOTALL)  # the group: a syllable of Hangul


@dataclass(frozen=True, slots=True)
class Table:
    """An opened table."""

    path: Path  # its file
    names: tuple[str, ...]  # its columns
    rows: Iterator[Row]  # its rows, to be gone through once
    encoding: str  # how its text is read

    def source(self, n_rows: int, columns: Mapping[str, str], **facts: Any) -> SourceFile:
        """Say what was read from it; parameters as for `SourceFile`."""
        return SourceFile(self.path, n_rows, columns, self.encoding, **facts)


class Group(NamedTuple):
    """Columns that belong together, and how files call them."""

    roles: tuple[str, ...]  # what they are to the objective
    usual: Sequence[tuple[str, ...]]  # their usual names, in lower case


def open_table(path: Path) -> Table:
    """Open a table."""
    # Text is UTF-8, or cp949 if it is no UTF-8, every byte is valid cp949, and nine tenths of what is not ASCII are
    # syllables of Hangul: Chinese and western texts in encodings of their own can be valid cp949, too.
    if ending_of(path) not in _TEXT_ENDINGS:
        names, rows = read_table(path)
        return Table(path, tuple(names), rows, "UTF-8")
    encoding = _encoding_of(_check.input_file(path))
    lines = _fields(path, encoding)
    number, first = next(lines, (1, []))
    if not first:
        raise FileFormatError(f"{path} must hold at least one line; got none.")
    if _is_stsb(first):
        return Table(path, STSB_COLUMNS, _stsb_rows(path, chain([(number, first)], lines)), encoding)
    names = [name.strip() for name in first]
    if twice := [name for name in names if names.count(name) > 1]:
        raise FileFormatError(f"{path}: line {number} must name every column differently; got {twice[0]!r} twice.")
    return Table(path, tuple(names), _rows(path, names, lines), encoding)


def find_columns(table: Table, groups: Sequence[Group], given: Mapping[str, str]) -> dict[str, str] | None:
    """Find columns by the names that were given, or by their usual ones."""
    found: dict[str, str] = {}
    for group in groups:
        matches = _matches(table, group, given)
        if len(matches) > 1:
            raise InputError(
                f"{table.path} has several usual names for {' and '.join(group.roles)}: "
                f"{'; '.join(' and '.join(names) for names in matches)}. Say which: columns={_example(group.roles)}."
            )
        if not matches:
            return None
        found |= dict(zip(group.roles, matches[0], strict=True))
    return found


def has_columns(table: Table, groups: Sequence[Group]) -> bool:
    """Tell whether a table has columns of usual names."""
    return all(_matches(table, group, {}) for group in groups)


def columns_missing(table: Table, objective: str, groups: Sequence[Group], given: Mapping[str, str]) -> InputError:
    """Say which columns there are, and which there must be."""
    expected = []
    for roles, usual in groups:
        if any(role in given for role in roles):
            expected.append(", ".join(given.get(role, role) for role in roles))
        else:
            listed = [", ".join(names) for names in usual[:_LISTED_NAMES]]
            expected.append(" or ".join(listed) + (" (or others)" if len(usual) > _LISTED_NAMES else ""))
    roles = tuple(role for group in groups for role in group.roles)
    return InputError(
        f"{table.path} has the columns {', '.join(table.names)}; {objective} must have {'; and '.join(expected)}. "
        f"Name other columns by what they are: columns={_example(roles)}."
    )


def text_in(row: Row, column: str) -> str:
    """Return a text of a row."""
    return "" if row.fields.get(column, "") is None else text_of(row.where, row.fields, column)


def value_in(row: Row, column: str) -> Any:
    """Return a value of a row."""
    if column not in row.fields:
        raise FileFormatError(f"{row.where} must have a field {column}; it has none.")
    return row.fields[column]


def _matches(table: Table, group: Group, given: Mapping[str, str]) -> list[tuple[str, ...]]:
    """Every way in which the columns of a group could be there."""
    if any(role in given for role in group.roles):
        names = tuple(given.get(role, role) for role in group.roles)
        return [names] if set(names) <= set(table.names) else []
    lower = {name.lower(): name for name in table.names}
    return [tuple(lower[name] for name in names) for names in group.usual if set(names) <= set(lower)]


def _example(roles: Sequence[str]) -> str:
    return ",".join(f"{role}=NAME" for role in roles)


def _encoding_of(path: Path) -> str:
    """Read a file through to tell its encoding."""
    if _is_encoded(path, "utf-8"):
        return "UTF-8"
    with path.open("rb") as file:
        if not (_is_encoded(path, KOREAN) and _is_hangul(file.read(_PIECE_BYTES))):
            file.seek(0)
            deque(lines_in(str(path), file), maxlen=0)  # raises, and tells the line
    return KOREAN


def _is_encoded(path: Path, encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    with path.open("rb") as file:
        try:
            for piece in pieces_of(str(path), file):
                decoder.decode(piece)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return False
    return True


def _is_hangul(content: bytes) -> bool:
    """Whether nearly all that is not ASCII are syllables of Hangul."""
    syllables = _TWO_BYTES.findall(content)
    return sum(map(bool, syllables)) >= _KOREAN_SHARE * len(syllables)


def _fields(path: Path, encoding: str) -> Iterator[tuple[int, list[str]]]:
    """Numbers and fields of the lines that are not empty."""
    name = str(path)
    with path.open("rb") as file:
        first = next((line for line in lines_in(name, file, encoding) if line.strip()), "")
        file.seek(0)
        if "\t" in first:
            lines = enumerate(lines_in(name, file, encoding), start=1)
            yield from ((number, line.split("\t")) for number, line in lines if line)
        else:
            yield from ((number, fields) for number, fields in csv_rows_in(name, file, encoding) if fields)


def _is_stsb(fields: Sequence[str]) -> bool:
    """Whether the first line is a row of the STS benchmark: it has a score where others name a column."""
    try:
        return len(fields) >= len(STSB_COLUMNS) and isfinite(float(fields[_STSB_SCORE]))
    except ValueError:
        return False


def _stsb_rows(path: Path, lines: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    """Rows of the STS benchmark; some have two further fields, the origins of the sentences."""
    for number, fields in lines:
        yield Row(f"{path}: line {number}", dict(zip(STSB_COLUMNS, fields, strict=False)))


def _rows(path: Path, names: Sequence[str], lines: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    """Rows below a header. Fields may be left out at the end of a line; who asks for one of these is told."""
    for number, fields in lines:
        if len(fields) > len(names):
            raise FileFormatError(f"{path}: line {number} must have {len(names)} fields; got {len(fields)}.")
        yield Row(f"{path}: line {number}", dict(zip(names, fields, strict=False)))
