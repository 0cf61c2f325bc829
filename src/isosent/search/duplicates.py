"""Duplicates: groups of texts that are much closer to each other than the other texts around them.

`find_duplicates` encodes the texts, finds the nearest ones of each (`neighbours`), and turns distances into closeness:
how much nearer two texts are than the texts around them. `_least_closeness` measures in random parts of the corpus
which closeness chance exceeds at the rate that was asked for, and `_stars_above` groups a text with all that are
closer, those with most duplicates first. `_scores` gives each text of a group its nearest one. Equal texts are always
grouped, also without a vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.encoders.base import Progress
from isosent.errors import InputError
from isosent.loading import check_model
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.search.chance import Chance
from isosent.transforms.auto import distinct_rows

# The rule. docs/duplicates.md says how its constants were chosen and measured.
# 1. The closeness of two texts is ln(sqrt(r s) / d): d is their distance, and r and s are the distances at which the
#    next neighbours of each lie (cf. Lowe 2004, section 7.1). It hardly depends on how dense a corpus is.
# 2. Texts without a duplicate have a nearest neighbour too. How close it is by chance is measured in random parts of
#    the corpus, where duplicates rarely meet.
# 3. A curve through the median and the 90th percentile of these says which closeness chance gives at a small rate.
# 4. A group is a text and all its duplicates that are in no larger group: texts are not chained.
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
_RANGE: Final = (0.1, 1.2)  # of the closeness that chance gives: a corpus of duplicates only says nothing about it
_N_NEIGHBOURS: Final = 32
_SHORTEST: Final = 1e-3  # distance that float32 cosines tell from 0
_BLOCK_NUMBERS: Final = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Duplicates:
    """Groups of texts that say the same.

    Made by `find_duplicates`.

    Parameters
    ----------
    texts : tuple of str
        All texts.
    groups : tuple of tuple of int
        Rows of the texts of each group, counted from 0 and in their order; two or more. Large groups come first.
    scores : ndarray of shape (n_texts,), float32
        Cosine with the nearest text of the same group, 1 for equal texts; NaN for texts in no group.
    shares : ndarray of shape (n_texts,), float64
        Share of random pairs of these texts with a lower score, corrected for hubs; NaN for texts in no group, and if
        there are too few texts.
    false_alarms : float or None
        Share of the texts without a duplicate that may get into a group; None if there were too few texts to tell what
        chance gives, so that only equal texts are in a group.
    n_without_vector : int
        Texts without a token that the encoder knows; they are compared by their characters alone.
    """

    texts: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    scores: NDArray[np.float32]
    shares: NDArray[np.float64]
    false_alarms: float | None
    n_without_vector: int

    def __repr__(self) -> str:
        return f"<Duplicates: {len(self.groups)} groups, {self.n_duplicates} of {len(self.texts)} texts>"

    @property
    def n_duplicates(self) -> int:
        """Texts in a group."""
        return sum(map(len, self.groups))

    @property
    def kept(self) -> NDArray[np.intp]:
        """Rows that are left if only the first text of each group is kept."""
        is_kept = np.ones(len(self.texts), dtype=np.bool_)
        for group in self.groups:
            is_kept[list(group[1:])] = False
        return np.flatnonzero(is_kept)

    def rows(self) -> list[tuple[int, int, str, float, float]]:
        """Group, row, text, score and share of each text in a group; groups are counted from 1.

        Returns
        -------
        list of tuple of (int, int, str, float, float)
            One tuple per text that is in a group, group by group. Rows are counted from 0.
        """
        return [
            (number, row, self.texts[row], float(self.scores[row]), float(self.shares[row]))
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
            `n_texts`, `n_duplicates`, `n_without_vector`, `false_alarms`, and `groups`: row, text, score and share.
        """
        return {
            "n_texts": len(self.texts),
            "n_duplicates": self.n_duplicates,
            "n_without_vector": self.n_without_vector,
            "false_alarms": self.false_alarms,
            "groups": [
                [
                    {
                        "row": row,
                        "text": self.texts[row],
                        "score": float(self.scores[row]),
                        "share": None if math.isnan(self.shares[row]) else float(self.shares[row]),
                    }
                    for row in group
                ]
                for group in self.groups
            ],
        }


