"""What every service has, whether it serves models or stands in front of an API: limits, errors, metrics, state.

A `Service` is what `isosent.server.run` and `isosent.server.http` need of both: its `Limits`, its `Metrics`, and what
goes on while it runs. A request that is refused is a `RequestError`, whose message is for the client. Messages of the
library are not: `reason_of` gives one to clients without folders of this machine, with the names that clients use for
models in their place (`named_for_clients`).
"""

from __future__ import annotations

import asyncio
import gc
import math
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from isosent.api.refusals import HttpError
from isosent.errors import IsosentError, in_shell, option

MOST_UNREAD: Final = 64 << 20  # bytes of several answers, for longer than a sweep
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # of metrics
METRICS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"  # of prometheus-client: a folder of files that processes share
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_RISING = (b"te_request_count", b"te_request_success", b"te_request_failure")
_UNREAD_LOOK_S = 0.05
_PATH: Final = re.compile(r"(^|[\s'\"(=:,])(/(?!/)|[A-Za-z]:\\|~/)\S|\b(s3|gs|hdfs|file)://")
_SIZES = tuple(2**power for power in range(0, 17, 2))


def flag_of(name: str) -> str:
    """The option of ``isosent serve`` for a parameter or a limit, for whoever runs the server."""
    return f"--{name.removesuffix('_s').replace('_', '-')}"


