"""Known texts: which new texts an old set holds already, letter for letter or as near-duplicates.

The texts of both sets are one corpus, in which `Closeness` measures what chance gives. Each new text is compared with
all old ones, and what is close enough for what their words say is the same rule as for `find_duplicates`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.numeric.neighbors import nearest_among
from isosent.numeric.similarity import nonzero_rows
from isosent.numeric.threads import one_thread_products
from isosent.pages.progress import Progress, part_of
from isosent.search.closeness import FEWEST_TEXTS, N_NEIGHBORS, Closeness, check_rate
from isosent.search.duplicates import chance_of_pairs, distinct
from isosent.search.units import VectorsLike, compared_units, opened_vectors
from isosent.search.wording import Wordings
from isosent.space import same_space

_LAST_BITS = 1e-6  # of a cosine


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """New texts, and which old text each of them is a duplicate of.

    Made by `find_known`.

    Parameters
    ----------
    texts : tuple of str or None
        The new texts; None if there were vectors alone.
    old_texts : tuple of str or None
        The old texts; None if there were vectors alone.
    old_rows : ndarray of shape (n_texts,), intp
        Row of the nearest old text that a new text is a duplicate of, counted from 0; -1 for texts that are new.
    is_equal : ndarray of shape (n_texts,), bool
        Whether the old text is the same, letter for letter; of vectors alone, whether the vector is.
    scores : ndarray of shape (n_texts,), float32
        Cosine with that old text, 1 for equal texts; NaN for texts that are new.
    shares : ndarray of shape (n_texts,), float64
        Share of random pairs of all texts with a lower score, corrected for hubs; NaN for texts that are new, and if
        there are too few texts.
    false_positives : float or None
        Share of the new texts that may be taken for known by their distance; None if there were too few texts to tell
        what chance gives, so that only texts that are equal but for small changes are known.
    n_without_vector : int
        New texts without a token that the encoder knows; they are compared by their characters alone.
    threshold : float or None
        How many times as near to each other as to the texts around them two texts are, at least, unless their words
        say more (see `find_duplicates`); above 1. None if there were too few texts.
    """

    texts: tuple[str, ...] | None
    old_texts: tuple[str, ...] | None
    old_rows: NDArray[np.intp]
    is_equal: NDArray[np.bool_]
    scores: NDArray[np.float32]
    shares: NDArray[np.float64]
    false_positives: float | None
    n_without_vector: int
    threshold: float | None = None

    def __repr__(self) -> str:
        return f"<Known: {self.n_known} of {len(self.old_rows)} texts, {self.n_equal} of these equal>"

    @property
    def n_known(self) -> int:
        """New texts that are duplicates of an old one, or equal to one."""
        return int(np.count_nonzero(self.old_rows >= 0))

    @property
    def n_equal(self) -> int:
        """New texts that are equal to an old one."""
        return int(np.count_nonzero(self.is_equal))

    @property
    def new(self) -> NDArray[np.intp]:
        """Rows of the texts that are new."""
        return np.flatnonzero(self.old_rows < 0)

    def rows(self) -> list[tuple[int, str, int, str, bool, float, float]]:
        """Row, text, row and text of the old one, whether they are equal, score and share of each new text.

        Returns
        -------
        list of tuple of (int, str, int, str, bool, float, float)
            One tuple per new text, in their order. Texts are empty where there were vectors alone, and that of the old
            one where a text is new.
        """
        return [
            (
                row,
                "" if self.texts is None else self.texts[row],
                old_row,
                "" if old_row < 0 or self.old_texts is None else self.old_texts[old_row],
                is_equal,
                score,
                share,
            )
            for row, (old_row, is_equal, score, share) in enumerate(
                zip(
                    self.old_rows.tolist(),
                    self.is_equal.tolist(),
                    self.scores.tolist(),
                    self.shares.tolist(),
                    strict=True,
                )
            )
        ]

    def to_pandas(self) -> Any:
        """Return `rows` as a pandas DataFrame with the columns row, text, old_row, old_text, is_equal, score and share.

        Returns
        -------
        pandas.DataFrame
            One row per new text.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        columns = ["row", "text", "old_row", "old_text", "is_equal", "score", "share"]
        return _extras.require("pandas").DataFrame(self.rows(), columns=columns)


