"""Clusters: texts by topic, with the words that describe each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.encoders.base import Progress
from isosent.errors import InputError
from isosent.model import SentenceEncoder, check_model
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.transforms.auto import words_of

NO_VECTOR: Final = 0  # number of the cluster of texts without a vector
AUTO: Final = "auto"
_MOST_FITTED: Final = 50_000  # more texts hardly move the centers
# Silhouettes, stability and elbows chose worse numbers than this one (docs/duplicates.md)
_AUTO_CLUSTERS: Final = 7
_AUTO_TEXTS: Final = 8  # that a cluster has at least, on average
_N_WORDS: Final = 8
_N_EXAMPLES: Final = 3
_LIFT: Final = 2  # how much more often a word must occur in a cluster than outside to describe it


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster."""

    number: int  # from 1, the largest first; 0 holds the texts without a vector
    size: int
    words: tuple[str, ...]  # that occur more in it than elsewhere, best first
    examples: tuple[int, ...]  # rows of its most central texts


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Texts by topic.

    Made by `cluster`.

    Parameters
    ----------
    texts : tuple of str
        All texts.
    labels : ndarray of shape (n_texts,), intp
        Number of the cluster of each text, from 1; 0 for a text without a token that the encoder knows.
    scores : ndarray of shape (n_texts,), float32
        Cosine of each text with the center of its cluster; NaN for label 0.
    clusters : tuple of Cluster
        The clusters by size. If there are texts without a vector, their cluster is the last.
    """

    texts: tuple[str, ...]
    labels: NDArray[np.intp]
    scores: NDArray[np.float32]
    clusters: tuple[Cluster, ...]

    def __repr__(self) -> str:
        return f"<Clusters: {len(self.clusters)} of {len(self.texts)} texts>"

    def rows(self) -> list[tuple[int, int, str, float]]:
        """Cluster, row, text and score of each text, the most central texts of each cluster first."""
        order = np.lexsort((-self.scores, np.where(self.labels == NO_VECTOR, len(self.texts), self.labels)))
        return [(int(self.labels[row]), int(row), self.texts[row], float(self.scores[row])) for row in order]

    def to_pandas(self) -> Any:
        """Return `rows` as a pandas DataFrame with the columns cluster, row, text and score."""
        return _extras.require("pandas").DataFrame(self.rows(), columns=["cluster", "row", "text", "score"])

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: a label per text, and the clusters."""
        return {
            "n_texts": len(self.texts),
            "labels": self.labels.tolist(),
            "clusters": [
                {
                    "number": each.number,
                    "size": each.size,
                    "words": list(each.words),
                    "examples": [{"row": row, "text": self.texts[row]} for row in each.examples],
                }
                for each in self.clusters
            ],
        }


