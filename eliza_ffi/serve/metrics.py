"""Metrics for Prometheus: requests, questions, tokens, forward passes, the queue, and times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..decisions.answers import Decision
from ..decisions.questions import Question
from .admission import Admission
from .settings import QuestionSet

CLIENT_GONE = 499
"""The status code that is counted for requests whose client disconnected."""

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
"""Upper bounds of the histogram buckets."""


class ServeMetrics:
    """The metrics of one server."""

    def __init__(
        self,
        admission: Admission,
        passes: Callable[[], Mapping[str, Any]],  # the library's statistics
        sets: Mapping[str, QuestionSet],
        paths: Iterable[str],  # to count by name; all other paths are counted as "other"
    ) -> None:
        registry = self._registry = CollectorRegistry()
        self._paths = frozenset(paths)

        def counter(name: str, description: str, label: str, *more: str) -> Counter:
            return Counter(f"eliza_{name}", description, (label, *more), registry=registry)

        def histogram(name: str, description: str, *labels: str) -> Histogram:
            name = f"eliza_{name}_seconds"
            return Histogram(name, description, labels, buckets=SECONDS, registry=registry)

        self._requests = counter("requests", "Requests answered", "endpoint", "code")
        self._questions = counter("questions", "Questions answered", "type")
        self._tokens = counter(
            "tokens",
            "Prompt tokens, read by the model or reused from the KV cache, and generated tokens",
            "source",
        )
        self._request_seconds = histogram(
            "request", "Time from the head of a request to the end of its response", "endpoint"
        )
        self._queue_seconds = histogram("queue", "Time that a request waited in the queue")
        self._decision_seconds = histogram(
            "decision", "Time from the prompts of a decision to its answers"
        )
        waits = "Requests that are waiting or running"
        queue = Gauge("eliza_queue_requests", waits, ("state",), registry=registry)
        queue.labels("waiting").set_function(lambda: admission.n_waiting)
        queue.labels("running").set_function(lambda: admission.n_running)
        registry.register(_Passes(passes))
        registry.register(_Drift(sets))

    def count_request(self, path: str, code: int, seconds: float) -> None:
        endpoint = path if path in self._paths else "other"
        self._requests.labels(endpoint, str(code)).inc()
        self._request_seconds.labels(endpoint).observe(seconds)

    def count_wait(self, seconds: float) -> None:
        self._queue_seconds.observe(seconds)

    def count_decision(self, questions: Iterable[Question], decision: Decision) -> None:
        usage = decision.usage
        for question in questions:
            self._questions.labels(type(question).__name__.lower()).inc()
        self.count_tokens(usage.input_tokens, usage.cached_tokens)
        self._decision_seconds.observe(usage.seconds)

    def count_tokens(self, n_prompt: int, n_cached: int, n_generated: int = 0) -> None:
        """Count the tokens of a prompt, how many of them were reused, and the generated tokens."""
        self._tokens.labels("read").inc(n_prompt - n_cached)
        self._tokens.labels("reused").inc(n_cached)
        self._tokens.labels("generated").inc(n_generated)

    def text(self) -> bytes:
        return generate_latest(self._registry)


class _Passes(Collector):
    """The library's own counts of forward passes."""

    def __init__(self, passes: Callable[[], Mapping[str, Any]]) -> None:
        self._passes = passes

    def collect(self) -> Iterable[Metric]:
        passes = self._passes()
        yield CounterMetricFamily("eliza_passes", "Forward passes", value=passes.get("run", 0))
        yield CounterMetricFamily(
            "eliza_pass_sequences",
            "Sequences in all forward passes; divide by eliza_passes for the mean per pass",
            value=passes.get("sequences", 0),
        )


class _Drift(Collector):
    """How far the recent answers of calibrated sets are from the fitted ones."""

    def __init__(self, sets: Mapping[str, QuestionSet]) -> None:
        self._sets = sets

    def collect(self) -> Iterable[Metric]:
        of_question, of_kind = ("set", "question"), ("set", "question", "of")

        def gauge(name: str, text: str, labels: Sequence[str] = of_question) -> GaugeMetricFamily:
            return GaugeMetricFamily(f"eliza_answer_{name}", text, labels=labels)

        distance = gauge("drift", "Distance of the shares of recent answers from the fitted ones")
        by_chance = gauge("drift_by_chance", "The distance to expect if the inputs are the same")
        abstained = gauge("abstained", "Share of recent answers that the model abstained from")
        probability = gauge("probability", "Mean probability of the answers", of_kind)
        share = gauge("share", "Share of each answer", (*of_kind, "answer"))
        for name, each in self._sets.items():
            drift = {} if each.recent is None else each.recent.drift()
            for question, found in drift.items():
                distance.add_metric((name, question), found["distance"])
                by_chance.add_metric((name, question), found["by_chance"])
                abstained.add_metric((name, question), found["abstained"])
                for of in ("fitted", "recent"):
                    probability.add_metric((name, question, of), found[of]["probability"])
                    for answer, value in found[of]["shares"].items():
                        share.add_metric((name, question, of, answer), value)
        return distance, by_chance, abstained, probability, share
