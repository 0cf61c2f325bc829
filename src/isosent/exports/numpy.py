"""The map of a model, and its quantization, as arrays in one safetensors file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from isosent.errors import OutputError
from isosent.exports.check import Export, compare, require_agreement, required_maps, sample_vectors, space_of, total
from isosent.io.atomic import check_destination, replacing
from isosent.io.formats import format_by_name
from isosent.io.system import system_error
from isosent.io.tensors import open_tensors, tensors_bytes
from isosent.model import SentenceEncoder
from isosent.space import Space

TARGET = "numpy"
_NORMALIZE = "isosent.normalize"


def export_numpy(model: SentenceEncoder, output: str | os.PathLike[str]) -> Export:
    """Write ``weight`` and ``bias``, ``query_weight`` and ``query_bias`` if they differ, and the quantization."""
    check_destination(output)
    if format_by_name(output).ending not in ("", ".safetensors"):
        raise OutputError(f"{output}: the arrays are written as .safetensors. Name such a file.")
    if Path(output).exists() and not _is_export(Path(output)):
        raise OutputError(f"{output} exists, and is no older numpy export. Name another file.")
    linear_map, *others = required_maps(TARGET, model)
    arrays: dict[str, NDArray[np.floating]] = {"weight": linear_map.weight, "bias": linear_map.bias}
    biases = {"bias": False}
    for other in others:
        arrays["query_bias"] = other.bias
        biases["query_bias"] = True
        if not np.array_equal(other.weight, linear_map.weight):
            arrays["query_weight"] = other.weight
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    tensors = arrays if model.quantization is None else arrays | model.quantization.tensors()
    metadata = {**space_of(model).metadata, _NORMALIZE: str(model.normalize).lower()}
    vectors = sample_vectors(model)
    with replacing(output) as temporary:
        temporary.write_bytes(tensors_bytes(tensors, metadata))
        agreements = {
            bias: compare(model.transform(vectors, queries=queries), _apply(temporary, bias, vectors))
            for bias, queries in biases.items()
        }
        require_agreement(TARGET, total(agreements.values()))
    return Export(TARGET, Path(output), space_of(model), agreements["bias"])


def _is_export(path: Path) -> bool:
    """Whether a file is an older export; files of vectors have a fingerprint too, but not this setting."""
    try:
        with open_tensors(path, "numpy") as file:
            metadata = file.metadata() or {}
    except (OSError, SafetensorError) as error:
        if unreadable := system_error(error, path):
            raise unreadable from error
        return False
    return Space.in_metadata(metadata) is not None and _NORMALIZE in metadata


def _apply(path: Path, bias: str, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Use the file as the documentation shows."""
    with open_tensors(path, "numpy") as file:
        weight = "query_weight" if bias == "query_bias" and "query_weight" in file.keys() else "weight"  # noqa: SIM118
        mapped: NDArray[np.float32] = vectors @ file.get_tensor(weight) + file.get_tensor(bias)
        normalize = file.metadata()[_NORMALIZE] == "true"
    return mapped / np.linalg.norm(mapped, axis=1, keepdims=True) if normalize else mapped
