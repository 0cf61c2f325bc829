"""Files of vectors: opened by their ending, written block by block, and cut into a folder of shards."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.errors import FileFormatError, InputError, OutputError
from isosent.io.atomic import check_destination, check_parent, fsync, is_temporary, locked, replacing, sweep
from isosent.io.checksum import HashingFile
from isosent.io.json import check_format, check_schema, read_json, write_document
from isosent.io.parquet import VECTOR_COLUMN, ColumnsBeside, open_parquet, vector_columns, writing_parquet
from isosent.io.schemas import Checksum, Count, Positive, Sha256, Text
from isosent.io.space import INDEX_FILE, Space, note_entry, note_path, older_entry, write_note
from isosent.io.vector_source import NUMBER_TYPES, VectorSource, in_blocks, open_npy, open_safetensors, open_vecs

_OPENERS: dict[str, Callable[[Path, str | None], VectorSource]] = {
    ".npy": open_npy,
    ".fvecs": open_vecs,
    ".bvecs": open_vecs,
    ".safetensors": open_safetensors,
    ".parquet": open_parquet,
}


VECTOR_ENDINGS = tuple(_OPENERS)  # of the files of a folder


def open_vectors(path: str | os.PathLike[str], *, column: str | None = None) -> VectorSource:
    """Open a file of vectors, or a folder of shards; nothing but headers is read yet."""
    index = read_index(Path(path)) if is_folder(path) else None
    if index is not None:
        return _open_folder(Path(path), index, column)
    file = _check.input_file(path)
    opener = _OPENERS.get(file.suffix.lower())
    if opener is None:
        raise InputError(f"{file} must end in {', '.join(_OPENERS)}; got {file.suffix or 'no ending'}.")
    try:
        return opener(file, column)
    except PermissionError as error:
        raise FileFormatError(f"{file} could not be read: {error.strerror}.") from error


def holds_vectors(path: str | os.PathLike[str], *, column: str | None = None) -> bool:
    """Whether a file holds vectors rather than texts, by its ending and, for a table, its columns."""
    if is_folder(path) and (Path(path) / INDEX_FILE).exists():
        return True
    ending = Path(path).suffix.lower()
    if ending != ".parquet":
        return ending in _OPENERS
    vectors = vector_columns(_check.input_file(path))
    if column is not None:
        return column in vectors
    return bool(vectors)


def open_shard(folder: Path, index: ShardIndex, number: int) -> VectorSource:
    """Open a shard that is whole."""
    source = open_vectors(folder / index.shard_name(number))
    actual = (source.n_rows, source.dim, source.dtype, source.space)
    expected = (index.plan[number].n_rows, index.dim, index.sharding.dtype, index.space)
    if actual != expected:
        listed = ("{} x {} {} of the space {}".format(*facts) for facts in (expected, actual))
        raise FileFormatError("{} must hold {}; it holds {}. Encode again.".format(source.path, *listed))
    return source


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a folder on this machine."""
    try:
        return Path(path).is_dir()
    except OSError:  # a name that is too long
        return False


def _open_folder(folder: Path, index: ShardIndex, column: str | None) -> VectorSource:
    if index.holds != "vectors":
        raise FileFormatError(f"{folder} must hold shards of vectors; it holds {index.holds}.")
    check_complete(folder, index)
    if column not in (None, VECTOR_COLUMN):
        raise InputError(f"{folder} holds shards of vectors; got column {column}. Leave it out.")
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

    number_type = NUMBER_TYPES[index.sharding.dtype]
    return VectorSource(folder, sum(shard.n_rows for shard in shards), index.dim, number_type, index.space, read)


def check_complete(folder: str | os.PathLike[str], index: ShardIndex) -> None:
    """Refuse a folder in which shards are missing, as its index says."""
    if not index.is_complete:
        raise FileFormatError(
            f"{folder} must hold all its shards; {index.n_shards - len(index.missing)} of {index.n_shards} are there. "
            "Run the same command again to resume."
        )


ENDINGS = (".npy", ".fvecs", ".parquet")

Write = Callable[[NDArray[Any]], None]


def check_vector_file(path: str | os.PathLike[str], dtype: str = "float32") -> None:
    """Refuse a file that `writing_vectors` cannot write, before any work is done."""
    ending = Path(path).suffix.lower()
    if ending not in ENDINGS:
        listed = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise InputError(f"{path} must end in {listed}; got {Path(path).suffix or 'no ending'}.")
    if dtype not in DTYPES:
        raise InputError(f"{path}: dtype must be one of {', '.join(DTYPES)}; got {dtype}.")
    if ending == ".fvecs" and dtype != "float32":
        raise InputError(f"{path}: a .fvecs file holds float32; got {dtype}. Name a .npy or .parquet file.")
    if ending == ".parquet":
        _extras.require("pyarrow")
    check_destination(path)


