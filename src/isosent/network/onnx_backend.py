"""A network computed by onnxruntime."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import InputError
from isosent.network.graph_cache import cached_graph, forget_graph
from isosent.network.onnx_graph import write_graph
from isosent.network.onnx_int8 import with_int8_products

INPUTS = ("input_ids", "attention_mask", "pooling_mask")
DTYPES = ("float32", "int8")
_FORMAT = "2"
_SLOWER = ["SkipLayerNormFusion"]  # the fused operator takes longer than the two that it stands for


class OnnxBackend:
    """Computes batches with onnxruntime, on the CPU.

    Parameters
    ----------
    module : torch.nn.Module
        From ``input_ids``, ``attention_mask`` and ``pooling_mask``, each (n_texts, seq_len) int64, to a tuple of
        tensors of shape (n_texts, width).
    key : str
        What tells this module from others: of its weights and of what is read off it.
    dtype : {"float32", "int8"}, default "float32"
        What products with the weights are computed in, see `with_int8_products`.
    n_threads : int, default 1
        Threads that one call uses.

    Raises
    ------
    InputError
        If torch cannot express the module as a graph.
    MissingExtraError
        If onnx, onnxruntime or onnxscript is not installed.

    Warns
    -----
    CacheWarning
        If the graph cannot be kept for the next time.

    Notes
    -----
    Tracing takes seconds; the graph is kept in the user's cache. Calls from several threads at once are safe, and share
    the weights.
    """

    def __init__(self, module: Any, key: str, *, dtype: str = "float32", n_threads: int = 1) -> None:
        if dtype not in DTYPES:
            raise InputError(f"backend onnx: dtype must be one of {', '.join(DTYPES)}; got {dtype}.")
        self._onnxruntime = _extras.require("onnxruntime")
        self._n_threads = n_threads
        write = partial(_write, module)
        if dtype == "float32":
            self._session = self._opened(_name(key), write)
        else:
            self._session = self._opened(_name(key, dtype), partial(_write_int8, _name(key), write))

    def __call__(
        self,
        input_ids: NDArray[np.int64],
        attention_mask: NDArray[np.int64],
        pooling_mask: NDArray[np.int64],
    ) -> list[NDArray[np.float32]]:
        """Compute a batch.

        Parameters
        ----------
        input_ids, attention_mask, pooling_mask : ndarray of shape (n_texts, seq_len), int64
            Tokens; 1 where there is one, and where it is pooled.

        Returns
        -------
        list of ndarray of shape (n_texts, width), float32
            One a reading.
        """
        arrays = dict(zip(INPUTS, (input_ids, attention_mask, pooling_mask), strict=True))
        vectors: list[NDArray[np.float32]] = self._session.run(None, {name: arrays[name] for name in self._names})
        return vectors

    @property
    def _names(self) -> list[str]:
        """Inputs of the graph: one that nothing depends on is not there."""
        return [node.name for node in self._session.get_inputs()]

    def _opened(self, name: str, make: Callable[[Path], None]) -> Any:
        """Open a graph of the cache, once more from the start where it is damaged."""
        with cached_graph(name, make) as path:
            try:
                return self._session_of(path)
            except Exception:  # those of onnxruntime have no class in common
                forget_graph(name)
        with cached_graph(name, make) as path:
            return self._session_of(path)

    def _session_of(self, path: Path) -> Any:
        options = self._onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._n_threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        return self._onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOWER
        )


def _name(key: str, dtype: str = "float32") -> str:
    torch, transformers = _extras.require("torch"), _extras.require("transformers")
    facts = (_FORMAT, key, dtype, torch.__version__, transformers.__version__)
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]


def _write(module: Any, path: Path) -> None:
    torch = _extras.require("torch")
    device = next(module.parameters()).device
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], device=device)
    inputs = {name: mask.clone() for name in INPUTS}  # the same tensor twice is one input to torch
    with _plain_attention(module):
        write_graph(path, module, inputs, where="backend onnx", advice=" Take backend=torch.")


@contextmanager
def _plain_attention(module: Any) -> Iterator[None]:
    """Let a network of transformers write attention in plain steps; torch's own operator, traced, adds guards."""
    network = next((part for part in module.modules() if hasattr(part, "set_attn_implementation")), None)
    if network is None:
        yield
        return
    before = network.config._attn_implementation
    network.set_attn_implementation("eager")
    try:
        yield
    finally:
        network.set_attn_implementation(before)


def _write_int8(name: str, write: Callable[[Path], None], path: Path) -> None:
    onnx = _extras.require("onnx")
    with cached_graph(name, write) as plain:
        graph = with_int8_products(onnx.load(str(plain)))
    onnx.save(graph, str(path))
