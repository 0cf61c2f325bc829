"""ONNX graphs that need no torch: static encoders, and models of bare vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.encoders.static import StaticEncoder
from isosent.exports.tokenizer_files import unknown_id
from isosent.model import SentenceEncoder
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

    def behind(self, vectors: str, linear_map: LinearMap | None, *, normalize: bool) -> str:
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
    """Ids and mask to vectors.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    encoder : StaticEncoder
        Its encoder.
    queries : bool
        Whether queries go through it.

    Returns
    -------
    onnx.ModelProto
        Inputs ``input_ids`` and ``attention_mask``, (n_texts, seq_len) int64; output ``vectors``, (n_texts, dim)
        float32.
    """
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
    result = graph.behind(vectors, model.query_map if queries else model.linear_map, normalize=model.normalize)
    inputs = dict.fromkeys(("input_ids", "attention_mask"), (types.INT64, ("n_texts", "seq_len")))
    return graph.model(inputs, result, model.dim, "vectors")


def vectors_graph(model: SentenceEncoder, *, queries: bool) -> Any:
    """Vectors of the encoder to vectors of the model.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    queries : bool
        Whether queries go through it.

    Returns
    -------
    onnx.ModelProto
        Input ``encoded``, (n_texts, encoder's dim) float32; output ``vectors``, (n_texts, dim) float32.
    """
    types, graph = _extras.require("onnx").TensorProto, _Graph()
    result = graph.behind("encoded", model.query_map if queries else model.linear_map, normalize=model.normalize)
    inputs = {"encoded": (types.FLOAT, ("n_texts", model.encoder.dim))}
    return graph.model(inputs, result, model.dim, "vectors")
