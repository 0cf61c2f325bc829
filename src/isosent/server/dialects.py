"""The paths of OpenAI and of Text Embeddings Inference, with their bodies and status codes.

A handler gets the body of its request and the model that the body names. It has the texts embedded (`embed_texts`) and
answers in its dialect. If a reload replaces the model before that, `on_model` calls the handler with the new one.
Each body is a struct, from which the OpenAPI document is made, too. `EmbedBody` and `RootBody` share `EmbedOptions`.
What a struct does not have is ignored, or refused if it would change vectors (`isosent.server.fields`), and so are
options that the body of ``POST /`` has for the other of its two uses (`_refuse_set`).
"""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import version
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from isosent.numeric.similarity import cosine_matrix
from isosent.server.embeddings import (
    EmbeddingsBody,
    Side,
    checked_space,
    embed_texts,
    embeddings_response,
    refuse_truncated,
    space_of,
    texts_of,
)
from isosent.server.fields import role_of
from isosent.server.http import json_response, on_model, vectors_response
from isosent.server.limits import Limits, RequestError
from isosent.server.registry import ModelService, Served
from isosent.transforms.calibration import RANDOM_PAIRS

_MOST_PERCENTILES = 300  # in a header, of which many proxies take 4 kB
_MOST_TOKENIZED = 1 << 18  # characters; each token is an object of its own, of 500 bytes, on the way to JSON
_AS_IT_IS = (None, True, "Right", "right", "default", "text")  # values of options that say what happens anyway
_IDS = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_TEXT = {"type": "string", "minLength": 1}
INPUT_SCHEMA = {
    "anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}, _IDS, _IDS | {"items": _IDS}],
}
# What is empty gets its own message; the published schema says so, too.
Text = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
Texts = Annotated[list[Text], Meta(extra_json_schema={"minItems": 1})]


# -- OpenAI ------------------------------------------------------------------------------------------------------------


@on_model
async def embeddings(request: Request, body: EmbeddingsBody, served: Served) -> Response:
    """Embed texts."""
    role = role_of(body.prompt_name, body.input_type)
    vectors, n_tokens, headers = await embed_texts(
        request,
        served,
        body.input,
        role=role,
        dimensions=body.dimensions,
        truncate=body.truncate not in (False, "NONE"),
        group=body.group,
    )
    return await embeddings_response(
        request, vectors, name=served.name, n_tokens=n_tokens, encoding_format=body.encoding_format, headers=headers
    )


async def models(request: Request) -> Response:
    """List the models."""
    service: ModelService = request.app.state.service
    return json_response({"object": "list", "data": [_model_facts(served, service) for served in service.registry]})


async def model(request: Request) -> Response:
    """Describe a model."""
    service: ModelService = request.app.state.service
    return json_response(_model_facts(service.registry.get(request.path_params["name"]), service))


def _model_facts(served: Served, service: ModelService) -> dict[str, Any]:
    facts = {"dimensions": served.model.dim, "space": space_of(served.model, None), "index": served.index is not None}
    return {
        "id": served.name,
        "object": "model",
        "created": service.started_at,
        "owned_by": "isosent",
        **facts,
    }


# -- Text Embeddings Inference -----------------------------------------------------------------------------------------


class EmbedOptions(Struct, kw_only=True):
    """How texts are embedded."""

    truncate: bool | None = None  # false refuses long texts; otherwise they are cut, and counted in a header
    truncation_direction: Literal["Right", "right"] | None = None
    normalize: bool = True
    prompt_name: Side | None = None
    dimensions: int | None = None
    model: str | None = None
    group: str | None = None


class EmbedBody(EmbedOptions, kw_only=True):
    """Body of ``POST /embed``."""

    inputs: str | list[Any]


class EmbedAllBody(Struct):
    """Body of ``POST /embed_all``."""

    inputs: str | list[Any]
    truncate: bool | None = None
    truncation_direction: Literal["Right", "right"] | None = None
    model: str | None = None


class SimilarityInputs(Struct):
    """A text, and texts to compare it with."""

    source_sentence: Text
    sentences: Texts


class SimilarityParameters(Struct):
    """How to encode."""

    truncate: bool | None = None
    truncation_direction: Literal["Right", "right"] | None = None
    prompt_name: Side | None = None


