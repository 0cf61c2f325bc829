"""Parquet tables: read in batches that fit in memory, and vectors in one of their columns, written next to the others.

- `bounded_batches` reads columns batch by batch. The footer says how far a file unpacks, so what would fill the memory
  is refused unread; pyarrow does not describe all of a footer, and ends the process over a damaged one, so the second
  section parses it.
- `open_parquet` opens a column of vectors, `table_batches` any columns of a file whose state is known.
- `writing_parquet` writes vectors, with the `OtherColumns`, and a checksum ahead of the footer (`find_seal`).
"""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent._check import brief
from isosent.errors import FileFormatError, InputError, IsosentError
from isosent.io import bounds
from isosent.io.checksum import (
    UNSEALED,
    FileState,
    HashingFile,
    check_unchanged,
    file_state,
    open_file_checksum,
    require_checksum,
    seal_file,
)
from isosent.io.system import open_to_read, system_error
from isosent.io.vector_source import Array, VectorSource, in_blocks
from isosent.space import Space
from isosent.storage import NUMPY, Storage

VECTOR_COLUMN = "vector"
SEAL_MARK = b"isosent.checksum="

_READ_BUFFER_BYTES = 1 << 20
_BATCH_ROWS, _TIGHT_ROWS = 1024, 16
_BATCH_TEXT_BYTES = 64 << 20  # of a batch of texts, if each row repeats the longest
_LARGEST_ROW = 256 << 20  # of the texts of a list
_BATCH_BYTES = 4 << 20  # pyarrow needs five times as much to decode a batch of lists
_INTEGER_ROWS = 1 << 16
_BYTE_ARRAY: Final = 6  # of the types in parquet.thrift
_VALUE_BYTES: Final = 4  # the least that a value takes in memory, but for truth values


# -- batches ---------------------------------------------------------------------------------------------------------


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


def table_schema(path: Path) -> tuple[Any, int]:
    """Read what columns a table has."""
    pq = _extras.require("pyarrow.parquet")

    with reading_parquet(str(path)), pq.ParquetFile(path) as file:
        return file.schema_arrow, file.metadata.num_rows


def table_batches(
    path: Path,
    names: Sequence[str],
    *,
    start_row: int = 0,
    n_rows: int | None = None,
    state: FileState | None = None,
    is_streamed: bool = True,
) -> Iterator[Any]:
    """Read columns of a table, as `bounded_batches`; refuses a file that was replaced since it had a state."""
    pq = _extras.require("pyarrow.parquet")

    with pq.ParquetFile(
        path, buffer_size=_READ_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
    ) as file:
        check_unchanged(path, state)
        yield from bounded_batches(
            str(path), path, file, names, start_row=start_row, n_rows=n_rows, is_streamed=is_streamed
        )


def bounded_batches(
    name: str,
    source: Path | IO[bytes],
    file: Any,
    names: Sequence[str] | None,
    *,
    start_row: int = 0,
    n_rows: int | None = None,
    is_streamed: bool = False,
) -> Iterator[Any]:
    """Read columns of an open parquet file, or all, at most `n_rows` at once; refuses what would fill the memory.

    The whole file may not become far more than its bytes. Where the reader keeps one batch at a time, `is_streamed`,
    that holds for a row group, the most that is unpacked at once, and for a batch.
    """
    columns = None if names is None else {name.partition(".")[0] for name in names}
    if n_rows is None:
        n_rows = _batch_rows(name, _row_group_chunks(name, source), columns, is_streamed=is_streamed)
    n_packed = source.stat().st_size if isinstance(source, Path) else source.seek(0, os.SEEK_END)
    most = max(bounds.FREELY_EXPANDED, bounds.LARGEST_EXPANSION * n_packed)
    stop = n_bytes = 0
    for group, chunks in zip(range(file.num_row_groups), _row_group_chunks(name, source), strict=False):
        row, stop = stop, stop + file.metadata.row_group(group).num_rows
        if stop <= start_row:
            continue
        with reading_parquet(f"{name}, row group {group} (rows {row} to {stop - 1}),"):
            read = [chunk for chunk in chunks if columns is None or chunk.column in columns]
            at_once = _rows_at_once(name, source, group, read, n_rows, n_in_group=max(1, stop - row))
            for batch in file.iter_batches(at_once, row_groups=[group], columns=names and list(names)):
                n_bytes = batch.nbytes + (0 if is_streamed else n_bytes)
                if n_bytes > most:
                    raise bounds.expands_too_far(name, n_bytes)
                row += len(batch)
                if row > start_row:
                    yield batch.slice(max(0, len(batch) - (row - start_row)))


