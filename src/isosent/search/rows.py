"""The rows of an index but for their vectors: ids, texts and metadata, as a pyarrow table and in Parquet files.

`rows_table` checks what a caller gives and makes one table: the column id, text if there are texts, and those of the
metadata. `like` gives rows that are added the columns of the index. `names_beside_hits` and `check_columns` say how a
column is called in a result, and which rows a table of a database takes. `write_rows` writes a segment, and `RowFile`
reads whole columns of it, or some rows. `read_rows` reads the rows of a file that a user names: lines of text, or a
table, where `typed` makes numbers of columns that are all numbers. `texts_of_vectors` reads texts of vectors in another
file, in their order, which `order_by_ids` finds by the ids of both.
"""

from __future__ import annotations

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent._check import brief
from isosent.errors import FileFormatError, InputError, InputTypeError, IsosentWarning, option
from isosent.io.bounds import open_content
from isosent.io.checksum import HashingFile
from isosent.io.formats import ending_of, format_by_name
from isosent.io.number_lists import SAMPLED_ROWS, kind_of
from isosent.io.parquet import bounded_batches, reading_parquet
from isosent.io.tables import DECIMAL_COMMA, is_number, open_table, table_in
from isosent.io.texts import TextSource, numbers_error, refuse_vectors
from isosent.io.vector_source import VectorSource

ID, TEXT, VECTOR = "id", "text", "vector"
CUSTOM_ID: Final = "custom_id"  # of a request in a batch
_DIGITS: Final = re.compile(r"\d+", re.ASCII)
HAS_VECTOR: Final = "isosent.has_vector"
MAPPED: Final = "isosent_mapped"  # whether a vector was mapped from another model's; names of users begin otherwise
# of a hit; words: of an explanation
HIT_COLUMNS: Final = ("query", "rank", ID, "score", "share", "words")
IdKind = Literal["numbers", "int", "str"]  # numbers: given by the index, in the order of the rows
_LARGEST_ID: Final = 2**63 - 1
_GROUP_ROWS: Final = 16_384
_GROUPS_IN_MEMORY: Final = 64
_MOST_LISTED: Final = 3
_FREE_CELLS: Final = 4 << 20  # of a table of text; beyond, a cell for each byte: rows of JSON may lack columns
_TYPED: Final = (".parquet", ".jsonl", ".json")
# numbers that are written as numbers are: 007, +49 and 12e4 are names, and so is what 64 bits cannot hold exactly;
# 1e-05 and 1.5e+20 are how programs write numbers
_WHOLE: Final = r"^(0|-?[1-9]\d{0,18})$"
_DECIMAL: Final = r"^-?((0|[1-9]\d{0,14})(\.\d+)?|\d(\.\d+)?e[+-]\d{2,3})$"


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

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if _is_text(kind) or pa.types.is_null(kind):
        kind = pa.string()
    elif pa.types.is_float16(kind):
        kind = pa.float32()
    column = column if kind == column.type else column.cast(kind)
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):  # databases take NaN for the largest number
        return pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
    return column


def _is_text(kind: Any) -> bool:
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


