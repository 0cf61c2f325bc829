"""From a torch module to an ONNX graph of any number of texts of any length."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

from isosent import _extras
from isosent.errors import InputError

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
    """Trace a torch module and write its graph.

    Parameters
    ----------
    path : Path
        The file to write. Weights that one file cannot hold, from 2 GB on, lie beside it, under its name with ``.data``
        behind.
    module : torch.nn.Module
        From tensors of shape (n_texts, seq_len) to a tensor or a tuple of them.
    inputs : mapping of str to tensor
        Names of the inputs of `module` in its order, and an example of each, tensors of their own with more than one
        text and more than one token; the graph takes any number of both.
    outputs : sequence of str, optional
        Names of the outputs; those that torch gives them by default.
    where : str
        What the message of the error begins with.
    advice : str, default ""
        What it ends with.

    Raises
    ------
    InputError
        If torch cannot express the module as a graph of any number of texts of any length.
    MissingExtraError
        If onnx or onnxscript is not installed.
    """
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
