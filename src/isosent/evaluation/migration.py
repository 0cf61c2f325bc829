"""Change the model of stored vectors: stay, map the vectors, or embed the texts again.

`migrate` takes an old and a new model, or the vectors that both gave to texts. `_fitted_maps` fits maps between them:
the statistic is `JointMoments` about zero, so that a map does not depend on the lengths of vectors, and the best map of
documents is chosen by folds. `_findings` scores four ways of searching on texts that were held out, by the halves of
each text, by queries with answers, or, where only vectors are known, by word overlap. `_advice` turns the differences
into one sentence. Between vectors, word overlap alone decides nothing: see `VectorComparison`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.evaluation.unlabelled import (
    Difference,
    caution_of_halves,
    compare_stored,
    halves_of,
    overlap_agreements,
    topical_difference,
)
from isosent.io.vector_source import VectorSource, picked_rows
from isosent.io.vectors import source_of
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.moments import JointFolds, JointMoments
from isosent.numeric.ranking import FOUND, reciprocal_ranks
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.numeric.statistics import central_interval, mean_draws
from isosent.numeric.threads import one_thread_products
from isosent.pages.progress import Progress, part_of
from isosent.persistence import MIGRATION, FitRecord
from isosent.postprocessing import Postprocessing
from isosent.role import RoleName
from isosent.space import Space, refuse_codes
from isosent.transforms.agreement import distinct_rows
from isosent.transforms.maps import MapStep

FEWEST_TEXTS = 300
WAYS = ("old model", "documents mapped", "queries mapped", "embedded again")
_MOST_FITTED, _MOST_HELD_OUT = 10_000, 2_000
_HELD_OUT_SHARE = 0.2
_FOLDS = 3
_MOST_IN_FOLD = 1_000  # rows whose ranks are compared
_KEPT_SHARE = 0.5  # of what embedding again gains, from which on a map is advised

CANDIDATES: dict[str, Callable[[JointMoments], LinearMap]] = {
    **{f"ridge, {penalty:g}": partial(JointMoments.ridge, penalty=penalty) for penalty in (0.03, 0.1, 0.3, 1.0)},
    "Procrustes": JointMoments.procrustes,
    **{f"canonical, {penalty:g}": partial(JointMoments.canonical, penalty=penalty) for penalty in (0.1, 0.3, 1.0, 3.0)},
}

Vectors = NDArray[np.floating]
Side = SentenceEncoder | VectorSource
Advice = Literal["stay", "map", "embed again", "cannot tell"]
Answers = Sequence[tuple[str, str]]  # a query, and the text that answers it


class Maps(NamedTuple):
    """Maps between two models, fitted on the same texts."""

    method: str  # of `CANDIDATES`: how documents are mapped best
    documents: LinearMap  # from the old model to the new one
    queries: LinearMap  # from the new model to the old one
    r2: float  # the share of the new model that a linear map finds in the old one
    n_fitted: int  # texts


@dataclass(frozen=True, slots=True)
class Way:
    """How well a way of searching works."""

    score: float
    interval: tuple[float, float]
    found: float | None  # share with the right text among ten; None where only vectors are known
    gain: Difference  # over the old model


@dataclass(frozen=True, slots=True)
class MigrationFindings:
    """What to do, and what was measured on texts that were not fitted."""

    advice: Advice
    reason: str
    ways: Mapping[str, Way]  # by the names of `WAYS`
    measure: str  # what a score is
    n_held_out: int  # texts, or queries if there are answers
    caution: str | None  # what was not measured
    method: str
    n_fitted: int
    r2: float

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: `Migration.report`."""
        rows = {
            name: {"score": way.score, "interval": way.interval, "found": way.found}
            | {"gain": way.gain.value, "low": way.gain.low, "high": way.gain.high}
            for name, way in self.ways.items()
        }
        return {
            "advice": self.advice,
            "reason": self.reason,
            "rows": rows,
            "measure": self.measure,
            "n_held_out": self.n_held_out,
            "caution": self.caution,
            "method": self.method,
            "n_fitted": self.n_fitted,
            "r2": self.r2,
        }


