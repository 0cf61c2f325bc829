"""Vectors in a column of a parquet table: reading, and writing with the other columns of the table."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent._check import brief
from isosent.errors import FileFormatError, InputError, IsosentError
from isosent.io.bounds import (
    FREELY_EXPANDED,
    LARGEST_EXPANSION,
    MOST_DIMENSIONS,
    ParquetChunk,
    expands_too_far,
    parquet_batch_rows,
    parquet_chunks,
)
from isosent.io.checksum import (
    UNSEALED,
    FileState,
    HashingFile,
    check_unchanged,
    checksum_of_file,
    file_state,
    require_checksum,
    seal_file,
)
from isosent.io.space import space_in
from isosent.io.system import open_to_read, system_error
from isosent.io.vector_source import NUMBER_TYPES, NumberType, VectorSource, in_blocks

SEAL_MARK = b"isosent.checksum="

_ARROW_NAMES = {"halffloat": "float16", "float": "float32", "double": "float64", "int8": "int8", "uint8": "uint8"}
_READ_BUFFER_BYTES = 1 << 20
_INTEGER_ROWS = 1 << 16
_BATCH_TEXT_BYTES = 64 << 20  # of a batch of texts, if each row repeats the longest
_LARGEST_ROW = 256 << 20  # of the texts of a list
_BATCH_BYTES = 4 << 20  # pyarrow needs five times as much to decode a batch of lists

Array = NDArray[Any]


def open_parquet(path: Path, column: str | None) -> VectorSource:
    """Open a column of vectors, read row group by row group."""
    state = file_state(path)
    schema, n_rows = table_schema(path)
    name, number_type = _choose_column(path, schema, column)
    with reading_parquet(str(path)):
        parquet_batch_rows(str(path), parquet_chunks(str(path), path), {name})
    dim = getattr(schema.field(name).type, "list_size", None) or _first_length(path, name)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        batch_rows = max(1, _BATCH_BYTES // (dim * number_type.size_bytes))
        return in_blocks(_matrices(path, state, name, dim, start_row, batch_rows), block_rows)

    space = space_in(schema.metadata or {})
    with open_to_read(path) as file:
        checksum, seal_at = find_seal(file)
    if dim > MOST_DIMENSIONS:
        raise FileFormatError(f"{path}: {dim:,} dimensions; vectors may have {MOST_DIMENSIONS:,} at most.")
    return VectorSource(
        path, n_rows, dim, number_type, space, read, name, checksum=checksum, seal_at=seal_at, state=state
    )


def find_seal(file: IO[bytes]) -> tuple[str | None, int | None]:
    """The checksum that a parquet file of isosent carries ahead of its metadata, and the byte at which it starts."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    n_metadata = int.from_bytes(file.read(4), "little")
    mark_at = max(0, size - 8 - n_metadata - len(UNSEALED) - len(SEAL_MARK))
    file.seek(mark_at)
    if file.read(len(SEAL_MARK)) != SEAL_MARK:
        return None, None
    return file.read(len(UNSEALED)).decode("ascii", "replace"), mark_at + len(SEAL_MARK)


def verify_parquet(name: str, file: IO[bytes]) -> None:
    """Refuse a parquet file of isosent that is damaged; others have no checksum."""
    checksum, seal_at = find_seal(file)
    if checksum is not None:
        file.seek(0)
        require_checksum(name, checksum, checksum_of_file(file, seal_at))
    file.seek(0)


def vector_columns(path: Path) -> list[str]:
    """List the columns that can be read as vectors."""
    schema, _ = table_schema(path)
    return [field.name for field in schema if _number_type(field.type)]


def table_schema(path: Path) -> tuple[Any, int]:
    """Read what columns a table has."""
    pq = _extras.require("pyarrow.parquet")

    with reading_parquet(str(path)), pq.ParquetFile(path) as file:
        return file.schema_arrow, file.metadata.num_rows


