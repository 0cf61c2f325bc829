"""The application: paths, handlers, and the OpenAPI document that describes them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isosent.model import SentenceEncoder
from isosent.search.index import Index
from isosent.server import openai, own, page, tei
from isosent.server.http import Gate, json_response, raise_error
from isosent.server.limits import Limits
from isosent.server.metrics import Metrics
from isosent.server.registry import Registry, Source, is_ordered
from isosent.server.service import Service


class Endpoint(NamedTuple):
    """A path and what answers it."""

    path: str
    handler: Callable[[Request], Any]
    summary: str
    body: type[msgspec.Struct] | None = None
    answer: Mapping[str, Any] | None = None  # JSON schema; None for an answer that is no JSON
    needs_key: bool = True

    @property
    def method(self) -> str:
        """GET, or POST if it has a body."""
        return "POST" if self.body is not None or self.path.startswith("/admin/") else "GET"


def _listed(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": dict(items)}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_NUMBER, _INTEGER, _STRING = {"type": "number"}, {"type": "integer"}, {"type": "string"}
_VECTOR = _listed(_NUMBER)
_ANY = {"type": "object"}

ENDPOINTS = (
    Endpoint(
        "/v1/embeddings",
        openai.embeddings,
        "Embed texts, as OpenAI does.",
        openai.EmbeddingsBody,
        _object(object=_STRING, data=_listed(_object(index=_INTEGER)), model=_STRING, usage=_ANY),
    ),
    Endpoint("/v1/models", openai.models, "List the models.", answer=_object(object=_STRING, data=_listed(_ANY))),
    Endpoint("/v1/models/{name:path}", openai.model, "Describe a model.", answer=_object(id=_STRING, object=_STRING)),
    Endpoint("/embed", tei.embed, "Embed texts, as Text Embeddings Inference does.", tei.EmbedBody, _listed(_VECTOR)),
    Endpoint("/", tei.root, "The same, or compare a text with others.", tei.RootBody, {"type": "array"}),
    Endpoint("/embed_all", tei.embed_all, "Embed each token.", tei.EmbedAllBody, _listed(_listed(_VECTOR))),
    Endpoint("/similarity", tei.similarity, "Compare a text with others.", tei.SimilarityBody, _VECTOR),
    Endpoint("/tokenize", tei.tokenize, "Split texts into tokens.", tei.TokenizeBody, _listed(_listed(_ANY))),
    Endpoint("/info", tei.info, "Describe the first model, and the limits.", answer=_object(model_id=_STRING)),
    Endpoint("/health", tei.health, "Whether the process lives.", needs_key=False),
    Endpoint("/search", own.search, "Find the nearest rows of an index.", own.SearchBody, _object(hits=_listed(_ANY))),
    Endpoint(
        "/explain",
        own.explain,
        "Which words make two texts similar.",
        own.ExplainBody,
        _object(cosine=_NUMBER, pairs=_listed(_ANY)),
    ),
    Endpoint(
        "/compare",
        page.compare,
        "Which of two models ranks related texts higher, without labels.",
        page.CompareBody,
        _object(verdict=_STRING, difference=_NUMBER, low=_NUMBER, high=_NUMBER, n_texts=_INTEGER),
    ),
    Endpoint("/try", page.try_texts, "Take texts to try whitening on.", page.TryBody, _object(id=_STRING)),
    Endpoint("/try/draw", page.draw, "What a strength and a width change.", page.DrawBody, _ANY),
    Endpoint("/try/model", page.download, "The model of a strength and a width, as a zip.", page.DrawBody),
    Endpoint("/status", page.status, "Models, queues and limits.", answer=_object(models=_listed(_ANY))),
    Endpoint("/ready", own.ready, "Whether requests should be sent here.", answer=_ANY, needs_key=False),
    Endpoint("/metrics", own.metrics, "Metrics for Prometheus."),
    Endpoint("/admin/reload", own.reload, "Load all models again.", answer=_ANY),
)


def create_app(
    models: Mapping[str, SentenceEncoder | Index | Source],
    *,
    limits: Limits = Limits(),  # noqa: B008
    keys: Sequence[str] = (),
    hosts: Sequence[str] | None = None,
) -> Starlette:
    """Make an ASGI application that serves models.

    Parameters
    ----------
    models : mapping of str to SentenceEncoder, Index or function
        What is served under each name. A function without arguments that returns one of the two can be called again, by
        a reload.
    limits : Limits, optional
        What is accepted.
    keys : sequence of str, optional
        Keys of clients; without keys, everybody may ask.
    hosts : sequence of str, optional
        Names that browsers may call the server by; any by default.

    Returns
    -------
    Starlette
        The application, for uvicorn or another ASGI server.

    Raises
    ------
    InputError
        If a model cannot encode texts.

    Examples
    --------
    >>> import isosent
    >>> from isosent.server import create_app
    >>> app = create_app({"wordllama": isosent.load("wordllama")})
    """
    metrics = Metrics()
    sources: dict[str, Source] = {
        name: partial(_same, model) if isinstance(model, (SentenceEncoder, Index)) else model
        for name, model in models.items()
    }
    registry = Registry(sources, limits=limits, metrics=metrics)
    endpoints = [*ENDPOINTS, Endpoint("/openapi.json", openapi, "This description.", answer=_ANY, needs_key=False)]
    open_paths = frozenset(["/", *(endpoint.path for endpoint in endpoints if not endpoint.needs_key)])
    paths = frozenset(["/", "/try/file", *(endpoint.path for endpoint in endpoints)])
    pages = [
        Route("/", page.index),
        Route("/page/{name}", page.file),
        Route("/try/file", page.try_file, methods=["POST"]),
    ]
    app = Starlette(
        routes=[*pages, *(Route(each.path, each.handler, methods=[each.method]) for each in endpoints)],
        middleware=[Middleware(Gate, keys=keys, paths=paths, open_paths=open_paths, hosts=hosts, metrics=metrics)],
        exception_handlers={HTTPException: raise_error},
        lifespan=_lifespan,
    )
    app.state.service = Service(registry, limits, metrics, has_keys=bool(keys))
    return app


def _same(model: SentenceEncoder | Index) -> SentenceEncoder | Index:
    return model


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    yield
    app.state.service.heavy.close()
    await asyncio.to_thread(app.state.service.registry.close)


async def openapi(request: Request) -> Response:
    """Describe the paths, and what the first model takes."""
    document, model = openapi_document(), request.app.state.service.registry.get(None).model
    bounds = {"minimum": 1 if is_ordered(model) else model.dim, "maximum": model.dim}
    for schema in document["components"]["schemas"].values():
        properties = schema["properties"]
        if "dimensions" in properties:
            properties["dimensions"] = {"anyOf": [{"type": "integer"} | bounds, {"type": "null"}]}
    return json_response(document)


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of the server."""
    bodies = [endpoint.body for endpoint in ENDPOINTS if endpoint.body is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(bodies, schemas, strict=True))
    for body, name in ((openai.EmbeddingsBody, "input"), (tei.EmbedBody, "inputs"), (tei.EmbedAllBody, "inputs")):
        components[body.__name__]["properties"][name] = openai.INPUT_SCHEMA
    compared = {"$ref": f"#/components/schemas/{tei.SimilarityInputs.__name__}"}
    components[tei.RootBody.__name__]["properties"]["inputs"] = {"anyOf": [*openai.INPUT_SCHEMA["anyOf"], compared]}
    paths: dict[str, Any] = {}
    for endpoint in ENDPOINTS:
        operation: dict[str, Any] = {"summary": endpoint.summary, "responses": _responses(endpoint)}
        if endpoint.body is not None:
            content = {"application/json": {"schema": schema_of[endpoint.body]}}
            operation["requestBody"] = {"required": True, "content": content}
        if "{name" in endpoint.path:
            operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": _STRING}]
        if endpoint.needs_key:
            operation["security"] = [{"key": []}, {}]
        paths[endpoint.path.replace(":path", "")] = {endpoint.method.lower(): operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "isosent", "version": version("isosent")},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


_REFUSALS = {
    400: "Malformed, or an input that is empty or of another vocabulary.",
    401: "No key, or a wrong one.",
    403: "Not allowed.",
    404: "No such model, index or path.",
    405: "Another method.",
    408: "The request did not arrive in time.",
    409: "Another vector space than that of If-Space.",
    413: "Larger than a limit.",
    415: "No JSON.",
    421: "Another host name.",
    422: "A value that cannot be used.",
    424: "The model failed.",
    429: "Too many tokens wait. See Retry-After.",
    500: "The server failed.",
    503: "The server is about to stop.",
}


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    content = None if endpoint.answer is None else {"application/json": {"schema": endpoint.answer}}
    answered = {"description": "Done."} | ({} if content is None else {"content": content})
    return {"200": answered} | {str(status): {"description": text} for status, text in _REFUSALS.items()}