@dataclass(frozen=True, slots=True)
class Migration:
    """A map from an old model to a new one, and what to do.

    Attributes
    ----------
    model : SentenceEncoder
        The old model, or a stand-in for its vectors, followed by the map. Its vectors are searched with queries of the
        new model.
    findings : MigrationFindings
        What was measured, with the names of `report` as attributes, but for ``ways``: its ``rows``.
    report : dict
        What was measured on texts that were not fitted, as JSON values. ``advice``: "stay", "map", "embed again", or,
        of vectors, "cannot tell", and ``reason``. ``rows``: of each way of searching ``score`` with its ``interval``,
        ``found`` (share with the right text among ten, or None), and ``gain`` over the old model with ``low`` and
        ``high``. ``caution``: what was not measured, or None. ``measure``, ``method``, ``n_fitted``, ``n_held_out``
        (with answers, the number of queries), and ``r2``: the share of the new model that a linear map finds in the
        old one.
    """

    model: SentenceEncoder
    findings: MigrationFindings

    @property
    def report(self) -> dict[str, Any]:
        return self.findings.to_json()


def migrate(
    old: SentenceEncoder | VectorSource | Vectors,
    new: SentenceEncoder | VectorSource | Vectors,
    texts: Sequence[str],
    *,
    answers: Answers | None = None,
    stored: VectorSource | Vectors | None = None,
    reference: str | None = None,
    source: str = "texts in memory",
    seed: int = 0,
    progress: Progress | None = None,
) -> Migration:
    r"""Find out whether stored vectors should stay, be mapped to a new model, or be made again.

    Parameters
    ----------
    old, new : SentenceEncoder, VectorSource or ndarray of shape (n_texts, dim)
        The models, or the vectors that they gave the texts.
    texts : sequence of str
        Texts like the stored ones, at least 300 of them different; up to 10,000 are fitted and 2,000 held out.
    answers : sequence of (str, str), optional
        Queries, each with the text that answers it; needs two models. A query may occur with several answers, of which
        each is ranked among the texts that are none. By default the first half of each text that was held out is the
        query, and the second half is to be found. If vectors are given, cosines are compared with word overlap
        and neighbors by topic, and a model that works by words cannot win.
    stored : VectorSource or ndarray of shape (n_texts, dim), optional
        Vectors that the old model, a `SentenceEncoder`, gave the texts before, as in an index: it does not encode them
        again, but only what no text is.
    reference : str, optional
        What loads the new model, for `isosent index migrate`.
    source : str, optional
        Where the texts come from, for the record.
    seed : int, default 0
        Seed of the sample, the folds and the intervals.
    progress : callable, optional
        Called as ``progress(done, total)``, counted in texts.

    Returns
    -------
    Migration
        The map of documents, and the report.

    Raises
    ------
    InputError
        If there are too few texts, counts differ, or answers come with vectors.

    Notes
    -----
    Documents are mapped by ridge, :math:`(S_{xx} + l I)^{-1} S_{xy}`, by Procrustes, or by shrunk canonical
    correlation; queries by Procrustes. Moments are about zero, and vectors are scaled to length 1. The map of documents
    is the one that, on folds, ranks the vector of a text highest for the new model's vector of the same text, among
    mapped vectors and among a mixture of mapped and real ones.
    """
    texts = _check.some_texts("migrate", texts)
    old, new = _side_of(old, texts), _side_of(new, texts)
    stored = None if stored is None else _source_of(stored, texts)
    has_models = isinstance(old, SentenceEncoder) and isinstance(new, SentenceEncoder)
    if answers is not None and not answers:
        raise InputError("migrate: there are no queries with their answers.")
    if answers is not None and not has_models:
        raise InputError(
            "migrate: queries are encoded by both models, and these are vectors. Name models, or leave the queries out."
        )
    rows = np.array(distinct_rows(texts), np.intp)
    if answers is not None:
        asked = {text for pair in answers for text in pair}
        rows = np.array([row for row in rows if texts[row] not in asked], np.intp)
    if len(rows) < FEWEST_TEXTS:
        raise InputError(f"migrate: {len(rows)} different texts are too few. At least {FEWEST_TEXTS} are needed.")
    rows = np.random.default_rng(seed).permutation(rows)
    n_held_out = min(_MOST_HELD_OUT, int(_HELD_OUT_SHARE * len(rows)))
    held_out, fitted = np.sort(rows[:n_held_out]), np.sort(rows[n_held_out:][:_MOST_FITTED])
    known = old if stored is None else stored
    encoded = _vectors((known, new), texts, fitted, progress=progress)
    x, y = (unit_rows(vectors.astype(np.float64)) for vectors in encoded)
    used = nonzero_rows(x) & nonzero_rows(y)
    x, y = x[used], y[used]
    if len(x) < FEWEST_TEXTS // 2:
        raise InputError(f"migrate: only {len(x)} of {len(used)} texts have a vector of both models.")
    maps = _fitted_maps(x, y, seed)
    models = [side for side in (old, new) if isinstance(side, SentenceEncoder)]
    caution = None if answers is not None else caution_of_halves(models, x, [texts[row] for row in fitted[used]])
    findings = _findings(
        old,
        new,
        maps,
        caution,
        texts=texts,
        rows=held_out,
        answers=answers,
        stored=stored,
        seed=seed,
        progress=progress,
    )
    return Migration(_mapped_model(old, new, maps.documents, findings, reference, source), findings)


