"""Files of vectors: opened by their extension, and written block by block, with a note or a checksum inside.

`holds_vectors` says whether a file holds vectors or texts, and `open_vectors` opens one of vectors: with the module of
its format (`isosent.io.formats`), by what `isosent.io.columns` sees in its columns, or a complete folder of shards as
if it were one file. `writing_vectors` writes one, with that module or with `isosent.io.typed_tables`.
"""

from __future__ import annotations

import os
import warnings
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike, NDArray

from isosent import _check, _extras
from isosent._check import brief
from isosent.errors import FileFormatError, InputError, IsosentWarning, option
from isosent.io.atomic import check_destination, fsync, locked, replacing
from isosent.io.checksum import HashingFile, file_checksum
from isosent.io.columns import LINES, Contents, contents_of, incomplete_vector, open_rows, warn_unread
from isosent.io.formats import FORMATS, Format, format_by_name, listed
from isosent.io.json_lists import open_lists
from isosent.io.notes import INDEX_FILE, note_entry, note_path, older_entry, write_note
from isosent.io.remote import is_folder
from isosent.io.shards import ShardIndex, ShardRecord, check_complete, read_index
from isosent.io.signatures import refuse_other_file
from isosent.io.tables import open_table
from isosent.io.texts import is_table, read_labels
from isosent.io.typed_tables import (
    VECTOR_COLUMN,
    OtherColumns,
    list_storage,
    open_column,
    table_schema,
    writing_parquet,
)
from isosent.io.vector_source import VectorSource, Write, in_blocks
from isosent.space import Space
from isosent.storage import CODES, WRITTEN, Storage


def open_vectors(
    path: str | os.PathLike[str] | VectorSource, *, column: str | None = None, are_queries: bool = False
) -> VectorSource:
    """Open a file of vectors, or a folder of shards, unless it is open.

    Of a table, a column is chosen by its content if it is not named; of a file of lines, each is a vector. A file of
    ann-benchmarks holds vectors and queries, which are opened for `are_queries`.
    """
    if isinstance(path, VectorSource):
        return path
    index = read_index(path) if is_folder(path) else None
    if index is not None:
        return _open_folder(Path(path), index, column)
    file = _check.input_file(path)
    read = partial(read_labels, file) if is_table(file) else None
    try:
        file_format = _readable_format(file)
        if file_format.module:
            reader = file_format.reader
            source: VectorSource = (
                reader.open_vectors(file, column, are_queries=are_queries)
                if "neighbors" in file_format.holds
                else reader.open_vectors(file, column)
            )
            return source
        if contents_of(file).are_lists:
            return replace(open_lists(file, column), read_labels=read)
        name, contents = _chosen_column(file, column)
        is_stored_list = file_format.is_typed and _is_stored_list(file, name)
        source = open_column(file, name) if is_stored_list else open_rows(file, name)
        return replace(source, read_labels=read, text_columns=contents.texts)
    except PermissionError as error:
        raise FileFormatError(f"{file} could not be read: {error.strerror}.") from error
    except (FileFormatError, InputError):
        refuse_other_file(file)  # better says what it is than what is missing
        raise


def source_of(
    vectors: ArrayLike | str | os.PathLike[str] | VectorSource,
    *,
    where: str,
    name: str = "vectors",
    are_queries: bool = False,
) -> VectorSource:
    """Vectors as callers of Python have them: an array or tensor, lists, a column of lists, a path, an open source.

    A public function calls this once, and hands the source on. Messages call an array `name`, and begin with `where`.
    """
    if isinstance(vectors, (str, os.PathLike, VectorSource)):
        return open_vectors(vectors, are_queries=are_queries)
    return VectorSource.of_array(_check.matrix(where, name, vectors), where, name)


