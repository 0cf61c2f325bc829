"""Choosing a transform, or none, without labels: from texts, or from moments alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from isosent.numeric.moments import Moments
from isosent.numeric.similarity import pairwise_cosine
from isosent.numeric.spectrum import LARGEST_MEAN_SHARE, MILD_STRENGTH, Spectrum, mean_share, spectrum
from isosent.transforms.base import LinearTransform, known_rows, make_linear

HALVES_FIRST = ("halves", "random")
RELATED_FIRST = (("half", "mixture"), ("mixture", "random"), ("content", "neighbour"))
MEANING_KEPT = (("content", "mixture"), ("frame", "neighbour"), ("parts", "neighbour"), ("halves", "neighbour"))

_RANDOM_PAIRS_A_TEXT = 10

Odds = Mapping[tuple[str, str], float]


@dataclass(eq=False)
class Rows:
    """Vectors, and what each candidate makes of them."""

    rows: NDArray[np.floating]  # vectors of texts
    moments: Moments  # of the vectors that candidates are fitted on
    found: Spectrum  # of their covariance

    @cached_property
    def _rotated(self) -> NDArray[np.floating]:
        """Rows along the principal axes: every whitening is a scaling of these, and this is what takes the time."""
        return (self.rows - self.moments.mean) @ self.found.vectors[:, : self.found.rank]

    def under(self, candidate: Candidate) -> NDArray[np.floating]:
        """Map the rows."""
        if candidate.name == "whitening":
            k = candidate.n_components
            return self._rotated[:, :k] * self.found.values[: self.found.rank][:k] ** (-(candidate.strength or 0.0) / 2)
        transform = candidate.transform()
        return self.rows if transform is None else transform.fit_moments(self.moments).linear_map_.apply(self.rows)


def odds_of(candidate: Candidate, parts: Mapping[str, Rows]) -> dict[tuple[str, str], float]:
    """Log-odds of every comparison under one candidate."""
    # Pairs are compared across texts and not within one, because a rank correlation over many pairs compares them
    # across texts too.
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
    """Log-odds that a value of the one kind lies above one of the other."""
    # :math:`\log (A / (1 - A))` with A the area under the ROC curve, ties counted half (the statistic of Mann &
    # Whitney 1947 over nm), kept :math:`1 / (n + 1)` away from 0 and 1. In log-odds a step from 0.98 to 0.99 counts
    # like one from 0.5 to 0.67.
    n, m = len(higher), len(lower)
    ranks = scipy.stats.rankdata(np.concatenate([higher, lower]))
    area = float(ranks[:n].sum() - n * (n + 1) / 2) / (n * m)
    area = min(max(area, 1 / (n + 1)), n / (n + 1))
    return math.log(area / (1 - area))


def mean_odds(odds: Odds, comparisons: tuple[tuple[str, str], ...]) -> float:
    """Mean log-odds over some comparisons."""
    return float(np.mean([odds[kinds] for kinds in comparisons]))


N_TEXTS = 1000
AUGMENTATIONS = ("half", "other_half", "content", "frame", "mixture")

_FEWEST_WORDS = 4  # a half has two words
_DROPPED = 0.4
_POOL = 20_000
_COPY = 0.95
_BLOCK = 256


@dataclass(frozen=True, slots=True)
class Sample:
    """Texts drawn from many, each with a neighbour and perturbed copies."""

    texts: list[str]  # the texts
    neighbours: list[str]  # for each, the text of the pool that is nearest by tf-idf
    # For each of `COPIES`, one a text: two halves without a word in common (``half``, ``other_half``), the text
    # without its most frequent words (``content``), without its rarest (``frame``), and half of its words among half
    # of those of another text (``mixture``)
    augmentations: Mapping[str, list[str]]

    @property
    def lists(self) -> dict[str, list[str]]:
        """All of it by name, as the criterion takes its vectors: ``text``, ``neighbour``, and the copies."""
        return {"text": self.texts, "neighbour": self.neighbours, **self.augmentations}


def perturb(texts: Sequence[str], *, seed: int = 0) -> Sample:
    """Draw texts and make their copies."""
    # "content" and "frame" lose 40 % of the words, at least one, by the number of texts that hold a word. A neighbour
    # has a tf-idf cosine of at most 0.95; nearer ones are copies. Neighbours are looked for among 20,000 texts at
    # most.
    rng = np.random.default_rng(seed)
    distinct = sorted(set(texts))
    frequency = Counter(key for text in distinct for key in {_key(word) for word in text.split()})
    usable = np.array([row for row, text in enumerate(distinct) if len(text.split()) >= _FEWEST_WORDS], dtype=np.intp)
    pool = [distinct[row] for row in rng.permutation(usable)[:_POOL]]
    drawn = pool[:N_TEXTS]
    words = [text.split() for text in drawn]
    augmentations: dict[str, list[str]] = {name: [] for name in AUGMENTATIONS}
    for place, line in enumerate(words):
        other = words[place - 1]
        order = rng.permutation(len(line))
        rare_last = np.argsort([-frequency[_key(word)] for word in line], kind="stable")
        n_dropped = max(1, round(_DROPPED * len(line)))
        augmentations["half"].append(_kept(line, order[: len(line) // 2]))
        augmentations["other_half"].append(_kept(line, order[len(line) // 2 :]))
        augmentations["content"].append(_kept(line, rare_last[n_dropped:]))
        augmentations["frame"].append(_kept(line, rare_last[: len(line) - n_dropped]))
        augmentations["mixture"].append(_mixed(line, other, rng))
    nearest = _nearest([[_key(word) for word in text.split()] for text in pool], len(drawn))
    return Sample(drawn, [pool[place] for place in nearest], augmentations)


def _key(word: str) -> str:
    return word.lower().strip(".,!?;:\"'()") or word


def _kept(line: Sequence[str], places: NDArray[np.intp]) -> str:
    return " ".join(line[place] for place in sorted(places))


def _mixed(first: Sequence[str], second: Sequence[str], rng: np.random.Generator) -> str:
    """Half the words of each, every word at its relative place."""
    placed = [
        ((place + 0.5) / len(line), line[place])
        for line in (first, second)
        for place in sorted(rng.permutation(len(line))[: max(1, round(len(line) / 2))])
    ]
    return " ".join(word for _, word in sorted(placed, key=lambda pair: pair[0]))


def _nearest(pool: Sequence[Sequence[str]], n_queries: int) -> list[int]:
    """Place in the pool of what is nearest to each of its first lines, itself and copies left out."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    if not n_queries:
        return []
    units = TfidfVectorizer(analyzer=lambda line: line, sublinear_tf=True).fit_transform(pool)
    nearest: list[int] = []
    for start in range(0, n_queries, _BLOCK):
        own = np.arange(start, min(start + _BLOCK, n_queries))
        cosines = (units[own] @ units.T).toarray()
        cosines[cosines > _COPY] = -1.0
        cosines[np.arange(len(own)), own] = -1.0
        nearest += cosines.argmax(axis=1).tolist()
    return nearest


