"""Modules after the pooling of a sentence-transformers folder: Dense, LayerNorm, Normalize, and truncation.

`modules_in_use` says which of them are applied, in the order of the folder; `load_modules` reads their weights, for
tensors of torch or for arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from isosent import _extras
from isosent.errors import FileFormatError
from isosent.io.system import system_error
from isosent.io.tensors import open_tensors, read_all_tensors
from isosent.numeric.similarity import unit_rows

DENSE, LAYER_NORM, NORMALIZE, TRUNCATE = "Dense", "LayerNorm", "Normalize", "truncate_dim"
_EPSILON = 1e-5  # of LayerNorm, in torch


class ModuleSpec(NamedTuple):
    """A module after the pooling."""

    kind: str  # Dense, LayerNorm, Normalize, or truncate_dim: the leading dimensions that are kept at the end
    folder: Path  # of its weights; Normalize and truncate_dim have none
    config: dict[str, Any]  # ``config.json``


class LoadedModule(NamedTuple):
    """A loaded module."""

    spec: ModuleSpec
    apply: Callable[[Any], Any]  # from (n_texts, in_dim) to (n_texts, out_dim); it can be pickled
    weights: Mapping[str, Any]
    out_dim: int


def modules_in_use(
    modules: Iterable[ModuleSpec], *, dense: bool = True, normalize: bool | None = None
) -> list[ModuleSpec]:
    """The modules that options leave, in order: without Dense and LayerNorm, with or without a Normalize at the end."""
    # `normalize` means the end alone. A Normalize before another module is a part of what the model learned.
    used = [spec for spec in modules if dense or spec.kind not in (DENSE, LAYER_NORM)]
    if normalize and not ends_with_normalize(used):
        used.append(ModuleSpec(NORMALIZE, Path(), {}))
    while normalize is False and ends_with_normalize(used):
        used.pop()
    return used


def ends_with_normalize(modules: Sequence[ModuleSpec]) -> bool:
    """Whether the last module scales to length 1."""
    return bool(modules) and modules[-1].kind == NORMALIZE


def load_modules(modules: Iterable[ModuleSpec], *, dim: int, in_numpy: bool = False) -> list[LoadedModule]:
    """Load modules that follow vectors of `dim` dimensions, to be applied to tensors, or to arrays if `in_numpy`."""
    loaded: list[LoadedModule] = []
    for spec in modules:
        loaded.append(_LOADERS[spec.kind](spec, dim, in_numpy))
        dim = loaded[-1].out_dim
    return loaded


def apply_to_rows(modules: Iterable[LoadedModule], vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Apply modules that were loaded for arrays; a zero row, of a text without a vector, stays zero."""
    has_vector = vectors.any(axis=1, keepdims=True)
    for module in modules:
        vectors = module.apply(vectors)
    result: NDArray[np.float32] = np.where(has_vector, vectors, 0).astype(np.float32, copy=False)
    return result


def _dense(spec: ModuleSpec, dim: int, in_numpy: bool) -> LoadedModule:
    activation = _activation(spec, in_numpy)
    names = ["linear.weight", "linear.bias"] if spec.config.get("bias") in (None, True) else ["linear.weight"]
    tensors = _read_weights(spec, names, in_numpy)
    weight, bias = tensors["linear.weight"], tensors.get("linear.bias")
    if weight.ndim != 2 or weight.shape[1] != dim or (bias is not None and bias.shape != weight.shape[:1]):
        raise FileFormatError(
            f"{spec.folder}: linear.weight has the shape {tuple(weight.shape)}; expected (n, {dim}) for vectors of "
            f"{dim} dimensions, and a linear.bias of (n,)."
        )
    return LoadedModule(spec, partial(_dense_output, weight, bias, activation, in_numpy), tensors, len(weight))


def _dense_output(weight: Any, bias: Any, activate: Callable[[Any], Any], in_numpy: bool, vectors: Any) -> Any:
    if not in_numpy:
        return activate(_extras.require("torch").nn.functional.linear(vectors, weight, bias))
    return activate(vectors @ weight.T if bias is None else vectors @ weight.T + bias)


