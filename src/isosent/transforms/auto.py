"""transform="auto": chooses centering, a strength of whitening, or no transform, without labels.

`choose_from_texts` draws pairs of texts (`agreement.sample_pairs`), fits each `Candidate` on other rows, and measures
two signals: how well cosines agree with word overlap, and how near by topic the neighbors of a text are. `pick` is the
rule: both must gain beyond chance, or the one that the purpose names. `AutoChoice` keeps what was compared. In a pool
of languages (`groups.separate_groups`), pairs are those within a group, and what keeps the groups apart is left out.
Without texts, `choose_without_texts` keeps the dimensions as they are, or the principal components, centered or not by
the neighbors that a sample of rows keeps (`held_out_recall`). A recommendation says in words what was chosen, and why.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct, ValidationError, convert
from numpy.typing import NDArray

from isosent.errors import InputError, RankWarning
from isosent.numeric.moments import Moments
from isosent.numeric.neighbors import neighbor_recall
from isosent.numeric.similarity import held_out_rows, mean_ranks, nonzero_rows, unit_rows
from isosent.numeric.spectrum import Spectrum, effective_rank, resolve_width, spectrum
from isosent.numeric.statistics import central_interval, mean_draws, resampled_counts, weighted_pearson
from isosent.numeric.threads import one_thread_products
from isosent.transforms.agreement import (
    MOST_QUERIES,
    OverlapPairs,
    distinct_rows,
    sample_pairs,
    topics_of_neighbors,
)
from isosent.transforms.base import NO_TRANSFORM, Auto, LinearTransform, make_linear
from isosent.transforms.groups import separate_groups

STRENGTHS = (0.25, 0.5, 0.75, 1.0)


class Limits(NamedTuple):
    """Constants of the rule. docs/research/auto.md: how they were chosen, and how sensitive the rule is to them."""

    pairs: float = 0.02  # least gain in agreement with word overlap
    topics: float = 0.01  # least gain in topical agreement
    share: float = 0.85  # of the best gain of pairs, that the strongest whitening must have
    topic_share: float = 0.75  # of the best gain of topics
    even: float = 0.6  # effective rank, as a share of the dimensions


LIMITS = Limits()
# Words tell of one language at a time. If the texts form separate groups, such as languages, only pairs and neighbors
# within a group are compared, the gain of pairs is the mean of those of the groups, and a transform must make no group
# clearly worse, and must bring the groups closer together: by CLOSER, or to below MIXED.
CLOSER = 0.9
MIXED = 0.3

CENTERING = "mean_centering"
FEWEST_TEXTS = 100
_FEW_NUMBERS = 1 << 20  # of vectors, up to which threads mostly wait for each other
_FEWEST_SEARCHED = 20  # vectors: twice the neighbors of a query
_ALL_EQUAL = "All vectors are equal."
_UNCHANGED = "Keep these vectors unchanged."
_OF_TOPICS = "topics, classes and search"
_COMMON_MEAN = "The mean is what all values of the erased attribute now share."


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
        if self.name == CENTERING:
            return "centering"
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
class TopicalGain:
    """How near, by topic, the nearest neighbors of a text are, and what a candidate changes, on held-out texts."""

    agreement: float  # mean cosine of topics, in [-1, 1]
    gain: float  # over no transform; after an attribute was erased, over centering
    low: float  # ends of the 95% bootstrap interval of the gain
    high: float


@dataclass(frozen=True, slots=True)
class ScoredCandidate:
    """A candidate and what it does to the agreement of cosines with word overlap, and to topics, on held-out texts."""

    candidate: Candidate
    agreement: float  # Spearman correlation, in [-1, 1]
    gain: float  # in agreement, over no transform; after an attribute was erased, over centering
    low: float  # ends of the 95% bootstrap interval of the gain
    high: float
    topics: TopicalGain | None = None  # None if the texts share too few words


@dataclass(frozen=True, slots=True)
class AutoChoice:
    """The choice, and all candidates."""

    chosen: Candidate
    candidates: tuple[ScoredCandidate, ...]  # the first is the vectors without whitening; empty if not measured
    reason: str  # the recommendation: what to do, what to expect, and how certain it is
    purpose: str | None = None  # of `PURPOSES`, for which it was chosen; None for all of them

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, as model folders store them."""
        candidates = [
            asdict(scored.candidate) | asdict(scored) | {"candidate": str(scored.candidate)}
            for scored in self.candidates
        ]
        for each in candidates:
            del each["center"]  # texts do not choose it
        return {
            "chosen": str(self.chosen),
            "reason": self.reason,
            "purpose": self.purpose,
            "candidates": candidates,
        }


