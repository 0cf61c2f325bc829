"""Folders of static models: Model2Vec's, and sentence-transformers' with a StaticEmbedding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from isosent.errors import FileFormatError, InputFileError
from isosent.files.documents import read_json
from isosent.files.export_note import verify_export
from isosent.files.foreign_schemas import Model2VecConfig, Module, TokenizerHeader, path_inside

_MODEL2VEC_MAX_LENGTH = 512


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a static model's files lie, and what its settings say.

    Parameters
    ----------
    inner : Path
        Folder of the files.
    normalize : bool
        Whether vectors are scaled to length 1.
    max_length : int or None
        Tokens that a text is cut at.
    is_model2vec : bool
        Whether Model2Vec's rules hold: it cuts characters, too, and skips unknown tokens.
    """

    inner: Path
    normalize: bool
    max_length: int | None
    is_model2vec: bool


def read_layout(folder: Path) -> Layout:
    """Read Model2Vec's config; without one, the modules of a sentence-transformers folder.

    Parameters
    ----------
    folder : Path
        The folder.

    Returns
    -------
    Layout
        What they say.

    Raises
    ------
    FileFormatError
        If they are malformed, or the modules are others than a StaticEmbedding and a Normalize.
    """
    verify_export(folder)
    config = _read(folder / "config.json", Model2VecConfig)
    if config is not None:
        max_length = config.get("max_length", _MODEL2VEC_MAX_LENGTH)
        return Layout(folder, bool(config.get("normalize")), max_length, is_model2vec=True)
    path = folder / "modules.json"
    modules = _read(path, list[Module])
    if modules is None:
        return Layout(folder, False, _MODEL2VEC_MAX_LENGTH, is_model2vec=True)
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    is_theirs = all(module["type"].startswith("sentence_transformers.") for module in modules)
    if kinds not in (["StaticEmbedding"], ["StaticEmbedding", "Normalize"]) or not is_theirs:
        raise FileFormatError(
            f"{path} must list a StaticEmbedding, and at most a Normalize behind it, both of sentence-transformers; "
            f"got {', '.join(module['type'] for module in modules) or 'nothing'}."
        )
    inner = path_inside(folder, modules[0]["path"], path)
    header = _read(inner / "tokenizer.json", TokenizerHeader) or {}
    max_length = (header.get("truncation") or {}).get("max_length")  # sentence-transformers lets the tokenizer cut
    return Layout(inner, len(kinds) == 2, max_length, is_model2vec=False)


def _read(path: Path, schema: Any) -> Any:
    return read_json(path, schema) if path.exists() else None


def token_vectors(folder: Path, tensors: dict[str, NDArray[np.generic]]) -> NDArray[np.float32]:
    """Make one vector a token, with the mapping and the weights of Model2Vec folded in.

    Parameters
    ----------
    folder : Path
        Where the tensors come from, for messages.
    tensors : dict of str to ndarray
        Of ``model.safetensors``.

    Returns
    -------
    ndarray of shape (vocab_size, dim), float32
        The vectors.

    Raises
    ------
    FileFormatError
        If a tensor is missing or has another shape.
    """
    vectors = tensors.get("embeddings", tensors.get("embedding.weight"))
    if vectors is None or vectors.ndim != 2:
        raise FileFormatError(
            f"{folder}/model.safetensors must hold a matrix 'embeddings'; it holds "
            f"{', '.join(list(tensors)[:3])}{' and others' if len(tensors) > 3 else ''}. "
            "A transformer is written hf:DIR."
        )
    table = vectors.astype(np.float32)
    if "mapping" in tensors:
        mapping = tensors["mapping"].astype(np.int64)
        if mapping.min(initial=0) < 0 or mapping.max(initial=0) >= len(table):
            raise FileFormatError(
                f"{folder}/model.safetensors: mapping must point to {len(table)} vectors; it points beyond."
            )
        table = table[mapping]
    if "weights" in tensors:
        weights = tensors["weights"].astype(np.float32)
        if weights.shape != (len(table),):
            raise FileFormatError(
                f"{folder}/model.safetensors: weights must have shape ({len(table)},); got {weights.shape}."
            )
        table = table * weights[:, None]
    return table


def read_tensors(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read every tensor of a safetensors file.

    Parameters
    ----------
    path : Path
        The file.

    Returns
    -------
    dict of str to ndarray
        Name and tensor.

    Raises
    ------
    InputFileError
        If there is no such file.
    FileFormatError
        If it is damaged, or holds a type that numpy lacks.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - the file is no mapping
    except FileNotFoundError:
        raise InputFileError(f"{path} must exist; got no such file.") from None
    except (SafetensorError, TypeError) as error:
        raise FileFormatError(f"{path} must be a safetensors file of int8, float16 or float32; got: {error}.") from None
