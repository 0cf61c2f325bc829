"""Columns: what those of a hit are called, which rows a table of a database can take, and their types in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from isosent._check import brief
from isosent.errors import InputError
from isosent.search.rows import ID, VECTOR

HIT_COLUMNS: Final = ("query", "rank", ID, "score", "share", "words")  # words: of an explanation
_LARGEST_VECTOR: Final = 2000  # dimensions that an HNSW index of pgvector can hold as float32; above, as float16
_LONGEST_NAME: Final = 63  # bytes of the name of a column of PostgreSQL
_TEXT: Final = 'text COLLATE "C"'  # the order of code points, as elsewhere in isosent


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


def nul_in(batch: Any) -> tuple[Any, str] | None:
    """Id and column of the first text of a record batch that holds the character NUL."""
    import pyarrow as pa
    from pyarrow import compute

    for name in batch.schema.names:
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            row = compute.index(compute.match_substring(column, "\0"), True).as_py()
            if row >= 0:
                return batch.column(ID)[row].as_py(), name
    return None


# -- types of PostgreSQL ---------------------------------------------------------------------------------------------


def arrow_types() -> dict[str, Any]:
    """Type of pyarrow by that of PostgreSQL."""
    import pyarrow as pa

    return {
        "text": pa.string(),
        "bigint": pa.int64(),
        "double precision": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "timestamp without time zone": pa.timestamp("us"),
        "timestamp with time zone": pa.timestamp("us", "UTC"),
    }


def sql_columns(schema: Any, dim: int) -> dict[str, str]:
    """Definition of each column, vectors last."""
    columns = {field.name: _sql_type(field) for field in schema if field.name != VECTOR}
    if ID not in columns or columns[ID] not in ("bigint", _TEXT):
        raise InputError(f"an index needs the column {ID} with strings or whole numbers; there are: {schema.names}.")
    for name in columns:
        if len(name.encode()) > _LONGEST_NAME:
            raise InputError(f"the name of a column of PostgreSQL has at most {_LONGEST_NAME} bytes; got {name!r}.")
    return columns | {VECTOR: f"halfvec({dim})" if dim > _LARGEST_VECTOR else f"vector({dim})"}


def _sql_type(field: Any) -> str:
    import pyarrow as pa

    kind, types = field.type, pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind):
        return _TEXT
    if types.is_integer(kind):
        return "bigint"
    if types.is_floating(kind):
        return "double precision"
    if types.is_boolean(kind):
        return "boolean"
    if types.is_date(kind):
        return "date"
    if types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    raise InputError(
        f"the column {field.name} is {kind}; PostgreSQL takes texts, numbers, true and false, dates and times. "
        "Convert it, or leave it out."
    )
