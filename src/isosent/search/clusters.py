"""Clusters: texts by topic, with the words that describe each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.errors import wrong_value
from isosent.model import SentenceEncoder
from isosent.numeric.kmeans import k_means, nearest_center
from isosent.numeric.neighbors import exact_products
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.pages.progress import Progress
from isosent.search.units import VectorsLike, compared_units
from isosent.transforms.agreement import words_of
from isosent.transforms.groups import separate_groups

NO_VECTOR: Final = 0  # number of the cluster of texts without a vector
AUTO: Final = "auto"
_MOST_FITTED: Final = 50_000  # more texts hardly move the centers
# Silhouettes, stability and elbows chose worse numbers than this one (docs/duplicates.md)
_AUTO_CLUSTERS: Final = 7
_AUTO_TEXTS: Final = 8  # that a cluster has at least, on average
_N_WORDS: Final = 8
_N_EXAMPLES: Final = 3
_LEAST_SHARE: Final = 0.002  # of the texts that have a word which describes a cluster; two of them at least
_ONE_GROUP: Final = 0.9  # share of the texts of a cluster
_LIFT: Final = 3  # how much more often a word must occur in a cluster than outside to describe it


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster."""

    number: int  # from 1, the largest first; 0 holds the texts without a vector
    size: int
    words: tuple[str, ...]  # that are frequent in it and rare elsewhere, best first
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
    groups : ndarray of shape (n_texts,), intp, or None
        Separate group of each text, such as its language, from 0, or -1; None if the texts are one group.
    """

    texts: tuple[str, ...]
    labels: NDArray[np.intp]
    scores: NDArray[np.float32]
    clusters: tuple[Cluster, ...]
    groups: NDArray[np.intp] | None = None

    def __repr__(self) -> str:
        return f"<Clusters: {len(self.clusters)} of {len(self.texts)} texts>"

    @property
    def of_one_group(self) -> tuple[int, ...]:
        """Numbers of the clusters whose texts are nearly all of one of several separate groups."""
        return () if self.groups is None else tuple(self._of_one(self.groups))

    def _of_one(self, groups: NDArray[np.intp]) -> Iterator[int]:
        for number in range(1, self.labels.max() + 1):
            grouped = groups[(self.labels == number) & (groups >= 0)]
            if len(grouped) and np.bincount(grouped).max() >= _ONE_GROUP * len(grouped):
                yield number

    def rows(self) -> list[tuple[int, int, str, float]]:
        """Cluster, row, text and score of each text, the most central texts of each cluster first.

        Returns
        -------
        list of tuple of (int, int, str, float)
            One tuple per text. Clusters are counted from 1, rows from 0; texts without a vector (cluster 0) come last.
        """
        order = np.lexsort((-self.scores, np.where(self.labels == NO_VECTOR, len(self.texts), self.labels)))
        return [(int(self.labels[row]), int(row), self.texts[row], float(self.scores[row])) for row in order]

    def to_pandas(self) -> Any:
        """Return `rows` as a pandas DataFrame with the columns cluster, row, text and score.

        Returns
        -------
        pandas.DataFrame
            One row per text.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        return _extras.require("pandas").DataFrame(self.rows(), columns=["cluster", "row", "text", "score"])

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: a label per text, and the clusters.

        Returns
        -------
        dict
            `n_texts`, `labels` (one whole number per text), `of_one_group`, and `clusters`: number, size, words and
            examples of each.
        """
        return {
            "n_texts": len(self.texts),
            "labels": self.labels.tolist(),
            "of_one_group": list(self.of_one_group),
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
    model: SentenceEncoder | None = None,
    *,
    vectors: VectorsLike | None = None,
    n_clusters: int | Literal["auto"] = AUTO,
    seed: int = 0,
    progress: Progress | None = None,
) -> Clusters:
    r"""Cluster texts by topic, and describe each cluster by words.

    Parameters
    ----------
    texts : sequence of str
        At least one text.
    model : SentenceEncoder, optional
        Encodes the texts. Not needed with `vectors`.
    vectors : array of shape (n_texts, dim), or path, optional
        Vectors of the texts, one per text; with a model, of its encoder, and its transform is applied to them.
    n_clusters : int or "auto", default "auto"
        Number of clusters. "auto" is 7, or one for 8 different vectors if these are few.
    seed : int, default 0
        Seed of the first centers.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in texts.

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

    A word describes a cluster if at least 0.2% of all texts have it, two at least, and if it is three times as
    frequent in the cluster as outside. Words are ranked by

    :math:`G^2_{w,c} \, (\bar{s}_w - \bar{s})`

    where :math:`G^2_{w,c}` is the log-likelihood ratio of the texts with the word w in cluster c against chance
    (Dunning 1993), :math:`\bar{s}_w` is the mean cosine of two texts with the word, and :math:`\bar{s}` that of any
    two texts. Texts that share a function word are hardly more alike than others, so such words fall out in any
    language. One cluster alone has no words, because there is nothing to compare it with.

    Examples
    --------
    >>> import isosent
    >>> from isosent.search import cluster
    >>> found = cluster(isosent.demo_texts(), isosent.load("wordllama"), n_clusters=5)
    >>> [each.words[:3] for each in found.clusters]  # doctest: +SKIP
    """
    where = "cluster"
    texts = tuple(_check.some_texts(where, texts))
    if isinstance(n_clusters, str):
        _check.one_of(where, "n_clusters", n_clusters, (AUTO,))
    else:
        _check.whole_number(where, "n_clusters", n_clusters, 1)
    _check.whole_number(where, "seed", seed, 0)
    units = compared_units(where, texts, model, vectors, progress)
    rows = np.flatnonzero(nonzero_rows(units))
    n_distinct = len(np.unique(units[rows], axis=0))
    number = min(_AUTO_CLUSTERS, max(1, n_distinct // _AUTO_TEXTS)) if isinstance(n_clusters, str) else n_clusters
    if number > n_distinct and len(rows):
        raise wrong_value(where, "n_clusters", f"be at most {n_distinct}, the number of different vectors", number)
    labels, scores = np.full(len(texts), NO_VECTOR), np.full(len(texts), np.nan, np.float32)
    if len(rows):
        labels[rows], scores[rows] = _k_means(units[rows], number, seed)
    groups = separate_groups(units, texts, seed=seed)
    return Clusters(texts, labels, scores, _described(texts, units, labels, scores), groups)


def _k_means(units: NDArray[np.float32], n_clusters: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Label of each row, from 1 for the largest cluster on, and its cosine with the center."""
    from scipy.sparse import csr_array

    fitted_on = units
    if len(units) > _MOST_FITTED:
        fitted_on = units[np.sort(np.random.default_rng(seed).choice(len(units), _MOST_FITTED, replace=False))]
    fitted = k_means(fitted_on, n_clusters, n_starts=3, seed=seed)
    places = nearest_center(units, fitted.centers)
    ranks = np.empty(n_clusters, dtype=np.intp)
    ranks[np.argsort(-np.bincount(places, minlength=n_clusters), kind="stable")] = np.arange(1, n_clusters + 1)
    # the center of two texts is equally near to both: sums in float64 show it, those of k-means in float32 do not
    indptr = np.arange(len(fitted_on) + 1)
    is_member = csr_array((np.ones(len(fitted_on)), fitted.labels, indptr), (len(fitted_on), n_clusters))
    centers = unit_rows(np.asarray(is_member.T @ fitted_on.astype(np.float64), np.float64))
    cosines = np.empty(len(units), np.float32)
    for place, center in enumerate(centers):
        rows = np.flatnonzero(places == place)
        cosines[rows] = exact_products(center, units[rows])
    return ranks[places], np.clip(cosines, -1, 1)


