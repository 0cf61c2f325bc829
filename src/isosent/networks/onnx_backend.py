"""A network computed by onnxruntime."""

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import CacheWarning, InputError, IsosentError, OutputError
from isosent.io.atomic import Replaceable, is_temporary, remove_folder, replacing_folder, user_cache
from isosent.io.checksum import folder_checksums, verify_folder
from isosent.io.json import document_bytes, read_document
from isosent.io.schemas import GraphNote
from isosent.networks.onnx_int8 import with_int8_products

GRAPH_FILE = "graph.onnx"
_KIND, _KEPT = "graphs", 16
_NOTE_FILE, _FORMAT, _FORMAT_VERSION = "graph.json", "isosent-graph", 1

_GRAPH = Replaceable("an older graph", lambda _: True)


@contextmanager
def cached_graph(name: str, make: Callable[[Path], None]) -> Iterator[Path]:
    """Give the file of a graph, made the first time it is asked for."""
    # The 16 graphs that were used last are kept. A graph whose bytes have changed is made again. Processes that make
    # the same one at the same time do not meet: each is put in place whole.
    folder = user_cache(_KIND) / name
    if _is_whole(folder):
        with suppress(OSError):
            os.utime(folder)
    elif not _made(folder, make):
        with _made_elsewhere(make) as graph:
            yield graph
        return
    yield folder / GRAPH_FILE


def forget_graph(name: str) -> None:
    """Remove a graph that turned out to be damaged."""
    with suppress(OSError):
        remove_folder(user_cache(_KIND) / name)


def _is_whole(folder: Path) -> bool:
    """Whether a graph is there, each byte as it was written."""
    try:
        verify_folder(folder, read_document(folder / _NOTE_FILE, _FORMAT, _FORMAT_VERSION, GraphNote)["files"])
    except OSError:
        return False
    return (folder / GRAPH_FILE).is_file()


def _made(folder: Path, make: Callable[[Path], None]) -> bool:
    """Make a graph in the cache; False, with a warning, where that cannot be written."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with replacing_folder(folder, _GRAPH) as temporary:
            make(temporary / GRAPH_FILE)
            note = {"format": _FORMAT, "format_version": _FORMAT_VERSION, "files": folder_checksums(temporary)}
            (temporary / _NOTE_FILE).write_bytes(document_bytes(note))
    except OSError as error:
        if isinstance(error, IsosentError) and not isinstance(error, OutputError):
            raise
        warnings.warn(
            f"The traced network is made anew each time, as {folder.parent} cannot be written: "
            f"{error.strerror or error}. Set ISOSENT_CACHE to another folder.",
            CacheWarning,
            stacklevel=2,
        )
        return False
    _keep_the_last(folder.parent)
    return True


@contextmanager
def _made_elsewhere(make: Callable[[Path], None]) -> Iterator[Path]:
    """Make a graph in the system's folder for temporary files, to be removed after the block."""
    folder = Path(tempfile.gettempdir()) / f"isosent-graph-{secrets.token_hex(8)}"
    with replacing_folder(folder, _GRAPH) as temporary:  # whose name is swept if this process is killed
        make(temporary / GRAPH_FILE)
        yield temporary / GRAPH_FILE
    remove_folder(folder)


def _keep_the_last(graphs: Path) -> None:
    """Remove the graphs that were not used for the longest time."""
    with suppress(OSError):
        used = {path: path.stat().st_mtime for path in graphs.iterdir() if not is_temporary(path.name)}
        for folder in sorted(used, key=used.__getitem__)[:-_KEPT]:
            remove_folder(folder)


_LARGEST_FILE = 2_000_000_000


def write_graph(
    path: Path,
    module: Any,
    inputs: Mapping[str, Any],
    *,
    outputs: Sequence[str] | None = None,
    where: str,
    advice: str = "",
) -> None:
    """Trace a torch module and write its graph."""
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
        raise InputError(f"{where}: torch must be able to trace the network; it says: {reason}.{advice}") from error
    tensors = chain(module.parameters(), module.buffers())
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    program.save(str(path), external_data=n_bytes > _LARGEST_FILE)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the notes and the deprecations of the exporter off the terminal."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


INPUTS = ("input_ids", "attention_mask", "pooling_mask")
DTYPES = ("float32", "int8")
_FORMAT_onnx_backend = "2"
_SLOWER = ["SkipLayerNormFusion"]  # the fused operator takes longer than the two that it stands for


class OnnxBackend:
    """Computes batches with onnxruntime, on the CPU."""

    # Tracing takes seconds; the graph is kept in the user's cache. Calls from several threads at once are safe, and
    # share the weights.

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
        """Compute a batch."""
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
    facts = (_FORMAT_onnx_backend, key, dtype, torch.__version__, transformers.__version__)
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