def holds_vectors(path: str | os.PathLike[str], *, column: str | None = None) -> bool:
    """Whether a file, or a column of it, holds vectors rather than texts; `isosent.io.source` is who asks.

    Vectors go before texts; if a table has both and no column is named, a warning says which are used. Standard input
    holds texts.
    """
    file = Path(path)
    file_format = _readable_format(file)
    if is_folder(path) and not file_format.is_typed:
        return (file / INDEX_FILE).exists()
    if file_format.module:
        return True
    if file_format.rows == "objects" or file_format.is_typed:
        file = _check.input_file(file)
    if not file.is_file() or not file.stat().st_size:
        return False
    try:
        contents = contents_of(file)
    except (FileFormatError, InputError):
        refuse_other_file(file)
        raise
    if contents.are_lists:
        return True
    if column is not None:
        if column in contents.incomplete:
            raise incomplete_vector(file, column)
        return column != LINES and column in (*contents.vectors, *contents.lists)
    if contents.incomplete and not contents.vectors:
        raise incomplete_vector(file, contents.incomplete[0])
    if len(contents.vectors) == 1 and contents.prose and not contents.is_ours:
        [vectors], texts = contents.vectors, ", ".join(contents.texts)
        warnings.warn(
            f"{path}: the vectors in its column {vectors} are used; its texts or labels in {texts} are not "
            f"encoded. To encode texts: {option('column', contents.prose[0])}, or a file of the texts alone.",
            IsosentWarning,
            stacklevel=4,  # where the source is opened
        )
    warn_unread(path, contents)
    return bool(contents.vectors)


def _is_stored_list(file: Path, column: str) -> bool:
    schema, _ = table_schema(file)
    return column in schema.names and list_storage(schema.field(column).type) is not None


def _chosen_column(file: Path, column: str | None) -> tuple[str, Contents]:
    """The column of vectors that is named, or the only one; `LINES` for lines of numbers. And what the others hold."""
    contents = contents_of(file)
    if column is None:
        if len(contents.vectors) == 1:
            return contents.vectors[0], contents
        if contents.vectors:
            raise InputError(
                f"{file} has {len(contents.vectors)} columns of vectors ({', '.join(contents.vectors)}). "
                f"Choose one: {option('column', 'NAME')}."
            )
        if contents.incomplete:
            raise incomplete_vector(file, contents.incomplete[0])
        raise _no_vectors_error(file, contents)
    if column in contents.incomplete:
        raise incomplete_vector(file, column)
    if column == LINES or LINES in contents.vectors or not is_table(file):
        raise InputError(f"{file} has no columns, so there is no {column!r}. Leave it out.")
    if column not in (*contents.vectors, *contents.lists):
        columns = _types_of_columns(file)
        if column not in columns:
            raise InputError(f"{file} has no column {column}; it has: {_list_columns(columns)}.")
        kind = columns[column]
        raise InputError(f"{file}: column {column} holds no vectors{kind and ': its type is '}{kind}.")
    return column, contents


def _no_vectors_error(file: Path, contents: Contents) -> InputError:
    if is_table(file):
        found = _list_columns(_types_of_columns(file))
        names = ", ".join(contents.lists)
        advice = f" Name one of {names} if it is: {option('column', 'NAME')}." if contents.lists else ""
        return FileFormatError(f"{file} has no column of vectors, lists of numbers; it has: {found}.{advice}")
    endings = listed(each for each in FORMATS if "vectors" in each.holds)
    return InputError(f"{file} is no file of vectors. Use one that ends in {endings}.")


def _types_of_columns(file: Path) -> dict[str, str]:
    if format_by_name(file).is_typed:
        return {field.name: str(field.type) for field in table_schema(file)[0]}
    with open_table(file, header=True) as table:
        return dict.fromkeys(table.columns, "")


def _list_columns(columns: Mapping[str, str]) -> str:
    return brief(", ".join(name + (kind and f" ({kind})") for name, kind in columns.items()), 600)


def _readable_format(path: Path) -> Format:
    file_format = format_by_name(path)
    if file_format.refusal:
        raise InputError(f"{path} {file_format.refusal}")
    return file_format


def open_shard(folder: Path, index: ShardIndex, number: int) -> VectorSource:
    """Open a shard that is whole."""
    source = open_vectors(folder / index.shard_name(number))
    actual = (source.n_rows, source.dim, source.storage, source.space)
    expected = (index.plan[number].n_rows, index.dim, index.sharding.dtype, index.space)
    if actual != expected:
        listed = ("{} x {} {} of the space {}".format(*facts) for facts in (expected, actual))
        raise FileFormatError("{}: expected {}, found {}. Encode again.".format(source.path, *listed))
    return source


def damaged_shards(folder: Path, index: ShardIndex) -> list[int]:
    """Numbers of the shards that are complete, but not as they were written."""

    def is_whole(number: int, written: ShardRecord) -> bool:
        try:
            if index.holds != "vectors":
                return file_checksum(folder / index.shard_name(number)) == written.checksum
            shard = open_shard(folder, index, number)
            shard.verify()
        except InputError:
            return False
        return shard.checksum == written.checksum

    return [number for number, written in enumerate(index.shards) if written and not is_whole(number, written)]


