"""A map from pairs of matching texts: candidates in closed form, chosen by folds, tested on pairs that are held out.

`MatchingPairs` are the vectors of both sides, and which of them are of one text. Pairs that share a text, also by way
of others, form a group, and groups are never divided. A fifth of them is held out. On folds of the others,
`choose_from_pairs` ranks the second text of each pair among all, and chooses among no map, plain whitening and
`pair_whitening` of both sides, or among no map and `JointMoments.ridge` of queries. All are fitted from the joint
moments of folds. `PairsChoice` says what the best one gains on the fifth, and whether that is beyond chance.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import JointFolds, JointMoments
from isosent.numeric.ranking import cosine_ranks, ndcg_at_k, reciprocal_rank
from isosent.numeric.similarity import nonzero_rows
from isosent.numeric.spectrum import spectrum
from isosent.numeric.statistics import LEVEL, N_RESAMPLES, central_interval, resampled_counts
from isosent.numeric.threads import one_thread_products
from isosent.transforms.base import NO_TRANSFORM, make_linear

FEWEST_GROUPS = 30
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
SHRINKAGES = (0.1, 0.3, 0.7)
# smaller ones gain more on texts like those of the pairs, and lose on texts of another kind
PENALTIES = (1.0, 3.0, 10.0, 30.0)
_N_FOLDS = 4  # of the pairs that are not held out
_FEWEST_OF_KIND = 10  # groups; smaller kinds count as one
_MOST_RANKED = 10_000  # pairs; more are fitted on, but not ranked
_FLOOR = 1e-6  # of the mean variance of a difference
_EQUAL = 1e-12  # of the variance of vectors: less of their difference is rounding

Double = NDArray[np.float64]
Rows = NDArray[np.intp]


class Candidate(NamedTuple):
    """A map that can be fitted from joint moments: its name and settings."""

    name: str = NO_TRANSFORM
    settings: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        """For tables."""
        if self.name == NO_TRANSFORM:
            return "unchanged"
        return ", ".join([self.name.replace("_", " "), *(f"{name} {value:g}" for name, value in self.settings)])

    @property
    def is_of_queries(self) -> bool:
        """Whether documents stay as they are."""
        return self.name == "query_ridge"

    def fit(self, joint: JointMoments) -> LinearMap | None:
        """The map of both sides, or of queries; None for no map."""
        values = dict(self.settings)
        if self.name == NO_TRANSFORM:
            return None
        if self.name == "query_ridge":
            return joint.ridge(values["penalty"], towards=np.eye(joint.cut))
        if self.name == "pair_whitening":
            return pair_whitening(joint, **values)
        return make_linear(self.name, settings=values | {"shrinkage": "oas"}).fit_moments(joint.x + joint.y).linear_map_


def pair_whitening(joint: JointMoments, strength: float, shrinkage: float) -> LinearMap:
    r"""Divide by the deviations of matching vectors from each other: :math:`(x - \mu) D_g^{-s/2} V`.

    D is the covariance of x - y, shrunk by g towards a multiple of the identity and of mean variance 1, and V are the
    principal axes of what results (Radenovic, Tolias & Chum 2018, section 3.4, without strength and shrinkage).
    """
    values, axes = _axes_of_differences(joint)
    both, shrunk = joint.x + joint.y, (1 - shrinkage) * values + shrinkage
    root = (axes * np.maximum(shrunk, _FLOOR) ** (-strength / 2)) @ axes.T
    weight = root @ spectrum(root @ both.covariance @ root).vectors
    return LinearMap(weight, -both.mean @ weight)


@lru_cache(maxsize=1)  # for all strengths and shrinkages
def _axes_of_differences(joint: JointMoments) -> tuple[Double, Double]:
    """Variances of x - y, of mean 1, and their axes."""
    difference = joint.x.covariance + joint.y.covariance - joint.cross - joint.cross.T
    level = float(np.trace(difference)) / joint.cut
    if not level > _EQUAL * float(np.trace(joint.x.covariance)) / joint.cut:
        raise InputError("pairs: both vectors of each pair are equal, so there is nothing to learn. Use other pairs.")
    values, axes = np.linalg.eigh(difference / level)
    return np.maximum(values, 0), axes


def _candidates(*, queries_only: bool) -> tuple[list[Candidate], list[Candidate]]:
    """Maps that pairs can choose, and plain whitening, beside which they are shown."""
    whitened = [Candidate("whitening", (("strength", each),)) for each in STRENGTHS]
    if queries_only:
        return [Candidate("query_ridge", (("penalty", each),)) for each in PENALTIES], whitened
    learned = [
        Candidate("pair_whitening", (("strength", strength), ("shrinkage", shrinkage)))
        for strength in STRENGTHS
        for shrinkage in SHRINKAGES
    ]
    return [*whitened, *learned], whitened


class MatchingPairs:
    """Vectors of pairs, both (n_pairs, dim): one row per different pair, without zero rows.

    `first` and `second` say which texts are the same; `kinds` are the kind, such as the source, of each pair.
    """

    def __init__(
        self,
        x: NDArray[np.floating],
        y: NDArray[np.floating],
        first: Sequence[Hashable],
        second: Sequence[Hashable],
        kinds: Sequence[Any] | None = None,
    ) -> None:
        for name, rows in (("first", x), ("second", y)):
            _check.finite_rows("pairs", f"the {name} side", rows)
        number: dict[Hashable, int] = {}
        keys = np.array([[number.setdefault(key, len(number)) for key in side] for side in (first, second)], np.intp).T
        has_vectors = nonzero_rows(x) & nonzero_rows(y)
        self.n_zero_rows = int((~has_vectors).sum())
        usable = np.flatnonzero(has_vectors & (keys[:, 0] != keys[:, 1]))
        usable = usable[np.sort(np.unique(keys[usable], axis=0, return_index=True)[1])]
        self.x, self.y, self.keys = x[usable], y[usable], keys[usable]
        self.group = _connected(self.keys, len(number))
        self.n_groups = int(self.group.max(initial=-1)) + 1
        if self.n_groups < FEWEST_GROUPS:
            raise InputError(
                f"pairs: {len(usable):,} usable pairs form {self.n_groups} groups that share no text; at least "
                f"{FEWEST_GROUPS} are needed to tell a gain from chance. Add pairs of other texts."
            )
        self.kind = None if kinds is None else self._kind_of_groups([kinds[row] for row in usable.tolist()])

    def __len__(self) -> int:
        return len(self.keys)

    def _kind_of_groups(self, kinds: Sequence[Any]) -> Rows | None:
        """Number of the kind of each group, that of its first pair; None if there are not two of enough groups."""
        first = np.unique(self.group, return_index=True)[1]
        _, number, count = np.unique([str(kinds[row]) for row in first], return_inverse=True, return_counts=True)
        is_small = count < _FEWEST_OF_KIND
        if count[is_small].sum() < _FEWEST_OF_KIND and not is_small.all():
            return None if (~is_small).sum() < 2 else np.where(is_small[number], count.argmax(), number)
        return None if is_small.all() else np.where(is_small[number], len(count), number)

    def parts(self) -> tuple[Rows, NDArray[np.bool_]]:
        """The fold of each pair, and whether it is held out; groups are not divided, nor kinds over folds."""
        random = np.random.default_rng(0)
        sizes = np.bincount(self.group)
        held_out, n_held_out = np.zeros(self.n_groups, bool), 0
        for group in random.permutation(self.n_groups):
            # where one group has most pairs, the others must not all be held out
            has_room = held_out.sum() <= 2 * self.n_groups // (_N_FOLDS + 1)
            if has_room and n_held_out + sizes[group] <= max(len(self) // (_N_FOLDS + 1), 1):
                held_out[group], n_held_out = True, n_held_out + sizes[group]
        units = np.arange(self.n_groups) if self.kind is None else self.kind
        weights = np.bincount(units, sizes * ~held_out)
        fold_of_unit, filled = np.zeros(len(weights), np.intp), np.zeros(_N_FOLDS)
        for unit in sorted(random.permutation(len(weights)), key=lambda unit: -weights[unit]):
            fold_of_unit[unit] = filled.argmin()
            filled[filled.argmin()] += weights[unit]
        return fold_of_unit[units][self.group], held_out[self.group]


def _connected(keys: Rows, n_texts: int) -> Rows:
    """Number of the group of each pair: those that share a text, also by way of others, are one."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    graph = coo_array((np.ones(len(keys)), (keys[:, 0], keys[:, 1])), shape=(n_texts, n_texts))
    component = connected_components(graph, directed=False)[1]
    return np.unique(component[keys[:, 0]], return_inverse=True)[1].astype(np.intp)


