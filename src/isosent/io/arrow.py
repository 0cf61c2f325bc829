"""Tables of Arrow: files, which Feather is another name for, streams, and folders of streams; read batch by batch.

pyarrow unpacks a batch as a whole, and counts rows only then. So the messages that stand ahead of the batches are read
first: they say how many rows a batch has, and how many bytes it becomes (`_Batch`, from a flatbuffer), and what would
fill the memory is refused unread. Every batch is validated before it is used, as Arrow asks for files of others.
"""

from __future__ import annotations

import io
import mmap
import struct
import sys
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from msgspec import Struct
from msgspec import field as renamed

from isosent import _extras
from isosent._check import DATA_SET_FILE, brief
from isosent.errors import FileFormatError, IsosentError
from isosent.io import bounds
from isosent.io.json import check_schema, read_json
from isosent.io.schemas import FileName
from isosent.io.system import open_to_read, system_error

_MAGIC: Final = b"ARROW1"
_PADDING_BYTES: Final = 64  # that are looked at
_FOOTER_AT: Final = -10  # where the length of the footer of a file lies
_MOST_ROWS_A_BYTE: Final = 8  # of a batch: truth values
_BATCH_ROWS: Final = 1024
BATCH_TEXT_BYTES: Final = 64 << 20  # of a batch of texts, if each row repeats the longest
# what a damaged message raises here, and where a batch is missing
_OF_MESSAGES: Final = (struct.error, IndexError, ValueError, OverflowError, StopIteration)
LARGEST_ROW: Final = 256 << 20  # of the texts of a list


