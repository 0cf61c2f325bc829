"""Parquet tables: opened, read in batches that fit in memory, and the checksum of those that isosent wrote.

`ParquetTable` reads columns batch by batch. The footer says how far a file unpacks, so what would fill the memory is
refused unread; pyarrow does not describe all of a footer, and ends the process over a damaged one, so the second
section parses it. `find_seal` finds the checksum ahead of the footer. `isosent.io.typed_tables` opens and writes them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, NamedTuple

from isosent import _extras
from isosent.errors import FileFormatError
from isosent.io import bounds
from isosent.io.arrow import (
    BATCH_TEXT_BYTES,
    LARGEST_ROW,
    longest_repeated,
    plain_batch,
    plain_schema,
    reading_with_pyarrow,
)
from isosent.io.checksum import UNSEALED, open_file_checksum, require_checksum
from isosent.io.system import open_to_read

SEAL_MARK = b"isosent.checksum="

_READ_BUFFER_BYTES = 1 << 20
_BATCH_ROWS, _TIGHT_ROWS = 1024, 16
READABLE = "parquet file"  # in a message
_BYTE_ARRAY: Final = 6  # of the types in parquet.thrift
_VALUE_BYTES: Final = 4  # the least that a value takes in memory, but for truth values


# -- batches ---------------------------------------------------------------------------------------------------------


class ParquetTable:
    """An open parquet file."""

    def __init__(self, name: str, source: Path | BinaryIO) -> None:
        pq = _extras.require("pyarrow.parquet")

        with reading_with_pyarrow(name, READABLE):
            self._file = pq.ParquetFile(
                source, buffer_size=_READ_BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
            )
            self.schema, self.n_rows = plain_schema(self._file.schema_arrow), self._file.metadata.num_rows
        self._name, self._source = name, source

    def rows_at_once(self, names: Sequence[str] | None, *, is_streamed: bool = True) -> int:
        """How many rows of columns, or of all, fit in memory; refuses what would fill it.

        The whole file may not become far more than its bytes. Where the reader keeps one batch at a time,
        `is_streamed`, that holds for a row group, the most that is unpacked at once, and for a batch.
        """
        groups = _row_group_chunks(self._name, self._source)
        return _batch_rows(self._name, groups, _top_columns(names), is_streamed=is_streamed)

    def batches(
        self,
        names: Sequence[str] | None,
        *,
        start_row: int = 0,
        n_rows: int | None = None,
        is_streamed: bool = True,
    ) -> Iterator[Any]:
        """Read columns, or all, from a row on, at most `n_rows` at once, or `rows_at_once`."""
        n_rows = n_rows or self.rows_at_once(names, is_streamed=is_streamed)
        columns, source, file = _top_columns(names), self._source, self._file
        n_packed = source.stat().st_size if isinstance(source, Path) else source.seek(0, os.SEEK_END)
        most = max(bounds.FREELY_EXPANDED, bounds.LARGEST_EXPANSION * n_packed)
        stop = n_bytes = 0
        groups = _row_group_chunks(self._name, source)
        for group, chunks in zip(range(file.num_row_groups), groups, strict=False):
            row, stop = stop, stop + file.metadata.row_group(group).num_rows
            if stop <= start_row:
                continue
            with reading_with_pyarrow(f"{self._name}, row group {group} (rows {row} to {stop - 1}),", READABLE):
                read = [chunk for chunk in chunks if columns is None or chunk.column in columns]
                at_once = _rows_at_once(self._name, source, group, read, n_rows, n_in_group=max(1, stop - row))
                for batch in file.iter_batches(at_once, row_groups=[group], columns=names and list(names)):
                    n_bytes = batch.nbytes + (0 if is_streamed else n_bytes)
                    if n_bytes > most:
                        raise bounds.expands_too_far(self._name, n_bytes)
                    first, row = row, row + len(batch)
                    if row > start_row:
                        with reading_with_pyarrow(f"{self._name}, rows {first} to {row - 1},", READABLE):
                            batch.validate(full=True)  # such as texts that are no UTF-8
                            part = plain_batch(batch.slice(max(0, start_row - first)))
                        yield part


def _top_columns(names: Sequence[str] | None) -> set[str] | None:
    return None if names is None else {name.partition(".")[0] for name in names}


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
    name: str, source: Path | BinaryIO, group: int, chunks: Sequence[_Chunk], n_rows: int, *, n_in_group: int
) -> int:
    """At most `n_rows` rows of a row group, and fewer where each of them may repeat a long text."""
    pq = _extras.require("pyarrow.parquet")

    # A dictionary holds a text once, and a decoded batch holds it for each row. How long it is no footer says, so the
    # first row is read with its dictionary as it is stored. All rows that way would be slow where texts differ.
    repeating = {
        chunk.path: chunk.n_values
        for chunk in chunks
        if chunk.has_texts
        and chunk.has_dictionary
        and chunk.n_unpacked * max(n_rows, chunk.n_values // n_in_group) > BATCH_TEXT_BYTES
    }
    if not repeating:
        return n_rows
    longest = 1
    probe = pq.ParquetFile(source, read_dictionary=[*repeating], buffer_size=_READ_BUFFER_BYTES, pre_buffer=False)
    for batch in probe.iter_batches(1, row_groups=[group], columns=[*repeating], use_threads=False):
        longest = max(1, *map(longest_repeated, batch.columns))
        break
    row_bytes = longest * max(1, max(repeating.values()) // n_in_group)  # lists hold several
    if row_bytes > LARGEST_ROW:
        raise bounds.expands_too_far(name, row_bytes)
    return max(1, min(n_rows, BATCH_TEXT_BYTES // row_bytes))


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


def _row_group_chunks(name: str, source: Path | BinaryIO) -> Iterator[list[_Chunk]]:
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


# -- the checksum ----------------------------------------------------------------------------------------------------


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
