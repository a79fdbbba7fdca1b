"""Decisions by llama-server, llama-cpp-python and cappr, each as a `Decider`.

A program that accepts prompts as tokens gets the same tokens as eliza-ffi.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Sequence
from typing import Any

from ..choosing.other_libraries import LlamaCppPython
from ..model import gbnf_of
from ..together.llama_server import GREEDY, asked, chosen_text
from .ours import Decided, Decider, DecidingSetting
from .workload import PutQuestions

MOST_CAPPR_SECONDS = 20.0
"""cappr is left out of cells in which it would take longer than this for one input."""

LOGITS_PER_SECOND = 1.5e7
"""Logits that llama-cpp-python converts to Python numbers per second, as cappr requires for every
option."""

SYSTEMONE, SERVER_GRAMMAR = "llama-server /v1/systemone", "llama-server grammar"
"""The labels of the two llama-server methods."""

ANSWER_TOKENS = 64
"""The most tokens of an answer."""


def _port(setting: DecidingSetting, way: str) -> int:
    if way not in setting.ports:
        raise RuntimeError(f"{way}: llama-server is not running")
    return setting.ports[way]


class SystemoneServer(Decider):
    """llama-server's endpoint for decision models: one request with all questions."""

    def __init__(self, setting: DecidingSetting) -> None:
        self._port = _port(setting, SYSTEMONE)
        self._questions = setting.questionnaire.systemone

    def decide(self, put: PutQuestions) -> Decided:
        begin = time.perf_counter()
        said = asked(
            self._port, "/v1/systemone", {"state": put.given, "questions": self._questions}
        )
        seconds = time.perf_counter() - begin
        rows = tuple(
            tuple(float(p) for p in said["answers"][name]["probabilities"].values())
            for name in self._questions
        )
        return Decided(seconds, tuple(row.index(max(row)) for row in rows), rows)


class GrammarServer(Decider):
    """llama-server's completions: one request for each question, with a grammar and `n_probs`.

    For labels of one token, the answer is read from the reported probabilities. Longer labels are
    generated greedily. All requests use one slot, which has the common beginning of the prompts
    after the first request.
    """

    def __init__(self, setting: DecidingSetting) -> None:
        self._port = _port(setting, SERVER_GRAMMAR)
        self._is_decision_model = not setting.questionnaire.has_own_labels
        self._labels = setting.questionnaire.labels
        self._temperature = setting.questionnaire.temperature
        more: dict[str, Any] = {
            "cache_prompt": True,
            "id_slot": 0,
            "grammar": gbnf_of(self._labels),
        }
        if self._is_decision_model:
            more |= {"n_predict": 1, "n_probs": len(self._labels), "post_sampling_probs": True}
            more |= {"temperature": 1.0, "samplers": ["temperature"]}
        else:
            more |= {"n_predict": ANSWER_TOKENS, "n_probs": 10, "stop": self._labels, **GREEDY}
        self._more = more

    def decide(self, put: PutQuestions) -> Decided:
        begin = time.perf_counter()
        said = [
            asked(self._port, "/completion", {"prompt": prompt, **self._more})
            for prompt in put.prompts
        ]
        seconds = time.perf_counter() - begin
        if not self._is_decision_model:
            texts = [chosen_text(one) for one in said]
            answers = tuple(_place(text, self._labels) for text in texts)
            return Decided(seconds, answers, scoring="any")
        found = [one["completion_probabilities"][0]["top_probs"] for one in said]
        rows = tuple(self._row(top) for top in found)
        return Decided(seconds, tuple(row.index(max(row)) for row in rows), rows)

    def _row(self, top: Sequence[dict[str, Any]]) -> tuple[float, ...]:
        """Return the probabilities of the labels at the model's temperature; their sum is 1."""
        by_text = {one["token"]: float(one["prob"]) for one in top}
        weights = [by_text.get(label, 0.0) ** (1.0 / self._temperature) for label in self._labels]
        total = sum(weights) or 1.0
        return tuple(weight / total for weight in weights)


class GrammarLoop(Decider):
    """llama-cpp-python with a grammar of the labels, one question after the other."""

    def __init__(self, setting: DecidingSetting) -> None:
        self._labels = setting.questionnaire.labels
        self._is_decision_model = not setting.questionnaire.has_own_labels
        n_ctx = setting.longest + ANSWER_TOKENS
        self._llama = LlamaCppPython(setting.model.path, self._labels, n_ctx, setting.n_threads)

    def decide(self, put: PutQuestions) -> Decided:
        begin = time.perf_counter()
        texts = [self._llama.choose(prompt, self._ends_at)[0] for prompt in put.prompts]
        seconds = time.perf_counter() - begin
        answers = tuple(_place(text, self._labels) for text in texts)
        return Decided(seconds, answers, scoring="any")

    def _ends_at(self, text: str) -> bool:
        return self._is_decision_model or text in self._labels

    def close(self) -> None:
        del self._llama


class CapprDecisions(Decider):
    """cappr over llama-cpp-python: the prefix once, then the options one after the other.

    Raises
    ------
    ValueError
        If one input would take longer than `MOST_CAPPR_SECONDS`.
    """

    def __init__(self, setting: DecidingSetting) -> None:
        questionnaire = setting.questionnaire
        self._labels = questionnaire.labels
        self._temperature = questionnaire.temperature
        is_decision_model = not questionnaire.has_own_labels
        reads = len(questionnaire.questions) * (1 if is_decision_model else len(self._labels))
        n_vocab = int(setting.model.describe()["model"]["n_vocab"])
        seconds = reads * setting.longest * n_vocab / LOGITS_PER_SECOND
        if seconds > MOST_CAPPR_SECONDS:
            raise ValueError(
                f"converting logits to Python numbers would take {seconds:.0f} s, more than "
                f"{MOST_CAPPR_SECONDS:.0f} s"
            )
        self._classify = importlib.import_module("cappr.llama_cpp.classify")
        llama = importlib.import_module("llama_cpp").Llama

        class WithControlTokens(llama):  # type: ignore[misc, valid-type]
            """Parses control tokens in prompts; the prompts contain their own start token."""

            def tokenize(self, text: bytes, add_bos: bool = True, special: bool = True) -> Any:
                return super().tokenize(text, add_bos=False, special=True)

        self._llama = WithControlTokens(
            setting.model.path,
            n_ctx=setting.longest + ANSWER_TOKENS,
            n_threads=setting.n_threads,
            logits_all=True,
            verbose=False,
        )

    def decide(self, put: PutQuestions) -> Decided:
        # A token ends where the input ends, so the prompts can be split there.
        shared = put.texts[0].partition(put.given)[0] + put.given
        endings = [text.removeprefix(shared) for text in put.texts]
        begin = time.perf_counter()
        with self._classify.cache(self._llama, shared):
            rows = self._classify.log_probs_conditional(
                endings,
                self._labels,
                self._llama,
                end_of_prompt="",
                show_progress_bar=False,
                reset_model=False,
            )
        seconds = time.perf_counter() - begin
        sums = [[sum(option) / self._temperature for option in row] for row in rows]
        found = tuple(_softmax(row) for row in sums)
        answers = tuple(row.index(max(row)) for row in found)
        return Decided(seconds, answers, found, scoring="full")

    def close(self) -> None:
        self._llama.close()


def _place(text: str, labels: Sequence[str]) -> int:
    return labels.index(text) if text in labels else -1


def _softmax(logs: Sequence[float]) -> tuple[float, ...]:
    highest = max(logs)
    weights = [math.exp(each - highest) for each in logs]
    total = math.fsum(weights)
    return tuple(weight / total for weight in weights)
