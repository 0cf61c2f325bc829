"""The rows of an index but for their vectors: ids, texts and metadata, as a pyarrow table and in Parquet files.

`rows_table` checks what a caller gives and makes one table: the column id, text if there are texts, and those of the
metadata. `like` gives rows that are added the columns of the index. `names_beside_hits` says how a column is called in
a result; `check_columns` and `plain_type`, which rows and types a table of a database takes. `write_rows` writes a
segment, and `RowFile` reads whole columns of it, or some rows. What rows a file of a user holds: `inputs.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent._check import brief
from isosent.errors import FileFormatError, InputError, InputTypeError, option
from isosent.io.arrow import plain_column, reading_with_pyarrow
from isosent.io.checksum import HashingFile
from isosent.io.parquet import READABLE

ID, TEXT, VECTOR = "id", "text", "vector"
HAS_VECTOR: Final = "isosent.has_vector"
MAPPED: Final = "isosent_mapped"  # whether a vector was mapped from another model's; names of users begin otherwise
# of a hit; words: of an explanation
HIT_COLUMNS: Final = ("query", "rank", ID, "score", "share", "words")
IdKind = Literal["numbers", "int", "str"]  # numbers: given by the index, in the order of the rows
_LARGEST_ID: Final = 2**63 - 1
_GROUP_ROWS: Final = 16_384
_GROUPS_IN_MEMORY: Final = 64
_MOST_LISTED: Final = 3


def rows_table(n_rows: int, *, ids: Any = None, texts: Any = None, metadata: Any = None, first_number: int = 0) -> Any:
    """Make a table with the columns id, text if there are texts, and those of the metadata."""
    pa = _extras.require("pyarrow", extra="search")

    columns = {ID: pa.array(np.arange(first_number, first_number + n_rows)) if ids is None else _id_column(ids)}
    if texts is not None:
        columns[TEXT] = pa.array([None if text is None else str(text) for text in texts], pa.string())
    for name, column in _metadata_columns(metadata):
        if name in (ID, TEXT, VECTOR) or name.startswith("isosent"):
            raise InputError(f"index: a column of the metadata cannot be named {name}. Rename it.")
        if name in columns:
            raise InputError(f"index: two columns of the metadata are named {name}. Rename one.")
        columns[name] = _plain(column)
    for name, column in columns.items():
        if len(column) != n_rows:
            raise InputError(f"index: {name} has {len(column)} values for {n_rows} rows. One per row is needed.")
    return pa.table(columns)


def id_kind_of(ids: Any) -> IdKind:
    """What the ids of a caller are; None stands for those that the index gives."""
    import pyarrow as pa

    return "numbers" if ids is None else "int" if pa.types.is_integer(_id_column(ids).type) else "str"


def other_ids(folder: Path, wanted: IdKind, given: IdKind | None) -> InputError:
    """The error for rows whose ids are not like those of the index."""
    if wanted == "numbers":
        return InputError(
            f"add: {folder} was made without ids and numbers its rows, so new rows must have none. Rename their column "
            "id, or make the index again with ids, by which rows can be replaced."
        )
    kinds = {"int": "whole numbers", "str": "strings", None: "missing"}
    advice = (
        f"Add a table with a column of ids: {option('id_column', 'NAME')}."
        if given is None
        else "Write them like those."
    )
    return InputError(f"add: ids of {folder} are {kinds[wanted]}; those of the new rows are {kinds[given]}. {advice}")


def _id_column(ids: Any) -> Any:
    import pyarrow.compute as pc

    column = id_array(ids)
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py()
        raise InputError(
            f"index: {column.null_count} rows have no id, such as row {row}, counted from 0. Fill it in, or remove the "
            "row."
        )
    counts = pc.value_counts(column)
    if len(counts) < len(column):
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        listed = ", ".join(repr(value.as_py()) for value in twice[:_MOST_LISTED])
        raise InputError(
            f"index: {len(twice)} ids occur twice or more, such as {brief(listed)}. Keep one row of each id."
        )
    return column


def id_array(ids: Any) -> Any:
    """Ids as strings or as int64."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(ids, (str, Iterator)) or not isinstance(ids, Iterable):
        raise InputTypeError(f"ids must be a list of ids; got {ids!r:.80}.")
    try:
        column = ids if isinstance(ids, (pa.Array, pa.ChunkedArray)) else pa.array(ids)
        column = _plain(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
        if pa.types.is_null(column.type):
            column = column.cast(pa.string())
        elif pa.types.is_integer(column.type):
            column = column.cast(pa.int64())
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        raise InputTypeError(f"ids must be all strings, or all whole numbers below 2^63: {brief(error)}.") from None
    if not pa.types.is_string(column.type) and not pa.types.is_integer(column.type):
        raise InputTypeError(f"ids must be strings or whole numbers; got {column.type}.")
    if pa.types.is_integer(column.type) and (least := pc.min(column).as_py() or 0) < 0:
        raise InputError(f"ids must not be negative; got {least}.")
    return column


def ids_from_text(names: Sequence[str], schema: Any) -> list[Any]:
    """Ids that were typed, as those of a schema: strings or whole numbers."""
    if str(schema.field(ID).type) == "string":
        return list(names)
    for name in names:
        if not name.isdecimal() or len(name) > len(str(_LARGEST_ID)) or int(name) > _LARGEST_ID:
            raise InputError(f"id {name!r:.80}: the ids of this index are whole numbers.")
    return [int(name) for name in names]


def _plain(column: Any) -> Any:
    """Texts as strings, categories as their values, NaN as null, so that filters and other rows fit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = plain_column(column)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if is_text(kind) or pa.types.is_null(kind):
        kind = pa.string()
    elif pa.types.is_float16(kind):
        kind = pa.float32()
    column = _widened(column, kind)
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):  # databases take NaN for the largest number
        return pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
    return column


def _widened(column: Any, kind: Any) -> Any:
    """A column in another type. Numbers of 16 or 32 bits keep the name that they have: a filter finds 0.1 as 0.1."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_float16(column.type):
        texts = [None if value is None else str(np.float16(value)) for value in column.to_pylist()]
        return pa.array(texts, pa.string()).cast(kind)
    if pa.types.is_float32(column.type) and pa.types.is_float64(kind):
        column = column.cast(pa.string())  # as short as 32 bits allow
    return column if kind == column.type else column.cast(kind)


def is_text(kind: Any) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _metadata_columns(metadata: Any) -> list[tuple[str, Any]]:
    import pyarrow as pa

    if metadata is None:
        return []
    try:
        if isinstance(metadata, pa.Table):
            table = metadata
        elif isinstance(metadata, Mapping):
            table = pa.table({str(name): pa.array(values) for name, values in metadata.items()})
        elif isinstance(metadata, Sequence):
            names = dict.fromkeys(name for row in metadata for name in row)
            table = pa.table({name: [row.get(name) for row in metadata] for name in names})
        else:
            table = pa.table(metadata)  # pandas, polars: through the interface that they share
    except (pa.ArrowException, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise InputTypeError(f"index: the metadata must be a table, one row per text: {brief(error)}.") from None
    # pandas adds its index as a column of this name
    named = zip(table.column_names, table.columns, strict=True)
    return [(name, column) for name, column in named if not name.startswith("__index_level_")]


def like(rows: Any, schema: Any) -> Any:
    """Rows with the columns of an index; what they lack is null."""
    import pyarrow as pa

    known = {field.name: field.type for field in schema}
    unknown = [name for name in rows.column_names if name not in known]
    if unknown:
        raise InputError(
            f"index: these rows have the column {unknown[0]}, which the index does not have; it has {', '.join(known)}."
        )
    columns = []
    for name, kind in known.items():
        column = rows.column(name) if name in rows.column_names else pa.nulls(rows.num_rows, kind)
        try:
            is_given = column.null_count < len(column)
            if is_given and _group_of(column.type) != _group_of(kind):  # Arrow makes true of 2, and texts of numbers
                raise pa.ArrowInvalid
            columns.append(column.cast(kind))
        except pa.ArrowException:
            raise InputError(f"index: the column {name} is {column.type} here, and {kind} in the index.") from None
    return pa.table(columns, names=list(known))


def _group_of(kind: Any) -> str:
    """What a value is, but for its precision: a text, a truth value, a number, or another type."""
    from pyarrow import types

    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    return "text" if is_text(kind) else "truth" if types.is_boolean(kind) else "other"


def names_beside_hits(columns: Sequence[str]) -> dict[str, str]:
    """New name by the name of a column: score becomes score_, or score__ if there is a column score_ as well."""
    names = {}
    for column in columns:
        name = column
        while name in HIT_COLUMNS or (name != column and name in columns):
            name += "_"
        names[column] = name
    return names


def check_columns(table: str, schema: Any, rows: Any) -> None:
    """Refuse rows with a column that the table lacks, or with another kind of ids; both are pyarrow schemas."""
    if unknown := [name for name in rows.names if name not in schema.names]:
        raise InputError(f"{table} has no column {unknown[0]}; it has: {brief(', '.join(schema.names), 600)}.")
    there, here = (_kind(schema.field(ID).type), _kind(rows.field(ID).type))
    if there != here:
        raise InputError(f"the ids of {table} are {there}; those of these rows are {here}. Push to another table.")


def _kind(id_type: Any) -> str:
    import pyarrow as pa

    return "whole numbers" if pa.types.is_integer(id_type) else "strings"


def plain_type(database: str, field: Any) -> Any:
    """The type of a column in a database that has texts, whole and other numbers, true and false, dates and times."""
    import pyarrow as pa

    kind, types = field.type, pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if is_text(kind) or types.is_null(kind):
        return pa.string()
    if types.is_integer(kind):
        return pa.int64()
    if types.is_floating(kind):
        return pa.float64()
    if types.is_boolean(kind):
        return pa.bool_()
    if types.is_date(kind):
        return pa.date32()
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    raise InputError(
        f"the column {field.name} is {kind}; {database} takes texts, numbers, true and false, dates and times. "
        "Convert it, or leave it out."
    )


def plain_values(table: str, column: Any, field: Any) -> list[Any]:
    """Values of a column in the type of a database, as Python has them."""
    import pyarrow as pa

    try:
        values: list[Any] = _widened(column, field.type).to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:  # times after the year 9999 overflow
        raise InputError(f"{table}: the column {field.name} is {field.type}: {brief(error)}.") from None
    return values


def write_rows(table: Any, has_vector: NDArray[np.bool_], path: Path) -> str:
    """Write rows to a Parquet file, and return its checksum."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("wb") as file:
        hashing = HashingFile(file)
        table = table.append_column(HAS_VECTOR, pa.array(has_vector))
        try:
            pq.write_table(table, hashing, row_group_size=_GROUP_ROWS, write_page_checksum=True)
        except pa.ArrowNotImplementedError as error:  # such as a struct without fields
            raise InputError(f"index: the metadata cannot be written to Parquet: {brief(error)}.") from None
    return hashing.checksum


class RowFile:
    """Rows in a Parquet file, of which only what is asked for is read. Threads may share it."""

    def __init__(self, path: Path, n_rows: int) -> None:
        pa = _extras.require("pyarrow", extra="search")

        self.path, self._footer = path, None
        with reading_with_pyarrow(str(path), READABLE):
            # mapped once: the file may be removed by a writer while this is in use
            self._bytes = pa.memory_map(str(path)).read_buffer()
            with self._reader() as reader:
                self._footer, self.schema = reader.metadata, reader.schema_arrow
        if self._footer.num_rows != n_rows or HAS_VECTOR not in self.schema.names:
            raise FileFormatError(
                f"{path} holds {self._footer.num_rows} rows; expected {n_rows} with {HAS_VECTOR}. Make the index again."
            )
        self._group = lru_cache(maxsize=_GROUPS_IN_MEMORY)(self._read_group)
        group_rows = [self._footer.row_group(group).num_rows for group in range(self._footer.num_row_groups)]
        self._starts = np.cumsum([0, *group_rows])

    def _reader(self) -> Any:
        # One for each read: a reader of pyarrow that threads share crashes, or finds a sound file damaged. Making one
        # takes 0.01 ms when the footer is parsed already.
        import pyarrow as pa
        import pyarrow.parquet as pq

        return pq.ParquetFile(pa.BufferReader(self._bytes), metadata=self._footer)

    def columns(self, names: Sequence[str]) -> Any:
        """Read whole columns."""
        with reading_with_pyarrow(str(self.path), READABLE), self._reader() as reader:
            return reader.read(list(names))

    def take(self, positions: NDArray[np.intp]) -> Any:
        """Read the rows at these positions, in this order."""
        import pyarrow as pa

        groups = np.searchsorted(self._starts, positions, side="right") - 1
        parts, order = [], []
        for group in np.unique(groups):
            places = np.flatnonzero(groups == group)
            parts.append(self._group(int(group)).take(pa.array(positions[places] - self._starts[group])))
            order.append(places)
        if not parts:
            return self.schema.empty_table()
        return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(order), kind="stable")))

    def _read_group(self, group: int) -> Any:
        with reading_with_pyarrow(str(self.path), READABLE), self._reader() as reader:
            return reader.read_row_group(group)
