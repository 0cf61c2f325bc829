"""A model as an ONNX folder: ``model.onnx`` from tokens to vectors, ``tokenizer.json`` from texts to tokens."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from isosent import _extras
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.exports.folder import check_folder, replacing_folder
from isosent.exports.note import NOTE_FILE, Export, note_text, space_of
from isosent.exports.onnx_static import static_graph, vectors_graph
from isosent.exports.onnx_transformer import write_transformer_graph
from isosent.exports.self_check import Agreement, compare, compare_on_texts, require_agreement, sample_vectors
from isosent.exports.tokenizer_files import static_tokenizer, transformer_tokenizer
from isosent.model import SentenceEncoder

TARGET = "onnx"
GRAPH_FILE = "model.onnx"
QUERY_GRAPH_FILE = "query_model.onnx"
TOKENIZER_FILE = "tokenizer.json"

_BATCH = 8


def export_onnx(model: SentenceEncoder, output: str | os.PathLike[str]) -> Export:
    """Write a folder for onnxruntime: the graph, the tokenizer, and a note.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    output : path-like
        The folder to write: new, empty, or an older export. Where queries have a mean of their own, it holds
        ``query_model.onnx`` too.

    Returns
    -------
    Export
        What was written.

    Raises
    ------
    InputError
        If the encoder has no graph.
    MissingExtraError
        If onnx or onnxruntime is not installed; for a transformer, onnxscript.
    OutputError
        If the folder cannot be written, or gave other vectors than the model. What was there is intact.
    """
    check_folder(output)
    for package in ("onnx", "onnxruntime"):
        _extras.require(package)
    graphs = {GRAPH_FILE: False} | ({QUERY_GRAPH_FILE: True} if model.query_map is not None else {})
    with replacing_folder(output) as folder:
        tokenizer = _tokenizer(model)
        if tokenizer is not None:
            tokenizer.save(str(folder / TOKENIZER_FILE))
        agreements = []
        for name, queries in graphs.items():
            _write_graph(folder / name, model, queries=queries)
            agreements.append(_check(model, folder, name, queries=queries))
        note = {"inputs": "vectors" if tokenizer is None else "tokens", "output": "vectors"}
        (folder / NOTE_FILE).write_text(note_text(TARGET, model, agreements[0], note), "utf-8")
    return Export(TARGET, Path(output), space_of(model), agreements[0])


def _tokenizer(model: SentenceEncoder) -> Tokenizer | None:
    """The tokenizer with padding; none for a model of bare vectors."""
    encoder = model.encoder
    if isinstance(encoder, TransformerEncoder):
        return transformer_tokenizer(encoder)
    if isinstance(encoder, StaticEncoder):
        tokenizer = static_tokenizer(encoder)
        tokenizer.enable_padding(pad_id=0)
        return tokenizer
    return None


def _write_graph(path: Path, model: SentenceEncoder, *, queries: bool) -> None:
    """Write one graph, the fingerprint in its metadata."""
    onnx, encoder = _extras.require("onnx"), model.encoder
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


def _check(model: SentenceEncoder, folder: Path, name: str, *, queries: bool) -> Agreement:
    """Run the graph as a user would, in batches with padding, and compare."""
    session = _extras.require("onnxruntime").InferenceSession(str(folder / name), providers=["CPUExecutionProvider"])
    if not (folder / TOKENIZER_FILE).exists():
        vectors = sample_vectors(model)
        theirs = session.run(None, {"encoded": vectors})[0]
        agreement = compare(model.transform(vectors, queries=queries), theirs)
    else:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER_FILE))

        def encode(texts: Sequence[str]) -> NDArray[np.float32]:
            batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
            return np.concatenate([_run(session, tokenizer, batch) for batch in batches])

        agreement = compare_on_texts(model, encode, zero_rows=not _has_prompt(model), queries=queries)
    require_agreement(TARGET, agreement)
    return agreement


def _run(session: Any, tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.float32]:
    batch = tokenizer.encode_batch(list(texts))
    inputs = {
        "input_ids": np.array([encoding.ids for encoding in batch], dtype=np.int64),
        "attention_mask": np.array([encoding.attention_mask for encoding in batch], dtype=np.int64),
    }
    vectors: NDArray[np.float32] = session.run(None, inputs)[0]
    return vectors


def _has_prompt(model: SentenceEncoder) -> bool:
    """Whether blank texts get a vector because a prompt stands before them, and so are left out of the comparison."""
    return isinstance(model.encoder, TransformerEncoder) and bool(model.encoder.module_folder.prompt)
