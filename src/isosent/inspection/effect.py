"""What a map does to held-out pairs made without labels: two copies of a text, each with some of its words dropped."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.similarity import unit_rows

DROPPED = 0.3
HELD_OUT_TEXTS = 2000
RESAMPLES = 2000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Change:
    """A share before and after, and how sure the difference is.

    Parameters
    ----------
    before, after : float
        In [0, 1].
    low, high : float
        Ends of the 95 % bootstrap interval of ``after - before``.
    """

    before: float
    after: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        """What was gained; negative where something was lost."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """Whether the interval lies above 0, below 0, or around it: ``gain``, ``loss`` or ``unclear``."""
        if self.low > 0:
            return "gain"
        return "loss" if self.high < 0 else "unclear"


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a map on held-out texts.

    Parameters
    ----------
    label : str
        The transform that was fitted, on the other half of the texts.
    n_texts : int
        Held-out texts, two copies of each.
    found : Change
        Share of the texts whose one copy is nearest to its other copy, among the copies of all held-out texts.
    ranked : Change
        How often two copies of one text have a higher cosine than copies of two different texts: area under the ROC
        curve.
    """

    label: str
    n_texts: int
    found: Change
    ranked: Change


def drop_words(texts: Sequence[str], *, seed: int) -> list[str]:
    """Copy texts with 30 % of their words left out at random, one word at least kept.

    Parameters
    ----------
    texts : sequence of str
        Texts. Where one has no space, as in Chinese, its characters are the words.
    seed : int
        Of the choice.

    Returns
    -------
    list of str
        The copies.

    Examples
    --------
    >>> drop_words(["one two three four five", ""], seed=0)
    ['one five', '']
    """
    rng = np.random.default_rng(seed)
    copies = []
    for text in texts:
        words = text.split()
        glue = " " if len(words) > 1 else ""
        parts = words if glue else list(text.strip())
        kept = rng.random(len(parts)) >= DROPPED
        if parts and not kept.any():
            kept[rng.integers(len(parts))] = True
        copies.append(glue.join(part for part, keep in zip(parts, kept, strict=True) if keep))
    return copies


def rank_copies(
    first: NDArray[np.floating], second: NDArray[np.floating]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Look for the second copy of each text among those of all texts.

    Parameters
    ----------
    first, second : ndarray of shape (n_texts, dim), float
        Vectors of two copies of each text, at least two texts and few enough for a matrix of all pairs.

    Returns
    -------
    found : ndarray of shape (n_texts,), float64
        1 where no other text is as near as the right one, else 0.
    ranked : ndarray of shape (n_texts,), float64
        Share of all pairs of different texts whose cosine is below that of the text's own pair, ties counting half; the
        mean is the area under the ROC curve.

    Examples
    --------
    >>> import numpy as np
    >>> copies = np.eye(3)
    >>> found, ranked = rank_copies(copies, copies[[0, 2, 1]])
    >>> found, ranked.round(3)
    (array([1., 0., 0.]), array([0.833, 0.333, 0.333]))
    """
    cosines = unit_rows(first) @ unit_rows(second).T
    own = cosines.diagonal()
    others = np.sort(cosines[~np.eye(len(cosines), dtype=bool)])
    found = (cosines >= own[:, None]).sum(axis=1) == 1
    ranked = (np.searchsorted(others, own, "left") + np.searchsorted(others, own, "right")) / (2 * len(others))
    return found.astype(np.float64), ranked


def paired_change(before: NDArray[np.float64], after: NDArray[np.float64], *, seed: int) -> Change:
    """Compare two scores of the same texts, with a percentile bootstrap over the texts.

    Parameters
    ----------
    before, after : ndarray of shape (n_texts,), float64
        Scores, row i of text i in both.
    seed : int
        Of the resampling.

    Returns
    -------
    Change
        Means, and the interval of their difference from 2,000 resamples of the texts.

    Examples
    --------
    >>> import numpy as np
    >>> paired_change(np.zeros(100), np.ones(100), seed=0)
    Change(before=0.0, after=1.0, low=1.0, high=1.0)
    """
    differences, rng = after - before, np.random.default_rng(seed)
    means = [differences[rng.integers(len(before), size=len(before))].mean() for _ in range(RESAMPLES)]
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Change(float(before.mean()), float(after.mean()), float(low), float(high))
