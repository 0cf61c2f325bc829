"""Compare two models on texts without labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import unit_rows
from isosent.numeric.statistics import central_interval, resampled_counts
from isosent.transforms.auto import distinct_rows

FEWEST_TEXTS = 30
_FEWEST_WORDS = 6
_MOST_TEXTS = 2000
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class UnlabelledComparison:
    """Which of two models ranks related texts higher."""

    n_texts: int  # that were long enough to be cut in halves
    score_a: float  # mean reciprocal rank of the other half, in [0, 1]
    score_b: float
    difference: float  # of model B over model A
    low: float  # ends of its 95% bootstrap interval
    high: float

    @property
    def verdict(self) -> str:
        """Whether B is "better" than A, "worse", or "cannot tell"."""
        return "better" if self.low > 0 else "worse" if self.high < 0 else "cannot tell"


def compare_on_texts(
    a: SentenceEncoder, b: SentenceEncoder, texts: Sequence[str], *, seed: int = 0
) -> UnlabelledComparison:
    """Compare two models on texts, without labels.

    Each text is cut in the middle. The halves of a text are about the same: the better model ranks the second half
    higher among the second halves of all texts. The score is the mean reciprocal rank.

    Parameters
    ----------
    a, b : SentenceEncoder
        The models.
    texts : sequence of str
        Texts like those to be searched or compared later; those of fewer than six words are left out, and at most 2,000
        are used.
    seed : int, default 0
        Seed of the sample and of the interval.

    Returns
    -------
    UnlabelledComparison
        Both scores, and the difference with its interval over texts.

    Raises
    ------
    InputError
        If fewer than 30 distinct texts are long enough.
    """
    halves = halves_of(_check.text_list("compare_on_texts", texts), seed=seed)
    vectors = [model.encode(halves, show_progress_bar=False) for model in (a, b)]
    return compare_vectors(vectors[0], vectors[1], seed=seed)


def halves_of(texts: Sequence[str], *, seed: int = 0) -> list[str]:
    """The first halves of distinct texts that have enough words, and then their second halves."""
    words = [texts[row].split() for row in distinct_rows(texts)]
    long = [each for each in words if len(each) >= _FEWEST_WORDS]
    if len(long) < FEWEST_TEXTS:
        raise InputError(
            f"compare: at least {FEWEST_TEXTS} different texts of {_FEWEST_WORDS} words or more are needed; got "
            f"{len(long)}."
        )
    chosen = [long[i] for i in np.random.default_rng(seed).permutation(len(long))[:_MOST_TEXTS]]
    halves = [(each[: len(each) // 2], each[len(each) // 2 :]) for each in chosen]
    return [" ".join(first) for first, _ in halves] + [" ".join(second) for _, second in halves]


def compare_vectors(a: NDArray[Any], b: NDArray[Any], *, seed: int = 0) -> UnlabelledComparison:
    """Compare two models by their vectors of `halves_of`."""
    ranks = np.stack([_reciprocal_ranks(vectors) for vectors in (a, b)])
    gains = ranks[1] - ranks[0]
    draws = [counts @ gains / len(gains) for counts in resampled_counts(len(gains), seed=seed)]
    low, high = central_interval(np.concatenate(draws))
    score_a, score_b = ranks.mean(axis=1).tolist()
    return UnlabelledComparison(len(gains), score_a, score_b, score_b - score_a, float(low), float(high))


def _reciprocal_ranks(vectors: NDArray[Any]) -> NDArray[np.float64]:
    """One over the rank of each second half among all second halves; ties count half."""
    first, second = np.split(unit_rows(vectors.astype(np.float64)), 2)
    ranks = np.empty(len(first))
    for start in range(0, len(first), _BLOCK):
        cosines = first[start : start + _BLOCK] @ second.T
        own = cosines[np.arange(len(cosines)), np.arange(start, start + len(cosines))][:, None]
        ranks[start : start + len(cosines)] = 0.5 + (cosines > own).sum(axis=1) + 0.5 * (cosines == own).sum(axis=1)
    return 1 / ranks