def choose_from_texts(
    vectors: NDArray[np.floating],
    texts: Sequence[str],
    wanted: Auto,
    *,
    groups: NDArray[Any] | None = None,
    is_erased: bool = False,
) -> AutoChoice:
    """Choose for vectors of texts, (n_texts, dim); repeated texts count once. Groups are found if not given.

    If an attribute was erased (`is_erased`), all its values share one mean, which says nothing: see `choose`.
    """
    rows = distinct_rows(texts)
    if len(rows) < len(vectors):
        vectors, texts = vectors[rows], [texts[row] for row in rows]
    groups = separate_groups(vectors, texts) if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    pairs = sample_pairs(texts, topics=True)
    with one_thread_products() if vectors.size <= _FEW_NUMBERS else nullcontext():
        return choose(vectors, pairs, wanted, groups=groups, is_erased=is_erased)


def choose(
    vectors: NDArray[np.floating],
    pairs: Sequence[OverlapPairs],
    wanted: Auto,
    *,
    groups: NDArray[np.intp] | None = None,
    is_erased: bool = False,
) -> AutoChoice:
    """Choose for vectors of distinct texts, (n_texts, dim); `pairs` are those of `sample_pairs`, with topics."""
    has_vector = nonzero_rows(vectors)
    if groups is not None:
        pairs = [_within_groups(half, groups) for half in pairs]
    moments = Moments.from_rows(vectors if has_vector.all() else vectors[has_vector])
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    first = without_whitening(wanted, eigen)
    if not eigen.rank:
        return AutoChoice(first, (), f"{_action(first)} {_ALL_EQUAL}", wanted.purpose)
    n_pairs = [int((has_vector[half.first] & has_vector[half.second]).sum()) for half in pairs]
    if moments.weight < FEWEST_TEXTS:
        few = f"{moments.weight:.0f}; at least {FEWEST_TEXTS} different ones are needed"
        return AutoChoice(first, (), _undecided(first, f"Not enough texts to decide ({few})."), wanted.purpose)
    if min(n_pairs, default=0) < FEWEST_TEXTS:  # texts without words, or most of them without a vector
        why = "Too few pairs of texts can be compared to decide."
        return AutoChoice(first, (), _undecided(first, why), wanted.purpose)
    width = first.n_components or len(eigen.values)
    candidates = [first, *(Candidate("whitening", strength, width) for strength in STRENGTHS)]
    if first.name == NO_TRANSFORM:  # principal components are centered
        candidates.insert(1, Candidate(CENTERING))
    # After an attribute was erased, all its values share one mean, which says nothing: others must beat centering.
    base = 1 if is_erased and first.name == NO_TRANSFORM else 0
    agreements, draws = _score(vectors, has_vector, pairs, candidates, groups)
    if (is_measured := ~np.isnan(draws).any(axis=(1, 2))).any():  # of a group, all overlaps may be equal
        agreements, draws = agreements[is_measured], draws[is_measured]
    of_topics = _topical_gains(vectors, has_vector, pairs, candidates, groups, base)
    scored = _scored(candidates, agreements.mean(axis=0), draws.mean(axis=0), of_topics, base)
    if any(math.isnan(each.low) for each in scored):  # in a half or a resample, all cosines or overlaps are equal
        why = "The effect of whitening could not be measured."
        return AutoChoice(first, (), _undecided(first, why), wanted.purpose)
    excluded: dict[str, list[ScoredCandidate]] = {}
    if groups is not None:
        highs = np.array([[central_interval(drawn - group[base])[1] for drawn in group] for group in draws])
        worse = [each for each, high in zip(scored, highs.min(axis=0), strict=True) if high < 0]
        mixing = _mixing(vectors, has_vector, groups, pairs, candidates)
        excluded = {
            "ranked the texts of one group worse": [each for each in worse if each.low > 0],
            f"did not bring the {len(np.unique(groups[groups >= 0]))} groups of texts closer together": [
                each
                for each in scored[base + 1 :]
                if each.low > 0 and each not in worse and each.candidate not in mixing
            ],
        }
    evenness = effective_rank(eigen.values[: eigen.rank]) / len(eigen.values)
    return _verdict(scored, wanted, excluded, evenness=evenness, base=base)


