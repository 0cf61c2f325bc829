"""The paths of Text Embeddings Inference, with its bodies and status codes."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from isosent.numeric.similarity import cosine_matrix
from isosent.server.http import json_response, read_body, unless_gone, vectors_response
from isosent.server.limits import RequestError
from isosent.server.openai import Side, Text, Texts, texts_of
from isosent.server.registry import Served, check_dimensions, cut, role_of, with_current
from isosent.server.service import Service, check_space, space_headers

_MOST_TOKENIZED = 1 << 18  # characters; each token is an object of its own, of 500 bytes, on the way to JSON


class EmbedOptions(Struct, kw_only=True):
    """How texts are embedded."""

    truncate: bool | None = None  # false refuses long texts; otherwise they are cut, and counted in a header
    truncation_direction: Literal["Right", "right"] | None = None
    normalize: bool = True
    prompt_name: Side | None = None
    dimensions: int | None = None
    model: str | None = None


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


async def embed(request: Request) -> Response:
    """Embed texts."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, EmbedBody)
    return await _embed(request, body.inputs, body)


async def root(request: Request) -> Response:
    """Embed texts, or compare them: clients of Inference Endpoints name no path."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, RootBody)
    if isinstance(body.inputs, SimilarityInputs):
        return await _similarity(request, body.inputs, body.parameters or SimilarityParameters(), body.model)
    return await _embed(request, body.inputs, body)


async def _embed(request: Request, inputs: str | list[Any], options: EmbedOptions) -> Response:
    service: Service = request.app.state.service

    async def answer(served: Served) -> Response:
        check_dimensions(served.model, served.name, options.dimensions)
        space = served.space(options.dimensions)
        check_space(request, space)
        vectors, headers = await _embedded(request, served, await texts_of(inputs, served, service, "inputs"), options)
        rows = cut(vectors, options.dimensions, normalize=options.normalize)
        headers["X-Isosent-Space"] = space
        return await vectors_response(lambda: np.ascontiguousarray(rows), rows.size, headers)

    response: Response = await with_current(lambda: service.registry.text_model(options.model), answer)
    return response


async def embed_all(request: Request) -> Response:
    """Embed the tokens of texts, before they are pooled and mapped."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, EmbedAllBody)

    async def answer(served: Served) -> Response:
        check_space(request, served.space())
        texts = await texts_of(body.inputs, served, service, "inputs")
        encoder, most = served.model.encoder, service.limits.max_batch_tokens

        def embedded() -> list[NDArray[np.float32]]:
            n_tokens = len(encoder.tokenize(texts).ids)
            if n_tokens > most:
                raise RequestError(413, f"inputs have {n_tokens} tokens; at most {most} (--max-batch-tokens).")
            return [encoder.token_embeddings(text) for text in texts]

        call = served.worker.call(embedded, n_characters=sum(map(len, texts)))
        vectors = await unless_gone(request, call)
        return await vectors_response(lambda: vectors, sum(array.size for array in vectors))

    response: Response = await with_current(lambda: service.registry.text_model(body.model), answer)
    return response


async def similarity(request: Request) -> Response:
    """Compare a text with others: cosines."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, SimilarityBody)
    return await _similarity(request, body.inputs, body.parameters or SimilarityParameters(), body.model)


async def _similarity(
    request: Request, inputs: SimilarityInputs, parameters: SimilarityParameters, model: str | None
) -> Response:
    service: Service = request.app.state.service

    async def answer(served: Served) -> Response:
        check_space(request, served.space())
        if not inputs.sentences:
            raise RequestError(400, "inputs.sentences must not be empty.", param="inputs")
        texts = [inputs.source_sentence, *inputs.sentences]
        texts = await texts_of(texts, served, service, "inputs")
        vectors, headers = await _embedded(request, served, texts, parameters)
        cosines = cosine_matrix(vectors[:1], vectors[1:])[0]
        return json_response(cosines.tolist(), headers=headers)

    response: Response = await with_current(lambda: service.registry.text_model(model), answer)
    return response


async def tokenize(request: Request) -> Response:
    """Split texts into tokens."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, TokenizeBody)

    async def answer(served: Served) -> Response:
        texts = await texts_of(body.inputs, served, service, "inputs")
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

        call = served.worker.call(lambda: json_response([tokens_of(text) for text in texts]), n_characters=n_characters)
        return await unless_gone(request, call)

    response: Response = await with_current(lambda: service.registry.text_model(body.model), answer)
    return response


async def _embedded(
    request: Request, served: Served, texts: list[str], options: EmbedOptions | SimilarityParameters
) -> tuple[NDArray[np.float32], dict[str, str]]:
    """Vectors of texts, and the headers of the answer."""
    embedded = await unless_gone(request, served.worker.embed(texts, role_of(options.prompt_name)))
    if options.truncate is False and embedded.n_truncated:
        most = served.model.encoder.options.get("max_length")
        raise RequestError(422, f"{embedded.n_truncated} of the inputs must have at most {most} tokens.")
    request.scope["isosent"] |= {"model": served.name, "texts": len(texts), "tokens": embedded.n_tokens}
    headers = space_headers(served.space(), embedded.n_truncated)
    return embedded.vectors, headers | {"X-Compute-Tokens": str(embedded.n_tokens)}


async def info(request: Request) -> Response:
    """Describe the first model, and the limits of the server."""
    service: Service = request.app.state.service
    served = service.registry.get(None)
    encoder, limits = served.model.encoder, service.limits
    length = encoder.options.get("max_length")
    return json_response(
        {
            "model_id": served.name,
            "model_sha": served.space(),
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


async def health(request: Request) -> Response:
    """Say that the process lives."""
    return Response(status_code=200)