class _Search:
    """Ranks the second text of pairs among the second texts of all."""

    def __init__(self, pairs: MatchingPairs) -> None:
        order = np.random.default_rng(1).permutation(pairs.n_groups)
        rows = np.argsort(np.argsort(order)[pairs.group], kind="stable")[:_MOST_RANKED]
        self.rows = np.sort(rows)
        keys, self.group = pairs.keys[self.rows], pairs.group[self.rows]
        queries, query_rows, self.query = np.unique(keys[:, 0], return_index=True, return_inverse=True)
        documents, document_rows, self.document = np.unique(keys[:, 1], return_index=True, return_inverse=True)
        self.x, self.y = pairs.x[self.rows][query_rows], pairs.y[self.rows][document_rows]
        place = np.minimum(np.searchsorted(documents, queries), len(documents) - 1)
        self.same = np.where(documents[place] == queries, place, -1)  # a document that is the query does not count

    def scores(self, part: NDArray[np.bool_], linear_map: LinearMap | None, *, queries_only: bool) -> Double:
        """Reciprocal rank and nDCG@10 of the queries of some pairs, (n_queries, 2)."""
        queries, local = np.unique(self.query[part], return_inverse=True)
        x, y = self.x[queries], self.y
        if linear_map is not None:
            x, y = linear_map.apply(x), y if queries_only else linear_map.apply(y)
        relevant = np.stack([local, self.document[part]], axis=1)
        relevant = relevant[np.argsort(local, kind="stable")]
        ranks = cosine_ranks(x.astype(np.float32), y.astype(np.float32), relevant, excluded=self.same[queries])
        by_query = np.split(ranks, np.searchsorted(relevant[:, 0], np.arange(1, len(queries))))
        return np.array([(reciprocal_rank(each), ndcg_at_k(each, np.ones(len(each)), 10)) for each in by_query])

    def groups(self, part: NDArray[np.bool_]) -> Rows:
        """The group of each query of some pairs."""
        return self.group[part][np.unique(self.query[part], return_index=True)[1]]