LEAVE = "none"
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
WIDTHS = (1.0, 0.5, 0.25)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One thing that "auto" may do."""

    name: str = LEAVE  # ``none``, which leaves the vectors alone, or the name of a transform
    strength: float | None = None  # strength of a whitening
    n_components: int | None = None  # dimensions kept

    def __str__(self) -> str:
        if self.name == LEAVE:
            return "leave the vectors alone"
        strength = [] if self.strength is None else [f"strength {self.strength:g}"]
        width = [] if self.n_components is None else [f"{self.n_components} dimensions"]
        name = self.name.replace("_", " ")
        return f"{name} ({', '.join(strength + width)})" if strength or width else name

    def transform(self) -> LinearTransform | None:
        """Make the transform."""
        if self.name == LEAVE:
            return None
        given = {"strength": self.strength, "n_components": self.n_components}
        return make_linear(self.name, settings={name: value for name, value in given.items() if value is not None})


def half_whitening(dim: int, rank: int) -> Candidate:
    """Whitening of strength 1/2 to half the dimensions."""
    return Candidate("whitening", 0.5, _width(0.5, dim, rank))


def candidates(dim: int, rank: int) -> tuple[Candidate, ...]:
    """All that "auto" weighs."""
    widths = dict.fromkeys(_width(share, dim, rank) for share in WIDTHS)
    grid = (Candidate("whitening", strength, width) for width in widths for strength in STRENGTHS)
    return Candidate(), Candidate("mean_projection"), Candidate("mean_centering"), *grid


def _width(share: float, dim: int, rank: int) -> int:
    return min(max(1, int(share * dim)), rank)


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate and how it did."""

    candidate: Candidate  # the candidate
    # How well it keeps meaning, where that was measured; higher is better; only scores of one choice can be compared
    score: float | None = None
    separation: float | None = None  # how well it tells related texts from unrelated ones, where that was measured


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """What was weighed, what was chosen, and why."""

    chosen: Candidate  # the choice
    candidates: tuple[ScoredCandidate, ...]  # all that were weighed
    reason: str  # why, in a sentence for people

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "chosen": str(self.chosen),
            "reason": self.reason,
            "candidates": [
                {
                    "candidate": str(scored.candidate),
                    "name": scored.candidate.name,
                    "strength": scored.candidate.strength,
                    "n_components": scored.candidate.n_components,
                    "score": scored.score,
                    "separation": scored.separation,
                }
                for scored in self.candidates
            ],
        }


