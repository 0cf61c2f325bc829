"""Changes of an index that is there: rows are added or replaced, it is built again, mapped, or given a query model.

Each writes new files next to those of a snapshot, and returns the state that names them; `Index` commits it. Only
`migrated` replaces the whole index: its vectors are mapped to those of another model, which `target_model` finds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from isosent.encoders.precomputed import PRECOMPUTED, PrecomputedVectors
from isosent.encoders.reference import without_permissions
from isosent.errors import InputError, IsosentWarning, next_step, option
from isosent.io.atomic import sweep
from isosent.io.vector_source import VectorSource
from isosent.model import SentenceEncoder
from isosent.numeric.drift import FEWEST_ROWS as FEWEST_COMPARED
from isosent.numeric.drift import MOST_SPREAD, drift
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows
from isosent.persistence import MIGRATION, FitRecord, write_model
from isosent.search.build import (
    SAMPLE_ROWS,
    Spill,
    build,
    build_tail,
    codebook_fit,
    faiss_map,
    plan,
    write_index,
)
from isosent.search.commits import QUERY_FOLDER, State
from isosent.search.models import model_of_vectors
from isosent.search.recall import query_recall
from isosent.search.rows import ID, MAPPED
from isosent.search.snapshot import Snapshot
from isosent.search.units import BATCH_ROWS, unit_vectors
from isosent.space import Space, are_same, same_space
from isosent.storage import Storage

_MOST_TAILS: Final = 8
APPEND_ONLY: Final = (
    "An hnsw index can only grow: FAISS cannot delete from it, so it cannot {} either. Build it again with "
    f"{option('kind', 'ivf')}."
)

Deleted: TypeAlias = NDArray[np.bool_]  # (n_rows,)


def with_rows(folder: Path, snapshot: Snapshot, table: Any, units: NDArray[np.float32]) -> tuple[State, Deleted]:
    """Write rows as a new segment; small segments are merged when there are many. The state, and what is deleted."""
    import pyarrow as pa

    state, n_added = snapshot.state, len(units)
    replaced = snapshot.positions_of(table.column(ID))
    replaced = replaced[replaced >= 0]
    if replaced.size and state.settings.kind == "hnsw":
        raise InputError(APPEND_ONLY.format("replace a row"))
    deleted = snapshot.deleted.copy()
    deleted[replaced] = True
    n_changed = snapshot.n_changed(deleted, table.column(ID))
    segments = state.segments
    if len(segments) > _MOST_TAILS:
        first = snapshot.starts[1]
        live = first + np.flatnonzero(~deleted[first:])
        table = pa.concat_tables([snapshot.take(live), table])
        units = np.concatenate([snapshot.vectors(live), units])
        segments, deleted = segments[:1], deleted[:first]
    entry = build_tail(
        folder,
        f"{state.generation + 1:06d}",
        units,
        table.combine_chunks(),
        state.settings,
        quantization=snapshot.quantization,
        linear_map=faiss_map(snapshot.record),
    )
    state = replace(
        state,
        segments=(*segments, entry),
        next_number=state.next_number + (n_added if state.ids == "numbers" else 0),
        n_changed=n_changed,
    )
    return state, deleted


def check_added(folder: Path, snapshot: Snapshot, space: Space | None, units: NDArray[np.float32]) -> None:
    """Warn of vectors that differ from those of an index beyond chance, unless a model is known to have made them."""
    if space is not None and snapshot.record.reference != PRECOMPUTED:  # the name of a space may be a person's word
        return
    live = np.random.default_rng(0).permutation(snapshot.live)[:SAMPLE_ROWS]
    there = snapshot.vectors(np.sort(live))
    _compare(
        Moments.from_rows(there[nonzero_rows(there)]),
        units,
        "the new vectors",
        f"those of {folder}",
        "index them on their own.",
    )


class OtherVectors:
    """Every nth vector of a file as they pass, to be compared with those that a model was fitted on."""

    def __init__(self, known: Moments, vectors: VectorSource) -> None:
        self._known, self._name, self._step = known, vectors.name, -(-vectors.n_rows // SAMPLE_ROWS) or 1
        self._rows, self._n_passed = [np.empty((0, vectors.dim), np.float32)], 0

    @classmethod
    def of(cls, model: SentenceEncoder, vectors: VectorSource | None) -> OtherVectors | None:
        """None if nothing can be compared, or the file says what made the vectors."""
        known = model.encoder.statistics if isinstance(model.encoder, PrecomputedVectors) else None
        return None if vectors is None or known is None or vectors.space is not None else cls(known, vectors)

    def add(self, block: NDArray[np.floating]) -> None:
        """Take what is to be compared from the next vectors."""
        self._rows.append(np.array(block[-self._n_passed % self._step :: self._step], np.float32))
        self._n_passed += len(block)

    def warn(self) -> None:
        """Warn of vectors that differ beyond chance from those that the model was fitted on."""
        advice = f"name a model that was fitted on them, or leave out {option('model')}."
        new, old = f"the vectors of {self._name}", "those that the model was fitted on"
        _compare(self._known, np.concatenate(self._rows), new, old, advice)


def _compare(old: Moments, new_rows: NDArray[np.floating], new_name: str, old_name: str, advice: str) -> None:
    """Warn of new vectors whose differences from old ones are beyond chance."""
    rows = new_rows[nonzero_rows(new_rows)]
    if min(old.weight, len(rows)) < FEWEST_COMPARED:
        return
    found = drift(old, Moments.from_rows(rows))
    if found.is_changed and found.spread > MOST_SPREAD * found.spread_expected:
        warnings.warn(
            f"{new_name} differ from {old_name} beyond chance: after the whitening of these, two random "
            f"ones have a cosine of ±{found.spread:.2f}, not ±{found.spread_expected:.2f}. They are of other topics, "
            f"or of another model. If another model made them, {advice}",
            IsosentWarning,
            stacklevel=4,
        )


def rebuilt(folder: Path, snapshot: Snapshot) -> tuple[State, Deleted]:
    """Build the only segment from the rows that are not deleted. The state, and what is deleted: nothing."""
    state, live = snapshot.state, snapshot.live
    blocks = (snapshot.vectors(live[start : start + BATCH_ROWS]) for start in range(0, len(live), BATCH_ROWS))
    with closing(Spill(folder, state.dim)) as spill:
        spill.fill(blocks)
        n_distinct = int(spill.is_distinct.sum())
        store, code_bytes = state.settings.store, state.settings.code_bytes
        settings = plan(len(live), state.dim, state.kind, store, n_distinct=n_distinct, code_bytes=code_bytes)
        settings = replace(settings, oversampling=state.settings.oversampling)
        rebuilt_state = build(
            folder,
            f"{state.generation + 1:06d}",
            spill,
            snapshot.take(live).combine_chunks(),
            replace(state, settings=settings, n_changed=0),
            quantization=snapshot.quantization,
            linear_map=faiss_map(snapshot.record),
            min_recall=None if state.recall is None else state.recall.min_recall,
            seed=0,
        )
        fit = codebook_fit(spill, snapshot.quantization) if store is Storage.product else None
    recall = rebuilt_state.recall
    if recall is not None and fit is not None:
        recall = replace(recall, codebooks=fit)
    if (
        recall is not None
        and state.recall is not None
        and (state.n_changed, rebuilt_state.settings) == (0, state.settings)
    ):
        recall = replace(recall, original_recall=state.recall.original_recall)  # the vectors before the map are gone
    return replace(rebuilt_state, recall=recall), np.zeros(len(live), bool)


def with_query_model(
    folder: Path, snapshot: Snapshot, model: SentenceEncoder, query_model: SentenceEncoder, *, seed: int
) -> State:
    """Save a static model of queries, and measure what it finds. The state."""
    measured = query_recall(snapshot, model, query_model, seed=seed)
    write_model(folder / QUERY_FOLDER, query_model.saved_record)
    return replace(snapshot.state, queries=measured)


# -- another model ---------------------------------------------------------------------------------------------------


def target_model(
    mapping: SentenceEncoder, folder: str, load: Callable[[str], SentenceEncoder]
) -> tuple[SentenceEncoder, FitRecord]:
    """The model that a map of a folder maps to, of vectors alone if it is an API; and how the map was fitted."""
    record = _migration_of(mapping)
    if reference := record.parameters.get("reference"):
        return load(without_permissions(reference, {}, file=Path(folder))[0]), record
    return model_of_vectors(mapping.dim, Space.of(record.parameters, "to")), record


def _migration_of(mapping: SentenceEncoder) -> FitRecord:
    record = next((fit for fit in mapping.fits if fit.transform == MIGRATION), None)
    if record is None:
        step = next_step("isosent migrate OLD NEW TEXTS -o map", "isosent.evaluation.migration.migrate")
        raise InputError(f"migrate: the map is an ordinary model. Make one: {step}.")
    return record


def migrated(
    folder: Path,
    snapshot: Snapshot,
    last_commit: Callable[[], Snapshot],
    mapping: SentenceEncoder,
    model: SentenceEncoder,
) -> Snapshot:
    """Replace an index by that of its vectors mapped to another model; one that was mapped to it before stays."""
    old, names = SentenceEncoder(mapping.encoder).space, snapshot.rows[0].schema.names
    same_space("the new model", model.space, "the map", Space.of(_migration_of(mapping).parameters, "to"))
    if are_same(snapshot.space.fingerprint, model.fingerprint) and MAPPED in names:
        sweep(folder.resolve().parent)  # what a run that was killed after its commit left
        return snapshot
    if model.groups is not None and model.groups.column not in names:
        raise InputError(
            f"migrate: the new model has a map for each {model.groups.column}, and {folder} no such column. Make the "
            "index again, with this column."
        )
    state = snapshot.state
    if state.settings.kind == "hnsw":
        raise InputError(APPEND_ONLY.format("replace mapped rows"))
    if state.queries is not None:
        warnings.warn("The static model of queries is of the old model, and is left out.", IsosentWarning, stacklevel=3)
    source, has_vector = [snapshot], []

    def units() -> Iterator[NDArray[np.float32]]:
        source[0] = last = last_commit()  # nobody else writes from here on
        same_space("the map", old, f"the index {folder}", last.space)
        if last.n_mapped:
            step = next_step("isosent index add", "Index.add")
            raise InputError(f"{folder} still has {last.n_mapped} mapped rows. Replace them: {step}.")
        for start in range(0, len(last), BATCH_ROWS):
            vectors = last.vectors(last.live[start : start + BATCH_ROWS])
            has_vector.append(nonzero_rows(vectors))
            yield unit_vectors(mapping.transform(vectors))

    def table() -> Any:
        rows = source[0].take(source[0].live).combine_chunks()
        rows = rows.drop_columns([MAPPED]) if MAPPED in rows.column_names else rows
        return rows.append_column(MAPPED, [np.concatenate([np.empty(0, bool), *has_vector])])

    return write_index(
        folder,
        model,
        units(),
        table,
        id_kind="int" if state.ids == "numbers" else state.ids,
        kind=state.kind,
        replaced=state.settings,
        min_recall=None if state.recall is None else state.recall.min_recall,
    )
