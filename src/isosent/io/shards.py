"""A folder of vectors in shards, and its index: which space and texts the vectors belong to, and how many are there."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from isosent import _check
from isosent.errors import FileFormatError, InputError, OutputError
from isosent.io.atomic import check_parent, is_temporary, sweep
from isosent.io.json import check_format, check_schema, read_json, write_document
from isosent.io.schemas import Checksum, Count, Positive, Text
from isosent.io.space import Space

FORMAT = "isosent-shards"
FORMAT_VERSION = 1
INDEX_FILE = "shards.json"
SHARD_FORMATS = ("npy", "parquet")
SHARD_SIZE = 100_000
DTYPES = ("float32", "float16")  # that vectors are written in

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


class ShardTexts(Struct, frozen=True, forbid_unknown_fields=True):
    """The texts that the vectors are made of."""

    name: Text
    n_texts: Count
    sha256: str


Counter = Literal["n_texts", "n_cut", "n_tokens", "n_unknown", "n_zero_rows"]


class ShardIndex(Struct, frozen=True, forbid_unknown_fields=True):
    """What a folder of shards holds."""

    space: Space
    dim: Positive
    texts: ShardTexts
    sharding: Sharding
    role: str = "text"  # what the texts were encoded as: text, query or document
    computed_in: str = "float32"  # number type that they were encoded in, whatever is written
    n_written: Count = 0  # shards that are complete
    counts: dict[Counter, Count] = {}  # over the texts of these

    @property
    def n_shards(self) -> int:
        """Shards, when all are there."""
        return -(-self.texts.n_texts // self.sharding.shard_size)

    @property
    def n_rows_written(self) -> int:
        """Vectors of the shards that are complete."""
        return min(self.texts.n_texts, self.n_written * self.sharding.shard_size)

    @property
    def is_complete(self) -> bool:
        """Whether all shards are there."""
        return self.n_written == self.n_shards

    def shard_rows(self, number: int) -> int:
        """Vectors of a shard."""
        size = self.sharding.shard_size
        return min(size, self.texts.n_texts - number * size)

    def shard_name(self, number: int) -> str:
        """Name of a shard."""
        return f"part-{number:05d}.{self.sharding.file_format}"

    def with_next(self, counts: dict[Any, int]) -> ShardIndex:
        """Count one more shard as complete."""
        return replace(self, n_written=self.n_written + 1, counts=counts)


class _Head(Struct):
    """The fields of the file that are not of the index."""

    format: str
    format_version: int
    n_shards: Count
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
    if not all(is_temporary(name) or _LEFT_BEHIND.fullmatch(name) for name in names):
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


def write_index(folder: Path, index: ShardIndex) -> None:
    """Write the index of a folder of shards, replacing the one that is there."""
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "isosent_version": version("isosent")}
    tail = {"n_shards": index.n_shards, "is_complete": index.is_complete}
    write_document(folder / INDEX_FILE, head | msgspec.to_builtins(index) | tail)


def read_index(folder: Path) -> ShardIndex | None:
    """Read the index of a folder of shards; None if there is none."""
    path = folder / INDEX_FILE
    try:
        document = read_json(path)
        check_format(document, str(path), FORMAT, FORMAT_VERSION)
        check_schema(document, str(path), _Head)
        fields = {name: value for name, value in document.items() if name not in _Head.__struct_fields__}
        index: ShardIndex = check_schema(fields, str(path), ShardIndex)
        if index.n_written > index.n_shards:
            raise FileFormatError(f"{path}: n_written is {index.n_written} of {index.n_shards}.")
    except FileNotFoundError:
        return None
    except InputError as error:
        raise FileFormatError(f"{error} Remove the folder, or name another one.") from None
    return index