def _batch_rows(name: str, groups: Iterable[Iterable[_Chunk]], columns: set[str] | None, *, is_streamed: bool) -> int:
    """Rows to decode at once: few where they are packed tightly. Refuses what texts and vectors cannot be packed to."""
    sizes = []  # bytes unpacked and packed, of each row group
    for group in groups:
        chunks = [chunk for chunk in group if columns is None or chunk.column in columns]
        # A run of one value has a few bytes for any number of rows, and a row of lists can hold all of it.
        in_memory = (max(chunk.n_unpacked, _VALUE_BYTES * chunk.n_values * chunk.is_nested) for chunk in chunks)
        sizes.append((sum(in_memory), sum(chunk.n_packed for chunk in chunks)))
    if not is_streamed:
        sizes = [(sum(n_unpacked for n_unpacked, _ in sizes), sum(n_packed for _, n_packed in sizes))]
    tight = [n_unpacked for n_unpacked, n_packed in sizes if n_unpacked > bounds.LARGEST_EXPANSION * n_packed]
    if tight and max(tight) > bounds.FREELY_EXPANDED:
        raise bounds.expands_too_far(name, max(tight))
    return _TIGHT_ROWS if tight else _BATCH_ROWS


def _rows_at_once(
    name: str, source: Path | IO[bytes], group: int, chunks: Sequence[_Chunk], n_rows: int, *, n_in_group: int
) -> int:
    """At most `n_rows` rows of a row group, and fewer where each of them may repeat a long text."""
    pc = _extras.require("pyarrow.compute")
    pq = _extras.require("pyarrow.parquet")

    # A dictionary holds a text once, and a decoded batch holds it for each row. How long it is no footer says, so the
    # first row is read with its dictionary as it is stored. All rows that way would be slow where texts differ.
    repeating = {
        chunk.path: chunk.n_values
        for chunk in chunks
        if chunk.has_texts
        and chunk.has_dictionary
        and chunk.n_unpacked * max(n_rows, chunk.n_values // n_in_group) > _BATCH_TEXT_BYTES
    }
    if not repeating:
        return n_rows
    longest = 1
    probe = pq.ParquetFile(source, read_dictionary=[*repeating], buffer_size=_READ_BUFFER_BYTES, pre_buffer=False)
    for batch in probe.iter_batches(1, row_groups=[group], columns=[*repeating], use_threads=False):
        for texts in (texts for column in batch.columns for texts in _dictionaries(column)):
            longest = max(longest, pc.max(pc.binary_length(texts)).as_py() or 0)
        break
    row_bytes = longest * max(1, max(repeating.values()) // n_in_group)  # lists hold several
    if row_bytes > _LARGEST_ROW:
        raise bounds.expands_too_far(name, row_bytes)
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


# -- the footer of a file, a struct in the compact protocol of Thrift -------------------------------------------------


class _Chunk(NamedTuple):
    """What the footer of a parquet file says of a column in a row group."""

    path: str  # with a period before the name of each part of a nested column
    has_texts: bool  # or bytes
    has_dictionary: bool
    n_values: int
    n_unpacked: int  # bytes
    n_packed: int

    @property
    def is_nested(self) -> bool:
        """Whether a row can hold several values."""
        return self.column != self.path

    @property
    def column(self) -> str:
        """The column that it belongs to."""
        return self.path.partition(".")[0]


def _row_group_chunks(name: str, source: Path | IO[bytes]) -> Iterator[list[_Chunk]]:
    """Describe the columns of each row group; an open file stays where it is."""
    # pyarrow ends the process if it is asked for a column that a damaged footer does not describe. The footer is a
    # struct in the compact protocol of Thrift, whose fields are in parquet.thrift.
    with ExitStack() as stack:
        file = stack.enter_context(open_to_read(source)) if isinstance(source, Path) else source
        place, end = file.tell(), file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 8))
        length = int.from_bytes(file.read(4), "little")
        file.seek(max(0, end - 8 - length))
        if file is source:  # others read it meanwhile
            file = io.BytesIO(source.read(length))
            source.seek(place)
        try:
            for group in _group_structs(file):
                yield [_chunk(column[3]) for column in group[1]]
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError):
            raise FileFormatError(f"{name} is not a readable parquet file: its footer is damaged.") from None


