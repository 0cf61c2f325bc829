"""transform="auto": chooses a strength of whitening, or no transform, without labels.

`choose_from_texts` draws pairs of texts that share words and pairs that share none (`sample_pairs`), fits each
`Candidate` on other rows, and compares how well cosines and word overlap agree. `choose` takes the candidate whose gain
is beyond chance, and `AutoChoice` keeps what was compared. Without texts, `choose_without_texts` keeps the dimensions
as they are, or the principal components, centered or not by the neighbors that a sample of rows keeps
(`held_out_recall`). `verdict` says in words what was chosen, and why.
"""

from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent.errors import InputError, RankWarning
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import mean_ranks, neighbour_recall, nonzero_rows, unit_rows
from isosent.numeric.spectrum import Spectrum, effective_rank, resolve_width, spectrum
from isosent.numeric.statistics import central_interval, resampled_counts, weighted_pearson
from isosent.transforms.base import NO_TRANSFORM, Auto, LinearTransform, make_linear

# The rule in five lines. docs/auto.md says how the three constants were chosen, and how sensitive the rule is to them.
# 1. Agreement is the rank correlation of cosines with the word overlap (tf-idf) of pairs of texts.
# 2. Gain is the agreement under a whitening minus that without, on texts that the whitening was not fitted on.
# 3. If the best gain is at least LEAST_GAIN, and more than chance: the strongest whitening with SHARE_OF_GAIN of it.
# 4. Else, if the vectors fill their space evenly (EVEN) and the mildest whitening gains more than chance: that one.
# 5. Else no transform.
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
LEAST_GAIN = 0.02
SHARE_OF_GAIN = 0.85
EVEN = 0.6

FEWEST_TEXTS = 100
_MOST_TEXTS = 20_000
_QUERIES = 1000  # of each half of the texts
_NEAREST = 3
_RANDOM = 3
_DUPLICATE = 0.8  # tf-idf cosine. Near duplicates differ in one word, which tf-idf cannot weigh.
_BLOCK = 256
_ALL_EQUAL = "all vectors are equal."


@dataclass(frozen=True, slots=True)
class Candidate:
    """A transform that "auto" considers."""

    name: str = NO_TRANSFORM  # "none", or the name of a transform
    strength: float | None = None  # of a whitening
    n_components: int | None = None
    center: bool = True

    def __str__(self) -> str:
        if self.name == NO_TRANSFORM:
            return "no transform"
        settings = [] if self.strength is None else [f"strength {self.strength:g}"]
        if self.n_components is not None:
            settings.append(f"{self.n_components} dimension{'s' * (self.n_components != 1)}")
        if not self.center:
            settings.append("without centering")
        name = self.name.replace("_", " ")
        return f"{name} ({', '.join(settings)})" if settings else name

    def transform(self) -> LinearTransform | None:
        """Make the unfitted transform."""
        if self.name == NO_TRANSFORM:
            return None
        settings: dict[str, Any] = {"strength": self.strength, "n_components": self.n_components}
        if self.name == "whitening":
            # With few texts per dimension the smallest variances are far too small, and whitening would blow up their
            # axes. With many texts this changes little. Candidates are compared without it, which is stricter.
            settings["shrinkage"] = "oas"
        if not self.center:
            settings["center"] = False
        return make_linear(self.name, settings={name: value for name, value in settings.items() if value is not None})


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate and what it does to the agreement of cosines with word overlap, on held-out texts."""

    candidate: Candidate
    agreement: float  # Spearman correlation, in [-1, 1]
    gain: float  # in agreement, over the first candidate
    low: float  # ends of the 95% bootstrap interval of the gain
    high: float


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """The choice, and all candidates."""

    chosen: Candidate
    candidates: tuple[ScoredCandidate, ...]  # the first is the vectors without whitening; empty if not measured
    reason: str  # the verdict in a sentence: what was chosen, what to expect, and how certain it is

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, as model folders store them."""
        candidates = [
            asdict(scored.candidate) | asdict(scored) | {"candidate": str(scored.candidate)}
            for scored in self.candidates
        ]
        for each in candidates:
            del each["center"]  # texts do not choose it
        return {"chosen": str(self.chosen), "reason": self.reason, "candidates": candidates}


