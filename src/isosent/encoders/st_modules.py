"""Folders of sentence-transformers: their modules, and those that follow the pooling (Dense, LayerNorm, Normalize)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from safetensors import SafetensorError

from isosent import _extras
from isosent.encoders.static import read_all_tensors
from isosent.errors import FileFormatError, ModelReferenceError
from isosent.io.json import read_json
from isosent.io.schemas import (
    LayersConfig,
    Module,
    ModuleConfig,
    PoolingConfig,
    SentenceTransformersConfig,
    TransformerModuleConfig,
    path_inside,
)
from isosent.io.space import verify_export
from isosent.io.system import system_error
from isosent.io.tensors import open_tensors
from isosent.networks.layer_pooling import canonical_pooling, format_layers

_TRANSFORMER_CONFIGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_POOLING_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
_FOLLOWING = ("Dense", "LayerNorm", "Normalize")
_THEIRS = "sentence_transformers."  # modules of other packages may have the same names and compute something else
ROLES: tuple[Literal["text", "query", "document"], ...] = ("text", "query", "document")
_PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}


class ModuleSpec(NamedTuple):
    """A module after the pooling."""

    kind: str  # Dense, LayerNorm or Normalize
    folder: Path  # of its weights; Normalize has none
    config: dict[str, Any]  # ``config.json``


@dataclass(frozen=True, slots=True)
class ModuleFolder:
    """A folder of a sentence encoder, before its weights are loaded."""

    transformer: Path  # folder of the transformer and its tokenizer
    pooling: str = "mean"  # as in ``pooling=``
    layers: str = "-1"  # as in ``layers=``
    modules: tuple[ModuleSpec, ...] = ()  # modules after the pooling, in order
    max_length: int | None = None  # None if the folder leaves it to the tokenizer
    lowercase: bool = False  # before the tokenizer
    # of each of `ROLES`, possibly empty
    prompts: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(ROLES, ""))
    pools_prompt: bool = True  # with the tokens of the text


def read_module_folder(folder: Path, *, pooling: str | None = None) -> ModuleFolder:
    """Read ``modules.json`` and the configs it points to; without it, the folder is a transformer with mean pooling."""
    verify_export(folder)
    path = folder / "modules.json"
    if not path.exists():
        return _bare(folder, pooling)
    transformer, pools_prompt, layers, modules = None, True, "-1", []
    stored: str | None = None  # the pooling of the folder
    for module in read_json(path, list[Module]):
        package, _, kind = module["type"].rpartition(".")
        inner = path_inside(folder, module["path"], path)
        is_known = f"{package}.".startswith(_THEIRS)
        if is_known and transformer is None and kind == "Transformer":
            transformer = inner
        elif is_known and transformer is not None and kind == "Pooling":
            stored, pools_prompt = _pooling(inner, pooling)
        elif is_known and transformer is not None and kind == "WeightedLayerPooling":
            layers = _layers(inner)
        elif is_known and transformer is not None and kind in _FOLLOWING:
            modules.append(ModuleSpec(kind, inner, {} if kind == "Normalize" else _config(inner, ModuleConfig)))
        elif not is_known or kind != "Dropout":
            advice = " Write static:DIR for it." if kind == "StaticEmbedding" else ""
            raise FileFormatError(
                f"{path}: the module {(kind if is_known else module['type']) or module!r} is not read; of "
                f"sentence-transformers, Transformer, WeightedLayerPooling, Pooling, {', '.join(_FOLLOWING)} and "
                f"Dropout are.{advice}"
            )
    if transformer is None:
        raise FileFormatError(f"{path} lists no Transformer.")
    stored = stored or pooling
    if stored is None:
        raise FileFormatError(f"{path} lists no Pooling, so the pooling is unknown. {_NAME_POOLING}")
    if layers != "-1" and "max" in stored.split(","):
        raise FileFormatError(
            f"{path} pools the mean of layers by max, which isosent takes of each layer. Choose another pooling."
        )
    configs = (transformer / name for name in _TRANSFORMER_CONFIGS)
    config: dict[str, Any] = next((read_json(path, TransformerModuleConfig) for path in configs if path.exists()), {})
    return ModuleFolder(
        transformer,
        stored,
        layers,
        tuple(modules),
        max_length=config.get("max_seq_length"),
        lowercase=bool(config.get("do_lower_case")),
        prompts=_prompts(folder),
        pools_prompt=pools_prompt,
    )


_NAME_POOLING = (
    "It cannot be guessed: a model trained with one pooling gives wrong vectors with another. Copy the whole folder "
    "again, or name the pooling, as in hf:DIR?pooling=cls."
)


def _bare(folder: Path, pooling: str | None) -> ModuleFolder:
    """A folder without ``modules.json``, refused if other files show that there was one."""
    others = sorted(
        path.name for path in (*folder.glob("*_Pooling"), *folder.glob("config_sentence_transformers.json"))
    )
    if others and pooling is None:
        raise FileFormatError(
            f"{folder} has no modules.json, but {others[0]}: it is a part of a sentence-transformers folder. "
            f" {_NAME_POOLING}"
        )
    return ModuleFolder(folder)


def _pooling(path: Path, asked: str | None) -> tuple[str, bool]:
    if asked is not None and not (path / "config.json").exists():
        return asked, True
    config = _config(path, PoolingConfig, _NAME_POOLING)
    modes = config.get("pooling_mode") or [name for name, flag in _POOLING_FLAGS.items() if config.get(flag)] or "mean"
    try:
        pooling = canonical_pooling(",".join([modes] if isinstance(modes, str) else modes))
    except ModelReferenceError as error:
        raise FileFormatError(f"{path}/config.json: pooling_mode: {error}") from None
    return pooling, config.get("include_prompt") is not False


def _layers(path: Path) -> str:
    """Layers of a WeightedLayerPooling with a weight above 0, as a model reference writes them."""
    start = _config(path, LayersConfig).get("layer_start", 4)
    stored = read_all_tensors(path / "model.safetensors").get("layer_weights")
    weights = None if stored is None or stored.ndim != 1 else stored.astype(float).tolist()
    if weights is None or type(start) is not int or not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
        raise FileFormatError(
            f"{path}: expected weights of 0 or more of the layers from layer_start on, not all of them 0."
        )
    return format_layers([(start + place, weight) for place, weight in enumerate(weights) if weight])


def _prompts(folder: Path) -> dict[str, str]:
    """Prompts by role, as sentence-transformers names them; the default one is for texts without a role."""
    path = folder / "config_sentence_transformers.json"
    config = read_json(path, SentenceTransformersConfig) if path.exists() else {}
    named = config.get("prompts") or {}
    default = named.get(config.get("default_prompt_name")) or ""
    by_role = {
        role: next((named[name] for name in names if named.get(name)), "") for role, names in _PROMPT_NAMES.items()
    }
    return {"text": default, **by_role}


def _config(folder: Path, schema: type, advice: str = "Copy the whole folder again.") -> dict[str, Any]:
    """Config of a module; there are no safe defaults."""
    try:
        config: dict[str, Any] = read_json(folder / "config.json", schema)
    except FileNotFoundError:
        raise FileFormatError(
            f"{folder / 'config.json'} is missing, though modules.json lists its module. The folder was probably "
            f"copied in part. {advice}"
        ) from None
    return config


class LoadedModule(NamedTuple):
    """A loaded module."""

    spec: ModuleSpec
    apply: Callable[[Any], Any]  # from (n_texts, in_dim) to (n_texts, out_dim); it can be pickled
    weights: Mapping[str, Any]
    out_dim: int


def load_modules(modules: Sequence[ModuleSpec], *, dim: int, dense: bool, normalize: bool) -> list[LoadedModule]:
    """Load Dense and LayerNorm modules if `dense`, and end with Normalize if `normalize`."""
    wanted = [spec for spec in modules if (normalize if spec.kind == "Normalize" else dense)]
    if normalize and not (wanted and wanted[-1].kind == "Normalize"):
        wanted.append(ModuleSpec("Normalize", Path(), {}))
    loaded = []
    for spec in wanted:
        loaded.append(_LOADERS[spec.kind](spec, dim))
        dim = loaded[-1].out_dim
    return loaded


def _dense(spec: ModuleSpec, dim: int) -> LoadedModule:
    torch, config = _extras.require("torch"), spec.config
    if config.get("use_residual") or config.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise FileFormatError(f"{spec.folder}/config.json: isosent has no residual Dense and none on other inputs.")
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    activation = getattr(torch.nn, name.rpartition(".")[2], None) if name.startswith("torch.nn.") else None
    if not (isinstance(activation, type) and issubclass(activation, torch.nn.Module)):
        raise FileFormatError(f"{spec.folder}/config.json: the activation_function {name} is not one of torch.nn.")
    tensors = _read_weights(spec)
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    if weight is None or weight.ndim != 2 or weight.shape[1] != dim:
        got = None if weight is None else tuple(weight.shape)
        raise FileFormatError(
            f"{spec.folder}: linear.weight has the shape {got}; expected (n, {dim}) for vectors of {dim} dimensions."
        )
    return LoadedModule(spec, partial(_dense_output, weight, bias, activation()), tensors, len(weight))


def _dense_output(weight: Any, bias: Any, activate: Callable[[Any], Any], vectors: Any) -> Any:
    return activate(_extras.require("torch").nn.functional.linear(vectors, weight, bias))


def _layer_norm(spec: ModuleSpec, dim: int) -> LoadedModule:
    torch, tensors = _extras.require("torch"), _read_weights(spec)
    weight, bias = tensors.get("norm.weight"), tensors.get("norm.bias")
    if weight is None or tuple(weight.shape) != (dim,):
        raise FileFormatError(
            f"{spec.folder}: norm.weight has another shape than ({dim},), for vectors of {dim} dimensions."
        )
    normalize = partial(torch.nn.functional.layer_norm, normalized_shape=(dim,), weight=weight, bias=bias)
    return LoadedModule(spec, normalize, tensors, dim)


def _read_weights(spec: ModuleSpec) -> dict[str, Any]:
    torch, path = _extras.require("torch"), spec.folder / "model.safetensors"
    if not path.exists():
        raise FileFormatError(f"{path}: no such file. Weights in pickles are not loaded.")
    try:
        with open_tensors(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        if unreadable := system_error(error, path):
            raise unreadable from None
        raise FileFormatError(f"{path} is damaged: {error}.") from None
    # in memory of torch's own: products round differently where a file happens to be aligned differently
    return {name: tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}


_LOADERS: dict[str, Callable[[ModuleSpec, int], LoadedModule]] = {
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Normalize": lambda spec, dim: LoadedModule(spec, _extras.require("torch").nn.functional.normalize, {}, dim),
}
