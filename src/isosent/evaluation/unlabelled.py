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
    halves = cut_in_halves(_check.text_list("compare_on_texts", texts), seed=seed)
    if len(halves) < FEWEST_TEXTS:
        raise InputError(
            f"compare: at least {FEWEST_TEXTS} different texts of {_FEWEST_WORDS} words or more are needed; got "
            f"{len(halves)}."
        )
    ranks = np.stack([reciprocal_ranks(model, halves) for model in (a, b)])
    gains = ranks[1] - ranks[0]
    draws = [counts @ gains / len(gains) for counts in resampled_counts(len(gains), seed=seed)]
    low, high = central_interval(np.concatenate(draws))
    score_a, score_b = ranks.mean(axis=1).tolist()
    return UnlabelledComparison(len(halves), score_a, score_b, score_b - score_a, float(low), float(high))


def cut_in_halves(texts: Sequence[str], *, seed: int = 0) -> list[tuple[str, str]]:
    """Halves of distinct texts that have enough words."""
    words = [texts[row].split() for row in distinct_rows(texts)]
    long = [each for each in words if len(each) >= _FEWEST_WORDS]
    order = np.random.default_rng(seed).permutation(len(long))[:_MOST_TEXTS]
    return [(" ".join(long[i][: len(long[i]) // 2]), " ".join(long[i][len(long[i]) // 2 :])) for i in order]


def reciprocal_ranks(model: SentenceEncoder, halves: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
    """One over the rank of each second half among all second halves; ties count half."""
    vectors = model.encode([first for first, _ in halves] + [second for _, second in halves], show_progress_bar=False)
    units: NDArray[Any] = unit_rows(vectors.astype(np.float64))
    first, second = units[: len(halves)], units[len(halves) :]
    ranks = np.empty(len(halves))
    for start in range(0, len(halves), _BLOCK):
        cosines = first[start : start + _BLOCK] @ second.T
        own = cosines[np.arange(len(cosines)), np.arange(start, start + len(cosines))][:, None]
        ranks[start : start + len(cosines)] = 0.5 + (cosines > own).sum(axis=1) + 0.5 * (cosines == own).sum(axis=1)
    return 1 / ranks
