"""A network that is an ONNX file: onnxruntime computes the last layer, torch pools it.

`graph_of` finds the file of a folder, `GraphModel` opens it and knows its inputs and its output, and `GraphBackend`
computes batches. A file that quantizes activations over the whole batch computes each text alone, so that a vector does
not depend on the others.
"""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isosent import _extras
from isosent.errors import FileFormatError, InputError
from isosent.io.schemas import path_inside
from isosent.io.system import open_to_read
from isosent.networks.batching import share_of_threads
from isosent.networks.layer_pooling import LayerPooling
from isosent.networks.onnx_backend import new_session
from isosent.networks.torch_backend import Readout

ENDING = ".onnx"
_DEFAULTS = ("model.onnx", "onnx/model.onnx")
_STATES = ("last_hidden_state", "token_embeddings")
_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
# DynamicQuantizeLinear and what onnxruntime makes of it take the scale of activations from all texts of a batch
_OF_A_BATCH = b"DynamicQuantize"
_SHIFTED = ("roberta", "xlm-roberta", "camembert", "mpnet")  # positions begin after that of the padding token


def graph_of(folder: Path, name: str | None, *, has_weights: bool) -> Path | None:
    """The ONNX file to compute: the named one, or that of a folder without weights; None if there is none."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob(f"*{ENDING}"))
    if name is None and (has_weights or not files):
        return None
    if name is None:
        name = next((each for each in _DEFAULTS if each in files), files[0] if len(files) == 1 else None)
    if name not in files:
        shown, wanted = ", ".join(files[:8]) or "none", "several ONNX files" if name is None else f"no {name}"
        raise FileFormatError(f"hf: {folder} has {wanted}. Name one as in hf:DIR?graph=FILE. Its ONNX files: {shown}.")
    return path_inside(folder, name, folder)


class GraphModel:
    """An ONNX file with the config of the transformer that it was made of."""

    def __init__(self, path: Path, config: Any) -> None:
        self.path, self.config = path, config
        onnxruntime = _extras.require("onnxruntime")
        try:
            self._session = new_session(onnxruntime, path, share_of_threads()[1])
        except Exception as error:  # onnxruntime's errors share no base class
            raise FileFormatError(f"hf: onnxruntime cannot open {path}: {' '.join(str(error).split())}") from error
        self._inputs = {node.name: self._input_type(node) for node in self._session.get_inputs()}
        self._output, self.dim = self._states()
        with open_to_read(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            self.takes_texts_alone = content.find(_OF_A_BATCH) >= 0

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphModel, (self.path, self.config)

    def _input_type(self, node: Any) -> Any:
        if node.name not in ("input_ids", "attention_mask", "token_type_ids") or node.type not in _TYPES:
            raise FileFormatError(
                f"hf: {self.path} has the input {node.name} of type {node.type}, which isosent cannot give. Export the "
                "model for feature extraction: with input_ids and attention_mask."
            )
        if any(isinstance(size, int) for size in node.shape):
            raise FileFormatError(
                f"hf: {self.path} takes {node.name} of the shape {node.shape} only. Export the model with dynamic axes."
            )
        return _TYPES[node.type]

    def _states(self) -> tuple[str, int]:
        """Name and width of the output with the hidden states of the tokens."""
        outputs = {node.name: node for node in self._session.get_outputs()}
        states = [name for name, node in outputs.items() if len(node.shape) == 3 and "float" in node.type]
        name = next((name for name in _STATES if name in states), states[0] if len(states) == 1 else None)
        if name is None or not isinstance(outputs[name].shape[2], int):
            raise FileFormatError(
                f"hf: {self.path} has no output that is known to hold the last hidden states of the tokens. Its "
                f"outputs are {', '.join(outputs)}. Export the model for feature extraction, or wrap a function that "
                "calls onnxruntime: isosent.wrap(FUNCTION)."
            )
        return name, outputs[name].shape[2]

    @property
    def takes_types(self) -> bool:
        """Whether it takes types of tokens, which are all 0 here."""
        return "token_type_ids" in self._inputs

    @property
    def n_positions(self) -> int | None:
        """Most tokens that it can read, as far as the config says."""
        config = self.config.get_text_config()
        unused = (config.pad_token_id or 0) + 1 if config.model_type in _SHIFTED else 0
        most = getattr(config, "max_position_embeddings", None)
        return None if most is None else most - unused

    def state_dict(self) -> dict[str, Any]:
        """What stands for its weights: hashes of the file, and of those that it names as holding them."""
        graph = _extras.require("onnx").load(str(self.path), load_external_data=False)
        names = sorted(set(_external_files(graph)))
        paths = [self.path, *(path_inside(self.path.parent, name, self.path) for name in names)]
        torch, digests = _extras.require("torch"), dict[str, Any]()
        for path in paths:
            with open_to_read(path) as file:
                digest = hashlib.file_digest(file, "sha256").digest()
            digests[f"graph{len(digests)}"] = torch.from_numpy(np.frombuffer(digest, dtype=np.uint8).copy())
        return digests

    def run(self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64]) -> NDArray[np.floating[Any]]:
        """Hidden states of the last layer, shape (n_texts, seq_len, dim)."""
        arrays = {"input_ids": input_ids, "attention_mask": attention_mask, "token_type_ids": 0 * input_ids}
        inputs = {name: arrays[name].astype(kind, copy=False) for name, kind in self._inputs.items()}
        [states] = self._session.run([self._output], inputs)
        return np.asarray(states)


def _external_files(message: Any) -> Iterator[str]:
    """Names of the files that hold tensors of an ONNX message, at any depth."""
    for field, value in message.ListFields():
        if field.name == "external_data":
            yield from (each.value for each in value if each.key == "location")
        elif field.message_type is not None:
            for part in [value] if hasattr(value, "ListFields") else value:
                yield from _external_files(part)


class GraphBackend:
    """A backend: runs an ONNX file and pools what it gives."""

    def __init__(self, model: GraphModel, n_layers: int, layer_poolings: Sequence[LayerPooling]) -> None:
        self._torch = _extras.require("torch")
        self._model, self._n_layers, self._layer_poolings = model, n_layers, layer_poolings

    def __call__(
        self, input_ids: NDArray[np.int64], attention_mask: NDArray[np.int64], pooling_mask: NDArray[np.int64]
    ) -> list[Any]:
        """Vectors of a batch, one tensor (n_texts, width) per layer pooling."""
        try:
            states = self._model.run(input_ids, attention_mask)
        except Exception as error:  # onnxruntime's errors share no base class
            name, reason = self._model.path.name, " ".join(str(error).split())
            raise InputError(
                f"hf: onnxruntime cannot compute {name} for texts of {input_ids.shape[1]} tokens: {reason}"
            ) from error
        readout = Readout(self._layer_poolings, self._torch.from_numpy(pooling_mask))
        readout.visit(self._n_layers, self._torch.from_numpy(states))
        return readout.vectors()