@contextmanager
def reading_parquet(where: str) -> Iterator[None]:
    """Turn what pyarrow raises for a damaged file into an error that names the place."""
    pa = _extras.require("pyarrow")

    try:
        yield
    except IsosentError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if unreadable := system_error(error, where):
            raise unreadable from None
        raise FileFormatError(f"{where} is not a readable parquet file: {brief(error).rstrip('.')}.") from None


def _number_type(kind: Any) -> NumberType | None:
    """The number type of a column of vectors; None for any other column."""
    pa = _extras.require("pyarrow")

    if not any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)):
        return None
    return NUMBER_TYPES.get(_ARROW_NAMES.get(str(kind.value_type), ""))


def _choose_column(path: Path, schema: Any, column: str | None) -> tuple[str, NumberType]:
    candidates = {field.name: number_type for field in schema if (number_type := _number_type(field.type))}
    listed = brief(", ".join(f"{field.name} ({field.type})" for field in schema), 600)
    if column is None:
        if not candidates:
            raise FileFormatError(
                f"{path} must have a column of vectors, lists of {', '.join(_ARROW_NAMES.values())}; it has: {listed}."
            )
        if len(candidates) > 1:
            raise InputError(
                f"{path} has {len(candidates)} columns of vectors ({', '.join(candidates)}). "
                "Choose one: column=NAME, on the command line --column NAME."
            )
        return next(iter(candidates.items()))
    if column not in schema.names:
        raise InputError(f"{path} has no column {column}; it has: {listed}.")
    if column not in candidates:
        raise InputError(
            f"{path}: column {column} must hold lists of {', '.join(_ARROW_NAMES.values())}; "
            f"it is of type {schema.field(column).type}."
        )
    return column, candidates[column]


def _first_length(path: Path, name: str) -> int:
    """Length of the first list; 0 dimensions are no vectors."""
    for batch in table_batches(path, [name], 0, 1):
        lists = batch.column(name)
        _refuse_nulls(path, name, lists, 0)
        if length := len(lists.flatten()):
            return length
        raise FileFormatError(f"{path}: vectors in {name} must have at least one dimension; got none in row 0.")
    raise FileFormatError(f"{path} must hold at least one vector; got zero rows.")


def table_batches(
    path: Path, names: Sequence[str], start_row: int, n_rows: int, state: FileState | None = None
) -> Iterator[Any]:
    """Read columns of a table, row group by row group."""
    pq = _extras.require("pyarrow.parquet")

    with pq.ParquetFile(
        path, buffer_size=_READ_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
    ) as file:
        check_unchanged(path, state)
        yield from bounded_batches(str(path), path, file, names, start_row, n_rows)


def bounded_batches(
    name: str, source: Path | IO[bytes], file: Any, names: Sequence[str] | None, start_row: int, n_rows: int
) -> Iterator[Any]:
    """Read columns of an open parquet file, or all; refuses what becomes far more than the file holds."""
    most = max(FREELY_EXPANDED, LARGEST_EXPANSION * _size_of(source))
    stop = n_bytes = 0
    for group, chunks in zip(range(file.num_row_groups), parquet_chunks(name, source), strict=False):
        row, stop = stop, stop + file.metadata.row_group(group).num_rows
        if stop <= start_row:
            continue
        with reading_parquet(f"{name}, row group {group} (rows {row} to {stop - 1}),"):
            at_once = _rows_at_once(name, source, group, chunks, names, n_rows, n_in_group=max(1, stop - row))
            for batch in file.iter_batches(at_once, row_groups=[group], columns=names and list(names)):
                n_bytes += batch.nbytes
                if n_bytes > most:
                    raise expands_too_far(name, n_bytes)
                row += len(batch)
                if row > start_row:
                    yield batch.slice(max(0, len(batch) - (row - start_row)))


def _size_of(source: Path | IO[bytes]) -> int:
    return source.stat().st_size if isinstance(source, Path) else source.seek(0, os.SEEK_END)


