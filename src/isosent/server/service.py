"""What every service has, whether it serves models or stands in front of an API: limits, errors, metrics, state.

A `Service` is what `isosent.server.run` and `isosent.server.http` need of both: its `Limits`, its `Metrics`, and what
goes on while it runs. The message of a `RequestError` is for the client. Messages of the library are not: `reason_of`
gives one to clients without folders of this machine, with the names that clients use for models in their place
(`named_for_clients`).
"""

from __future__ import annotations

import asyncio
import gc
import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
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

from isosent.errors import IsosentError
from isosent.server.limits import Limits, RequestError

MOST_UNREAD: Final = 64 << 20  # bytes of several answers, for longer than a sweep
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # of metrics
METRICS_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"  # of prometheus-client: a folder of files that processes share
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_RISING = (b"te_request_count", b"te_request_success", b"te_request_failure")
_UNREAD_LOOK_S = 0.05
_PATH: Final = re.compile(r"(^|[\s'\"(=:,])(/(?!/)|[A-Za-z]:\\|~/)\S|\b(s3|gs|hdfs|file)://")
_SIZES = tuple(2**power for power in range(0, 17, 2))


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
