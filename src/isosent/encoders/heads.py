"""The modules that follow the pooling in a sentence-transformers folder: Dense, LayerNorm, Normalize."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from isosent import _extras
from isosent.encoders.module_folder import ModuleHead
from isosent.errors import FileFormatError


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """One loaded module.

    Parameters
    ----------
    module : ModuleHead
        What the folder says of it.
    apply : callable
        From a tensor of shape (n_texts, in_dim) to one of shape (n_texts, out_dim); it can be pickled.
    weights : mapping of str to tensor
        What it depends on.
    out_dim : int
        Dimensions of what comes out.
    """

    module: ModuleHead
    apply: Callable[[Any], Any]
    weights: Mapping[str, Any]
    out_dim: int


def load_heads(heads: Sequence[ModuleHead], *, dim: int, dense: bool, normalize: bool) -> list[Head]:
    """Load the modules that are wanted.

    Parameters
    ----------
    heads : sequence of ModuleHead
        Those of the folder, in order.
    dim : int
        Dimensions of the pooled vectors.
    dense : bool
        Whether Dense and LayerNorm modules are kept.
    normalize : bool
        Whether Normalize modules are kept; where none is the last module, one is put at the end.

    Returns
    -------
    list of Head
        In the order they are applied.

    Raises
    ------
    FileFormatError
        If weights are missing, damaged or do not fit the vectors, or a setting has no counterpart here.
    """
    wanted = [head for head in heads if (normalize if head.kind == "Normalize" else dense)]
    if normalize and not (wanted and wanted[-1].kind == "Normalize"):
        wanted.append(ModuleHead("Normalize", Path(), {}))
    loaded = []
    for head in wanted:
        loaded.append(_LOADERS[head.kind](head, dim))
        dim = loaded[-1].out_dim
    return loaded


def _normalize(
    head: ModuleHead,
    dim: int,
) -> Head:
    return Head(head, _extras.require("torch").nn.functional.normalize, {}, dim)


def _dense(
    head: ModuleHead,
    dim: int,
) -> Head:
    torch, config = _extras.require("torch"), head.config
    if config.get("use_residual") or config.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise FileFormatError(f"{head.folder}/config.json: isosent has no residual Dense and none on other inputs.")
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = getattr(torch.nn, name.rpartition(".")[2], None) if name.startswith("torch.nn.") else None
    if not (isinstance(activation, type) and issubclass(activation, torch.nn.Module)):
        raise FileFormatError(f"{head.folder}/config.json: activation_function must be one of torch.nn; got {name}.")
    tensors = _read_weights(head)
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    if weight is None or weight.ndim != 2 or weight.shape[1] != dim:
        got = None if weight is None else tuple(weight.shape)
        raise FileFormatError(
            f"{head.folder}: linear.weight must have shape (n, {dim}) for vectors of {dim}; got {got}."
        )
    return Head(head, partial(_dense_output, weight, bias, activation()), tensors, len(weight))


def _dense_output(weight: Any, bias: Any, activate: Callable[[Any], Any], vectors: Any) -> Any:
    return activate(_extras.require("torch").nn.functional.linear(vectors, weight, bias))


def _layer_norm(
    head: ModuleHead,
    dim: int,
) -> Head:
    torch, tensors = _extras.require("torch"), _read_weights(head)
    weight, bias = tensors.get("norm.weight"), tensors.get("norm.bias")
    if weight is None or tuple(weight.shape) != (dim,):
        raise FileFormatError(f"{head.folder}: norm.weight must have shape ({dim},) for vectors of {dim}.")
    normalize = partial(torch.nn.functional.layer_norm, normalized_shape=(dim,), weight=weight, bias=bias)
    return Head(head, normalize, tensors, dim)


def _read_weights(head: ModuleHead) -> dict[str, Any]:
    torch, path = _extras.require("torch"), head.folder / "model.safetensors"
    if not path.exists():
        raise FileFormatError(f"{path} must exist; got no such file. Weights in pickles are not loaded.")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise FileFormatError(f"{path} is damaged: {error}.") from None
    # in memory of torch's own: products round differently where a file happens to be aligned differently
    return {name: tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}


_LOADERS: dict[str, Callable[[ModuleHead, int], Head]] = {
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Normalize": _normalize,
}
