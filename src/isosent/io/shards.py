"""A folder of vectors in shards, and the index that tells whose they are and how many are there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from isosent import _check
from isosent.errors import FileFormatError, InputError, OutputError
from isosent.io.atomic import check_parent, is_temporary, sweep
from isosent.io.json import read_document, write_document
from isosent.io.number_types import DTYPES
from isosent.io.schemas import Shards
from isosent.io.space import Space

FORMAT = "isosent-shards"
FORMAT_VERSION = 1
INDEX_FILE = "shards.json"
SHARD_FORMATS = ("npy", "parquet")
SHARD_SIZE = 100_000

# what a killed run left behind: older versions gave their temporary files these names
_LEFT_BEHIND = re.compile(r"\.(shards|part-\d{5,}(\.npy\.isosent)?)-[0-9a-f]{8}\.tmp\.(json|npy|parquet)")


@dataclass(frozen=True, slots=True)
class Sharding:
    """How vectors are cut into shards."""

    shard_size: int = SHARD_SIZE  # vectors of a shard; the last one may have fewer
    file_format: str = "npy"  # one of `SHARD_FORMATS`
    dtype: str = "float32"  # type of their numbers, one of `DTYPES`

    def __post_init__(self) -> None:
        _check.whole_number("Sharding", "shard_size", self.shard_size, 1)
        _check.one_of("Sharding", "file_format", self.file_format, SHARD_FORMATS)
        _check.one_of("Sharding", "dtype", self.dtype, DTYPES)


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """What a folder of shards holds."""

    space: Space  # where the vectors belong
    dim: int  # their dimensions
    texts: Mapping[str, Any]  # ``name``, ``n_texts`` and ``sha256`` of the texts they are made of
    sharding: Sharding  # how they are cut
    role: str = "text"  # what the texts were encoded as: text, query or document
    computed_in: str = "float32"  # number type that they were encoded in, whatever is written
    n_written: int = 0  # shards that are whole
    counts: Mapping[str, int] = field(default_factory=dict)  # what was counted over the texts of these

    @property
    def n_shards(self) -> int:
        """Shards, when all are there."""
        return -(-int(self.texts["n_texts"]) // self.sharding.shard_size)

    @property
    def n_rows_written(self) -> int:
        """Vectors of the shards that are whole."""
        return min(int(self.texts["n_texts"]), self.n_written * self.sharding.shard_size)

    @property
    def is_complete(self) -> bool:
        """Whether all shards are there."""
        return self.n_written == self.n_shards

    def shard_rows(self, number: int) -> int:
        """Vectors of a shard."""
        size = self.sharding.shard_size
        return min(size, int(self.texts["n_texts"]) - number * size)

    def shard_name(self, number: int) -> str:
        """Name of a shard."""
        return f"part-{number:05d}.{self.sharding.file_format}"

    def with_next(self, counts: Mapping[str, int]) -> ShardIndex:
        """Count one more shard as whole."""
        return replace(self, n_written=self.n_written + 1, counts=counts)


def check_shard_folder(folder: Path) -> None:
    """Refuse a place where no shards can be written, before any work is done."""
    if not folder.exists():
        check_parent(folder)
        return
    if not folder.is_dir():
        raise OutputError(f"{folder} must be a folder for shards; got a file. Name a folder, or a file with an ending.")
    check_parent(folder / INDEX_FILE)
    if not (folder / INDEX_FILE).exists() and not all(_is_left_behind(path.name) for path in folder.iterdir()):
        raise OutputError(
            f"{folder} must be a new or empty folder, or one of shards with its {INDEX_FILE}; got something else. "
            "Name another one."
        )


def sweep_shards(folder: Path) -> None:
    """Remove what a killed run left of a shard."""
    sweep(folder)
    for path in list(folder.iterdir()):
        if _LEFT_BEHIND.fullmatch(path.name):
            path.unlink()


def _is_left_behind(name: str) -> bool:
    return is_temporary(name) or _LEFT_BEHIND.fullmatch(name) is not None


def write_index(folder: Path, index: ShardIndex) -> None:
    """Write the index of a folder of shards, replacing the one that is there."""
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "isosent_version": version("isosent")}
    tail = {"n_shards": index.n_shards, "is_complete": index.is_complete}
    write_document(folder / INDEX_FILE, head | asdict(index) | tail)


def read_index(folder: Path) -> ShardIndex | None:
    """Read the index of a folder of shards."""
    path = folder / INDEX_FILE
    try:
        document = read_document(path, FORMAT, FORMAT_VERSION, Shards)
        index = ShardIndex(
            space=Space(**document["space"]),
            sharding=Sharding(**document["sharding"]),
            **{name: document[name] for name in ("dim", "texts", "role", "computed_in", "n_written", "counts")},
        )
        if index.n_written > index.n_shards:
            raise InputError(f"{path}: n_written is {index.n_written} of {index.n_shards}.")
    except FileNotFoundError:
        return None
    except InputError as error:
        where = "" if str(error).startswith(str(path)) else f"{path}: "
        raise FileFormatError(f"{where}{error} Remove the folder, or name another one.") from None
    return index
