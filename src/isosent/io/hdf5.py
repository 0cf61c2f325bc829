"""Vectors in a data set of an HDF5 file, such as those of ann-benchmarks, and the true neighbors beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from isosent import _extras
from isosent._check import brief
from isosent.errors import FileFormatError, IsosentError
from isosent.io.bounds import FREELY_EXPANDED, LARGEST_DOCUMENT, LARGEST_EXPANSION, expands_too_far, shown_bytes
from isosent.io.checksum import check_unchanged, file_state
from isosent.io.neighbors import Neighbors
from isosent.io.system import system_error
from isosent.io.vector_source import Array, VectorSource, chosen_array, matrix_shape
from isosent.storage import NUMPY, Storage

_TRAIN, _QUERIES, _NEIGHBORS, _DISTANCES = "train", "test", "neighbors", "distances"  # of ann-benchmarks
_METRIC: Final = "distance"  # an attribute
_CACHE_BYTES: Final = 64 << 20  # of chunks that are unpacked, which blocks share


def open_vectors(path: Path, column: str | None, *, are_queries: bool = False) -> VectorSource:
    """Open the data set that is named, or train, test for queries, or the only matrix of numbers."""
    usual = _QUERIES if are_queries else _TRAIN
    state = file_state(path)
    with _open(path) as file:
        data_sets = _data_sets(file)
        matrices = [name for name, data in data_sets.items() if len(data_sets) == 1 or _is_matrix(data)]
        column = usual if column is None and usual in matrices else column
        name = chosen_array(path, "data set", data_sets, matrices, column)
        data = _checked(path, name, data_sets[name])
        if data.dtype.name not in NUMPY:
            raise FileFormatError(f"{path}: data set {name} holds {data.dtype}. Convert it to {', '.join(NUMPY)}.")
        n_rows, dim = matrix_shape(f"{path}, data set {name},", data.shape)
        storage = Storage(data.dtype.name)

    def read(start_row: int, block_rows: int) -> Iterator[Array]:
        with _open(path) as file:
            check_unchanged(path, state)
            for start in range(start_row, n_rows, block_rows):
                yield storage.decoded(file[name][start : start + block_rows])

    return VectorSource(path, n_rows, dim, storage, None, read, name, state=state)


def read_neighbors(path: Path) -> Neighbors:
    """Read the neighbors and their distances, and open the queries."""
    with _open(path) as file:
        rows = _whole(path, file, _NEIGHBORS)
        if rows.ndim != 2 or rows.dtype.kind not in "iu":
            raise FileFormatError(f"{path}: data set {_NEIGHBORS} holds {rows.dtype} in the shape {rows.shape}.")
        distances = _whole(path, file, _DISTANCES) if _DISTANCES in file else None
        metric = file.attrs.get(_METRIC, "")
    if distances is not None and distances.shape != rows.shape:
        raise FileFormatError(f"{path}: {_DISTANCES} has the shape {distances.shape}, and {_NEIGHBORS} {rows.shape}.")
    metric = metric.decode("ascii", "replace") if isinstance(metric, bytes) else str(metric)
    return Neighbors(str(path), rows.astype(np.int64), distances, metric, open_vectors(path, _QUERIES))


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    """Open a file, and turn what h5py raises for a damaged one into an error that names it."""
    h5py = _extras.require("h5py")

    try:
        with h5py.File(path, "r", locking=False, rdcc_nbytes=_CACHE_BYTES) as file:
            yield file
    except IsosentError:
        raise
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        if unreadable := system_error(error, path):
            raise unreadable from None
        raise FileFormatError(f"{path} is not a readable HDF5 file: {brief(error).rstrip('.')}.") from None


def _whole(path: Path, file: Any, name: str) -> Any:
    """All numbers of a data set that fits in memory."""
    data_sets = _data_sets(file)
    data = _checked(path, name, data_sets[chosen_array(path, "data set", data_sets, [], name)])
    if data.nbytes > LARGEST_DOCUMENT:
        raise FileFormatError(f"{path}: data set {name} is larger than {shown_bytes(LARGEST_DOCUMENT)}.")
    return data[()]


def _checked(path: Path, name: str, data: Any) -> Any:
    """Refuse a data set that reads other files, or unpacks to far more than it takes."""
    if data.shape is None:
        raise FileFormatError(f"{path}: data set {name} holds nothing.")
    if data.is_virtual or data.external:
        raise FileFormatError(f"{path}: data set {name} lies in another file. Write its numbers into one file.")
    if data.nbytes > max(FREELY_EXPANDED, LARGEST_EXPANSION * data.id.get_storage_size()):
        raise expands_too_far(str(path), data.nbytes)
    n_chunk = math.prod(data.chunks or ()) * data.dtype.itemsize  # which is unpacked as a whole, also for one row
    if n_chunk > max(FREELY_EXPANDED, min(LARGEST_DOCUMENT, data.nbytes)):
        raise FileFormatError(
            f"{path}: data set {name} has chunks of {shown_bytes(n_chunk)}, which are unpacked as a whole. Write it "
            "with smaller chunks."
        )
    return data


def _data_sets(file: Any) -> dict[str, Any]:
    """All of the file and of its groups by their paths; links, which may lead to other files, are not followed."""
    found = {}

    def add(name: str, item: Any) -> None:
        if hasattr(item, "shape"):  # a group and a named data type have none
            found[name] = item

    file.visititems(add)
    return found


def _is_matrix(data: Any) -> bool:
    return data.shape is not None and len(data.shape) == 2 and data.dtype.name in NUMPY
