"""Perturbed copies of texts: what "auto" has in place of labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

N_TEXTS = 1000
COPIES = ("half", "other_half", "content", "frame", "mixture")

_FEWEST_WORDS = 4  # a half has two words
_DROPPED = 0.4
_POOL = 20_000
_COPY = 0.95
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Sample:
    """Texts drawn from many, each with a neighbour and perturbed copies.

    Parameters
    ----------
    texts : list of str
        The texts.
    neighbours : list of str
        For each, the text of the pool that is nearest by tf-idf.
    copies : mapping of str to list of str
        For each of `COPIES`, one a text: two halves without a word in common (``half``, ``other_half``), the text
        without its most frequent words (``content``), without its rarest (``frame``), and half of its words among half
        of those of another text (``mixture``).
    """

    texts: list[str]
    neighbours: list[str]
    copies: Mapping[str, list[str]]

    @property
    def lists(self) -> dict[str, list[str]]:
        """All of it by name, as the criterion takes its vectors: ``text``, ``neighbour``, and the copies."""
        return {"text": self.texts, "neighbour": self.neighbours, **self.copies}


def perturb(texts: Sequence[str], *, seed: int = 0) -> Sample:
    """Draw texts and make their copies.

    Parameters
    ----------
    texts : sequence of str
        The texts; neither order nor repetition matters. Words are what stands between spaces.
    seed : int, default 0
        Of the draw and the copies.

    Returns
    -------
    Sample
        At most `N_TEXTS`, all of at least four words.

    Notes
    -----
    "content" and "frame" lose 40 % of the words, at least one, by the number of texts that hold a word. A neighbour has
    a tf-idf cosine of at most 0.95; nearer ones are copies. Neighbours are looked for among 20,000 texts at most.
    """
    rng = np.random.default_rng(seed)
    distinct = sorted(set(texts))
    frequency = Counter(key for text in distinct for key in {_key(word) for word in text.split()})
    usable = np.array([row for row, text in enumerate(distinct) if len(text.split()) >= _FEWEST_WORDS], dtype=np.intp)
    pool = [distinct[row] for row in rng.permutation(usable)[:_POOL]]
    drawn = pool[:N_TEXTS]
    words = [text.split() for text in drawn]
    copies: dict[str, list[str]] = {name: [] for name in COPIES}
    for place, line in enumerate(words):
        other = words[place - 1]
        order = rng.permutation(len(line))
        rare_last = np.argsort([-frequency[_key(word)] for word in line], kind="stable")
        n_dropped = max(1, round(_DROPPED * len(line)))
        copies["half"].append(_kept(line, order[: len(line) // 2]))
        copies["other_half"].append(_kept(line, order[len(line) // 2 :]))
        copies["content"].append(_kept(line, rare_last[n_dropped:]))
        copies["frame"].append(_kept(line, rare_last[: len(line) - n_dropped]))
        copies["mixture"].append(_mixed(line, other, rng))
    nearest = _nearest([[_key(word) for word in text.split()] for text in pool], len(drawn))
    return Sample(drawn, [pool[place] for place in nearest], copies)


def _key(word: str) -> str:
    return word.lower().strip(".,!?;:\"'()") or word


def _kept(line: Sequence[str], places: NDArray[np.intp]) -> str:
    return " ".join(line[place] for place in sorted(places))


def _mixed(first: Sequence[str], second: Sequence[str], rng: np.random.Generator) -> str:
    """Half the words of each, every word at its relative place."""
    placed = [
        ((place + 0.5) / len(line), line[place])
        for line in (first, second)
        for place in sorted(rng.permutation(len(line))[: max(1, round(len(line) / 2))])
    ]
    return " ".join(word for _, word in sorted(placed, key=lambda pair: pair[0]))


def _nearest(pool: Sequence[Sequence[str]], n_queries: int) -> list[int]:
    """Place in the pool of what is nearest to each of its first lines, itself and copies left out."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not n_queries:
        return []
    units = TfidfVectorizer(analyzer=lambda line: line, sublinear_tf=True).fit_transform(pool)
    nearest: list[int] = []
    for start in range(0, n_queries, _BLOCK):
        own = np.arange(start, min(start + _BLOCK, n_queries))
        cosines = (units[own] @ units.T).toarray()
        cosines[cosines > _COPY] = -1.0
        cosines[np.arange(len(own)), own] = -1.0
        nearest += cosines.argmax(axis=1).tolist()
    return nearest
