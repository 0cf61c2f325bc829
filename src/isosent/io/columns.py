"""Which columns of a file hold vectors, seen from its content, and reading vectors from any table or lines of numbers.

`contents_of` looks at the first rows, in the same way whatever the format; `number_lists` has the rule for a value.
`open_rows` opens a column, or the lines of a file, as a `VectorSource`: each row is read once when it is opened, so
that one without a vector is named before any work is done. What is not small is read again for each pass. A column of
lists with a type is opened by `isosent.io.typed_tables` instead. `isosent.io.vectors` is where all others ask.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, IsosentWarning
from isosent.io.bounds import LONGEST_VECTOR_LINE, MOST_DIMENSIONS, lines_in, open_content
from isosent.io.checksum import FileState, check_unchanged, file_state
from isosent.io.formats import data_set_folder, format_by_name
from isosent.io.json_lists import holds_lists
from isosent.io.notes import read_note
from isosent.io.number_lists import (
    EXCEL,
    SAMPLED_ROWS,
    SAVE_ADVICE,
    are_json_objects,
    has_whole_number,
    is_blank,
    is_comment,
    is_cut,
    is_unclear,
    kind_of,
    kind_of_lines,
    may_be_vectors,
    parse_numbers,
)
from isosent.io.parquet import find_seal
from isosent.io.remote import is_remote
from isosent.io.system import open_to_read
from isosent.io.tables import ABSENT, Table, is_number, paths_of, table_in, value_at
from isosent.io.typed_tables import VECTOR_COLUMN, list_storage, table_batches, table_schema
from isosent.io.vector_source import ParsedRows, VectorSource
from isosent.space import Space
from isosent.storage import Storage

USUAL_COLUMN: Final = "text"  # of texts
LINES: Final = ""  # in place of a column: each line is a vector
_FEW_ROWS: Final = 3
_FEWEST_SPREAD: Final = 8  # columns of numbers that may be a vector
_SPARSE: Final = re.compile(r"(.*)(indices|values)", re.IGNORECASE | re.DOTALL)  # the two fields of sparse vectors
_LONG_WORD: Final = 8
_MOST_BLANK_ROWS: Final = 20_000  # in which a column is looked for a value
_SAMPLED_BYTES: Final = 4 << 20

Row = tuple[str, Any]  # where it is, for messages, and its value


class Contents(NamedTuple):
    """What the columns of a file hold; where there are none, its lines are the column `LINES`."""

    vectors: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()  # of other numbers, which are vectors if someone says so
    incomplete: tuple[str, ...] = ()  # vectors that lack numbers
    texts: tuple[str, ...] = ()
    is_ours: bool = False  # isosent wrote the file
    are_lists: bool = False  # those lines, or the items of a document of JSON, are lists of numbers in JSON
    prose: tuple[str, ...] = ()  # of these texts, what may be meant to be encoded: no keys, and no labels
    empty: tuple[str, ...] = ()  # nothing is known of these: no row of the sample has a value
    unread: tuple[str, ...] = ()  # may be vectors, but are not read as such: packed, or spread over columns


def contents_of(path: Path) -> Contents:
    """Look at the first rows of a table, or of a file of lines; once while the file stays as it is."""
    return _contents_of_version(path, file_state(path))


@lru_cache(maxsize=256)
def _contents_of_version(path: Path, _: FileState) -> Contents:
    file_format = format_by_name(path)
    if not file_format.is_table:
        with open_to_read(path) as file:
            return _contents_of_lines(path, file)
    if file_format.is_typed:
        return _contents_of_typed(path)
    with open_content(path) as (name, file):
        if holds_lists(file_format.ending, file):
            return Contents(vectors=(LINES,), are_lists=True)
        file.seek(0)
        lines = () if file_format.rows == "objects" else lines_in(name, file)
        first = next((line for line in lines if line.strip() and not line.startswith(EXCEL)), "")
        if '"' not in first and parse_numbers(first) is not None:  # whatever separates them
            return _contents_of_lines(path, file)
        file.seek(0)
        table = table_in(name, file_format, file, header=True)
        if _is_matrix(table):
            return _contents_of_lines(path, file)
        if table.objects is None:
            names = tuple(dict.fromkeys(table.columns))
            columns = _sample(names, (values for _, values in table.rows(optional=names)))
        else:
            objects = [fields for _, fields in islice(table.objects, SAMPLED_ROWS)]
            names = tuple(dict.fromkeys(path for fields in objects for path in paths_of(fields, name)))
            every = (fields for part in (objects, (fields for _, fields in table.objects)) for fields in part)
            columns = _sample(names, ([_plain(fields, column) for column in names] for fields in every))
    return _contents(columns)


def _sample(names: Sequence[str], rows: Iterator[Sequence[Any]]) -> dict[str, list[Any]]:
    """The first values of columns, and later ones where these are all missing."""
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for row in islice(rows, SAMPLED_ROWS):
        for values, value in zip(columns.values(), row, strict=True):
            values.append(value)
    blank = [(place, name) for place, name in enumerate(names) if _all_blank(columns[name])]
    if blank and len(columns[names[0]]) == SAMPLED_ROWS:
        for row in islice(rows, _MOST_BLANK_ROWS):
            for place, name in blank:
                if not is_blank(row[place]):
                    columns[name] = [row[place]]
            blank = [(place, name) for place, name in blank if _all_blank(columns[name])]
            if not blank:
                break
    return columns


def unused_vectors(path: str | os.PathLike[str], column: str | None = None) -> str | None:
    """A column of vectors next to texts, for a command that encodes texts; None if there is none."""
    if is_remote(path):
        return None
    folder = data_set_folder(path)
    file = Path(path) if folder is None else folder / _check.DATA_SET_FILE
    if not file.is_file() or not format_by_name(file).is_table or not file.stat().st_size:
        return None
    contents = contents_of(file)
    if column is None:
        warn_unread(path, contents)
    if contents.is_ours:
        return None
    return next((name for name in contents.vectors if name not in (column, LINES) and contents.texts), None)


def warn_unread(path: str | os.PathLike[str], contents: Contents) -> None:
    """Say that texts are taken although their table may have vectors, in a form that is not read."""
    if contents.unread and contents.texts and not contents.vectors:
        listed = _check.brief(", ".join(contents.unread), 200)
        warnings.warn(
            f"{path}: texts are used; {listed} may hold vectors, but is not read. "
            f"If it does: {SAVE_ADVICE[0].lower()}{SAVE_ADVICE[1:]} as lists of floats.",
            IsosentWarning,
            stacklevel=1,
        )


def _contents(columns: dict[str, list[Any]], typed: frozenset[str] = frozenset()) -> Contents:
    kinds: dict[str, Any] = {
        name: kind_of(values, name, is_typed=name in typed)
        or ("vectors" if name in typed and _all_blank(values) else None)
        for name, values in columns.items()
    }
    sparse = _fields_of_sparse(columns)
    kinds |= dict.fromkeys(sparse)
    texts = tuple(name for name, values in columns.items() if kinds[name] is None and _is_text(name, values))
    found = {kind: tuple(name for name in columns if kinds[name] == kind) for kind in ("vectors", "lists", "cut")}
    only = [name for name in found["lists"] if all(isinstance(value, list | None) for value in columns[name])]
    if not found["vectors"] and not texts and len(only) == 1:  # what else could it be for
        found = {**found, "vectors": (only[0],), "lists": tuple(name for name in found["lists"] if name != only[0])}
    others = [
        name
        for name, values in columns.items()
        if kinds[name] in (None, "lists") and name not in sparse and may_be_vectors(values, name)
    ]
    texts = tuple(name for name in texts if name not in others)
    numbers = [name for name, values in columns.items() if kinds[name] is None and _are_numbers(values)]
    prose = tuple(name for name in texts if name == USUAL_COLUMN or any(map(_is_prose, columns[name])))
    empty = tuple(name for name, values in columns.items() if name not in typed and _all_blank(values))
    unread = (*others, *_spread(numbers))
    return Contents(found["vectors"], found["lists"], found["cut"], texts, prose=prose, empty=empty, unread=unread)


def _fields_of_sparse(columns: dict[str, list[Any]]) -> set[str]:
    """Columns of sparse vectors: their names differ in the last word, as in sparse_values.indices and .values."""
    pairs: dict[str, dict[str, str]] = {}
    for name in columns:
        if match := _SPARSE.fullmatch(name):
            pairs.setdefault(match[1], {})[match[2].lower()] = name
    return {
        name
        for pair in pairs.values()
        if len(pair) > 1 and _are_sparse(columns[pair["indices"]], columns[pair["values"]])
        for name in pair.values()
    }


def _are_numbers(values: Sequence[Any]) -> bool:
    present = [value for value in values if not is_blank(value)]
    return bool(present) and all(map(is_number, present))


def _spread(names: Sequence[str]) -> list[str]:
    """Columns of numbers that count on from 0 or 1, such as d0 to d383, which may be one vector."""
    places: dict[str, list[int]] = {}
    for name in names:
        if match := re.fullmatch(r"(.*?)(\d{1,6})", name, re.DOTALL):
            places.setdefault(match[1], []).append(int(match[2]))
    return [
        f"{prefix}{numbers[0]} to {prefix}{numbers[-1]}"
        for prefix, numbers in places.items()
        if len(numbers) >= _FEWEST_SPREAD and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    ]


def _all_blank(values: Sequence[Any]) -> bool:
    return all(map(is_blank, values))


def _is_text(name: str, values: Sequence[Any]) -> bool:
    """Whether a column holds texts, other than ids and numbers."""
    present = [value for value in values if not is_blank(value)]
    is_id = name.lower().rpartition("_")[2] == "id"
    return (
        not is_id
        and not are_json_objects(present)
        and any(isinstance(value, str) and not is_number(value) for value in present)
    )


def _are_sparse(indices: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether rows have as many indices as values; Spark's dense vectors have no indices."""
    lengths = {
        len(places) - len(numbers or ())
        for places, numbers in zip(map(parse_numbers, indices), map(parse_numbers, values), strict=True)
        if places
    }
    return lengths == {0}


