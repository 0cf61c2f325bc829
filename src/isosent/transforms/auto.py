"""transform="auto": chooses a transform, or none, without labels, from texts or from moments alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent.numeric.moments import Moments
from isosent.numeric.similarity import mean_ranks, nonzero_rows, pairwise_cosine
from isosent.numeric.spectrum import LARGEST_MEAN_SHARE, MILD_STRENGTH, Spectrum, mean_share, spectrum
from isosent.transforms.base import NO_TRANSFORM, LinearTransform, make_linear

STRENGTHS = (0.25, 0.5, 0.75, 1.0)
WIDTHS = (1.0, 0.5, 0.25)  # shares of the dimensions
MARGIN = 0.55
FEWEST_TEXTS = 100
N_TEXTS = 1000

# Comparisons of two kinds of pairs: the first kind should have the higher cosines.
HALVES_FIRST = ("halves", "random")
RELATED_FIRST = (("half", "mixture"), ("mixture", "random"), ("content", "neighbour"))
MEANING_KEPT = (("content", "mixture"), ("frame", "neighbour"), ("parts", "neighbour"), ("halves", "neighbour"))

Odds = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A transform that "auto" considers."""

    name: str = NO_TRANSFORM  # "none", or the name of a transform
    strength: float | None = None  # of a whitening
    n_components: int | None = None

    def __str__(self) -> str:
        if self.name == NO_TRANSFORM:
            return "leave the vectors alone"
        settings = [] if self.strength is None else [f"strength {self.strength:g}"]
        settings += [] if self.n_components is None else [f"{self.n_components} dimensions"]
        name = self.name.replace("_", " ")
        return f"{name} ({', '.join(settings)})" if settings else name

    def transform(self) -> LinearTransform | None:
        """Make the unfitted transform."""
        if self.name == NO_TRANSFORM:
            return None
        settings = {"strength": self.strength, "n_components": self.n_components}
        return make_linear(self.name, settings={name: value for name, value in settings.items() if value is not None})


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate and its scores, which can be compared within one choice only; None where not measured."""

    candidate: Candidate
    score: float | None = None  # mean log-odds that meaning is kept
    separation: float | None = None  # mean log-odds that related pairs come first


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """The choice, all candidates, and the reason in a sentence."""

    chosen: Candidate
    candidates: tuple[ScoredCandidate, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, as model folders store them."""
        candidates = [
            {"candidate": str(scored.candidate), **asdict(scored.candidate)}
            | {"score": scored.score, "separation": scored.separation}
            for scored in self.candidates
        ]
        return {"chosen": str(self.chosen), "reason": self.reason, "candidates": candidates}


def choose_from_texts(
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
    texts: Sequence[str],
    moments: Moments,
    *,
    seed: int = 0,
) -> AutoChoice:
    """Choose by the cosines between texts and shortened or mixed copies of them."""
    # Up to 1,000 texts are sampled. Each gets a tf-idf neighbour and five copies with words removed or replaced
    # (`perturb`). The copies are encoded. Two kinds of pairs are compared by the log-odds that a pair of the first kind
    # has the higher cosine (`log_odds`).
    #
    # 1. A trial, whitening of strength 1/2 to half the dimensions, is compared with the vectors as they are by the mean
    # log-odds over `RELATED_FIRST`: half the words of a text against a mixture with another text; the mixture against
    # random texts; the text without its frequent words against its neighbour. If the trial gains at least 0.55, the
    # vectors are badly scaled, and step 2 chooses the whitening. Otherwise the vectors stay as they are, with one
    # exception: the trial is chosen if it separates the two halves of a text, which share no word, from random texts
    # better than both the vectors as they are and mean projection, by at least as much as it loses on the mean.
    #
    # 2. Among the whitenings that are at least as strong and at most as wide as the trial, the one with the highest
    # mean log-odds over `MEANING_KEPT` is chosen.
    #
    # With fewer than 100 usable texts (those of four words or more that have a vector), the spectrum decides.
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    parts: dict[str, NDArray[np.floating]] = {}
    if eigen.rank and len((lists := perturb(texts, seed=seed))["text"]) >= FEWEST_TEXTS:
        encoded = encode([text for lines in lists.values() for text in lines]).astype(np.float64)
        parts = dict(zip(lists, encoded.reshape(len(lists), len(lists["text"]), -1), strict=True))
    return _choose(parts, moments, eigen, score_all=True)


