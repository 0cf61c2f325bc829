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
    """How vectors are cut into shards.

    Parameters
    ----------
    shard_size : int, default 100,000
        Vectors of a shard; the last one may have fewer.
    file_format : str, default "npy"
        One of `SHARD_FORMATS`.
    dtype : str, default "float32"
        Type of their numbers, one of `DTYPES`.

    Raises
    ------
    InputError
        If the size is below 1, or format or type is another one.
    """

    shard_size: int = SHARD_SIZE
    file_format: str = "npy"
    dtype: str = "float32"

    def __post_init__(self) -> None:
        _check.whole_number("Sharding", "shard_size", self.shard_size, 1)
        _check.one_of("Sharding", "file_format", self.file_format, SHARD_FORMATS)
        _check.one_of("Sharding", "dtype", self.dtype, DTYPES)


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """What a folder of shards holds.

    Parameters
    ----------
    space : Space
        Where the vectors belong.
    dim : int
        Their dimensions.
    texts : mapping
        ``name``, ``n_texts`` and ``sha256`` of the texts they are made of.
    sharding : Sharding
        How they are cut.
    role : str, default "text"
        What the texts were encoded as: text, query or document.
    computed_in : str, default "float32"
        Number type that they were encoded in, whatever is written.
    n_written : int, default 0
        Shards that are whole.
    counts : mapping of str to int
        What was counted over the texts of these.
    """

    space: Space
    dim: int
    texts: Mapping[str, Any]
    sharding: Sharding
    role: str = "text"
    computed_in: str = "float32"
    n_written: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)

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
        """Vectors of a shard.

        Parameters
        ----------
        number : int
            The shard, counted from 0.

        Returns
        -------
        int
            Its rows.
        """
        size = self.sharding.shard_size
        return min(size, int(self.texts["n_texts"]) - number * size)

    def shard_name(self, number: int) -> str:
        """Name of a shard.

        Parameters
        ----------
        number : int
            The shard, counted from 0.

        Returns
        -------
        str
            ``part-00000.npy`` and so on.
        """
        return f"part-{number:05d}.{self.sharding.file_format}"

    def with_next(self, counts: Mapping[str, int]) -> ShardIndex:
        """Count one more shard as whole.

        Parameters
        ----------
        counts : mapping of str to int
            What was counted over the texts up to its end.

        Returns
        -------
        ShardIndex
            The same otherwise.
        """
        return replace(self, n_written=self.n_written + 1, counts=counts)


def check_shard_folder(folder: Path) -> None:
    """Refuse a place where no shards can be written, before any work is done.

    Parameters
    ----------
    folder : Path
        The folder.

    Raises
    ------
    OutputError
        If it is a file, or holds something else than shards and no index, or it cannot be made or written to.
    """
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
    """Remove what a killed run left of a shard.

    Parameters
    ----------
    folder : Path
        A folder of shards.
    """
    sweep(folder)
    for path in list(folder.iterdir()):
        if _LEFT_BEHIND.fullmatch(path.name):
            path.unlink()


def _is_left_behind(name: str) -> bool:
    return is_temporary(name) or _LEFT_BEHIND.fullmatch(name) is not None


def write_index(folder: Path, index: ShardIndex) -> None:
    """Write the index of a folder of shards, replacing the one that is there.

    Parameters
    ----------
    folder : Path
        The folder.
    index : ShardIndex
        What it holds.

    Raises
    ------
    OutputError
        If it cannot be written; the one that was there is intact.
    """
    head = {"format": FORMAT, "format_version": FORMAT_VERSION, "isosent_version": version("isosent")}
    tail = {"n_shards": index.n_shards, "is_complete": index.is_complete}
    write_document(folder / INDEX_FILE, head | asdict(index) | tail)


def read_index(folder: Path) -> ShardIndex | None:
    """Read the index of a folder of shards.

    Parameters
    ----------
    folder : Path
        A folder.

    Returns
    -------
    ShardIndex or None
        None where there is none.

    Raises
    ------
    FileFormatError
        If it is damaged or something else.
    """
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
