"""Separate groups of texts, such as languages: found by clusters of vectors whose texts share hardly a word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.kmeans import k_means, nearest_center
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.transforms.agreement import distinct_rows, word_counts

_GROUP_ROWS = 4000
_FEWEST_GROUPED, _FEWEST_IN_GROUP = 100, 10
_SMALLEST_GROUP = 0.03  # share of the texts
_CLUSTERS = 6
# Cosine of the shares of texts that hold each word, between clusters: 0.00 to 0.18 for two languages, from 0.19 on for
# the topics of one. Above the first limit, groups must also be _APART (docs/research/inspect.md).
_FOREIGN, _LITTLE_SHARED, _APART = 0.15, 0.25, 6.0
# Distances of groups in standard deviations along the line between their means, without texts: none of 54 single sets
# is above 8 for two; for more groups, the least distance counts.
_SEPARATE = {2: 8.0, 3: 6.0, 4: 6.0}


def separate_groups(
    vectors: NDArray[np.floating], texts: Sequence[str] | None = None, *, seed: int = 0
) -> NDArray[np.intp] | None:
    """Group of each of at least two separate groups of rows, (n_rows,), -1 for none; None if there is one only.

    With texts: clusters of vectors whose texts share hardly a word, as languages do; repeated texts count once.
    """
    has_vector = nonzero_rows(vectors)
    # sorted, so that the order of the texts does not matter
    rows: NDArray[Any] = np.arange(len(vectors))
    if texts is not None:
        rows = np.array(sorted(distinct_rows(texts), key=texts.__getitem__), dtype=np.intp)
    rows = np.random.default_rng(seed).permutation(rows)
    rows = rows[has_vector[rows]][:_GROUP_ROWS]
    if len(rows) < _FEWEST_GROUPED:
        return None
    units = unit_rows(vectors[rows].astype(np.float32))
    # Found in one half and measured on the other: a few rows of many dimensions fall apart along any line through them.
    half = len(units) // 2
    if len(np.unique(units[:half], axis=0)) < _CLUSTERS:
        return None
    for n_clusters in _SEPARATE if texts is None else (_CLUSTERS,):
        centers = k_means(units[:half], n_clusters, n_starts=2, seed=seed).centers
        found = nearest_center(units, centers)
        if texts is None:
            is_separate = _distance(units, found, half) >= _SEPARATE[n_clusters]
            group_of = np.arange(n_clusters)
        else:
            group_of = _foreign_clusters(units, found, [texts[row] for row in rows])
            is_separate = len(np.unique(group_of[group_of >= 0])) > 1
        if is_separate:
            groups = np.full(len(vectors), -1, np.intp)
            groups[has_vector] = group_of[nearest_center(unit_rows(vectors[has_vector].astype(np.float32)), centers)]
            return groups
    return None


def _foreign_clusters(units: NDArray[np.float32], labels: NDArray[np.intp], texts: list[str]) -> NDArray[np.intp]:
    """Group of each cluster of texts, (n_clusters,): those that share words are one group, a small group is -1."""
    from scipy.sparse.csgraph import connected_components

    nothing = np.zeros(_CLUSTERS, np.intp)
    words = word_counts(texts)
    if not words.nnz:
        return nothing
    words.data[:] = 1
    shares = np.stack([words[labels == each].sum(axis=0, dtype=np.float32) for each in range(_CLUSTERS)])
    units_of_words = unit_rows(shares)
    shared = units_of_words @ units_of_words.T
    for limit, least in ((_LITTLE_SHARED, _APART), (_FOREIGN, 0.0)):
        group_of = connected_components(shared > limit)[1].astype(np.intp)
        sizes = np.bincount(group_of[labels], minlength=_CLUSTERS)
        group_of[sizes[group_of] < max(_FEWEST_IN_GROUP, _SMALLEST_GROUP * len(texts))] = -1
        if len(np.unique(group_of[group_of >= 0])) > 1 and _distance(units, group_of[labels], len(units) // 2) >= least:
            return group_of
    return nothing


def _distance(units: NDArray[np.float32], groups: NDArray[np.intp], n_fitted: int) -> float:
    """Least distance of two groups, in standard deviations along the line between their means in the first half."""
    names, least = np.unique(groups[groups >= 0]), math.inf
    for number, first in enumerate(names):
        for second in names[number + 1 :]:
            fitted, held_out = (
                [part[label == each] for each in (first, second)]
                for part, label in ((units[:n_fitted], groups[:n_fitted]), (units[n_fitted:], groups[n_fitted:]))
            )
            if min(map(len, [*fitted, *held_out])) < min(_FEWEST_IN_GROUP, n_fitted):
                return 0.0
            line = fitted[1].mean(axis=0) - fitted[0].mean(axis=0)
            places = [part @ line for part in held_out]
            deviation = math.sqrt((places[0].var() + places[1].var()) / 2)
            gap = float(places[1].mean() - places[0].mean())
            least = min(least, gap / deviation if deviation else 0.0)
    return least
