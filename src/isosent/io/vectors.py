"""Files of vectors: opened by their extension, and written block by block, with a note or a checksum inside.

`holds_vectors` says whether a file holds vectors or texts, and `open_vectors` opens one of vectors: by its ending with
`isosent.io.vector_source`, by what `isosent.io.columns` sees in its columns, or a complete folder of shards as if it
were one file. `writing_vectors` writes .npy and .fvecs here, .parquet with `isosent.io.parquet`.
"""

from __future__ import annotations

import os
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent._check import brief
from isosent.errors import FileFormatError, InputError, IsosentWarning, option
from isosent.io.atomic import check_destination, fsync, locked, replacing
from isosent.io.checksum import HashingFile
from isosent.io.columns import LINES, Contents, contents_of, incomplete_vector, is_list_file, open_rows, warn_unread
from isosent.io.notes import INDEX_FILE, note_entry, note_path, older_entry, write_note
from isosent.io.parquet import (
    VECTOR_COLUMN,
    OtherColumns,
    list_storage,
    open_parquet,
    table_schema,
    writing_parquet,
)
from isosent.io.remote import is_folder
from isosent.io.shards import ShardIndex, check_complete, read_index
from isosent.io.signatures import refuse_other_file
from isosent.io.tables import ending_of, open_table
from isosent.io.texts import is_table, read_labels
from isosent.io.vector_source import (
    OPENERS,
    VectorSource,
    in_blocks,
    open_json,
)
from isosent.space import Space
from isosent.storage import WRITTEN, Storage

VECTOR_ENDINGS = (*OPENERS, ".parquet", ".jsonl", ".csv", ".tsv")  # of the files of a folder, where .json are notes


def open_vectors(path: str | os.PathLike[str] | VectorSource, *, column: str | None = None) -> VectorSource:
    """Open a file of vectors, or a folder of shards, unless it is open.

    Of a table, a column is chosen by its content if it is not named; of a file of lines, each is a vector.
    """
    if isinstance(path, VectorSource):
        return path
    index = read_index(path) if is_folder(path) else None
    if index is not None:
        return _open_folder(Path(path), index, column)
    file = _check.input_file(path)
    read = partial(read_labels, file) if is_table(file) else None
    try:
        if opener := OPENERS.get(ending_of(file)):
            return opener(file, column)
        _no_archive(file)
        if is_list_file(file):
            return replace(open_json(file, column), read_labels=read)
        name, contents = _chosen_column(file, column)
        is_stored_list = ending_of(file) == ".parquet" and _is_stored_list(file, name)
        source = open_parquet(file, name) if is_stored_list else open_rows(file, name)
        return replace(source, read_labels=read, text_columns=contents.texts)
    except PermissionError as error:
        raise FileFormatError(f"{file} could not be read: {error.strerror}.") from error
    except (FileFormatError, InputError):
        refuse_other_file(file)  # better says what it is than what is missing
        raise


