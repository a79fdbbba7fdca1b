"""Tests of rejected requests: their messages, and that they do not affect other requests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import DECISIONS, ROUNDING, SYSTEMONE, Served, choice, decisions_body

pytestmark = pytest.mark.slow

PREDICATE = {"type": "predicate", "instructions": "It is urgent."}
NOUL = {"type": "noul", "instructions": "It is urgent."}
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def refused(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    """Return the error of a response, after checking that it has OpenAI's format."""
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"error"}
    error: dict[str, Any] = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"] and error["code"]
    return error


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([], "questions: expected 1 or more items, got 0"),
        ([PREDICATE] * 401, "questions: expected at most 400 items, got 401"),
        (
            [
                {
                    "type": "labels",
                    "instructions": "?",
                    "labels": [{"value": str(i)} for i in range(200)],
                }
            ]
            * 2
            + [PREDICATE],
            "1 to 400 questions (each label counts as one), got 401",
        ),
        (
            [choice(*(f"o{i}" for i in range(256)))],
            "questions[0].choices: expected at most 255 items, got 256",
        ),
        ([choice("one")], "questions[0].choices: expected 2 or more items, got 1"),
        ([choice("same", "same")], "'same' is given twice"),
        (
            [
                {
                    "type": "score",
                    "instructions": "?",
                    "levels": [{"label": str(i)} for i in range(11)],
                }
            ],
            "questions[0].levels: expected at most 10 items, got 11",
        ),
        (
            [PREDICATE, {"type": "wish", "instructions": "?"}],
            "questions[1].type: expected predicate, choice, score or labels, got 'wish'",
        ),
        ([NOUL], "questions[0].type: expected predicate, choice, score or labels, got 'noul'"),
        ([{"type": "predicate"}], "questions[0].instructions: this field is missing"),
        (
            [{**PREDICATE, "instructions": []}],
            "questions[0].instructions: expected 1 or more items",
        ),
        ([{**PREDICATE, "instructions": [None]}], "instructions[0]: expected an object, got null"),
        ([{**PREDICATE, "instructions": " "}], "expected a string that is not blank, got ' '"),
        ([{**PREDICATE, "name": ""}], "questions[0].name: expected a string that is not empty"),
        ([{**PREDICATE, "name": "n"}, {**PREDICATE, "name": "n"}], "two questions have the name"),
        ([{**PREDICATE, "instructions": [IMAGE]}], "input_image"),
        ([1], "questions[0]: expected an object, got 1"),
        ({"a": PREDICATE}, "questions: expected an array, got an object"),
        (None, "questions: expected an array, got null"),
    ],
)
def test_questions_of_decisions_have_limits(server: Served, questions: Any, message: str) -> None:
    body = {"model": "any", "input": "Hello.", "questions": questions}
    error = refused(httpx.post(server.url + DECISIONS, json=body))
    assert message in error["message"] and error["param"] == "questions"


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ({}, "questions: expected 1 or more fields, got 0"),
        ({str(i): NOUL for i in range(401)}, "questions: expected at most 400 fields, got 401"),
        (
            {"pick": {"type": "choice", "instructions": "?", "criteria": {"a": None}}},
            "questions.pick.criteria: expected 2 or more fields, got 1",
        ),
        (
            {"how much": {"type": "score", "instructions": "?", "criteria": ["one"]}},
            "questions['how much'].criteria: expected 2 or more items, got 1",
        ),
        (
            {"so": {"type": "predicate", "instructions": "?"}},
            "questions.so.type: expected noul, choice or score, got 'predicate'",
        ),
        ({"so": {"type": "noul"}}, "questions.so.instructions: this field is missing"),
        ({"": NOUL}, "questions['']: expected a string that is not empty"),
        ([NOUL], "questions: expected an object, got an array"),
    ],
)
def test_errors_of_systemone_name_the_question(
    server: Served, questions: Any, message: str
) -> None:
    body = {"model": "any", "state": "Hello.", "questions": questions}
    error = refused(httpx.post(server.url + SYSTEMONE, json=body))
    assert message in error["message"] and error["param"] == "questions"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "input: expected a string or an array, got null"),
        (1, "input: expected a string or an array, got 1"),
        ({"role": "user", "content": "hi"}, "input: expected a string or an array, got an object"),
        ([], "input: expected 1 or more items, got 0"),
        (["hi"], "input[0]: expected an object, got 'hi'"),
        (
            [{"role": "king", "content": "hi"}],
            "input[0].role: expected user, developer, system or assistant, got 'king'",
        ),
        (
            [{"role": "user", "content": "hi"}, {"role": "user"}],
            "input[1].content: this field is missing",
        ),
        ([{"type": "wish"}], "input[0].type: expected message, function_call, "),
        ([{"role": "user", "content": [IMAGE]}], "'input_image': only text is supported"),
        (
            [{"type": "function_call_output", "call_id": "1", "output": [IMAGE]}],
            "'input_image': only text is supported",
        ),
    ],
)
def test_an_input_must_be_a_string_or_a_conversation(
    server: Served, given: Any, message: str
) -> None:
    error = refused(httpx.post(server.url + DECISIONS, json=decisions_body(given)))
    assert message in error["message"] and error["param"] == "input"


