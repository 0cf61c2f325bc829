"""A model as a folder that sentence-transformers loads without isosent."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub.errors import StrictDataclassError

from isosent import _extras
from isosent.encoders.base import Encoder
from isosent.encoders.load import DEFAULT_PROMPT, named_prompts
from isosent.encoders.st_modules import ROLES
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import PROMPT_OF, TransformerEncoder
from isosent.errors import InputError, InputTypeError
from isosent.evaluation.result import EvaluationResult
from isosent.evaluation.tables import interval_x100, x100
from isosent.exports.check import (
    EXPORT,
    Agreement,
    Export,
    compare_on_texts,
    exportable,
    require_agreement,
    shared_facts,
    space_of,
    total,
    write_folder_note,
)
from isosent.exports.tokenizer import static_tokenizer, unknown_id, without_literal
from isosent.io.atomic import check_folder, replacing_folder
from isosent.io.json import read_json
from isosent.io.schemas import Module, PoolingConfig, path_inside
from isosent.io.space import Space, same_space
from isosent.model import SentenceEncoder
from isosent.networks.load import quiet
from isosent.numeric.linear_map import LinearMap

_USAGE = """## Use

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")
vectors = model.encode(["A man is riding a horse.", "Someone rides a horse."])
print(model.similarity(vectors, vectors))
```

Texts to search with go through `encode_query`, texts to be found through `encode_document`: each puts its prompt in
front, where there is one.
"""


def model_card(model: SentenceEncoder, results: EvaluationResult | None = None) -> str:
    """Write the model card."""
    facts = shared_facts(model)
    options = ", ".join(f"{k}={v}" for k, v in facts["options"].items() if k not in PROMPT_OF.values())
    prompts = ", ".join(f"{name} `{prompt}`" for name, prompt in named_prompts(model.encoder).items() if prompt)
    lines = [
        "---",
        "library_name: sentence-transformers",
        "pipeline_tag: sentence-similarity",
        "tags: [sentence-transformers, sentence-similarity, feature-extraction, isosent]",
        "---",
        "",
        "# Sentence vectors with a fitted linear map",
        "",
        f"- Encoder: `{facts['reference']}`" + (f" with {options}" if options else ""),
        *([f"- Prompts: {prompts}"] if prompts else []),
        f"- Dimensions: {facts['dim']}, from {facts['encoder_dim']} of the encoder",
        f"- Scaled to length 1 behind the map: {'yes' if model.normalize else 'no'}",
        f"- Fingerprint of the vector space: `{model.fingerprint}`",
        "",
        "Only vectors with the same fingerprint can be compared. All settings are in `isosent.json`. A text without a",
        "token has no vector: isosent gives it a zero row, this folder does not. Leave such texts out.",
        "",
        "## What was fitted",
        "",
        *(_fit_line(fit) for fit in facts["fits"]),
        *(["Nothing: these are the vectors of the encoder."] if not model.fits else []),
        "",
        *(_score_lines(model, results) if results else []),
    ]
    return "\n".join(lines) + "\n" + _USAGE


def _fit_line(fit: Mapping[str, Any]) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in fit["parameters"].items())
    return f"- {fit['transform']}({settings}), on {fit['n_texts']} texts of {fit['source']}, {fit['fitted_at']}"


def _score_lines(model: SentenceEncoder, results: EvaluationResult) -> list[str]:
    if not isinstance(results, EvaluationResult):
        raise InputTypeError(
            f"export: results must be what isosent.evaluate or read_result returned; got {type(results).__name__}."
        )
    measured = Space(results.model["fingerprint"], results.model["reference"])
    same_space("the model", space_of(model), "export: the result file", measured)
    if results.fitting["transform"] is not None:
        raise InputError(
            "export --results: the scores must be those of the model as it is; they were measured with a transform "
            "fitted behind it. Measure the model itself: isosent evaluate sts -m MODEL --data DIR --json scores.json"
        )
    rows = [
        f"| {name} | {task.metric} | {x100(task.score)} | {interval_x100(task.interval)} | {task.n_items} |"
        for name, task in results.tasks.items()
    ]
    return [
        "## Measured",
        "",
        "x100; spearman and pearson are correlations of cosines with human scores over all pairs of a task:",
        "",
        "| task | metric | score | 95 % interval | items |",
        "|---|---|---:|---:|---:|",
        *rows,
        "",
    ]


_POOLINGS = {"cls": "cls_token", "mean": "mean_tokens", "last_token": "lasttoken"}
_ALL_FLAGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_PREFIX = "sentence_transformers.models."
_ADVICE = "Leave out --tei."


def check_servable(model: SentenceEncoder) -> None:
    """Refuse what Text Embeddings Inference would serve with other vectors."""
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
    """Rename the modules of a folder and write their settings as releases before 6 of the library did."""
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


THEIR_POOLINGS = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
    "last_token": "lasttoken",
    "weighted_mean": "weightedmean",
}


# Where it is not told, transformers asks at the terminal whether to run code of the folder.
_UNTRUSTED = {"trust_remote_code": False, "local_files_only": True}


class InexpressibleError(InputError):
    """The library has no modules for what a model does; the sentence says for what, and the caller what to do."""


def modules_of(model: SentenceEncoder) -> list[Any]:
    """Express a model in modules of sentence-transformers."""
    return [*_encoder_modules(_library(), model.encoder), *modules_behind(model)]


def modules_behind(model: SentenceEncoder) -> list[Any]:
    """Express what follows the encoder of a model in modules of sentence-transformers."""
    modules = _library()
    if model.flow is not None:
        raise InexpressibleError("sentence-transformers has no module for a flow, and the model ends with one.")
    return [*_map_modules(modules, model), *([modules.Normalize()] if model.normalize else [])]


def _library() -> Any:
    return _extras.require("sentence_transformers").sentence_transformer.modules


def _encoder_modules(modules: Any, encoder: Encoder) -> list[Any]:
    if isinstance(encoder, StaticEncoder):
        return _static_modules(modules, encoder)
    if isinstance(encoder, TransformerEncoder):
        return _transformer_modules(modules, encoder)
    raise InexpressibleError("sentence-transformers needs an encoder of texts; this model was fitted on bare vectors.")


def _static_modules(modules: Any, encoder: StaticEncoder) -> list[Any]:
    """The embedding, with a zero vector for the unknown token."""
    # The encoder skips that token, and the library counts it: it divides by more tokens. Scaling to length 1 undoes
    # that, and where bytes stand in for unknown characters, the token only comes up written out, which can be
    # dropped.
    tokenizer, token_vectors = static_tokenizer(encoder), np.array(encoder.token_vectors)
    skipped = unknown_id(encoder)
    if skipped is not None:
        token_vectors[skipped] = 0
    if skipped is not None and not encoder.normalize:
        if not getattr(tokenizer.model, "byte_fallback", False):
            raise InexpressibleError(
                f"{encoder.reference} skips unknown tokens, and StaticEmbedding of sentence-transformers counts them, "
                "so the means differ wherever there is one. Open the encoder with normalize=true."
            )
        tokenizer = without_literal(tokenizer, skipped)
    embedding = modules.StaticEmbedding(tokenizer, embedding_weights=token_vectors)
    return [embedding, *([modules.Normalize()] if encoder.normalize else [])]


def _transformer_modules(modules: Any, encoder: TransformerEncoder) -> list[Any]:
    """The transformer up to the highest layer in use, the mean of its layers, the poolings, the heads in force."""
    _check_expressible(encoder)
    limit, folder = encoder.options["max_length"], encoder.module_folder
    transformer = modules.Transformer(
        str(folder.transformer),
        model_kwargs={
            "dtype": encoder.model.dtype,
            "use_safetensors": any(folder.transformer.glob("*.safetensors")),
            **_UNTRUSTED,
        },
        processor_kwargs=dict(_UNTRUSTED),  # which the library changes
        config_kwargs=_config_of(encoder) | _UNTRUSTED,
        max_seq_length=None if limit == "none" else int(limit),
        do_lower_case=folder.lowercase,
    )
    dim = transformer.get_embedding_dimension()
    names = tuple(THEIR_POOLINGS[name] for name in encoder.own_layer_pooling.poolings)
    pooling = modules.Pooling(dim, pooling_mode=names, include_prompt=folder.pools_prompt)
    mean = [_mean_of_layers(modules, dim, encoder)] if len(encoder.layers) > 1 else []
    return [transformer, *mean, pooling, *(_head(modules, head.module) for head in encoder.heads)]


def _check_expressible(encoder: TransformerEncoder) -> None:
    """Refuse what the library has no module for, and what its modules do otherwise."""
    poolings = encoder.own_layer_pooling.poolings
    if unknown := [name for name in poolings if name not in THEIR_POOLINGS]:
        raise InexpressibleError(
            f"pooling must be among {', '.join(THEIR_POOLINGS)} for sentence-transformers; got {unknown[0]}."
        )
    if len(encoder.layers) > 1 and "max" in poolings:
        raise InexpressibleError(
            "sentence-transformers averages layers before pooling and isosent after it, which is not the same for "
            "pooling=max. Use another pooling or one layer."
        )
    leaves_out = not encoder.module_folder.pools_prompt and any(named_prompts(encoder).values())
    if leaves_out and "weighted_mean" in poolings:
        raise InexpressibleError(
            "pooling must not be weighted_mean where the tokens of a prompt are not pooled: sentence-transformers "
            "counts positions from the prompt on. Use another pooling."
        )
    if encoder.tokenizer.pad_token_id is None:
        raise InexpressibleError(
            f"sentence-transformers needs a padding token; the tokenizer of {encoder.reference} has none."
        )
    if type(encoder.model).__module__.startswith("transformers_modules."):
        raise InexpressibleError(
            f"{encoder.reference} needs code that comes with it, which is not put into other folders."
        )


def _config_of(encoder: TransformerEncoder) -> dict[str, Any]:
    """Leave out the layers above the highest in use."""
    name = encoder.model.config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    averaged = {"output_hidden_states": True} if len(encoder.layers) > 1 else {}
    highest = encoder.own_layer_pooling.highest
    truncated = {name: highest} if highest < encoder.n_layers else {}
    return averaged | truncated


def _mean_of_layers(modules: Any, dim: int, encoder: TransformerEncoder) -> Any:
    torch, highest = _extras.require("torch"), encoder.own_layer_pooling.highest
    weights = torch.zeros(highest + 1)
    for layer, weight in encoder.own_layer_pooling.layers:
        weights[layer] = weight
    return modules.WeightedLayerPooling(
        dim, num_hidden_layers=highest, layer_start=0, layer_weights=torch.nn.Parameter(weights)
    )


def _head(modules: Any, head: Any) -> Any:
    kind = getattr(modules, head.kind)
    return kind() if head.kind == "Normalize" else kind.load(str(head.folder))


def _map_modules(modules: Any, model: SentenceEncoder) -> list[Any]:
    if model.linear_map is None:
        return []
    dense = _dense(modules, model.linear_map)
    if model.query_map is None:
        return [dense]
    return [modules.Router.for_query_document([_dense(modules, model.query_map)], [dense])]


def _dense(modules: Any, linear_map: LinearMap) -> Any:
    torch = _extras.require("torch")
    weight, bias = (torch.from_numpy(a.astype(np.float32)) for a in (linear_map.weight.T.copy(), linear_map.bias))
    return modules.Dense(
        linear_map.dim,
        linear_map.n_components,
        bias=True,
        activation_function=torch.nn.Identity(),
        init_weight=weight,
        init_bias=bias,
    )


TARGET = "sentence-transformers"


def export_sentence_transformers(
    model: SentenceEncoder,
    output: str | os.PathLike[str],
    *,
    tei: bool = False,
    results: EvaluationResult | None = None,
) -> Export:
    """Write a folder for ``SentenceTransformer(FOLDER)``.

    Parameters
    ----------
    model : SentenceEncoder
        The model.
    output : path-like
        The folder to write: new, empty, or an older export.
    tei : bool, default False
        Whether Text Embeddings Inference must be able to serve it: module names and settings as releases before 6 of
        sentence-transformers wrote them.
    results : EvaluationResult, optional
        Scores of this model, for the model card.

    Returns
    -------
    Export
        What was written.

    Raises
    ------
    InputError
        If the target cannot express the model, or the results are those of another model.
    MissingExtraError
        If sentence-transformers is not installed.
    OutputError
        If the folder cannot be written, or gave other vectors than the model. What was there is intact.

    Notes
    -----
    A text without a token is a zero row in isosent. The library has no such rule: a transformer gives it the vector of
    its special tokens, a static encoder the bias of the map. Such texts are left out of the comparison.
    """
    check_folder(output, EXPORT)
    _extras.require("sentence_transformers")
    model = exportable(model)
    if tei:
        check_servable(model)
    card = model_card(model, results)
    with replacing_folder(output, EXPORT) as folder, quiet_library():
        try:
            as_sentence_transformer(model).save_pretrained(str(folder), create_model_card=False)
        except InexpressibleError as error:
            raise InputError(f"export: {error} Export to onnx.") from error
        if tei:
            write_old_names(folder, model.encoder)
        agreement = check_vectors(TARGET, model, folder)
        (folder / "README.md").write_text(card, "utf-8")
        write_folder_note(folder, TARGET, model, agreement, {"tei": tei})
    return Export(TARGET, Path(output), space_of(model), agreement)


@contextmanager
def quiet_library() -> Iterator[None]:
    """Keep what the library and transformers say while they load and save off the terminal."""
    logger = logging.getLogger("sentence_transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with quiet(_extras.require("transformers")):
            yield
    finally:
        logger.setLevel(level)


def as_sentence_transformer(model: SentenceEncoder) -> Any:
    """Make a model of sentence-transformers that gives the same vectors."""
    library = _extras.require("sentence_transformers")
    try:
        return library.SentenceTransformer(
            modules=modules_of(model), device="cpu", similarity_fn_name="cosine", **_prompts(model.encoder)
        )
    except (ValueError, StrictDataclassError) as error:
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        options = ", ".join(f"{name}={value}" for name, value in model.encoder.options.items() if value)
        raise InexpressibleError(
            f"sentence-transformers must be able to hold {model.encoder.reference} with {options}; it says: {reason}."
        ) from error


def _prompts(encoder: Encoder) -> dict[str, Any]:
    """The prompts in force, as the library takes them."""
    prompts = named_prompts(encoder)
    return {"prompts": prompts, "default_prompt_name": DEFAULT_PROMPT if DEFAULT_PROMPT in prompts else None}


def check_vectors(target: str, model: SentenceEncoder, folder: Path) -> Agreement:
    """Load a folder as a user of the library would, and compare what it makes of texts of every role."""
    library = _extras.require("sentence_transformers")
    loaded = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    methods = (loaded.encode, loaded.encode_query, loaded.encode_document)
    agreement = total(
        compare_on_texts(model, partial(method, show_progress_bar=False), zero_rows=False, role=role)
        for role, method in zip(ROLES, methods, strict=True)
    )
    require_agreement(target, agreement)
    return agreement