def _side_of(side: SentenceEncoder | VectorSource | Vectors, texts: Sequence[str]) -> Side:
    return side if isinstance(side, SentenceEncoder) else _source_of(side, texts)


def _source_of(vectors: VectorSource | Vectors, texts: Sequence[str]) -> VectorSource:
    source = source_of(vectors, where="migrate")
    refuse_codes(source.name, source.space)
    if source.n_rows != len(texts):
        counted = f"{source.n_rows:,} vectors of {len(texts):,} texts"
        raise InputError(f"migrate: {source.name} holds {counted}. Name files of the same texts.")
    return source


def _vectors(
    sides: Sequence[Side],
    texts: Sequence[str],
    rows: NDArray[np.intp],
    *,
    role: RoleName = "document",
    progress: Progress | None = None,
) -> list[Vectors]:
    """Vectors of some of the texts, encoded or read, of each side."""
    n_texts, done, vectors = sum(isinstance(side, SentenceEncoder) for side in sides) * len(rows), 0, []
    for side in sides:
        if isinstance(side, SentenceEncoder):
            part, picked = part_of(progress, done, n_texts), [texts[row] for row in rows]
            vectors.append(side.encode(picked, role=role, show_progress_bar=False, progress=part))
            done += len(rows)
            continue
        array: Vectors = picked_rows(side.blocks(), rows)
        _check.finite_rows("migrate", "vectors", array)
        vectors.append(array)
    return vectors


@one_thread_products()  # the same maps on every machine, and no threads that wait for each other
def _fitted_maps(x: Vectors, y: Vectors, seed: int) -> Maps:
    """The best map of documents from x to y, and that of queries.

    The best map of documents ranks the own text of a new vector highest, on folds that it was not fitted on: among
    mapped vectors, and where half of the others are real ones, as in an index whose rows are replaced one by one.
    """
    fold = np.random.default_rng(seed).integers(_FOLDS, size=len(x))
    folds = JointFolds.from_rows(x, y, fold, n_folds=_FOLDS)
    scores = dict.fromkeys(CANDIDATES, 0.0)
    for number in range(_FOLDS):
        joint, rows = folds.without(number).about_zero(), np.flatnonzero(fold == number)[:_MOST_IN_FOLD]
        for name, fit in CANDIDATES.items():
            mapped, is_real = unit_rows(fit(joint).apply(x[rows])), np.arange(len(rows)) % 2 == 0
            mixed = np.where(is_real[:, None], y[rows], mapped)
            scores[name] += float(reciprocal_ranks(y[rows], mapped).mean())
            scores[name] += float(reciprocal_ranks(y[rows], mixed)[~is_real].mean())
    method, total = max(scores, key=scores.__getitem__), folds.total.about_zero()
    turn = total.procrustes().weight.T
    queries = LinearMap(turn, np.zeros(turn.shape[1]))
    return Maps(method, CANDIDATES[method](total), queries, folds.best_r2(), len(x))