class RequestError(HttpError):
    """A request that is refused; its message is for the client and says nothing about the machine."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(status, in_shell(message, lambda name, _: flag_of(name)), **more)


def reason_of(error: Exception, references: Mapping[str, str] | None = None) -> str:
    """The message of an error of ours, unless it names a file of this machine; models are called as clients do."""
    message = named_for_clients(str(error), references or {})
    is_ours = isinstance(error, IsosentError)
    return message if is_ours and not _PATH.search(message) else "its reason names files of the server."


def failure_facts(name: str, error: Exception) -> dict[str, str]:
    """What failed for a model, for the log."""
    return {"model": name, "error": type(error).__name__, "reason": reason_of(error)}


def named_for_clients(message: str, references: Mapping[str, str]) -> str:
    """A message with the names of models in place of the folders that they are loaded from."""
    for reference in sorted(references, key=len, reverse=True):  # "hf:/a/b" before "/a/b"
        message = message.replace(reference, references[reference])
    return message


def freeze_memory() -> None:
    """Spare the collector the objects that stay: it looked at all modules and models every few requests."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _limit(default: float, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server; each is an option of ``isosent serve``.

    Parameters
    ----------
    max_body_bytes : int, default 4,000,000
        Bytes of a request.
    max_texts : int, default 2048
        Texts of a request.
    max_batch_tokens : int, default 16,384
        Tokens that a model computes at once. Larger requests are split.
    max_queued_tokens : int, default 1,000,000
        Tokens that may wait for a model. A request that comes later gets 429.
    max_connections : int, default 512
        Connections at the same time. For a further one, that is closed whose client has sent nothing for longest.
    request_timeout_s : float, default 30
        Seconds in which a request must have arrived, and in which a client must read 1 MiB of an answer, or its rest.
    """

    max_body_bytes: int = _limit(4_000_000, "Bytes of a request.")
    max_texts: int = _limit(2048, "Texts of a request.")
    max_batch_tokens: int = _limit(16_384, "Tokens of a batch; larger requests are split.")
    max_queued_tokens: int = _limit(1_000_000, "Tokens that may wait; later requests get 429.")
    max_connections: int = _limit(512, "Connections at the same time.")
    request_timeout_s: float = _limit(30.0, "Seconds to send a request, or to read 1 MiB of an answer.")

    def to_json(self) -> list[dict[str, Any]]:
        """Return names, values, flags and meanings, for ``/info``.

        Returns
        -------
        list of dict
            One for each limit.
        """
        return [
            {"name": f.name, "value": getattr(self, f.name), "flag": flag_of(f.name), **f.metadata}
            for f in fields(self)
        ]

    def check_texts(self, n_texts: int, param: str) -> None:
        """Refuse too many texts.

        Parameters
        ----------
        n_texts : int
            Texts of a request.
        param : str
            Field of the body that holds them, for the message.

        Raises
        ------
        RequestError
            With status 413, if there are more than `max_texts`.
        """
        if n_texts > self.max_texts:
            raise RequestError(
                413,
                f"{param} has {n_texts} texts; a request may have at most {self.max_texts} ({option('max_texts')}).",
                param=param,
            )

    def body_too_large(self) -> RequestError:
        """The error for a request of too many bytes.

        Returns
        -------
        RequestError
            With status 413.
        """
        return RequestError(
            413, f"a request may have at most {self.max_body_bytes} bytes ({option('max_body_bytes')})."
        )

    def queue_is_full(self, n_tokens: int, tokens_per_s: float) -> RequestError:
        """The error for a request that comes when too many tokens wait.

        Parameters
        ----------
        n_tokens : int
            Tokens that wait.
        tokens_per_s : float
            How fast the model has been; 0 if that is not known.

        Returns
        -------
        RequestError
            With status 429, and the seconds to wait in the header ``Retry-After``.
        """
        wait_s = max(1, math.ceil(n_tokens / tokens_per_s)) if tokens_per_s > 0 else 1
        return RequestError(
            429,
            f"{n_tokens} tokens wait for this model; at most {self.max_queued_tokens} may "
            f"({option('max_queued_tokens')}). Try again in {wait_s} s.",
            code="rate_limit_exceeded",
            headers={"Retry-After": str(wait_s)},
        )


class Metrics:
    """The metrics of a service: the names of Text Embeddings Inference, and ours. Threads and processes share them."""

    # prometheus-client puts "_total" behind the names of counters. Those of Text Embeddings Inference end without it,
    # so they are gauges here, and `text` calls them counters.

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        method, model = ("method",), ("model",)
        summed: dict[str, Any] = {"registry": registry, "multiprocess_mode": "sum"}
        living: dict[str, Any] = {"registry": registry, "multiprocess_mode": "livesum"}
        self.request_count = Gauge("te_request_count", "Requests.", method, **summed)
        self.request_success = Gauge("te_request_success", "Requests that were answered.", method, **summed)
        self.request_failure = Gauge("te_request_failure", "Requests that failed.", ("err",), **summed)
        self.request_duration = Histogram(
            "te_request_duration", "Seconds of a request.", method, buckets=_SECONDS, registry=registry
        )
        self.tokenization_duration = Histogram(
            "te_request_tokenization_duration",
            "Seconds to tokenize a batch.",
            model,
            buckets=_SECONDS,
            registry=registry,
        )
        self.queue_duration = Histogram(
            "te_request_queue_duration", "Seconds in the queue.", model, buckets=_SECONDS, registry=registry
        )
        self.inference_duration = Histogram(
            "te_request_inference_duration",
            "Seconds to compute a batch.",
            model,
            buckets=_SECONDS,
            registry=registry,
        )
        self.batch_size = Histogram("te_batch_next_size", "Texts of a batch.", model, buckets=_SIZES, registry=registry)
        self.batch_tokens = Histogram(
            "te_batch_next_tokens", "Tokens of a batch.", model, buckets=_SIZES, registry=registry
        )
        self.queue_size = Gauge("te_queue_size", "Requests in the queue.", model, **living)
        self.queued_tokens = Gauge("isosent_queued_tokens", "Tokens in the queue, estimated.", model, **living)
        self.texts = Counter("isosent_texts", "Texts that were embedded.", model, registry=registry)
        self.tokens = Counter("isosent_tokens", "Tokens that were embedded.", model, registry=registry)
        self.canary = Gauge(
            "isosent_canary_cosine", "Lowest cosine of fixed texts, stored and now.", model, registry=registry
        )
        self.truncated = Counter("isosent_truncated_texts", "Texts that were cut.", model, registry=registry)
        # `labels` checks its arguments and takes a lock whenever it is called
        self._labeled = lru_cache(64)(lambda metric, label: metric.labels(label))

    def batch(
        self, model: str, n_texts: int, n_tokens: int, n_truncated: int, tokenize_s: float, compute_s: float
    ) -> None:
        """Count a batch."""
        self.tokenization_duration.labels(model).observe(tokenize_s)
        self.inference_duration.labels(model).observe(compute_s)
        self.batch_size.labels(model).observe(n_texts)
        self.batch_tokens.labels(model).observe(n_tokens)
        self.texts.labels(model).inc(n_texts)
        self.tokens.labels(model).inc(n_tokens)
        self.truncated.labels(model).inc(n_truncated)

    def request(self, method: str, status: int, duration_s: float) -> None:
        """Count a request."""
        self._labeled(self.request_count, method).inc()
        if status < 400:
            self._labeled(self.request_success, method).inc()
            self._labeled(self.request_duration, method).observe(duration_s)
        else:
            self.request_failure.labels(str(status)).inc()

    def text(self) -> bytes:
        """All metrics as Prometheus reads them."""
        registry = self.registry
        if METRICS_VARIABLE in os.environ:  # the sums over all processes
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        content = generate_latest(registry)
        for name in _RISING:
            content = content.replace(b"# TYPE %s gauge\n" % name, b"# TYPE %s counter\n" % name)
        return content


class Service(ABC):
    """A running service: what `isosent.server.run` and `isosent.server.http` need of it.

    It belongs to the event loop, but for `reload`, which runs in a thread, and `is_draining`, which a signal sets.
    """

    def __init__(self, limits: Limits, *, has_keys: bool = False) -> None:
        self.limits, self.metrics = limits, Metrics()
        self.has_keys = has_keys  # whether clients need keys
        self.is_draining = False
        self.worker: int | None = None  # number of this process among several (isosent.server.workers)
        self.has_reloaded: Callable[[], None] = lambda: None  # tells the others
        self.started_at = int(time.time())
        self.n_unread: Callable[[], int] = lambda: 0  # bytes of answers that wait for their clients; `run` knows it
        self._large_answer = asyncio.Lock()

    @asynccontextmanager
    async def room_for_answer(self) -> AsyncIterator[None]:
        """Make large answers one after the other, and none while too much waits for clients who do not read it."""
        try:
            async with asyncio.timeout(self.limits.request_timeout_s):
                await self._large_answer.acquire()
                try:
                    while self.n_unread() > MOST_UNREAD:
                        await asyncio.sleep(_UNREAD_LOOK_S)
                except BaseException:
                    self._large_answer.release()
                    raise
        except TimeoutError:
            message = "too many answers wait for clients that do not read them. Try again in 1 s."
            raise RequestError(503, message, headers={"Retry-After": "1"}) from None
        try:
            yield
        finally:
            self._large_answer.release()

    @abstractmethod
    def reload(self) -> None:
        """Load all models again, next to those in use."""

    @abstractmethod
    def running(self) -> AbstractAsyncContextManager[None]:
        """What goes on during the requests, from the first to the last of them."""

    def references(self) -> Mapping[str, str]:
        """Names that clients use, by what names folders of this machine in their place."""
        return {}

    async def obstacle(self) -> tuple[str, Mapping[str, str]] | None:
        """Why no request should be sent here, and the headers that say when one may be; None if nothing is wrong."""
        return ("draining", {"Retry-After": "1"}) if self.is_draining else None
