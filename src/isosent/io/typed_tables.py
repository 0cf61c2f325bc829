"""Tables whose columns have types, .parquet, Arrow and data sets: opened alike, and vectors in one of their columns.

- `typed_table` opens one; `table_batches` reads columns of a file whose state is known.
- `open_column` opens a column of vectors, `read_integers` reads one of ids.
- `writing_parquet` writes vectors, with the `OtherColumns` of a table, and a checksum ahead of the footer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent._check import brief
from isosent.errors import FileFormatError, InputError
from isosent.io import bounds
from isosent.io.arrow import ArrowTable, DataSetTable
from isosent.io.checksum import UNSEALED, FileState, HashingFile, check_unchanged, file_state, seal_file
from isosent.io.formats import Format, data_set_folder, format_by_name
from isosent.io.parquet import SEAL_MARK, ParquetTable, find_seal
from isosent.io.system import open_to_read
from isosent.io.vector_source import Array, VectorSource, in_blocks
from isosent.space import Space
from isosent.storage import NUMPY, Storage

VECTOR_COLUMN = "vector"

_BATCH_BYTES = 4 << 20  # pyarrow needs five times as much to decode a batch of lists
_INTEGER_ROWS = 1 << 16
_SAMPLED_ROWS, _LEAST_BYTES = 64, 256


class TypedTable(Protocol):
    """An open table."""

    schema: Any  # of pyarrow
    n_rows: int

    def rows_at_once(self, names: Sequence[str] | None, *, is_streamed: bool = True) -> int:
        """How many rows of columns, or of all, fit in memory; refuses what would fill it."""

    def batches(
        self,
        names: Sequence[str] | None,
        *,
        start_row: int = 0,
        n_rows: int | None = None,
        is_streamed: bool = True,
    ) -> Iterator[Any]:
        """Read columns, or all, from a row on, at most `n_rows` at once.

        A reader that keeps one batch at a time, `is_streamed`, may read a file that unpacks to more than the memory.
        """


def typed_table(name: str, source: Path | BinaryIO, file_format: Format | None = None) -> TypedTable:
    """Open a table, by the format that its name says unless it is known."""
    if (folder := data_set_folder(name)) is not None:
        return DataSetTable(folder)
    is_parquet = (file_format or format_by_name(name)).is_parquet
    return ParquetTable(name, source) if is_parquet else ArrowTable(name, source)


def table_schema(path: Path) -> tuple[Any, int]:
    """Read what columns a table has, and how many rows."""
    table = typed_table(str(path), path)
    return table.schema, table.n_rows


def table_batches(
    path: Path,
    names: Sequence[str],
    *,
    start_row: int = 0,
    n_rows: int | None = None,
    state: FileState | None = None,
    is_streamed: bool = True,
) -> Iterator[Any]:
    """Read columns of a table; refuses a file that was replaced since it had a state."""
    table = typed_table(str(path), path)
    check_unchanged(path, state)
    yield from table.batches(names, start_row=start_row, n_rows=n_rows, is_streamed=is_streamed)


# -- columns of vectors, and of integers ------------------------------------------------------------------------------


def open_column(path: Path, name: str) -> VectorSource:
    """Open a column of lists of a number type, read batch by batch."""
    state = file_state(path)
    table = typed_table(str(path), path)
    schema = table.schema
    storage = list_storage(schema.field(name).type)
    assert storage is not None
    table.rows_at_once([name])
    dim = getattr(schema.field(name).type, "list_size", None) or _first_length(path, name)

    if storage is Storage.uint8:
        _refuse_bytes_of_floats(path, name)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        batch_rows = max(1, _BATCH_BYTES // (dim * storage.decoded_bytes))
        return in_blocks(_matrices(path, state, name, dim, start_row, batch_rows), block_rows)

    space = Space.in_metadata(schema.metadata or {})
    with open_to_read(path) as file:
        checksum, seal_at = find_seal(file)
    if dim > bounds.MOST_DIMENSIONS:
        raise FileFormatError(f"{path}: {dim:,} dimensions; vectors may have {bounds.MOST_DIMENSIONS:,} at most.")
    return VectorSource(
        path, table.n_rows, dim, storage, space, read, name, checksum=checksum, seal_at=seal_at, state=state
    )


def list_storage(kind: Any) -> Storage | None:
    """The number type of a column of vectors; None for any other column."""
    pa = _extras.require("pyarrow")

    if not any(test(kind) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)):
        return None
    return next((storage for storage in NUMPY if pa.from_numpy_dtype(storage.stored) == kind.value_type), None)


def _first_length(path: Path, name: str) -> int:
    """Length of the first list; 0 dimensions are no vectors."""
    for batch in table_batches(path, [name], n_rows=1):
        lists = batch.column(name)
        _refuse_nulls(path, name, lists, 0)
        if length := len(lists.flatten()):
            return length
        raise FileFormatError(f"{path}: the vectors in {name} have no dimensions.")
    raise FileFormatError(f"{path} holds no vectors.")


def _refuse_bytes_of_floats(path: Path, name: str) -> None:
    """Refuse lists of bytes that are float16 or bfloat16, as Milvus writes them to .parquet."""
    batch = next(table_batches(path, [name], n_rows=_SAMPLED_ROWS), None)
    values = np.empty(0, np.uint8) if batch is None else batch.column(name).flatten().drop_null().to_numpy()
    if len(values) % 2 or len(values) < _LEAST_BYTES:
        return
    high = values[1::2]  # signs, exponents and the first bits: of numbers below 4, and most are above 1/2^15
    magnitudes = high & 0x7F
    are_small = np.mean(magnitudes < 0x44) > 0.99 and 0x20 <= np.median(magnitudes) < 0x40
    if are_small and 0.2 < np.mean(high >= 0x80) < 0.8:
        raise FileFormatError(
            f"{path}: column {name} holds the bytes of float16 or bfloat16 numbers, as Milvus writes them, not vectors "
            "of uint8. Export the field as FLOAT_VECTOR, or unpack it with numpy.frombuffer and save that as .npy."
        )


def _matrices(path: Path, state: FileState, name: str, dim: int, start_row: int, n_rows: int) -> Iterator[Array]:
    row = start_row
    for batch in table_batches(path, [name], start_row=start_row, n_rows=n_rows, state=state):
        lists = batch.column(name)
        _refuse_nulls(path, name, lists, row)
        values = lists.flatten()
        if not hasattr(lists.type, "list_size"):
            lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
            wrong = np.flatnonzero(lengths != dim)
            if wrong.size:
                raise FileFormatError(
                    f"{path}: row {row + wrong[0]} of {name}, counted from 0, has {lengths[wrong[0]]} dimensions, and "
                    f"the first has {dim}."
                )
        yield values.to_numpy(zero_copy_only=False).reshape(len(lists), dim)
        row += len(lists)


def _refuse_nulls(path: Path, name: str, lists: Any, row: int) -> None:
    """Refuse a row without a vector, and a vector without a number."""
    for array, what in ((lists, "a vector"), (lists.flatten(), "a number")):
        if array.null_count:
            position = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
            owner = position if array is lists else int(lists.value_parent_indices()[position].as_py())
            raise FileFormatError(f"{path}: column {name} lacks {what} in row {row + owner}, counted from 0.")


def read_integers(path: Path, name: str, state: FileState | None = None) -> NDArray[np.int64]:
    """Read a column of integers, which fit into int64."""
    pa = _extras.require("pyarrow")

    schema, _ = table_schema(path)
    if name not in schema.names:
        raise InputError(f"{path} has no column {name}; it has: {brief(', '.join(schema.names), 600)}.")
    if not pa.types.is_integer(schema.field(name).type):
        raise InputError(f"{path}: column {name} holds no integers: its type is {schema.field(name).type}.")
    columns = [
        batch.column(name)
        for batch in table_batches(path, [name], n_rows=_INTEGER_ROWS, state=state, is_streamed=False)
    ]
    if any(column.null_count for column in columns):
        raise InputError(f"{path}: column {name} lacks an integer in some rows. Fill them.")
    try:
        arrays = [column.cast(pa.int64()).to_numpy() for column in columns]
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: column {name} does not hold whole numbers below 2^63: {brief(error)}.") from None
    return np.concatenate([np.empty(0, np.int64), *arrays])


# -- the other columns, and writing -----------------------------------------------------------------------------------


class OtherColumns:
    """The other columns of a table of vectors, taken in the order of the rows."""

    def __init__(
        self, schema: Any, batches: Iterator[Any], name: str = VECTOR_COLUMN, position: int | None = None
    ) -> None:
        self.schema, self.name = schema, name
        self.position = len(schema) if position is None else position
        self._batches, self._rest = batches, None

    @classmethod
    def of_rows(cls, schema: Any, rows: deque[Sequence[Any]]) -> OtherColumns:
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
                    raise InputError(f"a column next to the texts cannot be written to .parquet: {error}.") from None
                yield pa.record_batch(arrays, schema=schema)

        return cls(schema, batches())

    @classmethod
    def of_file(
        cls, path: Path, without: str, *, start_row: int = 0, n_rows: int | None = None, state: FileState | None = None
    ) -> OtherColumns:
        """Take every column of a table but one, from a row on, as they are."""
        schema, _ = table_schema(path)
        position = schema.get_field_index(without) if without in schema.names else None
        others = schema if position is None else schema.remove(position)
        pandas = {name: value for name, value in (schema.metadata or {}).items() if name == b"pandas"}
        batches = iter(())
        if others.names:
            batches = table_batches(path, others.names, start_row=start_row, n_rows=n_rows, state=state)
        return cls(others.with_metadata(pandas), batches, without, position)

    def take(self, n_rows: int) -> Any:
        """Hand out the next rows."""
        pa = _extras.require("pyarrow")

        parts = []
        while n_rows and self.schema.names:
            batch = next(self._batches) if self._rest is None else self._rest
            part = batch.slice(0, n_rows)
            parts.append(part)
            n_rows -= len(part)
            self._rest = batch.slice(len(part)) if len(part) < len(batch) else None
        return pa.Table.from_batches(parts, self.schema)


@contextmanager
def writing_parquet(
    path: Path, dim: int, dtype: str, metadata: Mapping[str, str], other_columns: OtherColumns | None
) -> Iterator[Callable[[NDArray[Any]], None]]:
    """Write a table with a column of fixed-size lists for the vectors, one row group per block."""
    pa = _extras.require("pyarrow")
    pq = _extras.require("pyarrow.parquet")

    other_columns = other_columns or OtherColumns(pa.schema([]), iter(()))
    field = pa.field(other_columns.name, pa.list_(pa.from_numpy_dtype(np.dtype(dtype)), dim))
    extended = dict(other_columns.schema.metadata or {})
    extended |= {name.encode(): value.encode() for name, value in metadata.items()}
    schema = other_columns.schema.insert(other_columns.position, field).with_metadata(extended)

    def write(rows: NDArray[Any]) -> None:
        flat = pa.array(np.ascontiguousarray(rows, dtype).ravel())
        columns = other_columns.take(len(rows)).columns
        columns.insert(other_columns.position, pa.FixedSizeListArray.from_arrays(flat, dim))
        writer.write_table(pa.Table.from_arrays(columns, schema=schema), max(1, len(rows)))

    settings = {"use_dictionary": other_columns.schema.names, "write_page_checksum": True}
    with path.open("wb") as file:
        hashing = HashingFile(file)
        with pq.ParquetWriter(hashing, schema, **settings) as writer:
            yield write
            # between the last column and the metadata, where no reader looks: what lies in the metadata itself is
            # copied by tools that rewrite a table, and would then be the checksum of another file
            seal_at = hashing.tell() + len(SEAL_MARK)
            hashing.write(SEAL_MARK + UNSEALED.encode())
    seal_file(path, seal_at, hashing.checksum)
