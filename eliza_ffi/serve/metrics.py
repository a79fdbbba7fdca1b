"""What Prometheus is told: requests, questions, tokens, passes, the queue, and how long it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..decisions.answers import Decision
from ..decisions.questions import Question
from .admission import Admission

__all__ = ["CLIENT_GONE", "Measured", "ServeMetrics"]

CLIENT_GONE = 499
"""The code of requests that nobody waited for; no client sees it."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds of the histograms."""


class ServeMetrics:
    """The figures of one server.

    Parameters
    ----------
    admission
        Whose queue is told of.
    passes
        Returns what the library counts of its forward passes.
    """

    def __init__(self, admission: Admission, passes: Callable[[], Mapping[str, Any]]) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "eliza_requests", "Requests answered", ("endpoint", "code"), registry=self._registry
        )
        self.seconds = Histogram(
            "eliza_request_seconds",
            "From a request's head to the end of its answer",
            ("endpoint",),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._queue_seconds = Histogram(
            "eliza_queue_seconds",
            "What a request waited before work on it began",
            buckets=SECONDS,
            registry=self._registry,
        )
        self._decision_seconds = Histogram(
            "eliza_decision_seconds",
            "What a decision took, from its prompts to its answers",
            buckets=SECONDS,
            registry=self._registry,
        )
        self._questions = Counter(
            "eliza_questions", "Questions answered", ("type",), registry=self._registry
        )
        self._tokens = Counter(
            "eliza_tokens",
            "Tokens of prompts: read, or reused from the KV cache",
            ("source",),
            registry=self._registry,
        )
        queue = Gauge(
            "eliza_queue_requests",
            "Requests that wait, and that are worked on",
            ("state",),
            registry=self._registry,
        )
        queue.labels("waiting").set_function(lambda: admission.n_outside)
        queue.labels("running").set_function(lambda: admission.n_inside)
        self._registry.register(_Passes(passes))

    def count_wait(self, seconds: float) -> None:
        """Count what a request has waited."""
        self._queue_seconds.observe(seconds)

    def count_decision(self, questions: Iterable[Question], decision: Decision) -> None:
        """Count a decision that was made."""
        usage = decision.usage
        for question in questions:
            self._questions.labels(type(question).__name__.lower()).inc()
        self._tokens.labels("read").inc(usage.input_tokens - usage.cached_tokens)
        self._tokens.labels("reused").inc(usage.cached_tokens)
        self._decision_seconds.observe(usage.seconds)

    def text(self) -> bytes:
        """Return all figures in Prometheus' text format."""
        return generate_latest(self._registry)


class _Passes(Collector):
    """The forward passes, as the library counts them."""

    def __init__(self, passes: Callable[[], Mapping[str, Any]]) -> None:
        self._passes = passes

    def collect(self) -> Iterable[Metric]:
        passes = self._passes()
        yield CounterMetricFamily("eliza_passes", "Forward passes", value=passes.get("run", 0))
        yield CounterMetricFamily(
            "eliza_pass_sequences",
            "Sequences in them; divided by the passes, how many share one",
            value=passes.get("sequences", 0),
        )


class Measured:
    """Counts the requests of an application.

    Parameters
    ----------
    app
    metrics
    endpoints
        The paths that are counted by name; all else is "other".
    """

    def __init__(self, app: ASGIApp, metrics: ServeMetrics, endpoints: Iterable[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._endpoints = frozenset(endpoints)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        endpoint = scope["path"] if scope["path"] in self._endpoints else "other"
        code = CLIENT_GONE
        begin = time.perf_counter()

        async def counted(message: Message) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            self._metrics.requests.labels(endpoint, str(code)).inc()
            self._metrics.seconds.labels(endpoint).observe(time.perf_counter() - begin)
