"""Columns: what those of a hit are called, and which rows a table of a database can take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from isosent._check import brief
from isosent.errors import InputError
from isosent.search.rows import ID

HIT_COLUMNS: Final = ("query", "rank", ID, "score", "share", "words")  # words: of an explanation


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
