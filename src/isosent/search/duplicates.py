"""Duplicates: groups of texts that are close to each other and differ in no fact.

`find_duplicates` encodes the texts and finds the nearest ones of each: all are compared (`nearest_others`), or of many
texts those in lists around it (`nearest_in_lists`), and a sample says how many pairs that finds. Distances become
closeness: how much nearer two texts are than the texts around them. `_least_closeness` measures in random parts of the
corpus which closeness chance exceeds at the rate that was requested. `_Rule` says which texts are close enough for what
their words say (`wording`), and `_grouped` groups a text with its duplicates, those with most duplicates first.
`_scores` gives each text of a group its nearest one. Equal texts are always grouped, also without a vector.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.errors import wrong_value
from isosent.model import SentenceEncoder
from isosent.numeric.neighbors import exact_products, nearest_in_lists, nearest_others
from isosent.numeric.similarity import nonzero_rows
from isosent.numeric.threads import one_thread_products
from isosent.pages.progress import Progress
from isosent.search.chance import Chance
from isosent.search.units import VectorsLike, compared_units
from isosent.search.wording import Difference, Wordings

# The rule. docs/research/duplicates.md says how its constants were chosen and measured.
# 1. The closeness of two texts is ln(sqrt(r s) / d): d is their distance, and r and s are the distances at which the
#    next neighbours of each lie (cf. Lowe 2004, section 7.1). It hardly depends on how dense a corpus is.
# 2. Texts without a duplicate have a nearest neighbour too. How close it is by chance is measured in random parts of
#    the corpus, where duplicates rarely meet.
# 3. A curve through the median and the 90th percentile of these says which closeness chance gives at a small rate.
# 4. How close they must be depends on their words: small changes are duplicates at any distance, contrasts at none.
#    Of vectors without texts, the closeness decides alone; equal ones, but for rounding, are always duplicates.
# 5. A group is a text and all its duplicates that are in no larger group: texts are not chained.
FEWEST_TEXTS: Final = 100
LEAST_RATE: Final = 0.001
MOST_RATE: Final = 0.2
_N_PARTS: Final = 8
_NEXT: Final = slice(1, 3)  # the second and the third neighbour
_LEAST_RADIUS: Final = 0.85  # of the median: in a large group, the next neighbours are duplicates too
_SHAPE: Final = 1.3
_MARGIN: Final = 1.3  # a whole corpus has more related texts than its parts
_CLOSE: Final = 0.35  # of pairs this close, one text is left when chance is measured
_FEWEST_OF_PART: Final = 25
_MOST_ABOVE: Final = 0.3  # share of the texts without a duplicate that may be left out by that
# of the closeness at a rate of 0.1: a corpus of duplicates only says nothing about chance, nor does one of texts that
# are all alike. The second is 1.2 at a rate of 0.01
_RANGE: Final = (0.1, 0.38)
_N_NEIGHBORS: Final = 32
_ADDED: Final = 0.7  # of the closeness that is needed, if one text has more words and no others
_FEW_LETTERS: Final = 4  # that a misspelling changes, in bytes
_N_NEXT: Final = 8  # neighbors whose letters are compared
_MOST_COMPARED: Final = 50  # texts of a group that are compared with each other
_SHORTEST: Final = 1e-3  # distance that float32 cosines tell from 0
MOST_EXACT: Final = 20_000  # of more texts, each is compared with those in lists around it
_SAMPLE: Final = 4096  # rows that are compared with all others, to measure the recall
_SAMPLE_OF_PART: Final = 1024  # rows of a part whose nearest one is found, to measure chance


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
    if not LEAST_RATE <= _check.fraction(where, "false_positives", false_positives) <= MOST_RATE:
        raise wrong_value(where, "false_positives", f"be from {LEAST_RATE} to {MOST_RATE}", repr(false_positives))
    _check.whole_number(where, "seed", seed, 0)
    if vectors is None and texts is not None:
        first_rows, place_of_row = _distinct(texts)
        units = compared_units(where, [texts[row] for row in first_rows], model, None, progress)
    else:
        units = compared_units(where, texts, model, vectors, progress)
        # rows of zeros mean "no vector", so they are not equal
        rows = [unit.tobytes() if unit.any() else row for row, unit in enumerate(units)]
        first_rows, place_of_row = _distinct(rows if texts is None else texts)
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
            stars, recall, least = _stars(compared, wordings, false_positives, seed)
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


def _distinct(values: Sequence[Hashable]) -> tuple[list[int], NDArray[np.intp]]:
    """Rows of the first of equal values, and for each value the place of its own among them."""
    place_of: dict[Hashable, int] = {}
    first_rows: list[int] = []
    for row, value in enumerate(values):
        if place_of.setdefault(value, len(first_rows)) == len(first_rows):
            first_rows.append(row)
    return first_rows, np.array([place_of[value] for value in values], dtype=np.intp)


# -- the rule --------------------------------------------------------------------------------------------------------


def _stars(
    units: NDArray[np.float32], wordings: Wordings | None, false_positives: float, seed: int
) -> tuple[list[NDArray[np.intp]], float | None, float]:
    """Groups of rows, each with its representative first; the recall of the pairs; the least closeness.

    The recall is None if all were compared, the closeness infinite for few rows.
    """
    k = min(_N_NEIGHBORS, len(units) - 1)
    is_exact = len(units) <= MOST_EXACT
    if is_exact:
        cosines, places = nearest_others(units, k)
    else:
        sample = np.sort(np.random.default_rng(seed).permutation(len(units))[:_SAMPLE])
        exact = nearest_others(units, k, rows=sample)
        cosines, places = nearest_in_lists(units, k, sample, exact[1], seed)
    distances = _distances(cosines)
    radii = _radii(distances)
    closeness = _closeness(distances, radii[:, None], radii[places])
    least = math.inf
    if len(units) >= FEWEST_TEXTS:
        # duplicates that meet in a part would look like chance: of those that are close in any case, one is left
        is_left = np.ones(len(units), dtype=np.bool_)
        for star in _grouped(_Rule(units, radii, _CLOSE, None), places, closeness):
            is_left[star[1:]] = False
        least = _least_closeness(units, np.flatnonzero(is_left), false_positives, seed)
    rule = _Rule(units, radii, least, wordings)
    stars = _grouped(rule, places, closeness)
    if is_exact:
        return stars, None, least
    is_pair = rule.are_duplicates(
        sample, exact[1], _closeness(_distances(exact[0]), radii[sample, None], radii[exact[1]])
    )
    first, second = np.repeat(sample, is_pair.sum(axis=1)), exact[1][is_pair]
    is_found = (places[first] == second[:, None]).any(axis=1) | (places[second] == first[:, None]).any(axis=1)
    return stars, float(is_found.mean()) if len(first) else math.nan, least


class _Rule:
    """Which rows are duplicates: those that are close enough for what their words say."""

    def __init__(
        self, units: NDArray[np.float32], radii: NDArray[np.float32], least: float, wordings: Wordings | None
    ) -> None:
        self.units, self.radii, self.least, self.wordings = units, radii, least, wordings
        self.loosest = least if wordings is None else min(least * _ADDED, _CLOSE)

    def are_duplicates(
        self, rows: NDArray[np.intp], places: NDArray[np.intp], closeness: NDArray[np.float32]
    ) -> NDArray[np.bool_]:
        """Whether each row and those at its places are, (n_rows, k)."""
        is_close: NDArray[np.bool_] = np.greater(closeness, self.loosest)
        if self.wordings is None:
            return is_close | self._is_equal(closeness, rows[:, None], places)
        near = places[:, :_N_NEXT]
        is_close[:, :_N_NEXT] |= self.wordings.letter_distances(rows, near) <= _FEW_LETTERS
        at, columns = np.nonzero(is_close)
        first, second = rows[at], places[at, columns]
        pairs, back = np.unique(
            np.stack([np.minimum(first, second), np.maximum(first, second)]), axis=1, return_inverse=True
        )
        is_close[at, columns] = self._are_close(closeness[at, columns], self.wordings.differences(*pairs)[back])
        return is_close

    def ring(self, center: int, edges: Any) -> NDArray[np.intp]:
        """Duplicates of a row, of all rows; in a large set, of those that a chain of edges leads to."""
        seen = np.array([center])
        new, ring = seen, [edges[[center]].indices]
        if len(self.units) <= MOST_EXACT:
            return np.union1d(ring[0], self._duplicates_of(center, np.arange(len(self.units))))
        while new.size:
            others = np.setdiff1d(edges[new].indices, seen)
            new, seen = self._duplicates_of(center, others), np.concatenate([seen, others])
            ring.append(new)
        return np.unique(np.concatenate(ring))

    def compatible(self, center: int, ring: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of a ring, nearest first, that are in no contrast with each other."""
        if self.wordings is None or len(ring) < 2:
            return ring
        order = ring[np.argsort(-exact_products(self.units[center], self.units[ring]), kind="stable")]
        kept: list[int] = []
        changed: list[int] = []
        for row in order.tolist():
            if not self.wordings.is_equal(center, row):
                if any(self.wordings.difference(other, row) == Difference.CONTRAST for other in changed):
                    continue
                if len(changed) < _MOST_COMPARED:
                    changed.append(row)
            kept.append(row)
        return np.sort(np.array(kept, dtype=np.intp))

    def _duplicates_of(self, center: int, others: NDArray[np.intp]) -> NDArray[np.intp]:
        closeness = _closeness(
            _distances(self.units[others] @ self.units[center]), self.radii[center], self.radii[others]
        )
        is_close = np.greater(closeness, self.loosest)
        if self.wordings is None:
            is_close |= self._is_equal(closeness, center, others)
        is_close &= others != center
        others, closeness = others[is_close], closeness[is_close]
        if self.wordings is None:
            return others
        return others[self._are_close(closeness, self.wordings.differences(np.full(len(others), center), others))]

    def _is_equal(self, closeness: NDArray[np.float32], rows: Any, others: Any) -> NDArray[np.bool_]:
        """Whether vectors are equal but for rounding: as close as is possible, however close all others are."""
        return np.asarray(closeness >= _closeness(np.float32(_SHORTEST), self.radii[rows], self.radii[others]))

    def _are_close(self, closeness: NDArray[np.float32], differences: NDArray[np.int8]) -> NDArray[np.bool_]:
        """Whether rows are close enough; small changes are duplicates in any case."""
        least = np.array([-np.inf, self.loosest, self.least * _ADDED, self.least, np.inf], np.float32)
        return np.asarray(closeness > least[differences])


