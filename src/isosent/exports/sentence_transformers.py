"""A model as a folder that sentence-transformers, or Text Embeddings Inference, loads without isosent.

`as_sentence_transformer` builds the modules in memory: those of the encoder (`_encoder_modules`), then map and scaling
(`postprocessing_modules`); what the library has no module for is refused (`_check_expressible`).
`export_sentence_transformers` saves them with a model card; for Text Embeddings Inference it renames modules and
settings (`_write_old_names`). `check_vectors` loads the folder as a user would and compares vectors before the folder
gets its name. Training uses the same modules.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub.errors import StrictDataclassError

from isosent import _extras
from isosent.encoders.base import Encoder
from isosent.encoders.load import DEFAULT_PROMPT, named_prompts
from isosent.encoders.output_modules import NORMALIZE, TRUNCATE, LoadedModule
from isosent.encoders.st_modules import ROLES
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import PROMPT_OF, TransformerEncoder
from isosent.errors import InputError, InputTypeError, next_step, option, wrong_value
from isosent.evaluation.result import EvaluationResult, interval_x100
from isosent.evaluation.tables import x100
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
from isosent.model import SentenceEncoder
from isosent.networks.load import quiet
from isosent.numeric.linear_map import LinearMap
from isosent.role import TEXT_PLACE
from isosent.space import Space, same_space

TARGET = "sentence-transformers"


class InexpressibleError(InputError):
    """sentence-transformers has no modules for what a model does; the caller adds what to do."""


def export_sentence_transformers(
    model: SentenceEncoder,
    output: str | os.PathLike[str],
    *,
    tei: bool = False,
    results: EvaluationResult | None = None,
) -> Export:
    """Write a folder for ``SentenceTransformer(FOLDER)``."""
    check_folder(output, EXPORT)
    _extras.require("sentence_transformers")
    model = exportable(model)
    if tei:
        _check_servable(model)
    card = _model_card(model, results)
    with replacing_folder(output, EXPORT) as folder, quiet_library():
        try:
            as_sentence_transformer(model).save_pretrained(str(folder), create_model_card=False)
        except InexpressibleError as error:
            advice = "" if TEXT_PLACE in str(error) else " Export to onnx."  # which has no such prompts either
            raise InputError(f"export: {error}{advice}") from error
        if tei:
            _write_old_names(folder, model.encoder)
        agreement = check_vectors(TARGET, model, folder)
        (folder / "README.md").write_text(card, "utf-8")
        write_folder_note(folder, TARGET, model, agreement, {"tei": tei})
    return Export(TARGET, Path(output), space_of(model), agreement)


@contextmanager
def quiet_library() -> Iterator[None]:
    """Silence sentence-transformers and transformers while they load and save."""
    logger = logging.getLogger("sentence_transformers")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with quiet(_extras.require("transformers")):
            yield
    finally:
        logger.setLevel(level)


def check_vectors(target: str, model: SentenceEncoder, folder: Path) -> Agreement:
    """Load a folder as a user of the library would, and compare the vectors of texts of every role."""
    library = _extras.require("sentence_transformers")
    loaded = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    methods = (loaded.encode, loaded.encode_query, loaded.encode_document)
    agreement = total(
        compare_on_texts(model, partial(method, show_progress_bar=False), has_zero_rows=False, role=role)
        for role, method in zip(ROLES, methods, strict=True)
    )
    require_agreement(target, agreement)
    return agreement


def as_sentence_transformer(model: SentenceEncoder) -> Any:
    """A ``SentenceTransformer`` that gives the vectors of a model."""
    encoder, prompts = model.encoder, named_prompts(model.encoder)
    try:
        return _extras.require("sentence_transformers").SentenceTransformer(
            modules=[*_encoder_modules(encoder), *postprocessing_modules(model)],
            device="cpu",
            similarity_fn_name="cosine",
            prompts=prompts,
            default_prompt_name=DEFAULT_PROMPT if DEFAULT_PROMPT in prompts else None,
        )
    except (ValueError, StrictDataclassError) as error:
        if isinstance(error, InputError):
            raise
        reason = " ".join(str(error).split()).rstrip(".")
        options = ", ".join(f"{name}={value}" for name, value in encoder.options.items() if value)
        raise InexpressibleError(
            f"sentence-transformers cannot hold {encoder.reference} with {options}: {reason}."
        ) from error


def postprocessing_modules(model: SentenceEncoder) -> list[Any]:
    """What follows the encoder of a model, as modules of sentence-transformers."""
    modules = _modules()
    steps = model.record.postprocessing
    if steps.nonlinear is not None:
        raise InexpressibleError(
            f"sentence-transformers has no module for {steps.nonlinear.noun}, and the model ends with one."
        )
    maps = [_dense(each) for each in steps.maps]
    if steps.has_roles:
        maps = [modules.Router.for_query_document(maps[1:], maps[:1])]
    return [*maps, *([modules.Normalize()] if model.normalize else [])]


def _dense(linear_map: LinearMap) -> Any:
    torch = _extras.require("torch")
    weight, bias = (torch.from_numpy(a.astype(np.float32)) for a in (linear_map.weight.T.copy(), linear_map.bias))
    return _modules().Dense(
        linear_map.dim,
        linear_map.n_components,
        bias=True,
        activation_function=torch.nn.Identity(),
        init_weight=weight,
        init_bias=bias,
    )


def _modules() -> Any:
    return _extras.require("sentence_transformers").sentence_transformer.modules


def _encoder_modules(encoder: Encoder) -> list[Any]:
    if isinstance(encoder, StaticEncoder):
        return _static_modules(encoder)
    if isinstance(encoder, TransformerEncoder):
        return _transformer_modules(encoder)
    raise InexpressibleError("sentence-transformers needs an encoder of texts; this model takes vectors.")


def _static_modules(encoder: StaticEncoder) -> list[Any]:
    modules = _modules()
    tokenizer, token_vectors = static_tokenizer(encoder), np.array(encoder.token_vectors)
    skipped = unknown_id(encoder)
    if skipped is not None:
        # The encoder skips the unknown token, the library counts it: its vector is zero, but the mean divides by more
        # tokens. Scaling to length 1 undoes that. With byte fallback, the token only appears when it is written out in
        # a text, which the tokenizer can drop.
        token_vectors[skipped] = 0
        if not encoder.normalize:
            if not getattr(tokenizer.model, "byte_fallback", False):
                raise InexpressibleError(
                    f"{encoder.reference} skips unknown tokens and StaticEmbedding of sentence-transformers counts "
                    "them, so the means differ. Load the encoder with normalize=true."
                )
            tokenizer = without_literal(tokenizer, skipped)
    embedding = modules.StaticEmbedding(tokenizer, embedding_weights=token_vectors)
    following = _following_modules(encoder.modules, embedding.embedding_dim)
    return [embedding, *following, *([modules.Normalize()] if encoder.normalize else [])]


_THEIR_POOLINGS = {
    "mean": "mean",
    "cls": "cls",
    "max": "max",
    "mean_sqrt_len": "mean_sqrt_len_tokens",
    "last_token": "lasttoken",
    "weighted_mean": "weightedmean",
}


def _transformer_modules(encoder: TransformerEncoder) -> list[Any]:
    """The transformer up to the highest layer in use, the mean of its layers, the poolings, the modules after them."""
    _check_expressible(encoder)
    modules, folder, layer_pooling = _modules(), encoder.module_folder, encoder.own_layer_pooling
    # if this were left out, transformers would ask at the terminal whether to run code of the folder
    untrusted = {"trust_remote_code": False, "local_files_only": True}
    config: dict[str, Any] = dict(untrusted)
    if len(encoder.layers) > 1:
        config["output_hidden_states"] = True
    if layer_pooling.highest < encoder.n_layers:
        attribute_map = encoder.model.config.attribute_map  # gpt2 calls it n_layer
        config[attribute_map.get("num_hidden_layers", "num_hidden_layers")] = layer_pooling.highest
    transformer = modules.Transformer(
        str(folder.transformer),
        model_kwargs={
            "dtype": encoder.model.dtype,
            "use_safetensors": any(folder.transformer.glob("*.safetensors")),
            **untrusted,
        },
        # texts as they are, without the chat template that a tokenizer may have
        modality_config={"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        module_output_name="token_embeddings",
        processor_kwargs=dict(untrusted),  # the library changes it
        config_kwargs=config,
        max_seq_length=encoder.max_length,
        do_lower_case=folder.lowercase,
    )
    dim, mean = transformer.get_embedding_dimension(), []
    if len(encoder.layers) > 1:
        torch = _extras.require("torch")
        weights = torch.zeros(layer_pooling.highest + 1)
        for layer, weight in layer_pooling.layers:
            weights[layer] = weight
        mean = [
            modules.WeightedLayerPooling(
                dim,
                num_hidden_layers=layer_pooling.highest,
                layer_start=0,
                layer_weights=torch.nn.Parameter(weights),
            )
        ]
    names = tuple(_THEIR_POOLINGS[name] for name in layer_pooling.poolings)
    pooling = modules.Pooling(dim, pooling_mode=names, include_prompt=folder.pools_prompt)
    following = _following_modules(encoder.modules, pooling.get_embedding_dimension())
    return [transformer, *mean, pooling, *following]


def _following_modules(loaded: Iterable[LoadedModule], dim: int) -> list[Any]:
    """The modules of an encoder that follow vectors of `dim` dimensions."""
    following = []
    for module in loaded:
        if module.spec.kind == TRUNCATE:
            following.append(_truncation(dim, module.out_dim))
        else:
            kind = getattr(_modules(), module.spec.kind)
            following.append(kind() if module.spec.kind == NORMALIZE else kind.load(str(module.spec.folder)))
        dim = module.out_dim
    return following


def _truncation(dim: int, n_dims: int) -> Any:
    """The leading dimensions as a Dense, so that other modules can follow; training leaves it as it is."""
    torch = _extras.require("torch")
    leading, identity = torch.eye(n_dims, dim), torch.nn.Identity()
    dense = _modules().Dense(dim, n_dims, bias=False, activation_function=identity, init_weight=leading)
    return dense.requires_grad_(False)


def _check_expressible(encoder: TransformerEncoder) -> None:
    """Refuse what the library has no module for, or what its modules do differently."""
    poolings = encoder.own_layer_pooling.poolings
    if unknown := [name for name in poolings if name not in _THEIR_POOLINGS]:
        raise InexpressibleError(
            f"sentence-transformers has no pooling {unknown[0]}. It has {', '.join(_THEIR_POOLINGS)}."
        )
    if len(encoder.layers) > 1 and "max" in poolings:
        raise InexpressibleError(
            "sentence-transformers averages layers before pooling and isosent after it, which differs for pooling=max. "
            "Use another pooling or one layer."
        )
    if placed := next((prompt for prompt in named_prompts(encoder).values() if TEXT_PLACE in prompt), None):
        raise InexpressibleError(
            f"sentence-transformers puts prompts before texts only, and {placed!r} has a place {TEXT_PLACE}. Leave the "
            "prompt out, and write its words into the texts."
        )
    skips_prompts = not encoder.module_folder.pools_prompt and any(named_prompts(encoder).values())
    if skips_prompts and "weighted_mean" in poolings:
        raise InexpressibleError(
            "pooling weighted_mean cannot leave out the tokens of a prompt there: sentence-transformers counts "
            "positions from the start of the prompt. Use another pooling."
        )
    if encoder.tokenizer.pad_token_id is None:
        raise InexpressibleError(
            f"sentence-transformers needs a padding token; the tokenizer of {encoder.reference} has none."
        )
    if type(encoder.model).__module__.startswith("transformers_modules."):
        raise InexpressibleError(f"{encoder.reference} needs code from its folder, which is not copied.")


# Text Embeddings Inference (TEI) reads the module names and settings of releases before 6 of sentence-transformers.
_TEI_POOLINGS = {"cls": "cls_token", "mean": "mean_tokens", "last_token": "lasttoken"}
_TEI_FLAGS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_OLD_PREFIX = "sentence_transformers.models."


def _check_servable(model: SentenceEncoder) -> None:
    """Refuse what Text Embeddings Inference would serve with other vectors."""
    encoder = model.encoder
    if not isinstance(encoder, TransformerEncoder):
        raise InputError(f"export: tei=true: the encoder {encoder.reference} is no transformer. Leave tei out.")
    pooling, kinds = encoder.options["pooling"], [module.spec.kind for module in encoder.modules]
    before_map = kinds if model.linear_map is not None else kinds[:-1]
    problem = None
    if len(encoder.layers) > 1:
        problem = f"the server uses one layer, and the model has layers={encoder.options['layers']}."
    elif pooling not in _TEI_POOLINGS:
        problem = f"the server has no pooling {pooling}. It has {', '.join(_TEI_POOLINGS)}."
    elif encoder.prompt:
        problem = f"the server gets prompts with each request; the model adds {encoder.prompt!r} to every text."
    elif not encoder.module_folder.pools_prompt and any(named_prompts(encoder).values()):
        problem = "the server pools the tokens of prompts; the model does not."
    elif model.record.postprocessing.has_roles:
        problem = "the server applies one map; the model has another one for queries."
    elif "LayerNorm" in kinds or "Normalize" in before_map:
        raise InputError(
            "export: tei=true: the server scales to length 1 only at the end and has no LayerNorm, and the model has "
            f"{', '.join(kinds)} before the map. Load the encoder with normalize=false and fit again."
        )
    if problem:
        raise InputError(f"export: tei=true: {problem} Leave out tei=true.")


def _write_old_names(folder: Path, encoder: Encoder) -> None:
    """Rename the modules of a folder and rewrite their settings for TEI."""

    def write(path: Path, document: object) -> None:
        path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")

    modules = read_json(folder / "modules.json", list[Module])
    for module in modules:
        module["type"] = _OLD_PREFIX + module["type"].rpartition(".")[2]
    write(folder / "modules.json", modules)
    name = next(module["path"] for module in modules if module["type"] == _OLD_PREFIX + "Pooling")
    pooling = path_inside(folder, name, folder / "modules.json") / "config.json"
    settings = read_json(pooling, PoolingConfig)
    flags = {f"pooling_mode_{flag}": flag == _TEI_POOLINGS[encoder.options["pooling"]] for flag in _TEI_FLAGS}
    dim = settings.get("embedding_dimension", settings.get("word_embedding_dimension"))
    write(pooling, {"word_embedding_dimension": dim, **flags, "include_prompt": True})
    limit = encoder.options["max_length"]
    max_length = {} if limit == "none" else {"max_seq_length": int(limit)}
    write(folder / "sentence_bert_config.json", {**max_length, "do_lower_case": False})


_USAGE = """## Use

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("FOLDER")
vectors = model.encode(["A man is riding a horse.", "Someone rides a horse."])
print(model.similarity(vectors, vectors))
```

For search, encode queries with `encode_query` and documents with `encode_document`: they add the prompts, if any.
"""


def _model_card(model: SentenceEncoder, results: EvaluationResult | None) -> str:
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
        f"- Scaled to length 1 after the map: {'yes' if model.normalize else 'no'}",
        f"- Fingerprint of the vector space: `{model.fingerprint}`",
        "",
        "Only vectors with the same fingerprint can be compared. All settings are in `isosent.json`. Leave out texts",
        "without tokens: isosent gives them the zero vector, this folder does not.",
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
        raise wrong_value(
            "export",
            "results",
            "be what isosent.evaluate or read_result returned",
            type(results).__name__,
            error=InputTypeError,
        )
    measured = Space.of(results.model)
    same_space("the model", space_of(model), "export: the result file", measured)
    if results.fitting["transform"] is not None:
        data = option("data", "DIR")
        raise InputError(
            f"export: {option('results')}: the scores were measured with a transform fitted for them, not with the "
            "model alone. Evaluate the model itself: "
            f"{next_step(f'isosent evaluate sts -m MODEL -o scores.json {data}', 'isosent.evaluate(model, DIR)')}"
        )
    rows = [
        f"| {name} | {task.metric} | {x100(task.score)}{task.mark} | {interval_x100(task.interval)} | {task.n_items} |"
        for name, task in results.tasks.items()
    ]
    return [
        "## Evaluation",
        "",
        "x100; spearman and pearson are correlations of cosines with human scores over all pairs of a task:",
        "",
        "| task | metric | score | 95% interval | items |",
        "|---|---|---:|---:|---:|",
        *rows,
        "",
        *(line for note in results.deviation_notes for line in (f"{note}.", "")),
    ]
