"""Paths of isosent's own: ``/search``, ``/explain``, ``/ready``, ``/metrics``, ``/admin/reload``."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from isosent.io.json import without_nan
from isosent.search.rows import TEXT
from isosent.server.http import json_response, read_body, unless_gone
from isosent.server.limits import RequestError
from isosent.server.metrics import CONTENT_TYPE
from isosent.server.registry import Served, with_current
from isosent.server.service import Service, check_space, space_headers

_MOST_HITS = 1000
_MOST_EXPLAINED = 100
_LONGEST_EXPLAINED = 4000
_LARGEST_ID = 1 << 63


class SearchBody(Struct, forbid_unknown_fields=True):
    """Body of ``POST /search``: a query, or the id of a row to find more like it."""

    query: str | None = None
    like: int | str | None = None
    k: int = 10
    where: str | None = None
    hybrid: bool = False
    false_alarms: float | None = None
    explain: bool = False
    index: str | None = None


class ExplainBody(Struct, forbid_unknown_fields=True):
    """Body of ``POST /explain``."""

    a: str
    b: str
    model: str | None = None


async def search(request: Request) -> Response:
    """Find the nearest rows of an index."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, SearchBody)

    async def answer(served: Served) -> Response:
        check_space(request, served.space())
        n_characters = len(body.query or "") * (1 + body.k if body.explain else 1)
        call = served.worker.call(lambda: _hits(served, body), n_characters=n_characters)
        hits = await unless_gone(request, call)
        request.scope["isosent"] |= {"index": served.name, "hits": len(hits)}
        return json_response({"index": served.name, "hits": hits}, headers=space_headers(served.space(), 0))

    response: Response = await with_current(lambda: service.registry.get(body.index, "index"), answer)
    return response


def _hits(served: Served, body: SearchBody) -> list[dict[str, Any]]:
    index = served.index
    assert index is not None
    if (body.query is None) == (body.like is None):
        raise RequestError(422, "name a query, or a row with like; not both.")
    if not 1 <= body.k <= _MOST_HITS:
        raise RequestError(422, f"k must be from 1 to {_MOST_HITS}; got {body.k}.", param="k")
    if body.explain and body.k > _MOST_EXPLAINED:
        raise RequestError(422, f"explain takes at most {_MOST_EXPLAINED} hits; got k={body.k}.", param="k")
    if body.explain and (body.query is None or TEXT not in index.schema.names):
        raise RequestError(422, "explain needs a query, and an index with texts.", param="explain")
    if body.explain and len(body.query or "") > _LONGEST_EXPLAINED:
        raise RequestError(422, f"explain takes a query of at most {_LONGEST_EXPLAINED} characters.", param="explain")
    if body.like is not None:
        if body.hybrid or body.false_alarms is not None:
            raise RequestError(422, "hybrid and false_alarms need a query.", param="like")
        row: Any = body.like
        if isinstance(row, str) != (str(index.schema.field("id").type) == "string"):
            raise RequestError(422, f"the ids of this index are of type {index.schema.field('id').type}.", param="like")
        if isinstance(row, int) and not -_LARGEST_ID <= row < _LARGEST_ID:
            raise RequestError(422, "the id is no 64-bit number.", param="like")
        result = index.more_like([row], body.k, where=body.where)
    else:
        query = body.query or ""
        result = index.search(query, body.k, where=body.where, hybrid=body.hybrid, false_alarms=body.false_alarms)
    hits = without_nan(result.to_arrow().drop(["query"]).to_pylist())
    if body.explain:
        for hit in hits:
            explanation = index.model.explain(
                body.query or "", (hit["text"] or "")[:_LONGEST_EXPLAINED], roles=("query", "document")
            )
            hit["words"] = [pair._asdict() for pair in explanation.top(5)]
    listed: list[dict[str, Any]] = hits
    return listed


async def explain(request: Request) -> Response:
    """Say which words make two texts similar."""
    service: Service = request.app.state.service
    body = await read_body(request, service.limits, ExplainBody)

    async def answer(served: Served) -> Response:
        n_characters = len(body.a) + len(body.b)
        if max(len(body.a), len(body.b)) > _LONGEST_EXPLAINED:
            raise RequestError(422, f"a text to be explained has at most {_LONGEST_EXPLAINED} characters.")

        def explained() -> dict[str, Any]:
            explanation = served.model.explain(body.a, body.b)
            pairs = [pair._asdict() for pair in explanation.top()]
            return {"cosine": explanation.cosine, "pairs": pairs}

        content = await unless_gone(request, served.worker.call(explained, n_characters=n_characters))
        return json_response(content, headers=space_headers(served.space(), 0))

    response: Response = await with_current(lambda: service.registry.text_model(body.model), answer)
    return response


async def ready(request: Request) -> Response:
    """Say whether requests should be sent here."""
    service: Service = request.app.state.service
    if service.is_draining:
        return json_response({"status": "draining"}, 503, {"Retry-After": "1"})
    return json_response({"status": "ready"})


async def metrics(request: Request) -> Response:
    """Return metrics for Prometheus."""
    service: Service = request.app.state.service
    return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


async def reload(request: Request) -> Response:
    """Load all models again."""
    service: Service = request.app.state.service
    if not service.has_keys:
        raise RequestError(403, "a reload needs a key; start the server with --api-key-file.")
    outcomes = await asyncio.to_thread(service.registry.reload)
    failed = [name for name, error in outcomes.items() if error is not None]
    content = {"reloaded": [name for name in outcomes if name not in failed], "failed": failed}
    return json_response(content, 500 if failed else 200)