def cluster(
    texts: Sequence[str],
    model: SentenceEncoder,
    *,
    n_clusters: int | Literal["auto"] = AUTO,
    seed: int = 0,
    progress: Progress | None = None,
) -> Clusters:
    r"""Group texts by topic, and describe each group by words.

    Parameters
    ----------
    texts : sequence of str
        At least one text.
    model : SentenceEncoder
        Encodes the texts.
    n_clusters : int or "auto", default "auto"
        Number of clusters. "auto" is 7, or one for 8 different vectors if these are few.
    seed : int, default 0
        Seed of the first centers.
    progress : callable, optional
        Called with the number of texts encoded since the last call.

    Returns
    -------
    Clusters
        A label per text, and the clusters with their words and most central texts.

    Raises
    ------
    InputError
        If there is no text, there are more clusters than different vectors, or a number is out of its range.

    Notes
    -----
    k-means (scikit-learn, the best of three starts) on vectors of length 1, fitted on at most 50,000 texts.

    The words have the highest class-based tf-idf (Grootendorst 2022, *BERTopic*, equation 3),

    .. math:: \operatorname{tf}_{w,c} \, \ln(1 + A / \operatorname{tf}_w),

    where :math:`\operatorname{tf}_{w,c}` counts the texts of cluster c with the word w, :math:`\operatorname{tf}_w`
    those of all clusters, and A is the mean number of such pairs of a word and a text in a cluster. A word must be
    twice as frequent in the cluster as outside, which leaves out function words of any language.

    Examples
    --------
    >>> import isosent
    >>> from isosent.search import cluster
    >>> found = cluster(isosent.demo_texts(), isosent.load("wordllama"), n_clusters=5)
    >>> [each.words for each in found.clusters]  # doctest: +SKIP
    """
    where = "cluster"
    texts = tuple(_check.some_texts(where, texts))
    check_model(where, model)
    if isinstance(n_clusters, str):
        _check.one_of(where, "n_clusters", n_clusters, (AUTO,))
    else:
        _check.whole_number(where, "n_clusters", n_clusters, 1)
    _check.whole_number(where, "seed", seed, 0)
    units = unit_rows(model.encode(list(texts), progress=progress)).astype(np.float32, copy=False)
    rows = np.flatnonzero(nonzero_rows(units))
    n_distinct = len(np.unique(units[rows], axis=0))
    number = min(_AUTO_CLUSTERS, max(1, n_distinct // _AUTO_TEXTS)) if isinstance(n_clusters, str) else n_clusters
    if number > n_distinct and len(rows):
        raise InputError(
            f"{where}: n_clusters must be at most {n_distinct}, the number of different vectors; got {number}."
        )
    labels, scores = np.full(len(texts), NO_VECTOR), np.full(len(texts), np.nan, np.float32)
    if len(rows):
        labels[rows], scores[rows] = _k_means(units[rows], number, seed)
    return Clusters(texts, labels, scores, _described(texts, labels, scores))


def _k_means(units: NDArray[np.float32], n_clusters: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Label of each row, from 1 for the largest cluster on, and its cosine with the center."""
    from sklearn.cluster import KMeans

    fitted_on = units
    if len(units) > _MOST_FITTED:
        fitted_on = units[np.sort(np.random.default_rng(seed).choice(len(units), _MOST_FITTED, replace=False))]
    fitted = KMeans(n_clusters, n_init=3, random_state=seed).fit(fitted_on)
    places = fitted.predict(units)
    ranks = np.empty(n_clusters, dtype=np.intp)
    ranks[np.argsort(-np.bincount(places, minlength=n_clusters), kind="stable")] = np.arange(1, n_clusters + 1)
    cosines = np.einsum("ij,ij->i", units, unit_rows(fitted.cluster_centers_)[places])
    return ranks[places], np.clip(cosines, -1, 1).astype(np.float32, copy=False)


def _described(texts: Sequence[str], labels: NDArray[np.intp], scores: NDArray[np.float32]) -> tuple[Cluster, ...]:
    """The clusters with their words and most central texts."""
    sizes, n_texts = np.bincount(labels), np.count_nonzero(labels)
    counts = [Counter[str]() for _ in sizes]
    for text, label in zip(texts, labels, strict=True):
        counts[label].update(
            {word for word in words_of(text) if not word.isdecimal() and (len(word) > 1 or not word.isascii())}
        )
    in_all = sum(counts[1:], Counter[str]())
    mean_count = in_all.total() / max(len(counts) - 1, 1)
    clusters = []
    for number in [*range(1, len(sizes)), NO_VECTOR]:
        if not sizes[number]:
            continue
        inside, outside = int(sizes[number]), int(n_texts - sizes[number])
        weights = {
            word: count * math.log(1 + mean_count / in_all[word])
            for word, count in counts[number].items()
            if number != NO_VECTOR and count * outside >= _LIFT * (in_all[word] - count) * inside
        }
        words = sorted(weights, key=lambda word: (-weights[word], word))[:_N_WORDS]
        rows = np.flatnonzero(labels == number)
        central = {texts[row]: int(row) for row in rows[np.argsort(scores[rows], kind="stable")]}  # each text once
        clusters.append(Cluster(number, inside, tuple(words), tuple(central.values())[: -_N_EXAMPLES - 1 : -1]))
    return tuple(clusters)
