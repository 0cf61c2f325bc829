"""What a sentence-transformers folder says beside the transformer itself."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isosent.encoders.static_folder import read_tensors
from isosent.errors import FileFormatError, ModelReferenceError
from isosent.network.reading import canonical_pooling, written_layers

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
_HEADS = ("Dense", "LayerNorm", "Normalize")
ROLES = ("text", "query", "document")
_PROMPT_NAMES = {"query": ("query",), "document": ("document", "passage", "corpus")}


@dataclass(frozen=True, slots=True)
class ModuleHead:
    """A module behind the pooling.

    Parameters
    ----------
    kind : {"Dense", "LayerNorm", "Normalize"}
        What it does.
    folder : Path
        Where its weights lie; Normalize has none.
    config : dict
        Its ``config.json``.
    """

    kind: str
    folder: Path
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModuleFolder:
    """A sentence encoder folder, read but not loaded.

    Parameters
    ----------
    transformer : Path
        Folder of the transformer and its tokenizer.
    pooling : str
        Names of poolings, with commas between them.
    layers : str
        Layers that are averaged, with their weights, as in ``layers=``.
    heads : tuple of ModuleHead
        Modules behind the pooling, in order.
    max_length : int or None
        Tokens a text is cut at; None where the folder leaves it to the tokenizer.
    lowercase : bool
        Whether texts are lower-cased before the tokenizer sees them.
    prompts : mapping of str to str
        What stands before a text: ``text``, any text; ``query``, one to search with; ``document``, one to be found.
        All three are there, possibly empty.
    pools_prompt : bool
        Whether the tokens of the prompt are pooled with those of the text.
    """

    transformer: Path
    pooling: str = "mean"
    layers: str = "-1"
    heads: tuple[ModuleHead, ...] = ()
    max_length: int | None = None
    lowercase: bool = False
    prompts: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(ROLES, ""))
    pools_prompt: bool = True


def read_module_folder(folder: Path) -> ModuleFolder:
    """Read ``modules.json`` and what it points to; without one, the folder is a bare transformer with mean pooling.

    Parameters
    ----------
    folder : Path
        A local folder.

    Returns
    -------
    ModuleFolder
        Its parts.

    Raises
    ------
    FileFormatError
        If a file is damaged, or a module is of a kind that isosent has no counterpart for.
    """
    if not (folder / "modules.json").exists():
        return ModuleFolder(folder)
    transformer, pooling, pools_prompt, layers, heads = None, "mean", True, "-1", []
    modules = _read_json(folder / "modules.json", kind=list)
    if not all(isinstance(module, dict) for module in modules):
        raise FileFormatError(f"{folder}/modules.json must hold a list of modules.")
    for module in modules:
        kind, path = str(module.get("type", "")).rpartition(".")[2], folder / str(module.get("path", ""))
        if transformer is None and kind == "Transformer":
            transformer = path
        elif transformer is not None and kind == "Pooling":
            pooling, pools_prompt = _pooling(path)
        elif transformer is not None and kind == "WeightedLayerPooling":
            layers = _layers(path)
        elif transformer is not None and kind in _HEADS:
            heads.append(ModuleHead(kind, path, _read_json(path / "config.json", missing={})))
        elif kind != "Dropout":
            advice = " Write static:DIR for it." if kind == "StaticEmbedding" else ""
            raise FileFormatError(
                f"{folder}/modules.json: the modules must be Transformer, WeightedLayerPooling, Pooling, "
                f"{', '.join(_HEADS)} or Dropout; got {kind or module!r}.{advice}"
            )
    if transformer is None:
        raise FileFormatError(f"{folder}/modules.json must list a Transformer; it lists none.")
    if layers != "-1" and "max" in pooling.split(","):
        raise FileFormatError(
            f"{folder}/modules.json: the mean of layers must not be pooled by max, which isosent takes of each layer."
        )
    config: dict[str, Any] = next(
        (_read_json(transformer / name) for name in _TRANSFORMER_CONFIGS if (transformer / name).exists()), {}
    )
    return ModuleFolder(
        transformer,
        pooling,
        layers,
        tuple(heads),
        max_length=config.get("max_seq_length"),
        lowercase=bool(config.get("do_lower_case", False)),
        prompts=_prompts(folder),
        pools_prompt=pools_prompt,
    )


def _pooling(path: Path) -> tuple[str, bool]:
    config = _read_json(path / "config.json", missing={})
    modes = config.get("pooling_mode", [name for name, flag in _POOLING_FLAGS.items() if config.get(flag)] or "mean")
    try:
        pooling = canonical_pooling(",".join([modes] if isinstance(modes, str) else modes))
    except ModelReferenceError as error:
        raise FileFormatError(f"{path}/config.json: pooling_mode: {error}") from None
    return pooling, bool(config.get("include_prompt", True))


def _layers(path: Path) -> str:
    """Layers of a WeightedLayerPooling with a weight above 0, as a model reference writes them."""
    start = _read_json(path / "config.json").get("layer_start", 4)
    stored = read_tensors(path / "model.safetensors").get("layer_weights")
    weights = None if stored is None or stored.ndim != 1 else stored.astype(float).tolist()
    if weights is None or type(start) is not int or not (min(weights) >= 0 and 0 < sum(weights) < math.inf):
        raise FileFormatError(f"{path} must hold weights >= 0 of the layers from layer_start on, not all of them 0.")
    return written_layers([(start + place, weight) for place, weight in enumerate(weights) if weight])


def _prompts(folder: Path) -> dict[str, str]:
    """Prompts by role, as sentence-transformers names them; the default one is for texts without a role."""
    path = folder / "config_sentence_transformers.json"
    config = _read_json(path, missing={})
    named = config.get("prompts") or {}
    if not (isinstance(named, dict) and all(text is None or isinstance(text, str) for text in named.values())):
        raise FileFormatError(f"{path}: prompts must be texts by their names; got {named!r}.")
    default = str(named.get(config.get("default_prompt_name")) or "")
    of_roles = {
        role: next((str(named[name]) for name in names if named.get(name)), "") for role, names in _PROMPT_NAMES.items()
    }
    return {"text": default, **of_roles}


def _read_json(path: Path, missing: dict[str, Any] | None = None, kind: type = dict) -> Any:
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        if missing is not None:
            return missing
        raise FileFormatError(f"{path} must exist; got no such file.") from None
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} must be JSON; got: {error}.") from None
    if not isinstance(content, kind):
        raise FileFormatError(f"{path} must hold a JSON {'list' if kind is list else 'object'}; got {content!r:.60}.")
    return content
