"""A model as an ONNX folder: ``model.onnx`` from tokens to vectors, ``tokenizer.json`` from texts to tokens.

Queries and documents share these two files with other texts as far as they can: a prompt of their own is in a tokenizer
of their own, a mean of their own in a graph of their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from isosent import _extras
from isosent.encoders.base import Encoder
from isosent.encoders.load import encoder_for
from isosent.encoders.st_modules import ROLES
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.exports.check import (
    EXPORT,
    Agreement,
    Export,
    compare,
    compare_on_texts,
    exportable,
    require_agreement,
    sample_vectors,
    space_of,
    total,
    write_folder_note,
)
from isosent.exports.tokenizer import static_tokenizer, transformer_tokenizer, unknown_id
from isosent.io.atomic import check_folder, replacing_folder
from isosent.model import SentenceEncoder
from isosent.networks.onnx_backend import write_graph
from isosent.numeric.linear_map import LinearMap

OPSET = 18
_SMALLEST_LENGTH = 1e-12


class _Graph:
    """Nodes and constants of a graph, one value behind the other."""

    def __init__(self) -> None:
        self._onnx = _extras.require("onnx")
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Apply an operator and name its result."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, value: NDArray[Any]) -> str:
        """Put an array into the graph and name it."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def number(self, value: float) -> str:
        """Put a float32 number into the graph and name it."""
        return self.constant(np.array(value, dtype=np.float32))

    def unit(self, vectors: str) -> str:
        """Scale rows to length 1, zero rows left as they are."""
        length = self.add("ReduceL2", vectors, self.constant(np.array([1])), keepdims=1)
        return self.add("Div", vectors, self.add("Max", length, self.number(_SMALLEST_LENGTH)))

    def postprocessing(self, vectors: str, linear_map: LinearMap | None, *, normalize: bool) -> str:
        """Apply the map, keep zero rows zero, scale to length 1."""
        result = vectors
        if linear_map is not None:
            weight, bias = (self.constant(a.astype(np.float32)) for a in (linear_map.weight, linear_map.bias))
            mapped = self.add("Gemm", vectors, weight, bias)
            sizes = self.add("ReduceMax", self.add("Abs", vectors), self.constant(np.array([1])), keepdims=1)
            known = self.add("Cast", self.add("Greater", sizes, self.number(0)), to=self._onnx.TensorProto.FLOAT)
            result = self.add("Mul", mapped, known)
        return self.unit(result) if normalize else result

    def model(self, inputs: Mapping[str, tuple[int, tuple[str | int, ...]]], result: str, dim: int, name: str) -> Any:
        """Close the graph."""
        helper = self._onnx.helper
        self.nodes.append(helper.make_node("Identity", [result], [name]))
        values = [helper.make_tensor_value_info(key, kind, shape) for key, (kind, shape) in inputs.items()]
        output = helper.make_tensor_value_info(name, self._onnx.TensorProto.FLOAT, ("n_texts", dim))
        graph = helper.make_graph(self.nodes, "isosent", values, [output], self.constants)
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=10, producer_name="isosent")


def static_graph(model: SentenceEncoder, encoder: StaticEncoder, *, queries: bool) -> Any:
    """Ids and mask to vectors."""
    types, graph = _extras.require("onnx").TensorProto, _Graph()
    counted = graph.add("Cast", "attention_mask", to=types.FLOAT)
    skipped = unknown_id(encoder)
    if skipped is not None:
        is_unknown = graph.add("Equal", "input_ids", graph.constant(np.array(skipped)))
        counted = graph.add("Mul", counted, graph.add("Cast", graph.add("Not", is_unknown), to=types.FLOAT))
    column = graph.add("Unsqueeze", counted, graph.constant(np.array([2])))
    tokens = graph.add("Mul", graph.add("Gather", graph.constant(encoder.token_vectors), "input_ids"), column)
    axis = graph.constant(np.array([1]))
    count = graph.add("Max", graph.add("ReduceSum", counted, axis, keepdims=1), graph.number(1))
    mean = graph.add("Div", graph.add("ReduceSum", tokens, axis, keepdims=0), count)
    vectors = graph.unit(mean) if encoder.normalize else mean
    result = graph.postprocessing(vectors, model.query_map if queries else model.linear_map, normalize=model.normalize)
    inputs = dict.fromkeys(("input_ids", "attention_mask"), (types.INT64, ("n_texts", "seq_len")))
    return graph.model(inputs, result, model.dim, "vectors")


def vectors_graph(model: SentenceEncoder, *, queries: bool) -> Any:
    """Vectors of the encoder to vectors of the model."""
    types, graph = _extras.require("onnx").TensorProto, _Graph()
    result = graph.postprocessing(
        "encoded", model.query_map if queries else model.linear_map, normalize=model.normalize
    )
    inputs = {"encoded": (types.FLOAT, ("n_texts", model.encoder.dim))}
    return graph.model(inputs, result, model.dim, "vectors")


def write_transformer_graph(path: Path, model: SentenceEncoder, encoder: TransformerEncoder, *, queries: bool) -> None:
    """Trace a transformer and write its graph."""
    # Inputs ``input_ids`` and ``attention_mask``, (n_texts, seq_len) int64, any number of texts and any length;
    # output ``vectors``, (n_texts, dim) float32. A text of special tokens only gets a zero row.
    torch = _extras.require("torch")
    inputs = {
        "input_ids": torch.full((2, 5), encoder.tokenizer.pad_token_id or 0, device=encoder.model.device),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], device=encoder.model.device),
    }
    module = _module(torch, model, encoder, queries=queries)
    write_graph(path, module, inputs, outputs=["vectors"], where="export")


def _module(torch: Any, model: SentenceEncoder, encoder: TransformerEncoder, *, queries: bool) -> Any:
    """The whole way from tokens to vectors as one torch module."""
    linear_map = model.query_map if queries else model.linear_map

    class TokensToVectors(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.transformer = encoder.model
            if linear_map is not None:
                for name, array in (("weight", linear_map.weight), ("bias", linear_map.bias)):
                    self.register_buffer(name, torch.from_numpy(array.astype(np.float32)).to(encoder.model.device))

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            vectors = encoder.forward(input_ids, attention_mask)
            if linear_map is not None:
                vectors = vectors @ self.weight + self.bias
            if model.normalize:
                vectors = torch.nn.functional.normalize(vectors)
            n_tokens = attention_mask.sum(dim=1, keepdim=True)
            return vectors * (n_tokens > encoder.n_special_tokens)

    return TokensToVectors().eval()


TARGET = "onnx"
GRAPH_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"

_BATCH = 8


@dataclass(frozen=True, slots=True)
class Files:
    """What texts of a role go through."""

    tokenizer: str | None  # name of the tokenizer's file; none for a model of bare vectors
    graph: str  # name of the graph's file


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