def holds_vectors(path: str | os.PathLike[str], *, column: str | None = None) -> bool:
    """Whether a file, or a column of it, holds vectors rather than texts; `isosent.io.source` is who asks.

    Vectors go before texts; if a table has both and no column is named, a warning says which are used. Standard input
    holds texts.
    """
    if is_folder(path):
        return (Path(path) / INDEX_FILE).exists()
    file = Path(path)
    if ending_of(file) in OPENERS:
        return True
    _no_archive(file)
    if ending_of(file) in (".json", ".jsonl", ".parquet"):
        _check.input_file(file)
    if not file.is_file() or not file.stat().st_size:
        return False
    if is_list_file(file):
        return True
    try:
        contents = contents_of(file)
    except (FileFormatError, InputError):
        refuse_other_file(file)
        raise
    if column is not None:
        if column in contents.incomplete:
            raise incomplete_vector(file, column)
        return column != LINES and column in (*contents.vectors, *contents.lists)
    if contents.incomplete and not contents.vectors:
        raise incomplete_vector(file, contents.incomplete[0])
    if len(contents.vectors) == 1 and contents.texts and not contents.is_ours:
        [vectors], texts = contents.vectors, ", ".join(contents.texts)
        warnings.warn(
            f"{path}: the vectors in its column {vectors} are used; its texts or labels in {texts} are not "
            f"encoded. To encode texts: {option('column', contents.texts[0])}, or a file of the texts alone.",
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
                f"Choose one with {option('column', 'NAME')}."
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
    endings = ", ".join((*OPENERS, ".parquet", ".json", ".jsonl", ".csv", ".tsv"))
    return InputError(f"{file} is no file of vectors. Use one that ends in {endings}.")


def _types_of_columns(file: Path) -> dict[str, str]:
    if ending_of(file) == ".parquet":
        return {field.name: str(field.type) for field in table_schema(file)[0]}
    with open_table(file, header=True) as table:
        return dict.fromkeys(table.columns, "")


def _list_columns(columns: Mapping[str, str]) -> str:
    return brief(", ".join(name + (kind and f" ({kind})") for name, kind in columns.items()), 600)


def _no_archive(path: Path) -> None:
    if ending_of(path) == ".npz":
        raise InputError(f"{path} is an archive of arrays, not vectors. Save the array that holds them: numpy.save.")


def open_shard(folder: Path, index: ShardIndex, number: int) -> VectorSource:
    """Open a shard that is whole."""
    source = open_vectors(folder / index.shard_name(number))
    actual = (source.n_rows, source.dim, source.storage, source.space)
    expected = (index.plan[number].n_rows, index.dim, index.sharding.dtype, index.space)
    if actual != expected:
        listed = ("{} x {} {} of the space {}".format(*facts) for facts in (expected, actual))
        raise FileFormatError("{}: expected {}, found {}. Encode again.".format(source.path, *listed))
    return source


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


ENDINGS = (".npy", ".fvecs", ".parquet")

Write = Callable[[NDArray[Any]], None]


def check_vector_file(path: str | os.PathLike[str], dtype: str = Storage.float32, *, are_codes: bool = False) -> None:
    """Refuse a file that `writing_vectors` cannot write, before any work is done."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        listed = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise InputError(f"{path}: vectors cannot be written to this kind of file. Use {listed}.")
    if are_codes:
        if ending != ".npy":
            raise InputError(f"{path}: codes can be written to an .npy file only. Name one.")
    elif dtype not in WRITTEN:
        raise InputError(f"{path}: there is no dtype {dtype!r}. Choose one of {', '.join(WRITTEN)}.")
    if ending == ".fvecs" and dtype != Storage.float32:
        raise InputError(f"{path}: a .fvecs file holds float32, not {dtype}. Name a .npy or .parquet file.")
    if ending == ".parquet":
        _extras.require("pyarrow")
    check_destination(path)


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
    if path.suffix.lower() == ".parquet":
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
                    is_npy = path.suffix.lower() == ".npy"
                    yield _writing_npy(hashing, shape, dtype) if is_npy else _writing_fvecs(hashing, shape[1])
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


def _writing_npy(file: HashingFile, shape: tuple[int, int], dtype: str) -> Write:
    """Write as `numpy.save` does, but through the file object, which reports a full disk where numpy does not."""
    stored = np.dtype(dtype).newbyteorder("<")
    header = {"descr": stored.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(cast("IO[bytes]", file), header)

    def write(rows: NDArray[Any]) -> None:
        file.write(np.ascontiguousarray(rows, stored).data)

    return write


def _writing_fvecs(file: HashingFile, dim: int) -> Write:
    record = np.dtype([("dim", "<i4"), ("values", "<f4", (dim,))])

    def write(rows: NDArray[Any]) -> None:
        records = np.empty(len(rows), record)
        records["dim"], records["values"] = dim, rows
        file.write(records.data)

    return write
