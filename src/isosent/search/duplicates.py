"""Duplicates: groups of texts that are close to each other and differ in no fact.

`find_duplicates` encodes the texts, and groups each with those that are close enough for what their words say
(`closeness`). `_scores` gives each text of a group its nearest one. Equal texts are always grouped, also without a
vector.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.model import SentenceEncoder
from isosent.numeric.neighbors import nearest_others
from isosent.numeric.similarity import nonzero_rows
from isosent.numeric.threads import one_thread_products
from isosent.pages.progress import Progress
from isosent.search.chance import Chance
from isosent.search.closeness import FEWEST_TEXTS, Closeness, check_rate
from isosent.search.units import VectorsLike, compared_units
from isosent.search.wording import Wordings


@dataclass(frozen=True, slots=True, eq=False)
class Duplicates:
    """Groups of texts that say the same.

    Made by `find_duplicates`.

    Parameters
    ----------
    texts : tuple of str or None
        All texts; None if there were vectors alone.
    groups : tuple of tuple of int
        Rows of the texts of each group, counted from 0 and in their order; two or more. Large groups come first.
    scores : ndarray of shape (n_texts,), float32
        Cosine with the nearest text of the same group, 1 for equal texts; NaN for texts in no group.
    shares : ndarray of shape (n_texts,), float64
        Share of random pairs of these texts with a lower score, corrected for hubs; NaN for texts in no group, and if
        there are too few texts.
    false_positives : float or None
        Share of the texts without a duplicate that may get into a group; None if there were too few texts to tell what
        chance gives, so that only texts that are equal but for small changes are in a group.
    n_without_vector : int
        Texts without a token that the encoder knows; they are compared by their characters alone.
    recall : float or None
        Share of the pairs of duplicates that were found, measured on 4,096 texts that were compared with all others;
        NaN if none of these has a duplicate. None for up to 20,000 distinct texts, of which all pairs are compared.
    threshold : float or None
        How many times as near to each other as to the texts around them two texts are, at least, unless their words
        say more (see `find_duplicates`); above 1. None if there were too few texts.
    """

    texts: tuple[str, ...] | None
    groups: tuple[tuple[int, ...], ...]
    scores: NDArray[np.float32]
    shares: NDArray[np.float64]
    false_positives: float | None
    n_without_vector: int
    recall: float | None
    threshold: float | None = None

    def __repr__(self) -> str:
        return f"<Duplicates: {len(self.groups)} groups, {self.n_duplicates} of {self.n_texts} texts>"

    @property
    def n_texts(self) -> int:
        """Texts, or vectors if there were no texts."""
        return len(self.scores)

    @property
    def n_duplicates(self) -> int:
        """Texts in a group."""
        return sum(map(len, self.groups))

    @property
    def kept(self) -> NDArray[np.intp]:
        """Rows that are left if only the first text of each group is kept."""
        is_kept = np.ones(self.n_texts, dtype=np.bool_)
        for group in self.groups:
            is_kept[list(group[1:])] = False
        return np.flatnonzero(is_kept)

    def rows(self) -> list[tuple[int, int, str, float, float]]:
        """Group, row, text, score and share of each text in a group; groups are counted from 1.

        Returns
        -------
        list of tuple of (int, int, str, float, float)
            One tuple per text that is in a group, group by group. Rows are counted from 0. The text is empty if there
            were vectors alone.
        """
        return [
            (
                number,
                row,
                "" if self.texts is None else self.texts[row],
                float(self.scores[row]),
                float(self.shares[row]),
            )
            for number, group in enumerate(self.groups, 1)
            for row in group
        ]

    def to_pandas(self) -> Any:
        """Return `rows` as a pandas DataFrame with the columns group, row, text, score and share.

        Returns
        -------
        pandas.DataFrame
            One row per text that is in a group.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        return _extras.require("pandas").DataFrame(self.rows(), columns=["group", "row", "text", "score", "share"])

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; a share that is not known is null.

        Returns
        -------
        dict
            `n_texts`, `n_duplicates`, `n_without_vector`, `false_positives`, `recall`, `threshold`, and `groups`: row,
            text, score and share.
        """
        return {
            "n_texts": self.n_texts,
            "n_duplicates": self.n_duplicates,
            "n_without_vector": self.n_without_vector,
            "false_positives": self.false_positives,
            "recall": None if self.recall is None or math.isnan(self.recall) else self.recall,
            "threshold": self.threshold,
            "groups": [
                [
                    {
                        "row": row,
                        "text": None if self.texts is None else self.texts[row],
                        "score": float(self.scores[row]),
                        "share": None if math.isnan(self.shares[row]) else float(self.shares[row]),
                    }
                    for row in group
                ]
                for group in self.groups
            ],
        }


def find_duplicates(
    texts: Sequence[str] | None,
    model: SentenceEncoder | None = None,
    *,
    vectors: VectorsLike | None = None,
    false_positives: float = 0.01,
    seed: int = 0,
    progress: Progress | None = None,
) -> Duplicates:
    r"""Find groups of texts that say the same, without labels and without a threshold for the cosine.

    Texts that differ in a number, a negation, a name or one word in the place of another are no duplicates;
    texts that differ in case, punctuation, greetings or a misspelling always are.

    Parameters
    ----------
    texts : sequence of str or None
        At least one text; None for vectors alone, of which only the distances are compared.
    model : SentenceEncoder, optional
        Encodes the texts. Not needed with `vectors`.
    vectors : array of shape (n_texts, dim), or path, optional
        Vectors of the texts, one per text; with a model, of its encoder, and its transform is applied to them.
    false_positives : float, default 0.01
        Share of the texts without a duplicate that may get into a group by their distance, 0.001 to 0.2.
    seed : int, default 0
        Seed of the random parts in which chance is measured.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in texts.

    Returns
    -------
    Duplicates
        The groups. Equal texts are always in one group. Below 100 distinct texts with a vector, nothing can be said
        about chance, and the groups hold texts that are equal but for small changes; of vectors alone, those that
        rounding cannot tell apart, at a distance of at most 0.001.

    Raises
    ------
    InputError
        If there is no text and no vector, texts and vectors differ in number, or `false_positives` or `seed` is out
        of its range.

    Notes
    -----
    The closeness of two texts at the distance d is :math:`x = \ln(\sqrt{r s} / d)`, where r is the mean distance of the
    first text to its second and third nearest text, s that of the other, and neither less than 0.85 times the median.
    Texts are close enough if

    :math:`x > x_{50} + 1.3 (x_{90} - x_{50}) \left(\frac{\ln(0.5 / R)}{\ln 5}\right)^{1.3}`

    for the rate of false positives R and percentiles of the closeness of nearest neighbors in random eighths of the
    corpus. The right side is at most 1.2 for a rate of 0.01, and in proportion to the last factor for others. If one
    text has more words and no others, 0.7 times that is enough; if these are one or two words at the beginning or at
    the end that a mark sets apart, 0.35 is enough, too. With more than 20,000 distinct texts, each is compared with
    the nearest lists of k-means: as many, from 8 to 64, as hold 90% of the three nearest others of a sample. The
    number of threads changes no group.

    Examples
    --------
    >>> import isosent
    >>> from isosent.search import find_duplicates
    >>> texts = [*isosent.demo_texts(), "A woman dances in the rain out side."]
    >>> found = find_duplicates(texts, isosent.load("wordllama"))
    >>> found.to_pandas().head()  # doctest: +SKIP
    """
    where = "find_duplicates"
    if texts is not None:
        texts = tuple(_check.some_texts(where, texts))
    check_rate(where, false_positives, seed)
    if vectors is None and texts is not None:
        first_rows, place_of_row = distinct(texts, None)
        units = compared_units(where, [texts[row] for row in first_rows], model, None, progress)
    else:
        units = compared_units(where, texts, model, vectors, progress)
        first_rows, place_of_row = distinct(texts, units)
        units = units[first_rows]
    has_vector = nonzero_rows(units)
    places = np.flatnonzero(has_vector)  # among the distinct texts
    rate = None if len(places) < FEWEST_TEXTS else false_positives
    stars: list[NDArray[np.intp]] = []
    recall, least = None, math.inf
    if len(places) > 1:
        compared = units if len(places) == len(units) else units[places]
        wordings = None if texts is None else Wordings([texts[first_rows[place]] for place in places])
        with one_thread_products():
            closeness = Closeness.fit(compared, wordings, false_positives, seed)
            stars, recall, least = closeness.stars(), closeness.recall, closeness.rule.least
    label = np.arange(len(first_rows))  # of each distinct text: the place of its representative
    for star in stars:
        label[places[star]] = places[star[0]]
    scores, shares = _scores(units, label, np.bincount(place_of_row) > 1)
    members: dict[int, list[int]] = {}
    for row, place in enumerate(place_of_row):
        members.setdefault(int(label[place]), []).append(row)
    groups = sorted((tuple(rows) for rows in members.values() if len(rows) > 1), key=lambda rows: (-len(rows), rows))
    return Duplicates(
        texts,
        tuple(groups),
        scores[place_of_row],
        shares[place_of_row],
        rate,
        int(np.count_nonzero(~has_vector[place_of_row])),
        recall,
        math.exp(least) if math.isfinite(least) else None,
    )


def distinct(texts: Sequence[str] | None, units: NDArray[np.float32] | None) -> tuple[list[int], NDArray[np.intp]]:
    """Rows of the first of equal texts, or vectors if there are no texts; for each row, its place among them."""
    values: Sequence[Hashable] = texts or ()
    if texts is None and units is not None:  # rows of zeros mean "no vector", so they are not equal
        values = [unit.tobytes() if unit.any() else row for row, unit in enumerate(units)]
    place_of: dict[Hashable, int] = {}
    first_rows: list[int] = []
    for row, value in enumerate(values):
        if place_of.setdefault(value, len(first_rows)) == len(first_rows):
            first_rows.append(row)
    return first_rows, np.array([place_of[value] for value in values], dtype=np.intp)


def _scores(
    units: NDArray[np.float32], label: NDArray[np.intp], has_equal: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Cosine with the nearest text of the same group and its share, of each distinct text."""
    nearest = np.where(has_equal, np.arange(len(units)), -1)
    order = np.argsort(label, kind="stable")
    order = order[np.bincount(label)[label[order]] > 1]
    for members in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        asking = np.flatnonzero(nearest[members] < 0)
        if len(asking):
            nearest[members[asking]] = members[nearest_others(units[members], 1, rows=asking)[1][:, 0]]
    return chance_of_pairs(units, nearest)


def chance_of_pairs(
    units: NDArray[np.float32], others: NDArray[np.intp]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Cosine of each row with another one, and its share; 1 with itself, and NaN where the other one is -1."""
    rows = np.flatnonzero(others >= 0)
    scores, shares = np.full(len(units), np.nan, np.float32), np.full(len(units), np.nan)
    cosines = np.einsum("ij,ij->i", units[rows], units[others[rows]])
    scores[rows] = np.where(others[rows] == rows, 1, np.clip(cosines, -1, 1))
    chance = Chance.fit(units, n_rows=len(units))
    if chance is not None and len(rows):
        shares[rows] = chance.share(units[rows], units[others[rows], None], scores[rows, None])[:, 0]
    shares[~units.any(axis=1)] = np.nan
    return scores, shares
