"""The input token embeddings of a transformers folder, read without its library."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from isosent import _check
from isosent.errors import FileFormatError
from isosent.io.json import read_json
from isosent.io.schemas import TransformersConfig, WeightsIndex, path_inside
from isosent.io.tensors import MappedTensor, map_tensors
from isosent.storage import Storage

# Modules that hold the embeddings of tokens, by the names that architectures give them; an earlier name wins.
_MODULES = (
    "word_embeddings",
    "tok_embeddings",
    "shared",
    "embed_tokens",
    "wte",
    "token_embedding",
    "token_embeddings",
    "word_embedding",
    "embed_in",
    "embeddings",
)
_FLOATS = ("F64", "F32", "F16", "BF16")
_SHOWN = 12


def read_embedding_matrix(folder: str | os.PathLike[str]) -> NDArray[np.float32]:
    """Read the input token embeddings of a Hugging Face transformers model."""
    # The tensor is the weight of a module named ``word_embeddings`` (BERT and its kin), ``tok_embeddings``
    # (ModernBERT), ``shared`` (T5), ``embed_tokens`` (Llama), ``wte`` (GPT-2), ``token_embedding``,
    # ``token_embeddings``, ``word_embedding`` (XLNet), ``embed_in`` (GPT-NeoX) or ``embeddings``, in this order.
    # Where several tensors fit, those with as many rows as ``vocab_size`` of ``config.json`` are preferred, then the
    # earlier name, then the shorter path.
    folder = _check.input_folder(folder)
    files = _files_of_tensors(folder)
    candidates = [name for name in files if _module(name) in _MODULES]
    tensors = _open(folder, {files[name] for name in candidates})
    floats = {name: tensors[name] for name in candidates if name in tensors and tensors[name].dtype in _FLOATS}
    matrices = {name: tensor for name, tensor in floats.items() if tensor.array.ndim == 2}
    if not matrices:
        listed = ", ".join(list(files)[:_SHOWN]) + (" and others" if len(files) > _SHOWN else "")
        raise FileFormatError(f"{folder} has no embeddings of tokens. It holds: {listed or 'no tensor'}.")
    vocab_size = _vocab_size(folder)
    with_vocab_size = [name for name, tensor in matrices.items() if len(tensor.array) == vocab_size]
    chosen = min(with_vocab_size or matrices, key=lambda name: (_MODULES.index(_module(name)), name.count("."), name))
    numbers = matrices[chosen].array
    if matrices[chosen].dtype == "BF16":
        numbers = Storage.bfloat16.decoded(numbers)
    matrix: NDArray[np.float32] = numbers.astype(np.float32, copy=False)
    _check.finite_rows(str(folder), chosen, matrix)
    return matrix


def _files_of_tensors(folder: Path) -> dict[str, str]:
    """File of each tensor, by the index where there is one."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        files: dict[str, str] = read_json(index, WeightsIndex)["weight_map"]
        for name in set(files.values()):
            path_inside(folder, name, index)
        return files
    single = folder / "model.safetensors"
    if not single.exists():
        pickles = [path.name for path in sorted(folder.glob("*.bin"))]
        reason = f"{pickles[0]} is a pickle, which is not loaded" if pickles else "there is no such file"
        raise FileFormatError(f"{folder}: its weights are expected in model.safetensors; {reason}.")
    return dict.fromkeys(map_tensors(single)[0], single.name)


def _open(folder: Path, files: Iterable[str]) -> dict[str, MappedTensor]:
    tensors: dict[str, MappedTensor] = {}
    for file in files:
        tensors |= map_tensors(_check.input_file(folder / file))[0]
    return tensors


def _module(name: str) -> str:
    """Name of the module that a weight belongs to; empty for other tensors."""
    path, _, kind = name.rpartition(".")
    return path.rpartition(".")[2] if kind == "weight" else ""


def _vocab_size(folder: Path) -> int | None:
    path = folder / "config.json"
    config = read_json(path, TransformersConfig) if path.exists() else {}
    nested: int | None = (config.get("text_config") or {}).get("vocab_size")
    return config.get("vocab_size", nested)
