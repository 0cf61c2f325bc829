"""The map inside a FAISS index: bare vectors go in, cosines behind the map come out."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import FileFormatError, InputError, InputFileError, OutputError
from isosent.exports.check import (
    Agreement,
    Export,
    compare,
    note_bytes,
    read_space,
    require_agreement,
    sample_vectors,
    space_of,
)
from isosent.exports.numpy import required_map
from isosent.io.atomic import check_destination, locked, replacing
from isosent.io.checksum import file_checksum
from isosent.io.space import Space, file_identity, is_noted, note_path, same_space
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.similarity import unit_rows

TARGET = "faiss"
DEFAULT_INDEX = "Flat"


def to_vector_transform(linear_map: LinearMap) -> Any:
    """The map as a transform of FAISS."""
    faiss = _extras.require("faiss")
    transform = faiss.LinearTransform(linear_map.dim, linear_map.n_components, True)
    faiss.copy_array_to_vector(linear_map.weight.T.astype(np.float32).ravel(), transform.A)
    faiss.copy_array_to_vector(linear_map.bias.astype(np.float32), transform.b)
    transform.is_trained = True
    return transform


def to_index(linear_map: LinearMap, index: str = DEFAULT_INDEX) -> Any:
    """An empty index that maps what is added and what is searched for."""
    faiss = _extras.require("faiss")
    dim = linear_map.n_components
    try:
        inner = faiss.index_factory(dim, index, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(f"export: --index must be a factory string of FAISS; got {index!r}: {reason}") from None
    whole = faiss.IndexPreTransform(faiss.NormalizationTransform(dim), inner)
    whole.prepend_transform(to_vector_transform(linear_map))
    return whole


def export_faiss(model: SentenceEncoder, output: str | os.PathLike[str], *, index: str = DEFAULT_INDEX) -> Export:
    """Write an empty index with the map in front.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    output : path-like
        The file to write; the fingerprint stands in ``OUTPUT.isosent.json`` beside it.
    index : str, default "Flat"
        What stands behind the map, as in ``faiss.index_factory``.

    Returns
    -------
    Export
        What was written.

    Raises
    ------
    InputError
        If nothing was fitted, queries have a map of their own, or FAISS does not know such an index.
    MissingExtraError
        If faiss is not installed.
    OutputError
        If the file is something else than an older export, cannot be written, or gave other vectors than the model.
        What was there is intact.
    """
    note = note_path(Path(output))
    check_destination(output)
    check_destination(note)
    if (note.exists() or Path(output).exists()) and not is_noted(output, TARGET):
        raise OutputError(
            f"{output} must be a new file, or an older faiss export with its note {note.name} beside it; got something "
            "else. Name another one."
        )
    linear_map = required_map(TARGET, model)
    if model.query_map is not None:
        raise InputError(
            "export: a FAISS index has one map for what is added and for queries; this model has two. Transform the "
            "vectors with isosent or the numpy export, and add them to an ordinary index."
        )
    faiss, whole = _extras.require("faiss"), to_index(linear_map, index)
    with ExitStack() as commit, replacing(output) as temporary:
        temporary.write_bytes(faiss.serialize_index(whole).tobytes())  # its own writer keeps silent about a full disk
        agreement = _check(faiss, model, temporary)
        commit.enter_context(locked(Path(output).absolute().parent))  # one writer at a time puts both in place
        older = _older_entry(Path(output))
        files = [_entry(temporary, space_of(model)), *([older] if older else [])]
        with replacing(note) as temporary_note:  # in place first: it describes the older index, too
            temporary_note.write_bytes(note_bytes(TARGET, model, agreement, {"index": index, "files": files}))
    return Export(TARGET, Path(output), space_of(model), agreement)


def read_index(path: str | os.PathLike[str], model: SentenceEncoder) -> Any:
    """Read an exported index to search it with a model."""
    same_space("the model", space_of(model), f"the index {path}", read_space(path))
    try:
        return _extras.require("faiss").read_index(os.fspath(path))
    except RuntimeError as error:
        raise FileFormatError(f"{path} is no index of FAISS, or damaged: {str(error).splitlines()[-1]}") from None


def _entry(path: Path, space: Space) -> dict[str, Any]:
    """What a note says of an index."""
    return file_identity(path) | {"checksum": file_checksum(path)} | space.to_json()


def _older_entry(path: Path) -> dict[str, Any] | None:
    """What a note says of the index that is about to be replaced; None where there is none, or it is not its own."""
    try:
        return _entry(path, read_space(path)) if path.is_file() else None
    except InputFileError:
        return None


def _check(faiss: Any, model: SentenceEncoder, path: Path) -> Agreement:
    """Read the index and compare what stands in front of it."""
    vectors = sample_vectors(model)
    whole = faiss.read_index(str(path))
    mapped: NDArray[np.float32] = vectors
    for step in range(whole.chain.size()):
        mapped = faiss.downcast_VectorTransform(whole.chain.at(step)).apply(mapped)
    agreement = compare(unit_rows(model.transform(vectors)), mapped)
    require_agreement(TARGET, agreement)
    return agreement