class Pairs(NamedTuple):
    """Pairs of texts of one half, grouped by their first text, and the other half."""

    first: NDArray[np.intp]  # rows, (n_pairs,)
    second: NDArray[np.intp]
    overlap: NDArray[np.float64]  # tf-idf cosine of each pair
    others: NDArray[np.intp]  # rows of the other half, to fit on


def choose_from_texts(vectors: NDArray[np.floating], texts: Sequence[str], wanted: Auto) -> AutoChoice:
    """Choose for vectors of texts, (n_texts, dim); repeated texts count once."""
    rows = distinct_rows(texts)
    return choose(vectors[rows], sample_pairs([texts[row] for row in rows]), wanted)


def distinct_rows(texts: Sequence[str]) -> list[int]:
    """Where each distinct text occurs first."""
    row_of: dict[str, int] = {}
    for row, text in enumerate(texts):
        row_of.setdefault(text, row)
    return list(row_of.values())


def choose(vectors: NDArray[np.floating], pairs: Sequence[Pairs], wanted: Auto) -> AutoChoice:
    """Choose for vectors of distinct texts, (n_texts, dim); `pairs` are those of `sample_pairs`."""
    has_vector = nonzero_rows(vectors)
    moments = Moments.from_rows(vectors[has_vector])
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    first = without_whitening(wanted, eigen)
    if not eigen.rank:
        return AutoChoice(first, (), verdict(first, _ALL_EQUAL))
    n_pairs = [int((has_vector[half.first] & has_vector[half.second]).sum()) for half in pairs]
    if moments.weight < FEWEST_TEXTS:
        few = f"at least {FEWEST_TEXTS} distinct texts are needed to judge whitening; got {moments.weight:.0f}."
        return AutoChoice(first, (), verdict(first, few))
    if min(n_pairs, default=0) < FEWEST_TEXTS:  # texts without words, or most of them without a vector
        return AutoChoice(first, (), verdict(first, "too few pairs of texts can be compared."))
    width = first.n_components or len(eigen.values)
    whitenings = [Candidate("whitening", strength, width) for strength in STRENGTHS]
    scored = _score(vectors, has_vector, pairs, (first, *whitenings))
    if any(math.isnan(each.low) for each in scored):  # in a half or a resample, all cosines or overlaps are equal
        return AutoChoice(first, (), verdict(first, "the effect could not be measured."))
    certain = [each for each in scored[1:] if each.low > 0]
    best = max(certain or scored[1:], key=lambda each: each.gain)
    if certain and best.gain >= LEAST_GAIN:
        chosen = [each for each in certain if each.gain >= SHARE_OF_GAIN * best.gain][-1]
        return AutoChoice(chosen.candidate, scored, verdict(chosen.candidate, f"{_change(chosen, wanted)}."))
    mildest, evenness = scored[1], effective_rank(eigen.values[: eigen.rank]) / len(eigen.values)
    if evenness > EVEN and mildest.low > 0:
        why = f"{_change(mildest, wanted)}; for vectors that are spread this evenly, a small gain is enough."
        return AutoChoice(mildest.candidate, scored, verdict(mildest.candidate, why))
    missed = f"; at least {LEAST_GAIN} is required" if certain else "; this may be chance" if best.gain >= 0 else ""
    why = f"whitening was rejected. At best, {_change(best, wanted)}{missed}."
    return AutoChoice(first, scored, verdict(first, why))


