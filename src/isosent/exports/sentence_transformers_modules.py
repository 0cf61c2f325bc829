"""A model as modules of sentence-transformers, in the order in which they are applied."""

from __future__ import annotations

from typing import Any

import numpy as np

from isosent import _extras
from isosent.encoders.base import Encoder
from isosent.encoders.prompts import named_prompts
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.exports.tokenizer_files import static_tokenizer, unknown_id, without_literal
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap

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
    """Express a model in modules of sentence-transformers.

    Parameters
    ----------
    model : SentenceEncoder
        The model.

    Returns
    -------
    list of modules
        Transformer, pooling and the folder's own modules, or the static embedding; then the map and the scaling to
        length 1, where the model has them.

    Raises
    ------
    InexpressibleError
        If the library has no modules for what the model does.
    InputError
        If the encoder is no mean of vectors of tokens, or not fitted.
    MissingExtraError
        If the library is not installed.
    """
    return [*_encoder_modules(_library(), model.encoder), *modules_behind(model)]


def modules_behind(model: SentenceEncoder) -> list[Any]:
    """Express what follows the encoder of a model in modules of sentence-transformers.

    Parameters
    ----------
    model : SentenceEncoder
        The model.

    Returns
    -------
    list of modules
        The map and the scaling to length 1, where the model has them.

    Raises
    ------
    InexpressibleError
        If a flow follows the map.
    MissingExtraError
        If the library is not installed.
    """
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
    """The embedding, with a zero vector for the unknown token.

    The encoder skips that token, and the library counts it: it divides by more tokens. Scaling to length 1 undoes that,
    and where bytes stand in for unknown characters, the token only comes up written out, which can be dropped.
    """
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
    names = tuple(THEIR_POOLINGS[name] for name in encoder.own_reading.poolings)
    pooling = modules.Pooling(dim, pooling_mode=names, include_prompt=folder.pools_prompt)
    mean = [_mean_of_layers(modules, dim, encoder)] if len(encoder.layers) > 1 else []
    return [transformer, *mean, pooling, *(_head(modules, head.module) for head in encoder.heads)]


def _check_expressible(encoder: TransformerEncoder) -> None:
    """Refuse what the library has no module for, and what its modules do otherwise."""
    poolings = encoder.own_reading.poolings
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
    highest = encoder.own_reading.highest
    truncated = {name: highest} if highest < encoder.n_layers else {}
    return averaged | truncated


def _mean_of_layers(modules: Any, dim: int, encoder: TransformerEncoder) -> Any:
    torch, highest = _extras.require("torch"), encoder.own_reading.highest
    weights = torch.zeros(highest + 1)
    for layer, weight in encoder.own_reading.layers:
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