def _described(
    texts: Sequence[str], units: NDArray[np.float32], labels: NDArray[np.intp], scores: NDArray[np.float32]
) -> tuple[Cluster, ...]:
    """The clusters with their words and most central texts."""
    sizes = np.bincount(labels, minlength=1)
    words = _words_of_clusters(texts, units, labels, sizes)
    clusters = []
    for number in [*range(1, len(sizes)), NO_VECTOR]:
        if sizes[number]:
            rows = np.flatnonzero(labels == number)
            central: dict[str, int] = {}  # each text once
            for row in rows[np.argsort(-scores[rows], kind="stable")].tolist():
                central.setdefault(texts[row], row)
            examples = tuple(central.values())[:_N_EXAMPLES]
            clusters.append(Cluster(number, int(sizes[number]), words[number], examples))
    return tuple(clusters)


def _words_of_clusters(
    texts: Sequence[str], units: NDArray[np.float32], labels: NDArray[np.intp], sizes: NDArray[np.intp]
) -> list[tuple[str, ...]]:
    """The words that describe each cluster, best first; none for texts without a vector."""
    from scipy.sparse import csr_array
    from scipy.special import xlogy

    numbers: dict[str, int] = {}
    places, rows = [], np.flatnonzero(labels != NO_VECTOR)
    for row in rows.tolist():
        words = {
            word for word in words_of(texts[row]) if not word.isdecimal() and (len(word) > 1 or not word.isascii())
        }
        places.append([numbers.setdefault(word, len(numbers)) for word in sorted(words)])
    offsets = np.cumsum([0, *map(len, places)])
    has_word = csr_array(
        (np.ones(offsets[-1], np.float32), np.concatenate([np.empty(0, int), *places]), offsets),
        shape=(len(rows), len(numbers)),
    )
    n_of_word = has_word.sum(axis=0)
    kept = np.flatnonzero(n_of_word >= max(2, _LEAST_SHARE * len(rows)))
    names, has_word, n_of_word = np.array(list(numbers), object)[kept], has_word[:, kept], n_of_word[kept]
    cohesion = _mean_cosine(has_word.T @ units[rows], n_of_word) - _mean_cosine(units[rows].sum(axis=0), len(rows))
    described: list[tuple[str, ...]] = [() for _ in sizes]
    for number in range(1, len(sizes)):
        n_inside, n_outside = sizes[number], len(rows) - sizes[number]
        inside = has_word[labels[rows] == number].sum(axis=0)
        outside = n_of_word - inside
        expected = n_of_word * n_inside / len(rows)
        ratio = xlogy(inside, inside / expected) + xlogy(outside, outside / np.maximum(n_of_word - expected, 1e-9))
        is_typical = inside * n_outside >= _LIFT * outside * n_inside
        weights = np.where(is_typical, 2 * ratio * cohesion, 0)
        best = [place for place in np.lexsort((names, -weights)) if weights[place] > 0]
        described[number] = tuple(names[best[:_N_WORDS]])
    return described


def _mean_cosine(sums: NDArray[np.float32], n_texts: Any) -> Any:
    """Mean cosine of two different texts, of the sums of their unit vectors (..., dim)."""
    return (np.square(sums).sum(axis=-1) - n_texts) / np.maximum(n_texts * (n_texts - 1), 1)
