"""Run a network with onnxruntime: trace it, cache the graph, compute batches, in 8-bit integers if asked to.

`OnnxBackend` computes batches. It opens a graph of the user's cache (`cached_graph`), which is made when it is first
requested: torch traces the network (`write_graph`), and for int8 `with_int8_products` rewrites the products of that
graph, with a scale for each token. A graph whose bytes have changed is made again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import CacheWarning, InputError, IsosentError, OutputError, wrong_value
from isosent.io.atomic import Replaceable, is_temporary, remove_folder, replacing_folder, user_cache
from isosent.io.checksum import folder_checksums, verify_folder
from isosent.io.json import document_bytes, read_document
from isosent.io.schemas import Checksum, Document
from isosent.io.system import uninterrupted
from isosent.storage import Storage

INPUTS = ("input_ids", "attention_mask", "pooling_mask")
ONNX_STORAGES = (Storage.float32, Storage.int8)
_GRAPH_VERSION = "2"  # part of the name of a cached graph: raise it when the graphs change
_SLOW_FUSIONS = ["SkipLayerNormFusion"]  # the fused operator takes longer than the two that it replaces


class _GraphNote(Document, kw_only=True):
    """``graph.json`` next to a graph."""

    files: Annotated[dict[str, Checksum], Meta(min_length=1)]


class OnnxBackend:
    """A backend: onnxruntime on the CPU. Several threads may call it at once; they share the weights."""

    # `module` maps the three inputs to a tuple of vectors, see `traceable`. `key` identifies its weights and layer
    # poolings: tracing takes seconds, so the graph is kept in the user's cache under a hash of that key.

    def __init__(self, module: Any, key: str, *, dtype: str = Storage.float32, n_threads: int = 1) -> None:
        if dtype not in ONNX_STORAGES:
            raise wrong_value("backend onnx", "dtype", f"be one of {', '.join(ONNX_STORAGES)}", dtype)
        self._onnxruntime = _extras.require("onnxruntime")
        self._n_threads = n_threads
        name, make = _graph_name(key, Storage.float32), partial(_trace, module)
        if dtype == Storage.int8:
            name, make = _graph_name(key, dtype), partial(_write_int8, name, make)
        self._session = self._open(name, make)

    def __call__(
        self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64], pooling_mask: NDArray[np.int64]
    ) -> list[NDArray[np.float32]]:
        """Vectors of a batch, one array (n_texts, width) per layer pooling."""
        arrays = dict(zip(INPUTS, (input_ids, attention_mask, pooling_mask), strict=True))
        # an input that nothing depends on is not in the graph
        inputs = {node.name: arrays[node.name] for node in self._session.get_inputs()}
        return self._session.run(None, inputs)

    def _open(self, name: str, make: Callable[[Path], None]) -> Any:
        with cached_graph(name, make) as path:
            try:
                return new_session(self._onnxruntime, path, self._n_threads)
            except Exception:  # onnxruntime's errors share no base class; the graph may be damaged: make it again
                with suppress(OSError):
                    remove_folder(user_cache(_CACHE) / name)
        with cached_graph(name, make) as path:
            return new_session(self._onnxruntime, path, self._n_threads)


def new_session(onnxruntime: Any, path: Path, n_threads: int) -> Any:
    """Open a graph on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = n_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return uninterrupted(
        lambda: onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOW_FUSIONS
        )
    )


def _graph_name(key: str, dtype: str) -> str:
    versions = (_extras.require(package).__version__ for package in ("torch", "transformers"))
    return hashlib.sha256("\n".join((_GRAPH_VERSION, key, dtype, *versions)).encode()).hexdigest()[:32]


def _trace(module: Any, path: Path) -> None:
    torch = _extras.require("torch")
    device = next(module.parameters()).device
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], device=device)
    inputs = {name: mask.clone() for name in INPUTS}  # torch takes the same tensor twice for one input
    with _eager_attention(module):
        write_graph(path, module, inputs, where="backend onnx", advice=" Use backend=torch.")


@contextmanager
def _eager_attention(module: Any) -> Iterator[None]:
    """Let a transformers network compute attention in plain steps; torch's fused operator, traced, adds guards."""
    network = next((part for part in module.modules() if hasattr(part, "set_attn_implementation")), None)
    if network is None:
        yield
        return
    before = network.config._attn_implementation  # private to transformers, whose version pyproject.toml bounds
    network.set_attn_implementation("eager")
    try:
        yield
    finally:
        network.set_attn_implementation(before)


