"""Folders of models that are named by a path or by an id on the Hugging Face hub."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from isosent.encoders.reference import path_of
from isosent.errors import InputFileError
from isosent.io.atomic import recover

_HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?(@[\w./-]+)?")
_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "*.safetensors")
EMBEDDING_FILES = (
    "config.json",
    "model*.safetensors",
    "*.safetensors.index.json",
    "tokenizer*",
    "vocab*",
    "merges.txt",
)
_LEFT_OUT = ["onnx/*", "openvino/*", "*.msgpack", "*.h5"]


def local_folder(scheme: str, location: str) -> Path | None:
    """The folder that a location names, or None for an id on the hub."""
    path = path_of(location)
    recover(path)
    if path.is_dir():
        return path.resolve()
    if path.exists():
        raise InputFileError(f"{scheme}: {location} is a file. Name a folder, or an id on the hub.")
    if not _HUB_ID.fullmatch(location) or location.startswith("."):
        raise InputFileError(f"{scheme}: {location}: no such folder. Name a folder, or an id on the hub.")
    return None


def download(
    scheme: str,
    hub_id: str,
    *,
    trust_remote_code: bool = False,
    pickled_weights: bool = False,
    graph: str | None = None,
    files: Sequence[str] = _FILES,
) -> Path:
    """Download a model, or find it in the cache of the hub client; code and pickles only where they are permitted."""
    # graph: an ONNX file of it, which is left out otherwise
    import huggingface_hub

    name, _, revision = hub_id.partition("@")

    def snapshot(*more: str) -> Path:
        graphs = [graph, f"{graph}?data*"] if graph else []
        allowed = [*files, *(["*.py"] if trust_remote_code else []), *graphs, *more]
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision or None, allow_patterns=allowed, ignore_patterns=None if graph else _LEFT_OUT
            )
        )

    try:
        folder = snapshot()
        lacks_weights = not any(folder.rglob("*.safetensors"))
        return snapshot("*.bin") if pickled_weights and lacks_weights else folder
    except (OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        named = hub_id if scheme == "hub" else f"{scheme}: {hub_id}"
        raise InputFileError(
            f"{named} is no folder here, and the hub did not give a model of that name: {reason}. "
            "Check the spelling and the network. Without network: download it elsewhere, copy the folder here, and "
            "name that, as in ./NAME."
        ) from error
