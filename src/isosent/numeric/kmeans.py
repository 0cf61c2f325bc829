"""K-means: Lloyd's iterations from centers of k-means++, as scikit-learn computes them, which takes seconds to import.

Distances are those of float32 rows without their mean, sums of rows are float64. Equal seeds begin at the centers that
scikit-learn's `KMeans` begins at, so that the labels are its labels (`tests/unit/test_kmeans.py`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.neighbors import best_columns
from isosent.numeric.threads import over_blocks

_BLOCK_ROWS = 4096
_ADDED_ROWS = 16 * _BLOCK_ROWS
_MOST_ITERATIONS = 300
_TOLERANCE = 1e-4  # of the mean variance: centers that move less have converged
_ROUNDING = np.float32(4e-7)  # of both squared lengths: distances that differ less are equal on some processor

Rows = NDArray[np.float32]
Labels = NDArray[np.intp]


class Clustering(NamedTuple):
    """The best of several starts."""

    centers: Rows  # (n_clusters, dim)
    labels: Labels  # of the rows, from 0, (n_rows,)


def k_means(rows: Rows, n_clusters: int, *, n_starts: int, seed: int) -> Clustering:
    """Cluster at least `n_clusters` different rows, (n_rows, dim)."""
    mean = rows.mean(axis=0)
    centered = rows - mean
    least_shift = _TOLERANCE * float(np.var(centered, axis=0).mean())
    random = np.random.RandomState(seed)
    best, least = None, math.inf
    for _ in range(n_starts):
        found = _iterated(centered, _first_centers(centered, n_clusters, random), least_shift)
        inertia = _squared_distances(centered, found).sum()
        # the same clusters in another order may have a sum that differs in its last digits
        if best is None or (inertia < least and not _is_same(found.labels, best.labels)):
            best, least = found, inertia
    assert best is not None
    return best._replace(centers=best.centers + mean)


def nearest_center(rows: Rows, centers: Rows) -> Labels:
    """Row of the nearest center of each row, (n_rows,); the first of those that are equally near."""
    lengths, labels = np.einsum("ij,ij->i", centers, centers), np.empty(len(rows), np.intp)

    def label(start: int) -> None:
        block = slice(start, start + _BLOCK_ROWS)
        distances = lengths - 2 * (rows[block] @ centers.T)
        rounding = _ROUNDING * (np.einsum("ij,ij->i", rows[block], rows[block])[:, np.newaxis] + lengths)
        labels[block] = np.argmax(distances - rounding <= distances.min(axis=1, keepdims=True), axis=1)

    over_blocks(label, len(rows), _BLOCK_ROWS)
    return labels


def _first_centers(rows: Rows, n_clusters: int, random: np.random.RandomState) -> Rows:
    """Arthur & Vassilvitskii 2007: each next center is drawn by its squared distance, here the best of a few draws."""
    n_draws = 2 + int(math.log(n_clusters))
    chosen = [int(random.choice(len(rows), p=np.full(len(rows), np.float32(1) / np.float32(len(rows)))))]
    nearest = _distances_to(rows, rows[chosen])
    sums = nearest.sum(axis=1)
    for _ in range(1, n_clusters):
        drawn = np.searchsorted(np.cumsum(nearest), random.uniform(size=n_draws) * sums)
        drawn = np.minimum(drawn, len(rows) - 1)
        distances = np.minimum(nearest, _distances_to(rows, rows[drawn]))
        sums = distances.sum(axis=1)
        best = int(np.argmin(sums))
        nearest, sums = distances[best : best + 1], sums[best : best + 1]
        chosen.append(int(drawn[best]))
    return rows[chosen]


def _distances_to(rows: Rows, places: Rows) -> Rows:
    """Squared distances of places to all rows, (n_places, n_rows): in float64, because the products nearly cancel."""
    some = places.astype(np.float64)
    squares = np.einsum("ij,ij->i", some, some)[:, np.newaxis]
    distances = np.empty((len(some), len(rows)), np.float32)

    def measure(start: int) -> None:
        block = rows[start : start + _BLOCK_ROWS].astype(np.float64)
        found = squares - 2 * (some @ block.T) + np.einsum("ij,ij->i", block, block)
        distances[:, start : start + _BLOCK_ROWS] = np.maximum(found, 0)

    over_blocks(measure, len(rows), _BLOCK_ROWS)
    return distances


def _iterated(rows: Rows, centers: Rows, least_shift: float) -> Clustering:
    """Lloyd's iterations, until no label changes or the centers hardly move."""
    labels = np.full(len(rows), -1, np.intp)
    sums, sizes = np.zeros(centers.shape), np.zeros(len(centers), np.intp)
    for _ in range(_MOST_ITERATIONS):
        previous, labels = labels, nearest_center(rows, centers)
        # after a few iterations, hardly a row changes its cluster
        changed = np.flatnonzero(labels != previous)
        for start in range(0, len(changed), _ADDED_ROWS):  # all rows at first, of which no copy is made
            some = changed[start : start + _ADDED_ROWS]
            for old_or_new, sign in ((previous[some], -1), (labels[some], 1)):
                _add(sums, sizes, rows[some], old_or_new, sign)
        moved = _means(rows, Clustering(centers, labels), sums.copy(), sizes.copy())
        shift, centers = float(((moved - centers) ** 2).sum()), moved
        if not len(changed):
            return Clustering(centers, labels)
        if shift <= least_shift:
            break
    return Clustering(centers, nearest_center(rows, centers))


def _add(sums: NDArray[np.float64], sizes: NDArray[np.intp], rows: Rows, labels: Labels, sign: int) -> None:
    """Add rows to the sums of their clusters, or subtract them; a label of -1 is none."""
    order = np.argsort(labels, kind="stable")[np.count_nonzero(labels < 0) :]
    clusters, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
    if len(clusters):
        sums[clusters] += sign * np.add.reduceat(rows[order], starts, axis=0, dtype=np.float64)
        sizes[clusters] += sign * counts


def _means(rows: Rows, clustering: Clustering, sums: NDArray[np.float64], sizes: NDArray[np.intp]) -> Rows:
    """Means of the rows of each cluster; an empty one gets a row that is far from its center."""
    empty = np.flatnonzero(sizes == 0)
    if len(empty):
        distances = _squared_distances(rows, clustering)
        farthest = best_columns(distances[np.newaxis], len(empty))[0]
        if distances.max() > 0:
            for cluster, row in zip(empty, farthest, strict=True):
                donor = clustering.labels[row]
                sums[donor] -= rows[row]
                sums[cluster] = rows[row]
                sizes[donor] -= 1
                sizes[cluster] = 1
        sums[sizes == 0], sizes[sizes == 0] = sums[sizes.argmax()], sizes.max()
    return (sums / sizes[:, np.newaxis]).astype(np.float32)


def _squared_distances(rows: Rows, clustering: Clustering) -> Rows:
    """Squared distance of each row to its center, (n_rows,)."""
    distances = np.empty(len(rows), np.float32)

    def measure(start: int) -> None:
        block = slice(start, start + _BLOCK_ROWS)
        apart = rows[block] - clustering.centers[clustering.labels[block]]
        distances[block] = np.einsum("ij,ij->i", apart, apart)

    over_blocks(measure, len(rows), _BLOCK_ROWS)
    return distances


def _is_same(labels: Labels, others: Labels) -> bool:
    """Whether each cluster is a part of one of the others."""
    pairs = np.unique(np.stack([labels, others]), axis=1)
    return pairs.shape[1] == len(np.unique(labels))
