"""A cosine as a sum over pairs of words, for vectors that are sums of word vectors."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.encoders.base import Summands
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.similarity import unit_rows

MEAN, ROUNDING = "(mean)", "(rounding)"
_VISIBLE = 1e-4  # the length of a unit vector that is no longer shared silently; two decimals are printed


class WordPair(NamedTuple):
    """A word of each text, and what the two add to the cosine."""

    a: str
    b: str
    contribution: float


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """Which words make two texts similar: what each pair of words adds to the cosine.

    `SentenceEncoder.explain` returns one. Printed, it is one line with the five largest contributions.

    Parameters
    ----------
    words_a, words_b : tuple of str
        Words of the two texts, as written there. Last may come ``"(mean)"``, for the mean that the model subtracts from
        every vector, and ``"(rounding)"``, where the rounding of the vectors is too large to ignore.
    contributions : ndarray of shape (n_words_a, n_words_b), float64
        What each pair adds to the cosine; below 0 where it makes the texts less similar. The sum of a row is what that
        word of the first text adds. A text without a known word has no rows or columns.
    cosine : float
        Cosine of the two texts, the sum of `contributions`.
    """

    words_a: tuple[str, ...]
    words_b: tuple[str, ...]
    contributions: NDArray[np.float64]
    cosine: float

    def top(self, n_pairs: int | None = None) -> list[WordPair]:
        """Pairs of words by the size of their contributions, largest first.

        Parameters
        ----------
        n_pairs : int, optional
            How many pairs to return; all by default.

        Returns
        -------
        list of WordPair
            Named tuples ``(a, b, contribution)``. Contributions of the same two words, in upper or lower case, are
            added up. Those of all pairs add up to the cosine.
        """
        folded_a, folded_b = ([word.casefold() for word in words] for words in (self.words_a, self.words_b))
        spelling: dict[tuple[str, str], tuple[str, str]] = {}
        sums: defaultdict[tuple[str, str], float] = defaultdict(float)
        for i, row in enumerate(self.contributions.tolist()):
            for j, contribution in enumerate(row):
                pair = folded_a[i], folded_b[j]
                spelling.setdefault(pair, (self.words_a[i], self.words_b[j]))
                sums[pair] += contribution
        pairs = [WordPair(*spelling[pair], contribution) for pair, contribution in sums.items()]
        return sorted(pairs, key=lambda pair: -abs(pair.contribution))[:n_pairs]

    def line(self, n_pairs: int = 5) -> str:
        """One line of text, such as ``bike ~ bicycle 0.21, man ~ person 0.13, 14 other pairs 0.08``.

        Parameters
        ----------
        n_pairs : int, default 5
            Pairs to name. The others are counted and added up.

        Returns
        -------
        str
            The largest contributions, and the sum of the others; "no known word" if a text has none.
        """
        if not self.contributions.size:
            return "no known word"
        pairs = self.top()
        sums = [(f"{a} ~ {b}", contribution) for a, b, contribution in pairs[:n_pairs]]
        if others := pairs[n_pairs:]:
            label = f"{len(others)} other {'pair' if len(others) == 1 else 'pairs'}"
            sums.append((label, sum(pair.contribution for pair in others)))
        return ", ".join(f"{label} {round(total, 2) + 0.0:.2f}" for label, total in sums)  # + 0.0: -0.0 becomes 0.0

    def __str__(self) -> str:
        return self.line()

    def to_pandas(self) -> Any:
        """Table of the contributions, with the words of the first text as rows and those of the second as columns.

        Returns
        -------
        pandas.DataFrame
            Of shape (n_words_a, n_words_b). Words that a text has twice are there twice.
        """
        import pandas

        return pandas.DataFrame(self.contributions, index=list(self.words_a), columns=list(self.words_b))


class UnitSum(NamedTuple):
    """The vector of a text, scaled to length 1, as a sum."""

    words: tuple[str, ...]
    rows: NDArray[np.float64]  # (n_words, dim)


def unit_sum(summands: Summands, linear_map: LinearMap | None, vector: NDArray[np.float32]) -> UnitSum:
    """Map the summands of a text, whose sentence vector is `vector` of shape (dim,), and scale them."""
    words, rows = tuple(summands.words), summands.vectors
    if linear_map is not None:
        rows = rows @ linear_map.weight
        # The sum maps to x W + b. The weights of a mean add up to one, so its words can share b: v W + b is a centred
        # word vector, the same one in every text. Other weights have another sum in each text, and so would such a
        # word vector; there b is a summand of its own.
        if summands.shares is not None:
            rows = rows + summands.shares[:, None] * linear_map.bias
        elif len(rows) and linear_map.bias.any():
            words, rows = (*words, MEAN), np.vstack([rows, linear_map.bias])
    [unit] = unit_rows(vector[None, :].astype(np.float64))
    length = np.linalg.norm(rows.sum(axis=0))
    if not (len(rows) and length and unit.any()):
        return UnitSum(words, np.zeros((len(rows), len(vector))))
    rows = rows / length
    # Vectors are float32. What rounding adds is shared, so that the sum is the cosine of `similarity`. It is small,
    # unless a map enlarges it, such as whitening after GEM, which leaves only rounding of some dimensions.
    rounding = unit - rows.sum(axis=0)
    if np.linalg.norm(rounding) > _VISIBLE:
        return UnitSum((*words, ROUNDING), np.vstack([rows, rounding]))
    return UnitSum(words, rows + rounding / len(rows))


def explain_cosine(a: UnitSum, b: UnitSum) -> Explanation:
    """Contribution of each pair of words to the cosine of two texts."""
    contributions = a.rows @ b.rows.T
    cosine = float(a.rows.sum(axis=0) @ b.rows.sum(axis=0))
    return Explanation(a.words, b.words, contributions, cosine)
