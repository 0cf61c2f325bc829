"""Run a network with onnxruntime: trace it, cache the graph, compute batches."""

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
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import CacheWarning, InputError, IsosentError, OutputError
from isosent.io.atomic import Replaceable, is_temporary, remove_folder, replacing_folder, user_cache
from isosent.io.checksum import folder_checksums, verify_folder
from isosent.io.json import document_bytes, read_document
from isosent.io.schemas import Checksum, Document
from isosent.io.system import uninterrupted
from isosent.networks.onnx_int8 import with_int8_products

INPUTS = ("input_ids", "attention_mask", "pooling_mask")
DTYPES = ("float32", "int8")
_GRAPH_VERSION = "2"  # part of the name of a cached graph: raise it when the graphs change
_SLOW_FUSIONS = ["SkipLayerNormFusion"]  # the fused operator takes longer than the two that it replaces


class _GraphNote(Document, kw_only=True):
    """``graph.json`` beside a graph."""

    files: Annotated[dict[str, Checksum], Meta(min_length=1)]


class OnnxBackend:
    """A backend: onnxruntime on the CPU. Several threads may call it at once; they share the weights."""

    # `module` maps the three inputs to a tuple of vectors, see `traceable`. `key` identifies its weights and layer
    # poolings: tracing takes seconds, so the graph is kept in the user's cache under a hash of that key.

    def __init__(self, module: Any, key: str, *, dtype: str = "float32", n_threads: int = 1) -> None:
        if dtype not in DTYPES:
            raise InputError(f"backend onnx: dtype must be one of {', '.join(DTYPES)}; got {dtype}.")
        self._onnxruntime = _extras.require("onnxruntime")
        self._n_threads = n_threads
        name, make = _graph_name(key, "float32"), partial(_trace, module)
        if dtype == "int8":
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
                return self._new_session(path)
            except Exception:  # onnxruntime's errors share no base class; the graph may be damaged: make it again
                with suppress(OSError):
                    remove_folder(user_cache(_CACHE) / name)
        with cached_graph(name, make) as path:
            return self._new_session(path)

    def _new_session(self, path: Path) -> Any:
        options = self._onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._n_threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        return uninterrupted(
            lambda: self._onnxruntime.InferenceSession(
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
        raise InputError(f"{where}: torch cannot trace the network: {reason}.{advice}") from error
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