def _grouped(rule: _Rule, places: NDArray[np.intp], closeness: NDArray[np.float32]) -> list[NDArray[np.intp]]:
    """Groups of rows: each is a row and its duplicates, those with most duplicates first."""
    from scipy.sparse import csr_array

    n_rows = len(places)
    is_close = rule.are_duplicates(np.arange(n_rows), places, closeness)
    rows, columns = np.nonzero(is_close)
    others = places[rows, columns]
    if rule.wordings is not None:  # they may have other vectors
        equal = rule.wordings.equal_texts()
        rows, others = np.append(rows, equal[0]).astype(np.intp), np.append(others, equal[1]).astype(np.intp)
    edges = csr_array((np.ones(len(rows), np.int8), (rows, others)), shape=(n_rows, n_rows))
    edges = (edges + edges.T).tocsr()  # a row may be among the nearest of another, but not the other way round
    degrees, is_full = np.diff(edges.indptr), is_close.sum(axis=1) == is_close.shape[1]
    is_free = np.ones(n_rows, dtype=np.bool_)
    stars = []
    for center in np.argsort(-degrees, kind="stable")[: np.count_nonzero(degrees)].tolist():
        if not is_free[center]:
            continue
        ring: Any = edges.indices[edges.indptr[center] : edges.indptr[center + 1]]
        if is_full[center]:  # there may be more than its nearest ones
            ring = rule.ring(center, edges)
        ring = rule.compatible(center, ring[is_free[ring] & (ring != center)])
        if ring.size:
            stars.append(np.concatenate([[center], ring]))
            is_free[stars[-1]] = False
    return stars