class Tested(NamedTuple):
    """A map on held-out pairs: mean MRR and nDCG@10, and what it gains over no map, with 95% intervals."""

    label: str
    mrr: float
    ndcg: float
    mrr_gain: tuple[float, float, float] | None = None  # and the ends of the interval
    ndcg_gain: tuple[float, float, float] | None = None


class PairsChoice(NamedTuple):
    """What the folds chose from pairs, and what it gains on those that were held out."""

    chosen: Candidate  # none unless its gain is beyond chance
    linear_map: LinearMap | None  # fitted on all pairs
    tested: tuple[Tested, ...]  # no map, plain whitening, the best by folds
    folds: tuple[tuple[str, float], ...]  # MRR of each candidate on folds it was not fitted on
    n_groups: int
    n_held_out: int  # queries
    of_other_kinds: bool  # whether these are of kinds that the tested map was not fitted on

    @property
    def reason(self) -> str:
        """The recommendation, and the gain on held-out pairs."""
        best = self.tested[-1]
        gain, low, high = best.mrr_gain or (0.0, 0.0, 0.0)
        kinds = " of other kinds" if self.of_other_kinds else ""
        measured = f"MRR {gain:+.3f}, 95% interval {low:.3f} to {high:.3f}, {self.n_held_out:,} held-out queries{kinds}"
        if self.chosen.name == NO_TRANSFORM:
            return (
                "Keep these vectors unchanged. No transform from these pairs ranks matching texts measurably better "
                f"(best: {best.label}; {measured})."
            )
        sides = "queries" if self.chosen.is_of_queries else "vectors"
        needed = " It needs no pairs: plain whitening is best here." if self.chosen.name == "whitening" else ""
        return f"Transform {sides} by {best.label}. Matching texts are ranked better: {measured}.{needed}"

    def to_json(self) -> dict[str, Any]:
        """Return JSON values, as model folders store them."""
        tested = [each._asdict() for each in self.tested]
        return {
            "chosen": self.chosen.label,
            "reason": self.reason,
            "tested": tested,
            "folds": [{"candidate": label, "mrr": mrr} for label, mrr in self.folds],
            "n_groups": self.n_groups,
            "n_held_out": self.n_held_out,
        }


