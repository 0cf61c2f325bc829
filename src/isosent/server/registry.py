"""The models and indexes that a server has, by name, and how they are replaced while requests run."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from isosent.encoders.precomputed import PrecomputedVectors
from isosent.errors import InputError
from isosent.model import SentenceEncoder
from isosent.search.index import Index
from isosent.server.service import Limits, Metrics, RequestError, Service, reason_of
from isosent.server.worker import HeavyWork, RetiredError, Worker

Source = Callable[[], SentenceEncoder | Index]
T = TypeVar("T")
_log = logging.getLogger("isosent.server")
_MOST_ATTEMPTS = 100


class ModelService(Service):
    """A running server of models: them by name, and the threads for long work."""

    def __init__(self, sources: Mapping[str, Source], limits: Limits, *, has_keys: bool = False) -> None:
        super().__init__(limits, has_keys=has_keys)
        self.registry = Registry(sources, limits=limits, metrics=self.metrics)
        self.heavy = HeavyWork()

    def reload(self) -> None:
        """Load all models again."""
        with suppress(RequestError):  # one is running
            self.registry.reload()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """End the threads after the last request."""
        yield
        self.heavy.close()
        await asyncio.to_thread(self.registry.close)


def on_model(
    handler: Callable[[Request, Any, Served], Awaitable[Response]],
) -> Callable[[Request, Any], Awaitable[Response]]:
    """Give a handler the text model that the body of its request names."""

    async def handle(request: Request, body: Any) -> Response:
        registry: Registry = request.app.state.service.registry
        return await registry.use(partial(registry.text_model, body.model), partial(handler, request, body))

    return handle


@dataclass(frozen=True, eq=False)
class Served:
    """A model or an index under its name. Requests and threads share it: it is not changed, but replaced."""

    name: str
    model: SentenceEncoder
    index: Index | None
    worker: Worker

    @property
    def has_texts(self) -> bool:
        """Whether the model can encode texts."""
        return not isinstance(self.model.encoder, PrecomputedVectors)


class Registry:
    """Models by name. A reload loads all of them again, beside those in use, and then exchanges them.

    The event loop and the thread of a reload share it: an entry is exchanged in one step, by one reload at a time.
    """

    def __init__(self, sources: Mapping[str, Source], *, limits: Limits, metrics: Metrics) -> None:
        self._sources, self._limits, self._metrics = dict(sources), limits, metrics
        self._reloading = threading.Lock()
        self._served = {name: self._load(name) for name in self._sources}

    def __iter__(self) -> Iterator[Served]:
        return iter(self._served.values())

    def get(self, name: str | None, kind: Literal["model", "index"] = "model") -> Served:
        """The model or index with a name; without one, the first."""
        matching = [served for served in self._served.values() if kind == "model" or served.index is not None]
        if name is None and matching:
            return matching[0]
        for served in matching:
            if served.name == name:
                return served
        if not matching:
            raise RequestError(404, f"no {kind} is served here.", param=kind, code=f"{kind}_not_found")
        names = ", ".join(served.name for served in matching)
        message = f"there is no {kind} {name!r:.80} here; there is {names}."
        raise RequestError(404, message, param=kind, code=f"{kind}_not_found")

    def text_model(self, name: str | None) -> Served:
        """The model with a name; refuse one that cannot encode texts."""
        served = self.get(name)
        if not served.has_texts:
            message = f"{served.name} was fitted on vectors and cannot encode texts. See isosent proxy."
            raise RequestError(400, message, param="model")
        return served

    async def use(self, find: Callable[[], Served], work: Callable[[Served], Awaitable[T]]) -> T:
        """Use a model; again if it was replaced between the two steps, so that a reload loses no request."""
        for _ in range(_MOST_ATTEMPTS):
            try:
                return await work(find())
            except RetiredError:
                await asyncio.sleep(0.01)
        raise RequestError(503, "the server is about to stop.")

    def reload(self) -> dict[str, str | None]:
        """Load all models again; what each failed with, or None. Those that fail stay as they are."""
        outcomes: dict[str, str | None] = {}
        if not self._reloading.acquire(blocking=False):
            raise RequestError(409, "a reload is running.")
        try:
            for name in self._sources:
                try:
                    new = self._load(name)
                except Exception as error:  # whatever it is, the others are loaded
                    outcomes[name] = type(error).__name__
                    facts = {"model": name, "error": type(error).__name__, "reason": reason_of(error)}
                    _log.error("reload failed", extra={"facts": facts})
                    continue
                old, self._served[name] = self._served[name], new
                old.worker.retire()  # it still answers what is in its queue
                outcomes[name] = None
                _log.info("reloaded", extra={"facts": {"model": name, "space": new.model.fingerprint}})
        finally:
            self._reloading.release()
        return outcomes

    def close(self) -> None:
        """End all threads, after what is in the queues."""
        for served in self._served.values():
            served.worker.retire()
        for served in self._served.values():
            served.worker.join(timeout_s=60)

    def _load(self, name: str) -> Served:
        loaded = self._sources[name]()
        index = loaded if isinstance(loaded, Index) else None
        model = loaded.model if isinstance(loaded, Index) else loaded
        if index is None and isinstance(model.encoder, PrecomputedVectors):
            raise InputError(f"{name} was fitted on vectors and cannot encode texts. Use isosent proxy.")
        model.encoder.require_fitted("serve")
        _ = model.fingerprint  # takes long for large models; not in the first request
        return Served(name, model, index, Worker(model, name, limits=self._limits, metrics=self._metrics))