def _activation(spec: ModuleSpec, in_numpy: bool) -> Callable[[Any], Any]:
    name = str(spec.config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    kind = name.rpartition(".")[2] if name.startswith("torch.nn.") else None
    if in_numpy and kind in _IN_NUMPY:
        return _IN_NUMPY[kind]
    torch = _extras.require("torch")
    activation = getattr(torch.nn, kind or "", None)
    if isinstance(activation, type) and issubclass(activation, torch.nn.Module):
        try:
            module = activation().eval()
            if not list(module.parameters()):
                return partial(_through_torch, module) if in_numpy else module
        except TypeError:  # it needs arguments, which no config holds
            pass
    raise FileFormatError(
        f"{spec.folder}/config.json: the activation_function {name} is not one of torch.nn without weights and "
        "arguments."
    )


def _through_torch(module: Any, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    torch = _extras.require("torch")
    with torch.inference_mode():
        output: NDArray[np.float32] = module(torch.from_numpy(vectors)).numpy()
    return output


def _unchanged(vectors: Any) -> Any:
    return vectors


def _positive_part(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.maximum(vectors, 0)


_IN_NUMPY: dict[str | None, Callable[[Any], Any]] = {"Identity": _unchanged, "Tanh": np.tanh, "ReLU": _positive_part}


def _layer_norm(spec: ModuleSpec, dim: int, in_numpy: bool) -> LoadedModule:
    tensors = _read_weights(spec, ["norm.weight", "norm.bias"], in_numpy)
    weight, bias = tensors["norm.weight"], tensors["norm.bias"]
    if tuple(weight.shape) != (dim,) or tuple(bias.shape) != (dim,):
        raise FileFormatError(
            f"{spec.folder}: norm.weight has another shape than ({dim},), for vectors of {dim} dimensions."
        )
    if in_numpy:
        return LoadedModule(spec, partial(_standardized, weight, bias), tensors, dim)
    normalize = _extras.require("torch").nn.functional.layer_norm
    return LoadedModule(spec, partial(normalize, normalized_shape=(dim,), weight=weight, bias=bias), tensors, dim)


def _standardized(weight: Any, bias: Any, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    centered = vectors - vectors.mean(axis=1, keepdims=True, dtype=np.float64)
    deviation = np.sqrt((centered**2).mean(axis=1, keepdims=True) + _EPSILON)
    return (centered / deviation * weight + bias).astype(np.float32)


def _normalize(spec: ModuleSpec, dim: int, in_numpy: bool) -> LoadedModule:
    return LoadedModule(spec, _unit_rows if in_numpy else _extras.require("torch").nn.functional.normalize, {}, dim)


def _unit_rows(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return unit_rows(vectors).astype(np.float32, copy=False)


def _truncate(spec: ModuleSpec, dim: int, in_numpy: bool) -> LoadedModule:
    kept = min(spec.config["truncate_dim"], dim)
    return LoadedModule(spec, partial(_leading, kept), {}, kept)


def _leading(n_dims: int, vectors: Any) -> Any:
    return vectors[:, :n_dims]


_LOADERS: dict[str, Callable[[ModuleSpec, int, bool], LoadedModule]] = {
    DENSE: _dense,
    LAYER_NORM: _layer_norm,
    NORMALIZE: _normalize,
    TRUNCATE: _truncate,
}


def _read_weights(spec: ModuleSpec, names: Sequence[str], in_numpy: bool) -> dict[str, Any]:
    """Exactly these weights: another one would be of something that isosent does not compute."""
    path = spec.folder / "model.safetensors"
    if not path.exists():
        raise FileFormatError(f"{path}: no such file. Weights in pickles are not loaded.")
    tensors = _arrays(path) if in_numpy else _tensors(path)
    if sorted(tensors) != sorted(names):
        listed = ", ".join(sorted(tensors)) or "nothing"
        raise FileFormatError(
            f"{path} holds {listed}; expected {' and '.join(names)} alone, for a {spec.kind} with these settings."
        )
    return tensors


def _arrays(path: Path) -> dict[str, Any]:
    return {name: array.astype(np.float32) for name, array in read_all_tensors(path).items()}


def _tensors(path: Path) -> dict[str, Any]:
    torch = _extras.require("torch")
    try:
        with open_tensors(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        if unreadable := system_error(error, path):
            raise unreadable from None
        raise FileFormatError(f"{path} is damaged: {error}.") from None
    # in memory of torch's own: products round differently where a file happens to be aligned differently
    return {name: tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}