@one_thread_products()  # threads that wait for each other take ten times as long on a busy machine
def choose_from_pairs(pairs: MatchingPairs, *, queries_only: bool = False) -> PairsChoice:
    """Choose a map by folds, and test it on the groups that are held out."""
    (fold, is_held_out), search = pairs.parts(), _Search(pairs)
    moments = JointFolds.from_rows(pairs.x, pairs.y, np.where(is_held_out, _N_FOLDS, fold), n_folds=_N_FOLDS + 1)
    known = JointFolds(moments.folds[:_N_FOLDS])
    fold, is_held_out = fold[search.rows], is_held_out[search.rows]
    folds = [(~is_held_out & (fold == each), known.without(int(each))) for each in np.unique(fold[~is_held_out])]
    held_out = [(is_held_out, known.total)]
    if pairs.kind is not None:  # a map is tested on kinds that it was not fitted on
        held_out = [(is_held_out & (fold == each), known.without(int(each))) for each in np.unique(fold[is_held_out])]

    def scores(candidates: Sequence[Candidate], parts: Sequence[tuple[NDArray[np.bool_], JointMoments]]) -> Double:
        by_part = [
            [search.scores(part, each.fit(joint), queries_only=each.is_of_queries) for each in candidates]
            for part, joint in parts
        ]
        return np.concatenate(by_part, axis=1)

    allowed, whitened = _candidates(queries_only=queries_only)
    none = Candidate()
    candidates = list(dict.fromkeys([none, *allowed, *whitened]))
    mrr = dict(zip(candidates, scores(candidates, folds)[:, :, 0].mean(axis=1).tolist(), strict=True))
    best, plain = max(allowed, key=mrr.__getitem__), max(whitened, key=mrr.__getitem__)
    groups = np.concatenate([search.groups(part) for part, _ in held_out])
    rivals = list(dict.fromkeys([plain, best]))
    before, *after = scores([none, *rivals], held_out)
    mrr_before, ndcg_before = before.mean(axis=0).tolist()
    tested = [Tested(none.label, mrr_before, ndcg_before)]
    for candidate, values in zip(rivals, after, strict=True):
        differences = (values - before).T
        gains = [_gain(each, groups) for each in differences]
        mean_mrr, mean_ndcg = values.mean(axis=0).tolist()
        tested.append(Tested(candidate.label, mean_mrr, mean_ndcg, *gains))
    is_beyond_chance = all(low > 0 for _, low, _ in gains) and all(
        _is_beyond_chance(each, groups) for each in differences
    )
    is_better = mrr[best] > mrr[none] and is_beyond_chance  # of the best, which is tested last
    return PairsChoice(
        best if is_better else none,
        best.fit(moments.total) if is_better else None,
        tuple(tested),
        tuple((candidate.label, value) for candidate, value in mrr.items()),
        pairs.n_groups,
        len(before),
        pairs.kind is not None,
    )


def _gain(differences: Double, groups: Rows) -> tuple[float, float, float]:
    """Mean difference, and its 95% interval if groups are drawn anew."""
    place = np.unique(groups, return_inverse=True)[1]
    sums, counts = np.bincount(place, differences), np.bincount(place)
    draws = [drawn @ sums / (drawn @ counts) for drawn in resampled_counts(len(sums))]
    return float(differences.mean()), *central_interval(np.concatenate(draws))


def _is_beyond_chance(differences: Double, groups: Rows) -> bool:
    """Whether at most 2.5% of random signs of the groups give as large a sum."""
    # The interval alone is above zero if four groups gain and none loses: of pairs at random, 100 or 300 at a time, a
    # map was saved in 11 of 60 draws, and with this test of both measures in one.
    sums = np.bincount(np.unique(groups, return_inverse=True)[1], differences)
    signs = np.random.default_rng(0).integers(2, size=(N_RESAMPLES * 4, len(sums))) * 2.0 - 1
    return float((signs @ sums >= sums.sum() - 1e-12).mean()) <= (1 - LEVEL) / 2
