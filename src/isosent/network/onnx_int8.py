"""Products of an ONNX graph in whole numbers of eight bits, scaled anew for every token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras

_LARGEST_WEIGHT = 127
_MIDDLE = 128
_NEAR_THE_END = 16
_LOWEST = {"Gelu": 0.17, "Relu": 0.0, "Sigmoid": 0.0, "Softmax": 0.0, "HardSigmoid": 0.0}
_TINY = 1e-12


def with_int8_products(graph: Any) -> Any:
    """Rewrite the products with constant matrices.

    Parameters
    ----------
    graph : onnx.ModelProto
        The graph, in float32. It is changed.

    Returns
    -------
    onnx.ModelProto
        The same graph, for onnxruntime: each product of activations with a constant matrix goes over eight bits.

    Notes
    -----
    A column :math:`w_j` of a matrix becomes :math:`\\mathrm{round}(127 w_j / \\max|w_j|)`. The activations of a token
    become :math:`\\mathrm{round}(x / s) + z` in 0 ... 255, with a scale :math:`s` of this token alone, so that the vector
    of a text does not depend on what else is in its batch, and a token with large activations costs no other one its
    precision. :math:`z = 128` and :math:`s = \\max|x| / 127`; behind an activation function that hardly falls below zero
    :math:`z = 16`, which leaves twice as many steps to what is above. Sums are taken in 32 bits and scaled back in
    float32. Products of two activations, as in attention, stay in float32.
    """
    return _Rewriting(graph).done()


class _Rewriting:
    """One pass over the nodes of a graph."""

    def __init__(self, model: Any) -> None:
        self._onnx = _extras.require("onnx")
        self._model = model
        self._graph = model.graph
        self._constants = {tensor.name: tensor for tensor in self._graph.initializer}
        self._transposed = {
            node.output[0]: node.input[0]
            for node in self._graph.node
            if node.op_type == "Transpose" and node.input[0] in self._constants
        }
        self._maker = {name: node for node in self._graph.node for name in node.output}
        self._nodes: list[Any] = []
        self._matrices: dict[tuple[str, bool], tuple[str, str] | None] = {}
        self._rows: dict[str, tuple[str, str, str]] = {}
        self._shared: set[str] = set()

    def done(self) -> Any:
        for node in list(self._graph.node):
            if not self._rewritten(node):
                self._nodes.append(node)
        del self._graph.node[:]
        self._graph.node.extend(self._needed())
        used = {name for node in self._graph.node for name in node.input}
        constants = [tensor for tensor in self._graph.initializer if tensor.name in used]
        del self._graph.initializer[:]
        self._graph.initializer.extend(constants)
        if all(imported.domain != "com.microsoft" for imported in self._model.opset_import):
            self._model.opset_import.append(self._onnx.helper.make_opsetid("com.microsoft", 1))
        return self._model

    def _needed(self) -> Iterator[Any]:
        """Nodes without the transpositions whose result nothing takes any more."""
        used = {name for node in self._nodes for name in node.input} | {output.name for output in self._graph.output}
        return (node for node in self._nodes if any(name in used for name in node.output))

    def _rewritten(self, node: Any) -> bool:
        """Write a product in eight bits, if this node is one."""
        if node.op_type not in ("MatMul", "Gemm"):
            return False
        settings = {part.name: self._onnx.helper.get_attribute_value(part) for part in node.attribute}
        if any(settings.get(name, usual) != usual for name, usual in (("alpha", 1.0), ("beta", 1.0), ("transA", 0))):
            return False
        matrix = self._matrix(node.input[1], transposed=bool(settings.get("transB", 0)))
        if matrix is None:
            return False
        rows, scale, zero = self._quantized_rows(node.input[0])
        [output], bias = node.output, node.input[2] if len(node.input) == 3 else ""
        summed, scaled = f"{output}_sum", f"{output}_scaled" if bias else output
        one = self._constant("one", np.float32(1))
        self._add("MatMulIntegerToFloat", [rows, matrix[0], one, matrix[1], zero], summed, domain="com.microsoft")
        self._add("Mul", [summed, scale], scaled)
        if bias:
            self._add("Add", [scaled, bias], output)
        return True

    def _matrix(self, name: str, *, transposed: bool) -> tuple[str, str] | None:
        """Names of a constant matrix in eight bits and of the scales of its columns; None where it is not constant."""
        if name in self._transposed:
            name, transposed = self._transposed[name], not transposed
        key = (name, transposed)
        if key not in self._matrices:
            tensor = self._constants.get(name)
            if tensor is None or len(tensor.dims) != 2 or tensor.data_type != self._onnx.TensorProto.FLOAT:
                return None
            weight = self._onnx.numpy_helper.to_array(tensor)
            whole, scales = _whole_columns(weight.T if transposed else weight)
            label = f"{name}{'_t' if transposed else ''}"
            self._matrices[key] = (self._constant(f"{label}_int8", whole), self._constant(f"{label}_scales", scales))
        return self._matrices[key]

    def _quantized_rows(self, name: str) -> tuple[str, str, str]:
        """Names of activations in eight bits, of the scale of each token, and of what stands for zero."""
        if name in self._rows:
            return self._rows[name]
        maker = self._maker.get(name)
        lowest = None if maker is None else _LOWEST.get(maker.op_type)
        middle = _MIDDLE if lowest is None else _NEAR_THE_END
        size = name
        if lowest is None:
            size = self._add("Abs", [name], f"{name}_abs")
        largest = self._add("ReduceMax", [size, self._constant("last", np.array([-1]))], f"{name}_max", keepdims=1)
        scaled = self._add(
            "Mul", [largest, self._constant(f"steps_{middle}", np.float32(1 / (255 - middle)))], f"{name}_s"
        )
        floor = self._constant(f"floor_{middle}", np.float32(max(_TINY, (lowest or 0.0) / middle)))
        scale = self._add("Max", [scaled, floor], f"{name}_scale")
        zero = self._constant(f"zero_{middle}", np.uint8(middle))
        flat = self._constant("flat", np.array([-1]))
        scales = self._add("Reshape", [scale, flat], f"{name}_scales")
        zeros = self._add("Expand", [zero, self._add("Shape", [scales], f"{name}_n")], f"{name}_zeros")
        shape = self._add("Shape", [name], f"{name}_shape")
        width = self._add(
            "Slice", [shape, flat, self._constant("end", np.array([np.iinfo(np.int64).max]))], f"{name}_w"
        )
        by_row = self._add("Concat", [flat, width], f"{name}_by_row", axis=0)
        rows = self._add("Reshape", [name, by_row], f"{name}_rows")
        whole = self._add("QuantizeLinear", [rows, scales, zeros], f"{name}_whole", axis=0)
        self._rows[name] = (self._add("Reshape", [whole, shape], f"{name}_uint8"), scale, zero)
        return self._rows[name]

    def _add(self, operator: str, inputs: list[str], output: str, *, domain: str = "", **settings: int) -> str:
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [output], domain=domain, **settings))
        return output

    def _constant(self, name: str, value: NDArray[Any] | np.generic) -> str:
        name = f"int8/{name}"
        if name not in self._shared:
            self._shared.add(name)
            self._graph.initializer.append(self._onnx.numpy_helper.from_array(np.asarray(value), name))
        return name


def _whole_columns(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Columns in -127 ... 127 and the scale of each."""
    scales = np.maximum(np.abs(weight).max(axis=0), _TINY).astype(np.float32) / np.float32(_LARGEST_WEIGHT)
    return np.rint(weight / scales).astype(np.int8), scales
