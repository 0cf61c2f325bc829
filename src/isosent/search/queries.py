"""Which rows of a snapshot are nearest to queries (`nearest_rows`), or to rows of its own (`rows_like`).

Queries that are texts are encoded by the query model. `Snapshot.nearest` finds candidates, which the model may rank
again; then they are fused with a ranking by words, and hits by chance are dropped.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import InputError, IsosentWarning
from isosent.io.vector_source import VectorSource
from isosent.numeric.neighbors import best, exact_products
from isosent.numeric.similarity import nonzero_rows
from isosent.search.keywords import FUSED
from isosent.search.models import IndexModels
from isosent.search.recall import RERANKED
from isosent.search.result import SearchResult
from isosent.search.snapshot import Snapshot
from isosent.search.units import query_units, unit_vectors

# Of queries on the topics of the rows, 20% to 88% match at this rate (wordllama, whitened or not, and MiniLM; four
# sets), of those on other topics 0% to 6%, and of those of another model none.
_CHECKED_RATE: Final = 0.3
_FEW_MATCHED: Final = 0.03
_FEWEST_CHECKED: Final = 20
_MOST_CHECKED: Final = 1_000


def nearest_rows(
    snapshot: Snapshot,
    models: IndexModels,
    queries: list[str] | VectorSource,
    k: int,
    *,
    where: str | None,
    hybrid: bool,
    false_positives: float | None,
    rerank: bool,
    group: str | None,
) -> SearchResult:
    """The rows nearest to queries; see `Index.search`."""
    texts = queries if isinstance(queries, list) else None
    if isinstance(queries, list):
        models.warn_if_changed(snapshot)
        # a static model has no map of each group
        model = models.of_queries(snapshot) if group is None else models.of_texts(snapshot)
        units = unit_vectors(model.encode(queries, role="query", group=group, show_progress_bar=False))
    else:
        units = query_units(snapshot.record, queries, group)
    if hybrid and texts is None:
        raise InputError("search: hybrid needs the texts of the queries, and these are vectors.")
    allowed = None if where is None else snapshot.matching(where)
    n_rows = max(1, len(snapshot))
    n_fetched, k = min(max(k, FUSED if hybrid else 1, RERANKED if rerank else 1), n_rows), min(k, n_rows)
    scores, positions = snapshot.nearest(units, n_fetched, allowed)
    if rerank:
        if texts is None or snapshot.state.queries is None:
            raise InputError("search: rerank needs texts, and an index with a query model. Leave it out.")
        positions[~nonzero_rows(units)] = -1  # the static model knows no word of them
        encoded = models.of_texts(snapshot).encode(texts, role="query", group=group, show_progress_bar=False)
        units = unit_vectors(encoded)
        scores = np.where(positions < 0, -np.inf, exact_products(units[:, None], snapshot.vectors(positions))[:, 0])
        scores, positions = best(scores.astype(np.float32), positions, n_fetched)
    missing = ~nonzero_rows(units)  # a query of unknown words only is near to nothing
    positions[missing], scores[missing] = -1, -np.inf
    if texts is not None and hybrid:
        scores, positions = snapshot.fused(texts, units, positions, allowed, n_fetched)
    if not isinstance(queries, list) and queries.space is None and allowed is None:
        _check_queries(snapshot, units[~missing], scores[~missing, :1], positions[~missing, :1], queries.name)
    if false_positives is not None:
        scores, positions = snapshot.matches(units, scores, positions, false_positives)
    return SearchResult(snapshot, units, positions[:, :k], scores[:, :k], n_without_vector=int(missing.sum()))


def _check_queries(
    snapshot: Snapshot,
    units: NDArray[np.float32],
    scores: NDArray[np.float32],
    positions: NDArray[np.int64],
    name: str,
) -> None:
    """Warn of queries of an unknown model whose nearest rows are no nearer than those of unrelated vectors."""
    if len(units) < _FEWEST_CHECKED or not len(snapshot) or snapshot.chance is None:
        return
    first = slice(_MOST_CHECKED)
    matched, _ = snapshot.matches(units[first], scores[first], positions[first], _CHECKED_RATE)
    n_checked = len(matched)
    if np.isfinite(matched).sum() <= _FEW_MATCHED * n_checked:
        warnings.warn(
            f"hardly any of {n_checked} vectors of {name} is nearer to a row of the index than unrelated ones are. "
            f"They are of other topics, or of another model than {snapshot.space}.",
            IsosentWarning,
            stacklevel=4,
        )


def rows_like(snapshot: Snapshot, ids: Sequence[str] | Sequence[int], k: int, *, where: str | None) -> SearchResult:
    """The rows nearest to rows, without themselves; see `Index.more_like`."""
    _check.whole_number("more_like", "k", k, 1)
    rows = snapshot.positions_of(ids)
    if (rows < 0).any():
        unknown = list(ids)[int(np.flatnonzero(rows < 0)[0])]
        raise InputError(f"the index has no text with the id {unknown!r}.")
    units, n_rows = snapshot.vectors(rows), max(1, len(snapshot))
    allowed = None if where is None else snapshot.matching(where)
    scores, positions = snapshot.nearest(units, min(k + 1, n_rows), allowed)
    scores = np.where(positions == rows[:, None], np.float32(-np.inf), scores)
    positions = np.where(positions == rows[:, None], -1, positions)
    missing = ~nonzero_rows(units)  # a row without a vector is near to nothing
    positions[missing] = -1
    scores, positions = best(scores, positions, min(k, n_rows))
    return SearchResult(snapshot, units, positions, scores, n_without_vector=int(missing.sum()))


def unique_hits(search: Callable[[int], SearchResult], k: int, n_rows: int) -> SearchResult:
    """The k best texts of each query, from as many rows as they take."""
    n_fetched = k
    while True:
        n_fetched = min(2 * n_fetched, n_rows)
        result = search(n_fetched)
        unique = result.without_repeats(min(k, n_rows))
        is_enough = (unique.n_hits == min(k, n_rows)) | (result.n_hits < n_fetched)
        if n_fetched == n_rows or is_enough.all():
            return unique