def _findings(
    old: Side,
    new: Side,
    maps: Maps,
    caution: str | None,
    *,
    texts: Sequence[str],
    rows: NDArray[np.intp],
    answers: Answers | None,
    stored: VectorSource | None,
    seed: int,
    progress: Progress | None,
) -> MigrationFindings:
    """Score the four ways of searching, and say what to do."""
    own, right, query_of = None, None, None
    if isinstance(old, SentenceEncoder) and isinstance(new, SentenceEncoder):
        if answers is None:
            halves = halves_of([texts[row] for row in rows], where="migrate, held-out texts", seed=seed)
            queries, documents = halves[: len(halves) // 2], halves[len(halves) // 2 :]
            measure = "mean reciprocal rank of the second half of a text, for the first half"
        else:
            queries = [query for query, _ in answers]
            documents = list(dict.fromkeys([*(answer for _, answer in answers), *(texts[row] for row in rows)]))
            place = {document: number for number, document in enumerate(documents)}
            own = np.array([place[answer] for _, answer in answers], np.intp)
            number_of = {query: number for number, query in enumerate(dict.fromkeys(queries))}
            query_of = np.array([number_of[query] for query in queries], np.intp)
            of_query = np.split(own[np.argsort(query_of, kind="stable")], np.cumsum(np.bincount(query_of))[:-1])
            right = [of_query[query] for query in query_of]
            measure = "mean reciprocal rank of the text that answers a query"
        all_rows = np.arange(len(queries))
        old_queries, new_queries = _vectors((old, new), queries, all_rows, role="query", progress=progress)
        old_documents = _document_vectors(old, documents, texts, stored, progress)
        new_documents = _document_vectors(new, documents, texts, None, progress)
    else:
        known = old if stored is None else stored
        old_queries, new_queries = _vectors((known, new), texts, rows)
        old_documents, new_documents = old_queries, new_queries
        measure = "agreement of cosines with word overlap"
    pairs = [
        (old_queries, old_documents),
        (new_queries, maps.documents.apply(old_documents)),
        (maps.queries.apply(new_queries), old_documents),
        (new_queries, new_documents),
    ]
    if isinstance(old, SentenceEncoder) and isinstance(new, SentenceEncoder):
        ranks = np.stack([reciprocal_ranks(*pair, own, right) for pair in pairs])
        is_found = (ranks >= FOUND).astype(np.float64)
        if query_of is not None:  # a query with many answers counts once
            ranks, is_found = (
                np.stack([np.bincount(query_of, each) for each in values]) / np.bincount(query_of)
                for values in (ranks, is_found)
            )
        scores, draws = ranks.mean(axis=1), mean_draws(ranks, seed=seed)
        found: list[float | None] = [float(share) for share in is_found.mean(axis=1)]
        n_held_out = ranks.shape[1]
    else:
        agreements = overlap_agreements([texts[row] for row in rows], pairs, seed=seed)
        if agreements is None:
            raise InputError("migrate: the texts share no words by which vectors could be compared. Name models.")
        (scores, draws), found, n_held_out = agreements, [None] * len(WAYS), len(rows)
    differences = zip(scores - scores[0], draws - draws[0], strict=True)
    gains = [Difference(float(value), *central_interval(drawn)) for value, drawn in differences]
    advice, reason = _advice(gains[1], gains[3])
    if found[0] is None:  # vectors alone
        of_ways = (old_documents, pairs[1][1], new_documents)
        advice, reason = _advice_of_vectors(of_ways, gains, draws, texts=[texts[row] for row in rows], seed=seed)
    ways = {
        name: Way(float(score), central_interval(drawn), share, gain)
        for name, score, drawn, share, gain in zip(WAYS, scores, draws, found, gains, strict=True)
    }
    return MigrationFindings(
        advice, reason, ways, measure, n_held_out, caution, method=maps.method, n_fitted=maps.n_fitted, r2=maps.r2
    )


def _document_vectors(
    model: SentenceEncoder,
    documents: Sequence[str],
    texts: Sequence[str],
    stored: VectorSource | None,
    progress: Progress | None,
) -> Vectors:
    """Vectors of documents: those that are stored of the texts, and of the others encoded."""
    row_of = {} if stored is None else {text: row for row, text in enumerate(texts)}
    rows = np.array([row_of.get(document, -1) for document in documents], np.intp)
    [encoded] = _vectors([model], documents, np.flatnonzero(rows < 0), progress=progress)
    vectors = np.empty((len(documents), model.dim), encoded.dtype)
    vectors[rows < 0] = encoded
    if stored is not None and (rows >= 0).any():
        listed, place = np.unique(rows[rows >= 0], return_inverse=True)
        vectors[rows >= 0] = _vectors([stored], texts, listed)[0][place]
    return vectors


def _advice(mapped: Difference, again: Difference) -> tuple[Advice, str]:
    """What to do, and why, by the gains of mapped documents and of embedding again over the old model."""
    if not np.isfinite([*mapped, *again]).all():
        raise InputError("migrate: the ways of searching cannot be compared: the vectors are constant or have no rank.")
    if again.low <= 0:
        better = "is worse" if again.high < 0 else "is not better beyond chance"
        return "stay", f"Stay with the old model. On these texts the new one {better} ({again})."
    share = mapped.value / again.value
    if mapped.low > 0 and share >= _KEPT_SHARE:
        return "map", (
            f"Map the stored vectors. With queries of the new model they are better than the old model ({mapped}), "
            f"which is {share:.0%} of what embedding again gains."
        )
    if mapped.low > 0:
        why = f"mapped vectors keep only {share:.0%} of that"
    else:
        why = f"mapped vectors are {'worse' if mapped.high < 0 else 'not better'} than the old model ({mapped})"
    return "embed again", f"Embed again. The new model is better than the old one ({again}), and {why}."


def _advice_of_vectors(
    of_ways: tuple[Vectors, Vectors, Vectors],
    gains: Sequence[Difference],
    draws: NDArray[np.float64],
    *,
    texts: Sequence[str],
    seed: int,
) -> tuple[Advice, str]:
    """What to do, and why, where old, mapped and new vectors are all that is known; `gains` are by word overlap."""
    old, mapped, new = of_ways
    unrelated = [side for side, way in (("OLD", 0), ("NEW", 3)) if central_interval(draws[way])[0] <= 0]
    if unrelated:
        return "cannot tell", (
            f"Cannot tell: the vectors of {' and '.join(unrelated)} agree with the words of the texts no better than "
            "by chance. They may be of other texts, or in another order."
        )
    compared = compare_stored(old, new, texts, seed=seed)
    if compared.verdict == "the same":
        return "stay", "Stay with the old model. The new vectors have the same neighbors."
    if compared.verdict == "better":
        of_map = gains[1]
        if not topical_difference(old, mapped, texts, seed=seed).low > 0:  # word overlap alone decides nothing
            of_map = of_map._replace(low=min(of_map.low, 0.0))
        return _advice(of_map, gains[3])
    overlap, topics = compared.overlap, compared.topics
    measured = f"Agreement with word overlap: {overlap}; neighbors on the same topic: {topics}"
    if compared.verdict == "worse":
        return "stay", f"Stay with the old model. The new one is worse by both signals of stored vectors. {measured}."
    by_words = ", ".join(f"{name} {share:.0%}" for name, share in zip(("old", "new"), compared.words, strict=True))
    return "cannot tell", (
        "Cannot tell which model is better from stored vectors alone. Both signals compare words, and a model that "
        f"works by words is ahead in them. {measured}; explained by the words of a text: {by_words}. Name the models "
        "in the place of their vectors."
    )


def _mapped_model(
    old: Side,
    new: Side,
    document_map: LinearMap,
    findings: MigrationFindings,
    reference: str | None,
    source: str,
) -> SentenceEncoder:
    """The old model, or a stand-in for its vectors, followed by the map; its record names the new one."""
    space = _space_of(new, document_map.n_components)
    parameters = {"method": findings.method, "to": space.reference, "fingerprint": space.fingerprint}
    if reference is not None and isinstance(new, SentenceEncoder):
        parameters["reference"] = reference
    choice = {"chosen": findings.advice, "reason": findings.reason, "candidates": []}
    record = FitRecord.made_now(MIGRATION, parameters, findings.n_fitted, 0, source, choice=choice)
    if isinstance(old, SentenceEncoder) and old.fingerprint == old.encoder.fingerprint:
        encoder = old.encoder
    else:  # nothing can follow a model that ends with length 1, and stored vectors are those after its map
        encoder = PrecomputedVectors.of_space(document_map.dim, _space_of(old, document_map.dim))
    return SentenceEncoder(encoder, Postprocessing((MapStep(document_map),)), (record,))


def _space_of(side: Side, dim: int) -> Space:
    return side.space or PrecomputedVectors(dim).space
