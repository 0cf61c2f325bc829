"""Files of the true neighbors of queries, as benchmarks of search publish them: HDF5, .ivecs and .ibin."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError
from isosent.io import hdf5
from isosent.io.bounds import LARGEST_DOCUMENT, read_bounded
from isosent.io.formats import FORMATS, ending_of, format_by_name, listed
from isosent.io.signatures import refuse_other_file
from isosent.io.system import open_to_read
from isosent.io.vector_source import VectorSource
from isosent.io.vectors import open_vectors

_QUERIES, _NEIGHBORS, _DISTANCES = "test", "neighbors", "distances"  # data sets of ann-benchmarks
_METRIC: Final = "distance"  # an attribute of its files


class Neighbors(NamedTuple):
    """The nearest rows of each query, nearest first."""

    name: str  # of the file
    rows: NDArray[np.int64]  # (n_queries, n_neighbors) numbers of rows, counted from 0
    distances: NDArray[Any] | None  # of the same shape
    metric: str  # "" where the file does not say it
    queries: VectorSource | None  # where the file has them

    def nearest(self, query: int, k: int) -> NDArray[np.int64]:
        """The k nearest rows of a query, and those that are as near as the last of them."""
        rows, distances = self.rows[query], None if self.distances is None else self.distances[query]
        if distances is None:
            return rows[:k]
        return rows[(np.arange(len(rows)) < k) | (distances == distances[k - 1])]


def read_neighbors(path: str) -> Neighbors:
    """Read a file of neighbors."""
    file = _check.input_file(path)
    try:
        if format_by_name(file).module == "hdf5":
            return _of_hdf5(file)
        read = {".ivecs": _of_ivecs, ".ibin": _of_ibin}.get(ending_of(file))
        if read is None:
            endings = listed(each for each in FORMATS if each.module == "hdf5")
            raise InputError(f"{path} is no file of neighbors. Name one that ends in {endings}, .ivecs or .ibin.")
        with open_to_read(file) as opened:
            return read(str(file), read_bounded(str(file), opened, LARGEST_DOCUMENT))
    except FileFormatError:
        refuse_other_file(file)
        raise


def _of_hdf5(path: Path) -> Neighbors:
    with hdf5.open_hdf5(path) as file:
        rows = hdf5.whole(path, file, _NEIGHBORS)
        if rows.ndim != 2 or rows.dtype.kind not in "iu":
            raise FileFormatError(f"{path}: data set {_NEIGHBORS} holds {rows.dtype} in the shape {rows.shape}.")
        distances = hdf5.whole(path, file, _DISTANCES) if _DISTANCES in file else None
        metric = file.attrs.get(_METRIC, "")
    if distances is not None and distances.shape != rows.shape:
        raise FileFormatError(f"{path}: {_DISTANCES} has the shape {distances.shape}, and {_NEIGHBORS} {rows.shape}.")
    metric = metric.decode("ascii", "replace") if isinstance(metric, bytes) else str(metric)
    return Neighbors(str(path), rows.astype(np.int64), distances, metric, open_vectors(path, column=_QUERIES))


def _of_ivecs(name: str, content: bytes) -> Neighbors:
    """Each row is the number of its neighbors, then these."""
    k = int.from_bytes(content[:4], "little", signed=True)
    if k < 1 or len(content) % (4 * (k + 1)):
        raise FileFormatError(f"{name} is damaged: its rows have not all {k} neighbors, as its first. Copy it again.")
    table = np.frombuffer(content, "<i4").reshape(-1, k + 1)
    if (table[:, 0] != k).any():
        row = int(np.flatnonzero(table[:, 0] != k)[0])
        raise FileFormatError(f"{name}: row {row}, counted from 0, has {table[row, 0]} neighbors, and the first {k}.")
    return Neighbors(name, table[:, 1:].astype(np.int64), None, "", None)


def _of_ibin(name: str, content: bytes) -> Neighbors:
    """Queries and neighbors of each as uint32, then these as int32, and perhaps their distances as float32."""
    n_queries, k = (int(n) for n in np.frombuffer(content[:8].ljust(8, b"\0"), "<u4"))
    n_bytes = 4 * n_queries * k
    if not n_bytes or len(content) - 8 not in (n_bytes, 2 * n_bytes):
        raise FileFormatError(
            f"{name} is truncated or no file of neighbors: {n_queries} queries of {k} neighbors are {n_bytes} bytes, "
            f"and it has {len(content) - 8} after its header."
        )
    tables = [
        np.frombuffer(content[start : start + n_bytes], dtype).reshape(n_queries, k)
        for start, dtype in ((8, "<i4"), (8 + n_bytes, "<f4"))
        if start < len(content)
    ]
    return Neighbors(name, tables[0].astype(np.int64), tables[1] if len(tables) > 1 else None, "", None)