MARGIN = 0.55
FEWEST_TEXTS = 100


def choose_from_texts(
    encode: Callable[[Sequence[str]], NDArray[np.float32]],
    texts: Sequence[str],
    moments: Moments,
    *,
    seed: int = 0,
) -> AutoChoice:
    """Choose by what the vectors make of perturbed copies of the texts."""
    # Up to 1,000 texts are drawn, each with a tf-idf neighbour and five copies that lost or exchanged words (see
    # `perturb`); the copies are encoded. Kinds of pairs are compared by `log_odds`.
    # 1. A trial, whitening of strength 1/2 to half the dimensions, is set against the vectors as they are, by the
    # mean log-odds that related pairs come first: a text and half its words before the text and a mixture of that
    # many of its words with another text's, a mixture before random texts, a text without its frequent words before
    # its neighbour. Where it wins by at least 0.55, the vectors are badly scaled, and step 2 says how to whiten them.
    # Otherwise they are left alone; unless the trial tells two halves of a text, which have no word in common, from
    # random texts better than both the vectors as they are and mean projection, and by at least as much as it loses
    # on the mean: then the trial itself is chosen. 2. Of the whitenings at least as strong as the trial and at most
    # as wide, the one with the highest mean log-odds that meaning is kept: a text without its frequent words before
    # the mixture; and, before its neighbour, a text without its rare words, the text without its frequent words
    # against that without its rare ones, and its two halves against each other.
    # With fewer than 100 usable texts (of four words or more, known to the encoder) `choose_from_moments` decides.
    found = spectrum(moments.covariance, noise=moments.rounding_variance)
    parts = _sample_vectors(encode, texts, seed) if found.rank else {}
    n_texts = len(parts["text"]) if parts else 0
    if n_texts < FEWEST_TEXTS:
        why = f"There are fewer than {FEWEST_TEXTS} texts of four words or more, with spaces between, that it knows."
        return _choose_from_spectrum(moments, found, why)
    odds = _odds_over(parts, moments, found)
    grid = candidates(moments.dim, found.rank)
    chosen, reason = _choose_by_odds(odds, grid, half_whitening(moments.dim, found.rank), n_texts)
    scored = (ScoredCandidate(c, mean_odds(odds(c), MEANING_KEPT), mean_odds(odds(c), RELATED_FIRST)) for c in grid)
    return AutoChoice(chosen, tuple(scored), reason)


def choose_from_augmentations(
    parts: Mapping[str, NDArray[np.floating]], moments: Moments, found: Spectrum
) -> Candidate:
    """Choose as `choose_from_texts` does, where the copies are encoded already and only the choice is wanted."""
    parts = _known_in_all(parts) if parts and found.rank else {}
    n_texts = len(parts["text"]) if parts else 0
    if n_texts < FEWEST_TEXTS:
        return _choose_from_spectrum(moments, found, "").chosen
    odds, grid = _odds_over(parts, moments, found), candidates(moments.dim, found.rank)
    return _choose_by_odds(odds, grid, half_whitening(moments.dim, found.rank), n_texts)[0]