@pytest.mark.parametrize("state", [None, 1, True])
def test_a_state_must_be_a_string_or_json(server: Served, state: Any) -> None:
    body = {"state": state, "questions": {"so": NOUL}}
    error = refused(httpx.post(server.url + SYSTEMONE, json=body))
    assert error["param"] == "state"
    assert "state: expected a string, an object or an array, got " in error["message"]


@pytest.mark.parametrize(
    ("path", "change", "param", "message"),
    [
        (DECISIONS, {"images": []}, "images", "images: this field is not supported"),
        (DECISIONS, {"temperature": 0}, "temperature", "temperature: this field is not supported"),
        (DECISIONS, {"imput": ""}, "imput", "not supported; did you mean input?"),
        (
            DECISIONS,
            {"input": [{"role": "user", "content": "hi", "name": "somebody"}]},
            "input",
            "input[0].name: this field is not supported",
        ),
        (
            DECISIONS,
            {"questions": [{**PREDICATE, "criteria": {}}]},
            "questions",
            "questions[0].criteria: this field is not supported",
        ),
        (
            DECISIONS,
            {"questions": [{**choice("a", "b"), "criteria": {"a": None, "b": None}}]},
            "questions",
            "questions[0].criteria: this field is not supported",
        ),
        (SYSTEMONE, {"stream": True}, "stream", "stream: this field is not supported"),
        (SYSTEMONE, {"videos": ["a"]}, "videos", "videos: this field is not supported"),
        (
            SYSTEMONE,
            {"questions": {"so": {**NOUL, "name": "other"}}},
            "questions",
            "questions.so.name: this field is not supported",
        ),
        (
            SYSTEMONE,
            {"questions": {"so": {**NOUL, "criteria": {"yes": "it is"}}}},
            "questions",
            "questions.so.criteria.yes: this field is not supported",
        ),
    ],
)
def test_unsupported_fields_are_rejected_by_name(
    server: Served, path: str, change: dict[str, Any], param: str, message: str
) -> None:
    right = {
        DECISIONS: decisions_body(),
        SYSTEMONE: {"model": "any", "state": "Hello.", "questions": {"so": NOUL}},
    }[path]
    assert httpx.post(server.url + path, json=right).status_code == 200
    error = refused(httpx.post(server.url + path, json={**right, **change}))
    assert message in error["message"] and error["param"] == param
    assert error["code"] == "unknown_parameter"


def test_a_long_field_name_is_shortened_in_messages(server: Served) -> None:
    body = {**decisions_body(), "x" * 500_000: 1}
    error = refused(httpx.post(server.url + DECISIONS, json=body))
    assert error["message"].startswith("['xxx") and len(str(error)) < 300


