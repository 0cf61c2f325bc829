"""The one reader of tables, .csv, .tsv, .txt, .jsonl, .json, .parquet and Arrow: row by row, with their places.

`open_table` opens a file as a `Table`: its columns are known, and `Table.rows` yields the values of those that are
requested, with the number of each row for messages. `Table.text` and `Table.number` check a value. Each format has a
function that makes a `Table`: `_delimited_table` for lines of fields, `_object_table` for JSON, `_typed_table`.

`ColumnSet` and `find_columns` choose columns by what they are, such as two texts and a score. `isosent.io.pairs` reads
these into one record, and `isosent.io.texts` reads one column of texts.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from io import StringIO
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from isosent import _check, _extras
from isosent.errors import FileFormatError, InputError, InputFileError, IsosentWarning, option
from isosent.io import bounds
from isosent.io.answers import EMBEDDING, rows_of_answer, rows_of_export
from isosent.io.bounds import DecodedBlocks, lines_in, open_content, split_lines
from isosent.io.formats import FORMATS, Format, ending_of, format_by_name, listed
from isosent.io.number_lists import SAMPLED_ROWS, VECTORS_ADVICE, parse_numbers
from isosent.io.parquet import verify_parquet
from isosent.io.typed_tables import typed_table

_PACKED = ".gz"  # may follow each of them
STSB_COLUMNS = ("genre", "filename", "year", "id", "score", "sentence1", "sentence2")

_DEEPEST = 64  # levels of objects in objects
_SAMPLED_LINES, _SAMPLED_BYTES = 100, 1 << 20
_OTHER_SEPARATORS = {";": "semicolons", "|": "bars"}
DECIMAL_COMMA = re.compile(r"^([-+]?\d+),(\d+)$")  # where semicolons separate the columns
_LONGEST_NAME, _MOST_SPACES = 40, 3  # of a column; a longer one may be a text
_LINE, _ROW = "line {}", "row {} (counted from 0)"

Values = tuple[Any, ...]
Select = Callable[[Sequence[str], Sequence[str]], Iterator[tuple[int, Values]]]


class Table:
    """A table that is read once, front to back."""

    def __init__(self, name: str, columns: Sequence[str], select: Select, place: str = _LINE) -> None:
        self.name = name  # of its file, for messages
        self.columns = tuple(columns)  # those of nested objects by their path, joined by dots
        self._select, self._place = select, place
        self.blocks: DecodedBlocks | None = None  # where its fields are cut from lines of text
        self.separator = ","  # of these fields
        self.schema: Any = None  # that of pyarrow, where columns have types
        self.objects: Iterator[tuple[int, dict[str, Any]]] | None = None  # what `rows` reads too, of a .json or .jsonl
        self.first_row = 0  # of the file, that `rows` begins with
        self.part = ""  # train, dev or test if only its rows were read, because a column says which they are

    def rows(self, *columns: str, optional: Sequence[str] = ()) -> Iterator[tuple[int, Values]]:
        """Yield the number of each row, for `place`, and its values in these columns, then in the `optional` ones.

        A value that is absent is refused, or None where it is optional.
        """
        for column in columns:
            self.require(column)
        return self._select(columns, optional)

    def restrict(self, column: str, choose: Callable[[list[Any]], list[bool] | None]) -> None:
        """Keep the rows that `choose` marks, from the values of a column in all rows; all rows where it gives None."""
        select = self._select

        def restricted(columns: Sequence[str], optional: Sequence[str]) -> Iterator[tuple[int, Values]]:
            rows = list(select(columns, (*optional, column)))
            chosen = choose([values[-1] for _, values in rows])
            for place, (number, values) in enumerate(rows):
                if chosen is None or chosen[place]:
                    yield number, values[:-1]

        self.require(column)
        self._select = restricted

    @property
    def encoding(self) -> str:
        """How its text is decoded: UTF-8, or cp949 for Korean. Known when its rows have been read."""
        return self.blocks.encoding if self.blocks else "UTF-8"

    def require(self, column: str) -> None:
        """Refuse a column that the table has not, or twice."""
        if column not in self.columns:
            listed = _check.brief(", ".join(self.columns), 600)
            is_split = len(self.columns) > 1 or ";" not in listed
            advice = "" if is_split else " Separate columns by commas, not by semicolons."
            raise InputError(f"{self.name} has no column {column}; it has: {listed}.{advice}")
        if self.columns.count(column) > 1:
            raise FileFormatError(f"{self.name} names the column {column!r} twice. Rename one of the two.")

    def require_distinct(self) -> None:
        """Refuse a table that names a column twice."""
        for column, count in Counter(self.columns).items():
            if count > 1:
                self.require(column)

    def place(self, number: int) -> str:
        """Where a row lies, to begin a message with."""
        return f"{self.name}, {self._place.format(number)}"

    def text(self, number: int, column: str, value: Any) -> str:
        """Return a value that must be a text."""
        if isinstance(value, str) and len(value) <= bounds.LONGEST_LINE and _check.is_unicode(value):
            return value
        where = self.place(number)  # only now: formatting it takes longer than all checks
        if not isinstance(value, str):
            is_null = value is None or value != value  # pandas writes NaN for null
            kinds = {list: "a list", dict: "an object", bool: "true or false", int: "a number", float: "a number"}
            found = "null" if is_null else kinds.get(type(value), type(value).__name__)
            raise FileFormatError(f"{where}: {column} is {found}, not a text.")
        if len(value) > bounds.LONGEST_LINE:
            longest = bounds.shown_bytes(bounds.LONGEST_LINE)
            raise FileFormatError(f"{where}: {column} is longer than {longest}. Split the text.")
        raise FileFormatError(f"{where}: {column} is not valid Unicode: it holds a lone surrogate.")

    def number(self, number: int, column: str, value: Any) -> float:
        """Return a value that must be a finite number, or be missing, which is NaN."""
        if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
            return math.nan
        if self.separator == ";" and isinstance(value, str):
            value = DECIMAL_COMMA.sub(r"\1.\2", value)
        try:
            converted = math.inf if isinstance(value, bool) else float(value)
        except (ValueError, TypeError, OverflowError):
            converted = math.inf
        if not math.isfinite(converted):
            raise FileFormatError(f"{self.place(number)}: {column} is {value!r:.80}, not a number.")
        return converted


@contextmanager
def open_table(
    path: str | os.PathLike[str], *, header: bool | None = None, short_rows: bool = False
) -> Iterator[Table]:
    """Open a table by its ending; commas or tabs, and a header, are detected from the first line.

    Without a header, columns are called "1", "2" and so on; those of the STS benchmark have their own names. Rows with
    fewer fields than the header are refused, unless `short_rows`.
    """
    is_packed = ending_of(path) == _PACKED
    file_format = format_by_name(Path(path).stem if is_packed else path)
    if not file_format.rows:
        endings = listed(each for each in FORMATS if each.rows)
        raise InputFileError(f"{path} is no table. Expected a name that ends in {endings}.")
    with (
        open_content(path, is_packed=is_packed) as (name, file),
        bounds.unpacked(name, file) if is_packed else nullcontext(file) as content,
    ):
        yield table_in(name, file_format, content, header=header, short_rows=short_rows)


def header_advice(name: str, columns: Sequence[str]) -> str:
    """What to do about a first line that looks like a row of texts, not like names of columns; empty if it does not."""
    sentence = next((each for each in columns if len(each) > _LONGEST_NAME or each.count(" ") >= _MOST_SPACES), None)
    if sentence is None or format_by_name(name).rows != "fields":
        return ""
    quoted = _check.brief(sentence)
    taken = f"In its first line, {quoted!r} is taken for the name of a column."
    if len(columns) == 1:
        taken = f"Its first line, {quoted!r}, is taken for names of columns."
    return f"{taken} If it is a row like the others, put a line with names above it."


def has_table_name(path: str | os.PathLike[str]) -> bool:
    """Whether a file is named as a table, packed or not; a .txt file may be one, too."""
    return format_by_name(Path(path).stem if ending_of(path) == _PACKED else path).is_table


def table_name(path: str | os.PathLike[str]) -> str:
    """Name of a table: that of its file, without its extension."""
    path = Path(path)
    return Path(path.stem).stem if ending_of(path) == _PACKED else path.stem


def table_in(
    name: str,
    file_format: Format,
    file: BinaryIO,
    *,
    header: bool | None = None,
    short_rows: bool = False,
    first_row: int = 0,
    is_streamed: bool = False,
) -> Table:
    """Read a table from an open file, as `open_table` does; only one with types can begin at a later row.

    A reader that keeps one row at a time, `is_streamed`, may read a file that unpacks to more than the memory.
    """
    if file_format.is_typed:
        return _typed_table(name, file_format, file, first_row, is_streamed=is_streamed)
    if file_format.rows == "objects":
        return _object_table(name, file_format.ending, file)
    return _delimited_table(name, file_format.ending, file, header, short_rows)


# -- choosing columns by what they are -------------------------------------------------------------------------------


class ColumnSet(NamedTuple):
    """Columns that belong together, and how files call them."""

    roles: tuple[str, ...]  # what they are, such as sentence1 and sentence2
    usual: Sequence[tuple[str, ...]]  # their usual names, in lower case


TEXT_COLUMNS = (
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("sentence_a", "sentence_b"),
    ("text1", "text2"),
    ("text_1", "text_2"),
    ("text_a", "text_b"),
    ("question1", "question2"),
    ("s1", "s2"),
)
SCORE_COLUMNS = (
    ("score",),
    ("similarity",),
    ("similarity_score",),
    ("relatedness_score",),
    ("label",),
    ("labels.label",),  # of KLUE-STS
)
_MOST_NAMES_LISTED = 3


def parse_columns(columns: str | Sequence[str] | Mapping[str, str] | None, roles: Sequence[str]) -> dict[str, str]:
    """Read which columns to take: a name for each role in order, or ``role=NAME`` for some; as text, with commas."""
    if columns is None:
        return {}
    if isinstance(columns, Mapping):
        chosen = dict(columns)
    else:
        listed = [name.strip() for name in columns.split(",")] if isinstance(columns, str) else list(columns)
        pairs = [name.partition("=") for name in listed]
        if all(separator and role in roles for role, separator, _ in pairs):
            chosen = {role.strip(): name.strip() for role, _, name in pairs}
        else:
            chosen = dict(zip(roles, listed, strict=False)) if len(listed) == len(roles) else {}
    if not chosen or not set(chosen) <= set(roles) or len(set(chosen.values())) < len(chosen):
        raise InputError(
            f"columns {columns!r}: name {len(roles)} different columns in the order {','.join(roles)}, or some of them "
            "as ROLE=NAME."
        )
    return chosen


def find_columns(table: Table, groups: Sequence[ColumnSet], named: Mapping[str, str]) -> dict[str, str] | None:
    """Find the column of each role: as `named`, else by the usual names in any case. None if one is not there."""
    columns: dict[str, str] = {}
    for group in groups:
        matches = _matches(table, group, named)
        if len(matches) > 1:
            listed = "; ".join(" and ".join(names) for names in matches)
            raise InputError(
                f"{table.name} has several usual names for {' and '.join(group.roles)}: {listed}. "
                f"Choose: columns={','.join(f'{role}=NAME' for role in group.roles)}."
            )
        if not matches:
            return None
        columns |= dict(zip(group.roles, matches[0], strict=True))
    return columns


def has_columns(table: Table, groups: Sequence[ColumnSet]) -> bool:
    """Tell whether a table has columns of usual names."""
    return all(_matches(table, group, {}) for group in groups)


def columns_missing(
    table: Table, what: str, groups: Sequence[ColumnSet], named: Mapping[str, str], *, parameter: str = "columns"
) -> InputError:
    """The error for a table in which `find_columns` found nothing."""
    needed = []
    for roles, usual in groups:
        if any(role in named for role in roles):
            needed.append(", ".join(named.get(role, role) for role in roles))
        else:
            listed = [", ".join(names) for names in usual[:_MOST_NAMES_LISTED]]
            needed.append(" or ".join(listed) + (" (or others)" if len(usual) > _MOST_NAMES_LISTED else ""))
    roles = tuple(role for group in groups for role in group.roles)
    return InputError(
        f"{table.name} has the columns {_check.brief(', '.join(table.columns), 100)}; {what} must have "
        f"{'; and '.join(needed)}. Name your columns in this order: {option(parameter, ','.join(roles))}."
    )


def _matches(table: Table, group: ColumnSet, named: Mapping[str, str]) -> list[tuple[str, ...]]:
    if any(role in named for role in group.roles):
        names = tuple(named.get(role, role) for role in group.roles)
        return [names] if set(names) <= set(table.columns) else []
    lower = {name.lower(): name for name in table.columns}
    return [tuple(lower[name] for name in names) for names in group.usual if set(names) <= set(lower)]


# -- lines of fields -------------------------------------------------------------------------------------------------


def _delimited_table(name: str, ending: str, file: BinaryIO, header: bool | None, short_rows: bool) -> Table:
    first_line, separator = next((line for line in lines_in(name, file) if line.strip()), ""), ","
    file.seek(0)
    blocks = DecodedBlocks(name, file)
    if ending == ".tsv" or "\t" in first_line:  # the STS benchmark has tabs in its .csv files
        lines = enumerate(chain.from_iterable(map(split_lines, blocks)), start=1)
        rows: Iterator[tuple[int, list[str]]] = ((number, line.split("\t") if line else []) for number, line in lines)
    else:
        separator = _separator(name, file)
        rows = csv_rows(name, blocks, separator)
    number, first = next((row for row in rows if row[1] and row[1] != ["sep=", ""]), (0, []))  # a line of Excel
    if not first:
        raise FileFormatError(f"{name} holds no rows.")
    if header is not True and _is_stsb(first):
        # some translations add the origins of the sentences as two more fields
        names = list(STSB_COLUMNS) if header is None else [f"{place}" for place in range(1, len(STSB_COLUMNS) + 1)]
        short_rows, rows = True, chain([(number, first)], rows)
        rows = ((number, fields[: len(names)]) for number, fields in rows)
    elif header or (header is None and not any(map(is_number, first))):
        names = [column.strip() for column in first]
    else:
        names, rows = [str(place) for place in range(1, len(first) + 1)], chain([(number, first)], rows)

    def select(columns: Sequence[str], optional: Sequence[str]) -> Iterator[tuple[int, Values]]:
        # the first place, if a column is there twice
        place_of = {column: place for place, column in reversed([*enumerate(names)])}
        places = [place_of.get(column, -1) for column in (*columns, *optional)]
        n_needed = max(places[: len(columns)], default=-1) + 1
        values_at = itemgetter(*places) if len(places) > 1 else None  # twice as fast as a list comprehension
        for number, fields in rows:
            if not fields:
                if len(names) > 1:
                    continue
                fields = [""]  # a blank line of a table with one column is an empty text
            if len(fields) != len(names):
                if len(fields) > len(names) or not short_rows or len(fields) < n_needed:
                    raise FileFormatError(
                        f"{name}, line {number}: expected {len(names)} fields, as in the first row; found "
                        f"{len(fields)}."
                    )
                fields += [""] * (len(names) - len(fields))
            if -1 in places:
                fields.append(None)  # type: ignore[arg-type]  # what the place -1 takes
            yield number, values_at(fields) if values_at else tuple([fields[place] for place in places])

    table = Table(name, names, select)
    table.blocks, table.separator = blocks, separator
    return table


def _separator(name: str, file: BinaryIO) -> str:
    """What separates the fields of a .csv file: commas, or semicolons or bars where its first rows show them.

    Spreadsheets write semicolons wherever the decimal separator is a comma.
    """
    content = file.read(_SAMPLED_BYTES)
    file.seek(0)
    lines = split_lines(content.decode("utf-8-sig", "replace"))
    is_part = len(content) == _SAMPLED_BYTES or len(lines) > _SAMPLED_LINES

    def widths(separator: str) -> list[int]:
        rows = [row for row in csv.reader(lines[:_SAMPLED_LINES], delimiter=separator) if row]
        return [len(row) for row in (rows[:-1] if is_part and len(rows) > 1 else rows)]  # the last may be cut

    csv.field_size_limit(bounds.LONGEST_LINE)
    try:
        by_comma = widths(",")
        if not by_comma or (by_comma[0] > 1 and len(set(by_comma)) == 1):
            return ","
        for separator, plural in _OTHER_SEPARATORS.items():
            fields = widths(separator)
            # a header alone, or one column whose name has a semicolon, shows nothing
            if len(fields) > 1 and min(fields) > 1 and (by_comma[0] == 1 or len(set(fields)) == 1):
                warnings.warn(
                    f"{name}: its columns are separated by {plural}, not by commas, and are read so.",
                    IsosentWarning,
                    stacklevel=2,
                )
                return separator
    except csv.Error:  # the reader names the line
        pass
    return ","


def csv_rows(name: str, blocks: Iterable[str], separator: str = ",") -> Iterator[tuple[int, list[str]]]:
    """Read rows of standard quoting, each with the number of its last line."""
    last = 0

    def too_long() -> FileFormatError:
        advice = "Close its quotation marks, or split its texts."
        return bounds.line_too_long(name, last + 1, bounds.LONGEST_LINE, advice)

    def lines() -> Iterator[StringIO]:
        # An open quotation mark makes the rest of the file one row: stop when a row has taken blocks beyond the bound.
        before, n_characters = 0, 0
        for block in blocks:
            if last > before:
                before, n_characters = last, 0
            if n_characters > bounds.LONGEST_LINE:
                raise too_long()
            n_characters += len(block)
            yield StringIO(block, newline="")

    csv.field_size_limit(bounds.LONGEST_LINE)
    rows = csv.reader(chain.from_iterable(lines()), strict=True, delimiter=separator)
    try:
        for row in rows:
            last = rows.line_num
            yield last, row
    except csv.Error as error:
        if "field limit" in str(error):
            raise too_long() from None
        raise FileFormatError(f"{name}, line {rows.line_num}: not valid CSV: {error}.") from None


def _is_stsb(fields: Sequence[str]) -> bool:
    """Whether the first line is a row of the STS benchmark: a score where others name a column."""
    return len(fields) >= len(STSB_COLUMNS) and is_number(fields[STSB_COLUMNS.index("score")])


def is_number(value: Any) -> bool:
    """Whether a field of a table is a finite number."""
    try:
        return math.isfinite(float(value))
    except (TypeError, ValueError, OverflowError):
        return False


# -- objects ---------------------------------------------------------------------------------------------------------


def _object_table(name: str, ending: str, file: BinaryIO) -> Table:
    objects, place = (_jsonl_objects, _LINE) if ending == ".jsonl" else (_json_objects, _ROW)
    rows = objects(name, file)
    first: list[tuple[int, dict[str, Any]]] = []  # not all may have all columns
    fault: FileFormatError | None = None
    try:
        first.extend(islice(rows, SAMPLED_ROWS))
    except FileFormatError as error:  # whoever reads as far as there shall meet it
        if not first:
            raise
        fault = error
    if not first:
        raise FileFormatError(f"{name} holds no rows.")

    def all_rows() -> Iterator[tuple[int, dict[str, Any]]]:
        yield from first
        if fault is not None:
            raise fault
        yield from rows

    every_row = all_rows()
    columns = dict.fromkeys(paths_of(first[0][1], name))
    for _, fields in first[1:]:
        with suppress(FileFormatError):  # whoever reads all of such a row shall meet it
            columns |= dict.fromkeys(paths_of(fields, name))

    def select(columns: Sequence[str], optional: Sequence[str]) -> Iterator[tuple[int, Values]]:
        for number, fields in every_row:
            values = [value_at(fields, column) for column in (*columns, *optional)]
            for column, value in zip(columns, values, strict=False):
                if value is ABSENT:
                    listed = _check.brief(", ".join(paths_of(fields, name)), 600)
                    raise FileFormatError(f"{name}, {place.format(number)} has no column {column}; it has: {listed}.")
            yield number, tuple([None if value is ABSENT else value for value in values])

    table = Table(name, list(columns), select, place)
    table.objects = every_row
    return table


def _jsonl_objects(name: str, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(lines_in(name, file), start=1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise FileFormatError(f"{name}, line {number} is no JSON object: {error}.") from None
        if not isinstance(fields, dict):
            _refuse_list(f"{name}, line {number}", fields)
            raise FileFormatError(f"{name}, line {number} is no JSON object. Write one object per line, {{...}}.")
        yield from _rows_of(f"{name}, {_LINE.format(number)}", number, fields)


def _json_objects(name: str, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    content = bounds.read_bounded(name, file, bounds.LARGEST_JSON, "Write it as .jsonl, one object per line.")
    try:
        text = content.decode(json.detect_encoding(content), "surrogatepass")
        first = next(_items(text), None)
        listed: Any = _items(text)
        if first is None or _is_item(first):  # no list, or the list within an answer, perhaps
            listed = json.loads(text)
        if isinstance(listed, dict):
            rows = rows_of_answer(name, listed) or rows_of_export(listed)
            rows = rows or ([listed] if EMBEDDING in listed else None)
            if rows is not None:
                yield from enumerate(rows)
                return
        elif isinstance(listed, list) and all(map(_is_item, listed)):
            listed = rows_of_answer(name, {"data": listed}) or []
        if not isinstance(listed, (list, Iterator)):
            raise FileFormatError(f"{name} is no list of JSON objects. Write [{{...}}, ...], or .jsonl.")
        yield from _object_rows(name, listed)
    except FileFormatError:
        raise
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{name} is not valid JSON: {error}.") from None


_SPACE = re.compile(r"[ \t\n\r]*")


def _items(text: str) -> Iterator[Any]:
    """The items of a list in JSON, each parsed when it is reached; none of what is no list."""
    decode = json.JSONDecoder().raw_decode

    def after_space(start: int) -> int:
        match = _SPACE.match(text, start)
        return match.end() if match else start

    at = after_space(0)
    if not text.startswith("[", at) or text.startswith("]", after_space(at + 1)):
        return
    mark = ","
    while mark == ",":
        try:
            item, at = decode(text, after_space(at + 1))
        except ValueError:
            break
        yield item
        at = after_space(at)
        mark = text[at : at + 1]
    if mark != "]" or after_space(at + 1) < len(text):
        json.loads(text)  # says what is wrong


def _object_rows(name: str, listed: Iterable[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, fields in enumerate(listed):
        if not isinstance(fields, dict):
            where = f"{name}, {_ROW.format(number)}"
            _refuse_list(where, fields)
            raise FileFormatError(f"{where} is no JSON object. Write [{{...}}, ...].")
        yield from _rows_of(f"{name}, {_ROW.format(number)}", number, fields)


def _rows_of(place: str, number: int, fields: dict[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """An object as a row; an answer of an API as the rows of its vectors."""
    answer = rows_of_answer(place, fields, is_row=True)
    yield from [(number, fields)] if answer is None else [(number, row) for row in answer]


def _refuse_list(place: str, value: Any) -> None:
    if parse_numbers(value) is not None:
        raise FileFormatError(
            f"{place} is no JSON object but a list of numbers: the file holds vectors, not texts. {VECTORS_ADVICE}"
        )


def _is_item(value: Any) -> bool:
    return isinstance(value, dict) and value.get("object") == EMBEDDING


def _typed_table(name: str, file_format: Format, file: BinaryIO, first_row: int, *, is_streamed: bool) -> Table:
    pa = _extras.require("pyarrow")

    if file_format.is_parquet:
        verify_parquet(name, file)
    typed = typed_table(name, file, file_format)
    names = typed.schema.names

    def paths(fields: Iterable[Any], prefix: str = "") -> Iterator[str]:
        for field in fields:
            is_nested = pa.types.is_struct(field.type)
            yield from paths(field.type, f"{prefix}{field.name}.") if is_nested else [prefix + field.name]

    def values_of(batch: Any, top: str, path: str) -> list[Any]:
        if top not in batch.schema.names:
            return [None] * len(batch)
        values: list[Any] = batch.column(top).to_pylist()
        if top == path:
            return values
        nested = (value_at({top: value}, path) for value in values)  # a null hides all that is nested in it
        return [None if value is ABSENT else value for value in nested]

    def select(columns: Sequence[str], optional: Sequence[str]) -> Iterator[tuple[int, Values]]:
        wanted = (*columns, *optional)
        tops = [path if path in names else path.partition(".")[0] for path in wanted]
        number = first_row
        for batch in typed.batches(wanted, start_row=first_row, is_streamed=is_streamed):
            lists = [values_of(batch, top, path) for top, path in zip(tops, wanted, strict=True)]
            yield from enumerate(zip(*lists, strict=True), number)
            number += len(batch)

    table = Table(name, list(paths(typed.schema)), select, _ROW)
    table.schema, table.first_row = typed.schema, first_row
    return table


ABSENT = object()


def value_at(fields: Mapping[str, Any], path: str) -> Any:
    """The value of a column, which may lie in nested objects."""
    if path in fields:
        return fields[path]
    top, _, rest = path.partition(".")
    while rest:
        if isinstance(nested := fields.get(top), dict):
            return value_at(nested, rest)
        step, _, rest = rest.partition(".")
        top = f"{top}.{step}"
    return ABSENT


def paths_of(fields: Mapping[str, Any], where: str, prefix: str = "", depth: int = 0) -> list[str]:
    """The columns of an object and of those nested in it."""
    check_depth(where, depth)
    return [
        path
        for name, value in fields.items()
        for path in (
            paths_of(value, where, f"{prefix}{name}.", depth + 1) if isinstance(value, dict) else [prefix + name]
        )
    ]


def check_depth(where: str, depth: int) -> None:
    """Refuse objects in objects before Python runs out of stack."""
    if depth > _DEEPEST:
        raise FileFormatError(f"{where}: objects lie more than {_DEEPEST} deep in each other. Write fewer levels.")
