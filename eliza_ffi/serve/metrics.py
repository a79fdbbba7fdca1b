"""Metrics for Prometheus: requests, questions, tokens, forward passes, the queue, and times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..decisions.answers import Decision, given_answer, single_answers
from ..decisions.questions import Question, text_of
from .admission import Admission

if TYPE_CHECKING:
    from .learner import SetLearner

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Upper bounds of the histogram buckets that are below the deadline, which is the last bound."""


class ServeMetrics:
    """The metrics of one server."""

    def __init__(
        self,
        admission: Admission,
        passes: Callable[[], Mapping[str, Any]],  # the library's statistics
        paths: Iterable[str],  # to count by name; all other paths are counted as "other"
        deadline: float,  # of a request, in seconds
        learners: Mapping[str, SetLearner] = MappingProxyType({}),  # by the name of the set
    ) -> None:
        registry = self._registry = CollectorRegistry()
        self._paths = frozenset(paths)
        buckets = [*(seconds for seconds in SECONDS if seconds < deadline), deadline]

        def counter(name: str, description: str, label: str, *more: str) -> Counter:
            return Counter(f"eliza_{name}", description, (label, *more), registry=registry)

        def histogram(name: str, description: str, *labels: str) -> Histogram:
            name = f"eliza_{name}_seconds"
            return Histogram(name, description, labels, buckets=buckets, registry=registry)

        self._requests = counter("requests", "Requests answered", "endpoint", "code")
        self._questions = counter("questions", "Questions answered", "type")
        of_set = ("set", "question")
        self._answers = counter("answers", "Answers to the questions of sets", *of_set, "answer")
        self._abstained = counter("abstentions", "Answers that the model abstained from", *of_set)
        self._unfamiliar = counter("unfamiliar_inputs", "Inputs unlike the examples", *of_set)
        self._tokens = counter(
            "tokens",
            "Prompt tokens, read by the model or reused from the KV cache, and generated tokens",
            "source",
        )
        self._request_seconds = histogram(
            "request", "Time from the head of a request to the end of its response", "endpoint"
        )
        self.queue_seconds = histogram("queue", "Time that a request waited in the queue")
        self._decision_seconds = histogram(
            "decision", "Time from the prompts of a decision to its answers"
        )
        self.first_token_seconds = histogram(
            "time_to_first_token", "Time from the head of a request to the first text of a stream"
        )
        self.token_seconds = histogram(
            "time_per_output_token", "Mean time of the tokens of a streamed answer after the first"
        )
        waits = "Requests that are waiting or running"
        queue = Gauge("eliza_queue_requests", waits, ("state",), registry=registry)
        queue.labels("waiting").set_function(lambda: admission.n_waiting)
        queue.labels("running").set_function(lambda: admission.n_running)
        registry.register(_Passes(passes))
        registry.register(_Learning(learners))

    def count_request(self, path: str, code: int, seconds: float) -> None:
        endpoint = path if path in self._paths else "other"
        self._requests.labels(endpoint, str(code)).inc()
        self._request_seconds.labels(endpoint).observe(seconds)

    def count_decision(
        self, questions: Iterable[Question], decision: Decision, name: str | None = None
    ) -> None:
        """Count a decision and, if the questions are a set with a name, each of its answers."""
        usage = decision.usage
        for asked, answer in () if name is None else single_answers(decision):
            self._answers.labels(name, asked, text_of(given_answer(answer))).inc()
            self._abstained.labels(name, asked).inc(answer.abstained)
            self._unfamiliar.labels(name, asked).inc(bool(answer.unfamiliar))
        for question in questions:
            self._questions.labels(type(question).__name__.lower()).inc()
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


class _Learning(Collector):
    """What sets learned from labels."""

    def __init__(self, learners: Mapping[str, SetLearner]) -> None:
        self._learners = learners

    def collect(self) -> Iterable[Metric]:
        labels = CounterMetricFamily("eliza_labels", "Labels in the file", labels=["set"])
        refits = CounterMetricFamily("eliza_refits", "Fits to labels", labels=["set", "result"])
        version = GaugeMetricFamily(
            "eliza_calibration_version",
            "Version of the calibration in use; 0 = that of the start",
            labels=["set"],
        )
        for name, each in self._learners.items():
            labels.add_metric([name], len(each.file.labels))
            version.add_metric([name], each.version.number)
            for result in ("accepted", "rejected", "failed"):
                refits.add_metric([name, result], each.refits[result])
        return labels, refits, version
