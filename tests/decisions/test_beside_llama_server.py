"""Decision models give the same answers as in llama-server, which reads the same files.

Both compute in full precision and without flash attention here, so that they differ only by the
rounding of float32. With flash attention, which they configure differently, the probabilities of
these random models differ by a few thousandths. Models that return scores as embeddings always have
a cache of half precision, so the tolerance for them is larger. The server must read their prompts
in one pass.
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
from eliza_ffi.decisions.models.decision_model import TYPES
from eliza_ffi.decisions.models.systemone import SystemoneQuestion
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

PROGRAM, PEER = find_llama_server()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason=str(PEER.problem))

TOLERANCE = 1e-5

Asked = dict[str, dict[str, Any]]


def asked(type: str, instructions: Any, criteria: Any) -> dict[str, Any]:
    return {"type": type, "instructions": instructions, "criteria": criteria}


SO: Any = {"true": "they want money back", "false": {"why": "none", "at": 2}}
TEAMS: Any = {"sales": "offers <<clef:option>>", "billing": None, "it": {"b": 1, "a": "Größe"}}
DAYS = {f"day {i}": None for i in range(8)}
NUMBERS = {f"number {i}": None if i % 3 else f"that is {i}" for i in range(40)}
TIMES = ["can wait", "this week", "today", {"now": True}]

QUESTIONS: Asked = {
    "angry": {"type": "noul", "instructions": "Is the customer angry?"},
    "refund": asked("noul", {"z": "Is a refund asked for?", "a": [1, "two", None, True]}, SO),
    "half described": asked(
        "noul", "Is it about\n\tan \"invoice\" \\ a 'bill'?", {"true": "é, 中文, 😀"}
    ),
    "route": asked("choice", "Which team?", TEAMS),
    "letters": asked("choice", "B or A?", {"B": None, "A": None}),
    "only one": asked("choice", ["Which?"], {"this": None}),
    "eight": asked("choice", "Which day?", DAYS),
    "forty": asked("choice", "Which number?", NUMBERS),
    "urgency": asked("score", "How urgent is it?", TIMES),
    "two": asked("score", {"ask": "How long?"}, ["short", "long"]),
    "ten": asked("score", "How many days?", [f"{i} days" for i in range(10)]),
}

STATES: list[Any] = [
    "I was charged twice last week and nobody replied.\nWhy? é 中文 😀\x01",
    {"ticket": "charged twice", "n": -3, "amounts": [19.5, 0.25], "a": {"z": None, "b": True}},
    [
        {"role": "user", "content": 'it is broken, "again"'},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "sorry <b> {{ x }} {% y %} <<clef:sep>>"}],
        },
    ],
    {},
]


SPECIAL = "<|im_end|> <|box_end|><|mask|> <| x|> [MASK] <<d1omni:sep>> <<d1omni:option>>"
WORDS = " ".join(f"word {i}, and so on;" for i in range(200))
CUT: Asked = {
    "special": asked("choice", [SPECIAL], {SPECIAL: SPECIAL, "b": 1}),
    "long question": asked("noul", WORDS, {"true": "yes"}),
    "long options": asked("score", "?", [WORDS, "b", WORDS[9:]]),
    "all long": asked("score", WORDS, [WORDS, {"b": WORDS}]),
    "many": asked("choice", WORDS, {f"{i} {WORDS[i : 300 + i]}": None for i in range(30)}),
}
CUT_STATES: list[Any] = [
    f"{SPECIAL}\n{WORDS}",
    {"<|im_end|> <|mask|>": [SPECIAL, {"x": [True, None, -1, 2.5, [[], {}], " y"]}]},
]


@dataclass(frozen=True)
class Pair:
    """Hold a model and the port of a server with the same model."""

    model: Model
    port: int

    def served(self, state: Any, questions: Asked) -> dict[str, Any]:
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


MARKED = [type for type in DEFINITIONS if TYPES[type].labels == "marks"]


@pytest.fixture(scope="module", params=tuple(DEFINITIONS))
def pair(request: pytest.FixtureRequest, library: Library) -> Iterator[Pair]:
    assert PROGRAM is not None
    path = cached_decision_model(request.param)
    exact = {"flash_attn": "off"}
    settings = {"FLASH_ATTN": "off", "CACHE_TYPE_K": "f32", "CACHE_TYPE_V": "f32"}
    if request.param in MARKED:
        settings = {"BATCH": "8192", "UBATCH": "8192"}
        settings |= {"FLASH_ATTN": "off"} if request.param == "kev" else {}
    with pytest.MonkeyPatch.context() as environment:
        for name, value in settings.items():
            environment.setenv(f"LLAMA_ARG_{name}", value)
        with (
            Model(path, library=library, n_threads=1, options=exact) as model,
            serving(PROGRAM, path, n_slots=4, n_ctx=32_768, n_threads=1, choices=()) as server,
        ):
            yield Pair(model, server.port)


@pytest.mark.parametrize("state", STATES, ids=["text", "object", "conversation", "empty"])
def test_probabilities_match_llama_server(pair: Pair, state: Any) -> None:
    check(pair, state, QUESTIONS)


@pytest.mark.parametrize("state", CUT_STATES, ids=["text", "object"])
@pytest.mark.parametrize(
    "pair", [type for type in MARKED if not TYPES[type].is_joint], indirect=True
)
def test_prompts_are_cut_and_escaped_as_by_llama_server(pair: Pair, state: Any) -> None:
    check(pair, state, CUT)


def check(pair: Pair, state: Any, given_questions: Asked) -> None:
    """Check that both give the same answers."""
    decision_model = made_of(pair.model)
    tolerance = TOLERANCE if decision_model.marked is None else 10 * TOLERANCE
    questions = [SystemoneQuestion.read(given, id) for id, given in given_questions.items()]
    all_asked = decision_model.ask(questions, state)
    served = pair.served(state, given_questions)
    prompts = [prompt for each in all_asked for prompt in each.prompts]
    n_tokens = sum(len(each.tokens) for each in prompts[: 1 if decision_model.is_joint else None])
    assert n_tokens == served["usage"]["input_tokens"]
    # `Model.decide` runs all questions together.
    several = {name: each for name, each in given_questions.items() if name != "only one"}
    decision = pair.model.decide(state, several, cache=CacheOptions(type_k="f32", type_v="f32"))
    for name, answer in pair.served(state, several)["answers"].items():
        true = answer.get("noul", 0.0)
        p = answer.get("probabilities", {"true": true, "false": 1.0 - true})
        keys = [key for key, _ in SystemoneQuestion.read(given_questions[name], name).options]
        in_our_order = [p[key] for key in keys]  # a joint prompt has sorted keys
        assert list(decision[name].distribution) == pytest.approx(in_our_order, abs=1e-4)
    for each in all_asked:
        p = answered(pair.model, each)
        theirs = served["answers"][each.question.id]
        if theirs["type"] == "noul":
            assert p == pytest.approx([theirs["noul"], 1.0 - theirs["noul"]], abs=tolerance)
            continue
        keys = [key for key, _ in each.question.options]
        in_their_order = sorted(keys) if decision_model.is_joint else keys
        assert list(theirs["probabilities"]) == in_their_order
        assert p == pytest.approx([theirs["probabilities"][key] for key in keys], abs=tolerance)
        if theirs["type"] == "choice":
            assert p[keys.index(theirs["choice"])] == pytest.approx(max(p), abs=tolerance)
            assert choice_confidence(p) == pytest.approx(theirs["confidence"], abs=10 * tolerance)
        else:
            score = sum(i * of_level for i, of_level in enumerate(p))
            assert score == pytest.approx(theirs["score"], abs=10 * tolerance)
            assert score_confidence(p) == pytest.approx(theirs["confidence"], abs=10 * tolerance)
            assert list(theirs["legend"].values()) == [text for _, text in each.question.options]


def test_probabilities_of_many_options_match_llama_server(pair: Pair) -> None:
    decision_model = made_of(pair.model)
    # More than the 100 two-digit codes.
    n = 110 if decision_model.type == "lfm2-d1" else min(decision_model.max_options, 60)
    given = asked("choice", "?", {f"o{i}": None for i in range(n)})
    (prompts,) = decision_model.ask([SystemoneQuestion.read(given, "many")], "x")
    served = pair.served("x", {"many": given})["answers"]["many"]["probabilities"]
    tolerance = TOLERANCE if decision_model.marked is None else 10 * TOLERANCE
    in_our_order = [served[key] for key in given["criteria"]]
    assert answered(pair.model, prompts) == pytest.approx(in_our_order, abs=tolerance)


def test_the_maximum_of_options_matches_llama_server(pair: Pair) -> None:
    most = made_of(pair.model).max_options
    too_many = asked("choice", "?", {f"o{i}": None for i in range(most + 1)})
    with pytest.raises(AssertionError, match=f"supports at most {most}'"):
        pair.served("x", {"too many": too_many})