class SimilarityBody(Struct):
    """Body of ``POST /similarity``."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None
    model: str | None = None


class RootBody(EmbedOptions, kw_only=True):
    """Body of ``POST /``: that of ``/embed`` or of ``/similarity``, by its inputs."""

    inputs: str | list[Any] | SimilarityInputs
    parameters: SimilarityParameters | None = None


class TokenizeBody(Struct):
    """Body of ``POST /tokenize``."""

    inputs: Text | Texts
    add_special_tokens: bool = True
    model: str | None = None


@on_model
async def embed(request: Request, body: EmbedBody, served: Served) -> Response:
    """Embed texts."""
    return await _embed(request, body.inputs, body, served)


@on_model
async def root(request: Request, body: RootBody, served: Served) -> Response:
    """Embed texts, or compare them: clients of Inference Endpoints name no path."""
    if not isinstance(body.inputs, SimilarityInputs):
        _refuse_set(body.parameters, "parameters")
        return await _embed(request, body.inputs, body, served)
    _refuse_set(body, "")
    return await _similarity(request, body.inputs, body.parameters, served)


def _refuse_set(options: EmbedOptions | SimilarityParameters | None, name: str) -> None:
    """Refuse options that are not those of what is requested, if they say something else than what happens anyway."""
    if options is None:
        return
    kind = SimilarityParameters if name else EmbedOptions
    for field in msgspec.structs.fields(kind):
        if field.name != "model" and getattr(options, field.name) not in _AS_IT_IS:
            place = "next to inputs" if name else "in parameters, if /similarity has it"
            path = f"{name}.{field.name}" if name else field.name
            raise RequestError(422, f"{path} has no effect for these inputs. Send it {place}.", param=path)


async def _embed(request: Request, inputs: str | list[Any], options: EmbedOptions, served: Served) -> Response:
    vectors, n_tokens, headers = await embed_texts(
        request,
        served,
        inputs,
        param="inputs",
        role=role_of(options.prompt_name),
        dimensions=options.dimensions,
        normalize=options.normalize,
        truncate=options.truncate,
        group=options.group,
    )
    headers["X-Compute-Tokens"] = str(n_tokens)
    return await vectors_response(request, lambda: np.ascontiguousarray(vectors), vectors.size, headers)


@on_model
async def embed_all(request: Request, body: EmbedAllBody, served: Served) -> Response:
    """Embed the tokens of texts, before they are pooled and mapped."""
    checked_space(request, served.model, served.name)
    limits: Limits = request.app.state.service.limits
    texts = await texts_of(body.inputs, served, limits, "inputs")
    encoder, most = served.model.encoder, limits.max_batch_tokens

    def token_vectors() -> list[NDArray[np.float32]]:
        tokens = encoder.tokenize(texts)
        if (n_tokens := len(tokens.ids)) > most:
            raise RequestError(413, f"inputs have {n_tokens} tokens; at most {most} (--max-batch-tokens).")
        if body.truncate is False:
            refuse_truncated(served, len(tokens.truncated_rows))
        return [encoder.token_embeddings(text) for text in texts]

    call = served.worker.call(token_vectors, n_characters=sum(map(len, texts)))
    vectors = await call
    return await vectors_response(request, lambda: vectors, sum(array.size for array in vectors))


@on_model
async def similarity(request: Request, body: SimilarityBody, served: Served) -> Response:
    """Compare a text with others: cosines."""
    return await _similarity(request, body.inputs, body.parameters, served)


async def _similarity(
    request: Request, inputs: SimilarityInputs, parameters: SimilarityParameters | None, served: Served
) -> Response:
    if not inputs.sentences:
        raise RequestError(400, "inputs.sentences is empty. Send at least one text.", param="inputs")
    options = parameters or SimilarityParameters()
    vectors, n_tokens, headers = await embed_texts(
        request,
        replace(served, query_worker=None),  # what a cosine means is calibrated for those of the model
        [inputs.source_sentence, *inputs.sentences],
        param="inputs",
        role=role_of(options.prompt_name),
        normalize=False,
        truncate=options.truncate,
    )
    headers["X-Compute-Tokens"] = str(n_tokens)
    cosines, calibration = cosine_matrix(vectors[:1], vectors[1:])[0], served.model.calibration
    if calibration is not None and calibration.kind == RANDOM_PAIRS and len(cosines) <= _MOST_PERCENTILES:
        headers["X-Isosent-Percentiles"] = ",".join(f"{share:.6g}" for share in calibration(cosines))
    return json_response(cosines.tolist(), headers=headers)


@on_model
async def tokenize(request: Request, body: TokenizeBody, served: Served) -> Response:
    """Split texts into tokens."""
    texts = await texts_of(body.inputs, served, request.app.state.service.limits, "inputs")
    if (n_characters := sum(map(len, texts))) > _MOST_TOKENIZED:
        message = f"inputs have {n_characters} characters; at most {_MOST_TOKENIZED} are split into tokens at once."
        raise RequestError(413, message, param="inputs")
    spans = served.model.encoder.spans

    def tokens_of(text: str) -> list[dict[str, Any]]:
        return [
            {"id": span.id, "text": span.text, "special": span.is_special, "start": span.start, "stop": span.stop}
            for span in spans(text)
            if body.add_special_tokens or not span.is_special
        ]

    return await served.worker.call(
        lambda: json_response([tokens_of(text) for text in texts]), n_characters=n_characters
    )


async def info(request: Request) -> Response:
    """Describe the first model, and the limits of the server."""
    service: ModelService = request.app.state.service
    served = service.registry.get(None)
    encoder, limits = served.model.encoder, service.limits
    length = encoder.options.get("max_length")
    return json_response(
        {
            "model_id": served.name,
            "model_sha": served.model.fingerprint,
            "model_dtype": encoder.computed_in,
            "model_type": {"embedding": {"pooling": encoder.options.get("pooling", "mean")}},
            "max_concurrent_requests": limits.max_connections,  # a connection has one request at a time
            "max_input_length": int(length) if length and length.isdigit() else None,
            "max_batch_tokens": limits.max_batch_tokens,
            "max_batch_requests": None,
            "max_client_batch_size": limits.max_texts,
            "auto_truncate": True,
            "tokenization_workers": 1,
            "version": version("isosent"),
            "sha": None,
            "docker_label": None,
            "dimensions": served.model.dim,
            "models": [each.name for each in service.registry],
            "limits": limits.to_json(),
        }
    )
