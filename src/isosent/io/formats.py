"""Formats of files: what each ending holds, and which dtypes its vectors have when they are read and written.

One row a format; who asks what a file is by its name asks here, and messages and docs/formats.md list what stands here.
A format of nothing but vectors is a module of `isosent.io` with ``open_vectors(path, column)``, and with
``writer(file, shape, dtype)`` if it is written, and its row; one of the neighbors of queries has
``read_neighbors(path)``. Vectors in tables and in lines are seen from the content: see `isosent.io.columns`. What a
file is by its first bytes is known to `isosent.io.signatures`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from isosent._check import DATA_SET_FILE, is_data_set
from isosent.errors import option
from isosent.storage import CODES, NUMPY, TENSORS, WRITTEN, Storage

Holds = Literal["texts", "vectors", "moments", "neighbors"]


class Format(NamedTuple):
    """What a file is whose name ends in `ending`."""

    ending: str
    holds: tuple[Holds, ...] = ()
    dtypes: tuple[Storage, ...] = ()  # of vectors that are read
    written: tuple[Storage, ...] = ()  # dtypes in which vectors are written
    module: str = ""  # reads vectors, where the file holds nothing else
    rows: Literal["fields", "objects", "parquet", "arrow", "data set", ""] = ""  # how `isosent.io.tables` reads it
    refusal: str = ""  # what it is and what to do, if it holds neither texts nor vectors

    @property
    def is_table(self) -> bool:
        """Whether it has columns, of texts or vectors, rather than plain lines."""
        return {"texts", "vectors"} <= set(self.holds)

    @property
    def is_parquet(self) -> bool:
        """Whether it is a table of Parquet."""
        return self.rows == "parquet"

    @property
    def is_typed(self) -> bool:
        """Whether it is a table whose columns are read one by one, with their types."""
        return self.rows in ("parquet", "arrow", "data set")

    @property
    def reader(self) -> Any:
        """The module that reads its vectors."""
        return import_module(f"isosent.io.{self.module}")

    @property
    def has_note(self) -> bool:
        """Whether a file that isosent writes has a note beside it, because it has no room for metadata."""
        return bool(self.written) and not self.is_table


_FLOAT: Final = (Storage.float32,)
_NEIGHBORS: Final = (
    "holds neighbors of queries as int32, not vectors. Name the file of the vectors; the recall of an index against "
    f"these neighbors is measured by isosent search INDEX QUERIES {option('truth', 'FILE')}."
)

FORMATS: Final = (
    Format(".npy", ("vectors",), NUMPY, (*WRITTEN, *CODES), "npy"),
    Format(".fvecs", ("vectors",), _FLOAT, _FLOAT, "vecs"),
    Format(".bvecs", ("vectors",), (Storage.uint8,), module="vecs"),
    Format(".fbin", ("vectors",), _FLOAT, module="bigann"),
    Format(".u8bin", ("vectors",), (Storage.uint8,), module="bigann"),
    Format(".i8bin", ("vectors",), (Storage.int8,), module="bigann"),
    Format(".ibin", ("neighbors",), module="bigann", refusal=_NEIGHBORS),
    Format(".ivecs", ("neighbors",), module="vecs", refusal=_NEIGHBORS),
    Format(".npz", ("vectors",), NUMPY, module="npy"),
    Format(".hdf5", ("vectors", "neighbors"), NUMPY, module="hdf5"),
    Format(".h5", ("vectors", "neighbors"), NUMPY, module="hdf5"),
    Format(".safetensors", ("vectors", "moments"), TENSORS, module="safetensors"),
    Format(".txt", ("texts",), _FLOAT, rows="fields"),
    Format(".csv", ("texts", "vectors"), _FLOAT, rows="fields"),
    Format(".tsv", ("texts", "vectors"), _FLOAT, rows="fields"),
    Format(".jsonl", ("texts", "vectors"), _FLOAT, rows="objects"),
    Format(".json", ("texts", "vectors"), _FLOAT, rows="objects"),
    Format(".parquet", ("texts", "vectors"), NUMPY, WRITTEN, rows="parquet"),
    Format(".arrow", ("texts", "vectors"), NUMPY, rows="arrow"),
    Format(".arrows", ("texts", "vectors"), NUMPY, rows="arrow"),
    Format(".feather", ("texts", "vectors"), NUMPY, rows="arrow"),
)
_BY_ENDING: Final = {each.ending: each for each in FORMATS}
NOTES: Final = ".json"  # what a folder holds of this format are notes
_UNKNOWN: Final = Format("", ("texts",), _FLOAT)
_DATA_SET: Final = Format("", ("texts", "vectors"), NUMPY, rows="data set")


def ending_of(path: str | os.PathLike[str]) -> str:
    """Ending of a file's name."""
    return Path(path).suffix.lower()


def format_by_name(path: str | os.PathLike[str]) -> Format:
    """The format that the name of a file says; a file of any other name holds lines. Or that of a data set's folder."""
    named = _BY_ENDING.get(ending_of(path), _UNKNOWN)
    if named in (_UNKNOWN, _BY_ENDING[NOTES]) and data_set_folder(path):
        return _DATA_SET
    return named


def data_set_folder(path: str | os.PathLike[str]) -> Path | None:
    """The folder of a data set on disk, named itself or by the file that `input_file` found; None for anything else."""
    path = Path(path)
    folder = path.parent if path.name == DATA_SET_FILE else path
    try:
        return folder if is_data_set(folder) else None
    except (OSError, ValueError):  # a text that cannot be a path
        return None


def listed(formats: Iterable[Format], last: str = ", ") -> str:
    """Their endings, for a message."""
    *endings, end = (each.ending for each in formats)
    return f"{', '.join(endings)}{last}{end}" if endings else end


TABLES: Final = listed((each for each in FORMATS if each.is_table and each.ending != NOTES), " or ")