def _is_prose(value: Any) -> bool:
    """Whether a value has several words, or many letters in a script without upper case, and perhaps without blanks."""
    text = "" if is_blank(value) else str(value).strip()
    return len(text.split()) > 1 or (len(text) > _LONG_WORD and text.isalpha() and text.lower() == text.upper())


def _plain(fields: dict[str, Any], column: str) -> Any:
    value = value_at(fields, column)
    return None if value is ABSENT else value


def _contents_of_typed(path: Path) -> Contents:
    schema, _ = table_schema(path)
    fields = [field for field in schema if _may_hold(field.type)]
    typed = frozenset(field.name for field in fields if list_storage(field.type))
    with open_to_read(path) as file:
        is_ours = Space.in_metadata(schema.metadata or {}) is not None or find_seal(file)[0] is not None
    is_encoded = is_ours and VECTOR_COLUMN in typed
    if is_encoded:  # its vectors are known, and need not be read
        fields = [field for field in fields if field.name not in typed]
    spread = _spread([field.name for field in schema if _is_number_type(field.type)])
    n_rows = SAMPLED_ROWS + _MOST_BLANK_ROWS
    batches = table_batches(path, [field.name for field in fields], n_rows=n_rows) if fields else ()
    every = (
        row
        for batch in batches
        for start in range(0, len(batch), SAMPLED_ROWS)
        for row in batch.slice(start, SAMPLED_ROWS).to_pylist()
    )
    rows = list(islice(every, SAMPLED_ROWS))
    found = dict.fromkeys(name for row in rows for name in paths_of(row, str(path))) | dict.fromkeys(typed)
    names = sorted(found, key=_order(schema.names))
    columns = _sample(names, ([_plain(row, name) for name in names] for part in (rows, every) for row in part))
    contents = _contents(columns, typed)
    if is_encoded:  # others stood beside the texts that were encoded
        return Contents((VECTOR_COLUMN,), tuple(sorted(typed - {VECTOR_COLUMN})), texts=contents.texts, is_ours=True)
    return contents._replace(is_ours=is_ours, unread=(*contents.unread, *spread))


