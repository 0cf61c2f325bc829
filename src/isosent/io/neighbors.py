"""The true neighbors of queries, as benchmarks of search publish them; modules of formats read their files."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError, InputError
from isosent.io.formats import FORMATS, format_by_name, listed
from isosent.io.signatures import refuse_other_file
from isosent.io.vector_source import VectorSource


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
    file, file_format = _check.input_file(path), format_by_name(path)
    if "neighbors" not in file_format.holds:
        endings = listed((each for each in FORMATS if "neighbors" in each.holds), " or ")
        raise InputError(f"{path} is no file of neighbors. Name one that ends in {endings}.")
    try:
        neighbors: Neighbors = file_format.reader.read_neighbors(file)
    except FileFormatError:
        refuse_other_file(file)
        raise
    return neighbors
