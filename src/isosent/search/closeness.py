"""Closeness: how much nearer two rows are to each other than to the rows around them, and which of it chance gives.

`Rule.fit` finds the nearest rows of each: all are compared, or of many rows those in lists around it (`near_others`).
`_least_closeness` measures in random parts of the corpus which closeness chance exceeds at the rate that was requested.
The `Rule` says which rows are close enough for what their words say (`wording`), and groups a row with its duplicates
(`stars`), those with most duplicates first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import wrong_value
from isosent.numeric.neighbors import exact_products, near_others, nearest_others
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
# of the median in a random part, where most texts are in large groups, as in a pool of translations. It is below the
# other one in ordinary corpora, whose median is 0.67 (SICK) to 0.94 times that of a part
_LEAST_OF_PART: Final = 0.5
_SHAPE: Final = 1.3
_MARGIN: Final = 1.3  # a whole corpus has more related texts than its parts
_CLOSE: Final = 0.35  # of pairs this close, one text is left when chance is measured
_FEWEST_OF_PART: Final = 25
_MOST_ABOVE: Final = 0.3  # share of the texts without a duplicate that may be left out by that
# of the closeness at a rate of 0.1: a corpus of duplicates only says nothing about chance, nor does one of texts that
# are all alike. The second is 1.2 at a rate of 0.01
_RANGE: Final = (0.1, 0.38)
N_NEIGHBORS: Final = 32
_ADDED: Final = 0.7  # of the closeness that is needed, if one text has more words and no others
_FEW_LETTERS: Final = 4  # that a misspelling changes, in bytes
_N_NEXT: Final = 8  # neighbors whose letters are compared
_MOST_COMPARED: Final = 50  # texts of a group that are compared with each other
_SHORTEST: Final = 1e-3  # distance that float32 cosines tell from 0
MOST_EXACT: Final = 20_000  # of more texts, each is compared with those in lists around it
_SAMPLE_OF_PART: Final = 1024  # rows of a part whose nearest one is found, to measure chance


def check_rate(where: str, false_positives: float, seed: int) -> None:
    """Refuse a rate of false positives that cannot be measured, and what is no seed."""
    if not LEAST_RATE <= _check.fraction(where, "false_positives", false_positives) <= MOST_RATE:
        raise wrong_value(where, "false_positives", f"be from {LEAST_RATE} to {MOST_RATE}", repr(false_positives))
    _check.whole_number(where, "seed", seed, 0)


# -- the rule --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Closeness:
    """The rule of a corpus, and the nearest rows of each row."""

    rule: Rule
    places: NDArray[np.intp]  # (n_rows, k)
    values: NDArray[np.float32]  # closeness of these
    sample: NDArray[np.intp] | None = None  # rows that were compared with all others, if not all were
    nearest: tuple[NDArray[np.float32], NDArray[np.intp]] | None = None  # cosines and places of all these

    @classmethod
    def fit(cls, units: NDArray[np.float32], wordings: Wordings | None, false_positives: float, seed: int) -> Closeness:
        """Find the nearest rows of each of two unit vectors or more, and measure chance if there are enough."""
        k = min(N_NEIGHBORS, len(units) - 1)
        cosines, places, sample, nearest = near_others(units, k, most_exact=MOST_EXACT, seed=seed)
        radii = _radii(_distances(cosines), _least_radius(units, seed))
        loose = Rule(units, radii, _CLOSE, None)
        values = loose.closeness(np.arange(len(units)), cosines, places)
        least = math.inf
        if len(units) >= FEWEST_TEXTS:
            # duplicates that meet in a part would look like chance: of those that are close in any case, one is left
            is_left = np.ones(len(units), dtype=np.bool_)
            for star in cls(loose, places, values).stars():
                is_left[star[1:]] = False
            least = _least_closeness(units, np.flatnonzero(is_left), false_positives, seed)
        return cls(Rule(units, radii, least, wordings), places, values, sample, nearest)

    @property
    def recall(self) -> float | None:
        """Share of the pairs of duplicates that were found; None if all rows were compared, NaN without a pair."""
        if self.sample is None or self.nearest is None:
            return None
        cosines, others = self.nearest
        is_pair = self.rule.are_duplicates(self.sample, others, self.rule.closeness(self.sample, cosines, others))
        first, second = np.repeat(self.sample, is_pair.sum(axis=1)), others[is_pair]
        is_found = (self.places[first] == second[:, None]).any(axis=1) | (self.places[second] == first[:, None]).any(
            axis=1
        )
        return float(is_found.mean()) if len(first) else math.nan

    def stars(self) -> list[NDArray[np.intp]]:
        """Groups of rows: each is a row and its duplicates, those with most duplicates first."""
        from scipy.sparse import csr_array

        rule, places, n_rows = self.rule, self.places, len(self.places)
        is_close = rule.are_duplicates(np.arange(n_rows), places, self.values)
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


class Rule:
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

    def closeness(
        self, rows: NDArray[np.intp], cosines: NDArray[np.float32], places: NDArray[np.intp]
    ) -> NDArray[np.float32]:
        """Closeness of each row and those at its places, (n_rows, k), from their cosines."""
        return _closeness(_distances(cosines), self.radii[rows, None], self.radii[places])

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


def _distances(cosines: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distances of unit vectors."""
    return np.asarray(np.sqrt(np.maximum(2 - 2 * cosines, _SHORTEST**2)))


def _radii(distances: NDArray[np.float32], least: float = 0.0) -> NDArray[np.float32]:
    """Distance at which the next neighbors of each row lie, (n_rows,), from those of its nearest ones."""
    radii = (
        distances[:, _NEXT].mean(axis=1) if distances.shape[1] >= _NEXT.stop else np.ones(len(distances), np.float32)
    )
    return np.asarray(np.maximum(radii, max(_LEAST_RADIUS * float(np.median(radii)), least)))


def _least_radius(units: NDArray[np.float32], seed: int) -> float:
    """The least radius of a corpus, from a random part, which has few texts of each group."""
    n_rows = max(len(units) // _N_PARTS, _FEWEST_OF_PART)
    part = units[np.random.default_rng(seed).permutation(len(units))[:n_rows]]
    if len(part) <= _NEXT.stop:
        return 0.0
    cosines, _ = nearest_others(part, _NEXT.stop, rows=np.arange(min(_SAMPLE_OF_PART, len(part))))
    return _LEAST_OF_PART * float(np.median(_radii(_distances(cosines))))


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