def _verdict(
    scored: Sequence[ScoredCandidate],
    wanted: Auto,
    excluded: Mapping[str, Sequence[ScoredCandidate]],
    *,
    evenness: float,
    base: int,
) -> AutoChoice:
    """The choice by the rule, and a recommendation that says what it is for; gains are over the candidate at `base`."""
    first, candidates = scored[base], tuple(scored)
    dropped = [each for listed in excluded.values() for each in listed]
    usable = [each for each in scored[base + 1 :] if each not in dropped]
    why_not = "".join(
        f" {_subject_of([each.candidate for each in listed])} {what}." for what, listed in excluded.items() if listed
    )
    chosen = pick(usable, wanted.purpose, evenness=evenness)
    if chosen is not None:
        reason = f"{_recommended(chosen, wanted)}{why_not}"
        if chosen.gain < LIMITS.pairs and chosen.candidate.name == "whitening" and wanted.purpose == "pairs":
            reason += " For vectors that are spread this evenly, a small gain is enough."
        return AutoChoice(chosen.candidate, candidates, reason, wanted.purpose)
    if base:
        if (better := pick(scored[:base], wanted.purpose, evenness=0.0)) is not None:
            reason = f"{_action(better.candidate)} Subtracting the mean would do harm."
            return AutoChoice(better.candidate, candidates, f"{reason}{why_not}", wanted.purpose)
        return AutoChoice(
            first.candidate, candidates, f"{_action(first.candidate)} {_COMMON_MEAN}{why_not}", wanted.purpose
        )
    rejected = f" {_rejected(usable, wanted, evenness)}" if usable else ""
    reason = f"{_action(first.candidate)}{rejected}{why_not}"
    return AutoChoice(first.candidate, candidates, reason, wanted.purpose)


def pick(
    usable: Sequence[ScoredCandidate], purpose: str | None, *, evenness: float, limits: Limits = LIMITS
) -> ScoredCandidate | None:
    """The candidate that the rule takes for a purpose, from the mildest to the strongest; None for no transform."""
    for_pairs = [each for each in usable if _gain(each) >= limits.pairs]
    for_topics = [each for each in usable if _topical_gain(each) >= limits.topics]
    if purpose is None:
        both = _nearly_best([each for each in for_topics if each in for_pairs], _topical_gain, limits.topic_share)
        best = _nearly_best(both, _gain, limits.share)
    elif purpose != "pairs":
        best = _nearly_best(for_topics, _topical_gain, limits.topic_share)
    elif for_pairs:
        best = _nearly_best(for_pairs, _gain, limits.share)
    else:
        mildest = [each for each in usable if each.candidate.name == "whitening"][:1]
        best = [each for each in mildest if evenness > limits.even and _gain(each) > 0]
    return best[-1] if best else None


class SavedGain(Struct, frozen=True, kw_only=True):
    """A gain in a model folder, of pairs or of topics; None where it was not measured."""

    agreement: float | None = None
    gain: float | None
    low: float | None
    high: float | None


class SavedCandidate(SavedGain, frozen=True, kw_only=True):
    candidate: str
    name: str
    topics: SavedGain | None = None  # earlier versions did not measure it