def typed(texts: Any, kind: Any = None) -> Any:
    """A column of a text file, as the type of the same column of an index, or else as numbers if all of it are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    if texts.null_count == len(texts) or (kind is not None and _is_text(kind)):
        return texts
    if kind is not None and not pa.types.is_integer(kind):  # for Arrow, 007 is a whole number
        try:
            return texts.cast(kind)
        except pa.ArrowException:  # no such values, or a type that text files cannot hold
            pass
    for pattern, numbers in ((_WHOLE, pa.int64()), (_DECIMAL, pa.float64())):
        if pc.all(pc.match_substring_regex(texts, pattern)).as_py():
            try:
                return texts.cast(numbers)
            except pa.ArrowInvalid:  # above 2^63
                return texts
    return texts


def _typed_ids(texts: Any, kind: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    ids = typed(texts, kind)
    if pa.types.is_integer(ids.type) and (pc.min(ids).as_py() or 0) >= 0:
        return ids
    return typed(texts, pa.string())


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
    return "text" if _is_text(kind) else "truth" if types.is_boolean(kind) else "other"


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
        with reading_parquet(str(path)):
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
        with reading_parquet(str(self.path)), self._reader() as reader:
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
        with reading_parquet(str(self.path)), self._reader() as reader:
            return reader.read_row_group(group)


# -- rows of a file --------------------------------------------------------------------------------------------------


def read_rows(
    path: str,
    *,
    column: str | None = None,
    id_column: str | None = None,
    vector_column: str | None = None,
    schema: Any = None,
) -> tuple[list[str] | None, Any, Any]:
    """Texts, ids and metadata of a file: lines of text, or a table, whose other columns are the metadata.

    The ids are None without a column for them, which is called id if it is not named. Next to vectors, texts are None
    without a column of texts. Columns of a text file get the types of `schema`, which is that of an index.
    """
    pa = _extras.require("pyarrow", extra="search")

    source = TextSource(path, column)
    if not source.is_table:
        if id_column is not None:
            raise InputError(
                f"{option('id_column', id_column)}: {path} is read as plain lines and has no columns. Leave it out."
            )
        return source.texts(), None, None
    table = _read_table(path, without=vector_column)
    is_untyped = ending_of(path) not in _TYPED
    kinds = {} if schema is None else {field.name: field.type for field in schema}
    columns = {
        name: typed(table[name], kinds.get(_renamed(name))) if is_untyped else table[name]
        for name in table.column_names
    }
    if column is None:
        candidates = [
            name
            for name, values in columns.items()
            if _is_text(values.type)
            and values.null_count < len(values)
            and name not in (ID, id_column)
            and not kind_of(values.slice(0, SAMPLED_ROWS).to_pylist(), name)
        ]
        candidates = [TEXT] if TEXT in columns and vector_column != TEXT else candidates
        if len(candidates) != 1 and vector_column is None:
            if is_untyped and len(columns) > 1 and not any(_is_text(values.type) for values in columns.values()):
                raise FileFormatError(numbers_error(path))
            raise InputError(
                f"{path} has the columns {brief(', '.join(columns), 600)}. Choose the texts: "
                f"{option('column', 'NAME')}."
            )
        column = candidates[0] if len(candidates) == 1 else None
    for name in (column, id_column):
        if name is not None and name not in columns:
            raise InputError(f"{path} has no column {name}; it has: {brief(', '.join(columns), 600)}.")
    id_column = id_column or (ID if ID in columns else None)
    values = [] if column is None else table[column].to_pylist()
    if column is not None and values:
        refuse_vectors(str(path), column, values[:SAMPLED_ROWS])
    texts = None if column is None else ["" if value is None else str(value) for value in values]
    ids = None if id_column is None else columns[id_column]
    if ids is not None and is_untyped:
        ids = _typed_ids(table[id_column], kinds.get(ID))
    others = {}
    for name, values in columns.items():
        if name not in (column, id_column):
            own = _renamed(name)
            if own in others or (own != name and own in columns):
                raise InputError(f"{path} has the columns {name} and {own}; rename one: an index has its own {name}.")
            others[own] = values
    return texts, ids, pa.table(others)


def texts_of_vectors(texts: TextSource, sources: Sequence[VectorSource]) -> list[str]:
    """Texts in the order of the vectors, which lie in one file or several."""
    listed = texts.texts()
    if not all(source.is_column for source in sources):
        return listed
    name_of_texts = _name_of_ids(texts.name) if texts.is_table else None
    names = [_name_of_ids(source.name) for source in sources]
    if None in names:
        return listed
    ids = None if name_of_texts is None else list(map(str, texts.labels(name_of_texts)))
    ids_of_vectors = [str(one) for source, name in zip(sources, names, strict=True) for one in source.labels(str(name))]
    vectors = ", ".join(source.name for source in sources)
    order = order_by_ids(texts.name, ids, vectors, ids_of_vectors)
    if order is None:
        return listed
    warnings.warn(
        f"{texts.name} has another order than {vectors}; texts and vectors are joined by their ids.",
        IsosentWarning,
        stacklevel=2,
    )
    return [listed[place] for place in order]


def _name_of_ids(path: str) -> str | None:
    with open_table(path, header=True) as table:
        return next((name for name in (CUSTOM_ID, ID) if name in table.columns), None)


def order_by_ids(texts: str, ids: list[str] | None, vectors: str, ids_of_vectors: list[str] | None) -> list[int] | None:
    """The places of texts in the order of the vectors beside them, by the ids of both; None if they are in one order.

    An API does not promise the order of a batch. Where only the vectors have ids, numbers in these show an order.
    """
    if ids_of_vectors is None or (ids is not None and ids == ids_of_vectors):
        return None
    if ids is not None and set(ids) & set(ids_of_vectors):
        places = {one: place for place, one in enumerate(ids)}
        for path, listed in ((texts, ids), (vectors, ids_of_vectors)):
            if len(set(listed)) < len(listed):
                repeated = next(one for one, count in Counter(listed).items() if count > 1)
                raise InputError(
                    f"{path}: the id {brief(repeated)} is there twice, so texts and vectors cannot be joined."
                )
        missing = set(ids) ^ set(ids_of_vectors)
        if missing:
            one = min(missing)
            path, other = (vectors, texts) if one in places else (texts, vectors)
            raise InputError(f"{path} has no row of the id {brief(one)}, and {other} has. Make both of the same rows.")
        return [places[one] for one in ids_of_vectors]
    numbers = [tuple(map(int, _DIGITS.findall(one))) for one in ids_of_vectors]
    is_counted = len({_DIGITS.sub("0", one) for one in ids_of_vectors}) == 1 and all(numbers)
    if is_counted and all(one < other for one, other in pairwise(numbers)):
        return None
    what = f"{vectors} has ids such as {brief(ids_of_vectors[0])}, and {texts} has none of them"
    if is_counted and sorted(numbers) in [[(n + start,) for n in range(len(numbers))] for start in (0, 1)]:
        raise InputError(
            f"{what}: the numbers in them show that its rows are in another order. Give the texts these ids."
        )
    warnings.warn(
        f"{what}: texts and vectors are paired in the order of their rows, which a batch of an API does not keep.",
        IsosentWarning,
        stacklevel=2,
    )
    return None


def _renamed(name: str) -> str:
    """The name of a column next to the texts, other than those of the index itself."""
    return f"{name}_" if name in (ID, TEXT, VECTOR) else name


def _read_table(path: str, *, without: str | None) -> Any:
    """All columns but one, as they are or as texts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if ending_of(path) == ".parquet":
        file = _check.input_file(path)
        with reading_parquet(str(file)), pq.ParquetFile(file, memory_map=True) as table:
            schema = table.schema_arrow
            if without in schema.names:
                schema = schema.remove(schema.get_field_index(without))
            if not schema.names:
                return pa.table({})
            batches = bounded_batches(str(file), file, table, schema.names if without else None)
            return pa.Table.from_batches(batches, schema)
    with open_content(path) as (name, content):
        most_cells = max(_FREE_CELLS, content.seek(0, os.SEEK_END))
        content.seek(0)
        table = table_in(name, format_by_name(path), content, header=True)
        table.require_distinct()
        names = [name for name in table.columns if name != without]
        rows = []
        for _, values in table.rows(optional=names):
            rows.append(values)
            if len(rows) * len(values) > most_cells:
                raise FileFormatError(
                    f"{path}: rows of {len(names):,} columns, as in the first, do not fit into the file. Leave "
                    "out columns that few rows have."
                )
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    arrays = {}
    for name, values in zip(names, columns, strict=True):
        if table.separator == ";":
            points = [value and DECIMAL_COMMA.sub(r"\1.\2", value) for value in values]
            values = tuple(points) if all(not value or is_number(value) for value in points) else values
        try:
            arrays[name] = pa.array(values, None if ending_of(path) in _TYPED else pa.string())
        except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
            raise InputError(f"{path}: the values of {name} are not of one type: {brief(error)}.") from None
    return pa.table(arrays)
