"""A folder of shards, here or on another machine, and its index ``shards.json``, which says what the folder holds.

The index is written before the first shard and after each one that is complete, so that a killed job resumes. Its
`plan` follows from the inputs and the `Sharding` alone: every shard has a fixed place in its input and a fixed name.
`isosent.jobs.shards` makes the shards, and `isosent.io.vectors` opens a complete folder as one file.
"""

from __future__ import annotations

import os
import re
from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from isosent import _check
from isosent.errors import FileFormatError, InputError, IsosentError, OutputError, without_passwords
from isosent.io.atomic import check_parent, is_temporary, locked, sweep
from isosent.io.formats import FORMATS, NOTES, Holds, format_by_name
from isosent.io.json import check_format, check_schema, format_of, read_json, write_document
from isosent.io.notes import INDEX_FILE
from isosent.io.remote import (
    destination,
    exists,
    files_in,
    is_folder,
    is_remote,
    is_upload,
    local_copies,
    path_in,
    sizes,
    sweep_uploads,
)
from isosent.io.schemas import Checksum, Count, Positive, Sha256, Text
from isosent.space import Space
from isosent.storage import WRITTEN, Storage

SHARDS_FORMAT, SHARDS_VERSION = "isosent-shards", 2
SHARD_FORMATS = ("npy", "parquet")
SHARD_SIZE = 100_000
LOCK_FILE = ".shards.lock"

_GLOB: Final = re.compile(r"[*?\[]")


class Sharding(Struct, frozen=True, forbid_unknown_fields=True):
    """How vectors are cut into shards; the last shard may have fewer."""

    shard_size: int = SHARD_SIZE
    file_format: str = "npy"
    dtype: str = Storage.float32

    def __post_init__(self) -> None:
        _check.whole_number("Sharding", "shard_size", self.shard_size, 1)
        _check.one_of("Sharding", "file_format", self.file_format, SHARD_FORMATS)
        _check.one_of("Sharding", "dtype", self.dtype, WRITTEN)


class InputFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A file that shards are made from."""

    name: Text
    n_rows: Count
    sha256: Sha256  # of its texts in their order, or of 64 stretches of a file of vectors
    state: tuple[Count, int] | None = None  # its size and the time of its last change, by which it is known at once
    checksum: Checksum | None = None  # of a table whose other columns are written beside the vectors


Counter = Literal["n_texts", "n_cut", "n_tokens", "n_unknown", "n_zero_rows"]


class ShardRecord(Struct, frozen=True, forbid_unknown_fields=True):
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
    shards: tuple[ShardRecord | None, ...]  # None: not yet
    role: str = "text"  # what the texts were encoded as: text, query or document
    computed_in: str = Storage.float32  # number type that they were encoded in, whatever is written
    holds: Literal["vectors", "moments"] = "vectors"
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
        return [number for number, record in enumerate(self.shards) if record is None]

    @property
    def n_rows_written(self) -> int:
        """Vectors of the shards that are complete."""
        return sum(shard.n_rows for shard, record in zip(self.plan, self.shards, strict=True) if record)

    @property
    def is_complete(self) -> bool:
        """Whether all shards are there."""
        return None not in self.shards

    @property
    def counts(self) -> dict[Counter, int]:
        """Sum over the shards that are complete."""
        counts: Tally[Counter] = Tally()
        for record in self.shards:
            counts.update(record.counts if record else {})
        return dict(counts)

    def shard_name(self, number: int) -> str:
        """Name of a shard."""
        ending = self.sharding.file_format if self.holds == "vectors" else "safetensors"
        return f"part-{number:05d}.{ending}"

    def with_shards(self, records: Mapping[int, ShardRecord | None]) -> ShardIndex:
        """Count more shards as complete, or as missing."""
        return replace(self, shards=tuple(records.get(number, old) for number, old in enumerate(self.shards)))


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


def read_index(folder: str | os.PathLike[str]) -> ShardIndex | None:
    """Read the index of a folder of shards; None if there is none."""
    path = path_in(folder, INDEX_FILE)
    if not exists(path):
        return None
    with local_copies([path]) as ([copy], _):
        try:
            document = read_json(copy)
            check_format(document, copy, SHARDS_FORMAT, SHARDS_VERSION)
            check_schema(document, copy, _Head)
            fields = {name: value for name, value in document.items() if name not in _Head.__struct_fields__}
            index = check_schema(fields, copy, ShardIndex)
            n_planned = sum(-(-file.n_rows // index.sharding.shard_size) for file in index.inputs)
            if index.n_shards != n_planned:  # a plan of any length would not fit in memory
                raise FileFormatError(f"{copy} lists {index.n_shards} shards. Expected {n_planned}.")
        except FileNotFoundError:
            return None
        except InputError as error:
            raise FileFormatError(f"{error} Remove the folder, or name another one.") from None
    return index


def write_index(folder: str | os.PathLike[str], index: ShardIndex) -> None:
    """Write the index of a folder of shards, replacing the existing one."""
    head = {"format": SHARDS_FORMAT, "format_version": SHARDS_VERSION, "isosent_version": version("isosent")}
    facts = msgspec.to_builtins(index)
    shards = facts.pop("shards")  # a long list, last
    for file in facts["inputs"]:
        file["name"] = without_passwords(file["name"])
    with destination(os.fspath(folder), INDEX_FILE) as path:
        write_document(path, head | facts | {"is_complete": index.is_complete, "shards": shards})


def check_complete(folder: str | os.PathLike[str], index: ShardIndex) -> None:
    """Refuse a folder in which shards are missing, as its index says."""
    if not index.is_complete:
        raise FileFormatError(
            f"{folder} has only {index.n_shards - len(index.missing)} of its {index.n_shards} shards. "
            "Run the same command again to resume."
        )


# -- a folder that shards are written to -----------------------------------------------------------------------------


def check_shard_folder(folder: str | os.PathLike[str]) -> None:
    """Refuse a place where no shards can be written, before any work is done."""
    path = Path(folder)
    if is_remote(folder):
        names = [name for name in sizes(os.fspath(folder)) if not is_upload(name)]
    elif not path.exists():
        check_parent(path)
        return
    elif not path.is_dir():
        raise OutputError(f"{folder} is a file. Name a folder, or a file that ends in .npy, .fvecs or .parquet.")
    else:
        check_parent(path / INDEX_FILE)
        names = [each.name for each in path.iterdir() if not is_temporary(each.name) and each.name != LOCK_FILE]
    if names and INDEX_FILE not in names:
        raise OutputError(
            f"{folder} holds something else, such as {min(names)}, and no {INDEX_FILE}. Name a new or empty folder."
        )


@contextmanager
def locked_shards(folder: str) -> Iterator[None]:
    """Create a folder if it does not exist, and lock it for this process. Folders elsewhere have no locks."""
    if is_remote(folder):
        sweep_uploads(folder)
        yield
        return
    path = Path(folder)
    is_new = not path.exists()
    try:
        path.mkdir(exist_ok=True)
        lock = path / LOCK_FILE  # workers lock the folder itself, each for a moment
        lock.touch()
        with locked(lock, wait=False, of=path):
            try:
                check_shard_folder(path)
                sweep(path)
                yield
                for each in list(path.iterdir()):  # what workers on other machines left: nobody writes any more
                    if is_temporary(each.name):
                        each.unlink(missing_ok=True)
            finally:
                sweep(path)  # what workers left that were ended
                lock.unlink(missing_ok=True)
                if is_new and not any(path.iterdir()):
                    path.rmdir()
    except OSError as error:
        if isinstance(error, IsosentError):
            raise
        raise OutputError(f"{path} could not be written: {error.strerror or error}.") from error


# -- the inputs of a job ---------------------------------------------------------------------------------------------


def input_paths(patterns: Sequence[str], *holds: Holds, as_parts: bool = True) -> list[str]:
    """List the files that are named: files, the files of a folder that may hold one of these, and globs.

    A folder of shards is one input; elsewhere its parts are, in their order, unless `as_parts` is false.
    """
    inputs: list[str] = []
    endings = tuple(each.ending for each in FORMATS if set(holds) & set(each.holds) and each.ending != NOTES)
    for pattern in patterns:
        base, _, name = pattern.rpartition("/")
        if is_folder(pattern):
            paths = _inputs_in(pattern, endings, as_parts)
        elif _GLOB.search(pattern) and not exists(pattern):
            if _GLOB.search(base) and not is_folder(base):
                raise InputError(f"{pattern}: only the last part of a path may hold *, ? or [.")
            paths = sorted(path for path in files_in(base or ".") if fnmatchcase(path.rpartition("/")[2], name))
        else:
            inputs.append(pattern)
            continue
        if not paths:
            raise InputError(f"{pattern}: no file there, or none that ends in {', '.join(endings)}.")
        inputs += paths
    return inputs


def _inputs_in(folder: str, endings: tuple[str, ...], as_parts: bool) -> list[str]:
    if not is_remote(folder) and format_of(Path(folder) / "manifest.json") == "isosent-index":
        raise InputError(f"{folder} is an index. Name the texts or vectors that it was made of.")
    if is_remote(folder) and as_parts and (index := read_index(folder)):
        check_complete(folder, index)
        names = [index.shard_name(number) for number in range(index.n_shards)]
        return [path_in(folder, name) for name in names if name.endswith(endings)]
    if exists(path_in(folder, INDEX_FILE)) or format_by_name(folder).is_typed:
        return [folder]
    if not is_remote(folder) and exists(path_in(folder, "dataset_dict.json")):
        _check.input_file(folder)  # names its splits
    return sorted(path for path in files_in(folder) if path.lower().endswith(endings))