class SavedChoice(Struct, frozen=True):
    """Why a fit is as it is, as model folders hold it; `candidates` are of auto, `tested` of a fit on pairs."""

    chosen: str
    reason: str
    purpose: str | None = "pairs"  # earlier versions looked at pairs alone
    candidates: Sequence[SavedCandidate] = ()
    tested: Any = None


def saved_choice(choice: Mapping[str, Any] | None) -> SavedChoice | None:
    """What the choice of a `FitRecord` says, whichever version wrote it; None without one.

    Model folders hold candidates unchecked: those of the first versions were scored otherwise, and are left out.
    """
    if not choice:
        return None
    try:
        return convert(choice, SavedChoice)
    except ValidationError:
        return SavedChoice(choice["chosen"], choice["reason"], tested=choice.get("tested"))


def note_for(choice: Mapping[str, Any] | None, purpose: str) -> str | None:
    """What whoever uses vectors for a purpose should know, if their transform was chosen for another one.

    `choice` is ``AutoChoice.to_json()``; another one says nothing. Topics and search look at one signal, so what serves
    one serves the other.
    """
    saved = saved_choice(choice)
    if saved is None or saved.purpose is None or (saved.purpose == "pairs") == (purpose == "pairs"):
        return None
    chosen = next((each for each in saved.candidates if each.candidate == saved.chosen), None)
    # without a gain, it is what the others were compared with, and no purpose asked for it
    if chosen is None or chosen.name == NO_TRANSFORM or not chosen.gain:
        return None
    gain = chosen if purpose == "pairs" else chosen.topics
    what = "pairs of texts" if purpose == "pairs" else _OF_TOPICS
    effect = _effect(gain)
    return f"{saved.chosen} was chosen for {saved.purpose}; for {what}: {effect}."


def _effect(of: SavedGain | None) -> str:
    """Whether a gain is harm, nothing or good, with its interval."""
    if of is None or of.gain is None or of.low is None or of.high is None:
        return "that was not measured"
    verb = "it costs" if of.high < 0 else "it gains" if of.low > 0 else "it changes little"
    return f"{verb} ({of.gain:+.3f}, 95% interval {of.low:z.3f} to {of.high:z.3f})"


def _gain(scored: ScoredCandidate) -> float:
    """The gain of pairs, if it is beyond chance."""
    return scored.gain if scored.low > 0 else -math.inf


def _topical_gain(scored: ScoredCandidate) -> float:
    """The gain of topics, if it is beyond chance."""
    return scored.topics.gain if scored.topics is not None and scored.topics.low > 0 else -math.inf


def _nearly_best(
    candidates: Sequence[ScoredCandidate], gain: Callable[[ScoredCandidate], float], share: float
) -> list[ScoredCandidate]:
    """Those that have a share of the greatest gain."""
    greatest = max(map(gain, candidates), default=0.0)
    return [each for each in candidates if gain(each) >= share * greatest]


def _within_groups(pairs: OverlapPairs, groups: NDArray[np.intp]) -> OverlapPairs:
    """The pairs whose texts are of one group."""
    return pairs.subset((groups[pairs.first] == groups[pairs.second]) & (groups[pairs.first] >= 0))


def _mixing(
    vectors: NDArray[np.floating],
    has_vector: NDArray[np.bool_],
    groups: NDArray[np.intp],
    pairs: Sequence[OverlapPairs],
    candidates: Sequence[Candidate],
) -> list[Candidate]:
    """The candidates that bring groups of texts closer together, or hardly leave them apart."""
    # The distance is the mean cosine within a group less that between groups, over the deviation within a group.
    distances = np.zeros(len(candidates))
    for half, other in zip(pairs, pairs[::-1], strict=True):
        fitted, rows = (part[has_vector[part]] for part in (half.other_rows, other.other_rows))
        rows = rows[groups[rows] >= 0][: 2 * MOST_QUERIES]
        is_same = groups[rows][:, None] == groups[rows]
        is_other = ~is_same
        np.fill_diagonal(is_same, False)
        if not (is_same.any() and is_other.any()):
            return list(candidates)
        for place, mapped in enumerate(under(vectors[rows], Moments.from_rows(vectors[fitted]), candidates)):
            units = unit_rows(mapped.astype(np.float32))
            cosines = units @ units.T
            within = cosines[is_same]
            distances[place] += (within.mean() - cosines[is_other].mean()) / (max(within.std(), 1e-9) * len(pairs))
    limit = max(CLOSER * distances[0], MIXED)
    return [each for each, distance in zip(candidates, distances, strict=True) if distance < limit]


