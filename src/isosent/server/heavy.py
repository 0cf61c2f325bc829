"""Work that takes long, in threads and a bounded queue of its own, so that what is short never waits for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from starlette.requests import Request

from isosent.server.http import unless_gone
from isosent.server.limits import RequestError

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