class ArrowTable:
    """An open file or stream of Arrow."""

    def __init__(self, name: str, source: Path | BinaryIO) -> None:
        pa = _extras.require("pyarrow")

        self._name, self._map = name, _mapped(source)
        self._content = content = pa.py_buffer(self._map)
        self._is_file = bytes(content[: len(_MAGIC)]) == _MAGIC
        if self._is_file and bytes(content[max(0, len(content) - len(_MAGIC)) :]) != _MAGIC:
            raise FileFormatError(f"{name} is truncated: it has no end of a table of Arrow. Copy it again.")
        with reading_with_pyarrow(name):
            reader = self._reader([])  # which checks the footer
            messages = _messages_of_file(name, content) if self._is_file else _messages_of_stream(name, content)
            self._batches = [_batch_of(message) for message in messages]
            self.n_rows = sum(batch.n_rows for batch in self._batches)
            self._stored, self.schema = reader.schema, plain_schema(reader.schema)

    def rows_at_once(self, names: Sequence[str] | None, *, is_streamed: bool = True) -> int:
        """How many rows fit in memory; refuses what would fill it: a batch, or all of the file unless `is_streamed`."""
        sizes = [batch.n_unpacked for batch in self._batches] or [0]
        n_unpacked = max(sizes) if is_streamed else sum(sizes)
        if n_unpacked > max(bounds.FREELY_EXPANDED, bounds.LARGEST_EXPANSION * len(self._content)):
            raise bounds.expands_too_far(self._name, n_unpacked)
        return _BATCH_ROWS

    def batches(
        self,
        names: Sequence[str] | None,
        *,
        start_row: int = 0,
        n_rows: int | None = None,
        is_streamed: bool = True,
    ) -> Iterator[Any]:
        """Read columns, or all, from a row on, at most `n_rows` at once, or `rows_at_once`."""
        bounded = self.rows_at_once(names, is_streamed=is_streamed)
        places = list(range(len(self.schema)))
        if names is not None:  # all columns where none of these exists
            tops = {name.partition(".")[0] for name in names} | set(names)
            places = [place for place in places if self.schema.names[place] in tops] or places
        self._refuse_kinds(places)
        counts = [batch.n_rows for batch in self._batches if not batch.is_dictionary]
        starts = list(accumulate(counts, initial=0))
        first = bisect_right(starts, start_row, hi=len(counts)) - 1 if counts else 0
        # columns are picked before they are unpacked; of a batch that is not packed, pyarrow would copy them
        is_packed = any(batch.is_packed for batch in self._batches)
        reader = self._reader(places if is_packed else [])
        stored = map(reader.get_batch, range(first, len(counts))) if self._is_file else islice(reader, first, None)
        for start, count in zip(starts[first:], counts[first:], strict=False):
            with reading_with_pyarrow(f"{self._name}, rows {start} to {start + count - 1},"):
                batch = next(stored)
                batch = batch if is_packed else batch.select(places)
                batch.validate(full=True)
                if len(batch) != count:
                    raise FileFormatError(f"{self._name} is damaged: a batch has {len(batch)} rows, and not {count}.")
                at_once, row = self._at_once(batch, n_rows or bounded), max(0, start_row - start)
                while row < count:
                    part = batch.slice(row, at_once)
                    yield plain_batch(part)
                    row += len(part)
                    if isinstance(self._map, mmap.mmap) and sys.platform != "win32":
                        self._map.madvise(mmap.MADV_DONTNEED)

    def _reader(self, places: Sequence[int]) -> Any:
        """A reader of some columns, or of all."""
        pa = _extras.require("pyarrow")
        ipc = _extras.require("pyarrow.ipc")

        open_reader = ipc.open_file if self._is_file else ipc.open_stream
        return open_reader(pa.BufferReader(self._content), options=ipc.IpcReadOptions(included_fields=list(places)))

    def _refuse_kinds(self, places: Sequence[int]) -> None:
        """Refuse columns whose rows may share values, so that nothing bounds what they become."""
        pa = _extras.require("pyarrow")

        for field in (self._stored.field(place) for place in places):
            for kind in _kinds_in(field.type):
                if any(map(kind.__class__.__name__.startswith, ("RunEndEncoded", "ListView", "LargeListView"))):
                    raise FileFormatError(
                        f"{self._name}: column {field.name} is of the type {brief(field.type)}. Write it as a plain "
                        f"{'list' if pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind) else 'column'}."
                    )

    def _at_once(self, batch: Any, n_rows: int) -> int:
        row_bytes = max((longest_repeated(column) for column in batch.columns), default=0)
        if row_bytes > LARGEST_ROW:
            raise bounds.expands_too_far(self._name, row_bytes)
        return max(1, min(n_rows, BATCH_TEXT_BYTES // max(1, row_bytes)))


# -- data sets of Hugging Face on disk, folders of streams -------------------------------------------------------------


class _DataFile(Struct):
    filename: FileName


class _State(Struct):
    """Which files hold the rows, in their order; the folder may hold others, such as copies of older rows."""

    data_files: list[_DataFile] = renamed(name="_data_files")
    indices_files: list[_DataFile] | None = renamed(name="_indices_data_files", default=None)


class DataSetTable:
    """An open data set in a folder, as `save_to_disk` writes it."""

    def __init__(self, folder: Path) -> None:
        path = folder / DATA_SET_FILE
        state = check_schema(read_json(path), str(path), _State)
        if state.indices_files:
            raise FileFormatError(f"{folder} holds an order of its rows apart. Save it again, after flatten_indices().")
        if not state.data_files:
            raise FileFormatError(f"{folder} is a data set without files. Save it again.")
        paths = [folder / file.filename for file in state.data_files]
        if missing := [path for path in paths if not path.is_file() or not path.stat().st_size]:
            raise FileFormatError(f"{missing[0]} is missing or empty. Copy the whole folder again.")
        self._tables = [ArrowTable(str(path), path) for path in paths]
        self.schema = self._tables[0].schema
        for table, path in zip(self._tables, paths, strict=True):
            if not table.schema.equals(self.schema):
                raise FileFormatError(f"{path} has other columns than {paths[0].name}. Save the data set again.")
        self.n_rows = sum(table.n_rows for table in self._tables)

    def rows_at_once(self, names: Sequence[str] | None, *, is_streamed: bool = True) -> int:
        """How many rows fit in memory; refuses what would fill it."""
        return min(table.rows_at_once(names, is_streamed=is_streamed) for table in self._tables)

    def batches(
        self,
        names: Sequence[str] | None,
        *,
        start_row: int = 0,
        n_rows: int | None = None,
        is_streamed: bool = True,
    ) -> Iterator[Any]:
        """Read columns, or all, from a row on, at most `n_rows` at once, or `rows_at_once`."""
        starts = accumulate((table.n_rows for table in self._tables), initial=0)
        for start, table in zip(starts, self._tables, strict=False):
            if start + table.n_rows > start_row:
                first = max(0, start_row - start)
                yield from table.batches(names, start_row=first, n_rows=n_rows, is_streamed=is_streamed)


# -- batches -----------------------------------------------------------------------------------------------------------


def longest_repeated(array: Any) -> int:
    """Bytes of the longest text of a column that several rows may share, times the texts of a row."""
    pa = _extras.require("pyarrow")
    pc = _extras.require("pyarrow.compute")

    kind = array.type
    if pa.types.is_dictionary(kind):
        texts = array.dictionary
        tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        if any(is_kind(texts.type) for is_kind in tests):
            return pc.max(pc.binary_length(texts)).as_py() or 0
        return int(texts.nbytes) if pa.types.is_nested(texts.type) else longest_repeated(texts)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        lengths = np.frombuffer(array.buffers()[1], "<i4")[4 * array.offset : 4 * (array.offset + len(array)) : 4]
        return int(lengths.max(initial=0))
    if pa.types.is_struct(kind):
        return max(map(longest_repeated, array.flatten()), default=0)
    if pa.types.is_nested(kind) and not pa.types.is_union(kind):  # lists and maps
        nested = (array.keys, array.items) if pa.types.is_map(kind) else (array.values,)
        return max(longest_repeated(each) * max(1, len(each) // max(1, len(array))) for each in nested)
    return 0


@contextmanager
def reading_with_pyarrow(where: str, what: str = "table of Arrow") -> Iterator[None]:
    """Turn what pyarrow raises for a damaged file into an error that names the place."""
    pa = _extras.require("pyarrow")

    try:
        yield
    except IsosentError:
        raise
    except (pa.ArrowException, OSError, EOFError, *_OF_MESSAGES) as error:
        if unreadable := system_error(error, where):
            raise unreadable from None
        reason = brief(error).rstrip(".") or "a batch is missing"
        raise FileFormatError(f"{where} is not a readable {what}: {reason}.") from None


def _mapped(source: Path | BinaryIO) -> Any:
    """The bytes of a file without reading them."""
    if isinstance(source, Path):
        with open_to_read(source) as file:
            return _mapped(file)
    try:
        return mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ)
    except io.UnsupportedOperation:  # it is in memory
        source.seek(0)
        return source.read()


def _kinds_in(kind: Any) -> Iterator[Any]:
    """A type, and those nested in it."""
    yield kind
    for place in range(kind.num_fields):
        yield from _kinds_in(kind.field(place).type)


# -- types that other libraries, and half of pyarrow, do not expect ----------------------------------------------------


def plain_schema(schema: Any) -> Any:
    """The types of columns after `plain_batch`."""
    pa = _extras.require("pyarrow")

    for kind in _kinds_in(pa.struct(list(schema))):  # names that are no UTF-8 are met here
        _ = [kind.field(place).name for place in range(kind.num_fields)]
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema], schema.metadata)


def plain_batch(batch: Any) -> Any:
    """Rows in which each text and list stands after the one before it: no views, and no list or struct by number."""
    pa = _extras.require("pyarrow")

    schema = plain_schema(batch.schema)
    return batch if schema == batch.schema else pa.record_batch(list(map(plain_column, batch.columns)), schema)


def plain_column(column: Any) -> Any:
    """The same of a column."""
    pa = _extras.require("pyarrow")

    kind = _plain_type(column.type)
    if kind == column.type:
        return column
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array(map(plain_column, column.chunks), kind)
    if pa.types.is_dictionary(column.type):  # which cast would take apart, or refuse
        values = plain_column(column.dictionary)
        if not pa.types.is_dictionary(kind):
            return values.take(column.indices)
        return pa.DictionaryArray.from_arrays(column.indices, values, ordered=kind.ordered)
    if any(map(_is_cast_wrongly, _kinds_in(column.type))):
        return pa.array(column.to_pylist(), kind)
    return column.cast(kind)


def _plain_type(kind: Any) -> Any:
    pa = _extras.require("pyarrow")

    types = pa.types
    if types.is_dictionary(kind):
        values = _plain_type(kind.value_type)
        return values if types.is_nested(values) else pa.dictionary(kind.index_type, values, kind.ordered)
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_plain_type(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_plain_type(kind.key_type), _plain_type(kind.item_type), kind.keys_sorted)
    if types.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)), kind.list_size)
    if types.is_list(kind) or types.is_list_view(kind):
        return pa.list_(kind.value_field.with_type(_plain_type(kind.value_type)))
    if types.is_large_list(kind) or types.is_large_list_view(kind):
        return pa.large_list(kind.value_field.with_type(_plain_type(kind.value_type)))
    return kind


