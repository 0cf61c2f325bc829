"""What Text Embeddings Inference can serve of a sentence-transformers folder, and the old names that it reads."""

from __future__ import annotations

import json
from pathlib import Path

from isosent.encoders.base import Encoder
from isosent.encoders.prompts import named_prompts
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.files.documents import read_json
from isosent.files.foreign_schemas import Module, PoolingConfig, path_inside
from isosent.model import SentenceEncoder

_POOLINGS = {"cls": "cls_token", "mean": "mean_tokens", "last_token": "lasttoken"}
_ALL_FLAGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_PREFIX = "sentence_transformers.models."
_ADVICE = "Leave out --tei."


def check_servable(model: SentenceEncoder) -> None:
    """Refuse what Text Embeddings Inference would serve with other vectors.

    Parameters
    ----------
    model : SentenceEncoder
        The model.

    Raises
    ------
    InputError
        If it is no transformer with one layer and one of the poolings cls, mean and last_token; if prompts are not
        what the server makes of them; if lengths are evened
        out before the last step, where the server knows that step at the end only; or if a head is no Dense.
    """
    encoder = model.encoder
    if not isinstance(encoder, TransformerEncoder):
        raise InputError(f"export --tei: the encoder must be a transformer; got {encoder.reference}. {_ADVICE}")
    if len(encoder.layers) > 1:
        raise InputError(f"export --tei: the server knows one layer; got layers={encoder.options['layers']}. {_ADVICE}")
    if encoder.options["pooling"] not in _POOLINGS:
        raise InputError(
            f"export --tei: pooling must be one of {', '.join(_POOLINGS)}; got {encoder.options['pooling']}. {_ADVICE}"
        )
    if encoder.prompt:
        raise InputError(
            f"export --tei: the server gets prompts with each request; the model puts {encoder.prompt!r} before every "
            f"text. {_ADVICE}"
        )
    if not encoder.module_folder.pools_prompt and any(named_prompts(encoder).values()):
        raise InputError(f"export --tei: the server pools the tokens of prompts; the model does not. {_ADVICE}")
    if model.query_map is not None:
        raise InputError(f"export --tei: the server knows one map; the model has another for queries. {_ADVICE}")
    kinds = [head.module.kind for head in encoder.heads]
    inner = kinds if model.linear_map is not None else kinds[:-1]
    if "LayerNorm" in kinds or "Normalize" in inner:
        raise InputError(
            "export --tei: the server scales to length 1 at the end only and knows no LayerNorm; got "
            f"{', '.join(kinds)} before the map. Open the encoder with normalize=false and fit again."
        )


def write_old_names(folder: Path, encoder: Encoder) -> None:
    """Rename the modules of a folder and write their settings as releases before 6 of the library did.

    Parameters
    ----------
    folder : Path
        A folder that the library wrote.
    encoder : Encoder
        The encoder in it.
    """
    modules = read_json(folder / "modules.json", list[Module])
    for module in modules:
        module["type"] = _PREFIX + module["type"].rpartition(".")[2]
    _write(folder / "modules.json", modules)
    name = next(module["path"] for module in modules if module["type"] == _PREFIX + "Pooling")
    pooling = path_inside(folder, name, folder / "modules.json") / "config.json"
    settings = read_json(pooling, PoolingConfig)
    wanted = _POOLINGS[encoder.options["pooling"]]
    flags = {f"pooling_mode_{flag}": flag == wanted for flag in _ALL_FLAGS}
    dim = settings.get("embedding_dimension", settings.get("word_embedding_dimension"))
    _write(pooling, {"word_embedding_dimension": dim, **flags, "include_prompt": True})
    limit = encoder.options["max_length"]
    max_length = {} if limit == "none" else {"max_seq_length": int(limit)}
    _write(folder / "sentence_bert_config.json", {**max_length, "do_lower_case": False})


def _write(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