def _rows_at_once(
    name: str,
    source: Path | IO[bytes],
    group: int,
    chunks: Sequence[ParquetChunk],
    names: Sequence[str] | None,
    n_rows: int,
    *,
    n_in_group: int,
) -> int:
    """At most `n_rows` rows of a row group, and fewer where each of them may repeat a long text."""
    pc = _extras.require("pyarrow.compute")
    pq = _extras.require("pyarrow.parquet")

    # A dictionary holds a text once, and a decoded batch holds it for each row. How long it is no footer says, so the
    # first row is read with its dictionary as it is stored. All rows that way would be slow where texts differ.
    tops = None if names is None else {name.partition(".")[0] for name in names}
    repeating = {
        chunk.path: chunk.n_values
        for chunk in chunks
        if chunk.has_texts
        and chunk.has_dictionary
        and (tops is None or chunk.column in tops)
        and chunk.n_unpacked * max(n_rows, chunk.n_values // n_in_group) > _BATCH_TEXT_BYTES
    }
    if not repeating:
        return n_rows
    longest: int = 1
    probe = pq.ParquetFile(source, read_dictionary=[*repeating], buffer_size=_READ_BUFFER_BYTES, pre_buffer=False)
    for batch in probe.iter_batches(1, row_groups=[group], columns=[*repeating], use_threads=False):
        for texts in (texts for column in batch.columns for texts in _dictionaries(column)):
            longest = max(longest, pc.max(pc.binary_length(texts)).as_py() or 0)
        break
    row_bytes: int = longest * max(1, max(repeating.values()) // n_in_group)  # lists hold several
    if row_bytes > _LARGEST_ROW:
        raise expands_too_far(name, row_bytes)
    return max(1, min(n_rows, _BATCH_TEXT_BYTES // row_bytes))


def _dictionaries(array: Any) -> Iterator[Any]:
    """The dictionaries of a column and of those nested in it."""
    pa = _extras.require("pyarrow")

    if pa.types.is_dictionary(array.type):
        yield array.dictionary
    elif pa.types.is_struct(array.type):
        for nested in array.flatten():
            yield from _dictionaries(nested)
    elif pa.types.is_nested(array.type):  # lists and maps
        for nested in (array.keys, array.items) if pa.types.is_map(array.type) else (array.values,):
            yield from _dictionaries(nested)


def read_integers(path: Path, name: str, state: FileState | None = None) -> NDArray[np.int64]:
    """Read a column of integers, which fit into int64."""
    pa = _extras.require("pyarrow")

    schema, _ = table_schema(path)
    if name not in schema.names:
        raise InputError(f"{path} has no column {name}; it has: {brief(', '.join(schema.names), 600)}.")
    if not pa.types.is_integer(schema.field(name).type):
        raise InputError(f"{path}: column {name} must hold integers; it is of type {schema.field(name).type}.")
    columns = [batch.column(name) for batch in table_batches(path, [name], 0, _INTEGER_ROWS, state)]
    if any(column.null_count for column in columns):
        raise InputError(f"{path}: column {name} must hold an integer in every row; some are null.")
    try:
        arrays = [column.cast(pa.int64()).to_numpy() for column in columns]
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: column {name} must hold integers below 2**63: {brief(error)}.") from None
    return np.concatenate([np.empty(0, np.int64), *arrays])


def _matrices(path: Path, state: FileState, name: str, dim: int, start_row: int, n_rows: int) -> Iterator[Array]:
    row = start_row
    for batch in table_batches(path, [name], start_row, n_rows, state):
        lists = batch.column(name)
        _refuse_nulls(path, name, lists, row)
        values = lists.flatten()
        if not hasattr(lists.type, "list_size"):
            lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero(lengths != dim)
            if wrong.size:
                raise FileFormatError(
                    f"{path}: every row of {name} must have {dim} dimensions, those of the first; "
                    f"got {lengths[wrong[0]]} in row {row + wrong[0]}, counted from 0."
                )
        yield values.to_numpy(zero_copy_only=False).reshape(len(lists), dim)
        row += len(lists)


def _refuse_nulls(path: Path, name: str, lists: Any, row: int) -> None:
    """Refuse a row without a vector, and a vector without a number."""
    for array, what in ((lists, "a vector"), (lists.flatten(), "numbers only")):
        if array.null_count:
            position = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
            owner = position if array is lists else int(lists.value_parent_indices()[position].as_py())
            raise FileFormatError(
                f"{path}: column {name} must have {what} in every row; got null in row {row + owner}, counted from 0."
            )


VECTOR_COLUMN = "vector"


class ColumnsBeside:
    """The other columns of a table of vectors, taken in the order of the rows."""

    def __init__(
        self, schema: Any, batches: Iterator[Any], name: str = VECTOR_COLUMN, position: int | None = None
    ) -> None:
        self.schema, self.name = schema, name
        self.position = len(schema) if position is None else position
        self._batches, self._held = batches, None

    @classmethod
    def of_rows(cls, schema: Any, rows: deque[Sequence[Any]]) -> ColumnsBeside:
        """Take rows from a queue, which holds those of the next vectors when these are written."""
        pa = _extras.require("pyarrow")

        schema = pa.schema(schema)

        def batches() -> Iterator[Any]:
            while True:
                columns = list(zip(*rows, strict=True))
                rows.clear()
                try:
                    arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
                except (pa.ArrowException, UnicodeError, OverflowError) as error:
                    raise InputError(f"a column beside the texts cannot be written to .parquet: {error}.") from None
                yield pa.record_batch(arrays, schema=schema)

        return cls(schema, batches())

    @classmethod
    def of_file(
        cls, path: Path, without: str, *, start_row: int = 0, n_rows: int | None = None, state: FileState | None = None
    ) -> ColumnsBeside:
        """Take every column of a parquet file but one, from a row on, as they are."""
        schema, _ = table_schema(path)
        position = schema.get_field_index(without) if without in schema.names else None
        others = schema if position is None else schema.remove(position)
        pandas = {name: value for name, value in (schema.metadata or {}).items() if name == b"pandas"}
        n_rows = n_rows or parquet_batch_rows(str(path), parquet_chunks(str(path), path))
        batches = table_batches(path, others.names, start_row, n_rows, state) if others.names else iter(())
        return cls(others.with_metadata(pandas), batches, without, position)

    def take(self, n_rows: int) -> Any:
        """Hand out the next rows."""
        pa = _extras.require("pyarrow")

        parts = []
        while n_rows and self.schema.names:
            held = next(self._batches) if self._held is None else self._held
            part = held.slice(0, n_rows)
            parts.append(part)
            n_rows -= len(part)
            self._held = held.slice(len(part)) if len(part) < len(held) else None
        return pa.Table.from_batches(parts, self.schema)


@contextmanager
def writing_parquet(
    path: Path, dim: int, dtype: str, metadata: Mapping[str, str], beside: ColumnsBeside | None
) -> Iterator[Callable[[NDArray[Any]], None]]:
    """Write a table with a column of fixed-size lists for the vectors, one row group per block."""
    pa = _extras.require("pyarrow")
    pq = _extras.require("pyarrow.parquet")

    beside = beside or ColumnsBeside(pa.schema([]), iter(()))
    field = pa.field(beside.name, pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), dim))
    extended = dict(beside.schema.metadata or {}) | {name.encode(): value.encode() for name, value in metadata.items()}
    schema = beside.schema.insert(beside.position, field).with_metadata(extended)

    def write(rows: NDArray[Any]) -> None:
        flat = pa.array(np.ascontiguousarray(rows, dtype).ravel())
        columns = beside.take(len(rows)).columns
        columns.insert(beside.position, pa.FixedSizeListArray.from_arrays(flat, dim))
        writer.write_table(pa.Table.from_arrays(columns, schema=schema), max(1, len(rows)))

    settings = {"use_dictionary": beside.schema.names, "write_page_checksum": True}
    with path.open("wb") as file:
        hashing = HashingFile(file)
        with pq.ParquetWriter(hashing, schema, **settings) as writer:
            yield write
            # between the last column and the metadata, where no reader looks: what lies in the metadata itself is
            # copied by tools that rewrite a table, and would then be the checksum of another file
            seal_at = hashing.tell() + len(SEAL_MARK)
            hashing.write(SEAL_MARK + UNSEALED.encode())
    seal_file(path, seal_at, hashing.checksum)