def _write_int8(float32_name: str, make_float32: Callable[[Path], None], path: Path) -> None:
    onnx = _extras.require("onnx")
    with cached_graph(float32_name, make_float32) as float32_path:
        graph = with_int8_products(onnx.load(str(float32_path)))
    onnx.save(graph, str(path))


_LARGEST_FILE = 2_000_000_000  # bytes; protobuf takes no more, so larger weights go into a separate file


def write_graph(
    path: Path,
    module: Any,
    inputs: Mapping[str, Any],
    *,
    outputs: Sequence[str] | None = None,
    where: str,
    advice: str = "",
) -> None:
    """Trace a torch module on sample inputs, each (n_texts, seq_len), and write a graph for batches of any shape."""
    torch = _extras.require("torch")
    for package in ("onnx", "onnxscript"):
        _extras.require(package)
    axes = {0: torch.export.Dim("n_texts"), 1: torch.export.Dim("seq_len")}
    try:
        with _quiet(), torch.inference_mode():
            program = torch.onnx.export(
                module,
                tuple(inputs.values()),
                dynamo=True,
                verbose=False,
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes=tuple(axes for _ in inputs),
            )
    except torch.onnx.OnnxExporterError as error:
        reason = (str(error.__cause__ or error).strip() or "-").splitlines()[0]
        raise InputError(f"torch cannot trace the network: {reason}.{advice}", where=where) from error
    tensors = chain(module.parameters(), module.buffers())
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    program.save(str(path), external_data=n_bytes > _LARGEST_FILE)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter's log and deprecation warnings."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


GRAPH_FILE = "graph.onnx"
_NOTE_FILE, _FORMAT, _FORMAT_VERSION = "graph.json", "isosent-graph", 1
_CACHE, _N_CACHED = "graphs", 16
_REPLACEABLE = Replaceable("an older graph", lambda _: True)


