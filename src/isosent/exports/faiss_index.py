"""An index of isosent as one file of FAISS: map, codes, the copy that candidates are reranked with, and the ids."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError, OutputError, next_step
from isosent.exports.check import Export
from isosent.exports.faiss import check_output, map_in_front, write_export
from isosent.model import SentenceEncoder
from isosent.numeric.similarity import unit_rows
from isosent.search.engine import (
    K_MEASURED,
    LINKS,
    SearchSettings,
    Segment,
    finer_settings,
    without_front,
)
from isosent.search.snapshot import Snapshot
from isosent.storage import Storage
from isosent.transforms.quantization import CODE_BITS, PARTS_A_BYTE

_SEARCHED_ROWS = 64
_TIE = 1e-5  # scores that are closer count as equal


def export_index(folder: str | os.PathLike[str], output: str | os.PathLike[str], *, with_map: bool = True) -> Export:
    """Write an index as a file that plain FAISS opens and searches with the same results.

    Parameters
    ----------
    folder : path-like
        The folder of the index.
    output : path-like
        The file, with its note next to it. Only an older export is replaced.
    with_map : bool, default True
        Whether the file applies the map of the model, and takes vectors of its encoder, or takes vectors of the model.

    Returns
    -------
    Export
        What was written, and how to search it.

    Raises
    ------
    InputError
        If rows were added or deleted since the index was built, or the model has a map that FAISS cannot hold.
    OutputError
        If the output cannot be written, or finds other rows than the index. What was there before is left as it was.
    """
    output, snapshot = Path(output), Snapshot.open(Path(folder), space=None)
    check_output(output)
    state, record = snapshot.state, snapshot.record
    if state.n_deleted or len(snapshot.segments) > 1 or not len(snapshot):
        raise InputError(
            f"export: {folder} has rows that were added or deleted since it was built, or none. Build it again first: "
            f"{next_step(f'isosent index compact {folder}', 'Index.compact')}."
        )
    # the space of the encoder, which need not be there
    model = SentenceEncoder.from_record(PrecomputedVectors.of_space(record.encoder_dim, record.encoder_space), record)
    linear_map = map_in_front(model, is_filled=True) if with_map else None
    if with_map and model.groups is not None:
        raise InputError(
            f"export: a FAISS index has one map, and this model one for each {model.groups.column}. Use "
            "faiss?map=false, and search with vectors of the model."
        )
    ids = snapshot.ids_at(np.arange(state.n_rows))
    is_numbered = ids.dtype.kind != "i"
    ids = np.where(snapshot.segments[0].hidden, -1, np.arange(state.n_rows) if is_numbered else ids)  # -1: no vector
    segment, settings = snapshot.segments[0], state.settings
    made, factory = segment.standalone(settings), factory_string(segment, settings)
    recipe = _recipe(factory, made, settings.oversampling, output)
    numbered = "; ids are text, so rows are numbered from 0" if is_numbered else ""

    def contents(saved: Any) -> str:
        n_same, n_searched = _same_results(saved, snapshot, ids, model if linear_map is not None else None)
        if n_same < n_searched:
            raise OutputError(
                f"export: the faiss export finds other rows than {folder} for {n_searched - n_same} of {n_searched} "
                "queries. Nothing was written."
            )
        return f"{len(snapshot):,} vectors{numbered}; the same results as {folder} for {n_searched} queries\n{recipe}"

    facts = {"index": factory, "recipe": recipe}
    return write_export(model, output, _with_ids(made, ids), linear_map, facts, contents)


def factory_string(segment: Segment, settings: SearchSettings) -> str:
    """What ``faiss.index_factory`` calls such an index; it would draw other rotations, and train other codebooks."""
    names = {Storage.float32: "Flat", Storage.float16: "SQfp16", Storage.int8: "SQ8", Storage.binary: "RaBitQ"}
    codes = names.get(settings.store, f"PQ{PARTS_A_BYTE * settings.code_bytes}x{CODE_BITS}fs")
    front = {Storage.binary: "RR", Storage.product: "PCAR"}.get(settings.store)
    parts = [
        *([f"{front}{without_front(segment.codes).d}"] if front else []),
        *{"flat": [], "ivf": [f"IVF{settings.n_lists}"], "hnsw": [f"HNSW{LINKS}"]}[settings.kind],
        codes,
    ]
    finer = finer_settings(settings)
    return ",".join(parts if finer is None else [*parts, f"Refine({names[finer.store]})"])


def _recipe(factory: str, made: Any, oversampling: int, output: Path) -> str:
    """How FAISS searches the file, in words."""
    recipe = f"recipe: {factory}, inner product of vectors of length 1"
    if not isinstance(made, _extras.require("faiss").IndexRefine):
        return recipe
    return (
        f"{recipe}; rescored x {oversampling}, with k_factor {made.k_factor:g} for {K_MEASURED} results (isosent takes "
        f"some candidates to spare) from the copy, which stays on disk with faiss.read_index({output.name!r}, "
        "faiss.IO_FLAG_MMAP_IFC)"
    )


def _with_ids(made: Any, ids: NDArray[np.int64]) -> Any:
    """An index that returns ids, or -1 for rows without a vector; unchanged if they are the numbers of the rows."""
    if np.array_equal(ids, np.arange(len(ids))):
        return made
    faiss = _extras.require("faiss")
    mapped = faiss.IndexIDMap(faiss.IndexFlatIP(made.d))  # empty, as FAISS demands
    mapped.own_fields, mapped.index, mapped.ntotal = False, made, made.ntotal
    faiss.copy_array_to_vector(np.ascontiguousarray(ids, np.int64), mapped.id_map)
    mapped.referenced_objects = [made]
    return mapped


def _same_results(
    saved: Any, snapshot: Snapshot, ids: NDArray[np.int64], mapped: SentenceEncoder | None
) -> tuple[int, int]:
    """For how many rows as queries the file has the results of the index, and how many were searched."""
    rows = np.flatnonzero(ids >= 0)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, _SEARCHED_ROWS).astype(np.intp))] if len(rows) else rows
    units = unit_rows(snapshot.vectors(rows))  # those of the copy are rounded
    k = min(K_MEASURED, len(rows))
    scores, positions = snapshot.nearest(units, k + 1, None)
    is_apart = np.abs(np.diff(scores, axis=1)) > _TIE  # from the next one
    is_clear = is_apart & np.pad(is_apart, ((0, 0), (1, 0)), constant_values=True)[:, :-1]
    queries = units
    if mapped is not None:  # vectors that the map turns into these
        assert mapped.linear_map is not None
        weight, bias = mapped.linear_map.weight, mapped.linear_map.bias
        queries = np.ascontiguousarray((units - bias) @ np.linalg.pinv(weight), np.float32)
    found_scores, found = saved.search(queries, k)
    is_same = (found == ids[positions[:, :k]]) | ~is_clear
    is_same &= np.abs(found_scores - scores[:, :k]) < _TIE
    return int(is_same.all(axis=1).sum()), len(rows)