def _is_number_type(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_floating(kind) or types.is_integer(kind))


def _order(names: Sequence[str]) -> Any:
    places = {name: place for place, name in enumerate(names)}
    return lambda path: places.get(path, places.get(path.partition(".")[0], len(places)))


def _may_hold(kind: Any) -> bool:
    """Whether a type of pyarrow can hold texts or vectors."""
    from pyarrow import types

    kind = getattr(kind, "storage_type", kind)  # of an extension, such as a tensor
    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        types.is_nested(kind)
        or types.is_binary(kind)
        or types.is_fixed_size_binary(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    )


# -- lines of numbers ------------------------------------------------------------------------------------------------


def _is_matrix(table: Table) -> bool:
    """Whether the first line is no header but numbers, or the numbers by which pandas calls the columns of an array."""
    names = [name for name in table.columns if name]
    if len(names) == 1:
        return len(table.columns) == 1 and parse_numbers(names[0]) is not None
    return len(names) >= len(table.columns) - 1 and all(map(is_number, names))


def _contents_of_lines(path: Path, file: BinaryIO) -> Contents:
    file.seek(0)
    content = file.read(_SAMPLED_BYTES)
    lines = content.split(b"\n")
    if b"\0" in content or (len(lines) == 1 and len(content) == _SAMPLED_BYTES):
        return Contents()
    if len(content) == _SAMPLED_BYTES:
        lines.pop()
    decoded = [line.decode("utf-8-sig", "replace") for line in lines if line.strip()][: SAMPLED_ROWS + 1]
    start = next((place for place, line in enumerate(decoded) if not is_comment(line)), 0)
    is_header, separator = _pandas_header(decoded[start] if decoded else "")
    rows = [_without_number(line, separator) for line in (*decoded[:start], *decoded[start + is_header :])]
    kind = kind_of_lines(rows)
    if kind == "vectors" and _are_counted(rows):
        raise FileFormatError(
            f"{path}: each line begins with the number of its row, which is no part of a vector. Leave it out, or "
            f"{SAVE_ADVICE[0].lower()}{SAVE_ADVICE[1:]}."
        )
    if kind == "vectors" and is_header and not separator and any(map(has_whole_number, rows)):  # pandas writes 1.0
        raise FileFormatError(
            f"{path}: its first line counts from 0, as pandas numbers columns, but other lines hold whole numbers too, "
            "so it may be a vector. Remove it if it is a header; if not, write its numbers as 0.0 and 1.0."
        )
    if kind == "vectors":
        return Contents(vectors=(LINES,))
    return Contents(incomplete=(LINES,)) if kind == "cut" else Contents()


