"""The map of a model inside a FAISS index: vectors of the encoder go in, cosines after the map come out.

`to_index` makes an empty one, `read_index` reads one of a model. `export_faiss` fills it with the vectors of a file if
there is one (`_ModelVectors`, `_fill`), and `write_export` writes it with its note, after what was written has been
read back and compared with the model (`_agreement`) and searched (`_search`). An index of isosent is written by the
same function, in `faiss_index.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from isosent import _check, _extras
from isosent.errors import InputError, InputFileError, OutputError, option
from isosent.exports.check import (
    Agreement,
    Export,
    compare,
    note_bytes,
    read_space,
    require_agreement,
    required_maps,
    sample_vectors,
    space_of,
)
from isosent.io.atomic import check_destination, locked, replacing
from isosent.io.checksum import file_checksum
from isosent.io.formats import format_by_name
from isosent.io.notes import is_noted, note_entry, note_path
from isosent.io.typed_tables import read_integers
from isosent.io.vector_source import VectorSource
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.similarity import nonzero_rows, unit_rows
from isosent.pages.progress import Progress, counted
from isosent.search.codes_file import read_codes, write_codes
from isosent.search.engine import prepend_map
from isosent.search.engine import to_vector_transform as to_vector_transform
from isosent.space import same_space
from isosent.transforms.quantization import Quantization

TARGET = "faiss"
DEFAULT_INDEX = "Flat"
_TRAINING_ROWS = 100_000
_SEARCHED_ROWS, _NEIGHBORS = 64, 10
_ROUNDING = 1e-3  # of int8 codes


def to_index(linear_map: LinearMap, index: str = DEFAULT_INDEX, *, quantization: Quantization | None = None) -> Any:
    """Make an empty FAISS index that maps the vectors that are added or searched, and scales them to length 1.

    Parameters
    ----------
    linear_map : LinearMap
        The map, such as ``model.linear_map``.
    index : str, default "Flat"
        The index after the map, as for ``faiss.index_factory``.
    quantization : Quantization, optional
        Ranges for an index of int8 codes, ``"SQ8"`` or ``"HNSW32_SQ8"``, such as ``model.quantization``. It then needs
        no training.

    Returns
    -------
    faiss.IndexPreTransform
        Its scores are cosines.

    Raises
    ------
    InputError
        If FAISS does not know such an index.
    MissingExtraError
        If faiss is not installed.
    """
    return prepend_map(_empty_index(linear_map.n_components, index, quantization), linear_map)


def _empty_index(dim: int, index: str, quantization: Quantization | None) -> Any:
    """Make an empty index of unit vectors."""
    faiss = _extras.require("faiss")
    try:
        made = faiss.index_factory(dim, index, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise InputError(f"export: {index!r} is no index of FAISS, as in IVF256,Flat: {_reason(error)}") from None
    codes = faiss.downcast_index(made.storage) if isinstance(made, faiss.IndexHNSW) else made
    is_int8 = isinstance(codes, faiss.IndexScalarQuantizer) and codes.sq.qtype == faiss.ScalarQuantizer.QT_8bit
    if is_int8 and quantization is not None:
        faiss.copy_array_to_vector(np.concatenate([quantization.low, quantization.span]), codes.sq.trained)
        codes.is_trained = made.is_trained = True
    return made


def read_index(path: str | os.PathLike[str], model: SentenceEncoder) -> Any:
    """Read an exported index, to search it with the vectors of a model's encoder.

    Parameters
    ----------
    path : path-like
        The index, with its note next to it.
    model : SentenceEncoder
        The model that it was exported from.

    Returns
    -------
    faiss.Index
        The index.

    Raises
    ------
    FileFormatError
        If the index or its note is damaged.
    InputError
        If the index belongs to another vector space; the message names both.
    """
    same_space("the model", space_of(model), f"the index {path}", read_space(path))
    return read_codes(path, model.dim, in_memory=True)


def export_faiss(
    model: SentenceEncoder,
    output: str | os.PathLike[str],
    *,
    index: str = DEFAULT_INDEX,
    vectors: VectorSource | None = None,
    ids: str | None = None,
    with_map: bool = True,
    progress: Progress | None = None,
) -> Export:
    """Write an index with the map in front and its note next to it: empty, or filled with the vectors of a file."""
    output = Path(output)
    check_output(output)
    linear_map = map_in_front(model, is_filled=vectors is not None) if with_map else None
    made, sample = _empty_index(model.dim, index, model.quantization), None
    source = None if vectors is None else _ModelVectors(model, vectors, ids)
    if source is not None:
        made, sample = _fill(made, index, source, progress)

    def contents(saved: Any) -> str:
        return (
            "" if source is None or sample is None else _search(saved, source, sample, with_map=linear_map is not None)
        )

    return write_export(model, output, made, linear_map, {"index": index}, contents)


def write_export(
    model: SentenceEncoder,
    output: Path,
    made: Any,
    linear_map: LinearMap | None,
    facts: Mapping[str, Any],
    contents: Callable[[Any], str],
) -> Export:
    """Write an index of unit vectors, after a map, and its note; `contents` searches what was written and describes it.

    One writer at a time puts both files in place. The note comes first and describes the older index, too, so that a
    kill between the two leaves an index with a note that fits.
    """
    space, has_map = space_of(model), linear_map is not None
    with ExitStack() as commit, replacing(output) as temporary:
        checksum = write_codes(prepend_map(made, linear_map), temporary)
        saved = read_codes(temporary, model.dim)
        agreement = _agreement(model, saved, with_map=has_map)
        require_agreement(TARGET, agreement)
        said = contents(saved)
        commit.enter_context(locked(output.absolute().parent))
        entries = [note_entry(temporary, checksum, {}, space)]
        if output.is_file():
            with suppress(InputFileError):  # a damaged index is replaced with its note
                entries.append(note_entry(output, file_checksum(output), {}, read_space(output)))
        facts = {**facts, "inputs": f"{'encoder' if has_map else 'model'} vectors", "files": entries}
        with replacing(note_path(output)) as temporary_note:
            temporary_note.write_bytes(note_bytes(TARGET, model, agreement, facts))
    return Export(TARGET, output, space, agreement, said)


def check_output(output: Path) -> None:
    """Refuse to replace anything but an older export."""
    note = note_path(output)
    check_destination(output)
    check_destination(note)
    if (note.exists() or output.exists()) and not is_noted(output, TARGET):
        raise OutputError(
            f"{output} exists, and is no older faiss export with its note {note.name} next to it. Name another file."
        )


def map_in_front(model: SentenceEncoder, *, is_filled: bool) -> LinearMap | None:
    """The map that an index can hold; refuses a model with another one for queries."""
    filled = "" if is_filled else f" with {option('vectors', 'FILE')}"
    advice = f"Use faiss?map=false{filled}, and search with vectors of the model."
    steps = model.record.postprocessing
    if steps.nonlinear is not None:
        raise InputError(
            f"export: a FAISS index cannot hold {steps.nonlinear.noun}, with which this model ends. {advice}"
        )
    if steps.has_roles:
        raise InputError(f"export: a FAISS index has one map for documents and queries; this model has two. {advice}")
    return model.linear_map if is_filled else required_maps(TARGET, model)[0]


def _agreement(model: SentenceEncoder, saved: Any, *, with_map: bool) -> Agreement:
    """Compare what an index does to vectors ahead of its codes with what the model does."""
    faiss, vectors = _extras.require("faiss"), sample_vectors(model)
    expected = model.transform(vectors)
    mapped = vectors if with_map else expected
    for step in range(saved.chain.size()):
        mapped = faiss.downcast_VectorTransform(saved.chain.at(step)).apply(mapped)
    return compare(unit_rows(expected), mapped)


# -- filling ---------------------------------------------------------------------------------------------------------


class _Rows(NamedTuple):
    """Rows of a file that have a vector."""

    as_read: NDArray[np.float32]
    units: NDArray[np.float32]  # in the space of the model, of length 1
    ids: NDArray[np.int64]


class _ModelVectors:
    """Vectors of a file that belong to a model, and their ids."""

    def __init__(self, model: SentenceEncoder, vectors: VectorSource, ids: str | None) -> None:
        record, name = model.record, str(vectors.path)
        if not vectors.n_rows:
            raise InputError(f"{name} holds no vectors.")
        # vectors of the model rather than of its encoder
        self.are_mapped = vectors.space is not None and vectors.space.fingerprint == record.fingerprint
        if not self.are_mapped:
            same_space("the model", record.encoder_space, name, vectors.space)
        _check.same_dim(name, "vectors", vectors.dim, record.dim if self.are_mapped else record.encoder_dim)
        self.model, self.vectors = model, vectors
        self.ids = np.arange(vectors.n_rows) if ids is None else _distinct_ids(vectors, ids)

    def pick(self, first_row: int, block: NDArray[Any], numbers: NDArray[np.intp] | None = None) -> _Rows:
        """Rows of a block; all, or those of some numbers in the file."""
        rows, ids = block, self.ids[first_row : first_row + len(block)]
        if numbers is not None:
            here = numbers[(numbers >= first_row) & (numbers < first_row + len(block))] - first_row
            rows, ids = rows[here], ids[here]
        self.vectors.check_finite(rows, first_row)
        rows = rows.astype(np.float32, copy=False)
        units = unit_rows(rows if self.are_mapped else self.model.transform(rows)).astype(np.float32, copy=False)
        kept = nonzero_rows(units)
        return _Rows(rows[kept], units[kept], ids[kept])

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Blocks of the file, each with the number of its first row."""
        first_row = 0
        for block in self.vectors.blocks():
            yield first_row, block
            first_row += len(block)

    def spread(self, n_rows: int) -> NDArray[np.intp]:
        """Numbers of rows that are spread over the file."""
        return np.unique(np.linspace(0, self.vectors.n_rows - 1, n_rows).astype(np.intp))


