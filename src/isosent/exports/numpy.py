"""The map as two arrays in one safetensors file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from isosent.errors import InputError, OutputError
from isosent.exports.check import Agreement, Export, compare, refuse_flow, require_agreement, sample_vectors, space_of
from isosent.io.atomic import check_destination, replacing
from isosent.io.space import space_in
from isosent.io.tensors import tensors_bytes
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap

TARGET = "numpy"
_NORMALIZE = "isosent.normalize"


def required_map(target: str, model: SentenceEncoder) -> LinearMap:
    """The map of a model, for targets that hold nothing else."""
    refuse_flow(model)
    if model.linear_map is None:
        raise InputError(
            f"export: {target} holds the map behind the encoder, not the encoder; this model has none (auto may have "
            "left its vectors alone, or its encoder does all). Fit one: isosent fit TEXTS -m MODEL --transform NAME."
        )
    return model.linear_map


def export_numpy(model: SentenceEncoder, output: str | os.PathLike[str]) -> Export:
    """Write ``weight`` of shape (encoder's dim, dim) and ``bias`` of shape (dim,), float32, in one safetensors file.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    output : path-like
        The file to write. Where queries have a mean of their own, it holds ``query_bias`` too.

    Returns
    -------
    Export
        What was written.

    Raises
    ------
    InputError
        If nothing was fitted.
    OutputError
        If the file is something else than an older export, cannot be written, or gave other vectors than the model.
        What was there is intact.
    """
    check_destination(output)
    if Path(output).exists() and not _is_older(Path(output)):
        raise OutputError(
            f"{output} must be a new file or an older numpy export; got something else. Name another one."
        )
    linear_map = required_map(TARGET, model)
    arrays = {"weight": linear_map.weight, "bias": linear_map.bias}
    if model.query_map is not None:
        arrays["query_bias"] = model.query_map.bias
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    metadata = {**space_of(model).metadata, _NORMALIZE: str(model.normalize).lower()}
    with replacing(output) as temporary:
        temporary.write_bytes(tensors_bytes(arrays, metadata))
        agreement = _check(model, temporary, "bias", queries=False)
        if model.query_map is not None:
            _check(model, temporary, "query_bias", queries=True)
    return Export(TARGET, Path(output), space_of(model), agreement)


def _is_older(path: Path) -> bool:
    """Whether a file is an older export: files of vectors carry a fingerprint too, but do not say what to scale."""
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
    except (OSError, SafetensorError):
        return False
    return space_in(metadata) is not None and _NORMALIZE in metadata


def _check(model: SentenceEncoder, path: Path, bias: str, *, queries: bool) -> Agreement:
    """Read the file as the documentation shows, and compare."""
    vectors = sample_vectors(model)
    with safe_open(path, "numpy") as file:
        mapped: NDArray[np.float32] = vectors @ file.get_tensor("weight") + file.get_tensor(bias)
        normalize = file.metadata()[_NORMALIZE] == "true"
    if normalize:
        mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
    agreement = compare(model.transform(vectors, queries=queries), mapped)
    require_agreement(TARGET, agreement)
    return agreement