def _are_counted(rows: Sequence[str]) -> bool:
    """Whether the first numbers of the lines are those of the rows."""
    first = [numbers.numbers[0] for row in rows if (numbers := parse_numbers(row)) and len(numbers.numbers)]
    return len(first) > _FEW_ROWS and all(number == first[0] + place for place, number in enumerate(first))


def _pandas_header(line: str) -> tuple[bool, str]:
    """Whether a line numbers columns 0, 1, 2 and so on, and what ends the row number where the index has a column."""
    separator = next((mark for mark in ("\t", ";", ",") if mark in line), None)
    names = [name.strip().strip('"') for name in line.strip("\r\n").split(separator)]
    has_index = names[:1] in ([""], ["Unnamed: 0"])
    names = names[has_index:]
    is_header = len(names) > 2 and names == [str(number) for number in range(len(names))]
    return is_header, separator or "" if is_header and has_index else ""


def _without_number(line: str, separator: str) -> str:
    return line.partition(separator)[2] if separator else line


def _line_rows(path: Path) -> Iterator[Row]:
    """Each line but comments at the start and at the end, a header of pandas, and blank lines at the end."""
    with open_content(path) as (name, file):
        is_first, separator = True, ""
        pending: list[Row] = []  # the first blank line or comment, which is an error if numbers follow
        for number, line in enumerate(lines_in(name, file), start=1):
            if is_first and is_comment(line):
                continue
            if not line.strip() or is_comment(line):
                pending = pending or [(f"{name}, line {number}", line.strip() or None)]
                continue
            if is_first:
                is_first = False
                is_header, separator = _pandas_header(line)
                if is_header:
                    continue
            yield from pending
            pending = []
            yield f"{name}, line {number}", _without_number(line, separator)


