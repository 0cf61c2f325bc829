"""``/v1/embeddings`` and ``/v1/models``, as OpenAI has them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, Struct
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from isosent.errors import InputError
from isosent.server.http import json_response, read_body, unless_gone, vectors_response
from isosent.server.limits import RequestError
from isosent.server.registry import Served, check_dimensions, cut, role_of, with_current
from isosent.server.service import Service, check_space, space_headers

_IDS = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
_TEXT = {"type": "string", "minLength": 1}
INPUT_SCHEMA = {
    "anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}, _IDS, _IDS | {"items": _IDS}],
}
# What is empty gets its own message; the published schema says so, too.
Text = Annotated[str, Meta(extra_json_schema={"minLength": 1})]
Texts = Annotated[list[Text], Meta(extra_json_schema={"minItems": 1})]
Side = Literal["query", "search_query", "document", "search_document", "passage", "default", "text"]


class EmbeddingsBody(Struct):
    """Body of ``POST /v1/embeddings``."""

    input: str | list[Any]
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    user: str | None = None
    prompt_name: Side | None = None  # which side of a model whose queries and documents differ
    input_type: Side | None = None  # the same


async def embeddings(request: Request) -> Response:
    """Embed texts."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, EmbeddingsBody, wrong=400)

    async def answer(served: Served) -> Response:
        check_dimensions(served.model, served.name, body.dimensions)
        space = served.space(body.dimensions)
        check_space(request, space)
        role = role_of(body.prompt_name, body.input_type)
        texts = await texts_of(body.input, served, service)
        embedded = await unless_gone(request, served.worker.embed(texts, role))
        vectors = cut(embedded.vectors, body.dimensions, normalize=True)
        request.scope["isosent"] |= {"model": served.name, "texts": len(texts), "tokens": embedded.n_tokens}
        headers = space_headers(space, embedded.n_truncated)
        return await embeddings_response(vectors, served.name, embedded.n_tokens, body.encoding_format, headers)

    response: Response = await with_current(lambda: service.registry.text_model(body.model), answer)
    return response


async def embeddings_response(
    vectors: NDArray[np.float32], name: str, n_tokens: int, encoding_format: str | None, headers: Mapping[str, str]
) -> Response:
    """Make a response with vectors, as lists of numbers or as base64 of little-endian float32."""

    def content() -> dict[str, Any]:
        rows: Any = np.ascontiguousarray(vectors)
        if encoding_format == "base64":
            rows = [base64.b64encode(row.tobytes()).decode("ascii") for row in rows.astype("<f4", copy=False)]
        data = [{"object": "embedding", "index": number, "embedding": row} for number, row in enumerate(rows)]
        usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
        return {"object": "list", "data": data, "model": name, "usage": usage}

    return await vectors_response(content, vectors.size, headers)


async def texts_of(values: str | list[Any], served: Served, service: Service, param: str = "input") -> list[str]:
    """Texts of a request: a text, a list of texts, token ids, or a list of lists of token ids."""
    listed = [values] if isinstance(values, str) else values
    if listed and all(type(value) is int for value in listed):
        listed = [listed]
    service.limits.check_texts(len(listed), param)
    if not listed:
        raise RequestError(400, f"{param} must not be empty.", param=param)
    texts = []
    for number, value in enumerate(listed):
        place = param if isinstance(values, str) else f"{param}[{number}]"
        if isinstance(value, list) and value and all(type(each) is int for each in value):
            try:
                value = await asyncio.to_thread(served.model.encoder.decode, value)
            except InputError as error:
                raise RequestError(400, f"{place}: {error}", param=param) from None
        if not isinstance(value, str):
            message = f"{place} must be a text or a list of token ids; got {_kind(value)}."
            raise RequestError(400, message, param=param)
        if not value:
            raise RequestError(400, f"{place} must not be empty.", param=param)
        texts.append(value)
    return texts


def _kind(value: object) -> str:
    names = {dict: "an object", list: "another list", bool: "a bool", int: "a number", float: "a number"}
    return names.get(type(value), "null")


async def models(request: Request) -> Response:
    """List the models."""
    service: Service = request.app.state.service
    return json_response({"object": "list", "data": [_model(served, service) for served in service.registry]})


async def model(request: Request) -> Response:
    """Describe a model."""
    service: Service = request.app.state.service
    return json_response(_model(service.registry.get(request.path_params["name"]), service))


def _model(served: Served, service: Service) -> dict[str, Any]:
    facts = {"dimensions": served.model.dim, "space": served.space(), "index": served.index is not None}
    return {
        "id": served.name,
        "object": "model",
        "created": service.started_at,
        "owned_by": "isosent",
        **facts,
    }
