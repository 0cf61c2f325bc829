"""A model as an ONNX folder: ``model.onnx`` from tokens to vectors, ``tokenizer.json`` from texts to tokens.

Queries and documents share these two files if they can. A separate prompt needs a separate tokenizer, and a separate
map a separate graph.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from isosent import _extras
from isosent._check import brief
from isosent.encoders.load import encoder_for
from isosent.encoders.st_modules import ROLES
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError, OutputError
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
from isosent.io.system import system_error, uninterrupted
from isosent.model import SentenceEncoder
from isosent.networks.onnx_backend import write_graph
from isosent.numeric.linear_map import LinearMap
from isosent.role import Role, RoleName

TARGET = "onnx"
GRAPH_FILE = "model.onnx"
TOKENIZER_FILE = "tokenizer.json"
_OPSET, _IR_VERSION = 18, 10
_SMALLEST_NORM = 1e-12
_BATCH_SIZE = 8


class _Files(NamedTuple):
    """What texts of a role go through."""

    tokenizer: str | None  # None for a model that takes vectors
    graph: str


def export_onnx(model: SentenceEncoder, output: str | os.PathLike[str]) -> Export:
    """Write a folder for onnxruntime: graphs, tokenizers and a note."""
    check_folder(output, EXPORT)
    for package in ("onnx", "onnxruntime"):
        _extras.require(package)
    model = exportable(model)
    files = {role: _files_of(model, role) for role in ROLES}
    with replacing_folder(output, EXPORT) as folder:
        # each file once, for the first role that uses it
        for tokenizer, role in {files[role].tokenizer: role for role in reversed(ROLES)}.items():
            if tokenizer is not None:
                _write_tokenizer(folder / tokenizer, model, role)
        for graph, role in {files[role].graph: role for role in reversed(ROLES)}.items():
            _write_graph(folder / graph, model, role)
        first_roles = {files[role]: role for role in reversed(ROLES)}
        agreement = total(_check(model, folder, pair, role) for pair, role in first_roles.items())
        require_agreement(TARGET, agreement)
        note = {
            "inputs": "vectors" if files["text"].tokenizer is None else "tokens",
            "output": "vectors",
            "files": {role: pair._asdict() for role, pair in files.items()},
        }
        write_folder_note(folder, TARGET, model, agreement, note)
    return Export(TARGET, Path(output), space_of(model), agreement)


def _files_of(model: SentenceEncoder, role: RoleName) -> _Files:
    encoder = model.encoder
    has_prompt = encoder_for(encoder, role) is not encoder
    # a graph that does not pool the tokens of a prompt counts them
    skips_prompt = isinstance(encoder, TransformerEncoder) and not encoder.module_folder.pools_prompt
    has_map = role == "query" and model.record.postprocessing.has_roles
    has_graph = has_map or (has_prompt and skips_prompt)
    has_tokens = isinstance(encoder, TransformerEncoder | StaticEncoder)
    tokenizer = (f"{role}_" if has_prompt else "") + TOKENIZER_FILE
    return _Files(tokenizer if has_tokens else None, (f"{role}_" if has_graph else "") + GRAPH_FILE)


def _write_tokenizer(path: Path, model: SentenceEncoder, role: RoleName) -> None:
    encoder = encoder_for(model.encoder, role)
    if isinstance(encoder, TransformerEncoder):
        tokenizer = transformer_tokenizer(encoder)
    else:
        assert isinstance(encoder, StaticEncoder)
        tokenizer = static_tokenizer(encoder)
        tokenizer.enable_padding(pad_id=0)
    tokenizer.save(str(path))


def _write_graph(path: Path, model: SentenceEncoder, role: RoleName) -> None:
    """Write one graph, with the fingerprint in its metadata."""
    onnx, encoder = _extras.require("onnx"), encoder_for(model.encoder, role)
    linear_map = model.record.postprocessing.map_of(Role(role == "query"))
    if isinstance(encoder, TransformerEncoder):
        _trace_transformer(path, model, encoder, linear_map)
        graph = onnx.load(str(path))
        _forget_sources(graph.graph, *graph.functions)
    elif isinstance(encoder, StaticEncoder):
        graph = _static_graph(model, encoder, linear_map)
    else:
        graph = _vectors_graph(model, linear_map)
    onnx.helper.set_model_props(graph, space_of(model).metadata)
    onnx.save(graph, str(path))


def _trace_transformer(
    path: Path, model: SentenceEncoder, encoder: TransformerEncoder, linear_map: LinearMap | None
) -> None:
    """Write a graph from ``input_ids`` and ``attention_mask`` (n_texts, seq_len) to ``vectors`` (n_texts, dim)."""
    torch = _extras.require("torch")
    device = encoder.model.device

    class TokensToVectors(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.transformer = encoder.model
            if linear_map is not None:
                for name, array in (("weight", linear_map.weight), ("bias", linear_map.bias)):
                    self.register_buffer(name, torch.from_numpy(array.astype(np.float32)).to(device))

        def forward(self, input_ids: Any, attention_mask: Any) -> Any:
            vectors = encoder.forward(input_ids, attention_mask)
            if linear_map is not None:
                vectors = vectors @ self.weight + self.bias
            if model.normalize:
                vectors = torch.nn.functional.normalize(vectors)
            # a text of special tokens only gets the zero row
            n_tokens = attention_mask.sum(dim=1, keepdim=True)
            return vectors * (n_tokens > encoder.n_special_tokens)

    inputs = {
        "input_ids": torch.full((2, 5), encoder.tokenizer.pad_token_id or 0, device=device),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], device=device),
    }
    write_graph(path, TokensToVectors().eval(), inputs, outputs=["vectors"], where="export")


def _forget_sources(*sources: Any) -> None:
    """Remove what the exporter notes at every node: lines of source code with the folders of this machine."""
    for part in sources:
        for name in ("metadata_props", "doc_string"):
            if name in part.DESCRIPTOR.fields_by_name:
                part.ClearField(name)
        for field, value in part.ListFields():
            if field.type == field.TYPE_MESSAGE:
                _forget_sources(*([value] if hasattr(value, "ListFields") else value))


def _static_graph(model: SentenceEncoder, encoder: StaticEncoder, linear_map: LinearMap | None) -> Any:
    """From ``input_ids`` and ``attention_mask`` (n_texts, seq_len) to ``vectors`` (n_texts, dim)."""
    if encoder.modules:
        raise InputError(
            f"export: onnx has no {encoder.modules[0].spec.kind} after the mean of a static model, which "
            f"{encoder.reference} has. Export to sentence-transformers."
        )
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
    result = graph.postprocessing(vectors, linear_map, normalize=model.normalize)
    inputs = dict.fromkeys(("input_ids", "attention_mask"), (types.INT64, ("n_texts", "seq_len")))
    return graph.model(inputs, result, model.dim)


def _vectors_graph(model: SentenceEncoder, linear_map: LinearMap | None) -> Any:
    """From ``encoded`` (n_texts, encoder.dim) to ``vectors`` (n_texts, dim), for a model that takes vectors."""
    types, graph = _extras.require("onnx").TensorProto, _Graph()
    result = graph.postprocessing("encoded", linear_map, normalize=model.normalize)
    return graph.model({"encoded": (types.FLOAT, ("n_texts", model.encoder.dim))}, result, model.dim)


class _Graph:
    """Builds a graph node by node; values are known by name."""

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
        """Add an array and name it."""
        name = f"constant_{len(self.constants)}"
        self.constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def number(self, value: float) -> str:
        """Add a float32 number and name it."""
        return self.constant(np.array(value, dtype=np.float32))

    def unit(self, vectors: str) -> str:
        """Scale rows to length 1, except zero rows."""
        length = self.add("ReduceL2", vectors, self.constant(np.array([1])), keepdims=1)
        return self.add("Div", vectors, self.add("Max", length, self.number(_SMALLEST_NORM)))

    def postprocessing(self, vectors: str, linear_map: LinearMap | None, *, normalize: bool) -> str:
        """Apply the map, keep zero rows zero, scale to length 1."""
        result = vectors
        if linear_map is not None:
            weight, bias = (self.constant(a.astype(np.float32)) for a in (linear_map.weight, linear_map.bias))
            mapped = self.add("Gemm", vectors, weight, bias)
            sizes = self.add("ReduceMax", self.add("Abs", vectors), self.constant(np.array([1])), keepdims=1)
            is_nonzero = self.add("Cast", self.add("Greater", sizes, self.number(0)), to=self._onnx.TensorProto.FLOAT)
            result = self.add("Mul", mapped, is_nonzero)
        return self.unit(result) if normalize else result

    def model(self, inputs: Mapping[str, tuple[int, tuple[str | int, ...]]], result: str, dim: int) -> Any:
        """Finish the graph; inputs are (type, shape) by name, the output is ``vectors``."""
        helper = self._onnx.helper
        self.nodes.append(helper.make_node("Identity", [result], ["vectors"]))
        values = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        output = helper.make_tensor_value_info("vectors", self._onnx.TensorProto.FLOAT, ("n_texts", dim))
        graph = helper.make_graph(self.nodes, "isosent", values, [output], self.constants)
        opset = helper.make_opsetid("", _OPSET)
        return helper.make_model(graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="isosent")


def _check(model: SentenceEncoder, folder: Path, files: _Files, role: RoleName) -> Agreement:
    """Run a graph as a user would, in padded batches, and compare."""
    onnxruntime = _extras.require("onnxruntime")
    graph = folder / files.graph
    try:
        session = uninterrupted(lambda: onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"]))
    except Exception as error:  # onnxruntime has a type of its own for each state
        if unreadable := system_error(error, graph):
            raise unreadable from error
        raise OutputError(f"{graph.name}: onnxruntime cannot open it: {brief(error)}.") from error
    if files.tokenizer is None:
        vectors = sample_vectors(model)
        mapped = session.run(None, {"encoded": vectors})[0]
        return compare(model.transform(vectors, queries=role == "query"), mapped)
    tokenizer = Tokenizer.from_file(str(folder / files.tokenizer))

    def encode(texts: Sequence[str]) -> NDArray[np.float32]:
        batches = []
        for start in range(0, len(texts), _BATCH_SIZE):
            encodings = tokenizer.encode_batch(list(texts[start : start + _BATCH_SIZE]))
            inputs = {
                "input_ids": np.array([encoding.ids for encoding in encodings], dtype=np.int64),
                "attention_mask": np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64),
            }
            batches.append(session.run(None, inputs)[0])
        return np.concatenate(batches)

    # after a prompt, blank texts get a vector
    encoder = encoder_for(model.encoder, role)
    has_prompt = isinstance(encoder, TransformerEncoder) and bool(encoder.prompt)
    return compare_on_texts(model, encode, has_zero_rows=not has_prompt, role=role)