def choose_from_augmentations(
    parts: Mapping[str, NDArray[np.floating]], moments: Moments, eigen: Spectrum
) -> Candidate:
    """Make the same choice from vectors of the lists of `perturb`, without the scores of all candidates."""
    return _choose(parts, moments, eigen, score_all=False).chosen


def choose_from_moments(moments: Moments) -> AutoChoice:
    """Choose by the spectrum alone, for vectors whose texts are not available."""
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    return _choose_from_spectrum(moments, eigen, "No texts were available.")


def _choose(
    parts: Mapping[str, NDArray[np.floating]], moments: Moments, eigen: Spectrum, *, score_all: bool
) -> AutoChoice:
    if parts and eigen.rank:
        has_vector = np.all([nonzero_rows(part) for part in parts.values()], axis=0)
        parts = {name: part[has_vector] for name, part in parts.items()}
    n_texts = len(parts["text"]) if parts and eigen.rank else 0
    if n_texts < FEWEST_TEXTS:
        why = f"Fewer than {FEWEST_TEXTS} texts have at least four words, separated by spaces, and a vector."
        return _choose_from_spectrum(moments, eigen, why)
    rows = {name: Rows(part, moments, eigen) for name, part in parts.items()}
    odds = cache(lambda candidate: _odds_of(candidate, rows))
    grid, trial = candidates(moments.dim, eigen.rank), _trial(moments.dim, eigen.rank)
    chosen, reason = _choose_by_odds(odds, grid, trial, n_texts)
    scored = (ScoredCandidate(c, _mean(odds(c), MEANING_KEPT), _mean(odds(c), RELATED_FIRST)) for c in grid)
    return AutoChoice(chosen, tuple(scored) if score_all else (), reason)


def _choose_by_odds(
    odds: Callable[[Candidate], Odds], grid: Sequence[Candidate], trial: Candidate, n_texts: int
) -> tuple[Candidate, str]:
    """The choice and the reason; computes only the odds that the choice depends on."""
    raw, projection = Candidate(), Candidate("mean_projection")
    gain = _mean(odds(trial), RELATED_FIRST) - _mean(odds(raw), RELATED_FIRST)
    result = (
        f"over {n_texts} texts, {trial} separated related from unrelated pairs by {gain:+.2f} log-odds compared with "
        f"the vectors as they are (required: {MARGIN:+.2f})"
    )
    if gain >= MARGIN:
        eligible = [
            candidate
            for candidate in grid
            if candidate.name == "whitening"
            and (candidate.strength or 0.0) >= (trial.strength or 0.0)
            and (candidate.n_components or 0) <= (trial.n_components or 0)
        ]
        chosen = max(eligible, key=lambda candidate: _mean(odds(candidate), MEANING_KEPT))
        return chosen, (
            f"{result}; of the whitenings at least as strong and at most as wide, this one kept the meaning of "
            "shortened texts best."
        )
    halves_gain = odds(trial)[HALVES_FIRST] - max(odds(raw)[HALVES_FIRST], odds(projection)[HALVES_FIRST])
    if halves_gain > 0 and gain + halves_gain >= 0:
        return trial, (
            f"{result}, but it was best at separating the two halves of a text, which share no word, from unrelated "
            "texts."
        )
    return raw, f"{result}: the vectors are well scaled as they are."


