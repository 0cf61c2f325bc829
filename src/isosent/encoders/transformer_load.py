"""From a folder or an id on the hub to a `TransformerEncoder`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isosent import _extras
from isosent.encoders.options import PERMISSIONS, RUNTIME_OPTIONS
from isosent.encoders.reference import escape, unescape
from isosent.encoders.st_modules import ModuleFolder, load_heads, read_module_folder
from isosent.encoders.transformer import PROMPT_OF, UNBOUNDED, WINDOWS, TransformerEncoder
from isosent.errors import InputError, InputFileError, ModelReferenceError
from isosent.io.atomic import recover
from isosent.networks.layer_pooling import SBERT_WK, LayerPooling, canonical_pooling, resolve_layers, written_layers
from isosent.networks.load import check_devices
from isosent.networks.network import Network, Permissions, Runtime, load_network
from isosent.numeric.sbert_wk import sbert_wk_layers

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_HUB_FILES = ["*.json", "*.jinja", "*.txt", "*.model", "*.safetensors"]
_HUB_LEAVE = ["onnx/*", "openvino/*", "*.msgpack", "*.h5"]


def open_transformer(location: str, options: Mapping[str, str]) -> TransformerEncoder:
    """Open a transformers encoder or a sentence-transformers model."""
    for package in ("torch", "transformers"):
        _extras.require(package)
    permissions = Permissions(*(options.get(name) == "true" for name in PERMISSIONS))
    folder = _local_folder(location)
    reference = f"hf:{location}" if folder is None else f"hf:{escape(str(folder))}"
    modules = read_module_folder(folder or _download(location, permissions), pooling=options.get("pooling"))
    runtime = Runtime.of(options)
    check_devices(runtime)
    network = load_network(modules.transformer, permissions, lambda n_layers: _check_layers(modules, n_layers, options))
    resolved = _resolved(modules, network, options)
    reading = _reading(resolved, network.n_layers)
    heads = load_heads(
        modules.heads,
        dim=reading.width(network.dim),
        dense=resolved["dense"] == "true",
        normalize=resolved["normalize"] == "true",
    )
    return TransformerEncoder(reference, resolved, modules, network, heads, runtime)


def _resolved(modules: ModuleFolder, network: Network, options: Mapping[str, str]) -> dict[str, str]:
    """Every option that the vectors depend on, with the value in force."""
    resolved = {
        "layers": modules.layers,
        "pooling": modules.pooling,
        "dense": "true",
        "normalize": str(any(head.kind == "Normalize" for head in modules.heads)).lower(),
        "max_length": _max_length(modules, network),
        "long": "truncate",
        **{PROMPT_OF[role]: prompt for role, prompt in modules.prompts.items()},
    }
    resolved |= {name: value for name, value in options.items() if name not in RUNTIME_OPTIONS}
    resolved["pooling"] = canonical_pooling(resolved["pooling"])
    if "layers" not in options and SBERT_WK in resolved["pooling"].split(","):
        resolved["layers"] = ",".join(map(str, sbert_wk_layers(network.n_layers)))
    _reading(resolved, network.n_layers)
    resolved["layers"] = written_layers(resolve_layers(resolved["layers"], network.n_layers))
    _check_max_length(resolved["max_length"], network)
    return _with_overlap(resolved)


def _check_layers(modules: ModuleFolder, n_layers: int, options: Mapping[str, str]) -> None:
    """Refuse layers that a network does not have, or that its pooling does not take."""
    if "layers" in options:
        _reading({"pooling": modules.pooling, **options}, n_layers)


def _reading(options: Mapping[str, str], n_layers: int) -> LayerPooling:
    try:
        return LayerPooling.of(options["layers"], options["pooling"], n_layers=n_layers)
    except ModelReferenceError as error:
        raise ModelReferenceError(f"hf: {error}") from None


def _with_overlap(resolved: dict[str, str]) -> dict[str, str]:
    """The overlap of windows, a quarter of them by default; none where long texts are cut."""
    if resolved["long"] != WINDOWS:
        if "overlap" in resolved:
            raise InputError("hf: overlap must come with long=windows; it came without. Leave it out, or add that.")
        return resolved
    if resolved["max_length"] == "none":
        raise InputError("hf: long=windows must come with a max_length; it is none. Name one.")
    return {"overlap": str(int(resolved["max_length"]) // 4)} | resolved


def _local_folder(location: str) -> Path | None:
    """The folder that is meant, or None for an id on the hub."""
    path = Path(unescape(location)).expanduser()
    recover(path)
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise InputFileError(f"hf: {location} must be a folder or an id on the hub; got a file.")
    if not _HUB_ID.fullmatch(location) or location.startswith("."):
        raise InputFileError(f"hf: {location} must be a folder or an id on the hub; got no such folder.")
    return None


def _download(hub_id: str, permissions: Permissions) -> Path:
    import huggingface_hub

    name, _, revision = hub_id.partition("@")

    def snapshot(*further: str) -> Path:
        allowed = [*_HUB_FILES, *(["*.py"] if permissions.trust_remote_code else []), *further]
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision or None, allow_patterns=allowed, ignore_patterns=_HUB_LEAVE
            )
        )

    try:
        folder = snapshot()
        lacks_weights = not any(folder.rglob("*.safetensors"))
        return snapshot("*.bin") if permissions.pickled_weights and lacks_weights else folder
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0].rstrip(".")
        raise InputFileError(
            f"hf: {hub_id} is no folder here, and the hub did not give a model of that name: {reason}. "
            "Check the spelling and the network. Without network: download it elsewhere, copy the folder here, and "
            "name that, as in hf:./NAME."
        ) from error


def _max_length(modules: ModuleFolder, network: Network) -> str:
    """What the folder says, else what the tokenizer says, as far as the positions of the model reach."""
    wanted = modules.max_length or network.tokenizer.model_max_length
    limits = [limit for limit in (wanted, _n_positions(network.model)) if limit and 0 < limit < UNBOUNDED]
    return str(min(limits)) if limits else "none"


def _check_max_length(written: str, network: Network) -> None:
    """Refuse fewer tokens than the special ones, and more than the model has positions for."""
    length = UNBOUNDED if written == "none" else int(written)
    n_special = network.tokenizer.num_special_tokens_to_add(pair=False)
    n_positions = _n_positions(network.model) or UNBOUNDED
    if not n_special < length <= n_positions:
        most = "" if n_positions == UNBOUNDED else f" and at most {n_positions}, the positions of this model"
        raise InputError(f"hf: max_length must be above {n_special}, its special tokens,{most}; got {written}.")


def _n_positions(model: Any) -> int | None:
    """Length of a model's table of learned positions, if it has one; some families leave its first entries unused."""
    within = getattr(model, "embeddings", model)
    tables = (getattr(within, name, None) for name in ("position_embeddings", "embed_positions", "wpe"))
    table: Any = next((table for table in tables if hasattr(table, "num_embeddings")), None)
    if table is None:
        return None
    unused = getattr(table, "offset", 0 if table.padding_idx is None else table.padding_idx + 1)
    return int(table.num_embeddings - unused)
