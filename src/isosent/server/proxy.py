"""A proxy that applies a map to the answers of an embedding API."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
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
from isosent.errors import InputError
from isosent.io.space import Space
from isosent.jobs.vectors import FileMoments, moments_bytes, read_moments, write_moments
from isosent.loading import load
from isosent.model import Role, SentenceEncoder
from isosent.numeric.moments import Moments
from isosent.numeric.similarity import nonzero_rows, pairwise_cosine
from isosent.server.http import Gate, json_response, raise_error, read_body, unless_gone
from isosent.server.limits import Limits, RequestError, reason_of
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
_CANARY_AGAIN_S: Final = 60.0  # after a failure of the upstream
_SAVED_EVERY_S: Final = 60.0
_FOLDED_ROWS: Final = 256
_MOST_SEEN: Final = 1_000_000
_ORDERED: Final = "text-embedding-3"  # models of OpenAI that were trained to be cut
_MOST_FETCHES: Final = 256


class Learner:
    """Exact moments of the vectors that pass, without texts and vectors.

    Each text counts once, as long as no more than a million different ones were seen since the start; later ones count
    whenever they pass. That a text was seen is known by a hash, in memory alone, that no other process can compute.
    """

    def __init__(self, path: Path, space: str, dim: int | None = None) -> None:
        self._path, self._space, self._lock = path, space, threading.Lock()
        self._measured = read_moments(path) if path.exists() else None
        if self._measured is not None:
            wanted = self._space_of(dim or self._measured.moments.dim)
            if self._measured.space != wanted:
                raise InputError(f"--learn {path} holds moments of {self._measured.space}, not of {wanted}.")
        self._salt = secrets.token_bytes(16)
        self._seen: set[bytes] = set()
        self._pending: list[NDArray[np.float32]] = []
        self._is_saved = True

    def add(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> None:
        """Count the texts that are new, each known by its hash."""
        with self._lock:
            for key, vector in zip(keys, vectors, strict=True):
                salted = hashlib.blake2b(key, key=self._salt, digest_size=8).digest()
                if salted not in self._seen:
                    if len(self._seen) < _MOST_SEEN:
                        self._seen.add(salted)
                    self._pending.append(vector.copy())
            if len(self._pending) >= _FOLDED_ROWS:
                self._fold()

    @property
    def dim(self) -> int | None:
        """Width of the vectors that were learned from; None before the first."""
        return None if self._measured is None else self._measured.moments.dim

    def _space_of(self, dim: int) -> Space:
        return PrecomputedVectors.of_space(dim, None, self._space).space

    def _fold(self) -> None:
        """Add the vectors that wait to the moments."""
        if not self._pending:
            return
        rows = np.stack(self._pending)
        has_vector = nonzero_rows(rows)
        space = self._space_of(rows.shape[1])
        moments = Moments.from_rows(rows[has_vector])
        part = FileMoments(moments, int((~has_vector).sum()), space, ("isosent proxy",))
        measured = part if self._measured is None else self._measured + part
        self._measured = FileMoments(measured.moments, measured.n_zero_rows, measured.space, part.sources)
        self._is_saved, self._pending = False, []

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
        self.fetches: set[asyncio.Task[Any]] = set()
        registry = self.metrics.registry
        self.canary_cosine = Gauge("isosent_canary_cosine", "Lowest cosine of the canary texts.", registry=registry)
        self.canary_cosine.set(float("nan"))  # not yet known
        self.failures = Counter("isosent_upstream_failures", "Requests that the upstream failed.", registry=registry)
        self.asked = Counter("isosent_upstream_texts", "Texts that the upstream was asked for.", registry=registry)
        self.cached = Counter("isosent_cached_texts", "Texts whose vectors were in the cache.", registry=registry)

    def reload(self) -> None:
        """Load all maps again; those that cannot be loaded stay as they are."""
        for name, folder in self.folders.items():
            try:
                model = _load_map(folder)
                if model.encoder.dim != self.dim:
                    raise InputError("another width")
            except Exception as error:  # whatever it is, the other models are loaded
                facts = {"model": name, "error": type(error).__name__, "reason": reason_of(error)}
                _log.error("reload failed", extra={"facts": facts})
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
        missing = {key: item for item, key in keys.items() if key not in vectors and key not in waiting}
        n_tokens, headers = 0, dict[str, str]()
        if missing:
            if len(self.fetches) >= _MOST_FETCHES:
                message = f"{len(self.fetches)} requests wait for the upstream. Try again in 1 s."
                raise RequestError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})
            futures = {key: asyncio.get_running_loop().create_future() for key in missing}
            self._in_flight |= futures  # before anything else runs, so that nobody asks for the same texts
            # A task of its own, which goes on if the client hangs up: others may wait for the same texts.
            fetch = asyncio.create_task(self._fetch(missing, futures, role, caller))
            self.fetches.add(fetch)
            fetch.add_done_callback(self.fetches.discard)
            fetched, n_tokens, headers = await asyncio.shield(fetch)
            vectors |= fetched
        for key, future in waiting.items():
            vectors[key] = await asyncio.shield(future)
        together = np.stack([vectors[keys[item]] for item in items])
        if self.learner is not None:
            await asyncio.to_thread(self.learner.add, [keys[item] for item in items], together)
        return together, n_tokens, headers

    async def _fetch(
        self,
        items: Mapping[bytes, Item],
        futures: Mapping[bytes, asyncio.Future[NDArray[np.float32]]],
        role: Role,
        caller: Mapping[str, str],
    ) -> tuple[dict[bytes, NDArray[np.float32]], int, dict[str, str]]:
        try:
            answer = await self.upstream.embed(list(items.values()), role, caller)
            self.asked.inc(len(items))
            self._check_width(answer.vectors.shape[1])
        except BaseException as error:
            for future in futures.values():
                future.set_exception(error if isinstance(error, Exception) else RequestError(503, "stopped."))
                future.exception()  # nobody may be waiting for it
            if isinstance(error, RequestError) and error.status >= 500:
                self.failures.inc()
                _log.warning("upstream failed", extra={"facts": _reason(error)})
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
        if self.dim is None:
            self.dim = dim if self.learner is None else self.learner.dim or dim
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
        dim = self.dim or next(map(len, found.values()), None)
        # zeros were kept by a version that took them for an answer
        return {key: vector for key, vector in found.items() if len(vector) == dim and vector.any()}

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
            wait_s = _CANARY_EVERY_S
            try:
                await self.check_canary()
            except RequestError as error:
                _log.warning("canary not checked", extra={"facts": _reason(error)})
                wait_s = _CANARY_AGAIN_S if error.status >= 500 else _CANARY_EVERY_S
            except Exception as error:
                _log.warning("canary not stored", extra={"facts": {"error": type(error).__name__}})
            await asyncio.sleep(wait_s)

    async def check_canary(self) -> None:
        """Embed the canary texts, and compare with the model folders; store them where there are none."""
        answer = await self.upstream.embed(CANARY_TEXTS, "text", {})
        self._check_width(answer.vectors.shape[1])
        lowest = 1.0
        for name, model in list(self.models.items()):
            stored = model.encoder.corpus_tensors().get(_CANARY)
            if stored is None:
                saved = await asyncio.to_thread(_with_canary, model, answer.vectors, self.folders[name])
                if saved is not None and self.models[name] is model:
                    self.models[name] = saved
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
            except Exception as error:  # it goes on, and tries again
                _log.error("moments not saved", extra={"facts": {"error": type(error).__name__}})


def _reason(error: RequestError) -> dict[str, Any]:
    """Why the upstream failed, for the log: never the text of another library, which may quote what was sent."""
    cause: BaseException | None = error.__cause__
    facts: dict[str, Any] = {"status": error.status, "reason": error.message}
    while isinstance(cause, Exception):  # a time limit is a cancellation underneath
        facts["cause"] = type(cause).__name__
        cause = cause.exceptions[0] if isinstance(cause, ExceptionGroup) else cause.__cause__ or cause.__context__
    return facts


def _load_map(folder: Path) -> SentenceEncoder:
    model = load(folder)
    if not isinstance(model.encoder, PrecomputedVectors):
        raise InputError(f"-m {folder}: the model must be fitted on vectors of the upstream; it encodes texts itself.")
    return model


def _with_canary(model: SentenceEncoder, vectors: NDArray[np.float32], folder: Path) -> SentenceEncoder | None:
    """The model with the vectors of the canary texts, saved; None if the folder holds another one by now."""
    if load(folder).fingerprint != model.fingerprint:
        return None
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
        Route("/v1/models/{name:path}", _model),
        Route("/moments", _moments),
        Route("/metrics", _metrics),
        Route("/ready", _ready),
        Route("/health", lambda request: Response()),
    ]
    paths, open_paths = frozenset(route.path for route in routes), frozenset({"/health", "/ready"})
    gate = Middleware(Gate, keys=tuple(keys), paths=paths, open_paths=open_paths, hosts=hosts, metrics=proxy.metrics)
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
        tasks += proxy.fetches
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
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
    elif proxy.dim is not None:
        check_space(request, space_of(_raw_space(proxy, proxy.dim), proxy.dim, body.dimensions))
    if model is None and body.dimensions is not None and not proxy.upstream.model.startswith(_ORDERED):
        message = "the dimensions of the upstream are in no known order, so none can be left out."
        raise RequestError(400, message, param="dimensions")
    role = role_of(body.prompt_name, body.input_type)
    caller = {} if proxy.upstream.key is not None or proxy.has_keys else _keys_of(request)
    raw, n_tokens, headers = await unless_gone(request, proxy.raw(items, role, caller))
    if model is None:
        if body.dimensions is not None and not 1 <= body.dimensions <= raw.shape[1]:
            message = f"dimensions must be from 1 to {raw.shape[1]}; got {body.dimensions}."
            raise RequestError(400, message, param="dimensions")
        vectors = raw if body.dimensions is None else cut(raw, body.dimensions, normalize=True)
        fingerprint = _raw_space(proxy, raw.shape[1])
        check_space(request, space_of(fingerprint, raw.shape[1], body.dimensions))
    else:
        mapped = await asyncio.to_thread(model.transform, raw, queries=role == "query")
        vectors, fingerprint = cut(mapped, body.dimensions, normalize=True), model.fingerprint
    space = space_of(fingerprint, raw.shape[1] if model is None else model.dim, body.dimensions)
    request.scope["isosent"] |= {"model": name, "texts": len(items), "tokens": n_tokens}
    return await embeddings_response(
        vectors, name, n_tokens, body.encoding_format, headers | space_headers(space, n_truncated=None)
    )


def _raw_space(proxy: Proxy, dim: int) -> str:
    """Fingerprint of the vectors of the upstream."""
    return PrecomputedVectors.of_space(dim, None, proxy.upstream.model).fingerprint


def _chosen(proxy: Proxy, name: str | None) -> tuple[str, SentenceEncoder | None]:
    """The map that a request names; the first by default."""
    models: dict[str, SentenceEncoder | None] = {**proxy.models} or {proxy.upstream.model: None}
    if name is None:
        return next(iter(models.items()))
    if name not in models:
        names = ", ".join(models)
        message = f"there is no model {name!r:.80} here; there is {names}."
        raise RequestError(404, message, param="model", code="model_not_found")
    return name, models[name]


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
    keys = {name: request.headers[name] for name in ("authorization", "api-key") if name in request.headers}
    if not all(map(str.isascii, keys.values())):  # no header that can be sent
        raise RequestError(401, "this key is not right: it has other than ASCII characters.", code="invalid_api_key")
    return keys


async def _models(request: Request) -> Response:
    proxy: Proxy = request.app.state.service
    names: list[str] = list(proxy.models) or [proxy.upstream.model]
    return json_response({"object": "list", "data": [_described(proxy, name) for name in names]})


async def _model(request: Request) -> Response:
    proxy: Proxy = request.app.state.service
    return json_response(_described(proxy, _chosen(proxy, request.path_params["name"])[0]))


def _described(proxy: Proxy, name: str) -> dict[str, Any]:
    dim = proxy.models[name].dim if name in proxy.models else proxy.dim
    return {"id": name, "object": "model", "created": proxy.started_at, "owned_by": "isosent", "dimensions": dim}


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
    if not await proxy.upstream.is_up():
        return json_response({"status": "the upstream cannot be reached"}, 503, {"Retry-After": "5"})
    return json_response({"status": "ready"})
