"""A model as an ONNX folder: ``model.onnx`` from tokens to vectors, ``tokenizer.json`` from texts to tokens.

Queries and documents share these two files with other texts as far as they can: a prompt of their own is in a tokenizer
of their own, a mean of their own in a graph of their own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from isosent import _extras
from isosent.encoders.base import Encoder
from isosent.encoders.module_folder import ROLES
from isosent.encoders.prompts import encoder_for
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.exports.exportable import exportable
from isosent.exports.note import EXPORT, Export, space_of, write_folder_note
from isosent.exports.onnx_static import static_graph, vectors_graph
from isosent.exports.onnx_transformer import write_transformer_graph
from isosent.exports.self_check import Agreement, compare, compare_on_texts, require_agreement, sample_vectors, total
from isosent.exports.tokenizer_files import static_tokenizer, transformer_tokenizer
from isosent.files.atomic import check_folder, replacing_folder
from isosent.model import SentenceEncoder

TARGET = "onnx"
GRAPH_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"

_BATCH = 8


@dataclass(frozen=True, slots=True)
class Files:
    """What texts of a role go through.

    Parameters
    ----------
    tokenizer : str or None
        Name of the tokenizer's file; none for a model of bare vectors.
    graph : str
        Name of the graph's file.
    """

    tokenizer: str | None
    graph: str


def export_onnx(model: SentenceEncoder, output: str | os.PathLike[str]) -> Export:
    """Write a folder for onnxruntime: the graph, the tokenizer, and a note.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    output : path-like
        The folder to write: new, empty, or an older export. Where queries have a prompt or a mean of their own, it
        holds ``query_tokenizer.json`` or ``query_model.onnx`` too, and the same of documents; the note says which of
        them go together.

    Returns
    -------
    Export
        What was written.

    Raises
    ------
    InputError
        If the encoder has no graph, or does what other libraries cannot, see `exportable`.
    MissingExtraError
        If onnx or onnxruntime is not installed; for a transformer, onnxscript.
    OutputError
        If the folder cannot be written, or gave other vectors than the model. What was there is intact.
    """
    check_folder(output, EXPORT)
    for package in ("onnx", "onnxruntime"):
        _extras.require(package)
    model = exportable(model)
    files = {role: _files_of(model, role) for role in ROLES}
    with replacing_folder(output, EXPORT) as folder:
        for tokenizer, role in {files[role].tokenizer: role for role in reversed(ROLES)}.items():
            if tokenizer is not None:
                _write_tokenizer(folder / tokenizer, encoder_for(model.encoder, role))
        for graph, role in {files[role].graph: role for role in reversed(ROLES)}.items():
            _write_graph(folder / graph, model, role)
        pairs = {files[role]: role for role in reversed(ROLES)}
        agreement = total(_check(model, folder, names, role) for names, role in pairs.items())
        require_agreement(TARGET, agreement)
        note = {
            "inputs": "vectors" if files["text"].tokenizer is None else "tokens",
            "output": "vectors",
            "files": {role: asdict(names) for role, names in files.items()},
        }
        write_folder_note(folder, TARGET, model, agreement, note)
    return Export(TARGET, Path(output), space_of(model), agreement)


def _files_of(model: SentenceEncoder, role: str) -> Files:
    """Those of all texts, but a tokenizer where the role has a prompt of its own, a graph where its graph differs."""
    encoder = model.encoder
    own_prompt = encoder_for(encoder, role) is not encoder
    # a graph that leaves the tokens of a prompt out counts them
    leaves_out = isinstance(encoder, TransformerEncoder) and not encoder.module_folder.pools_prompt
    own_graph = _has_own_map(model, role) or (own_prompt and leaves_out)
    has_tokens = isinstance(encoder, TransformerEncoder | StaticEncoder)
    tokenizer = (f"{role}_" if own_prompt else "") + TOKENIZER_FILE
    return Files(tokenizer if has_tokens else None, (f"{role}_" if own_graph else "") + GRAPH_FILE)


def _has_own_map(model: SentenceEncoder, role: str) -> bool:
    return role == "query" and model.query_map is not None


def _write_tokenizer(path: Path, encoder: Encoder) -> None:
    """Write the tokenizer with padding."""
    if isinstance(encoder, TransformerEncoder):
        transformer_tokenizer(encoder).save(str(path))
    elif isinstance(encoder, StaticEncoder):
        tokenizer = static_tokenizer(encoder)
        tokenizer.enable_padding(pad_id=0)
        tokenizer.save(str(path))


def _write_graph(path: Path, model: SentenceEncoder, role: str) -> None:
    """Write one graph, the fingerprint in its metadata."""
    onnx, encoder = _extras.require("onnx"), encoder_for(model.encoder, role)
    queries = _has_own_map(model, role)
    if isinstance(encoder, TransformerEncoder):
        write_transformer_graph(path, model, encoder, queries=queries)
        graph = onnx.load(str(path))
        _forget_sources(graph.graph, *graph.functions)
    elif isinstance(encoder, StaticEncoder):
        graph = static_graph(model, encoder, queries=queries)
    else:
        graph = vectors_graph(model, queries=queries)
    onnx.helper.set_model_props(graph, space_of(model).metadata)
    onnx.save(graph, str(path))


def _forget_sources(*parts: Any) -> None:
    """Take out what the exporter notes at every node: lines of source code with the folders of this machine."""
    for part in parts:
        for name in ("metadata_props", "doc_string"):
            if name in part.DESCRIPTOR.fields_by_name:
                part.ClearField(name)
        for field, value in part.ListFields():
            if field.type == field.TYPE_MESSAGE:
                _forget_sources(*([value] if hasattr(value, "ListFields") else value))


def _check(model: SentenceEncoder, folder: Path, files: Files, role: str) -> Agreement:
    """Run the graph as a user would, in batches with padding, and compare."""
    onnxruntime = _extras.require("onnxruntime")
    session = onnxruntime.InferenceSession(str(folder / files.graph), providers=["CPUExecutionProvider"])
    if files.tokenizer is None:
        vectors = sample_vectors(model)
        theirs = session.run(None, {"encoded": vectors})[0]
        return compare(model.transform(vectors, queries=_has_own_map(model, role)), theirs)
    tokenizer = Tokenizer.from_file(str(folder / files.tokenizer))

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
        return np.concatenate([_run(session, tokenizer, batch) for batch in batches])

    return compare_on_texts(model, encode, zero_rows=not _has_prompt(model, role), role=role)


def _run(session: Any, tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.float32]:
    batch = tokenizer.encode_batch(list(texts))
    inputs = {
        "input_ids": np.array([encoding.ids for encoding in batch], dtype=np.int64),
        "attention_mask": np.array([encoding.attention_mask for encoding in batch], dtype=np.int64),
    }
    vectors: NDArray[np.float32] = session.run(None, inputs)[0]
    return vectors


def _has_prompt(model: SentenceEncoder, role: str) -> bool:
    """Whether blank texts get a vector because a prompt stands before them, and so are left out of the comparison."""
    encoder = encoder_for(model.encoder, role)
    return isinstance(encoder, TransformerEncoder) and bool(encoder.prompt)
