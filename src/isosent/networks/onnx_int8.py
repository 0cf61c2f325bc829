"""Products of an ONNX graph in whole numbers of eight bits, scaled anew for every token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras

_STEPS = 255
_MIDDLE, _NEAR_THE_END = 128, 16
_LARGEST_WEIGHT = 127
_LOWEST = {"Gelu": 0.17, "Relu": 0.0, "Sigmoid": 0.0}
_TINY = 1e-12


def with_int8_products(model: Any) -> Any:
    """Rewrite the products with constant matrices."""
    # A column of a matrix becomes whole numbers :math:`\mathrm{round}(w / t)`, with :math:`t` such that two
    # neighbours on the same side of zero make 128 at most. Processors without instructions for sums of such products
    # (VNNI) add neighbours in 16 bits; so these never overflow there, and every processor finds the same vectors.
    # The activations of a token become :math:`\mathrm{round}(x / s) + z` in 0 ... 255, with :math:`s` and :math:`z`
    # of this token alone: the vector of a text does not depend on what else is in its batch, and a token with large
    # activations costs no other one its precision. Behind an activation function that hardly falls below zero,
    # :math:`z` is 16; for what comes out of attention, 128; elsewhere it is where the smallest and the largest
    # activation of the token put it, as a few dimensions lie far on one side. Sums are taken in 32 bits, and scaled
    # back in float32. Products of two activations, as within attention, stay in float32.
    return _Rewriting(model).done()


@dataclass(frozen=True, slots=True)
class _Rows:
    """Names of activations in eight bits, and of the scale and zero of each token; one zero for all, or an offset."""

    whole: str
    scale: str
    zero: str
    offset: str


@dataclass(frozen=True, slots=True)
class _Matrix:
    """Names of a matrix in eight bits, of the scales of its columns and of their sums, scaled."""

    whole: str
    scales: str
    sums: str


class _Rewriting:
    """One pass over the nodes of a graph."""

    def __init__(self, model: Any) -> None:
        self._onnx = _extras.require("onnx")
        self._model = model
        self._graph = model.graph
        self._tensors = {tensor.name: tensor for tensor in self._graph.initializer}
        self._maker = {name: node for node in self._graph.node for name in node.output}
        self._nodes: list[Any] = []
        self._constants: set[str] = set()
        self._matrices: dict[tuple[str, bool], _Matrix] = {}
        self._rows: dict[str, _Rows] = {}

    def done(self) -> Any:
        """Rewrite every node and drop what nothing takes any more."""
        for node in list(self._graph.node):
            if not self._rewritten(node):
                self._nodes.append(node)
        nodes = list(self._needed())
        used = {name for node in nodes for name in node.input}
        constants = [tensor for tensor in self._graph.initializer if tensor.name in used]
        for field, values in ((self._graph.node, nodes), (self._graph.initializer, constants)):
            del field[:]
            field.extend(values)
        if all(imported.domain != "com.microsoft" for imported in self._model.opset_import):
            self._model.opset_import.append(self._onnx.helper.make_opsetid("com.microsoft", 1))
        return self._model

    def _needed(self) -> Iterator[Any]:
        """Nodes without transpositions whose result nothing takes any more."""
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
        rows, result = self._quantized(node.input[0]), f"{node.output[0]}_int8"
        one = self._constant("one", np.float32(1))
        inputs = [rows.whole, matrix.whole, one, matrix.scales, rows.zero]
        self._add("MatMulIntegerToFloat", inputs, result, domain="com.microsoft")
        result = self._add("Mul", [result, rows.scale], f"{result}_scaled")
        if rows.offset:
            correction = self._add("Mul", [rows.offset, matrix.sums], f"{result}_correction")
            result = self._add("Add", [result, correction], f"{result}_corrected")
        if len(node.input) == 3:
            result = self._add("Add", [result, node.input[2]], f"{result}_biased")
        self._nodes[-1].output[0] = node.output[0]
        return True

    def _matrix(self, name: str, *, transposed: bool) -> _Matrix | None:
        """Put a matrix into eight bits; None where it is not a constant one."""
        maker = self._maker.get(name)
        if maker is not None and maker.op_type == "Transpose" and maker.input[0] in self._tensors:
            name, transposed = maker.input[0], not transposed
        if (name, transposed) not in self._matrices:
            tensor = self._tensors.get(name)
            if tensor is None or len(tensor.dims) != 2 or tensor.data_type != self._onnx.TensorProto.FLOAT:
                return None
            weight = self._onnx.numpy_helper.to_array(tensor)
            whole, scales = _whole_columns(weight.T if transposed else weight)
            label = f"{name}{'_transposed' if transposed else ''}"
            self._matrices[name, transposed] = _Matrix(
                self._constant(label, whole),
                self._constant(f"{label}_scales", scales),
                self._constant(f"{label}_sums", whole.sum(axis=0, dtype=np.int64).astype(np.float32) * scales),
            )
        return self._matrices[name, transposed]

    def _quantized(self, name: str) -> _Rows:
        """Put the activations of each token into eight bits."""
        if name in self._rows:
            return self._rows[name]
        kind = self._maker[name].op_type if name in self._maker else ""
        if kind in _LOWEST:
            scale = self._scale(self._end("ReduceMax", name), _STEPS - _NEAR_THE_END, _LOWEST[kind] / _NEAR_THE_END)
            rows = self._with_one_zero(name, scale, _NEAR_THE_END)
        elif kind == "Reshape":
            size = self._add("Abs", [name], f"{name}_abs")
            scale = self._scale(self._end("ReduceMax", size), _STEPS - _MIDDLE)
            rows = self._with_one_zero(name, scale, _MIDDLE)
        else:
            rows = self._with_own_zeros(name)
        self._rows[name] = rows
        return rows

    def _with_one_zero(self, name: str, scale: str, middle: int) -> _Rows:
        zero = self._constant(f"zero_{middle}", np.uint8(middle))
        zeros = self._add("Expand", [zero, self._add("Shape", [scale], f"{name}_tokens")], f"{name}_zeros")
        return _Rows(self._whole(name, scale, zeros), scale, zero, "")

    def _with_own_zeros(self, name: str) -> _Rows:
        nothing = self._constant("nothing", np.float32(0))
        low = self._add("Min", [self._end("ReduceMin", name), nothing], f"{name}_low")
        high = self._add("Max", [self._end("ReduceMax", name), nothing], f"{name}_high")
        scale = self._scale(self._add("Sub", [high, low], f"{name}_span"), _STEPS)
        steps = self._add("Div", [low, scale], f"{name}_steps")
        below = self._add("Round", [steps], f"{name}_below")
        offset = self._add("Mul", [below, scale], f"{name}_offset")
        zeros = self._add(
            "Cast", [self._add("Neg", [below], f"{name}_above")], f"{name}_zeros", to=self._onnx.TensorProto.UINT8
        )
        return _Rows(self._whole(name, scale, zeros), scale, self._constant("zero_0", np.uint8(0)), offset)

    def _end(self, operator: str, name: str) -> str:
        last = self._constant("last", np.array([-1]))
        return self._add(operator, [name, last], f"{name}_{operator}", keepdims=1)

    def _scale(self, span: str, n_steps: int, least: float = 0.0) -> str:
        """Size of a step, of shape (..., 1)."""
        step = self._add("Mul", [span, self._constant(f"step_{n_steps}", np.float32(1 / n_steps))], f"{span}_step")
        floor = max(_TINY, least)
        return self._add("Max", [step, self._constant(f"floor_{floor}", np.float32(floor))], f"{span}_scale")

    def _whole(self, name: str, scale: str, zeros: str) -> str:
        """Quantize with a scale and a zero a token: along the first axis of the tokens in one row."""
        flat = self._constant("flat", np.array([-1]))
        shape = self._add("Shape", [name], f"{name}_shape")
        width = self._add("Shape", [name], f"{name}_width", start=-1)
        by_token = self._add("Concat", [flat, width], f"{name}_by_token", axis=0)
        rows = self._add("Reshape", [name, by_token], f"{name}_rows")
        ends = [self._add("Reshape", [part, flat], f"{part}_flat") for part in (scale, zeros)]
        whole = self._add("QuantizeLinear", [rows, *ends], f"{name}_whole", axis=0)
        return self._add("Reshape", [whole, shape], f"{name}_int8")

    def _add(self, operator: str, inputs: list[str], output: str, *, domain: str = "", **settings: int) -> str:
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [output], domain=domain, **settings))
        return output

    def _constant(self, name: str, value: NDArray[Any] | np.generic) -> str:
        name = f"int8/{name}"
        if name not in self._constants:
            self._constants.add(name)
            self._graph.initializer.append(self._onnx.numpy_helper.from_array(np.asarray(value), name))
        return name


def _whole_columns(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Columns in whole numbers, no two neighbours beyond 128 together on one side of zero, and the scale of each."""
    pairs = np.pad(weight, ((0, len(weight) % 2), (0, 0))).reshape(-1, 2, weight.shape[1])
    above, below = (np.maximum(side, 0).sum(axis=1).max(axis=0) for side in (pairs, -pairs))
    scales = np.maximum(np.maximum(above, below), _TINY).astype(np.float32) / np.float32(_LARGEST_WEIGHT)
    return np.rint(weight / scales).astype(np.int8), scales