def _fill(made: Any, index: str, source: _ModelVectors, progress: Progress | None) -> tuple[Any, _Rows]:
    """Train an index if it needs that, and add the rows of a file with their ids; also returns some of the rows."""
    faiss = _extras.require("faiss")
    filled = made if isinstance(made, faiss.IndexIDMap) else faiss.IndexIDMap2(made)
    if not filled.is_trained:
        numbers = source.spread(_TRAINING_ROWS)
        sample = np.concatenate([source.pick(row, block, numbers).units for row, block in source.blocks()])
        try:
            filled.train(sample)
        except RuntimeError as error:
            raise InputError(
                f"export: {len(sample):,} vectors are too few to train the index {index}: {_reason(error)}"
            ) from None
    numbers, searched = source.spread(_SEARCHED_ROWS), []
    blocks = counted(source.blocks(), progress, source.vectors.n_rows, lambda block: len(block[1]))
    for first_row, block in blocks:
        rows = source.pick(first_row, block)
        filled.add_with_ids(np.ascontiguousarray(rows.units), rows.ids)
        searched.append(source.pick(first_row, block, numbers))
    return filled, _Rows(*map(np.concatenate, zip(*searched, strict=True)))


def _search(saved: Any, source: _ModelVectors, sample: _Rows, *, with_map: bool) -> str:
    """Refuse an index whose rows do not find themselves, and say what it holds."""
    faiss = _extras.require("faiss")
    inner, n_rows = faiss.downcast_index(saved.index), source.vectors.n_rows
    contents = f"{inner.ntotal:,} vectors with ids; zero rows left out: {n_rows - inner.ntotal:,}"
    if not len(sample.ids):
        return contents
    # vectors that are mapped already skip the map of the index
    searched = inner if with_map and source.are_mapped else saved
    scores, ids = searched.search(sample.as_read if with_map and not source.are_mapped else sample.units, _NEIGHBORS)
    # other rows of the same vector may be found instead
    finds_itself = (ids == sample.ids[:, None]).any(axis=1) | (scores.min(axis=1) > 1 - _ROUNDING)
    if 2 * finds_itself.sum() < len(sample.ids):
        raise OutputError(
            f"export: only {finds_itself.sum()} of {len(sample.ids)} vectors in the faiss export are among their own "
            f"{_NEIGHBORS} neighbors. Nothing was written. Choose another index."
        )
    return f"{contents}; {finds_itself.sum()} of {len(sample.ids)} searched vectors find themselves"


def _distinct_ids(vectors: VectorSource, column: str) -> NDArray[np.int64]:
    path = vectors.path
    if not format_by_name(path).is_typed:
        raise InputError(f"{option('ids', column)}: {path} has no columns. Leave it out: rows are numbered from 0.")
    ids = read_integers(path, column, vectors.state)
    distinct, counts = np.unique(ids, return_counts=True)
    if len(distinct) < len(ids):
        raise InputError(f"{path}: {column} holds {distinct[counts > 1][0]} twice. Give every row another id.")
    if len(ids) and distinct[0] < 0:  # FAISS returns -1 where it finds nothing
        raise InputError(f"{path}: {column} holds {distinct[0]}. Ids are 0 or more.")
    return ids


def _reason(error: RuntimeError) -> str:
    """The last words of a message of C++, which begins with the function, the file and the condition."""
    line = str(error).strip().splitlines()[-1].rpartition(" failed: ")[2]
    return re.sub(r"^Error in .*? at \S+:\d+: ", "", line)