def _is_cast_wrongly(kind: Any) -> bool:
    """Whether pyarrow takes other items for a part of the rows (views of lists), or cannot cast at all."""
    types = _extras.require("pyarrow").types

    is_nested_dictionary = types.is_dictionary(kind) and types.is_nested(kind.value_type)
    return is_nested_dictionary or types.is_list_view(kind) or types.is_large_list_view(kind)


# -- the messages ahead of batches, flatbuffers as Message.fbs describes them ------------------------------------------


class _Batch(NamedTuple):
    """What the message ahead of a batch says of it."""

    n_rows: int
    n_unpacked: int  # bytes
    is_dictionary: bool  # the texts of a column, and no rows
    is_packed: bool  # compressed


def _messages_of_stream(name: str, content: Any) -> Iterator[Any]:
    """Those up to the mark that ends a stream; refuses one without it, and one that others follow."""
    pa = _extras.require("pyarrow")
    ipc = _extras.require("pyarrow.ipc")

    source = pa.BufferReader(content)
    messages = ipc.MessageReader.open_stream(source)
    start = 0
    with suppress(StopIteration):
        while True:
            start = source.tell()
            message = messages.read_next_message()
            if message.type != "schema":
                yield message
    end = source.tell()
    if end == start:  # Arrow allows it, but a writer that was ended early leaves the same
        raise FileFormatError(
            f"{name} is truncated, or its writer was not closed: it has no mark at its end. Copy it again. If it is "
            "complete, read it with pyarrow.ipc.open_stream, and write it with pyarrow.feather.write_feather."
        )
    _refuse_more(name, content[end:])


