"""How well cosines tell pairs that belong together from pairs that do not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy  # scipy.stats is loaded when it is first used
from numpy.typing import NDArray

from isosent.numeric.moments import Moments
from isosent.numeric.similarity import pairwise_cosine
from isosent.numeric.spectrum import Spectrum
from isosent.selection.candidates import Candidate

HALVES_FIRST = ("halves", "random")
RELATED_FIRST = (("half", "mixture"), ("mixture", "random"), ("content", "neighbour"))
MEANING_KEPT = (("content", "mixture"), ("frame", "neighbour"), ("parts", "neighbour"), ("halves", "neighbour"))

_RANDOM_PAIRS_A_TEXT = 10

Odds = Mapping[tuple[str, str], float]


@dataclass(eq=False)
class Rows:
    """Vectors, and what each candidate makes of them.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, dim), float
        Vectors of texts.
    moments : Moments
        Of the vectors that candidates are fitted on.
    found : Spectrum
        Of their covariance.
    """

    rows: NDArray[np.floating]
    moments: Moments
    found: Spectrum

    @cached_property
    def _rotated(self) -> NDArray[np.floating]:
        """Rows along the principal axes: every whitening is a scaling of these, and this is what takes the time."""
        return (self.rows - self.moments.mean) @ self.found.vectors[:, : self.found.rank]

    def under(self, candidate: Candidate) -> NDArray[np.floating]:
        """Map the rows.

        Parameters
        ----------
        candidate : Candidate
            What is done to them.

        Returns
        -------
        ndarray of shape (n_rows, n_components)
            The mapped rows.
        """
        if candidate.name == "whitening":
            k = candidate.n_components
            return self._rotated[:, :k] * self.found.values[: self.found.rank][:k] ** (-(candidate.strength or 0.0) / 2)
        transform = candidate.transform()
        return self.rows if transform is None else transform.fit_moments(self.moments).linear_map_.apply(self.rows)


def odds_of(candidate: Candidate, parts: Mapping[str, Rows]) -> dict[tuple[str, str], float]:
    """Log-odds of every comparison under one candidate.

    Parameters
    ----------
    candidate : Candidate
        The candidate.
    parts : mapping of str to Rows
        Vectors of the ``text``, of its ``neighbour``, and of its copies; row i of each belongs to text i.

    Returns
    -------
    dict
        For each pair of kinds in `HALVES_FIRST`, `RELATED_FIRST` and `MEANING_KEPT`, see `log_odds`.

    Notes
    -----
    Pairs are compared across texts and not within one, because a rank correlation over many pairs compares them across
    texts too.
    """
    under = {name: part.under(candidate) for name, part in parts.items()}
    text = under["text"]
    shifts = range(2, _RANDOM_PAIRS_A_TEXT + 2)  # the text before it is in the mixture
    cosines = {
        "halves": pairwise_cosine(under["half"], under["other_half"]),
        "parts": pairwise_cosine(under["content"], under["frame"]),
        **{name: pairwise_cosine(text, under[name]) for name in ("half", "content", "frame", "mixture", "neighbour")},
        "random": np.concatenate([pairwise_cosine(text, np.roll(text, shift, axis=0)) for shift in shifts]),
    }
    compared = {HALVES_FIRST, *RELATED_FIRST, *MEANING_KEPT}
    return {kinds: log_odds(*(cosines[kind] for kind in kinds)) for kinds in compared}


def log_odds(higher: NDArray[np.float64], lower: NDArray[np.float64]) -> float:
    r"""Log-odds that a value of the one kind lies above one of the other.

    Parameters
    ----------
    higher : ndarray of shape (n,), float64
        Values that should be the higher ones.
    lower : ndarray of shape (m,), float64
        The others.

    Returns
    -------
    float
        0 where neither kind is higher.

    Notes
    -----
    :math:`\log (A / (1 - A))` with A the area under the ROC curve, ties counted half (the statistic of Mann & Whitney
    1947 over nm), kept :math:`1 / (n + 1)` away from 0 and 1. In log-odds a step from 0.98 to 0.99 counts like one from
    0.5 to 0.67.

    Examples
    --------
    >>> import numpy as np
    >>> round(log_odds(np.array([1.0, 2.0, 3.0]), np.array([0.0, 2.5])), 3)
    0.693
    """
    n, m = len(higher), len(lower)
    ranks = scipy.stats.rankdata(np.concatenate([higher, lower]))
    area = float(ranks[:n].sum() - n * (n + 1) / 2) / (n * m)
    area = min(max(area, 1 / (n + 1)), n / (n + 1))
    return math.log(area / (1 - area))


def mean_odds(odds: Odds, comparisons: tuple[tuple[str, str], ...]) -> float:
    """Mean log-odds over some comparisons.

    Parameters
    ----------
    odds : mapping
        What `odds_of` returned.
    comparisons : tuple of pairs of str
        `RELATED_FIRST` or `MEANING_KEPT`.

    Returns
    -------
    float
        Their mean.
    """
    return float(np.mean([odds[kinds] for kinds in comparisons]))