def _choose_from_spectrum(moments: Moments, eigen: Spectrum, why: str) -> AutoChoice:
    # Coarser: it cannot distinguish a raw encoder from a trained one whose vectors share a large mean.
    raw = Candidate()
    if not eigen.rank:
        return AutoChoice(raw, (ScoredCandidate(raw),), "the vectors are all equal: there is nothing to even out.")
    share, trial = mean_share(moments), _trial(moments.dim, eigen.rank)
    reason = (
        f"the mean holds {share:.0%} of the squared length of the vectors; whitening of strength {MILD_STRENGTH} "
        f"usually helps above {LARGEST_MEAN_SHARE:.0%}, and does not below. {why}"
    )
    chosen = trial if share > LARGEST_MEAN_SHARE else raw
    return AutoChoice(chosen, (ScoredCandidate(raw), ScoredCandidate(trial)), reason)


def candidates(dim: int, rank: int) -> tuple[Candidate, ...]:
    """All candidates for vectors of a rank."""
    widths = dict.fromkeys(_width(share, dim, rank) for share in WIDTHS)
    grid = (Candidate("whitening", strength, width) for width in widths for strength in STRENGTHS)
    return Candidate(), Candidate("mean_projection"), Candidate("mean_centering"), *grid


def _trial(dim: int, rank: int) -> Candidate:
    return Candidate("whitening", 0.5, _width(0.5, dim, rank))


def _width(share: float, dim: int, rank: int) -> int:
    return min(max(1, int(share * dim)), rank)


class Rows:
    """Vectors of texts, (n_texts, dim), under any candidate fitted on moments."""

    def __init__(self, rows: NDArray[np.floating], moments: Moments, eigen: Spectrum) -> None:
        self.rows, self.moments, self.eigen = rows, moments, eigen  # eigenpairs of the covariance of the moments

    @cached_property
    def _rotated(self) -> NDArray[np.floating]:
        # along the principal axes: most of the work; every whitening only scales these rows
        return (self.rows - self.moments.mean) @ self.eigen.vectors[:, : self.eigen.rank]

    def under(self, candidate: Candidate) -> NDArray[np.floating]:
        """Transformed rows, (n_texts, n_components)."""
        if candidate.name == "whitening":
            k, values = candidate.n_components, self.eigen.values[: self.eigen.rank]
            return self._rotated[:, :k] * values[:k] ** (-(candidate.strength or 0.0) / 2)
        transform = candidate.transform()
        return self.rows if transform is None else transform.fit_moments(self.moments).linear_map_.apply(self.rows)


def _odds_of(candidate: Candidate, parts: Mapping[str, Rows]) -> dict[tuple[str, str], float]:
    """Log-odds of every comparison under one candidate."""
    # Pairs are compared across texts, not within a text, because a rank correlation over many pairs does that too.
    under = {name: part.under(candidate) for name, part in parts.items()}
    text = under["text"]
    shifts = range(2, 12)  # ten random texts for each text; not the previous one, which is in the mixture
    cosines = {
        "halves": pairwise_cosine(under["half"], under["other_half"]),
        "parts": pairwise_cosine(under["content"], under["frame"]),
        **{name: pairwise_cosine(text, under[name]) for name in ("half", "content", "frame", "mixture", "neighbour")},
        "random": np.concatenate([pairwise_cosine(text, np.roll(text, shift, axis=0)) for shift in shifts]),
    }
    compared = {HALVES_FIRST, *RELATED_FIRST, *MEANING_KEPT}
    return {kinds: log_odds(*(cosines[kind] for kind in kinds)) for kinds in compared}