def test_fields_without_effect_are_accepted(server: Served) -> None:
    """The fields that docs/serve.md lists."""
    conversation = [
        {
            "role": "user",
            "id": "m1",
            "status": "completed",
            "content": [
                {
                    "type": "input_text",
                    "text": "Hi.",
                    "prompt_cache_breakpoint": {"mode": "explicit"},
                },
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "phase": "commentary",
            "content": [
                {"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []},
                {"type": "refusal", "refusal": "No."},
            ],
        },
        {
            "type": "function_call",
            "name": "find",
            "arguments": "{}",
            "call_id": "1",
            "id": "f1",
            "namespace": None,
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "1", "output": "an order", "id": None},
        {
            "type": "custom_tool_call",
            "name": "grep",
            "input": "x",
            "call_id": "2",
            "namespace": "n",
        },
        {
            "type": "custom_tool_call_output",
            "call_id": "2",
            "output": [{"type": "input_text", "text": "y"}],
        },
    ]
    body = {
        **decisions_body(conversation),
        "prompt_cache_key": "mails",
        "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
        "safety_identifier": None,
        "include": ["prompts"],
    }
    answer = httpx.post(server.url + DECISIONS, json=body)
    assert answer.status_code == 200, answer.text
    (prompt,) = answer.json()["prompts"]
    assert all(
        text in prompt for text in ("Hi.", "I look.", "No.", "find", "an order", "grep", "y")
    )
    for nothing in (None, []):
        body = {"state": "Hello.", "questions": {"so": NOUL}, "images": nothing, "files": nothing}
        assert httpx.post(server.url + SYSTEMONE, json=body).status_code == 200


def test_an_input_over_the_context_is_rejected_with_the_context_size(server: Served) -> None:
    error = refused(httpx.post(server.url + DECISIONS, json=decisions_body("word " * 5000)))
    assert error["code"] == "context_length_exceeded" and error["param"] == "input"
    assert "2048" in error["message"]


def test_a_body_has_at_most_one_mebibyte(server: Served) -> None:
    fits = json.dumps(decisions_body("")).encode()
    fits += b" " * (2**20 - len(fits))
    assert httpx.post(server.url + DECISIONS, content=fits).status_code == 200
    error = refused(httpx.post(server.url + DECISIONS, content=fits + b" "), 413)
    assert "1048576 bytes" in error["message"]


def test_the_length_of_a_chunked_body_is_counted(server: Served) -> None:
    def chunks() -> Any:
        for _ in range(17):
            yield b" " * 2**16

    assert (
        "1048576" in refused(httpx.post(server.url + DECISIONS, content=chunks()), 413)["message"]
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"input": NaN}', "not JSON: expected value"),
        (b'{"input": 1' + b"0" * 5000 + b"}", "not JSON"),
        (b'{"input": "\\ud800"}', "not JSON"),
        (b'{"\\ud800": 1}', "not JSON"),
        (b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deeper than 200 levels"),
        (b'{"input": ' + json.dumps(nested(200)).encode() + b"}", "deeper than 200 levels"),
        (b'{"model": 1}', "model: expected a string, got 1"),
    ],
)
def test_a_malformed_body_is_rejected(server: Served, body: bytes, message: str) -> None:
    assert message in refused(httpx.post(server.url + DECISIONS, content=body))["message"]


def test_json_with_200_levels_is_accepted(server: Served) -> None:
    body = {"state": nested(199), "questions": {"so": NOUL}}
    assert httpx.post(server.url + SYSTEMONE, json=body).status_code == 200


def test_an_unknown_include_is_rejected_with_the_possible_values(server: Served) -> None:
    body = {**decisions_body(), "include": ["everything"]}
    error = refused(httpx.post(server.url + DECISIONS, json=body))
    assert error["param"] == "include"
    assert "include[0]: expected option_mass, prompts or timings" in error["message"]


def test_a_compressed_body_is_rejected(server: Served) -> None:
    body = gzip.compress(json.dumps(decisions_body()).encode())
    answer = httpx.post(server.url + DECISIONS, content=body, headers={"content-encoding": "gzip"})
    assert "'gzip'" in refused(answer, 415)["message"]


def test_unknown_paths_and_methods_are_rejected(server: Served) -> None:
    assert refused(httpx.get(f"{server.url}/v2/decisions"), 404)["code"] == "not_found"
    assert refused(httpx.post(f"{server.url}/v1/decisions/"), 404)
    answer = httpx.get(server.url + DECISIONS)
    assert "expected POST, got GET" in refused(answer, 405)["message"]
    assert answer.headers["allow"] == "POST"


def test_no_response_contains_file_paths(server: Served) -> None:
    here = str(Path.cwd())
    texts = [
        httpx.get(server.url + path).text
        for path in ("/", "/v1/models", "/health", "/metrics", "/openapi.json", "/nowhere")
    ]
    bodies = [
        {},
        decisions_body("word " * 5000),
        decisions_body([]),
        {**decisions_body(), "include": ["prompts"]},
    ]
    texts += [httpx.post(server.url + DECISIONS, json=body).text for body in bodies]
    for text in texts:
        assert ".gguf" not in text and here not in text and "site-packages" not in text


def test_a_rejected_request_does_not_change_other_answers(server: Served) -> None:
    expected = httpx.post(server.url + DECISIONS, json=decisions_body()).json()["answers"]
    for body in ({}, decisions_body("word " * 5000), decisions_body("", choice("one"))):
        refused(httpx.post(server.url + DECISIONS, json=body))
        again = httpx.post(server.url + DECISIONS, json=decisions_body()).json()["answers"]
        assert again[0]["choice"] == expected[0]["choice"]
        assert again[0]["confidence"] == pytest.approx(expected[0]["confidence"], abs=ROUNDING)
