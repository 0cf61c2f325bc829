"""A proxy that applies a map to the answers of an embedding API.

A `Proxy` is made of parts: the API (`Upstream`), the maps by name (`Maps`), the texts on their way with the cache of
their vectors (`Fetches`), the texts that show whether the API has changed (`CanaryWatch`), and the moments for the next
map (`Learner`). A request for embeddings chooses a map, checks whether it has what is wanted, gets the vectors of the
API (`Fetches.vectors`), or of a static model if it is a query and there is one, transforms them, and answers as OpenAI
does. During the requests, the canary is watched and the moments are saved (`Proxy.running`).

`Fetches.vectors` looks texts up in the `VectorCache`, waits for those that another request waits for, and asks the
upstream for the rest, in one fetch that goes on if its client hangs up. A text is known by a hash (`Fetches.key`). What
comes back goes into the cache and, with every text that passes, to the `Learner`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isosent.api.cache import VectorCache
from isosent.api.client import Answer, Upstream, upstream_facts
from isosent.api.dialects import NO_FIELDS, Item
from isosent.api.refusals import HttpError
from isosent.model import SentenceEncoder
from isosent.role import RoleName
from isosent.server import http
from isosent.server.embeddings import (
    QUERY,
    EmbeddingsFields,
    checked_raw_space,
    checked_space,
    embeddings_response,
    space_headers,
    truncate_dims,
)
from isosent.server.fields import SIDES, role_of, sides_of, upstream_fields
from isosent.server.http import json_response
from isosent.server.limits import Limits, RequestError
from isosent.server.maps import CanaryWatch, Learner, Maps
from isosent.server.service import Service

_log = logging.getLogger("isosent.server")
_MOST_FETCHES: Final = 256


class Proxy(Service):
    """A running proxy.

    It belongs to one event loop, but for `reload`, which runs in a thread. Each of its parts says what may share it.

    Parameters
    ----------
    upstream : Upstream
        The API.
    maps : Maps
        Models that are applied to its vectors; empty to pass vectors on.
    cache : VectorCache, optional
        Where vectors of the API are kept.
    learner : Learner, optional
        What learns from the vectors that pass.
    limits : Limits, optional
        What is accepted.
    has_keys : bool, default False
        Whether clients need keys of the proxy. If they do, their keys are not those of the API.
    is_local : bool, default True
        Whether this machine alone can reach the proxy. If others can, the moments need a key.
    """

    def __init__(
        self,
        upstream: Upstream,
        maps: Maps,
        *,
        cache: VectorCache | None = None,
        learner: Learner | None = None,
        limits: Limits = Limits(),  # noqa: B008
        has_keys: bool = False,
        is_local: bool = True,
    ) -> None:
        super().__init__(limits, has_keys=has_keys)
        self.upstream, self.maps, self.learner, self.is_local = upstream, maps, learner, is_local
        self.canary = CanaryWatch(upstream, maps, self.metrics)
        self.fetches = Fetches(upstream, cache, learner, self.metrics.registry)
        upstream.dim = maps.dim or (None if learner is None else learner.dim)

    def reload(self) -> None:
        """Load all maps again; those that cannot be loaded stay unchanged."""
        self.maps.reload()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch the canary and save the moments during the requests; end both, and what is on its way, after them.

        Yields
        ------
        None
            While requests are answered.
        """
        tasks = [asyncio.create_task(self.learner.save_often())] if self.learner is not None else []
        if self.maps:
            tasks.append(asyncio.create_task(self.canary.watch()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.fetches.close()
            if self.learner is not None:
                await self.learner.try_to_save()
            await self.upstream.client.aclose()

    async def obstacle(self) -> tuple[str, Mapping[str, str]] | None:
        """Why no request should be sent here: as any service, or because of the API.

        Returns
        -------
        tuple of str and mapping, or None
            The reason, and headers that say when to ask again; None if nothing is wrong.
        """
        if (obstacle := await super().obstacle()) is not None:
            return obstacle
        if self.canary.has_changed:
            return "the upstream model has changed", {}
        if not await self.upstream.is_up():
            return "the upstream cannot be reached", {"Retry-After": "5"}
        return None

    def choose(self, name: str | None) -> tuple[str, SentenceEncoder | None]:
        """The map that a request names.

        Parameters
        ----------
        name : str or None
            Its name; None for the first.

        Returns
        -------
        tuple of str and SentenceEncoder or None
            The name and the map; None if vectors are passed on.

        Raises
        ------
        RequestError
            If there is no such map.
        """
        models: dict[str, SentenceEncoder | None] = {**self.maps} or {self.upstream.model: None}
        if name is None:
            return next(iter(models.items()))
        if name not in models:
            message = f"there is no model {name!r:.80} here; there is {', '.join(models)}."
            raise RequestError(404, message, param="model", code="model_not_found")
        return name, models[name]


class Fetches:
    """Texts on their way to the upstream: equal ones are requested once, and what comes back is kept and learned from.

    All requests share it, in one event loop: a text is in flight before another request runs. The cache is used in
    threads.
    """

    def __init__(
        self, upstream: Upstream, cache: VectorCache | None, learner: Learner | None, registry: CollectorRegistry
    ) -> None:
        self._upstream, self._cache, self._learner = upstream, cache, learner
        self._in_flight: dict[bytes, asyncio.Future[NDArray[np.float32]]] = {}
        self._tasks: set[asyncio.Task[Answer]] = set()
        self._failures = Counter("isosent_upstream_failures", "Requests that the upstream failed.", registry=registry)
        self._fetched = Counter(
            "isosent_upstream_texts", "Texts that were requested from the upstream.", registry=registry
        )
        self._cached = Counter("isosent_cached_texts", "Texts whose vectors were in the cache.", registry=registry)

    async def vectors(
        self, items: Sequence[Item], role: RoleName, caller: Mapping[str, str], fields: Mapping[str, Any] = NO_FIELDS
    ) -> Answer:
        """Vectors of texts, the tokens that were charged for them, and rate limits."""
        keys = [self.key(item, role, caller, fields) for item in items]
        distinct = dict(zip(keys, items, strict=True))
        vectors = dict(await self._from_cache(list(distinct)))
        self._cached.inc(len(vectors))
        waiting = {key: self._in_flight[key] for key in distinct if key not in vectors and key in self._in_flight}
        missing = {key: item for key, item in distinct.items() if key not in vectors and key not in waiting}
        n_tokens, headers = 0, dict[str, str]()
        if missing:
            fetched, n_tokens, headers = await asyncio.shield(self._begin(missing, role, caller, fields))
            vectors |= dict(zip(missing, fetched, strict=True))
        for key, future in waiting.items():
            vectors[key] = await asyncio.shield(future)
        rows = np.stack([vectors[key] for key in keys])
        if self._learner is not None:
            self._upstream.dim = self._upstream.dim or rows.shape[1]  # moments have one width
            await asyncio.to_thread(self._learner.add, keys, rows, fields)
        return Answer(rows, n_tokens, headers)

    def key(
        self, item: Item, role: RoleName, caller: Mapping[str, str], fields: Mapping[str, Any] = NO_FIELDS
    ) -> bytes:
        """Hash of a text and of the fields that go with it. With the keys of callers, each has paid for its own."""
        side: str = role if self._upstream.dialect.has_roles else ""
        if fields:
            side += str(msgspec.json.encode(dict(fields), order="deterministic"), "utf-8")
        parts = [self._upstream.url, self._upstream.model, side, *sorted(caller.values()), repr(item)]
        return hashlib.sha256("\0".join(parts).encode()).digest()

    def _begin(
        self, items: Mapping[bytes, Item], role: RoleName, caller: Mapping[str, str], fields: Mapping[str, Any]
    ) -> asyncio.Task[Answer]:
        """Ask for texts in a task of its own, which goes on if the client hangs up: others may wait for them."""
        if len(self._tasks) >= _MOST_FETCHES:
            message = f"{len(self._tasks)} requests wait for the upstream. Try again in 1 s."
            raise RequestError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})
        futures = {key: asyncio.get_running_loop().create_future() for key in items}
        self._in_flight |= futures
        task = asyncio.create_task(self._fetch(items, futures, role, caller, fields))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _fetch(
        self,
        items: Mapping[bytes, Item],
        futures: Mapping[bytes, asyncio.Future[NDArray[np.float32]]],
        role: RoleName,
        caller: Mapping[str, str],
        fields: Mapping[str, Any],
    ) -> Answer:
        try:
            answer = await self._upstream.embed(list(items.values()), role, caller, fields)
        except BaseException as error:
            for future in futures.values():
                future.set_exception(error if isinstance(error, Exception) else RequestError(503, "stopped."))
                future.exception()  # nobody may be waiting for it
            if isinstance(error, HttpError) and error.status >= 500:
                self._failures.inc()
                _log.warning("upstream failed", extra={"facts": upstream_facts(error)})
            raise
        else:
            self._fetched.inc(len(items))
            vectors = dict(zip(items, answer.vectors, strict=True))
            for key, future in futures.items():
                future.set_result(vectors[key])
            if self._cache is not None:
                await self._use_cache(partial(self._cache.put, vectors))
            return answer
        finally:
            for key in items:
                del self._in_flight[key]

    async def _from_cache(self, keys: list[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Vectors that are in the cache."""
        if self._cache is None:
            return {}
        vectors = await self._use_cache(partial(self._cache.get, keys)) or {}
        dim = self._upstream.dim or next(map(len, vectors.values()), None)
        # zeros were kept by a version that took them for an answer
        return {key: vector for key, vector in vectors.items() if len(vector) == dim and vector.any()}

    async def _use_cache(self, call: Callable[[], Any]) -> Any:
        try:
            return await asyncio.to_thread(call)
        except sqlite3.Error as error:  # a full disk does not stop the proxy
            _log.warning("cache failed", extra={"facts": {"error": type(error).__name__}})
            return None

    async def close(self) -> None:
        """Stop what is on its way, and close the cache."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._cache is not None:
            self._cache.close()


def create_proxy(proxy: Proxy, *, keys: Iterable[str] = (), hosts: Sequence[str] | None = None) -> Starlette:
    """Make an ASGI application of a proxy.

    Parameters
    ----------
    proxy : Proxy
        The proxy, of this application alone.
    keys : iterable of str
        Keys of clients; without keys, everybody may ask.
    hosts : sequence of str, optional
        Names that browsers may call the proxy by; any by default.

    Returns
    -------
    Starlette
        The application, for uvicorn or another ASGI server.

    Examples
    --------
    >>> import httpx
    >>> from isosent.server.maps import Maps
    >>> from isosent.server.proxy import Proxy, create_proxy
    >>> from isosent.api.client import Upstream
    >>> from isosent.api.dialects import DIALECTS
    >>> client = httpx.AsyncClient(trust_env=False)
    >>> api = Upstream("https://api.openai.com/v1", DIALECTS["openai"], "text-embedding-3-small", client)
    >>> app = create_proxy(Proxy(api, Maps({})))
    """
    embeddings = http.reading(_embeddings, EmbeddingsFields, wrong=400, keeps_others=True)
    routes = [
        Route("/v1/embeddings", embeddings, methods=["POST"]),
        Route("/v1/models", _models),
        Route("/v1/models/{name:path}", _model),
        Route("/moments", _moments),
        Route("/metrics", http.metrics),
        Route("/ready", http.ready),
        Route("/health", http.health),
    ]
    return http.application(proxy, routes, open_paths=["/health", "/ready"], keys=keys, hosts=hosts)


async def _embeddings(request: Request, body: EmbeddingsFields) -> Response:
    """Embed texts upstream, and transform their vectors."""
    proxy: Proxy = request.app.state.service
    name, model = proxy.choose(body.model)
    items, role = _items_of(body.input, proxy), role_of(*sides_of(request.state.others))
    fields = _fields_of(request.state.others, proxy, name, model)
    caller = {} if proxy.upstream.key is not None or proxy.has_keys else _keys_of(request)
    if model is None and body.group is not None:
        raise RequestError(400, "vectors without a map have no groups. Leave it out.", param="group")
    if model is not None:
        space = checked_space(request, model, name, body.dimensions, fields)
        if body.group is not None:  # refused before the API is paid
            model.transform(np.empty((0, model.encoder.dim)), group=body.group)
    else:
        space = checked_raw_space(request, proxy.upstream.model, body.dimensions, proxy.upstream.dim, fields)
    has_static = role == "query" and body.group is None and _say_only_query(fields)
    static = proxy.maps.query_models.get(name) if has_static else None
    known = {} if static is None else await asyncio.to_thread(_vectors_of_known, static, items)
    others = [item for row, item in enumerate(items) if row not in known]
    raw, n_tokens, headers = np.empty((0, 0), np.float32), 0, dict[str, str]()
    if others:
        raw, n_tokens, headers = await proxy.fetches.vectors(others, role, caller, fields)
    if model is not None:
        rows = iter(
            await asyncio.to_thread(model.transform, raw, queries=role == "query", group=body.group) if others else ()
        )
        transformed = np.array([known[row] if row in known else next(rows) for row in range(len(items))])
        vectors = truncate_dims(transformed, body.dimensions, normalize=True)
    else:
        space = checked_raw_space(request, proxy.upstream.model, body.dimensions, raw.shape[1], fields)
        vectors = raw if body.dimensions is None else truncate_dims(raw, body.dimensions, normalize=True)
    request.scope["isosent"] |= {"model": name, "texts": len(items), "tokens": n_tokens}
    headers = headers | space_headers(space, n_truncated=None)
    return await embeddings_response(
        request, vectors, name=name, n_tokens=n_tokens, encoding_format=body.encoding_format, headers=headers
    )


def _fields_of(others: Mapping[str, Any], proxy: Proxy, name: str, model: SentenceEncoder | None) -> dict[str, Any]:
    """What the API is sent with the texts; without the side of the texts, where the dialect or the proxy acts on it."""
    dialect = proxy.upstream.dialect
    has_roles = model is not None and model.record.postprocessing.has_roles
    acts = dialect.has_roles or name in proxy.maps.query_models or has_roles
    if acts and dialect.fields is not None:
        takes = frozenset[str]() if dialect.has_roles else dialect.fields
        used = [side for side in SIDES if side not in takes and role_of(*sides_of({side: others.get(side)})) != "text"]
        others = {field: value for field, value in others.items() if field not in used}
    return upstream_fields(others, takes=dialect.fields, has_map=model is not None)


def _say_only_query(fields: Mapping[str, Any]) -> bool:
    """Whether fields ask for nothing that a static model of queries does not do."""
    return all(field in SIDES and value in QUERY for field, value in fields.items())


def _vectors_of_known(model: SentenceEncoder, items: Sequence[Item]) -> dict[int, NDArray[np.float32]]:
    """Vectors by a static model of those items that are texts with a token that it knows, by their numbers."""
    numbers = [number for number, item in enumerate(items) if isinstance(item, str)]
    vectors = model.encode([str(items[number]) for number in numbers], role="query", show_progress_bar=False)
    return {number: vector for number, vector in zip(numbers, vectors, strict=True) if vector.any()}


def _items_of(values: str | list[Any], proxy: Proxy) -> list[Item]:
    """Texts, or token ids of the upstream's own vocabulary."""
    listed: list[Any] = [values] if isinstance(values, str) else values
    if listed and all(type(value) is int for value in listed):
        listed = [listed]
    proxy.limits.check_texts(len(listed), "input")
    items: list[Item] = []
    for value in listed:
        if isinstance(value, str) and value:
            items.append(value)
        elif isinstance(value, list) and value and all(type(number) is int and number >= 0 for number in value):
            if not proxy.upstream.dialect.takes_ids:
                raise RequestError(
                    400, "input holds token ids, which the upstream does not take. Send texts.", param="input"
                )
            items.append(tuple(value))
        else:
            message = "input holds something else than texts or lists of token ids, or an empty one. Send texts."
            raise RequestError(400, message, param="input")
    if not items:
        raise RequestError(400, "input is empty. Send at least one text.", param="input")
    return items


def _keys_of(request: Request) -> dict[str, str]:
    """The headers with the key of the caller."""
    keys = {name: request.headers[name] for name in ("authorization", "api-key") if name in request.headers}
    if not all(map(str.isascii, keys.values())):  # no header that can be sent
        raise RequestError(401, "this key is not right: it has other than ASCII characters.", code="invalid_api_key")
    return keys


async def _models(request: Request) -> Response:
    proxy: Proxy = request.app.state.service
    names = list(proxy.maps) or [proxy.upstream.model]
    return json_response({"object": "list", "data": [_model_facts(proxy, name) for name in names]})


async def _model(request: Request) -> Response:
    proxy: Proxy = request.app.state.service
    return json_response(_model_facts(proxy, proxy.choose(request.path_params["name"])[0]))


def _model_facts(proxy: Proxy, name: str) -> dict[str, Any]:
    dim = proxy.maps[name].dim if name in proxy.maps else proxy.upstream.dim
    return {"id": name, "object": "model", "created": proxy.started_at, "owned_by": "isosent", "dimensions": dim}


async def _moments(request: Request) -> Response:
    proxy: Proxy = request.app.state.service
    if proxy.learner is None:
        raise RequestError(404, "nothing is learned here; start the proxy with --learn FILE.")
    if not (proxy.has_keys or proxy.is_local):
        raise RequestError(403, "the moments need a key; start the proxy with --api-key-file.")
    content = await asyncio.to_thread(proxy.learner.content)
    return Response(content, media_type="application/octet-stream")
