"""Tests of the endpoints of a real server over HTTP."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

import httpx
import pytest
from served import (
    DECISIONS,
    KEYS,
    ROUNDING,
    SYSTEMONE,
    Served,
    check_documented,
    choice,
    decisions_body,
    rejected,
    slow_body,
)

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, Predicate, Score
from eliza_ffi.serve.decisions import Extra

pytestmark = pytest.mark.slow

SENTENCES = "Hello. I was charged twice! Please answer today."
MAIL = "I was charged twice, and nobody answers me!"
WHICH, IS_URGENT = "Which team should read this?", "The writer needs an answer today."
HOW_ANGRY, LEVELS = "How angry is the writer?", ["calm", "annoyed", "furious"]
QUESTIONS = {
    "team": Choice(WHICH, ["billing", "support", "sales"]),
    "urgent": Predicate(IS_URGENT),
    "anger": Score(HOW_ANGRY, LEVELS),
}
WIRE = [
    choice("billing", "support", "sales", name="team"),
    {"type": "predicate", "name": "urgent", "instructions": IS_URGENT},
    {"type": "score", "name": "anger", "instructions": HOW_ANGRY, "levels": LEVELS},
]
WITHOUT_EFFECT = {
    "prompt_cache_key": "mails",
    "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
    "safety_identifier": None,
}
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
COMPLETIONS, EMBEDDINGS = "/v1/completions", "/v1/embeddings"
TALK = {"messages": [{"role": "user", "content": MAIL}]}
FUNCTION = {"name": "answer", "description": "Answers a mail."}
TOOL, FLAT_TOOL = {"type": "function", "function": FUNCTION}, {"type": "function", **FUNCTION}
LABELS = {"type": "labels", "instructions": "Is it about this?", "labels": [{"value": "money"}]}
TEAMS = {"billing": None, "support": None, "sales": None}
SYSTEMONE_QUESTIONS = {
    "team": {"type": "choice", "instructions": WHICH, "criteria": TEAMS},
    "urgent": {"type": "noul", "instructions": IS_URGENT},
    "anger": {"type": "score", "instructions": HOW_ANGRY, "criteria": LEVELS},
}
ASKED = {"state": MAIL, "questions": SYSTEMONE_QUESTIONS}


def test_usage_matches_the_decision(server: Served, tiny_model: Model) -> None:
    body = decisions_body("Nobody has asked about this before.", *WIRE)
    usage = httpx.post(server.url + DECISIONS, json=body).json()["usage"]
    expected = tiny_model.decide(body["input"], QUESTIONS).usage
    assert usage["input_tokens"] == usage["total_tokens"] == expected.input_tokens
    assert usage["output_tokens"] == usage["output_tokens_details"]["reasoning_tokens"] == 0
    cached = httpx.post(server.url + DECISIONS, json=body).json()["usage"]["input_tokens_details"]
    assert cached["cached_tokens"] > usage["input_tokens_details"]["cached_tokens"]
    assert cached["cached_tokens"] + cached["cache_write_tokens"] == expected.input_tokens


def test_both_formats_give_the_same_answers(server: Served) -> None:
    answers = httpx.post(server.url + SYSTEMONE, json=ASKED).json()["answers"]
    others = httpx.post(server.url + DECISIONS, json=decisions_body(MAIL, *WIRE)).json()["answers"]
    assert list(answers) == ["team", "urgent", "anger"]
    assert answers["team"]["choice"] == others[0]["choice"]
    assert answers["team"]["probabilities"]["sales"] == pytest.approx(
        others[0]["probabilities"][2]["probability"], abs=ROUNDING
    )
    assert answers["urgent"]["noul"] == pytest.approx(others[1]["probability"], abs=ROUNDING)
    assert answers["anger"]["score"] == pytest.approx(others[2]["score"], abs=ROUNDING)
    assert answers["anger"]["legend"] == {"0": "calm", "1": "annoyed", "2": "furious"}


def test_every_form_of_questions_is_answered_at_both_endpoints(server: Served) -> None:
    which = {"type": "choice", "instructions": "Which team?"}
    short, described = {**which, "choices": ["billing", "sales"]}, {"billing": None, "sales": None}
    forms = [
        {"team": short},
        [{**short, "name": "team"}],
        {**short, "name": "team"},
        {"team": {**which, "choices": described}},
        {"team": {**which, "choices": [{"value": "billing"}, "sales"]}},
        {"team": {**which, "criteria": described}},
    ]
    for form in forms:
        answer = httpx.post(server.url + DECISIONS, json={"input": MAIL, "questions": form}).json()
        (listed,) = answer["answers"]
        assert listed["name"] == "team"
        found = {each["value"]: each["probability"] for each in listed["probabilities"]}
        answer = httpx.post(server.url + SYSTEMONE, json={"state": MAIL, "questions": form}).json()
        assert answer["answers"]["team"]["probabilities"] == pytest.approx(found, abs=ROUNDING)
        assert found.keys() == {"billing", "sales"}


CONVERSATION = [
    {"role": "developer", "content": "Mails to a shop."},
    {
        **{"role": "user", "id": "m1", "status": "completed"},
        "content": [{"type": "input_text", "text": MAIL, "prompt_cache_breakpoint": {}}],
    },
    {
        **{"type": "message", "role": "assistant", "phase": "commentary"},
        "content": [
            {"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []},
            {"type": "refusal", "refusal": "No."},
        ],
    },
    {
        **{"type": "function_call", "name": "find", "arguments": "{}", "call_id": "1"},
        **{"id": "f1", "namespace": None, "status": "completed"},
    },
    {"type": "function_call_output", "call_id": "1", "output": "an order", "id": None},
    {"type": "custom_tool_call", "name": "grep", "input": "x", "call_id": "2", "namespace": "n"},
    {
        **{"type": "custom_tool_call_output", "call_id": "2"},
        "output": [{"type": "input_text", "text": "y"}],
    },
]
"""A conversation with all fields that have no effect."""


def test_an_input_can_be_a_conversation_and_a_state_can_be_json(server: Served) -> None:
    body = {**decisions_body(CONVERSATION), "include": ["prompts"], **WITHOUT_EFFECT}
    (prompt,) = httpx.post(server.url + DECISIONS, json=body).json()["prompts"]
    for text in (f"user: {MAIL}", "I look.", "No.", "find", "an order", "grep", "y"):
        assert text in prompt
    for state in ({"mail": [MAIL]}, [{"type": "function_call", "role": "user"}]):
        for nothing in (None, []):
            body = {"state": state, "questions": SYSTEMONE_QUESTIONS, "include": ["prompts"]}
            body |= {"images": nothing, "files": nothing}
            prompts = httpx.post(server.url + SYSTEMONE, json=body).json()["prompts"]
            assert len(prompts) == 3 and all(json.dumps(state) in each for each in prompts)


def test_extra_fields_are_sent_only_if_included(server: Served) -> None:
    plain = httpx.post(server.url + DECISIONS, json=decisions_body()).json()
    assert plain.keys() == {"model", "answers", "usage"}
    assert plain["answers"][0].keys() == {
        *("type", "name", "choice", "confidence", "probabilities"),
    }
    more = {**decisions_body(), "include": ["allowed_probability", "timings"]}
    asked = httpx.post(server.url + DECISIONS, json=more).json()
    assert 0.0 < asked["answers"][0]["allowed_probability"] <= 1.0
    assert asked["timings"]["forward_passes"] >= 1 and asked["timings"]["decision_ms"] > 0
    assert asked["timings"]["queue_ms"] >= 0


def test_an_answer_is_explained_on_request(server: Served, tiny_model: Model) -> None:
    body = {**decisions_body(SENTENCES, *WIRE), "explain": True}
    answers = httpx.post(server.url + DECISIONS, json=body, timeout=60).json()["answers"]
    expected = tiny_model.decide(SENTENCES, QUESTIONS, explain=True)
    for found, answer in zip(answers, expected.answers, strict=True):
        for one, other in zip(found["passages"], answer.passages, strict=True):
            assert (one["text"], one["start"], one["end"]) == (other.text, other.start, other.end)
            assert one["probability"] == pytest.approx(other.probability, abs=ROUNDING)
    lines = httpx.post(
        server.url + BATCH,
        json={"inputs": [SENTENCES, MAIL], "questions": WIRE, "explain": True},
        timeout=60,
    ).text.splitlines()
    found = {each["index"]: each["answers"] for each in map(json.loads, lines)}
    assert [len(each["passages"]) for each in found[0]] == [3, 3, 3]
    assert [each["passages"] for each in found[1]] == [[], [], []]
    asked = {**ASKED, "state": {"mail": SENTENCES}, "explain": True}
    by_name = httpx.post(server.url + SYSTEMONE, json=asked, timeout=60).json()["answers"]
    assert [each["text"] for each in by_name["urgent"]["passages"]] == [
        *("Hello.", "I was charged twice!", "Please answer today.")
    ]
    wrong = httpx.post(server.url + DECISIONS, json={**body, "explain": "yes"})
    assert "explain" in rejected(wrong)["message"]


def test_models_are_listed_and_found_by_name(server: Served) -> None:
    listed = httpx.get(f"{server.url}/v1/models").json()
    (model,) = listed["data"]
    assert model["id"] == "eliza-tiny" and model["object"] == "model"
    assert httpx.get(f"{server.url}/v1/models/eliza-tiny").json() == model
    assert httpx.get(f"{server.url}/v1/models/other").status_code == 404
    (named,) = listed["models"]
    assert named["name"] == "eliza-tiny" and "llama" in named["description"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", named["release_date"])


def test_metrics_count_requests_questions_and_tokens(server: Served) -> None:
    before = server.figures()
    body = decisions_body("A mail that is counted.", *WIRE, WIRE[1] | {"name": "again"})
    answer = httpx.post(server.url + DECISIONS, json=body).json()
    httpx.post(server.url + DECISIONS, json={})
    usage = httpx.post(server.url + CHAT, json={**TALK, "max_tokens": 3}).json()["usage"]
    after = server.figures()

    def more(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert more('eliza_requests_total{code="200",endpoint="/v1/decisions"}') == 1
    assert more('eliza_requests_total{code="400",endpoint="/v1/decisions"}') == 1
    assert more('eliza_questions_total{type="predicate"}') == 2
    assert more('eliza_questions_total{type="score"}') == 1
    details = answer["usage"]["input_tokens_details"]
    n_cached = usage["prompt_tokens_details"]["cached_tokens"]
    n_read = details["cache_write_tokens"] + usage["prompt_tokens"] - n_cached
    assert more('eliza_tokens_total{source="read"}') == n_read
    assert more('eliza_tokens_total{source="reused"}') == details["cached_tokens"] + n_cached
    assert more('eliza_tokens_total{source="generated"}') == usage["completion_tokens"]
    assert more("eliza_passes_total") >= 1
    assert more("eliza_pass_sequences_total") >= more("eliza_passes_total")
    assert more("eliza_decision_seconds_count") == 1
    assert more("eliza_queue_seconds_count") == 3
    assert more('eliza_request_seconds_count{endpoint="/v1/decisions"}') == 2
    assert after['eliza_queue_requests{state="running"}'] == 0


def test_metrics_count_the_tokens_of_an_echo(server: Served) -> None:
    """Its log-probabilities need a pass of their own, which reuses nothing."""
    body = {"prompt": ["An echo", "Another echo"], "max_tokens": 0, "echo": True, "logprobs": 1}
    before = server.figures()
    usage = httpx.post(f"{server.url}/v1/completions", json=body).json()["usage"]
    name = 'eliza_tokens_total{source="read"}'
    assert server.figures()[name] - before.get(name, 0.0) == usage["prompt_tokens"]


def test_responses_match_the_openapi_document(server: Served) -> None:
    document = httpx.get(f"{server.url}/openapi.json").json()
    for path, body in (
        (DECISIONS, decisions_body(MAIL, *WIRE, LABELS)),
        (DECISIONS, {**decisions_body(MAIL, *WIRE), "include": list(get_args(Extra))}),
        (DECISIONS, {**decisions_body(SENTENCES, *WIRE, LABELS), "explain": True}),
        (DECISIONS, {}),
        (SYSTEMONE, {**ASKED, "include": list(get_args(Extra))}),
        (SYSTEMONE, {**ASKED, "state": SENTENCES, "explain": True}),
        (SYSTEMONE, {}),
        (SYSTEMONE, {**ASKED, "images": ["data:"]}),
        (CHAT, {**TALK, "logprobs": True, "top_logprobs": 1, "n": 2, "max_tokens": 3}),
        (CHAT, {**TALK, "tools": [TOOL], "tool_choice": "required"}),
        (CHAT, {**TALK, "guided_choice": ["yes", "no"]}),
        (CHAT, {**TALK, "max_tokens": 3, "stream": True}),
        (CHAT, {**TALK, "response_format": {"type": "json_object"}, "max_tokens": 1}),
        (RESPONSES, {"input": MAIL, "max_output_tokens": 3}),
        (RESPONSES, {"input": MAIL, "tools": [FLAT_TOOL], "tool_choice": "required"}),
        (RESPONSES, {"input": MAIL, "max_output_tokens": 3, "stream": True}),
        (COMPLETIONS, {"prompt": MAIL, "logprobs": 1, "echo": True}),
        (EMBEDDINGS, {"input": [MAIL]}),
        (EMBEDDINGS, {"input": MAIL, "encoding_format": "base64"}),
    ):
        check_documented(httpx.post(server.url + path, json=body), document, path)
    compressed = {"content-encoding": "gzip"}
    answer = httpx.post(server.url + DECISIONS, content=b"{}", headers=compressed)
    check_documented(answer, document, DECISIONS)
    for path in document["paths"]:
        for name in ("eliza-tiny", "other"):
            url = server.url + path.replace("{name}", name)
            for headers in ({}, {"host": "evil.example"}, {"origin": "https://evil.example"}):
                method = next(iter(document["paths"][path]))
                answer = httpx.request(method, url, headers=headers)
                check_documented(answer, document, path)


def test_responses_without_a_key_match_the_openapi_document(keyed: Served) -> None:
    headers = {"authorization": f"Bearer {KEYS[0]}"}
    document = httpx.get(f"{keyed.url}/openapi.json", headers=headers).json()
    for path, methods in document["paths"].items():
        answer = httpx.request(next(iter(methods)), keyed.url + path)
        assert (answer.status_code == 401) == (
            "401" in methods[answer.request.method.lower()]["responses"]
        )
        check_documented(answer, document, path)


BATCH = "/v1/decisions/batch"
INPUTS = [f"I was charged {n} times, and nobody answers." for n in range(2, 22)]
TEAM = choice("billing", "support", "sales", name="team")


def lines_of(server: Served, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = httpx.post(server.url + BATCH, json=body, timeout=120)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/jsonl"
    return [json.loads(line) for line in response.text.splitlines()]


def test_every_input_gets_the_answers_of_a_single_request(
    server: Served, tiny_model: Model
) -> None:
    lines = lines_of(server, {"inputs": INPUTS, "questions": [TEAM]})
    assert sorted(line["index"] for line in lines) == list(range(len(INPUTS)))
    decisions = tiny_model.decide_many(INPUTS, [TEAM])
    for line in lines:
        (answer,) = line["answers"]
        found = {each["value"]: each["probability"] for each in answer["probabilities"]}
        expected = dict(decisions[line["index"]]["team"].probabilities)
        assert found == pytest.approx(expected, abs=ROUNDING)
        assert line.keys() == {"index", "answers", "usage", "model"}


def test_an_input_that_does_not_fit_has_an_error_and_the_others_are_answered(
    server: Served,
) -> None:
    conversation = [{"role": "user", "content": "I was charged twice."}]
    inputs = ["I was charged twice.", "word " * 20_000, conversation]
    lines = {
        line["index"]: line for line in lines_of(server, {"inputs": inputs, "questions": TEAM})
    }
    assert lines[1].keys() == {"index", "error"}
    assert lines[1]["error"]["code"] == "context_length_exceeded"
    assert lines[0]["answers"] and lines[2]["answers"]


def test_a_batch_leaves_room_for_others_and_ends_when_its_client_disconnects(
    server: Served,
) -> None:
    body = {"inputs": ["Choose."] * 200, "questions": slow_body(2)["questions"]}
    with httpx.stream("POST", server.url + BATCH, json=body, timeout=120) as response:
        lines = response.iter_lines()
        assert json.loads(next(lines))["answers"]
        other = httpx.post(server.url + DECISIONS, json=decisions_body(), timeout=60)
        assert other.status_code == 200
        assert server.figures()['eliza_queue_requests{state="running"}'] == 1
    server.wait_until_idle(10)
