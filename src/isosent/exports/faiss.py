"""The map of a model inside a FAISS index: vectors of the encoder go in, cosines after the map come out."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from isosent import _extras
from isosent.errors import FileFormatError, InputError, InputFileError, OutputError
from isosent.exports.check import (
    Export,
    compare,
    note_bytes,
    read_space,
    require_agreement,
    required_map,
    sample_vectors,
    space_of,
)
from isosent.io.atomic import check_destination, locked, replacing
from isosent.io.checksum import file_checksum
from isosent.io.space import is_noted, note_entry, note_path, same_space
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap
from isosent.numeric.similarity import unit_rows

TARGET = "faiss"
DEFAULT_INDEX = "Flat"


def to_vector_transform(linear_map: LinearMap) -> Any:
    """Convert a linear map to FAISS.

    Parameters
    ----------
    linear_map : LinearMap
        The map, such as ``model.linear_map``.

    Returns
    -------
    faiss.LinearTransform
        The same map; ``apply`` takes float32 vectors of shape (n, linear_map.dim).

    Raises
    ------
    MissingExtraError
        If faiss is not installed.
    """
    faiss = _extras.require("faiss")
    transform = faiss.LinearTransform(linear_map.dim, linear_map.n_components, True)
    faiss.copy_array_to_vector(linear_map.weight.T.astype(np.float32).ravel(), transform.A)
    faiss.copy_array_to_vector(linear_map.bias.astype(np.float32), transform.b)
    transform.is_trained = True
    return transform


def to_index(linear_map: LinearMap, index: str = DEFAULT_INDEX) -> Any:
    """Make an empty FAISS index that maps the vectors that are added or searched, and scales them to length 1.

    Parameters
    ----------
    linear_map : LinearMap
        The map, such as ``model.linear_map``.
    index : str, default "Flat"
        The index after the map, as for ``faiss.index_factory``.

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
    faiss = _extras.require("faiss")
    dim = linear_map.n_components
    try:
        inner = faiss.index_factory(dim, index, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(f"export: --index must be a factory string of FAISS; got {index!r}: {reason}") from None
    with_map = faiss.IndexPreTransform(faiss.NormalizationTransform(dim), inner)
    with_map.prepend_transform(to_vector_transform(linear_map))
    return with_map


def read_index(path: str | os.PathLike[str], model: SentenceEncoder) -> Any:
    """Read an exported index, to search it with the vectors of a model's encoder.

    Parameters
    ----------
    path : path-like
        The index, with its note beside it.
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
    try:
        return _extras.require("faiss").read_index(os.fspath(path))
    except RuntimeError as error:
        raise FileFormatError(f"{path} is not a FAISS index, or is damaged: {str(error).splitlines()[-1]}") from None


def export_faiss(model: SentenceEncoder, output: str | os.PathLike[str], *, index: str = DEFAULT_INDEX) -> Export:
    """Write an empty index with the map in front, and its note beside it."""
    output = Path(output)
    note = note_path(output)
    check_destination(output)
    check_destination(note)
    if (note.exists() or output.exists()) and not is_noted(output, TARGET):
        raise OutputError(
            f"{output} must be a new file, or an older faiss export with its note {note.name} beside it; it is another "
            "file."
        )
    linear_map = required_map(TARGET, model)
    if model.query_map is not None:
        raise InputError(
            "export: a FAISS index has one map for documents and queries; this model has two. Transform the vectors "
            "with isosent or the numpy export, and add them to an ordinary index."
        )
    faiss, space, vectors = _extras.require("faiss"), space_of(model), sample_vectors(model)
    with_map = to_index(linear_map, index)
    with ExitStack() as commit, replacing(output) as temporary:
        # FAISS's own writer does not report a full disk
        temporary.write_bytes(faiss.serialize_index(with_map).tobytes())
        saved_index, mapped = faiss.read_index(str(temporary)), vectors
        for step in range(saved_index.chain.size()):
            mapped = faiss.downcast_VectorTransform(saved_index.chain.at(step)).apply(mapped)
        agreement = compare(unit_rows(model.transform(vectors)), mapped)
        require_agreement(TARGET, agreement)
        # One writer at a time puts both files in place. The note comes first and describes the older index, too, so
        # that a kill between the two leaves an index with a note that fits.
        commit.enter_context(locked(output.absolute().parent))
        entries = [note_entry(temporary, file_checksum(temporary), {}, space)]
        if output.is_file():
            with suppress(InputFileError):  # a damaged index is replaced with its note
                entries.append(note_entry(output, file_checksum(output), {}, read_space(output)))
        with replacing(note) as temporary_note:
            temporary_note.write_bytes(note_bytes(TARGET, model, agreement, {"index": index, "files": entries}))
    return Export(TARGET, output, space, agreement)