def _refuse_more(name: str, rest: Any) -> None:
    """Refuse a second table, which pyarrow leaves unread, but not marks of the end and padding."""
    if bytes(rest[:_PADDING_BYTES]).strip(b"\xff\0"):
        raise FileFormatError(
            f"{name} holds more than a table of Arrow: {len(rest)} bytes follow its last row, such as another table. "
            "Write each table to a separate file."
        )


def _messages_of_file(name: str, content: Any) -> Iterator[Any]:
    """Those that the footer lists. Polars writes no stream between the magic bytes."""
    ipc = _extras.require("pyarrow.ipc")

    end = len(content) + _FOOTER_AT
    (n_footer,) = struct.unpack_from("<i", content[end:])
    footer = bytes(content[end - n_footer : end])
    root, last = _table_at(footer, 0), 0
    for field in (2, 3):  # dictionaries, then batches
        at, n_blocks = _vector_at(footer, _field(footer, root, field))
        for start, n_metadata, n_body in struct.iter_unpack("<qi4xq", footer[at : at + 24 * n_blocks]):
            yield ipc.read_message(content.slice(start, n_metadata + n_body))
            last = max(last, start + n_metadata + n_body)
    if last:
        _refuse_more(name, content[last : end - n_footer])


def _batch_of(message: Any) -> _Batch:
    metadata, body, is_dictionary = bytes(message.metadata), message.body, message.type == "dictionary"
    batch = _table_at(metadata, _field(metadata, _table_at(metadata, 0), 2))
    if is_dictionary:
        batch = _table_at(metadata, _field(metadata, batch, 1))
    at = _field(metadata, batch, 0)
    (n_rows,) = struct.unpack_from("<q", metadata, at) if at else (0,)
    n_unpacked, is_packed = len(body), bool(_field(metadata, batch, 3))
    if is_packed:  # each buffer begins with its length, or -1
        at, n_buffers = _vector_at(metadata, _field(metadata, batch, 2))
        n_unpacked = 0
        for offset, length in struct.iter_unpack("<qq", metadata[at : at + 16 * n_buffers]):
            if length >= 8:
                (size,) = struct.unpack("<q", bytes(body[offset : offset + 8]))
                n_unpacked += length if size == -1 else max(0, size)
    if n_rows < 0 or n_rows > _MOST_ROWS_A_BYTE * max(n_unpacked, 64):
        raise ValueError(f"a batch of {n_unpacked} bytes says that it has {n_rows} rows")
    return _Batch(0 if is_dictionary else n_rows, n_unpacked, is_dictionary, is_packed)


def _table_at(metadata: bytes, at: int) -> int:
    """Where the table lies that a place points to."""
    return at + int(struct.unpack_from("<I", metadata, at)[0])


def _vector_at(metadata: bytes, at: int) -> tuple[int, int]:
    """Where the items of a vector lie that a place points to, and how many there are; none where there is no place."""
    if not at:
        return 0, 0
    at = _table_at(metadata, at)
    return at + 4, int(struct.unpack_from("<I", metadata, at)[0])


def _field(metadata: bytes, table: int, number: int) -> int:
    """Where a field of a table lies; 0 if it is left out."""
    vtable = table - struct.unpack_from("<i", metadata, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", metadata, vtable)[0]:
        return 0
    (place,) = struct.unpack_from("<H", metadata, vtable + 4 + 2 * number)
    return table + int(place) if place else 0
