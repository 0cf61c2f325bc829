"""A model as modules of sentence-transformers, in the order in which they are applied."""

from __future__ import annotations

from typing import Any

import numpy as np

from isosent import _extras
from isosent.encoders.base import Encoder
from isosent.encoders.static import StaticEncoder
from isosent.encoders.transformer import TransformerEncoder
from isosent.errors import InputError
from isosent.exports.tokenizer_files import require_invisible_padding, static_tokenizer, unknown_id, without_literal
from isosent.model import SentenceEncoder
from isosent.numeric.linear_map import LinearMap


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
    InputError
        If the library has no modules for what the model does.
    MissingExtraError
        If it is not installed.
    """
    modules = _library()
    last = [modules.Normalize()] if model.normalize else []
    return [*_encoder_modules(modules, model.encoder), *_map_modules(modules, model), *last]


def _library() -> Any:
    return _extras.require("sentence_transformers").sentence_transformer.modules


def _encoder_modules(modules: Any, encoder: Encoder) -> list[Any]:
    if isinstance(encoder, StaticEncoder):
        return _static_modules(modules, encoder)
    if isinstance(encoder, TransformerEncoder):
        return _transformer_modules(modules, encoder)
    raise InputError(
        "export: a sentence-transformers folder needs an encoder of texts; this model was fitted on bare vectors. "
        "Export to onnx, faiss or numpy."
    )


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
            raise InputError(
                f"export: {encoder.reference} skips unknown tokens, and StaticEmbedding of sentence-transformers "
                "counts them, so the means differ wherever there is one. Open the encoder with normalize=true and fit "
                "again, or export to onnx."
            )
        tokenizer = without_literal(tokenizer, skipped)
    embedding = modules.StaticEmbedding(tokenizer, embedding_weights=token_vectors)
    return [embedding, *([modules.Normalize()] if encoder.normalize else [])]


def _transformer_modules(modules: Any, encoder: TransformerEncoder) -> list[Any]:
    """The transformer up to the highest layer in use, the mean of its layers, the poolings, the heads in force."""
    require_invisible_padding(encoder)
    layers, poolings = encoder.layers, encoder.options["pooling"].split(",")
    several = len(layers) > 1
    if several and "max" in poolings:
        raise InputError(
            "export: sentence-transformers averages layers before pooling and isosent after it, which is not the same "
            "for pooling=max; use another pooling or one layer, or export to onnx."
        )
    limit = encoder.options["max_length"]
    transformer = modules.Transformer(
        str(encoder.module_folder.transformer),
        model_kwargs={"dtype": encoder.model.dtype, "use_safetensors": True},
        config_kwargs=_config_of(encoder),
        max_seq_length=None if limit == "none" else int(limit),
        do_lower_case=encoder.module_folder.lowercase,
    )
    dim = transformer.get_embedding_dimension()
    pooling = modules.Pooling(dim, pooling_mode=tuple(poolings))
    mean = [_mean_of_layers(modules, dim, layers)] if several else []
    return [transformer, *mean, pooling, *(_head(modules, head.module) for head in encoder.heads)]


def _config_of(encoder: TransformerEncoder) -> dict[str, Any]:
    """Leave out the layers above the highest in use."""
    name = encoder.model.config.attribute_map.get("num_hidden_layers", "num_hidden_layers")
    averaged = {"output_hidden_states": True} if len(encoder.layers) > 1 else {}
    truncated = {name: max(encoder.layers)} if max(encoder.layers) < encoder.n_layers else {}
    return averaged | truncated


def _mean_of_layers(modules: Any, dim: int, layers: list[int]) -> Any:
    torch = _extras.require("torch")
    weights = torch.zeros(max(layers) + 1)
    weights[layers] = 1.0
    return modules.WeightedLayerPooling(
        dim, num_hidden_layers=max(layers), layer_start=0, layer_weights=torch.nn.Parameter(weights)
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
