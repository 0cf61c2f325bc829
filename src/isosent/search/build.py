"""Building a segment of an index from a stream of unit vectors: choose, train, encode, measure, write.

Vectors come in blocks (`encoded_units` in `units.py`), and are spilled to a file without a name (`Spill`), so that an
index may be larger than memory: the codes that are searched are in memory, and besides them a sample and a block.
`plan` chooses the kind of index and the number type, `build` trains and fills the codes of `engine`, writes finer
vectors next to coarse ones, measures the recall of settings from cheap to exact, fits `Chance`, and writes the other
files of the segment; `build_tail` writes a flat one of rows that are added. `write_index` does this for a new folder,
in one step; `changes.py` for an index that is there.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray
from safetensors.numpy import save

from isosent import _check, _extras
from isosent.errors import InputError, next_step, option, wrong_value
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.neighbors import best_columns
from isosent.numeric.similarity import nonzero_rows
from isosent.persistence import ModelRecord, StoredSize, write_model
from isosent.role import DOCUMENTS
from isosent.search.chance import FEWEST_ROWS, Chance
from isosent.search.codes_file import read_codes, write_blocks, write_codes
from isosent.search.commits import (
    MODEL_FOLDER,
    CodebookFit,
    FileEntry,
    Recall,
    SegmentEntry,
    State,
    replacing_index,
    write_bytes,
    write_file,
    write_state,
)
from isosent.search.engine import (
    K_MEASURED,
    KINDS,
    TIE,
    Kind,
    OriginalNeighbors,
    SearchSettings,
    Segment,
    bytes_of_product,
    bytes_per_vector,
    choose_settings,
    empty_codes,
    finer_settings,
    held_out,
    prepend_map,
    stores_of,
    tail_settings,
    train_codes,
    without_front,
)
from isosent.search.keywords import Keywords
from isosent.search.recall import N_QUERIES
from isosent.search.rows import ID, TEXT, IdKind, id_kind_of, write_rows
from isosent.search.snapshot import Snapshot
from isosent.search.units import (
    row_hashes,
)
from isosent.storage import INDEXED, IndexStorage, Storage
from isosent.transforms.quantization import FEWEST_FOR_PRODUCT, PARTS_A_BYTE, Quantization

FLAT_LIMIT: Final = 200_000  # rows; above, kind auto clusters them
MIN_RECALL: Final = 0.95
_BLOCK_ROWS: Final = 1 << 14
_TRAINING_ROWS_A_LIST, _FEWEST_ROWS_A_LIST = 64, 16
_TRAINING_BYTES: Final = 192 << 20  # of the rows that clusters are found among
SAMPLE_ROWS: Final = 20_000
_FEWEST_FOR_IVF: Final = 1_000


def plan(
    n_rows: int,
    dim: int,
    kind: Kind | None,
    store: Storage | None,
    budget_mb: float | None = None,
    *,
    n_distinct: int | None = None,
    storage: StoredSize | None = None,
    code_bytes: int = 0,
) -> SearchSettings:
    """Choose the kind by the number of rows, and the finest number type that fits into the budget.

    The oversampling and the bytes of a product code are those of `storage`, if this names the number type; `code_bytes`
    are the bytes that a quantization has codebooks for.
    """
    n_distinct = n_rows if n_distinct is None else n_distinct
    kind = kind or ("flat" if n_rows <= FLAT_LIMIT else "ivf")
    if kind == "ivf" and n_distinct < _FEWEST_FOR_IVF:
        kind = "flat"
    store = store or _store_within(budget_mb, n_rows, dim, kind, code_bytes, n_distinct)
    is_stored = storage is not None and storage.dtype == store
    if store is Storage.product:
        usual = round(storage.n_bytes) if storage is not None and is_stored else bytes_of_product(dim)
        code_bytes = code_bytes or usual
    settings = SearchSettings(kind, store, code_bytes=code_bytes if store is Storage.product else 0)
    if budget_mb is not None and n_rows * bytes_per_vector(dim, kind, store, code_bytes) > budget_mb * 1e6:
        raise _too_large(budget_mb, n_rows, dim, kind, store, code_bytes)
    n_lists = 2 ** round(np.log2(4 * np.sqrt(n_distinct))) if kind == "ivf" else 0
    oversampling = storage.oversampling if storage is not None and is_stored else 0
    most_lists = min(n_distinct // 39, _TRAINING_BYTES // (4 * dim * _FEWEST_ROWS_A_LIST))
    return replace(settings, n_lists=min(n_lists, most_lists), oversampling=oversampling)


def _store_within(
    budget_mb: float | None, n_rows: int, dim: int, kind: Kind, code_bytes: int, n_distinct: int
) -> Storage:
    if budget_mb is None:
        return Storage.float32
    has_product = code_bytes or n_distinct >= FEWEST_FOR_PRODUCT
    stores = [store for store in stores_of(kind) if has_product or store is not Storage.product]
    for store in stores:
        if n_rows * bytes_per_vector(dim, kind, store, code_bytes) <= budget_mb * 1e6:
            return store
    raise _too_large(budget_mb, n_rows, dim, kind, stores[-1], code_bytes)


def _too_large(budget_mb: float, n_rows: int, dim: int, kind: Kind, store: Storage, code_bytes: int) -> InputError:
    size = f"{n_rows * bytes_per_vector(dim, kind, store, code_bytes) / 1e6:.3g} MB"
    dims = f"isosent fit {option('n_components')}"
    return InputError(
        f"index: {n_rows} x {dim} as {store} in a {kind} index takes {size}; the budget is {budget_mb:g} MB. "
        f"Raise it, choose a smaller {option('store')}, or fit a model with fewer dimensions: "
        f"{next_step(dims, 'model.fitted(texts, n_components=N)')}."
    )


class Spill:
    """Unit vectors in a file without a name, which a killed process leaves nothing of."""

    def __init__(self, folder: Path, dim: int) -> None:
        self._folder = folder
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - `closing` closes it
        self.shape, self.has_vector = (0, dim), np.empty(0, bool)
        self.is_distinct = self.has_vector  # but for copies of other rows
        self._hashes = np.empty(0, np.uint64)

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def fill(self, units: Iterable[NDArray[np.float32]]) -> None:
        """Write blocks of vectors."""
        masks, hashes = [self.has_vector], [self._hashes]
        for block in units:
            rows = np.ascontiguousarray(block, np.float32)
            self._file.write(rows.data)
            masks.append(nonzero_rows(rows))
            hashes.append(row_hashes(rows))
        self._file.flush()
        self.has_vector = np.concatenate(masks)
        self._hashes = np.concatenate(hashes)
        is_first = np.zeros(len(self._hashes), bool)
        is_first[np.unique(self._hashes, return_index=True)[1]] = True
        self.is_distinct = is_first & self.has_vector
        self.shape = (len(self.has_vector), self.shape[1])

    def blocks(self, n_rows: int = _BLOCK_ROWS) -> Iterator[NDArray[np.float32]]:
        """Read all vectors in order. A memory map would count as memory."""
        for start in range(0, self.shape[0], n_rows):
            block = np.empty((min(n_rows, self.shape[0] - start), self.shape[1]), np.float32)
            self._read(start, block)
            yield block

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, positions: NDArray[np.intp]) -> NDArray[np.float32]:
        rows = np.empty((len(positions), self.shape[1]), np.float32)
        for place in np.argsort(positions, kind="stable").tolist():  # as they lie on the disk
            self._read(int(positions[place]), rows[place])
        return rows

    def _read(self, first_row: int, rows: NDArray[np.float32]) -> None:
        self._file.seek(first_row * self.shape[1] * rows.itemsize)
        if self._file.readinto(rows.data) != rows.nbytes:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self._folder))

    def sample(self, n_rows: int) -> NDArray[np.float32]:
        """Read at most this many distinct rows, drawn at random."""
        return self[self.drawn(n_rows)]

    def drawn(self, n_rows: int, seed: int = 0, without: NDArray[np.intp] | None = None) -> NDArray[np.intp]:
        """Positions of at most this many distinct rows: of the same ones, in the same order, wherever they lie."""
        candidates = np.flatnonzero(self.is_distinct)
        if without is not None and len(candidates) > 2 * len(without):
            candidates = np.setdiff1d(candidates, without, assume_unique=True)
        factor = np.random.default_rng(seed).integers(1 << 63, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        return candidates[np.argsort(self._hashes[candidates] * factor, kind="stable")[:n_rows]]


def build(
    folder: Path,
    name: str,
    spill: Spill,
    table: Any,
    state: State,
    *,
    quantization: Quantization,
    linear_map: LinearMap | None,
    min_recall: float | None,
    seed: int,
    originals: OriginalNeighbors | None = None,
) -> State:
    """Write the only segment of an index, and name it in the state; settings of the search are chosen by measuring."""
    n_rows, has_vector, settings = len(spill), spill.has_vector, state.settings
    originals = None if originals is None else originals.distinct(spill.is_distinct)
    if originals is not None and len(originals.rows) < K_MEASURED:
        originals = None
    asked = None if originals is None else originals.rows
    questions = held_out(spill, spill.is_distinct, n_queries=N_QUERIES, seed=seed, rows=asked)
    codes = empty_codes(spill.shape[1], settings, quantization)
    if settings.kind == "ivf":
        # queries are held out of the clusters, too
        rows = None if questions is None else questions.rows
        n_trained = min(_TRAINING_ROWS_A_LIST * settings.n_lists, _TRAINING_BYTES // (4 * without_front(codes).d))
        train_codes(codes, spill, spill.drawn(n_trained, seed, rows), settings, quantization)
    fill_codes(codes, spill, n_rows)
    chance = Chance.fit(spill[spill.drawn(SAMPLE_ROWS, seed)], n_rows=n_rows, seed=seed) if n_rows else None
    vectors = _write_finer(folder, name, spill.shape, spill.blocks(), settings, quantization)
    finer = None if vectors is None else read_codes(folder / vectors.name, spill.shape[1])
    segment = Segment(codes, finer, ~has_vector)
    recall = None
    target = MIN_RECALL if min_recall is None else min_recall
    settings, others = choose_settings(settings, questions, segment, spill, min_recall=target)
    if questions is not None:
        questions, originals = questions.part(others), None if originals is None else originals.part(others)
        share = float(questions.recalls(segment, settings, spill).mean())
        kept = None if originals is None else originals.recall(questions.neighbors(segment, settings))
        recall = Recall(share, len(questions.rows), n_rows, target, kept)
    entry = SegmentEntry(
        n_rows,
        write_file(folder, f"rows-{name}.parquet", partial(write_rows, table, has_vector)),
        write_file(folder, f"codes-{name}.faiss", partial(write_codes, prepend_map(codes, linear_map))),
        vectors,
        write_keywords(folder, name, table),
    )
    chance_entry = None
    if chance is not None:
        chance_entry = write_bytes(folder, f"chance-{name}.safetensors", save(chance.tensors()))
    return replace(state, settings=settings, segments=(entry,), chance=chance_entry, recall=recall)


def build_tail(
    folder: Path,
    name: str,
    units: NDArray[np.float32],
    table: Any,
    settings: SearchSettings,
    *,
    quantization: Quantization,
    linear_map: LinearMap | None,
) -> SegmentEntry:
    """Write rows that were added later: flat, with the number type of the index."""
    flat = tail_settings(settings)
    codes = empty_codes(units.shape[1], flat, quantization)
    codes.add(units)
    return SegmentEntry(
        len(units),
        write_file(folder, f"rows-{name}.parquet", partial(write_rows, table, nonzero_rows(units))),
        write_file(folder, f"codes-{name}.faiss", partial(write_codes, prepend_map(codes, linear_map))),
        _write_finer(folder, name, units.shape, [units], flat, quantization),
        write_keywords(folder, name, table),
    )


def fill_codes(codes: Any, spill: Spill, n_rows: int) -> None:
    """Add all vectors to an index."""
    faiss = _extras.require("faiss")
    flat = without_front(codes)
    if not isinstance(flat, (faiss.IndexFlatCodes, faiss.IndexRaBitQ)):
        for block in spill.blocks():
            codes.add(block)
        return
    if not n_rows:
        return
    # FAISS doubles its memory as it grows; the size is known
    flat.codes.resize(n_rows * flat.code_size)
    encoded = faiss.rev_swig_ptr(flat.codes.data(), n_rows * flat.code_size).reshape(n_rows, flat.code_size)
    start = 0
    for block in spill.blocks():
        rows = codes.chain.at(0).apply(block) if flat is not codes else block
        encoded[start : start + len(block)] = flat.sa_encode(rows)
        start += len(block)
    flat.ntotal = codes.ntotal = n_rows


def _write_finer(
    folder: Path,
    name: str,
    shape: tuple[int, ...],
    blocks: Iterable[NDArray[np.float32]],
    settings: SearchSettings,
    quantization: Quantization,
) -> FileEntry | None:
    """Write the vectors next to their codes, block by block; None where the codes are as fine."""
    finer = finer_settings(settings)
    if finer is None:
        return None
    empty = empty_codes(shape[1], finer, quantization)
    return write_file(folder, f"vectors-{name}.faiss", partial(write_blocks, empty, blocks, shape[0]))


def write_keywords(folder: Path, name: str, table: Any) -> FileEntry | None:
    """Write what the search for words needs; None without texts."""
    if TEXT not in table.column_names:
        return None
    keywords = Keywords.build(table.column(TEXT).to_pylist())
    return write_file(folder, f"keywords-{name}.safetensors", keywords.write)


def write_index(
    folder: Path,
    model: SentenceEncoder,
    units: Iterable[NDArray[np.float32]],
    table: Any,
    *,
    id_kind: IdKind | None = None,
    kind: Kind | None = None,
    store: IndexStorage | None = None,
    budget_mb: float | None = None,
    min_recall: float | None = None,
    seed: int = 0,
    originals: OriginalNeighbors | None = None,
    replaced: SearchSettings | None = None,
) -> Snapshot:
    """Write the first commit of an index of unit vectors, in one step, and open it.

    With the settings of an index that is `replaced`, it is stored as that was, whatever sizes `model` names.
    """
    store = store if replaced is None else replaced.store
    for name, value, allowed in (("kind", kind, KINDS), ("store", store, INDEXED)):
        if value is not None:
            _check.one_of("index", name, value, allowed)
    if min_recall is not None and not 0 < min_recall <= 1:
        raise wrong_value("index", "min_recall", "be above 0 and at most 1", f"{min_recall:g}")
    with replacing_index(folder) as temporary, closing(Spill(temporary, model.dim)) as spill:
        spill.fill(units)
        table = table() if callable(table) else table  # known when the vectors have been read
        if len(spill) != table.num_rows:
            raise InputError(f"index: {len(spill)} vectors for {table.num_rows} rows. One per row is needed.")
        id_kind = id_kind or id_kind_of(table.column(ID))
        n_distinct = int(spill.is_distinct.sum())
        if store is None and budget_mb is None and model.record.storage is not None:
            store, least_recall = _stored_by_default(model.record.storage, kind)
            min_recall = least_recall if min_recall is None else min_recall
        settings = _settings(spill, model, kind, store, budget_mb, replaced)
        fitted_bytes = 0 if model.quantization is None else model.quantization.code_bytes
        has_codes = model.quantization is not None and settings.code_bytes in (0, fitted_bytes)
        if not settings.store.is_float and not has_codes and n_distinct < FEWEST_ROWS:
            raise InputError(
                f"index: {settings.store} is fitted on {FEWEST_ROWS} different rows or more; there are {n_distinct}. "
                f"Use float32 or float16, or fit it first: {next_step('isosent quantize', 'isosent.Quantization.fit')}."
            )
        model = _with_quantization(model, spill, settings.code_bytes)
        assert model.quantization is not None
        state = State(
            generation=1,
            space=model.space,
            dim=model.dim,
            settings=settings,
            kind=kind,
            ids=id_kind,
            next_number=table.num_rows if id_kind == "numbers" else 0,
            segments=(),
        )
        state = build(
            temporary,
            "000001",
            spill,
            table,
            state,
            quantization=model.quantization,
            linear_map=faiss_map(model.record),
            min_recall=min_recall,
            seed=seed,
            originals=originals,
        )
        write_model(temporary / MODEL_FOLDER, dataclasses.replace(model.record, canary=model.encoder.canary_now()))
        write_state(temporary, state)
        return Snapshot(temporary, state)  # opened here: another process may be writing an index to the same place


def _settings(
    spill: Spill,
    model: SentenceEncoder,
    kind: Kind | None,
    store: IndexStorage | None,
    budget_mb: float | None,
    replaced: SearchSettings | None,
) -> SearchSettings:
    """What is asked for, what the model names, or the sizes of an index that is replaced."""
    stored = None if store is None else Storage(store)
    n_rows, n_distinct = len(spill), int(spill.is_distinct.sum())
    if replaced is not None:
        n_bytes = min(replaced.code_bytes, model.dim // PARTS_A_BYTE)
        settings = plan(n_rows, model.dim, kind, stored, n_distinct=n_distinct, code_bytes=n_bytes)
        return replace(settings, oversampling=replaced.oversampling)
    storage, n_bytes = model.record.storage, 0 if model.quantization is None else model.quantization.code_bytes
    return plan(n_rows, model.dim, kind, stored, budget_mb, n_distinct=n_distinct, storage=storage, code_bytes=n_bytes)


def _stored_by_default(storage: StoredSize, kind: Kind | None) -> tuple[Storage, float | None]:
    """The dtype that a model names, and the recall that is to be reached with it."""
    _check.one_of("index", "dtype of the model", storage.dtype, INDEXED)
    store = Storage(storage.dtype)
    return (store if store in stores_of(kind) else Storage.int8), storage.min_recall or None


def faiss_map(record: ModelRecord) -> LinearMap | None:
    """The map that FAISS can apply to vectors of the encoder; others are applied before they reach FAISS."""
    steps = record.postprocessing
    return None if steps.nonlinear else steps.map_of(DOCUMENTS)


def codebook_fit(spill: Spill, quantization: Quantization) -> CodebookFit | None:
    """How well codebooks fit the rows of an index, beside others that are fitted on them; None for few rows."""
    rows = spill.sample(SAMPLE_ROWS)
    queries, docs = np.split(np.random.default_rng(0).permutation(rows), [N_QUERIES])  # of old and new rows
    if len(docs) < FEWEST_FOR_PRODUCT:
        return None
    cosines = queries @ docs.T
    nearest = best_columns(cosines, K_MEASURED)
    least = np.take_along_axis(cosines, nearest[:, -1:], axis=1)
    # on half of them at most: a codebook knows what it was fitted on
    refitted = quantization.with_product(docs[: len(docs) // 2], quantization.code_bytes)
    recalls = []
    for each in (quantization, refitted):
        codes = empty_codes(docs.shape[1], SearchSettings(store=Storage.product, code_bytes=each.code_bytes), each)
        codes.add(docs)
        found = codes.search(queries, K_MEASURED)[1]
        recalls.append(float((np.take_along_axis(cosines, found, axis=1) >= least - TIE).mean()))
    return CodebookFit(*recalls)


def _with_quantization(model: SentenceEncoder, spill: Spill, code_bytes: int) -> SentenceEncoder:
    """The model with its number types; what it lacks of them is fitted on a sample."""
    quantization = model.quantization
    if quantization is not None and code_bytes in (0, quantization.code_bytes):
        return model
    sample = spill.sample(SAMPLE_ROWS)
    rows = sample if len(sample) else np.eye(1, spill.shape[1], dtype=np.float32)
    quantization = Quantization.fit(rows) if quantization is None else quantization
    return model.with_quantization(quantization.with_product(rows, code_bytes), model.record.storage)