@contextmanager
def cached_graph(name: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """Path of a graph in the user's cache, made the first time it is asked for."""
    # The 16 graphs used last are kept. A graph whose bytes have changed is made again. Processes that make the same
    # graph at the same time do not interfere, because a finished one is moved into place.
    folder = user_cache(_CACHE) / name
    if _is_intact(folder):
        with suppress(OSError):
            os.utime(folder)
    elif not _make_in_cache(folder, make):
        folder = Path(tempfile.gettempdir()) / f"isosent-graph-{secrets.token_hex(8)}"
        with replacing_folder(folder, _REPLACEABLE) as temporary:  # a name that is swept if this process is killed
            make(temporary / GRAPH_FILE)
            yield temporary / GRAPH_FILE
        remove_folder(folder)
        return
    yield folder / GRAPH_FILE


def _is_intact(folder: Path) -> bool:
    """Whether a graph exists with every byte as it was written."""
    try:
        verify_folder(folder, read_document(folder / _NOTE_FILE, _FORMAT, _FORMAT_VERSION, _GraphNote)["files"])
    except OSError:
        return False
    return (folder / GRAPH_FILE).is_file()


def _make_in_cache(folder: Path, make: Callable[[Path], None]) -> bool:
    """Make a graph in the cache, and remove old ones; return False, with a warning, if the cache cannot be written."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing_folder(folder, _REPLACEABLE) as temporary:
            make(temporary / GRAPH_FILE)
            note = {"format": _FORMAT, "format_version": _FORMAT_VERSION, "files": folder_checksums(temporary)}
            (temporary / _NOTE_FILE).write_bytes(document_bytes(note))
    except OSError as error:
        if isinstance(error, IsosentError) and not isinstance(error, OutputError):
            raise
        warnings.warn(
            f"{folder.parent} cannot be written ({error.strerror or error}), so the network is traced again each time. "
            "Set ISOSENT_CACHE to another folder.",
            CacheWarning,
            stacklevel=2,
        )
        return False
    with suppress(OSError):
        graphs = folder.parent.iterdir()
        last_used = {path: path.stat().st_mtime for path in graphs if not is_temporary(path.name)}
        for old in sorted(last_used, key=last_used.__getitem__)[:-_N_CACHED]:
            remove_folder(old)
    return True


# -- products in 8-bit integers, with a scale for each token -----------------------------------------------------------

_STEPS = 255
_MIDDLE, _NEAR_THE_END = 128, 16
_LARGEST_WEIGHT = 127
_LOWEST = {"Gelu": 0.17, "Relu": 0.0, "Sigmoid": 0.0}  # how far below zero the output of an activation function goes
_TINY = 1e-12


def with_int8_products(model: Any) -> Any:
    """Rewrite the products with constant matrices of an ONNX model in 8-bit integers."""
    # Each column of a matrix becomes integers round(w / t), with t such that two neighbours on the same side of zero
    # add up to 128 at most. Processors without VNNI add neighbouring products in 16 bits; this way they never overflow
    # and every processor gives the same vectors.
    #
    # The activations of each token become round(x / s) + z in 0 ... 255, with s and z of this token alone: the vector
    # of a text does not depend on the rest of its batch, and a token with large activations costs no other token its
    # precision. After an activation function that hardly falls below zero z is 16, after attention 128. Elsewhere a few
    # dimensions lie far on one side, so z follows from the smallest and the largest activation of the token.
    #
    # Sums are 32-bit integers and are scaled back in float32. Products of two activations, within attention, stay in
    # float32.
    return _Rewriter(model).rewrite()


class _Rows(NamedTuple):
    """Names of quantized activations."""

    values: str  # 8-bit integers
    scale: str  # of each token
    zero: str  # one for all tokens
    offset: str  # of each token, already scaled; empty if `zero` says all


class _Matrix(NamedTuple):
    """Names of a quantized matrix."""

    values: str  # 8-bit integers
    scales: str  # of its columns
    sums: str  # of its columns, scaled


class _Rewriter:
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

    def rewrite(self) -> Any:
        """Rewrite every product, and drop the nodes and constants that are no longer used."""
        for node in list(self._graph.node):
            if not self._rewrite_product(node):
                self._nodes.append(node)
        # the transpositions of matrices that are now constants
        used = {name for node in self._nodes for name in node.input} | {output.name for output in self._graph.output}
        nodes = [node for node in self._nodes if any(name in used for name in node.output)]
        used = {name for node in nodes for name in node.input}
        constants = [tensor for tensor in self._graph.initializer if tensor.name in used]
        for field, values in ((self._graph.node, nodes), (self._graph.initializer, constants)):
            del field[:]
            field.extend(values)
        if all(imported.domain != "com.microsoft" for imported in self._model.opset_import):
            self._model.opset_import.append(self._onnx.helper.make_opsetid("com.microsoft", 1))
        return self._model

    def _rewrite_product(self, node: Any) -> bool:
        """Rewrite a node if it is a product with a constant matrix; return whether it is."""
        if node.op_type not in ("MatMul", "Gemm"):
            return False
        settings = {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}
        settings |= {part.name: self._onnx.helper.get_attribute_value(part) for part in node.attribute}
        if (settings["alpha"], settings["beta"], settings["transA"]) != (1.0, 1.0, 0):
            return False
        matrix = self._matrix(node.input[1], transposed=bool(settings["transB"]))
        if matrix is None:
            return False
        rows, result = self._rows_of(node.input[0]), f"{node.output[0]}_int8"
        one = self._constant("one", np.float32(1))
        inputs = [rows.values, matrix.values, one, matrix.scales, rows.zero]
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
        """Quantize a matrix; None if it is not a constant."""
        maker = self._maker.get(name)
        if maker is not None and maker.op_type == "Transpose" and maker.input[0] in self._tensors:
            name, transposed = maker.input[0], not transposed
        if (name, transposed) not in self._matrices:
            tensor = self._tensors.get(name)
            if tensor is None or len(tensor.dims) != 2 or tensor.data_type != self._onnx.TensorProto.FLOAT:
                return None
            weight = self._onnx.numpy_helper.to_array(tensor)
            values, scales = _quantize_columns(weight.T if transposed else weight)
            label = f"{name}{'_transposed' if transposed else ''}"
            self._matrices[name, transposed] = _Matrix(
                self._constant(label, values),
                self._constant(f"{label}_scales", scales),
                self._constant(f"{label}_sums", values.sum(axis=0, dtype=np.int64).astype(np.float32) * scales),
            )
        return self._matrices[name, transposed]

    def _rows_of(self, name: str) -> _Rows:
        """Quantize the activations of each token."""
        if name not in self._rows:
            kind = self._maker[name].op_type if name in self._maker else ""
            if kind in _LOWEST:
                span, floor = self._reduce("ReduceMax", name), _LOWEST[kind] / _NEAR_THE_END
                scale = self._scale(span, _STEPS - _NEAR_THE_END, floor)
                self._rows[name] = self._with_one_zero(name, scale, _NEAR_THE_END)
            elif kind == "Reshape":  # out of attention
                size = self._add("Abs", [name], f"{name}_abs")
                scale = self._scale(self._reduce("ReduceMax", size), _STEPS - _MIDDLE)
                self._rows[name] = self._with_one_zero(name, scale, _MIDDLE)
            else:
                self._rows[name] = self._with_zeros_by_token(name)
        return self._rows[name]

    def _with_one_zero(self, name: str, scale: str, middle: int) -> _Rows:
        zero = self._constant(f"zero_{middle}", np.uint8(middle))
        zeros = self._add("Expand", [zero, self._add("Shape", [scale], f"{name}_tokens")], f"{name}_zeros")
        return _Rows(self._quantize(name, scale, zeros), scale, zero, "")

    def _with_zeros_by_token(self, name: str) -> _Rows:
        zero = self._constant("zero", np.float32(0))
        low = self._add("Min", [self._reduce("ReduceMin", name), zero], f"{name}_low")
        high = self._add("Max", [self._reduce("ReduceMax", name), zero], f"{name}_high")
        scale = self._scale(self._add("Sub", [high, low], f"{name}_span"), _STEPS)
        steps = self._add("Div", [low, scale], f"{name}_steps")
        below = self._add("Round", [steps], f"{name}_below")
        offset = self._add("Mul", [below, scale], f"{name}_offset")
        zeros = self._add(
            "Cast", [self._add("Neg", [below], f"{name}_above")], f"{name}_zeros", to=self._onnx.TensorProto.UINT8
        )
        return _Rows(self._quantize(name, scale, zeros), scale, self._constant("zero_0", np.uint8(0)), offset)

    def _reduce(self, operator: str, name: str) -> str:
        last = self._constant("last", np.array([-1]))
        return self._add(operator, [name, last], f"{name}_{operator}", keepdims=1)

    def _scale(self, span: str, n_steps: int, floor: float = 0.0) -> str:
        """Size of a step, of shape (..., 1)."""
        step = self._add("Mul", [span, self._constant(f"step_{n_steps}", np.float32(1 / n_steps))], f"{span}_step")
        floor = max(_TINY, floor)
        return self._add("Max", [step, self._constant(f"floor_{floor}", np.float32(floor))], f"{span}_scale")

    def _quantize(self, name: str, scale: str, zeros: str) -> str:
        """Quantize with a scale and a zero per token."""
        # QuantizeLinear takes scales along one axis only, so all tokens of the batch become rows of one matrix.
        flat = self._constant("flat", np.array([-1]))
        shape = self._add("Shape", [name], f"{name}_shape")
        width = self._add("Shape", [name], f"{name}_width", start=-1)
        by_token = self._add("Concat", [flat, width], f"{name}_by_token", axis=0)
        rows = self._add("Reshape", [name, by_token], f"{name}_rows")
        by_row = [self._add("Reshape", [part, flat], f"{part}_flat") for part in (scale, zeros)]
        values = self._add("QuantizeLinear", [rows, *by_row], f"{name}_values", axis=0)
        return self._add("Reshape", [values, shape], f"{name}_int8")

    def _add(self, operator: str, inputs: list[str], output: str, *, domain: str = "", **settings: int) -> str:
        self._nodes.append(self._onnx.helper.make_node(operator, inputs, [output], domain=domain, **settings))
        return output

    def _constant(self, name: str, value: NDArray[Any] | np.generic) -> str:
        name = f"int8/{name}"
        if name not in self._constants:
            self._constants.add(name)
            self._graph.initializer.append(self._onnx.numpy_helper.from_array(np.asarray(value), name))
        return name


def _quantize_columns(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Columns as integers, two neighbors of one sign at most 128 together, and the scale of each column."""
    pairs = np.pad(weight, ((0, len(weight) % 2), (0, 0))).reshape(-1, 2, weight.shape[1])
    above, below = (np.maximum(side, 0).sum(axis=1).max(axis=0) for side in (pairs, -pairs))
    scales = np.maximum(np.maximum(above, below), _TINY).astype(np.float32) / np.float32(_LARGEST_WEIGHT)
    return np.rint(weight / scales).astype(np.int8), scales
