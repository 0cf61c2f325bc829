"""What the handlers of a server share: models, limits, state, and the threads for long work."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from starlette.requests import Request

from isosent.server.http import unless_gone
from isosent.server.limits import Limits, RequestError
from isosent.server.metrics import Metrics
from isosent.server.registry import Registry
from isosent.server.tried import TextSets

T = TypeVar("T")
_THREADS: Final = 2
_MOST_WAITING: Final = 32


class HeavyWork:
    """A few threads with a queue before them; what a client that has gone waits for is not begun.

    Handlers give it what computes longer than a request should hold one of the threads that all requests share. What
    has begun goes on to its end, so each piece of work should take a few seconds at most.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="isosent heavy work")
        self._lock, self.n_waiting = threading.Lock(), 0  # or in a thread

    async def run(self, request: Request, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a function when its turn comes, unless the client hangs up."""
        with self._lock:
            if self.n_waiting >= _MOST_WAITING:
                message = f"{self.n_waiting} requests of this kind wait; at most {_MOST_WAITING} may. Try again in 1 s."
                raise RequestError(429, message, code="rate_limit_exceeded", headers={"Retry-After": "1"})
            self.n_waiting += 1
        future = self._threads.submit(partial(function, *arguments, **named))
        future.add_done_callback(self._is_over)  # at once, if it is cancelled in the queue
        return await unless_gone(request, asyncio.wrap_future(future))

    def _is_over(self, future: Future[Any]) -> None:
        with self._lock:
            self.n_waiting -= 1

    def close(self) -> None:
        """Begin nothing more."""
        self._threads.shutdown(wait=False, cancel_futures=True)


@dataclass(eq=False)
class Service:
    """A running server."""

    registry: Registry
    limits: Limits
    metrics: Metrics
    has_keys: bool = False
    is_draining: bool = False
    text_sets: TextSets = field(default_factory=TextSets)
    heavy: HeavyWork = field(default_factory=HeavyWork)
    started_at: int = field(default_factory=lambda: int(time.time()))

    def reload(self) -> None:
        """Load all models again."""
        with suppress(RequestError):  # one is running
            self.registry.reload()


def check_space(request: Request, space: str) -> None:
    """Refuse a request whose vectors are to be compared with those of another space."""
    wanted = request.headers.get("if-space")
    if wanted is not None and wanted.strip('"') != space:
        raise RequestError(409, f"If-Space names another vector space; that of this model is {space}.")


def space_headers(space: str, n_truncated: int | None) -> dict[str, str]:
    """Headers of every response with vectors; it is not known of all how many texts were cut."""
    truncated = {} if n_truncated is None else {"X-Isosent-Truncated": str(n_truncated)}
    return {"X-Isosent-Space": space, **truncated}
