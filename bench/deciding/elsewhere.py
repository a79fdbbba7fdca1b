"""Decisions by llama-server, each way as a `Decider`; completions get the tokens of eliza-ffi."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from ..model import gbnf_of
from ..together.llama_server import GREEDY, asked, chosen_text
from .ours import Decided, Decider, DecidingSetting
from .workload import PutQuestions

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


def _place(text: str, labels: Sequence[str]) -> int:
    return labels.index(text) if text in labels else -1