def choose_without_texts(
    moments: Moments, wanted: Auto, sample: NDArray[np.floating] | None = None, *, is_erased: bool = False
) -> AutoChoice:
    """Choose for vectors whose texts are not available: nothing but the width that was requested.

    Whether the mean is subtracted is decided by the neighbors of a sample that are kept.
    """
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    first = without_whitening(wanted, eigen)
    if not eigen.rank:
        return AutoChoice(first, (), f"{_action(first)} {_ALL_EQUAL}")
    if first.n_components is None:
        if is_erased:
            centered = Candidate(CENTERING)
            return AutoChoice(centered, (), f"{_action(centered)} {_COMMON_MEAN}")
        why = "No recommendation without texts. Give the texts of these vectors, or name a transform."
        return AutoChoice(first, (), why)
    why = "Without texts, nothing shows whether whitening would help."
    if sample is not None:
        about_zero = replace(first, center=False)
        recalls = [held_out_recall(sample, each.transform()) for each in (first, about_zero)]
        if recalls[0] is not None and recalls[1] is not None and recalls[1][0] > recalls[0][0]:
            first, (recall, n_texts) = about_zero, recalls[1]
            why += (
                f" Of the original neighbors among {n_texts:,} vectors, {recall:.3f} are kept; with the mean "
                f"subtracted, {recalls[0][0]:.3f}."
            )
    return AutoChoice(first, (), f"{_action(first)} {why}")


def held_out_recall(sample: NDArray[np.floating], transform: LinearTransform | None) -> tuple[float, int] | None:
    """Recall@10 of the original neighbors under a transform fitted without the queries, and among how many vectors.

    None if rows are too few.
    """
    queries, others = held_out_rows(sample)
    if not len(queries) or len(others) < _FEWEST_SEARCHED:
        return None
    if transform is None:
        return 1.0, len(others)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankWarning)
            linear_map = copy.deepcopy(transform).fit_moments(Moments.from_rows(sample[others])).linear_map_
    except InputError:  # the others do not vary
        return None
    rows = sample[np.concatenate([queries, others])]
    return neighbor_recall(rows, linear_map.apply(rows), len(queries)), len(others)


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


def _action(chosen: Candidate) -> str:
    """What to do, as the first sentence of a recommendation."""
    if chosen.name == NO_TRANSFORM:
        return _UNCHANGED
    if chosen.name == CENTERING:
        return "Center these vectors, without whitening."
    if chosen.name == "whitening":
        kept = "" if chosen.n_components is None else f" and keep {chosen.n_components} dimensions"
        return f"Whiten with strength {chosen.strength:g}{kept}."
    left_out = "without whitening" if chosen.center else "without whitening and without subtracting the mean"
    return f"Reduce to {chosen.n_components} dimension{'s' * (chosen.n_components != 1)} by PCA, {left_out}."


def _subject_of(candidates: Sequence[Candidate]) -> str:
    """Candidates as the subject of a sentence."""
    strengths = [f"{each.strength:g}" for each in candidates if each.strength is not None]
    named = ["Centering"] if any(each.name == CENTERING for each in candidates) else []
    return " and ".join([*named, *([f"{'s' if named else 'S'}trength {', '.join(strengths)}"] if strengths else [])])


