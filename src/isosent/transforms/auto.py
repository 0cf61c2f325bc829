"""transform="auto": chooses a strength of whitening, or no transform, without labels.

`choose_from_texts` draws pairs of texts that share words and pairs that share none (`sample_pairs`), fits each
`Candidate` on other rows, and compares how well cosines and word overlap agree. `choose` takes the candidate whose gain
is beyond chance, and `AutoChoice` keeps what was compared. In a pool of languages (`separate_groups`), pairs are those
within a group, and what keeps the groups apart is left out. Without texts, `choose_without_texts` keeps the dimensions
as they are, or the principal components, centered or not by the neighbors that a sample of rows keeps
(`held_out_recall`). A recommendation says in words what was chosen, and why.
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
from isosent.numeric.ranking import best_columns, neighbour_recall
from isosent.numeric.similarity import held_out_rows, mean_ranks, nonzero_rows, unit_rows
from isosent.numeric.spectrum import Spectrum, effective_rank, resolve_width, spectrum
from isosent.numeric.statistics import central_interval, resampled_counts, weighted_pearson
from isosent.transforms.base import NO_TRANSFORM, Auto, LinearTransform, make_linear

# The rule in five lines. docs/research/auto.md: how the constants were chosen, and how sensitive the rule is to them.
# 1. Agreement is the rank correlation of cosines with the word overlap (tf-idf) of pairs of texts.
# 2. Gain is the agreement under a whitening minus that without, on texts that the whitening was not fitted on.
# 3. If the best gain is at least LEAST_GAIN, and more than chance: the strongest whitening with SHARE_OF_GAIN of it.
# 4. Else, if the vectors fill their space evenly (EVEN) and the mildest whitening gains more than chance: that one.
# 5. Else no transform.
# Word overlap sees one language at a time. If the texts form separate groups, such as languages, only pairs within a
# group are compared, the gain is the mean of those of the groups, and a whitening must make no group clearly worse, and
# must bring the groups closer together: by CLOSER, or to below MIXED.
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
LEAST_GAIN = 0.02
SHARE_OF_GAIN = 0.85
EVEN = 0.6
CLOSER = 0.9
MIXED = 0.3

FEWEST_TEXTS = 100
_MOST_TEXTS = 20_000
_QUERIES = 1000  # of each half of the texts
_FEWEST_SEARCHED = 20  # vectors: twice the neighbors of a query
_NEAREST = 3
_RANDOM = 3
_DUPLICATE = 0.8  # tf-idf cosine. Near duplicates differ in one word, which tf-idf cannot weigh.
_BLOCK = 256
_ALL_EQUAL = "All vectors are equal."
_UNCHANGED = "Keep these vectors unchanged."
_GROUP_ROWS = 4000
_FEWEST_GROUPED, _FEWEST_IN_GROUP = 100, 10
_SMALLEST_GROUP = 0.03  # share of the texts
_CLUSTERS = 6
# Cosine of the shares of texts that hold each word, between clusters: 0.00 to 0.18 for two languages, from 0.19 on for
# the topics of one. Above the first limit, groups must also be _APART (docs/research/inspect.md).
_FOREIGN, _LITTLE_SHARED, _APART = 0.15, 0.25, 6.0
# Distances of groups in standard deviations along the line between their means, without texts: none of 54 single sets
# is above 8 for two; for more groups, the least distance counts.
_SEPARATE = {2: 8.0, 3: 6.0, 4: 6.0}


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
    reason: str  # the recommendation: what to do, what to expect, and how certain it is

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

    def chosen(self, is_chosen: NDArray[np.bool_]) -> Pairs:
        """Some of the pairs."""
        return Pairs(self.first[is_chosen], self.second[is_chosen], self.overlap[is_chosen], self.others)


def choose_from_texts(
    vectors: NDArray[np.floating], texts: Sequence[str], wanted: Auto, *, groups: NDArray[Any] | None = None
) -> AutoChoice:
    """Choose for vectors of texts, (n_texts, dim); repeated texts count once. Groups are found if not given."""
    rows = distinct_rows(texts)
    vectors, texts = vectors[rows], [texts[row] for row in rows]
    groups = separate_groups(vectors, texts) if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    return choose(vectors, sample_pairs(texts), wanted, groups=groups)


def distinct_rows(texts: Sequence[str]) -> list[int]:
    """Where each distinct text occurs first."""
    row_of: dict[str, int] = {}
    for row, text in enumerate(texts):
        row_of.setdefault(text, row)
    return list(row_of.values())


def choose(
    vectors: NDArray[np.floating], pairs: Sequence[Pairs], wanted: Auto, *, groups: NDArray[np.intp] | None = None
) -> AutoChoice:
    """Choose for vectors of distinct texts, (n_texts, dim); `pairs` are those of `sample_pairs`."""
    has_vector = nonzero_rows(vectors)
    if groups is not None:
        pairs = [_within_groups(half, groups) for half in pairs]
    moments = Moments.from_rows(vectors[has_vector])
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    first = without_whitening(wanted, eigen)
    if not eigen.rank:
        return AutoChoice(first, (), f"{_action(first)} {_ALL_EQUAL}")
    n_pairs = [int((has_vector[half.first] & has_vector[half.second]).sum()) for half in pairs]
    if moments.weight < FEWEST_TEXTS:
        few = f"{moments.weight:.0f}; at least {FEWEST_TEXTS} different ones are needed"
        return AutoChoice(first, (), _undecided(first, f"Not enough texts to decide ({few})."))
    if min(n_pairs, default=0) < FEWEST_TEXTS:  # texts without words, or most of them without a vector
        return AutoChoice(first, (), _undecided(first, "Too few pairs of texts can be compared to decide."))
    width = first.n_components or len(eigen.values)
    whitenings = [Candidate("whitening", strength, width) for strength in STRENGTHS]
    agreements, draws = _score(vectors, has_vector, pairs, (first, *whitenings), groups)
    if (is_measured := ~np.isnan(draws).any(axis=(1, 2))).any():  # of a group, all overlaps may be equal
        agreements, draws = agreements[is_measured], draws[is_measured]
    scored = _scored((first, *whitenings), agreements.mean(axis=0), draws.mean(axis=0))
    if any(math.isnan(each.low) for each in scored):  # in a half or a resample, all cosines or overlaps are equal
        return AutoChoice(first, (), _undecided(first, "The effect of whitening could not be measured."))
    certain = [each for each in scored[1:] if each.low > 0]
    why_not = ""
    if groups is not None:
        highs = np.array([[central_interval(drawn - group[0])[1] for drawn in group] for group in draws])
        worse = [each for each, high in zip(scored, highs.min(axis=0), strict=True) if high < 0 and each in certain]
        certain = [each for each in certain if each not in worse]
        mixing = _mixing(vectors, has_vector, groups, pairs, [each.candidate for each in scored])
        apart = [each for each in certain if each.candidate not in mixing]
        certain = [each for each in certain if each not in apart]
        for dropped, what in (
            (worse, "ranks the texts of one group worse"),
            (apart, "does not bring {} closer together"),
        ):
            if dropped:
                listed = ", ".join(f"{each.candidate.strength:g}" for each in dropped)
                n_groups = len(np.unique(groups[groups >= 0]))
                why_not += f" Strength {listed} {what.format(f'the {n_groups} groups of texts')}."
        if why_not and not certain:
            return AutoChoice(first, scored, f"{_action(first)}{why_not}")
    best = max(certain or scored[1:], key=lambda each: each.gain)
    if certain and best.gain >= LEAST_GAIN:
        chosen = [each for each in certain if each.gain >= SHARE_OF_GAIN * best.gain][-1]
        return AutoChoice(chosen.candidate, scored, f"{_whitened(chosen, wanted)}{why_not}")
    mildest, evenness = scored[1], effective_rank(eigen.values[: eigen.rank]) / len(eigen.values)
    if evenness > EVEN and mildest in certain:
        even = "For vectors that are spread this evenly, a small gain is enough."
        return AutoChoice(mildest.candidate, scored, f"{_whitened(mildest, wanted)} {even}")
    return AutoChoice(first, scored, f"{_action(first)} {_rejected(best, wanted, is_certain=bool(certain))}{why_not}")


def separate_groups(
    vectors: NDArray[np.floating], texts: Sequence[str] | None = None, *, seed: int = 0
) -> NDArray[np.intp] | None:
    """Group of each of at least two separate groups of rows, (n_rows,), -1 for none; None if there is one only.

    With texts, which must be distinct: clusters of vectors whose texts share hardly a word, as languages do.
    """
    from sklearn.cluster import KMeans

    has_vector = nonzero_rows(vectors)
    # sorted, so that the order of the texts does not matter
    rows = np.arange(len(vectors)) if texts is None else np.array(sorted(range(len(texts)), key=texts.__getitem__))
    rows = np.random.default_rng(seed).permutation(rows)
    rows = rows[has_vector[rows]][:_GROUP_ROWS]
    if len(rows) < _FEWEST_GROUPED:
        return None
    units = unit_rows(vectors[rows].astype(np.float32))
    # Found in one half and measured on the other: a few rows of many dimensions fall apart along any line through them.
    half = len(units) // 2
    if len(np.unique(units[:half], axis=0)) < _CLUSTERS:
        return None
    for n_clusters in _SEPARATE if texts is None else (_CLUSTERS,):
        clusters = KMeans(n_clusters, n_init=2, random_state=seed).fit(units[:half])
        found = clusters.predict(units).astype(np.intp)
        if texts is None:
            is_separate = _distance(units, found, half) >= _SEPARATE[n_clusters]
            group_of = np.arange(n_clusters)
        else:
            group_of = _foreign_clusters(units, found, [texts[row] for row in rows])
            is_separate = len(np.unique(group_of[group_of >= 0])) > 1
        if is_separate:
            groups = np.full(len(vectors), -1, np.intp)
            groups[has_vector] = group_of[clusters.predict(unit_rows(vectors[has_vector].astype(np.float32)))]
            return groups
    return None


def _foreign_clusters(units: NDArray[np.float32], found: NDArray[np.intp], texts: list[str]) -> NDArray[np.intp]:
    """Group of each cluster of texts, (n_clusters,): those that share words are one group, a small group is -1."""
    from scipy.sparse.csgraph import connected_components
    from sklearn.feature_extraction.text import CountVectorizer

    nothing = np.zeros(_CLUSTERS, np.intp)
    try:
        words = CountVectorizer(analyzer=words_of, binary=True, dtype=np.float32).fit_transform(texts)
    except ValueError:  # no text has a word
        return nothing
    shares = np.stack([np.asarray(words[found == each].sum(axis=0)).ravel() for each in range(_CLUSTERS)])
    units_of_words = unit_rows(shares)
    shared = units_of_words @ units_of_words.T
    for limit, least in ((_LITTLE_SHARED, _APART), (_FOREIGN, 0.0)):
        group_of = connected_components(shared > limit)[1].astype(np.intp)
        sizes = np.bincount(group_of[found], minlength=_CLUSTERS)
        group_of[sizes[group_of] < max(_FEWEST_IN_GROUP, _SMALLEST_GROUP * len(texts))] = -1
        if len(np.unique(group_of[group_of >= 0])) > 1 and _distance(units, group_of[found], len(units) // 2) >= least:
            return group_of
    return nothing


def _distance(units: NDArray[np.float32], found: NDArray[np.intp], half: int) -> float:
    """Least distance of two groups, in standard deviations along the line between their means in the first half."""
    groups, least = np.unique(found[found >= 0]), math.inf
    for number, first in enumerate(groups):
        for second in groups[number + 1 :]:
            fitted, held_out = (
                [part[label == each] for each in (first, second)]
                for part, label in ((units[:half], found[:half]), (units[half:], found[half:]))
            )
            if min(map(len, [*fitted, *held_out])) < min(_FEWEST_IN_GROUP, half):
                return 0.0
            line = fitted[1].mean(axis=0) - fitted[0].mean(axis=0)
            places = [part @ line for part in held_out]
            deviation = math.sqrt((places[0].var() + places[1].var()) / 2)
            gap = float(places[1].mean() - places[0].mean())
            least = min(least, gap / deviation if deviation else 0.0)
    return least


def _within_groups(pairs: Pairs, groups: NDArray[np.intp]) -> Pairs:
    """The pairs whose texts are of one group."""
    return pairs.chosen((groups[pairs.first] == groups[pairs.second]) & (groups[pairs.first] >= 0))


def _mixing(
    vectors: NDArray[np.floating],
    has_vector: NDArray[np.bool_],
    groups: NDArray[np.intp],
    pairs: Sequence[Pairs],
    candidates: Sequence[Candidate],
) -> list[Candidate]:
    """The candidates that bring groups of texts closer together, or hardly leave them apart."""
    # The distance is the mean cosine within a group less that between groups, over the deviation within a group.
    distances = np.zeros(len(candidates))
    for half, other in zip(pairs, pairs[::-1], strict=True):
        fitted, rows = (part[has_vector[part]] for part in (half.others, other.others))
        rows = rows[groups[rows] >= 0][: 2 * _QUERIES]
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


def choose_without_texts(moments: Moments, wanted: Auto, sample: NDArray[np.floating] | None = None) -> AutoChoice:
    """Choose for vectors whose texts are not available: nothing but the width that was requested.

    Whether the mean is subtracted is decided by the neighbors of a sample that are kept.
    """
    eigen = spectrum(moments.covariance, noise=moments.rounding_variance)
    first = without_whitening(wanted, eigen)
    if not eigen.rank:
        return AutoChoice(first, (), f"{_action(first)} {_ALL_EQUAL}")
    if first.n_components is None:
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
    return neighbour_recall(rows, linear_map.apply(rows), len(queries)), len(others)


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
    left_out = "without whitening" if chosen.center else "without whitening and without subtracting the mean"
    return f"Reduce to {chosen.n_components} dimension{'s' * (chosen.n_components != 1)} by PCA, {left_out}."


def _undecided(first: Candidate, why: str) -> str:
    return f"{why} The vectors are unchanged." if first.name == NO_TRANSFORM else f"{_action(first)} {why}"


def _whitened(scored: ScoredCandidate, wanted: Auto) -> str:
    chosen = scored.candidate
    kept, compared = "", ""
    if wanted.n_components is not None:
        kept, compared = f" and keep {chosen.n_components} dimensions", " than by PCA alone"
    gain = f"{scored.gain:+.3f} (95% interval {scored.low:z.3f} to {scored.high:z.3f})"
    return f"Whiten with strength {chosen.strength:g}{kept}. Pairs of texts are ranked better{compared}: {gain}."


def _rejected(best: ScoredCandidate, wanted: Auto, *, is_certain: bool) -> str:
    """Why no whitening was chosen, by the best one."""
    measured = f"{best.gain:+.3f}, 95% interval {best.low:z.3f} to {best.high:z.3f}"
    if best.high < 0:
        return f"Every whitening that was tried ranks pairs of texts worse (best {measured})."
    name = "The best whitening" if wanted.n_components is None else "Whitening on top"
    if is_certain:
        return f"{name} gains too little ({measured}; the limit is {LEAST_GAIN:g})."
    return f"{name} gains nothing measurable ({measured})."


def _score(
    vectors: NDArray[np.floating],
    has_vector: NDArray[np.bool_],
    pairs: Sequence[Pairs],
    candidates: Sequence[Candidate],
    groups: NDArray[np.intp] | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Agreement of every candidate in each group of texts, the mean over both halves, and the same in resamples.

    Shapes are (n_groups, n_candidates) and (n_groups, n_candidates, n_resamples). A group has 100 pairs in both halves;
    without one, all pairs are of one group.
    """
    used = [half.chosen(has_vector[half.first] & has_vector[half.second]) for half in pairs]
    group_of = np.zeros(len(vectors), np.intp) if groups is None else groups
    sizes = np.min([np.bincount(group_of[half.first], minlength=group_of.max() + 1) for half in used], axis=0)
    names = np.flatnonzero(sizes >= FEWEST_TEXTS)
    if not len(names):
        group_of, names = np.zeros(len(vectors), np.intp), np.zeros(1, np.intp)
    agreements = np.zeros((len(names), len(candidates)))
    draws: Any = 0.0
    for half in used:
        rows, places = np.unique(np.concatenate([half.first, half.second]), return_inverse=True)
        moments = Moments.from_rows(vectors[half.others[has_vector[half.others]]])
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


def _scored(
    candidates: Sequence[Candidate], agreements: NDArray[np.float64], draws: NDArray[np.float64]
) -> tuple[ScoredCandidate, ...]:
    """Agreements, (n_candidates,), and the same in resamples, (n_candidates, n_resamples), with gains and intervals."""
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
            products = of_half[queries] @ of_half.T
            products.data = products.data.round(9)  # the last digits depend on the processor
            cosines = products.toarray()
            places = np.arange(len(queries))[:, None]
            drawn = (queries[:, None] + rng.integers(1, len(half), size=(len(queries), _RANDOM))) % len(half)
            similar = np.where(cosines > _DUPLICATE, -1.0, cosines)
            nearest = best_columns(similar, _NEAREST)
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
_ASCII_WORD = re.compile(r"\w+", re.ASCII)
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Words in lower case; pairs of characters for scripts that do not put spaces between words."""
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())  # three times as fast
    words: list[str] = []
    for word in _WORD.findall(text.lower()):
        if len(word) > 2 and _IS_UNSPACED.match(word):
            words += [word[place : place + 2] for place in range(len(word) - 1)]
        else:
            words.append(word)
    return words
