"""Vectors of the upstream by text: kept in a file, on their way, or fetched.

`Fetches.vectors` looks texts up in the `VectorCache`, waits for those that another request waits for, and asks the
upstream for the rest, in one fetch that goes on if its client hangs up. A text is known by a hash (`Fetches.key`). What
comes back goes into the cache and, with every text that passes, to the `Learner`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter

from isosent.api.cache import VectorCache
from isosent.api.client import Answer, Upstream, upstream_facts
from isosent.api.dialects import NO_FIELDS, Item
from isosent.api.refusals import HttpError
from isosent.role import RoleName
from isosent.server.maps import Learner
from isosent.server.service import RequestError

_log = logging.getLogger("isosent.server")
_MOST_FETCHES: Final = 256


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