def _open_folder(folder: Path, index: ShardIndex, column: str | None) -> VectorSource:
    if index.holds != "vectors":
        raise FileFormatError(f"{folder} holds {index.holds}, not vectors. Name a folder that isosent encode wrote.")
    check_complete(folder, index)
    if column not in (None, VECTOR_COLUMN):
        raise InputError(f"{folder} holds shards of vectors, which have no column {column!r}. Leave it out.")
    shards = [open_shard(folder, index, number) for number in range(index.n_shards)]
    stops = list(accumulate(shard.n_rows for shard in index.plan))

    def read(start_row: int, block_rows: int) -> Iterator[NDArray[Any]]:
        first = bisect_right(stops, start_row)
        row = start_row - (stops[first - 1] if first else 0)

        def pieces() -> Iterator[NDArray[Any]]:
            for number, shard in enumerate(shards[first:]):
                shard.verify()
                yield from shard.read(0 if number else row, block_rows)

        return in_blocks(pieces(), block_rows)

    n_rows, storage = sum(shard.n_rows for shard in shards), Storage(index.sharding.dtype)
    return VectorSource(folder, n_rows, index.dim, storage, index.space, read)


def check_vector_file(path: str | os.PathLike[str], dtype: str = Storage.float32, *, are_codes: bool = False) -> None:
    """Refuse a file that `writing_vectors` cannot write, before any work is done."""
    file_format = format_by_name(path)
    if not file_format.written:
        endings = listed((each for each in FORMATS if each.written), " or ")
        raise InputError(f"{path}: vectors cannot be written to this kind of file. Use {endings}.")
    if are_codes:
        if not set(CODES) <= set(file_format.written):
            endings = listed((each for each in FORMATS if set(CODES) <= set(each.written)), " or ")
            raise InputError(f"{path}: codes can be written to an {endings} file only. Name one.")
    elif dtype not in WRITTEN:
        raise InputError(f"{path}: there is no dtype {dtype!r}. Choose one of {', '.join(WRITTEN)}.")
    elif dtype not in file_format.written:
        endings = listed((each for each in FORMATS if dtype in each.written), " or ")
        held = ", ".join(file_format.written)
        raise InputError(f"{path}: a {file_format.ending} file holds {held}, not {dtype}. Name a {endings} file.")
    if file_format.is_parquet:
        _extras.require("pyarrow")
    check_destination(path)


def columns_beside(source: VectorSource, output: str | os.PathLike[str]) -> OtherColumns | None:
    """What stands beside the vectors of a table, if the output can hold it with its types."""
    if not format_by_name(source.path).is_typed or not format_by_name(output).is_parquet:
        return None
    return OtherColumns.of_file(
        source.path, str(source.column), start_row=source.first_row, n_rows=source.block_rows, state=source.state
    )


@contextmanager
def writing_vectors(
    path: str | os.PathLike[str],
    shape: tuple[int, int],
    *,
    dtype: str = Storage.float32,
    space: Space | None = None,
    other_columns: OtherColumns | None = None,
    are_codes: bool = False,
) -> Iterator[Write]:
    """Write vectors under a temporary name, and rename the file when it is complete.

    A .parquet file keeps the space in its metadata. Next to any other file lies its note, ``FILE.isosent.json``, with
    the space and a checksum. The note is put in place first and describes the older file as well: whenever a run is
    killed, the note fits the existing file.
    """
    check_vector_file(path, dtype, are_codes=are_codes)
    path = Path(path).resolve()  # the note belongs to the file, not to a link to it
    file_format = format_by_name(path)
    if file_format.is_table:
        metadata = {} if space is None else space.metadata
        with replacing(path) as new, writing_parquet(new, shape[1], dtype, metadata, other_columns) as write:
            yield write
        return
    is_new = not path.exists()
    try:
        with ExitStack() as commit:
            with replacing(path) as temporary:
                with temporary.open("wb") as opened:
                    hashing = HashingFile(opened)
                    yield file_format.reader.writer(hashing, shape, dtype)
                fsync(temporary)
                entry = note_entry(temporary, hashing.checksum, {"shape": shape, "dtype": dtype}, space)
                # of two processes that write the same file, one puts array and note in place, then the other
                commit.enter_context(locked(path.parent))
                write_note(path, entry, older_entry(path))
            write_note(path, entry)
    except BaseException:
        if is_new and path.parent.is_dir():
            with locked(path.parent):
                if not path.exists():
                    note_path(path).unlink(missing_ok=True)
        raise
