"""Metrics for Prometheus: the names of Text Embeddings Inference, and ours."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_RISING = (b"te_request_count", b"te_request_success", b"te_request_failure")
_SIZES = tuple(2**power for power in range(0, 17, 2))


class Metrics:
    """The metrics of one server."""

    # prometheus-client puts "_total" behind the names of counters. Those of Text Embeddings Inference end without it,
    # so they are gauges here, and `text` calls them counters.

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = registry = CollectorRegistry()
        method, model = ("method",), ("model",)
        self.request_count = Gauge("te_request_count", "Requests.", method, registry=registry)
        self.request_success = Gauge("te_request_success", "Requests that were answered.", method, registry=registry)
        self.request_failure = Gauge("te_request_failure", "Requests that failed.", ("err",), registry=registry)
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
        self.queue_size = Gauge("te_queue_size", "Requests in the queue.", model, registry=registry)
        self.queued_tokens = Gauge("isosent_queued_tokens", "Tokens in the queue, estimated.", model, registry=registry)
        self.texts = Counter("isosent_texts", "Texts that were embedded.", model, registry=registry)
        self.tokens = Counter("isosent_tokens", "Tokens that were embedded.", model, registry=registry)
        self.truncated = Counter("isosent_truncated_texts", "Texts that were cut.", model, registry=registry)

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
        self.request_count.labels(method).inc()
        if status < 400:
            self.request_success.labels(method).inc()
            self.request_duration.labels(method).observe(duration_s)
        else:
            self.request_failure.labels(str(status)).inc()

    def text(self) -> bytes:
        """All metrics as Prometheus reads them."""
        content = generate_latest(self.registry)
        for name in _RISING:
            content = content.replace(b"# TYPE %s gauge\n" % name, b"# TYPE %s counter\n" % name)
        return content