@contextmanager
def writing_vectors(
    path: str | os.PathLike[str],
    shape: tuple[int, int],
    *,
    dtype: str = "float32",
    space: Space | None = None,
    beside: ColumnsBeside | None = None,
) -> Iterator[Write]:
    """Write vectors under a temporary name, and rename the file when it is complete.

    A .parquet file keeps the space in its metadata. Beside any other file lies its note, ``FILE.isosent.json``, with
    the space and a checksum. The note is put in place first and describes the older file as well: whenever a run is
    killed, the note fits the file that is there.
    """
    check_vector_file(path, dtype)
    path = Path(path).resolve()  # the note belongs to the file, not to a link to it
    if path.suffix.lower() == ".parquet":
        metadata = {} if space is None else space.metadata
        with replacing(path) as temporary, writing_parquet(temporary, shape[1], dtype, metadata, beside) as write:
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


def _writing_npy(opened: HashingFile, shape: tuple[int, int], dtype: str) -> Write:
    """Write as `numpy.save` does, but through the file object, which reports a full disk where numpy does not."""
    stored = np.dtype(dtype).newbyteorder("<")
    header = {"descr": stored.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(cast("IO[bytes]", opened), header)

    def write(rows: NDArray[Any]) -> None:
        opened.write(np.ascontiguousarray(rows, stored).data)

    return write


def _writing_fvecs(opened: HashingFile, dim: int) -> Write:
    record = np.dtype([("dim", "<i4"), ("values", "<f4", (dim,))])

    def write(rows: NDArray[Any]) -> None:
        records = np.empty(len(rows), record)
        records["dim"], records["values"] = dim, rows
        opened.write(records.data)

    return write


# -- a folder of shards, and its index: which space and texts, how many shards ---------------------------------------


SHARDS_FORMAT, SHARDS_VERSION = "isosent-shards", 2
SHARD_FORMATS = ("npy", "parquet")
SHARD_SIZE = 100_000
DTYPES = ("float32", "float16")  # that vectors are written in

LOCK_FILE = ".shards.lock"

# what a killed run left behind: older versions gave their temporary files these names
_LEFT_BEHIND = re.compile(r"\.(shards|part-\d{5,}(\.npy\.isosent)?)-[0-9a-f]{8}\.tmp\.(json|npy|parquet)")


class Sharding(Struct, frozen=True, forbid_unknown_fields=True):
    """How vectors are cut into shards; the last shard may have fewer."""

    shard_size: int = SHARD_SIZE
    file_format: str = "npy"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        _check.whole_number("Sharding", "shard_size", self.shard_size, 1)
        _check.one_of("Sharding", "file_format", self.file_format, SHARD_FORMATS)
        _check.one_of("Sharding", "dtype", self.dtype, DTYPES)


class InputFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file that shards are made from."""

    name: Text
    n_rows: Count
    sha256: Sha256  # of its texts in their order, or of 64 stretches of a file of vectors
    state: tuple[Count, int] | None = None  # its size and the time of its last change, by which it is known at once
    checksum: Checksum | None = None  # of a table whose other columns are written beside the vectors


Counter = Literal["n_texts", "n_cut", "n_tokens", "n_unknown", "n_zero_rows"]


class Written(Struct, frozen=True, forbid_unknown_fields=True):
    """A shard that is complete."""

    checksum: Checksum
    size_bytes: Count
    counts: dict[Counter, Count]


class Shard(NamedTuple):
    """The rows of a shard."""

    number: int
    input: int  # the number of the file
    first_row: int  # in this file
    n_rows: int


class ShardIndex(Struct, frozen=True, forbid_unknown_fields=True):
    """What a folder of shards holds, or will hold."""

    space: Space
    dim: Positive
    inputs: tuple[InputFile, ...]
    sharding: Sharding
    shards: tuple[Written | None, ...]  # None: not yet
    role: str = "text"  # what the texts were encoded as: text, query or document
    computed_in: str = "float32"  # number type that they were encoded in, whatever is written
    holds: Literal["vectors", "moments", "radial moments"] = "vectors"  # the last of version 0.1 only
    column: str | None = None  # of the inputs

    @property
    def plan(self) -> Sequence[Shard]:
        """The rows of each shard: every file is cut into shards of the same size, but for its last one."""
        return _plan(tuple(file.n_rows for file in self.inputs), self.sharding.shard_size)

    @property
    def n_shards(self) -> int:
        """Shards, when all are there."""
        return len(self.shards)

    @property
    def missing(self) -> list[int]:
        """Numbers of the shards that are not there yet."""
        return [number for number, written in enumerate(self.shards) if written is None]

    @property
    def n_rows_written(self) -> int:
        """Vectors of the shards that are complete."""
        return sum(shard.n_rows for shard, written in zip(self.plan, self.shards, strict=True) if written)

    @property
    def is_complete(self) -> bool:
        """Whether all shards are there."""
        return None not in self.shards

    @property
    def counts(self) -> dict[Counter, int]:
        """Sum over the shards that are complete."""
        counts: Tally[Counter] = Tally()
        for written in self.shards:
            counts.update(written.counts if written else {})
        return dict(counts)

    def shard_name(self, number: int) -> str:
        """Name of a shard."""
        ending = self.sharding.file_format if self.holds == "vectors" else "safetensors"
        return f"part-{number:05d}.{ending}"

    def with_shards(self, written: Mapping[int, Written | None]) -> ShardIndex:
        """Count more shards as complete, or as missing."""
        shards = list(self.shards)
        for number, each in written.items():
            shards[number] = each
        return replace(self, shards=tuple(shards))


@lru_cache(maxsize=8)
def _plan(n_rows: tuple[int, ...], shard_size: int) -> Sequence[Shard]:
    cut = ((file, row, min(shard_size, n - row)) for file, n in enumerate(n_rows) for row in range(0, n, shard_size))
    return tuple(Shard(number, *rows) for number, rows in enumerate(cut))


class _Head(Struct):
    """The fields of the file that are not of the index."""

    format: str
    format_version: int
    is_complete: bool
    isosent_version: str | None = None
    checksum: Checksum | None = None


def check_shard_folder(folder: Path) -> None:
    """Refuse a place where no shards can be written, before any work is done."""
    if not folder.exists():
        check_parent(folder)
        return
    if not folder.is_dir():
        raise OutputError(f"{folder} must be a folder for shards; got a file. Name a folder, or a file with an ending.")
    check_parent(folder / INDEX_FILE)
    names = [] if (folder / INDEX_FILE).exists() else [path.name for path in folder.iterdir()]
    if not all(is_temporary(name) or name == LOCK_FILE or _LEFT_BEHIND.fullmatch(name) for name in names):
        raise OutputError(
            f"{folder} must be a new or empty folder, or one of shards with its {INDEX_FILE}; got something else. "
            "Name another one."
        )


def sweep_shards(folder: Path, *, of_all: bool = False) -> None:
    """Remove what a killed run left of a shard; `of_all` machines, when nobody writes any more."""
    sweep(folder)
    for path in list(folder.iterdir()):
        if _LEFT_BEHIND.fullmatch(path.name) or (of_all and is_temporary(path.name)):
            path.unlink(missing_ok=True)


def write_index(folder: Path, index: ShardIndex) -> None:
    """Write the index of a folder of shards, replacing the one that is there."""
    head = {"format": SHARDS_FORMAT, "format_version": SHARDS_VERSION, "isosent_version": version("isosent")}
    facts = msgspec.to_builtins(index)
    shards = facts.pop("shards")  # a long list, last
    write_document(folder / INDEX_FILE, head | facts | {"is_complete": index.is_complete, "shards": shards})


def read_index(folder: Path) -> ShardIndex | None:
    """Read the index of a folder of shards; None if there is none."""
    path = folder / INDEX_FILE
    try:
        document = read_json(path)
        check_format(document, str(path), SHARDS_FORMAT, SHARDS_VERSION)
        check_schema(document, str(path), _Head)
        fields = {name: value for name, value in document.items() if name not in _Head.__struct_fields__}
        index: ShardIndex = check_schema(fields, str(path), ShardIndex)
        n_planned = sum(-(-file.n_rows // index.sharding.shard_size) for file in index.inputs)
        if index.n_shards != n_planned:  # a plan of any length would not fit in memory
            raise FileFormatError(f"{path} must list {n_planned} shards; it lists {index.n_shards}.")
    except FileNotFoundError:
        return None
    except InputError as error:
        raise FileFormatError(f"{error} Remove the folder, or name another one.") from None
    return index
