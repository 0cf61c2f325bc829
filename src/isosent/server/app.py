"""The application: paths, handlers, and the OpenAPI document that describes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Any, NamedTuple

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isosent.model import SentenceEncoder
from isosent.search.index import Index
from isosent.server import dialects, http, isosent_api, page
from isosent.server.embeddings import EmbeddingsBody, is_ordered
from isosent.server.limits import Limits
from isosent.server.registry import ModelLoader, ModelPair, ModelService


class Endpoint(NamedTuple):
    """A path and what answers it."""

    path: str
    handler: Callable[..., Any]  # of the request, and of its body if there is one
    summary: str
    body: type[msgspec.Struct] | None = None
    answer: Mapping[str, Any] | None = None  # JSON schema; None for an answer that is no JSON
    needs_key: bool = True
    wrong: int = 422  # status for a body that is JSON, but not as it should be

    @property
    def method(self) -> str:
        """GET, or POST if it has a body."""
        return "POST" if self.body is not None or self.path.startswith("/admin/") else "GET"

    @property
    def route(self) -> Route:
        """The path and its handler, which gets the body if there is one."""
        handler = self.handler if self.body is None else http.reading(self.handler, self.body, wrong=self.wrong)
        return Route(self.path, handler, methods=[self.method])


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
        dialects.embeddings,
        "Embed texts, as OpenAI does.",
        EmbeddingsBody,
        _object(object=_STRING, data=_listed(_object(index=_INTEGER)), model=_STRING, usage=_ANY),
        wrong=400,
    ),
    Endpoint("/v1/models", dialects.models, "List the models.", answer=_object(object=_STRING, data=_listed(_ANY))),
    Endpoint("/v1/models/{name:path}", dialects.model, "Describe a model.", answer=_object(id=_STRING, object=_STRING)),
    Endpoint(
        "/embed",
        dialects.embed,
        "Embed texts, as Text Embeddings Inference does.",
        dialects.EmbedBody,
        _listed(_VECTOR),
    ),
    Endpoint("/", dialects.root, "The same, or compare a text with others.", dialects.RootBody, {"type": "array"}),
    Endpoint("/embed_all", dialects.embed_all, "Embed each token.", dialects.EmbedAllBody, _listed(_listed(_VECTOR))),
    Endpoint("/similarity", dialects.similarity, "Compare a text with others.", dialects.SimilarityBody, _VECTOR),
    Endpoint("/tokenize", dialects.tokenize, "Split texts into tokens.", dialects.TokenizeBody, _listed(_listed(_ANY))),
    Endpoint("/info", dialects.info, "Describe the first model, and the limits.", answer=_object(model_id=_STRING)),
    Endpoint("/health", http.health, "Whether the process lives.", needs_key=False),
    Endpoint(
        "/search",
        isosent_api.search,
        "Find the nearest rows of an index.",
        isosent_api.SearchBody,
        _object(hits=_listed(_ANY)),
    ),
    Endpoint(
        "/explain",
        isosent_api.explain,
        "Which words make two texts similar.",
        isosent_api.ExplainBody,
        _object(cosine=_NUMBER, pairs=_listed(_ANY)),
    ),
    Endpoint(
        "/compare",
        isosent_api.compare,
        "Which of two models ranks related texts higher, without labels.",
        isosent_api.CompareBody,
        _object(verdict=_STRING, difference=_NUMBER, low=_NUMBER, high=_NUMBER, n_texts=_INTEGER),
    ),
    Endpoint("/try", page.try_texts, "Take texts to try whitening on.", page.TryBody, _object(id=_STRING)),
    Endpoint("/try/draw", page.draw, "What a strength and a width change.", page.DrawBody, _ANY),
    Endpoint("/try/model", page.download, "The model of a strength and a width, as a zip.", page.DrawBody),
    Endpoint("/status", isosent_api.status, "Models, queues and limits.", answer=_object(models=_listed(_ANY))),
    Endpoint("/ready", http.ready, "Whether requests should be sent here.", answer=_ANY, needs_key=False),
    Endpoint("/metrics", http.metrics, "Metrics for Prometheus."),
    Endpoint("/admin/reload", isosent_api.reload, "Load all models again.", answer=_ANY),
)


def create_app(
    models: Mapping[str, SentenceEncoder | Index | ModelPair | ModelLoader],
    *,
    limits: Limits = Limits(),  # noqa: B008
    keys: Sequence[str] = (),
    hosts: Sequence[str] | None = None,
) -> Starlette:
    """Make an ASGI application that serves models.

    Parameters
    ----------
    models : mapping of str to SentenceEncoder, Index, tuple or function
        What is served under each name. A tuple is a model and the static model, distilled from it, that answers its
        queries. A function without arguments that returns one of these can be called again, by a reload.
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
        If a model cannot encode texts, or a static model is not of the space of its model.

    Examples
    --------
    >>> import isosent
    >>> from isosent.server import create_app
    >>> app = create_app({"wordllama": isosent.load("wordllama")})
    """
    sources: dict[str, ModelLoader] = {
        name: partial(_same, model) if isinstance(model, (SentenceEncoder, Index, tuple)) else model
        for name, model in models.items()
    }
    endpoints = [*ENDPOINTS, Endpoint("/openapi.json", openapi, "This description.", answer=_ANY, needs_key=False)]
    pages = [
        Route("/", page.index),
        Route("/page/{name}", page.file),
        Route("/try/file", http.reading(page.try_file, bytes), methods=["POST"]),
    ]
    app = http.application(
        ModelService(sources, limits, has_keys=bool(keys)),
        [*(endpoint.route for endpoint in endpoints), *pages],
        open_paths=["/", *(endpoint.path for endpoint in endpoints if not endpoint.needs_key)],
        keys=keys,
        hosts=hosts,
    )
    app.state.text_sets = page.TextSets()
    return app


def _same(model: SentenceEncoder | Index | ModelPair) -> SentenceEncoder | Index | ModelPair:
    return model


async def openapi(request: Request) -> Response:
    """Describe the paths, and what the first model takes."""
    document, model = openapi_document(), request.app.state.service.registry.get(None).model
    bounds = {"minimum": 1 if is_ordered(model) else model.dim, "maximum": model.dim}
    for schema in document["components"]["schemas"].values():
        properties = schema["properties"]
        if "dimensions" in properties:
            properties["dimensions"] = {"anyOf": [{"type": "integer"} | bounds, {"type": "null"}]}
    return http.json_response(document)


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of the server."""
    bodies = [endpoint.body for endpoint in ENDPOINTS if endpoint.body is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    schema_of = dict(zip(bodies, schemas, strict=True))
    for body, name in ((EmbeddingsBody, "input"), (dialects.EmbedBody, "inputs"), (dialects.EmbedAllBody, "inputs")):
        components[body.__name__]["properties"][name] = dialects.INPUT_SCHEMA
    compared = {"$ref": f"#/components/schemas/{dialects.SimilarityInputs.__name__}"}
    components[dialects.RootBody.__name__]["properties"]["inputs"] = {
        "anyOf": [*dialects.INPUT_SCHEMA["anyOf"], compared]
    }
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