def _undecided(first: Candidate, why: str) -> str:
    return f"{why} The vectors are unchanged." if first.name == NO_TRANSFORM else f"{_action(first)} {why}"


def _interval(gain: ScoredCandidate | TopicalGain) -> str:
    return f"{gain.gain:+.3f}, 95% interval {gain.low:z.3f} to {gain.high:z.3f}"


def _recommended(scored: ScoredCandidate, wanted: Auto) -> str:
    """What to do, and what it gains for the purpose, or for all of them."""
    chosen = scored.candidate
    if wanted.n_components is None:
        chosen = replace(chosen, n_components=None)
    compared = "" if wanted.n_components is None else " than by PCA alone"
    gains = []
    if wanted.purpose in (None, "pairs"):
        gain = f"{scored.gain:+.3f} (95% interval {scored.low:z.3f} to {scored.high:z.3f})"
        gains.append(f"Pairs of texts are ranked better{compared}: {gain}.")
    if wanted.purpose != "pairs" and scored.topics is not None:
        topics = scored.topics
        gain = f"{topics.gain:+.3f} (95% interval {topics.low:z.3f} to {topics.high:z.3f})"
        gains.append(f"Neighbors are nearer in topic{compared}: {gain}.")
    return " ".join([_action(chosen), *gains])


def _rejected(usable: Sequence[ScoredCandidate], wanted: Auto, evenness: float) -> str:
    """Why nothing was chosen, and what would serve one purpose alone."""

    def named(best: ScoredCandidate) -> str:
        what = best.candidate
        tried = "centering" if what.name == CENTERING else f"whitening with strength {what.strength:g}"
        return f"The best transform, {tried}," if wanted.n_components is None else "Whitening on top"

    if wanted.purpose in ("topics", "search"):
        found = [(each.topics.gain, each, each.topics) for each in usable if each.topics is not None]
        if not found:
            return "The texts share too few words to tell their topics."
        _, best, topics = max(found, key=lambda each: each[0])
        if topics.high < 0:
            return f"With every transform that was tried, neighbors are less near in topic (best {_interval(topics)})."
        if topics.low > 0:
            return f"{named(best)} gains too little ({_interval(topics)}; the limit is {LIMITS.topics:g})."
        return f"{named(best)} gains nothing measurable ({_interval(topics)})."
    alone = pick(usable, "pairs", evenness=evenness) if wanted.purpose is None else None
    if alone is not None:
        what = _action(replace(alone.candidate, n_components=None))
        alone_first = f"For pairs of texts alone: {what[0].lower()}{what[1:-1]} ({alone.gain:+.3f})"
        if alone.topics is None:
            return f"{alone_first}; the texts share too few words to tell what that does to topics."
        if alone.topics.high < 0:
            return f"{alone_first}; for {_OF_TOPICS} that would cost ({_interval(alone.topics)})."
        return f"{alone_first}; for {_OF_TOPICS} that changes little ({_interval(alone.topics)})."
    best_of_pairs = max([each for each in usable if each.low > 0] or usable, key=lambda each: each.gain)
    if best_of_pairs.high < 0:
        return f"Every transform that was tried ranks pairs of texts worse (best {_interval(best_of_pairs)})."
    if best_of_pairs.low > 0:
        return f"{named(best_of_pairs)} gains too little ({_interval(best_of_pairs)}; the limit is {LIMITS.pairs:g})."
    return f"{named(best_of_pairs)} gains nothing measurable ({_interval(best_of_pairs)})."


