"""An ONNX graph of a transformer with everything behind it: layers, pooling, heads, map, scaling."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from isosent import _extras
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.model import SentenceEncoder

_INPUTS = ("input_ids", "attention_mask")


def write_transformer_graph(path: Path, model: SentenceEncoder, encoder: TransformerEncoder, *, queries: bool) -> None:
    """Trace a transformer and write its graph.

    Parameters
    ----------
    path : Path
        The file to write.
    model : SentenceEncoder
        The model.
    encoder : TransformerEncoder
        Its encoder.
    queries : bool
        Whether queries go through it.

    Raises
    ------
    InputError
        If torch cannot express the architecture as a graph of any batch and any length.

    Notes
    -----
    Inputs ``input_ids`` and ``attention_mask``, (n_texts, seq_len) int64, any number of texts and any length; output
    ``vectors``, (n_texts, dim) float32. A text of special tokens only gets a zero row.
    """
    torch = _extras.require("torch")
    _extras.require("onnxscript")
    axes = {0: torch.export.Dim("n_texts"), 1: torch.export.Dim("seq_len")}
    input_ids = torch.full((2, 5), encoder.tokenizer.pad_token_id or 0, device=encoder.model.device)
    attention_mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], device=encoder.model.device)
    try:
        program = _trace(torch, _module(torch, model, encoder, queries=queries), (input_ids, attention_mask), axes)
    except torch.onnx.OnnxExporterError as error:
        kind, reason = encoder.model.config.model_type, (str(error.__cause__ or error).strip() or "-").splitlines()[0]
        raise InputError(f"export: torch must be able to trace the encoder; of {kind} it says: {reason}.") from error
    program.save(str(path), external_data=False)


def _trace(torch: Any, module: Any, inputs: tuple[Any, Any], axes: dict[int, Any]) -> Any:
    with _quiet(), torch.inference_mode():
        return torch.onnx.export(
            module,
            inputs,
            dynamo=True,
            verbose=False,
            input_names=list(_INPUTS),
            output_names=["vectors"],
            dynamic_shapes=dict.fromkeys(_INPUTS, axes),
        )


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