def find_known(
    texts: Sequence[str] | None,
    old_texts: Sequence[str] | None,
    model: SentenceEncoder | None = None,
    *,
    vectors: VectorsLike | None = None,
    old_vectors: VectorsLike | None = None,
    false_positives: float = 0.01,
    seed: int = 0,
    progress: Progress | None = None,
) -> Known:
    """Find which new texts an old set holds already, letter for letter or as near-duplicates.

    The rule is that of `find_duplicates`, measured on the texts of both sets together.

    Parameters
    ----------
    texts : sequence of str or None
        The new texts, such as those of a test set; None for vectors alone.
    old_texts : sequence of str or None
        The old texts, such as those a model was trained on; None for vectors alone. Unless there are texts on both
        sides, only distances are compared.
    model : SentenceEncoder, optional
        Encodes the texts of a side without vectors.
    vectors, old_vectors : array of shape (n_texts, dim), or path, optional
        Vectors of the texts of each side, one per text; with a model, of its encoder, and its transform is applied to
        them.
    false_positives : float, default 0.01
        Share of the new texts that may be taken for known by their distance, 0.001 to 0.2.
    seed : int, default 0
        Seed of the random parts in which chance is measured.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in texts of both sides.

    Returns
    -------
    Known
        The old text of each new one. Of several near-duplicates, the nearest; of equal texts, the first.

    Raises
    ------
    InputError
        If a side has neither texts nor vectors, they differ in number, the vectors of the two sides are of different
        embedding spaces or dimensions, or `false_positives` or `seed` is out of its range.

    Examples
    --------
    >>> import isosent
    >>> from isosent.search import find_known
    >>> old = isosent.demo_texts()
    >>> found = find_known(["Where is the moon?", old[7].upper(), old[8]], old, isosent.load("wordllama"))
    >>> found.old_rows.tolist(), found.is_equal.tolist()
    ([-1, 7, 8], [False, False, True])
    """
    where = "find_known"
    texts = None if texts is None else tuple(_check.some_texts(where, texts))
    old_texts = None if old_texts is None else tuple(_check.some_texts(where, old_texts))
    check_rate(where, false_positives, seed)
    sides = [(old_texts, opened_vectors(where, old_vectors)), (texts, opened_vectors(where, vectors))]
    old_source, new_source = (source for _, source in sides)
    if model is None and old_source is not None and new_source is not None:
        same_space(old_source.name, old_source.space, new_source.name, new_source.space)
    units: list[NDArray[np.float32]] = []
    for side_texts, source in sides:
        n_before = sum(map(len, units))
        n_total = sum(len(each or ()) if rows is None else rows.n_rows for each, rows in sides)
        units.append(compared_units(where, side_texts, model, source, part_of(progress, n_before, n_total)))
    n_old, dims = len(units[0]), [each.shape[1] for each in units]
    if dims[0] != dims[1]:
        old, new = ("the texts" if source is None else source.name for _, source in sides)
        raise InputError(f"vectors of {new} have {dims[1]} dimensions, those of {old} {dims[0]}.", where=where)
    both = None if texts is None or old_texts is None else (*old_texts, *texts)
    first_rows, place_of_row = distinct(both, np.concatenate(units))
    distinct_units = np.concatenate(units)[first_rows]
    distinct_texts = None if both is None else [both[row] for row in first_rows]
    n_old_places = int(place_of_row[:n_old].max()) + 1
    old_places, least = _old_places(distinct_units, distinct_texts, n_old_places, false_positives, seed)
    scores, shares = chance_of_pairs(distinct_units, old_places)
    place, has_vector = place_of_row[n_old:], nonzero_rows(distinct_units)
    # the rows of an index were scaled to length 1 before, which moves their last bits
    is_equal = place < n_old_places if both is not None else (place < n_old_places) | (scores[place] > 1 - _LAST_BITS)
    return Known(
        texts,
        old_texts,
        np.where(old_places[place] < 0, -1, np.array(first_rows)[old_places[place]]),
        is_equal,
        scores[place],
        shares[place],
        None if np.count_nonzero(has_vector) < FEWEST_TEXTS else false_positives,
        int(np.count_nonzero(~has_vector[place])),
        math.exp(least) if math.isfinite(least) else None,
    )


def _old_places(
    units: NDArray[np.float32], texts: Sequence[str] | None, n_old: int, false_positives: float, seed: int
) -> tuple[NDArray[np.intp], float]:
    """For each distinct text the old one, of the first ones, that it is a duplicate of, or -1; the least closeness."""
    old_places = np.where(np.arange(len(units)) < n_old, np.arange(len(units)), -1)
    has_vector = nonzero_rows(units)
    places = np.flatnonzero(has_vector)
    compared, n_old = units[places], int(np.count_nonzero(has_vector[:n_old]))
    if not 0 < n_old < len(compared):
        return old_places, math.inf
    wordings = None if texts is None else Wordings([texts[place] for place in places.tolist()])
    new = np.arange(n_old, len(compared))
    with one_thread_products():
        rule = Closeness.fit(compared, wordings, false_positives, seed).rule
        cosines, near = nearest_among(compared[new], compared[:n_old], N_NEIGHBORS)
        is_duplicate = rule.are_duplicates(new, near, rule.closeness(new, cosines, near))
    if wordings is not None:  # equal but for case and marks, which may have other vectors
        first, second = (np.array(each, dtype=np.intp) for each in wordings.equal_texts())
        is_across = (first < n_old) & (second >= n_old)
        old_places[places[second[is_across]]] = places[first[is_across]]
    is_known, nearest = is_duplicate.any(axis=1), near[np.arange(len(new)), is_duplicate.argmax(axis=1)]
    old_places[places[new[is_known]]] = places[nearest[is_known]]
    return old_places, rule.least
