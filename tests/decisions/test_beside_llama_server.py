"""Decision models give the same answers as in llama-server, which reads the same files.

Both compute in full precision and without flash attention here, so that they differ only by the
rounding of float32. With flash attention, which they configure differently, the probabilities of
these random models differ by a few thousandths.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from label_scores import answered, made_of
from write_decision_models import DEFINITIONS, cached_decision_model

from bench.together.llama_server import HOST, find_llama_server, serving
from eliza_ffi import CacheOptions
from eliza_ffi.decisions.answers import choice_confidence, score_confidence
from eliza_ffi.decisions.models.systemone import SystemoneQuestion
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

PROGRAM, PEER = find_llama_server()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=str(PEER.problem))

TOLERANCE = 1e-5

QUESTIONS: dict[str, dict[str, Any]] = {
    "angry": {"type": "noul", "instructions": "Is the customer angry?"},
    "refund": {
        "type": "noul",
        "instructions": {"z": "Is a refund asked for?", "a": [1, "two", None, True]},
        "criteria": {"true": "they want money back", "false": {"why": "none", "at": 2}},
    },
    "half described": {
        "type": "noul",
        "instructions": "Is it about\n\tan \"invoice\" \\ a 'bill'?",
        "criteria": {"true": "é, 中文, 😀"},
    },
    "route": {
        "type": "choice",
        "instructions": "Which team?",
        "criteria": {"sales": "offers", "billing": None, "it": {"b": 1, "a": "Größe"}},
    },
    "letters": {"type": "choice", "instructions": "B or A?", "criteria": {"B": None, "A": None}},
    "only one": {"type": "choice", "instructions": ["Which?"], "criteria": {"this": None}},
    "eight": {
        "type": "choice",
        "instructions": "Which day?",
        "criteria": {f"day {i}": None for i in range(8)},
    },
    "forty": {
        "type": "choice",
        "instructions": "Which number?",
        "criteria": {f"number {i}": None if i % 3 else f"that is {i}" for i in range(40)},
    },
    "urgency": {
        "type": "score",
        "instructions": "How urgent is it?",
        "criteria": ["can wait", "this week", "today", {"now": True}],
    },
    "two": {"type": "score", "instructions": {"ask": "How long?"}, "criteria": ["short", "long"]},
    "ten": {
        "type": "score",
        "instructions": "How many days?",
        "criteria": [f"{i} days" for i in range(10)],
    },
}

STATES: list[Any] = [
    "I was charged twice last week and nobody replied.\nWhy? é 中文 😀\x01",
    {"ticket": "charged twice", "n": -3, "amounts": [19.5, 0.25], "a": {"z": None, "b": True}},
    [
        {"role": "user", "content": 'it is broken, "again"'},
        {"role": "assistant", "content": [{"type": "text", "text": "sorry <b> {{ x }} {% y %}"}]},
    ],
    {},
]


@dataclass(frozen=True)
class Pair:
    """Hold a model and the port of a server with the same model."""

    model: Model
    port: int

    def served(self, state: Any, questions: dict[str, Any]) -> dict[str, Any]:
        """Return the response of the server."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=120.0)
        try:
            body = json.dumps({"state": state, "questions": questions})
            connection.request("POST", "/v1/systemone", body)
            response = connection.getresponse()
            content = json.loads(response.read())
            assert response.status == http.client.OK, content
            return dict(content)
        finally:
            connection.close()


@pytest.fixture(scope="module", params=tuple(DEFINITIONS))
def pair(request: pytest.FixtureRequest, library: Library) -> Iterator[Pair]:
    assert PROGRAM is not None
    path = cached_decision_model(request.param)
    exact = {"flash_attn": "off"}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in (
            ("FLASH_ATTN", "off"),
            ("CACHE_TYPE_K", "f32"),
            ("CACHE_TYPE_V", "f32"),
        ):
            environment.setenv(f"LLAMA_ARG_{name}", value)
        with (
            Model(path, library=library, n_threads=1, options=exact) as model,
            serving(PROGRAM, path, n_slots=4, n_ctx=32_768, n_threads=1, choices=()) as server,
        ):
            yield Pair(model, server.port)


@pytest.mark.parametrize("state", STATES, ids=["text", "object", "conversation", "empty"])
def test_probabilities_match_llama_server(pair: Pair, state: Any) -> None:
    decision_model = made_of(pair.model)
    questions = [SystemoneQuestion.read(given, id) for id, given in QUESTIONS.items()]
    all_asked = decision_model.ask(questions, state)
    served = pair.served(state, QUESTIONS)
    n_tokens = sum(len(prompt.tokens) for asked in all_asked for prompt in asked.prompts)
    assert n_tokens == served["usage"]["input_tokens"]
    # `Model.decide` runs all questions together.
    several = {name: question for name, question in QUESTIONS.items() if name != "only one"}
    decision = pair.model.decide(state, several, cache=CacheOptions(type_k="f32", type_v="f32"))
    for name, answer in pair.served(state, several)["answers"].items():
        true = answer.get("noul", 0.0)
        p = list(answer.get("probabilities", {"true": true, "false": 1.0 - true}).values())
        assert list(decision[name].distribution) == pytest.approx(p, abs=1e-4)
    for asked in all_asked:
        p = answered(pair.model, asked)
        theirs = served["answers"][asked.question.id]
        if theirs["type"] == "noul":
            assert p == pytest.approx([theirs["noul"], 1.0 - theirs["noul"]], abs=TOLERANCE)
            continue
        keys = [key for key, _ in asked.question.options]
        assert list(theirs["probabilities"]) == keys
        assert p == pytest.approx(list(theirs["probabilities"].values()), abs=TOLERANCE)
        if theirs["type"] == "choice":
            assert p[keys.index(theirs["choice"])] == pytest.approx(max(p), abs=TOLERANCE)
            assert choice_confidence(p) == pytest.approx(theirs["confidence"], abs=10 * TOLERANCE)
        else:
            score = sum(i * each for i, each in enumerate(p))
            assert score == pytest.approx(theirs["score"], abs=10 * TOLERANCE)
            assert score_confidence(p) == pytest.approx(theirs["confidence"], abs=10 * TOLERANCE)
            assert list(theirs["legend"].values()) == [text for _, text in asked.question.options]


def test_probabilities_of_many_options_match_llama_server(pair: Pair) -> None:
    decision_model = made_of(pair.model)
    # More than the 100 two-digit codes.
    n = 110 if decision_model.type == "lfm2-d1" else min(decision_model.max_options, 60)
    given = {"type": "choice", "instructions": "?", "criteria": {f"o{i}": None for i in range(n)}}
    (asked,) = decision_model.ask([SystemoneQuestion.read(given, "many")], "x")
    served = pair.served("x", {"many": given})["answers"]["many"]["probabilities"]
    assert answered(pair.model, asked) == pytest.approx(list(served.values()), abs=TOLERANCE)


def test_the_maximum_of_options_matches_llama_server(pair: Pair) -> None:
    most = made_of(pair.model).max_options
    options = {f"o{i}": None for i in range(most + 1)}
    given = {"type": "choice", "instructions": "?", "criteria": options}
    with pytest.raises(AssertionError, match=f"supports at most {most}'"):
        pair.served("x", {"too many": given})