def _distances(cosines: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distances of unit vectors."""
    return np.asarray(np.sqrt(np.maximum(2 - 2 * cosines, _SHORTEST**2)))


def _radii(distances: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distance at which the next neighbors of each row lie, (n_rows,), from those of its nearest ones."""
    radii = (
        distances[:, _NEXT].mean(axis=1) if distances.shape[1] >= _NEXT.stop else np.ones(len(distances), np.float32)
    )
    return np.asarray(np.maximum(radii, _LEAST_RADIUS * np.median(radii)))


def _closeness(distances: NDArray[np.float32] | np.float32, radii: Any, other_radii: Any) -> NDArray[np.float32]:
    return np.asarray(np.log(np.sqrt(radii * other_radii) / distances))


def _least_closeness(units: NDArray[np.float32], rows: NDArray[np.intp], false_positives: float, seed: int) -> float:
    """Closeness that the nearest text of a text without a duplicate exceeds at this rate; `rows` are left of them."""
    n_parts = min(_N_PARTS, len(rows) // _FEWEST_OF_PART)
    parts = np.array_split(rows[np.random.default_rng(seed).permutation(len(rows))], n_parts) if n_parts else []
    n_asking = len(units) if len(units) <= MOST_EXACT else _SAMPLE_OF_PART
    nearest = np.concatenate([np.empty(0, np.float32), *(_nearest_closeness(units[part], n_asking) for part in parts)])
    if not np.less(nearest, _CLOSE).any():  # nearly all texts have a duplicate
        return _RANGE[1] * _curve(false_positives)
    median, high = np.quantile(nearest[nearest < _CLOSE], [0.5, 0.9])
    # Texts above _CLOSE are missing: the spread of the curve and their share are found in turns. They are no more than
    # those above it: in a dense corpus, the turns would never end
    most = min(float(np.mean(nearest >= _CLOSE)), _MOST_ABOVE)
    share, spread = 0.0, 0.0
    for _ in range(50):
        spread = (high - median) / _curve(0.1 + 0.9 * share)
        if spread > 0:
            above = 0.5 * math.exp(-math.log(5) * ((_CLOSE - median) / spread) ** (1 / _SHAPE))
            share = min(above, most)
    curve = _curve(false_positives)
    return float(np.clip(median + _MARGIN * spread * curve, _RANGE[0] * curve, _RANGE[1] * curve))


def _nearest_closeness(units: NDArray[np.float32], n_asking: int) -> NDArray[np.float32]:
    """Closeness of the nearest other row of the first rows."""
    asking = np.arange(min(n_asking, len(units)))
    cosines, places = nearest_others(units, 3, rows=asking)
    radii = np.zeros(len(units), np.float32)
    radii[asking] = _radii(_distances(cosines))
    others = np.setdiff1d(places, asking)
    if others.size:
        means = _distances(nearest_others(units, 3, rows=others)[0])[:, _NEXT].mean(axis=1)
        radii[others] = np.maximum(means, radii[asking].min())
    return np.asarray(_closeness(_distances(cosines), radii[asking, None], radii[places]).max(axis=1))


def _curve(share: float) -> float:
    """Closeness that this share of texts exceeds: 0 for half of them, 1 for a tenth."""
    return math.pow(math.log(0.5 / share) / math.log(5), _SHAPE)


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
    rows = np.flatnonzero(nearest >= 0)
    scores, shares = np.full(len(units), np.nan, np.float32), np.full(len(units), np.nan)
    cosines = np.einsum("ij,ij->i", units[rows], units[nearest[rows]])
    scores[rows] = np.where(nearest[rows] == rows, 1, np.clip(cosines, -1, 1))
    chance = Chance.fit(units, n_rows=len(units))
    if chance is not None and len(rows):
        shares[rows] = chance.share(units[rows], units[nearest[rows], None], scores[rows, None])[:, 0]
    shares[~units.any(axis=1)] = np.nan
    return scores, shares