def choose_without_texts(moments: Moments, wanted: Auto, sample: NDArray[np.floating] | None = None) -> AutoChoice:
    """Choose for vectors whose texts are not available: nothing but the width that was asked for.

    Whether the mean is subtracted is decided by the neighbors of a sample that are kept.
    """
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    first = without_whitening(wanted, eigen)
    why = "without texts, nothing shows whether whitening would help." if eigen.rank else _ALL_EQUAL
    if first.n_components is not None and eigen.rank and sample is not None:
        about_zero = replace(first, center=False)
        recalls = [held_out_recall(sample, each.transform()) for each in (first, about_zero)]
        if None not in recalls and recalls[1] > recalls[0]:  # type: ignore[operator]
            first = about_zero
            why += f" Of the original neighbors, {recalls[1]:.3f} are kept; with the mean subtracted, {recalls[0]:.3f}."
    return AutoChoice(first, (), verdict(first, why))


def held_out_recall(sample: NDArray[np.floating], transform: LinearTransform | None) -> float | None:
    """Recall@10 of the original neighbors under a transform fitted on the other half; None if rows are too few."""
    # Shuffled, because rows of a file are often sorted by topic or source.
    sample = sample[np.random.default_rng(0).permutation(len(sample))[:_MOST_TEXTS]]
    half = len(sample) // 2
    n_queries = min(_QUERIES, (half - 1) // 10)  # ten neighbors besides the query
    if n_queries < 1:
        return None
    if transform is None:
        return 1.0
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)
            linear_map = copy.deepcopy(transform).fit_moments(Moments.from_rows(sample[:half])).linear_map_
    except InputError:  # the half does not vary
        return None
    return neighbour_recall(sample[half:], linear_map.apply(sample[half:]), n_queries)


def without_whitening(wanted: Auto, eigen: Spectrum) -> Candidate:
    """No transform, or a rotation if fewer dimensions are wanted; a share of the variance becomes a number."""
    if wanted.n_components is None:
        return Candidate()
    # vectors that are all equal are refused when the transform is fitted
    width = resolve_width(wanted.n_components, eigen.values[: eigen.rank]) if eigen.rank else 1
    if width > max(eigen.rank, 1):
        warnings.warn(
            f"auto: dimensions kept: {eigen.rank} instead of {width}, because the vectors vary along no more. "
            "Fit on more texts to keep more.",
            RankWarning,
            stacklevel=2,
        )
    return Candidate("principal_components", n_components=min(width, max(eigen.rank, 1)))


def verdict(chosen: Candidate, why: str) -> str:
    """The sentence that every command prints."""
    name = str(chosen)
    return f"{name[0].upper()}{name[1:]}: {why}"


def _change(scored: ScoredCandidate, wanted: Auto) -> str:
    sign, moves = (1, "rises") if scored.gain >= 0 else (-1, "falls")
    low, high = sorted((sign * scored.low, sign * scored.high))
    change = f"{moves} by {sign * scored.gain:.3f} (95% interval {low:z.3f} to {high:z.3f})"
    against = "" if wanted.n_components is None else ", compared with principal components"
    return f"agreement with word overlap {change}{against}"


def _score(
    vectors: NDArray[np.floating],
    has_vector: NDArray[np.bool_],
    pairs: Sequence[Pairs],
    candidates: Sequence[Candidate],
) -> tuple[ScoredCandidate, ...]:
    """Agreement of every candidate, the mean over both halves."""
    agreements = np.zeros(len(candidates))
    draws: Any = 0.0
    for half in pairs:
        is_used = has_vector[half.first] & has_vector[half.second]
        first, second = half.first[is_used], half.second[is_used]
        rows, places = np.unique(np.concatenate([first, second]), return_inverse=True)
        moments = Moments.from_rows(vectors[half.others[has_vector[half.others]]])
        overlap_ranks, ranks = mean_ranks(half.overlap[is_used]), []
        for mapped in under(vectors[rows], moments, candidates):
            units = unit_rows(mapped)[places]
            cosines = np.einsum("ij,ij->i", units[: len(first)], units[len(first) :], dtype=np.float64)
            ranks.append(mean_ranks(cosines))
        # Ranks are not taken again in a resample: the difference is small, and the pairs of a text stay together.
        # They are next to each other, and numbered in this order: that of the texts does not matter.
        group = np.concatenate([[0], np.cumsum(first[1:] != first[:-1])])
        correlations = [weighted_pearson(each, overlap_ranks, group) for each in ranks]
        n_groups = int(group.max()) + 1
        agreements += [float(of(np.ones((1, n_groups)))[0]) / len(pairs) for of in correlations]
        resampled = [np.stack([of(counts) for of in correlations]) for counts in resampled_counts(n_groups)]
        draws = draws + np.concatenate(resampled, axis=1) / len(pairs)
    return tuple(
        ScoredCandidate(candidate, agreement, agreement - float(agreements[0]), *central_interval(drawn - draws[0]))
        for candidate, agreement, drawn in zip(candidates, agreements.tolist(), draws, strict=True)
    )