def find_duplicates(
    texts: Sequence[str],
    model: SentenceEncoder,
    *,
    false_alarms: float = 0.01,
    seed: int = 0,
    progress: Progress | None = None,
) -> Duplicates:
    r"""Find groups of texts that say the same, without labels and without a threshold for the cosine.

    Parameters
    ----------
    texts : sequence of str
        At least one text.
    model : SentenceEncoder
        Encodes the texts.
    false_alarms : float, default 0.01
        Share of the texts without a duplicate that may get into a group, 0.001 to 0.2.
    seed : int, default 0
        Seed of the random parts in which chance is measured.
    progress : callable, optional
        Called with the number of texts encoded since the last call.

    Returns
    -------
    Duplicates
        The groups. Equal texts are always in one group. Below 100 distinct texts with a vector, nothing can be said
        about chance, and the groups hold equal texts only.

    Raises
    ------
    InputError
        If there is no text, or `false_alarms` or `seed` is out of its range.

    Notes
    -----
    The closeness of two texts at the distance d is :math:`x = \ln(\sqrt{r s} / d)`, where r is the mean distance of the
    first text to its second and third nearest text, s that of the other, and neither less than 0.85 times the median.
    Texts are duplicates if

    .. math:: x > x_{50} + 1.3 (x_{90} - x_{50}) \left(\frac{\ln(0.5 / R)}{\ln 5}\right)^{1.3}

    for the rate of false alarms R and percentiles of the closeness of nearest neighbours in random eighths of the
    corpus. All texts are compared with all others: twice as many texts take four times as long.

    Examples
    --------
    >>> import isosent
    >>> from isosent.search import find_duplicates
    >>> texts = [*isosent.demo_texts(), "A woman dances in the rain out side."]
    >>> found = find_duplicates(texts, isosent.load("wordllama"))
    >>> found.to_pandas().head()  # doctest: +SKIP
    """
    where = "find_duplicates"
    texts = tuple(_check.some_texts(where, texts))
    check_model(where, model)
    if not LEAST_RATE <= _check.fraction(where, "false_alarms", false_alarms) <= MOST_RATE:
        raise InputError(f"{where}: false_alarms must lie in [{LEAST_RATE}, {MOST_RATE}]; got {false_alarms!r}.")
    _check.whole_number(where, "seed", seed, 0)
    first_rows = distinct_rows(texts)
    units = unit_rows(model.encode([texts[row] for row in first_rows], progress=progress)).astype(
        np.float32, copy=False
    )
    has_vector = nonzero_rows(units)
    places = np.flatnonzero(has_vector)  # among the distinct texts
    if len(places) < FEWEST_TEXTS:
        stars, rate = [], None
    else:
        stars, rate = _stars(units[places], false_alarms, seed), false_alarms
    label = np.arange(len(first_rows))  # of each distinct text: the place of its representative
    for star in stars:
        label[places[star]] = places[star[0]]
    place_of = {texts[row]: place for place, row in enumerate(first_rows)}
    place_of_row = np.array([place_of[text] for text in texts])
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
    )