def _score(
    vectors: NDArray[np.floating],
    has_vector: NDArray[np.bool_],
    pairs: Sequence[OverlapPairs],
    candidates: Sequence[Candidate],
    groups: NDArray[np.intp] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Agreement of every candidate in each group of texts, the mean over both halves, and the same in resamples.

    Shapes are (n_groups, n_candidates) and (n_groups, n_candidates, n_resamples). A group has 100 pairs in both halves;
    without one, all pairs are of one group.
    """
    used = [half.subset(has_vector[half.first] & has_vector[half.second]) for half in pairs]
    group_of = np.zeros(len(vectors), np.intp) if groups is None else groups
    sizes = np.min([np.bincount(group_of[half.first], minlength=group_of.max() + 1) for half in used], axis=0)
    names = np.flatnonzero(sizes >= FEWEST_TEXTS)
    if not len(names):
        group_of, names = np.zeros(len(vectors), np.intp), np.zeros(1, np.intp)
    agreements = np.zeros((len(names), len(candidates)))
    draws: Any = 0.0
    for half in used:
        rows, places = np.unique(np.concatenate([half.first, half.second]), return_inverse=True)
        moments = Moments.from_rows(vectors[half.other_rows[has_vector[half.other_rows]]])
        cosines = []
        for mapped in under(vectors[rows], moments, candidates):
            units = unit_rows(mapped)[places]
            n_pairs = len(half.first)
            cosines.append(np.einsum("ij,ij->i", units[:n_pairs], units[n_pairs:], dtype=np.float64))
        drawn = []
        for number, name in enumerate(names):
            is_here = group_of[half.first] == name
            first, overlap_ranks = half.first[is_here], mean_ranks(half.overlap[is_here])
            # Ranks are not taken again in a resample: the difference is small, and the pairs of a text stay together.
            # They are next to each other, and numbered in this order: that of the texts does not matter.
            item = np.concatenate([[0], np.cumsum(first[1:] != first[:-1])])
            correlations = [weighted_pearson(mean_ranks(each[is_here]), overlap_ranks, item) for each in cosines]
            n_items = int(item.max()) + 1
            agreements[number] += [float(of(np.ones((1, n_items)))[0]) / len(pairs) for of in correlations]
            resampled = [np.stack([of(counts) for of in correlations]) for counts in resampled_counts(n_items)]
            drawn.append(np.concatenate(resampled, axis=1) / len(pairs))
        draws = draws + np.stack(drawn)
    return agreements, draws


def _topical_gains(
    vectors: NDArray[np.floating],
    has_vector: NDArray[np.bool_],
    pairs: Sequence[OverlapPairs],
    candidates: Sequence[Candidate],
    groups: NDArray[np.intp] | None,
    base: int,
) -> list[TopicalGain] | None:
    """How near by topic the neighbors of held-out texts are under every candidate; None if nothing is known."""
    values: list[NDArray[np.float64]] = []
    for half in pairs:
        if half.topics is None:
            return None
        moments = Moments.from_rows(vectors[half.other_rows[has_vector[half.other_rows]]])
        usable = has_vector[half.rows]
        rows, topics = half.rows[usable], half.topics[usable]
        row_groups = None if groups is None else groups[rows]
        mapped = under(vectors[rows], moments, candidates)
        values.append(np.stack([topics_of_neighbors(each, topics, groups=row_groups) for each in mapped]))
    found = np.concatenate(values, axis=1)
    found = found[:, ~np.isnan(found).any(axis=0)]  # a text that is alone in its group
    if found.shape[1] < FEWEST_TEXTS:
        return None
    gains = found - found[base]
    means, draws = found.mean(axis=1).tolist(), mean_draws(gains)
    return [
        TopicalGain(mean, mean - means[base], *central_interval(drawn))
        for mean, drawn in zip(means, draws, strict=True)
    ]


def _scored(
    candidates: Sequence[Candidate],
    agreements: NDArray[np.float64],
    draws: NDArray[np.float64],
    of_topics: Sequence[TopicalGain] | None,
    base: int,
) -> tuple[ScoredCandidate, ...]:
    """Agreements, (n_candidates,), and the same in resamples, (n_candidates, n_resamples), with gains and intervals."""
    found = []
    for place, (candidate, agreement) in enumerate(zip(candidates, agreements.tolist(), strict=True)):
        gain = agreement - float(agreements[base])
        topics = None if of_topics is None else of_topics[place]
        found.append(ScoredCandidate(candidate, agreement, gain, *central_interval(draws[place] - draws[base]), topics))
    return tuple(found)


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
