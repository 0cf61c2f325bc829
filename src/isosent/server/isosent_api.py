"""Paths of isosent's own: ``/search``, ``/explain``, ``/compare``, ``/status``, ``/admin/reload``."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
from msgspec import Struct, to_builtins
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from isosent.errors import option
from isosent.evaluation.unlabelled import compare_vectors, halves_of
from isosent.exports.check import shortened
from isosent.io.json import without_nan
from isosent.search.index import Index
from isosent.search.result import Hit
from isosent.search.rows import TEXT
from isosent.server.embeddings import checked_space, space_headers, space_of
from isosent.server.http import json_response, on_model, with_served
from isosent.server.limits import RequestError
from isosent.server.registry import ModelService, Registry, Served

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
    false_positives: float | None = None
    explain: bool = False
    index: str | None = None
    group: str | None = None  # of the query, if the model has a map of each


class ExplainBody(Struct, forbid_unknown_fields=True):
    """Body of ``POST /explain``."""

    a: str
    b: str
    model: str | None = None


class CompareBody(Struct, forbid_unknown_fields=True):
    """Body of ``POST /compare``."""

    model_a: str
    model_b: str
    texts: list[str]


async def search(request: Request, body: SearchBody) -> Response:
    """Find the nearest rows of an index."""
    registry: Registry = request.app.state.service.registry
    return await with_served(partial(registry.get, body.index, "index"), partial(_search, request, body))


async def _search(request: Request, body: SearchBody, served: Served) -> Response:
    space = checked_space(request, served.model, served.name)
    n_characters = len(body.query or "") * (1 + body.k if body.explain else 1)
    by_model = body.explain or body.group is not None
    worker = served.worker if by_model or served.query_worker is None else served.query_worker
    hits = await worker.call(lambda: _hits(served, body), n_characters=n_characters)
    request.scope["isosent"] |= {"index": served.name, "hits": len(hits)}
    return json_response({"index": served.name, "hits": hits}, headers=space_headers(space, 0))


def _hits(served: Served, body: SearchBody) -> list[dict[str, Any]]:
    index = served.index
    assert index is not None
    if (body.query is None) == (body.like is None):
        raise RequestError(422, "name a query, or a row with like; not both.")
    if not 1 <= body.k <= _MOST_HITS:
        raise RequestError(422, f"k must be from 1 to {_MOST_HITS}; got {body.k}.", param="k")
    if body.explain and body.k > _MOST_EXPLAINED:
        raise RequestError(422, f"explain takes at most {_MOST_EXPLAINED} results; k is {body.k}.", param="k")
    if body.explain and (body.query is None or TEXT not in index.schema.names):
        raise RequestError(422, "explain needs a query, and an index with texts.", param="explain")
    if body.explain and len(body.query or "") > _LONGEST_EXPLAINED:
        raise RequestError(422, f"explain takes a query of at most {_LONGEST_EXPLAINED} characters.", param="explain")
    if body.like is not None:
        if body.hybrid or body.group is not None or body.false_positives is not None:
            raise RequestError(422, "hybrid, group and false_positives need a query.", param="like")
        row: Any = body.like
        if isinstance(row, str) != (str(index.schema.field("id").type) == "string"):
            raise RequestError(422, f"the ids of this index are of type {index.schema.field('id').type}.", param="like")
        if isinstance(row, int) and not -_LARGEST_ID <= row < _LARGEST_ID:
            raise RequestError(422, "the id is no 64-bit number.", param="like")
        result = index.more_like([row], body.k, where=body.where)
    else:
        query = body.query or ""
        settings: dict[str, Any] = {"hybrid": body.hybrid, "false_positives": body.false_positives, "group": body.group}
        result = index.search(query, body.k, where=body.where, **settings)
    return [_hit_json(hit, body, index) for hit in result.hits()[0]]


def _hit_json(hit: Hit, body: SearchBody, index: Index) -> dict[str, Any]:
    values: dict[str, Any] = without_nan(hit.to_json())
    if body.explain:
        hit = hit.explained(body.query or "", index.model, body.group, _LONGEST_EXPLAINED)
        assert hit.explanation is not None
        values["words"] = [pair._asdict() for pair in hit.explanation.top(5)]
    return values


@on_model
async def explain(request: Request, body: ExplainBody, served: Served) -> Response:
    """Say which words make two texts similar."""
    n_characters = len(body.a) + len(body.b)
    if max(len(body.a), len(body.b)) > _LONGEST_EXPLAINED:
        raise RequestError(422, f"a text to be explained has at most {_LONGEST_EXPLAINED} characters.")

    def explained() -> dict[str, Any]:
        explanation = served.model.explain(body.a, body.b)
        pairs = [pair._asdict() for pair in explanation.top()]
        return {"cosine": explanation.cosine, "pairs": pairs}

    content = await served.worker.call(explained, n_characters=n_characters)
    return json_response(content, headers=space_headers(space_of(served.model, None), 0))


async def compare(request: Request, body: CompareBody) -> Response:
    """Which of two models ranks related texts higher, without labels."""
    service: ModelService = request.app.state.service
    service.limits.check_texts(len(body.texts), "texts")
    for name in (body.model_a, body.model_b):
        service.registry.text_model(name)  # refused before any work

    halves = await service.heavy.run(halves_of, body.texts)

    async def embedded(served: Served) -> NDArray[np.float32]:
        # by the model's own queue, where they take turns with the texts of other requests
        return (await served.worker.embed(halves)).vectors

    vectors = [
        await with_served(partial(service.registry.text_model, name), embedded) for name in (body.model_a, body.model_b)
    ]
    result = (await service.heavy.run(compare_vectors, vectors, halves))[0, 1]
    return json_response(asdict(result) | {"verdict": result.verdict})


async def status(request: Request) -> Response:
    """Models, queues and limits."""
    service: ModelService = request.app.state.service
    models = [
        {
            "name": served.name,
            "dimensions": served.model.dim,
            "space": space_of(served.model, None),
            "has_texts": served.has_texts,
            "query_model": None if served.query_worker is None else shortened(served.query_worker.model.record.name),
            "rows": None if served.index is None else len(served.index),
            "columns": [] if served.index is None else served.index.schema.names,
            "recall": None if served.index is None else to_builtins(served.index.recall),
            "queued_tokens": sum(worker.n_queued_tokens for worker in served.workers),
            "tokens_per_s": round(served.worker.tokens_per_s),
        }
        for served in service.registry
    ]
    facts = {"models": models, "limits": service.limits.to_json(), "started_at": service.started_at}
    return json_response(facts if service.worker is None else facts | {"worker": service.worker})


async def reload(request: Request) -> Response:
    """Load all models again."""
    service: ModelService = request.app.state.service
    if not service.has_keys:
        raise RequestError(403, f"a reload needs a key; start the server with {option('api_key_file')}.")
    outcomes = await asyncio.to_thread(service.registry.reload)
    service.has_reloaded()
    failed = [name for name, error in outcomes.items() if error is not None]
    content = {"reloaded": [name for name in outcomes if name not in failed], "failed": failed}
    return json_response(content, 500 if failed else 200)