def neighbours(units: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """Cosines and places of the k nearest other rows of each row, nearest first, (n_rows, k); k < n_rows."""
    cosines, places = np.empty((len(units), k), np.float32), np.empty((len(units), k), np.intp)
    step = max(1, _BLOCK_NUMBERS // len(units))
    for start in range(0, len(units), step):
        block = units[start : start + step] @ units.T
        own = np.arange(len(block))
        block[own, start + own] = -np.inf
        nearest = np.argpartition(block, -k, axis=1)[:, -k:]
        found = np.take_along_axis(block, nearest, axis=1)
        order = np.lexsort((nearest, -found), axis=1)
        cosines[start : start + step] = np.take_along_axis(found, order, axis=1)
        places[start : start + step] = np.take_along_axis(nearest, order, axis=1)
    return cosines, places


def _stars(units: NDArray[np.float32], false_alarms: float, seed: int) -> list[NDArray[np.intp]]:
    """Groups of rows, each with its representative first."""
    cosines, places = neighbours(units, min(_N_NEIGHBOURS, len(units) - 1))
    distances = _distances(cosines)
    radii = _radii(distances)
    closeness = _closeness(distances, radii[:, None], radii[places])
    # duplicates that meet in a part would look like chance: of those that are close in any case, one is left
    is_left = np.ones(len(units), dtype=np.bool_)
    for star in _stars_above(_CLOSE, units, radii, places, closeness):
        is_left[star[1:]] = False
    least = _least_closeness(units[is_left], false_alarms, seed)
    return _stars_above(least, units, radii, places, closeness)


def _stars_above(
    least: float,
    units: NDArray[np.float32],
    radii: NDArray[np.float32],
    places: NDArray[np.intp],
    closeness: NDArray[np.float32],
) -> list[NDArray[np.intp]]:
    """Groups of rows that are closer to the first of their group than `least`."""
    from scipy.sparse import csr_array

    n_rows = len(units)
    is_close: NDArray[np.bool_] = np.greater(closeness, least)
    rows, columns = np.nonzero(is_close)
    edges = csr_array((np.ones(len(rows), np.int8), (rows, places[rows, columns])), shape=(n_rows, n_rows))
    edges = (edges + edges.T).tocsr()  # a row may be among the nearest of another, but not the other way round
    degrees, is_full = np.diff(edges.indptr), is_close.sum(axis=1) == is_close.shape[1]
    is_free = np.ones(n_rows, dtype=np.bool_)
    stars = []
    for center in np.argsort(-degrees, kind="stable")[: np.count_nonzero(degrees)]:
        if not is_free[center]:
            continue
        ring: Any = edges.indices[edges.indptr[center] : edges.indptr[center + 1]]
        if is_full[center]:  # there may be more than its nearest ones
            to_all = _distances(units @ units[center])
            ring = np.flatnonzero(np.greater(_closeness(to_all, radii[center], radii), least))
        ring = ring[is_free[ring] & (ring != center)]
        if ring.size:
            stars.append(np.concatenate([[center], ring]))
            is_free[stars[-1]] = False
    return stars


def _distances(cosines: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distances of unit vectors."""
    return np.asarray(np.sqrt(np.maximum(2 - 2 * cosines, _SHORTEST**2)))


def _radii(distances: NDArray[np.float32]) -> NDArray[np.float32]:
    """Distance at which the next neighbours of each row lie, (n_rows,), from those of its nearest ones."""
    radii = distances[:, _NEXT].mean(axis=1)
    return np.asarray(np.maximum(radii, _LEAST_RADIUS * np.median(radii)))


def _closeness(distances: NDArray[np.float32], radii: Any, other_radii: Any) -> NDArray[np.float32]:
    return np.asarray(np.log(np.sqrt(radii * other_radii) / distances))


def _least_closeness(units: NDArray[np.float32], false_alarms: float, seed: int) -> float:
    """Closeness that the nearest text of a text without a duplicate exceeds at this rate."""
    n_parts = min(_N_PARTS, len(units) // _FEWEST_OF_PART)
    parts = np.array_split(np.random.default_rng(seed).permutation(len(units)), n_parts) if n_parts else []
    nearest = np.concatenate([np.empty(0, np.float32), *(_nearest_closeness(units[part]) for part in parts)])
    if not np.less(nearest, _CLOSE).any():  # nearly all texts have a duplicate
        return _RANGE[1]
    median, high = np.quantile(nearest[nearest < _CLOSE], [0.5, 0.9])
    # Texts above _CLOSE are missing: the spread of the curve and their share are found in turns
    share, spread = 0.0, 0.0
    for _ in range(50):
        spread = (high - median) / _curve(0.1 + 0.9 * share)
        if spread > 0:
            above = 0.5 * math.exp(-math.log(5) * ((_CLOSE - median) / spread) ** (1 / _SHAPE))
            share = min(above, _MOST_ABOVE)
    return float(np.clip(median + _MARGIN * spread * _curve(false_alarms), *_RANGE))


def _nearest_closeness(units: NDArray[np.float32]) -> NDArray[np.float32]:
    cosines, places = neighbours(units, 3)
    distances = _distances(cosines)
    radii = _radii(distances)
    return np.asarray(_closeness(distances, radii[:, None], radii[places]).max(axis=1))


def _curve(share: float) -> float:
    """Closeness that this share of texts exceeds: 0 for half of them, 1 for a tenth."""
    return math.pow(math.log(0.5 / share) / math.log(5), _SHAPE)


def _scores(
    units: NDArray[np.float32], label: NDArray[np.intp], has_equal: NDArray[np.bool_]
) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Cosine with the nearest text of the same group and its share, of each distinct text."""
    nearest = np.where(has_equal, np.arange(len(units)), -1)
    order = np.argsort(label, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        for place in members[nearest[members] < 0] if len(members) > 1 else ():
            cosines = np.where(members == place, -2, units[members] @ units[place])
            nearest[place] = members[cosines.argmax()]
    rows = np.flatnonzero(nearest >= 0)
    scores, shares = np.full(len(units), np.nan, np.float32), np.full(len(units), np.nan)
    cosines = np.einsum("ij,ij->i", units[rows], units[nearest[rows]])
    scores[rows] = np.where(nearest[rows] == rows, 1, np.clip(cosines, -1, 1))
    chance = Chance.fit(units, n_rows=len(units))
    if chance is not None and len(rows):
        shares[rows] = chance.share(units[rows], units[nearest[rows], None], scores[rows, None])[:, 0]
    shares[~units.any(axis=1)] = np.nan
    return scores, shares