def log_odds(higher: NDArray[np.float64], lower: NDArray[np.float64]) -> float:
    """Log-odds that a value of the first kind is above one of the second."""
    # log(A / (1 - A)), with A the area under the ROC curve: ties count half (the statistic of Mann & Whitney 1947
    # divided by nm), and A stays at least 1 / (n + 1) away from 0 and 1. In log-odds, a step from 0.98 to 0.99 counts
    # as much as one from 0.5 to 0.67.
    n, m = len(higher), len(lower)
    ranks = mean_ranks(np.concatenate([higher, lower]))
    area = float(ranks[:n].sum() - n * (n + 1) / 2) / (n * m)
    area = min(max(area, 1 / (n + 1)), n / (n + 1))
    return math.log(area / (1 - area))


def _mean(odds: Odds, comparisons: tuple[tuple[str, str], ...]) -> float:
    return float(np.mean([odds[kinds] for kinds in comparisons]))


_FEWEST_WORDS = 4  # a half has two words
_DROPPED = 0.4
_POOL = 20_000
_DUPLICATE = 0.95  # tf-idf cosine
_BLOCK = 256


def perturb(texts: Sequence[str], *, seed: int = 0) -> dict[str, list[str]]:
    """Sample texts, and make copies of them; lists of the same length, under these names.

    ``text``, its ``neighbour`` by tf-idf, two halves without a word in common (``half``, ``other_half``), the text
    without its most frequent words (``content``) and without its rarest (``frame``), and half of its words among half
    of those of another text (``mixture``).
    """
    rng = np.random.default_rng(seed)
    distinct = sorted(set(texts))
    # number of texts that contain each word
    frequency = Counter(key for text in distinct for key in {_key(word) for word in text.split()})
    usable = np.array([row for row, text in enumerate(distinct) if len(text.split()) >= _FEWEST_WORDS], dtype=np.intp)
    pool = [distinct[row] for row in rng.permutation(usable)[:_POOL]]
    sample = pool[:N_TEXTS]
    lists: dict[str, list[str]] = {"text": sample, "neighbour": [pool[row] for row in _nearest(pool, len(sample))]}
    lists |= {name: [] for name in ("half", "other_half", "content", "frame", "mixture")}
    words = [text.split() for text in sample]
    for row, line in enumerate(words):
        order = rng.permutation(len(line))
        rare_last = np.argsort([-frequency[_key(word)] for word in line], kind="stable")
        n_dropped = max(1, round(_DROPPED * len(line)))
        lists["half"].append(_words_at(line, order[: len(line) // 2]))
        lists["other_half"].append(_words_at(line, order[len(line) // 2 :]))
        lists["content"].append(_words_at(line, rare_last[n_dropped:]))
        lists["frame"].append(_words_at(line, rare_last[: len(line) - n_dropped]))
        lists["mixture"].append(_mixture(line, words[row - 1], rng))
    return lists


def _key(word: str) -> str:
    return word.lower().strip(".,!?;:\"'()") or word


def _words_at(line: Sequence[str], positions: NDArray[np.intp]) -> str:
    return " ".join(line[position] for position in sorted(positions))


def _mixture(first: Sequence[str], second: Sequence[str], rng: np.random.Generator) -> str:
    """Half the words of each text, each word at its relative position."""
    words = [
        ((position + 0.5) / len(line), line[position])
        for line in (first, second)
        for position in sorted(rng.permutation(len(line))[: max(1, round(len(line) / 2))])
    ]
    return " ".join(word for _, word in sorted(words, key=lambda pair: pair[0]))


def _nearest(pool: Sequence[str], n_queries: int) -> list[int]:
    """For each of the first texts of the pool, the most similar other text that is not a near duplicate."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not n_queries:
        return []
    keys = [[_key(word) for word in text.split()] for text in pool]
    units = TfidfVectorizer(analyzer=lambda line: line, sublinear_tf=True).fit_transform(keys)
    nearest: list[int] = []
    for start in range(0, n_queries, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, n_queries))
        cosines = (units[rows] @ units.T).toarray()
        cosines[cosines > _DUPLICATE] = -1.0
        cosines[np.arange(len(rows)), rows] = -1.0
        nearest += cosines.argmax(axis=1).tolist()
    return nearest