def under(rows: NDArray[np.floating], moments: Moments, candidates: Sequence[Candidate]) -> list[NDArray[np.floating]]:
    """Rows under each candidate, fitted on moments; every whitening scales the same rotated rows."""
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    rotated = (rows - moments.mean) @ eigen.vectors[:, : eigen.rank]
    variances = eigen.values[: eigen.rank]
    return [
        rows
        if each.name == NO_TRANSFORM
        else rotated[:, : each.n_components] * variances[: each.n_components] ** (-(each.strength or 0.0) / 2)
        for each in candidates
    ]


def sample_pairs(texts: Sequence[str], *, seed: int = 0) -> tuple[Pairs, ...]:
    """Pairs of distinct texts: each of a sample with the nearest by tf-idf and with random ones of the same half."""
    rng = np.random.default_rng(seed)
    # sorted, so that the order of the texts does not matter
    by_name = np.array(sorted(range(len(texts)), key=texts.__getitem__), dtype=np.intp)
    order = by_name[rng.permutation(len(texts))[:_MOST_TEXTS]]
    halves = order[: len(order) // 2], order[len(order) // 2 :]
    if min(map(len, halves)) <= _RANDOM:
        return ()
    from sklearn.feature_extraction.text import TfidfVectorizer

    try:
        units = TfidfVectorizer(analyzer=words_of, sublinear_tf=True).fit_transform(texts[row] for row in order)
    except ValueError:  # no text has a word
        return ()
    pairs, start = [], 0
    for half, others in (halves, halves[::-1]):
        n_queries = min(len(half), _QUERIES)
        of_half = units[start : start + len(half)]
        start += len(half)
        first, second, overlap = [], [], []
        for begin in range(0, n_queries, _BLOCK):
            queries = np.arange(begin, min(begin + _BLOCK, n_queries))
            cosines = (of_half[queries] @ of_half.T).toarray()
            places = np.arange(len(queries))[:, None]
            drawn = (queries[:, None] + rng.integers(1, len(half), size=(len(queries), _RANDOM))) % len(half)
            similar = np.where(cosines > _DUPLICATE, -1.0, cosines)
            nearest = np.argpartition(-similar, _NEAREST - 1, axis=1)[:, :_NEAREST]
            columns = np.concatenate([nearest, drawn], axis=1)
            # a text that shares no word with any other has no nearest text
            is_used = np.concatenate([similar[places, nearest] > 0, similar[places, drawn] >= 0], axis=1)
            first.append(np.broadcast_to(queries[:, None], columns.shape)[is_used])
            second.append(columns[is_used])
            overlap.append(cosines[places, columns][is_used])
        pairs.append(Pairs(half[np.concatenate(first)], half[np.concatenate(second)], np.concatenate(overlap), others))
    return tuple(pairs)


_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"  # Thai ... Chinese
# accents and Indic vowel signs, which are no word characters to `re`
_SIGNS = "\u0300-\u036f\u0900-\u0963\u0966-\u0dff"
_WORD = re.compile(rf"[{_UNSPACED}]+|(?:[^\W{_UNSPACED}]|[{_SIGNS}])+")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Words in lower case; pairs of characters for scripts that do not put spaces between words."""
    words: list[str] = []
    for word in _WORD.findall(text.lower()):
        if len(word) > 2 and _IS_UNSPACED.match(word):
            words += [word[place : place + 2] for place in range(len(word) - 1)]
        else:
            words.append(word)
    return words