def _table_rows(path: Path, column: str) -> Iterator[Row]:
    with open_content(path) as (name, file):
        table = table_in(name, format_by_name(path), file, header=True, is_streamed=True)
        if table.columns.count(column) > 1:
            table.require(column)  # which of the two
        for number, (value,) in table.rows(optional=[column]):
            yield table.place(number), value


# -- vectors ---------------------------------------------------------------------------------------------------------


def open_rows(path: Path, column: str) -> VectorSource:
    """Open a column of lists of numbers, or lines of numbers (`LINES`), as float32."""
    state = file_state(path)
    rows = partial(_line_rows, path) if column == LINES else partial(_table_rows, path, column)
    n_rows = dim = 0
    parsed = ParsedRows()
    for place, value in rows():
        numbers = _numbers_of(place, column, value)
        dim = dim or len(numbers)
        if len(numbers) != dim:
            raise FileFormatError(f"{place}: {_label(column)} has {len(numbers)} numbers, and the first has {dim}.")
        if not all(map(math.isfinite, numbers)):
            raise FileFormatError(f"{place}: {_label(column)} lacks a number, or holds one that is not finite.")
        parsed.append(numbers)
        n_rows += 1
    if dim > MOST_DIMENSIONS:
        raise FileFormatError(f"{path}: {dim:,} dimensions; vectors may have {MOST_DIMENSIONS:,} at most.")
    if not n_rows:
        raise FileFormatError(f"{path} holds no vectors.")

    def read(start_row: int, block_rows: int) -> Iterator[NDArray[np.float32]]:
        check_unchanged(path, state)
        if parsed.are_kept:
            yield from parsed.blocks(start_row, block_rows)
            return
        pending = islice(rows(), start_row, None)
        while block := list(islice(pending, block_rows)):
            with np.errstate(over="ignore"):  # infinity is refused by whoever reads the block
                yield np.array([_numbers_of(place, column, value) for place, value in block], np.float32)

    space, checksum = read_note(path)
    name = None if column == LINES else column
    return VectorSource(path, n_rows, dim, Storage.float32, space, read, name, checksum=checksum, state=state)


def _numbers_of(place: str, column: str, value: Any) -> Sequence[float]:
    if isinstance(value, str) and len(value) > LONGEST_VECTOR_LINE:
        raise FileFormatError(f"{place}: {_label(column)} is too long for a vector.")
    if (numbers := parse_numbers(value)) is not None and len(numbers.numbers):
        return numbers.numbers
    if is_cut(value) or is_unclear(value):
        raise cut_error(place, column, value)
    if numbers is not None or is_blank(value):
        raise FileFormatError(f"{place} lacks a vector: {_label(column)} is empty. Fill it, or remove the row.")
    raise FileFormatError(f"{place}: {_label(column)} is {_check.brief(repr(value), 60)}, not a list of numbers.")


def incomplete_vector(path: Path, column: str) -> FileFormatError:
    """The error for a column in which printing has left numbers out, or commas are unclear."""
    rows = _line_rows(path) if column == LINES else _table_rows(path, column)
    # a matrix over several lines has none
    place, value = next((row for row in rows if is_cut(row[1]) or is_unclear(row[1])), (str(path), None))
    return cut_error(place, column, value)


def cut_error(place: str, column: str, value: Any) -> FileFormatError:
    """The error for a value in which printing has left numbers out, or commas are unclear."""
    if is_unclear(value):
        return FileFormatError(
            f"{place}: commas in {_label(column)} may separate its numbers, or be a part of them: "
            f"{_check.brief(repr(value), 60)}. Write decimal points, and nothing between thousands."
        )
    return FileFormatError(
        f'{place}: {_label(column)} lacks numbers: printing has left some out ("..."), or the cell is cut. '
        f"{SAVE_ADVICE}, from where they were computed."
    )


def _label(column: str) -> str:
    return f"column {column}" if column else "the line"
