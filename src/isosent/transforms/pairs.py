"""A map from pairs of matching texts: candidates in closed form, chosen by folds, tested on pairs that are held out.

`MatchingPairs` are the vectors of both sides, and which of them are of one text. Pairs that share a text, also by way
of others, form a group, and groups are never divided. A fifth of them is held out. On folds of the others,
`choose_from_pairs` ranks the second text of each pair among all, and chooses among no map, plain whitening and
`pair_whitening` of both sides, or among no map and `JointMoments.ridge` of queries. All are fitted from the joint
moments of folds. `PairsChoice` says what the best one gains on the fifth, and whether that is beyond chance.

Texts may have a label, such as their language. Then there is one pool of the texts of both sides, and one more way: a
`JointMoments.ridge` of each label to the reference, from the pairs that join the two.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, IsosentWarning
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import JointFolds, JointMoments
from isosent.numeric.ranking import cosine_ranks, ndcg_at_k, reciprocal_rank
from isosent.numeric.similarity import nonzero_rows
from isosent.numeric.spectrum import spectrum
from isosent.numeric.statistics import INTERVAL_RESAMPLES, LEVEL, central_interval, resampled_counts
from isosent.numeric.threads import one_thread_products
from isosent.transforms.base import NO_TRANSFORM, make_linear
from isosent.transforms.labels import MOST_VALUES, is_missing
from isosent.transforms.maps import GroupMaps, MapStep

GROUP_MAPS = "group_maps"
FEWEST_GROUPS = 30
STRENGTHS = (0.25, 0.5, 0.75, 1.0)
SHRINKAGES = (0.1, 0.3, 0.7)
# smaller ones gain more on texts like those of the pairs, and lose on texts of another kind
PENALTIES = (1.0, 3.0, 10.0, 30.0)
GROUP_PENALTIES = (0.1, 0.3, 1.0, 3.0, 10.0)
_N_FOLDS = 4  # of the pairs that are not held out
_FEWEST_OF_KIND = 10  # groups; smaller kinds count as one
_MOST_RANKED = 10_000  # pairs; more are fitted on, but not ranked
_SHRINKAGE = "oas"  # of plain whitening
_FLOOR = 1e-6  # of the mean variance of a difference
_EQUAL = 1e-12  # of the variance of vectors: less of their difference is rounding
_MOST_SHOWN = 5
_NO_FOLDS = "it ranks no better on the folds that chose it"

Double = NDArray[np.float64]
Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
Fitted = tuple[LinearMap | None, Mapping[int, LinearMap]]  # the map of all vectors, but for those of some labels
Gain = tuple[float, float, float]  # and the ends of its interval
Part = tuple[Mask, JointMoments, Mask]  # pairs to be ranked, moments of those to fit on, and which these are


class MapCandidate(NamedTuple):
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
    def parameters(self) -> dict[str, Any]:
        """Settings with which the same map is fitted again."""
        return dict(self.settings) | ({"shrinkage": _SHRINKAGE} if self.name == "whitening" else {})

    @property
    def is_of_queries(self) -> bool:
        """Whether documents stay unchanged."""
        return self.name == "query_ridge"

    @property
    def base(self) -> MapCandidate:
        """What maps of groups follow: whitening, or nothing."""
        strength = dict(self.settings).get("whitening")
        return MapCandidate() if strength is None else MapCandidate("whitening", (("strength", strength),))

    def fit(self, joint: JointMoments, *, is_turned: bool = True) -> LinearMap | None:
        """The map of both sides, or of queries; None for no map. See `pair_whitening` for `is_turned`."""
        values = self.parameters
        if self.name == NO_TRANSFORM:
            return None
        if self.name == "query_ridge":
            return joint.ridge(values["penalty"], towards=np.eye(joint.x_dim))
        if self.name == "pair_whitening":
            return pair_whitening(joint, **values, is_turned=is_turned)
        return make_linear(self.name, settings=values).fit_moments(joint.x + joint.y).linear_map_


def pair_whitening(joint: JointMoments, strength: float, shrinkage: float, *, is_turned: bool = True) -> LinearMap:
    r"""Divide by the deviations of matching vectors from each other: :math:`(x - \mu) D_g^{-s/2} V`.

    D is the covariance of x - y, shrunk by g towards a multiple of the identity and of mean variance 1, and V are the
    principal axes of what results (Radenovic, Tolias & Chum 2018, section 3.4, without strength and shrinkage). No
    cosine depends on V: without `is_turned` it is left out, and the time that it takes.
    """
    values, axes = _axes_of_differences(joint)
    both, shrunk = joint.x + joint.y, (1 - shrinkage) * values + shrinkage
    root = (axes * np.maximum(shrunk, _FLOOR) ** (-strength / 2)) @ axes.T
    weight = root @ spectrum(root @ both.covariance @ root).vectors if is_turned else root
    return LinearMap(weight, -both.mean @ weight)


@lru_cache(maxsize=1)  # for all strengths and shrinkages
def _axes_of_differences(joint: JointMoments) -> tuple[Double, Double]:
    """Variances of x - y, of mean 1, and their axes."""
    difference = joint.x.covariance + joint.y.covariance - joint.cross - joint.cross.T
    level = float(np.trace(difference)) / joint.x_dim
    if not level > _EQUAL * float(np.trace(joint.x.covariance)) / joint.x_dim:
        raise InputError("pairs: both vectors of each pair are equal, so there is nothing to learn. Use other pairs.")
    values, axes = np.linalg.eigh(difference / level)
    return np.maximum(values, 0), axes


def _candidates(*, queries_only: bool, has_labels: bool) -> tuple[list[MapCandidate], list[MapCandidate]]:
    """Maps that pairs can choose, and plain whitening, next to which they are shown."""
    whitened = [MapCandidate("whitening", (("strength", each),)) for each in STRENGTHS]
    if queries_only:
        return [MapCandidate("query_ridge", (("penalty", each),)) for each in PENALTIES], whitened
    learned = [
        MapCandidate("pair_whitening", (("strength", strength), ("shrinkage", shrinkage)))
        for strength in STRENGTHS
        for shrinkage in SHRINKAGES
    ]
    if not has_labels:
        return [*whitened, *learned], whitened
    by_label = [MapCandidate(GROUP_MAPS, (("penalty", each),)) for each in GROUP_PENALTIES]
    after_whitening = [
        MapCandidate(GROUP_MAPS, (*each.settings, ("whitening", strength)))
        for strength in (0.5, 1.0)
        for each in by_label
    ]
    return [*whitened, *learned, *by_label, *after_whitening], whitened


class MatchingPairs:
    """Vectors of pairs, both (n_pairs, dim): one row per different pair, without zero rows.

    `first` and `second` say which texts are the same; `kinds` are the kind, such as the source, of each pair, and
    `labels` that of each text of both sides, such as its language. Pairs that lack one are left out, with a warning.
    """

    def __init__(
        self,
        x: NDArray[np.floating],
        y: NDArray[np.floating],
        first: Sequence[Hashable],
        second: Sequence[Hashable],
        kinds: Sequence[Any] | None = None,
        labels: tuple[Sequence[Any], Sequence[Any]] | None = None,
    ) -> None:
        for name, rows in (("first", x), ("second", y)):
            _check.finite_rows("pairs", f"the {name} side", rows)
        kinds = None if kinds is None or all(map(is_missing, kinds)) else kinds
        columns = [each for each in (kinds, *(labels or ())) if each is not None]
        is_known = np.array([not any(map(is_missing, values)) for values in zip(*columns, strict=True)], bool)
        is_known = is_known if columns else np.ones(len(x), bool)
        if n_unknown := int((~is_known).sum()):
            missing = "group" if kinds is None else "kind" if labels is None else "kind or group"
            message = f"pairs: {n_unknown:,} of {len(x):,} name no {missing}, and are left out. Fill in the column."
            warnings.warn(message, IsosentWarning, stacklevel=3)
        number: dict[Hashable, int] = {}
        keys = np.array([[number.setdefault(key, len(number)) for key in side] for side in (first, second)], np.intp).T
        has_vectors = nonzero_rows(x) & nonzero_rows(y)
        self.n_zero_rows = int((~has_vectors).sum())
        usable = np.flatnonzero(has_vectors & is_known & (keys[:, 0] != keys[:, 1]))
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
        self.names: list[str] = []  # of the labels
        self.label, self.reference = np.zeros((len(self), 2), np.intp), -1
        if labels is not None:
            self._set_labels([[str(side[row]).strip() for row in usable.tolist()] for side in labels])

    def _set_labels(self, labels: Sequence[Sequence[str]]) -> None:
        """Number the labels of both sides, and choose the reference: the one that most others have pairs with."""
        self.names = sorted({name for side in labels for name in side})
        n_labels = len(self.names)
        if hidden := next((name for name in self.names if re.search(r"[\x00-\x1f\x7f-\x9f]", name)), None):
            raise InputError(f"groups: {hidden!r:.80} holds a control character. Remove it.")
        if n_labels < 2:
            raise InputError(
                f"groups: every text is of the group {self.names[0]!r:.80}. Name two or more, or leave the groups out."
            )
        if n_labels > MOST_VALUES:
            raise InputError(
                f"groups: {n_labels:,} different groups; at most {MOST_VALUES} can have a map. Join small ones."
            )
        place = {name: number for number, name in enumerate(self.names)}
        self.label = np.array([[place[name] for name in side] for side in labels], np.intp).T
        lower, upper = np.sort(self.label, axis=1).T
        joined = np.unique(np.stack([lower, upper, self.group], axis=1), axis=0)
        counts = np.zeros((n_labels, n_labels), np.intp)  # groups of pairs that share no text
        np.add.at(counts, (joined[:, 0], joined[:, 1]), 1)
        counts = np.triu(counts, 1) + np.triu(counts, 1).T
        n_second = np.bincount(self.label[:, 1], minlength=n_labels)  # documents stay as they are, if two are even
        order = [((row >= FEWEST_GROUPS).sum(), row.sum(), n) for row, n in zip(counts, n_second, strict=True)]
        self.reference = max(range(n_labels), key=order.__getitem__)
        few = [n for n in range(n_labels) if n != self.reference and counts[self.reference, n] < FEWEST_GROUPS]
        if few:
            shown = ", ".join(f"{self.names[n][:40]} ({counts[self.reference, n]})" for n in few[:_MOST_SHOWN])
            more = f" and {len(few) - _MOST_SHOWN} more" if len(few) > _MOST_SHOWN else ""
            raise InputError(
                f"groups: too few pairs with {self.names[self.reference][:40]}, the reference, of {shown}{more}; at "
                f"least {FEWEST_GROUPS} that share no text are needed of each group. Add pairs, or leave these out."
            )

    def moments_by_label(self, rows: Mask) -> Iterator[tuple[int, JointMoments]]:
        """Each label but the reference, and the moments of its texts next to those of the reference in these pairs."""
        for label in range(len(self.names)):
            sides = np.array([label, self.reference])
            forth, back = ((self.label == order).all(axis=1) & rows for order in (sides, sides[::-1]))
            if label != self.reference and forth.sum() + back.sum() >= _FEWEST_OF_KIND:
                x, y = ([a[forth], b[back]] for a, b in ((self.x, self.y), (self.y, self.x)))
                yield label, JointMoments.from_rows(np.concatenate(x), np.concatenate(y))

    def __len__(self) -> int:
        return len(self.keys)

    def _kind_of_groups(self, kinds: Sequence[Any]) -> Rows | None:
        """Number of the kind of each group, that of its first pair; None if there are not two of enough groups."""
        first = np.unique(self.group, return_index=True)[1]
        texts = [str(kinds[row]).strip() for row in first]
        _, number, count = np.unique(texts, return_inverse=True, return_counts=True)
        is_small = count < _FEWEST_OF_KIND
        if count[is_small].sum() < _FEWEST_OF_KIND and not is_small.all():
            return None if (~is_small).sum() < 2 else np.where(is_small[number], count.argmax(), number)
        return None if is_small.all() else np.where(is_small[number], len(count), number)

    def folds(self) -> tuple[Rows, Mask]:
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
    """Ranks the second text of pairs among the second texts of all; with labels, among the texts of both sides."""

    def __init__(self, pairs: MatchingPairs) -> None:
        n_sides = 2 if pairs.names else 1
        order = np.random.default_rng(1).permutation(pairs.n_groups)
        rows = np.argsort(np.argsort(order, kind="stable")[pairs.group], kind="stable")[: _MOST_RANKED // n_sides]
        self.rows = np.sort(rows)
        keys, self.group = pairs.keys[self.rows], pairs.group[self.rows]
        queries, query_rows, self.query = np.unique(keys[:, 0], return_index=True, return_inverse=True)
        pool = np.concatenate([keys[:, 1], keys[:, 0]][:n_sides])
        documents, document_rows, inverse = np.unique(pool, return_index=True, return_inverse=True)
        self.document = inverse[: len(keys)]
        self.x = pairs.x[self.rows][query_rows]
        self.y = np.concatenate([pairs.y[self.rows], pairs.x[self.rows]][:n_sides])[document_rows]
        labels = pairs.label[self.rows]
        self.x_label, self.y_label = labels[query_rows, 0], labels[:, ::-1].T.ravel()[document_rows]
        place = np.minimum(np.searchsorted(documents, queries), len(documents) - 1)
        # a document that is the query does not count
        self.own_document = np.where(documents[place] == queries, place, -1)

    def scores(self, part: Mask, fitted: Fitted, *, queries_only: bool) -> Double:
        """Reciprocal rank and nDCG@10 of the queries of some pairs, (n_queries, 2)."""
        queries, local = np.unique(self.query[part], return_inverse=True)
        x = _mapped(self.x[queries], self.x_label[queries], fitted)
        y = self.y if queries_only else _mapped(self.y, self.y_label, fitted)
        relevant = np.stack([local, self.document[part]], axis=1)
        relevant = relevant[np.argsort(local, kind="stable")]
        ranks = cosine_ranks(x.astype(np.float32), y.astype(np.float32), relevant, excluded=self.own_document[queries])
        by_query = np.split(ranks, np.searchsorted(relevant[:, 0], np.arange(1, len(queries))))
        return np.array([(reciprocal_rank(each), ndcg_at_k(each, np.ones(len(each)), 10)) for each in by_query])

    def groups(self, part: Mask) -> Rows:
        """The group of each query of some pairs."""
        return self.group[part][np.unique(self.query[part], return_index=True)[1]]


def _mapped(vectors: NDArray[np.floating], labels: Rows, fitted: Fitted) -> NDArray[np.floating]:
    """Vectors after the map of all, or after that of the label of each."""
    linear_map, by_label = fitted
    mapped = vectors.copy() if linear_map is None else linear_map.apply(vectors)
    for label, of_label in by_label.items():
        mapped[labels == label] = of_label.apply(vectors[labels == label])
    return mapped


class Tested(NamedTuple):
    """A map on held-out pairs: mean MRR and nDCG@10, and what it gains over no map, with 95% intervals."""

    label: str
    mrr: float
    ndcg: float
    mrr_gain: Gain | None = None
    ndcg_gain: Gain | None = None


class PairsChoice(NamedTuple):
    """What the folds chose from pairs, and what it gains on those that were held out."""

    chosen: MapCandidate  # none unless its gain is beyond chance
    linear_map: LinearMap | None  # fitted on all pairs; of the reference if there are maps of groups
    group_maps: Mapping[str, LinearMap]  # of each label but the reference
    reference: str | None
    tested: tuple[Tested, ...]  # no map, the best of each kind by folds, the best of all
    folds: tuple[tuple[str, float], ...]  # MRR of each candidate on folds it was not fitted on
    n_groups: int
    n_held_out: int  # queries
    of_other_kinds: bool  # whether these are of kinds that the tested map was not fitted on
    failed: str | None  # the test that the best one failed

    def step(self, column: str, *, queries_only: bool) -> MapStep | None:
        """The step of a model; None if no map was chosen. `column` names the groups, if there are any."""
        if self.reference is not None and self.group_maps:
            return MapStep(self.linear_map, groups=GroupMaps(column, self.reference, self.group_maps))
        if self.linear_map is None:
            return None
        return MapStep(query_map=self.linear_map) if queries_only else MapStep(self.linear_map)

    @property
    def reason(self) -> str:
        """The recommendation, and the gain on held-out pairs."""
        best = self.tested[-1]
        kinds = " of other kinds" if self.of_other_kinds else ""
        held_out = f"{self.n_held_out:,} held-out queries{kinds}"
        if self.chosen.name == NO_TRANSFORM:
            return (
                "Keep these vectors unchanged. No transform from these pairs ranks matching texts measurably better "
                f"(best: {best.label}; {self.failed}, {held_out})."
            )
        measured = f"{_gain_text('MRR', best.mrr_gain or (0.0, 0.0, 0.0))}, {held_out}"
        sides = "queries" if self.chosen.is_of_queries else "vectors"
        if self.group_maps:
            sides = f"vectors of {_check.brief(', '.join(self.group_maps))} to those of {self.reference}"
        needed = " It needs no pairs: plain whitening is best here." if self.chosen.name == "whitening" else ""
        return f"Transform {sides} by {best.label}. Matching texts are ranked better: {measured}.{needed}"

    @property
    def parameters(self) -> dict[str, Any]:
        """Settings of the chosen map, for the record of a fit."""
        groups = {"reference": self.reference, "groups": list(self.group_maps)} if self.group_maps else {}
        return self.chosen.parameters | groups

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


def _gain_text(measure: str, gain: Gain) -> str:
    return "{} {:+.3f}, 95% interval {:.3f} to {:.3f}".format(measure, *gain)


@one_thread_products()  # threads that wait for each other take ten times as long on a busy machine
def choose_from_pairs(pairs: MatchingPairs, *, queries_only: bool = False) -> PairsChoice:
    """Choose a map by folds, and test it on the groups that are held out."""
    (fold, is_held_out), search = pairs.folds(), _Search(pairs)
    moments = JointFolds.from_rows(pairs.x, pairs.y, np.where(is_held_out, _N_FOLDS, fold), n_folds=_N_FOLDS + 1)
    known = JointFolds(moments.folds[:_N_FOLDS])

    def part_of(rows: Mask, number: int) -> Part:
        return (rows & (fold == number))[search.rows], known.without(number), ~is_held_out & (fold != number)

    folds = [part_of(~is_held_out, int(each)) for each in np.unique(fold[search.rows][~is_held_out[search.rows]])]
    held_out: list[Part] = [(is_held_out[search.rows], known.total, ~is_held_out)]
    if pairs.kind is not None:  # a map is tested on kinds that it was not fitted on
        held_out = [part_of(is_held_out, int(each)) for each in np.unique(fold[search.rows][is_held_out[search.rows]])]

    def scores(candidates: Sequence[MapCandidate], parts: Sequence[Part]) -> Double:
        by_part = [
            [
                search.scores(part, fitted, queries_only=each.is_of_queries)
                for each, fitted in zip(
                    candidates, _fitted(candidates, pairs, joint, rows, is_turned=False), strict=True
                )
            ]
            for part, joint, rows in parts
        ]
        return np.concatenate(by_part, axis=1)

    allowed, whitened = _candidates(queries_only=queries_only, has_labels=bool(pairs.names))
    none = MapCandidate()
    candidates = list(dict.fromkeys([none, *allowed, *whitened]))
    mrr = dict(zip(candidates, scores(candidates, folds)[:, :, 0].mean(axis=1).tolist(), strict=True))
    best = max(allowed, key=mrr.__getitem__)
    kinds = dict.fromkeys(each.name for each in (*whitened, *allowed))
    rivals = [max((each for each in mrr if each.name == kind), key=mrr.__getitem__) for kind in kinds]
    rivals = [*(each for each in rivals if each != best), best]
    groups = np.concatenate([search.groups(part) for part, *_ in held_out])
    before, *after = scores([none, *rivals], held_out)
    tested = [Tested(none.label, *before.mean(axis=0).tolist())]
    for candidate, values in zip(rivals, after, strict=True):
        gains = [_gain(each, groups) for each in (values - before).T]
        tested.append(Tested(candidate.label, *values.mean(axis=0).tolist(), *gains))
    failed = _failed_test(gains, (after[-1] - before).T, groups) if mrr[best] > mrr[none] else _NO_FOLDS
    chosen = best if failed is None else none
    [(linear_map, by_label)] = _fitted([chosen], pairs, moments.total, np.ones(len(pairs), bool))
    return PairsChoice(
        chosen,
        linear_map,
        {pairs.names[label]: each for label, each in by_label.items()},
        pairs.names[pairs.reference] if pairs.names else None,
        tuple(tested),
        tuple((candidate.label, value) for candidate, value in mrr.items()),
        pairs.n_groups,
        len(before),
        pairs.kind is not None,
        failed,
    )


def _fitted(
    candidates: Sequence[MapCandidate],
    pairs: MatchingPairs,
    joint: JointMoments,
    rows: Mask,
    *,
    is_turned: bool = True,
) -> list[Fitted]:
    """Each candidate, fitted on some pairs, of which these are the moments."""
    by_label: dict[MapCandidate, dict[int, LinearMap]] = {each: {} for each in candidates if each.name == GROUP_MAPS}
    bases = {each.base: each.base.fit(joint) for each in by_label}
    for label, of_label in pairs.moments_by_label(rows) if by_label else ():
        for base, before in bases.items():
            mapped = of_label if before is None else of_label.mapped(before, before)
            for each in (each for each in by_label if each.base == base):
                after = mapped.ridge(dict(each.settings)["penalty"], towards=np.eye(mapped.x_dim))
                by_label[each][label] = after if before is None else before.then(after)
    return [
        (bases[each.base], by_label[each]) if each in by_label else (each.fit(joint, is_turned=is_turned), {})
        for each in candidates
    ]


def _failed_test(gains: Iterable[Gain], differences: Iterable[Double], groups: Rows) -> str | None:
    """The first of both measures that does not gain beyond chance, and how much it gains."""
    for measure, gain, values in zip(("MRR", "nDCG@10"), gains, differences, strict=True):
        if gain[1] <= 0:
            return _gain_text(measure, gain)
        if not _is_beyond_chance(values, groups):
            return f"{_gain_text(measure, gain)}, but random signs of the groups give as much"
    return None


def _gain(differences: Double, groups: Rows) -> Gain:
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
    signs = np.random.default_rng(0).integers(2, size=(INTERVAL_RESAMPLES * 4, len(sums))) * 2.0 - 1
    return float((signs @ sums >= sums.sum() - 1e-12).mean()) <= (1 - LEVEL) / 2
