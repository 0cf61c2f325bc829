"""A proxy that applies a map to the answers of an embedding API."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from prometheus_client import Counter, Gauge
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError, IsosentError
from isosent.jobs.vectors import FileMoments, moments_bytes, read_moments, write_moments
from isosent.loading import load
from isosent.model import Role, SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows, pairwise_cosine
from isosent.server.http import Gate, json_response, raise_error, read_body, unless_gone
from isosent.server.limits import Limits, RequestError
from isosent.server.metrics import CONTENT_TYPE, Metrics
from isosent.server.openai import EmbeddingsBody, embeddings_response
from isosent.server.registry import check_dimensions, cut, role_of, space_of
from isosent.server.service import check_space, space_headers
from isosent.server.upstream import Item, Upstream
from isosent.server.vector_cache import VectorCache

_log = logging.getLogger("isosent.server")
CANARY_TEXTS: Final = (
    "The quick brown fox jumps over the lazy dog.",
    "How do I reset my password?",
    "El tren sale a las ocho de la mañana.",
    "今天天气很好。",
    "def add(a, b): return a + b",
    "Interest rates were raised by half a point.",
    "1234567890",
    "A man is riding a horse on the beach at sunset.",
)
# The same model on other hardware, or in half precision, gives cosines above 0.999; another model, far lower ones.
_LEAST_CANARY_COSINE: Final = 0.99
_CANARY: Final = "canary"
_CANARY_EVERY_S: Final = 3600.0
_SAVED_EVERY_S: Final = 60.0
_FOLDED_ROWS: Final = 256
_MOST_SEEN: Final = 1_000_000


class Learner:
    """Exact moments of the vectors that pass, without texts and vectors.

    Each text counts once, as long as no more than a million different ones were seen since the start; later ones count
    whenever they pass. That a text was seen is known by a hash, in memory alone, that no other process can compute.
    """

    def __init__(self, path: Path, space: str) -> None:
        self._path, self._space, self._lock = path, space, threading.Lock()
        self._measured = read_moments(path) if path.exists() else None
        self._seen: set[int] = set()
        self._pending: list[NDArray[np.float32]] = []
        self._is_saved = True

    def add(self, items: Sequence[Item], vectors: NDArray[np.float32]) -> None:
        """Count the texts that are new."""
        with self._lock:
            rows = [row for row, item in enumerate(items) if hash(item) not in self._seen]
            if len(self._seen) < _MOST_SEEN:
                self._seen.update(hash(items[row]) for row in rows)
            self._pending += [vectors[row] for row in rows]
            if len(self._pending) >= _FOLDED_ROWS:
                self._fold()

    def _fold(self) -> None:
        """Add the vectors that wait to the moments."""
        if not self._pending:
            return
        rows, self._pending = np.stack(self._pending), []
        has_vector = nonzero_rows(rows)
        space = PrecomputedVectors.of_space(rows.shape[1], None, self._space).space
        moments = Moments.from_rows(rows[has_vector])
        part = FileMoments(moments, int((~has_vector).sum()), space, ("isosent proxy",))
        measured = part if self._measured is None else self._measured + part
        self._measured = FileMoments(measured.moments, measured.n_zero_rows, measured.space, part.sources)
        self._is_saved = False

    def content(self) -> bytes:
        """The file of moments."""
        with self._lock:
            self._fold()
            if self._measured is None:
                raise RequestError(404, "no text has passed yet, so there are no moments.")
            return moments_bytes(self._measured)

    def save(self) -> None:
        """Write the moments, if they have changed."""
        with self._lock:
            self._fold()
            if self._measured is not None and not self._is_saved:
                write_moments(self._path, self._measured)
                self._is_saved = True


@dataclass(eq=False)
class Proxy:
    """A running proxy: what `isosent.server.run` and the handlers need."""

    upstream: Upstream
    folders: Mapping[str, Path]  # of the maps, by the names of the models downstream; empty to pass vectors on
    limits: Limits
    metrics: Metrics
    cache: VectorCache | None = None
    learner: Learner | None = None
    has_keys: bool = False  # whether clients need keys of the proxy
    is_local: bool = True
    is_draining: bool = False
    has_changed: bool = False  # whether the canary texts have other vectors than in the model folder
    started_at: int = field(default_factory=lambda: int(time.time()))

    def __post_init__(self) -> None:
        self.models = {name: _load_map(folder) for name, folder in self.folders.items()}
        dims = {model.encoder.dim for model in self.models.values()}
        if len(dims) > 1:
            raise InputError("the models must be fitted on vectors of the same width; got " + ", ".join(map(str, dims)))
        self.dim: int | None = next(iter(dims), None)
        self._in_flight: dict[bytes, asyncio.Future[NDArray[np.float32]]] = {}
        self._fetches: set[asyncio.Task[Any]] = set()
        registry = self.metrics.registry
        self.canary_cosine = Gauge("isosent_canary_cosine", "Lowest cosine of the canary texts.", registry=registry)
        self.asked = Counter("isosent_upstream_texts", "Texts that the upstream was asked for.", registry=registry)
        self.cached = Counter("isosent_cached_texts", "Texts whose vectors were in the cache.", registry=registry)

    def reload(self) -> None:
        """Load all maps again; those that cannot be loaded stay as they are."""
        for name, folder in self.folders.items():
            try:
                model = _load_map(folder)
                if model.encoder.dim != self.dim:
                    raise InputError("another width")
            except (IsosentError, OSError) as error:
                _log.error("reload failed", extra={"facts": {"model": name, "error": type(error).__name__}})
            else:
                self.models[name] = model
                _log.info("reloaded", extra={"facts": {"model": name, "space": model.fingerprint}})

    # -- vectors -----------------------------------------------------------------------------------------------------

    async def raw(
        self, items: Sequence[Item], role: Role, caller: Mapping[str, str]
    ) -> tuple[NDArray[np.float32], int, dict[str, str]]:
        """Vectors of the upstream, the tokens it charged for, and its rate limits."""
        keys = {item: self._key(item, role, caller) for item in items}
        vectors = dict(await self._cached(list(keys.values())))
        self.cached.inc(len(vectors))
        waiting = {key: self._in_flight[key] for key in keys.values() if key not in vectors and key in self._in_flight}
        missing = [item for item, key in keys.items() if key not in vectors and key not in waiting]
        n_tokens, headers = 0, dict[str, str]()
        if missing:
            # A task of its own, which goes on if the client hangs up: others may wait for the same texts.
            fetch = asyncio.create_task(self._fetch({keys[item]: item for item in missing}, role, caller))
            self._fetches.add(fetch)
            fetch.add_done_callback(self._fetches.discard)
            fetched, n_tokens, headers = await asyncio.shield(fetch)
            vectors |= fetched
        for key, future in waiting.items():
            vectors[key] = await asyncio.shield(future)
        together = np.stack([vectors[keys[item]] for item in items])
        if self.learner is not None:
            await asyncio.to_thread(self.learner.add, items, together)
        return together, n_tokens, headers

    async def _fetch(
        self, items: Mapping[bytes, Item], role: Role, caller: Mapping[str, str]
    ) -> tuple[dict[bytes, NDArray[np.float32]], int, dict[str, str]]:
        loop = asyncio.get_running_loop()
        futures = {key: loop.create_future() for key in items}
        self._in_flight |= futures
        try:
            answer = await self.upstream.embed(list(items.values()), role, caller)
            self.asked.inc(len(items))
            self._check_width(answer.vectors.shape[1])
        except BaseException as error:
            for future in futures.values():
                future.set_exception(error if isinstance(error, Exception) else RequestError(503, "stopped."))
                future.exception()  # nobody may be waiting for it
            raise
        else:
            fetched = dict(zip(items, answer.vectors, strict=True))
            for key, future in futures.items():
                future.set_result(fetched[key])
            if self.cache is not None:
                await self._use_cache(partial(self.cache.put, fetched))
            return fetched, answer.n_tokens, answer.headers
        finally:
            for key in items:
                del self._in_flight[key]

    def _check_width(self, dim: int) -> None:
        self.dim = dim if self.dim is None else self.dim
        if dim != self.dim:
            raise RequestError(502, f"the upstream answered with {dim} dimensions; {self.dim} are expected.")

    def _key(self, item: Item, role: Role, caller: Mapping[str, str]) -> bytes:
        """Hash of a text. With the keys of callers, what one has paid for is not given to another."""
        side = role if self.upstream.dialect.has_roles else ""
        parts = [self.upstream.url, self.upstream.model, side, *sorted(caller.values()), repr(item)]
        return hashlib.sha256("\0".join(parts).encode()).digest()

    async def _cached(self, keys: list[bytes]) -> dict[bytes, NDArray[np.float32]]:
        if self.cache is None:
            return {}
        found = await self._use_cache(partial(self.cache.get, keys)) or {}
        return {key: vector for key, vector in found.items() if self.dim in (None, len(vector))}

    async def _use_cache(self, call: Callable[[], Any]) -> Any:
        try:
            return await asyncio.to_thread(call)
        except sqlite3.Error as error:  # a full disk does not stop the proxy
            _log.warning("cache failed", extra={"facts": {"error": type(error).__name__}})
            return None

    # -- what goes on beside requests --------------------------------------------------------------------------------

    async def watch(self) -> None:
        """Compare the canary texts at the start and every hour."""
        while True:
            try:
                await self.check_canary()
            except RequestError as error:
                _log.warning("canary not checked", extra={"facts": {"status": error.status}})
            except (IsosentError, OSError) as error:
                _log.warning("canary not stored", extra={"facts": {"error": type(error).__name__}})
            await asyncio.sleep(_CANARY_EVERY_S)

    async def check_canary(self) -> None:
        """Embed the canary texts, and compare with the model folders; store them where there are none."""
        answer = await self.upstream.embed(CANARY_TEXTS, "text", {})
        self._check_width(answer.vectors.shape[1])
        lowest = 1.0
        for name, model in list(self.models.items()):
            stored = model.encoder.corpus_tensors().get(_CANARY)
            if stored is None:
                self.models[name] = await asyncio.to_thread(_with_canary, model, answer.vectors, self.folders[name])
                _log.info("canary stored", extra={"facts": {"model": name}})
            else:
                lowest = min(lowest, float(pairwise_cosine(stored, answer.vectors).min()))
        self.canary_cosine.set(lowest)
        if (has_changed := lowest < _LEAST_CANARY_COSINE) or self.has_changed:
            event = "the upstream model has changed" if has_changed else "the upstream model is as before"
            _log.error(event, extra={"facts": {"lowest_cosine": round(lowest, 4)}})
        self.has_changed = has_changed

    async def save_often(self) -> None:
        """Write what was learned every minute."""
        while True:
            await asyncio.sleep(_SAVED_EVERY_S)
            await self.save()

    async def save(self) -> None:
        """Write what was learned."""
        if self.learner is not None:
            try:
                await asyncio.to_thread(self.learner.save)
            except OSError as error:
                _log.error("moments not saved", extra={"facts": {"error": type(error).__name__}})


def _load_map(folder: Path) -> SentenceEncoder:
    model = load(folder)
    if not isinstance(model.encoder, PrecomputedVectors):
        raise InputError(f"-m {folder}: the model must be fitted on vectors of the upstream; it encodes texts itself.")
    return model


def _with_canary(model: SentenceEncoder, vectors: NDArray[np.float32], folder: Path) -> SentenceEncoder:
    """The model with the vectors of the canary texts, saved."""
    encoder = PrecomputedVectors(model.encoder.dim, model.encoder.options, {_CANARY: vectors.astype(np.float64)})
    model = SentenceEncoder.from_record(encoder, model.record)
    model.save(folder)
    return model


# -- the application -----------------------------------------------------------------------------------------------


def create_proxy(proxy: Proxy, *, keys: Iterable[str] = (), hosts: Sequence[str] | None = None) -> Starlette:
    """Make an ASGI application of a proxy."""
    routes = [
        Route("/v1/embeddings", _embeddings, methods=["POST"]),
        Route("/v1/models", _models),
        Route("/moments", _moments),
        Route("/metrics", _metrics),
        Route("/ready", _ready),
        Route("/health", lambda request: Response()),
    ]
    gate = Middleware(
        Gate, keys=tuple(keys), open_paths=frozenset({"/health", "/ready"}), hosts=hosts, metrics=proxy.metrics
    )
    handlers = {HTTPException: raise_error}
    app = Starlette(routes=routes, middleware=[gate], exception_handlers=handlers, lifespan=_lifespan)
    app.state.service = proxy
    return app


@asynccontextmanager
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    proxy: Proxy = app.state.service
    tasks = [asyncio.create_task(proxy.save_often())]
    if proxy.models:
        tasks.append(asyncio.create_task(proxy.watch()))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await proxy.save()
        await proxy.upstream.client.aclose()
        if proxy.cache is not None:
            proxy.cache.close()


async def _embeddings(request: Request) -> Response:
    """Embed texts upstream, and apply the map."""
    proxy: Proxy = request.app.state.service
    body = await read_body(request, proxy.limits, EmbeddingsBody, wrong=400)
    name, model = _chosen(proxy, body.model)
    items = _items(body.input, proxy)
    if model is not None:
        check_dimensions(model, name, body.dimensions)
        check_space(request, space_of(model.fingerprint, model.dim, body.dimensions))
    elif body.dimensions is not None:
        raise RequestError(400, "dimensions need a model with a map; vectors are passed on here.", param="dimensions")
    role = role_of(body.prompt_name, body.input_type)
    caller = {} if proxy.upstream.key is not None or proxy.has_keys else _keys_of(request)
    raw, n_tokens, headers = await unless_gone(request, proxy.raw(items, role, caller))
    if model is None:
        vectors, fingerprint = raw, PrecomputedVectors.of_space(raw.shape[1], None, proxy.upstream.model).fingerprint
    else:
        mapped = await asyncio.to_thread(model.transform, raw, queries=role == "query")
        vectors, fingerprint = cut(mapped, body.dimensions, normalize=True), model.fingerprint
    space = space_of(fingerprint, raw.shape[1] if model is None else model.dim, body.dimensions)
    request.scope["isosent"] |= {"model": name, "texts": len(items), "tokens": n_tokens}
    return await embeddings_response(
        vectors, name, n_tokens, body.encoding_format, headers | space_headers(space, n_truncated=None)
    )


def _chosen(proxy: Proxy, name: str | None) -> tuple[str, SentenceEncoder | None]:
    """The map that a request names; the first by default."""
    if not proxy.models:
        return proxy.upstream.model, None
    if name is None:
        return next(iter(proxy.models.items()))
    if name not in proxy.models:
        names = ", ".join(proxy.models)
        message = f"there is no model {name!r:.80} here; there is {names}."
        raise RequestError(404, message, param="model", code="model_not_found")
    return name, proxy.models[name]


def _items(values: str | list[Any], proxy: Proxy) -> list[Item]:
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
                raise RequestError(400, "input must hold texts: the upstream takes no token ids.", param="input")
            items.append(tuple(value))
        else:
            message = "input must hold texts or lists of token ids, and none may be empty."
            raise RequestError(400, message, param="input")
    if not items:
        raise RequestError(400, "input must not be empty.", param="input")
    return items


def _keys_of(request: Request) -> dict[str, str]:
    """The headers with the key of the caller."""
    return {name: request.headers[name] for name in ("authorization", "api-key") if name in request.headers}


async def _models(request: Request) -> Response:
    proxy: Proxy = request.app.state.service
    names: dict[str, int | None] = {name: model.dim for name, model in proxy.models.items()}
    data = [
        {"id": name, "object": "model", "created": proxy.started_at, "owned_by": "isosent", "dimensions": dim}
        for name, dim in (names or {proxy.upstream.model: proxy.dim}).items()
    ]
    return json_response({"object": "list", "data": data})


async def _moments(request: Request) -> Response:
    proxy: Proxy = request.app.state.service
    if proxy.learner is None:
        raise RequestError(404, "nothing is learned here; start the proxy with --learn FILE.")
    if not (proxy.has_keys or proxy.is_local):
        raise RequestError(403, "the moments need a key; start the proxy with --api-key-file.")
    content = await asyncio.to_thread(proxy.learner.content)
    return Response(content, media_type="application/octet-stream")


async def _metrics(request: Request) -> Response:
    proxy: Proxy = request.app.state.service
    return Response(proxy.metrics.text(), headers={"Content-Type": CONTENT_TYPE})


async def _ready(request: Request) -> Response:
    proxy: Proxy = request.app.state.service
    if proxy.is_draining:
        return json_response({"status": "draining"}, 503, {"Retry-After": "1"})
    if proxy.has_changed:
        return json_response({"status": "the upstream model has changed"}, 503)
    return json_response({"status": "ready"})
