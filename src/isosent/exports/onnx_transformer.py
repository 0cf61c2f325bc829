"""An ONNX graph of a transformer with everything behind it: layers, pooling, heads, map, scaling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from isosent import _extras
from isosent.encoders.transformer import TransformerEncoder
from isosent.model import SentenceEncoder
from isosent.network.onnx_graph import write_graph


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
    inputs = {
        "input_ids": torch.full((2, 5), encoder.tokenizer.pad_token_id or 0, device=encoder.model.device),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], device=encoder.model.device),
    }
    module = _module(torch, model, encoder, queries=queries)
    write_graph(path, module, inputs, outputs=["vectors"], where="export")


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