def _chunk(facts: Mapping[int, Any]) -> _Chunk:
    path = ".".join(part.decode() for part in facts[3])
    return _Chunk(path, facts[1] == _BYTE_ARRAY, 11 in facts, *(max(0, facts[field]) for field in (5, 6, 7)))


def _group_structs(file: IO[bytes]) -> Iterator[dict[int, Any]]:
    """The items of a footer's field 4, one after the other: there may be many."""
    number = 0
    while head := file.read(1)[0]:
        number = number + (head >> 4) if head >> 4 else _zigzag(file)
        if number == 4:
            _, n_items = _thrift_list(file)
            yield from (_thrift_struct(file) for _ in range(n_items))
            return
        _thrift_value(file, head & 15)


def _thrift_struct(file: IO[bytes]) -> dict[int, Any]:
    """Fields of a struct in the compact protocol of Thrift, by their numbers."""
    fields: dict[int, Any] = {}
    number = 0
    while head := file.read(1)[0]:
        number = number + (head >> 4) if head >> 4 else _zigzag(file)
        fields[number] = _thrift_value(file, head & 15)
    return fields


def _thrift_value(file: IO[bytes], kind: int) -> Any:
    match kind:
        case 1 | 2:
            return kind == 1
        case 3:
            return _read_exactly(file, 1)
        case 4 | 5 | 6:
            return _zigzag(file)
        case 7:
            return _read_exactly(file, 8)
        case 8:
            return _read_exactly(file, _varint(file))
        case 9 | 10:
            item_kind, n_items = _thrift_list(file)
            if item_kind in (1, 2):  # a truth value has a byte of its own in a list
                return _read_exactly(file, n_items)
            return [_thrift_value(file, item_kind) for _ in range(n_items)]
        case 12:
            return _thrift_struct(file)
    raise ValueError(f"a value of type {kind}")


def _thrift_list(file: IO[bytes]) -> tuple[int, int]:
    """Type and number of the items of a list."""
    head = file.read(1)[0]
    return head & 15, head >> 4 if head >> 4 < 15 else _varint(file)


def _read_exactly(file: IO[bytes], n_bytes: int) -> bytes:
    content = file.read(min(n_bytes, bounds.LARGEST_DOCUMENT))
    if len(content) < n_bytes:
        raise ValueError("the footer ends too early")
    return content


def _varint(file: IO[bytes]) -> int:
    value = shift = 0
    while True:
        byte = file.read(1)[0]
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value
        if shift > 63:
            raise ValueError("a number has too many bytes")


def _zigzag(file: IO[bytes]) -> int:
    value = _varint(file)
    return value >> 1 ^ -(value & 1)


# -- columns of vectors, and of integers ------------------------------------------------------------------------------


def open_parquet(path: Path, name: str) -> VectorSource:
    """Open a column of lists of a number type, read row group by row group."""
    state = file_state(path)
    schema, n_rows = table_schema(path)
    storage = list_storage(schema.field(name).type)
    assert storage is not None
    _batch_rows(str(path), _row_group_chunks(str(path), path), {name.partition(".")[0]}, is_streamed=True)
    dim = getattr(schema.field(name).type, "list_size", None) or _first_length(path, name)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        batch_rows = max(1, _BATCH_BYTES // (dim * storage.decoded_bytes))
        return in_blocks(_matrices(path, state, name, dim, start_row, batch_rows), block_rows)

    space = Space.in_metadata(schema.metadata or {})
    with open_to_read(path) as file:
        checksum, seal_at = find_seal(file)
    if dim > bounds.MOST_DIMENSIONS:
        raise FileFormatError(f"{path}: {dim:,} dimensions; vectors may have {bounds.MOST_DIMENSIONS:,} at most.")
    return VectorSource(path, n_rows, dim, storage, space, read, name, checksum=checksum, seal_at=seal_at, state=state)


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


# -- writing, and the checksum --------------------------------------------------------------------------------------


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
        require_checksum(name, checksum, open_file_checksum(file, seal_at))
    file.seek(0)


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
        """Take every column of a parquet file but one, from a row on, as they are."""
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