def _odds_over(
    parts: Mapping[str, NDArray[np.floating]], moments: Moments, found: Spectrum
) -> Callable[[Candidate], Odds]:
    rows = {name: Rows(part, moments, found) for name, part in parts.items()}
    return cache(lambda candidate: odds_of(candidate, rows))


def _choose_by_odds(
    odds: Callable[[Candidate], Odds], grid: Sequence[Candidate], trial: Candidate, n_texts: int
) -> tuple[Candidate, str]:
    """The choice and why; only candidates that it hangs on are scored."""
    raw, projection = Candidate(), Candidate("mean_projection")
    gain = mean_odds(odds(trial), RELATED_FIRST) - mean_odds(odds(raw), RELATED_FIRST)
    won = (
        f"over {n_texts} texts, {trial} told related pairs from unrelated ones by {gain:+.2f} log-odds against the "
        f"vectors as they are (at least {MARGIN:+.2f} is asked for)"
    )
    if gain >= MARGIN:
        chosen = max((c for c in grid if _goes_as_far(c, trial)), key=lambda c: mean_odds(odds(c), MEANING_KEPT))
        return chosen, (
            f"{won}; of the whitenings at least as strong and at most as wide, this one kept the meaning of shortened "
            "texts best."
        )
    halves_gain = odds(trial)[HALVES_FIRST] - max(odds(raw)[HALVES_FIRST], odds(projection)[HALVES_FIRST])
    if halves_gain > 0 and gain + halves_gain >= 0:
        return trial, f"{won}, but it told the two halves of a text from unrelated texts best, which share no word."
    return raw, f"{won}: these vectors are scaled well as they are."


def _goes_as_far(candidate: Candidate, trial: Candidate) -> bool:
    """Whether a candidate is a whitening at least as strong as the trial and at most as wide."""
    return (
        candidate.name == "whitening"
        and (candidate.strength or 0.0) >= (trial.strength or 0.0)
        and (candidate.n_components or 0) <= (trial.n_components or 0)
    )


def choose_from_moments(moments: Moments) -> AutoChoice:
    """Choose by the spectrum alone, for vectors whose texts are not at hand."""
    # Coarser than `choose_from_texts`: it cannot tell a trained encoder whose vectors share a large mean from a raw
    # one.
    found = spectrum(moments.covariance, noise=moments.rounding_variance)
    return _choose_from_spectrum(moments, found, "No texts were looked at.")


def _choose_from_spectrum(moments: Moments, found: Spectrum, why: str) -> AutoChoice:
    raw = Candidate(LEAVE)
    if not found.rank:
        return AutoChoice(raw, (ScoredCandidate(raw),), "the vectors are all equal: there is nothing to even out.")
    share, trial = mean_share(moments), half_whitening(moments.dim, found.rank)
    reason = (
        f"the mean holds {share:.0%} of the squared length of the vectors; above {LARGEST_MEAN_SHARE:.0%}, whitening "
        f"of strength {MILD_STRENGTH} helps as a rule, and below it does not. {why}"
    )
    chosen = trial if share > LARGEST_MEAN_SHARE else raw
    return AutoChoice(chosen, (ScoredCandidate(raw), ScoredCandidate(trial)), reason)


def _sample_vectors(
    encode: Callable[[Sequence[str]], NDArray[np.float32]], texts: Sequence[str], seed: int
) -> dict[str, NDArray[np.floating]]:
    """Vectors of the sampled texts, their neighbours and their copies; texts without a vector are left out."""
    sample = perturb(texts, seed=seed)
    if len(sample.texts) < FEWEST_TEXTS:
        return {}
    encoded = encode([text for lines in sample.lists.values() for text in lines]).astype(np.float64)
    return _known_in_all(
        dict(zip(sample.lists, encoded.reshape(len(sample.lists), len(sample.texts), -1), strict=True))
    )


def _known_in_all(parts: Mapping[str, NDArray[np.floating]]) -> dict[str, NDArray[np.floating]]:
    """The rows that are not zero in any part."""
    known = np.all([known_rows(part) for part in parts.values()], axis=0)
    return {name: part[known] for name, part in parts.items()}
