"""Two signals without labels, by the words of texts: are pairs ranked as words rank them, are subjects kept together.

Pairs: the rank correlation of the cosines of pairs of texts with their word overlap, the cosine of their tf-idf vectors
(`sample_pairs`). A transform that gives every direction the same weight mostly raises it, also one that scatters the
texts of one subject. Topics: how near, in a space of topics, those texts are that are neighbors among the vectors
(`topical_agreement`). That space is latent semantic analysis: the strongest directions of tf-idf, in which texts can be
near without sharing a word. Both look at one half of the texts at a time, so that a transform can be fitted on the
other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.neighbors import best_columns, nearest_columns
from isosent.numeric.similarity import unit_rows
from isosent.numeric.threads import one_thread_products

N_NEIGHBORS = 10
MOST_QUERIES = 1000  # of each half of the texts
_N_TOPICS = 100
_MOST_TEXTS = 20_000
_NEAREST = 3
_RANDOM = 3
_DUPLICATE = 0.8  # tf-idf cosine. Near duplicates differ in one word, which tf-idf cannot weigh.
_BLOCK = 256


class OverlapPairs(NamedTuple):
    """Pairs of texts of one half, grouped by their first text, the topics of that half, and the other half."""

    first: NDArray[np.intp]  # rows, (n_pairs,)
    second: NDArray[np.intp]
    overlap: NDArray[np.float64]  # tf-idf cosine of each pair
    rows: NDArray[np.intp]  # rows of this half
    other_rows: NDArray[np.intp]  # rows of the other half, to fit on
    topics: NDArray[np.float32] | None = None  # of `rows`, (n_rows, n_topics), of length 1; zero where nothing is known

    def subset(self, is_chosen: NDArray[np.bool_]) -> OverlapPairs:
        """Some of the pairs."""
        return self._replace(
            first=self.first[is_chosen], second=self.second[is_chosen], overlap=self.overlap[is_chosen]
        )


def distinct_rows(texts: Sequence[str]) -> list[int]:
    """Where each distinct text occurs first."""
    row_of: dict[str, int] = {}
    for row, text in enumerate(texts):
        row_of.setdefault(text, row)
    return list(row_of.values())


def sample_pairs(texts: Sequence[str], *, topics: bool = False, seed: int = 0) -> tuple[OverlapPairs, ...]:
    """Pairs of distinct texts: each of a sample with the nearest by tf-idf and with random ones of the same half."""
    rng = np.random.default_rng(seed)
    # sorted, so that the order of the texts does not matter
    by_name = np.array(sorted(range(len(texts)), key=texts.__getitem__), dtype=np.intp)
    order = by_name[rng.permutation(len(texts))[:_MOST_TEXTS]]
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    if min(map(len, halves)) <= _RANDOM:
        return ()
    units = tfidf([texts[row] for row in order])
    if not units.nnz:  # no text has a word
        return ()
    of_topics = topic_vectors(units) if topics else None
    pairs, start = [], 0
    for half, others in (halves, halves[::-1]):
        n_queries = min(len(half), MOST_QUERIES)
        of_half = units[start : start + len(half)]
        topics_here = None if of_topics is None else of_topics[start : start + len(half)]
        start += len(half)
        first, second, overlap = [], [], []
        for begin in range(0, n_queries, _BLOCK):
            queries = np.arange(begin, min(begin + _BLOCK, n_queries))
            products = of_half[queries] @ of_half.T
            products.data = products.data.round(9)  # the last digits depend on the processor
            cosines = products.toarray()
            places = np.arange(len(queries))[:, None]
            drawn = (queries[:, None] + rng.integers(1, len(half), size=(len(queries), _RANDOM))) % len(half)
            similar = np.where(cosines > _DUPLICATE, -1.0, cosines)
            nearest = best_columns(similar, _NEAREST)
            columns = np.concatenate([nearest, drawn], axis=1)
            # a text that shares no word with any other has no nearest text
            is_used = np.concatenate([similar[places, nearest] > 0, similar[places, drawn] >= 0], axis=1)
            first.append(np.broadcast_to(queries[:, None], columns.shape)[is_used])
            second.append(columns[is_used])
            overlap.append(cosines[places, columns][is_used])
        rows = half[np.concatenate(first)], half[np.concatenate(second)]
        pairs.append(OverlapPairs(*rows, np.concatenate(overlap), half, others, topics_here))
    return tuple(pairs)


def word_counts(texts: Iterable[str]) -> Any:
    """How often each text has each word, a sparse matrix (n_texts, n_words); words in the order of the texts."""
    from scipy.sparse import csr_array

    counts = [Counter(words_of(text)) for text in texts]
    number_of: dict[str, int] = {}
    numbers = np.array([number_of.setdefault(word, len(number_of)) for words in counts for word in words], np.int32)
    values = np.array([count for words in counts for count in words.values()], np.float64)
    matrix = csr_array((values, numbers, np.cumsum([0, *map(len, counts)])), (len(counts), len(number_of)))
    matrix.sort_indices()
    return matrix


def tfidf(texts: Iterable[str]) -> Any:
    """Rows of length 1, (1 + log(count)) * (1 + log((1 + n_texts) / (1 + texts with the word))), as in scikit-learn."""
    matrix = word_counts(texts)
    frequencies = np.bincount(matrix.indices, minlength=matrix.shape[1])
    rarity = 1 + np.log((1 + matrix.shape[0]) / (1 + frequencies))
    matrix.data = (1 + np.log(matrix.data)) * rarity[matrix.indices]
    lengths = np.sqrt(matrix.multiply(matrix).sum(axis=1))
    matrix.data /= np.repeat(lengths, np.diff(matrix.indptr))
    return matrix


def topic_vectors(tfidf: Any) -> NDArray[np.float32] | None:
    """Texts in a space of topics, (n_texts, n_topics), of length 1; None if too few words are shared.

    Deerwester et al. 1990: the strongest singular directions of `tfidf`, a sparse matrix of unit rows, of the words
    that at least two texts hold.
    """
    from scipy.sparse.linalg import svds

    shared = tfidf[:, np.flatnonzero(np.bincount(tfidf.indices) > 1)]
    n_topics = min(_N_TOPICS, min(shared.shape) - 1)
    if n_topics < 2:
        return None
    lengths = np.sqrt(shared.multiply(shared).sum(axis=1))
    scale = np.divide(1, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    units = shared.multiply(scale[:, None]).tocsr()
    with one_thread_products():  # thousands of small ones, for each of which threads would wait for each other
        left, singular, _ = svds(units, n_topics, v0=np.ones(min(units.shape)))
    topics: NDArray[np.float32] = unit_rows((left * singular).astype(np.float32))
    return topics


def topical_agreement(
    vectors: NDArray[np.floating], texts: Sequence[str], *, seed: int = 0
) -> NDArray[np.float64] | None:
    """How near the ten nearest neighbors of a text among the vectors are to it by topic, (n_queries,), in [-1, 1].

    The queries are the same for all vectors of the same distinct texts, so that the results of two models can be
    compared text by text. None if the texts are too few, or share too few words.
    """
    halves = sample_pairs(texts, topics=True, seed=seed)
    found = [topics_of_neighbors(vectors[half.rows], half.topics) for half in halves if half.topics is not None]
    return np.concatenate(found) if found else None


def topics_of_neighbors(
    rows: NDArray[np.floating], topics: NDArray[np.float32], *, groups: NDArray[np.intp] | None = None
) -> NDArray[np.float64]:
    """Mean cosine of the topics of each of the first rows with those of its nearest rows (of its group), (n_queries,).

    Rows without a vector are no neighbors, and NaN as queries.
    """
    units = unit_rows(rows.astype(np.float32))
    has_vector = np.asarray(rows.any(axis=1))  # there may be no column, where a transform leaves no direction
    queries = np.arange(min(MOST_QUERIES, len(rows)))
    found = np.full(len(queries), np.nan)
    for part in np.array_split(queries, max(1, -(-len(queries) // _BLOCK))):
        cosines = units[part] @ units.T
        cosines[:, ~has_vector] = -np.inf
        cosines[np.arange(len(part)), part] = -np.inf
        if groups is not None:
            cosines[groups[part][:, None] != groups] = -np.inf
        near, nearest = nearest_columns(cosines, units[part], units, N_NEIGHBORS)
        is_near = near > -np.inf
        of_topics = np.einsum("qd,qkd->qk", topics[part], topics[nearest], dtype=np.float64)
        n_near = is_near.sum(axis=1)
        usable = has_vector[part] & (n_near > 0)
        found[part[usable]] = (of_topics * is_near).sum(axis=1)[usable] / n_near[usable]
    return found


_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # Thai ... Chinese
# accents and Indic vowel signs, which are no word characters to `re`
_SIGNS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"
_WORD = re.compile(rf"[{_UNSPACED}]+|(?:[^\W{_UNSPACED}]|[{_SIGNS}])+")
_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Words in lower case; pairs of characters for scripts that do not put spaces between words."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())  # three times as fast
    words: list[str] = []
    for word in _WORD.findall(text.lower()):
        if len(word) > 2 and _IS_UNSPACED.match(word):
            words += [word[place : place + 2] for place in range(len(word) - 1)]
        else:
            words.append(word)
    return words
