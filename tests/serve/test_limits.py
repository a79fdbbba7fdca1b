"""What the server refuses, in which words, and that nothing else suffers from it."""

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
    """Return the error of an answer, whose form is OpenAI's."""
    assert answer.status_code == status, answer.text
    assert answer.json().keys() == {"error"}
    error: dict[str, Any] = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert error["message"] and error["code"]
    return error


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ([], "1 to 400 questions"),
        ([PREDICATE] * 401, "1 to 400 questions (each label counts as one), got 401"),
        ([choice(*(f"o{i}" for i in range(256)))], "2 to 255 options, got 256"),
        ([choice("one")], "2 to 255 options, got 1"),
        ([choice("same", "same")], "'same' is there twice"),
        (
            [
                {
                    "type": "score",
                    "instructions": "?",
                    "levels": [{"label": str(i)} for i in range(11)],
                }
            ],
            "2 to 10 levels, got 11",
        ),
        ([PREDICATE, {"type": "wish", "instructions": "?"}], "the question '1': type must be one"),
        ([NOUL], "the question '0': type must be one of predicate"),
        ([{"type": "predicate"}], "the question '0': instructions are missing"),
        ([{**PREDICATE, "name": "n"}, {**PREDICATE, "name": "n"}], "two questions have the name"),
        ([{**PREDICATE, "instructions": [IMAGE]}], "input_image"),
        ([1], "the question '0': type must be"),
        ({"a": PREDICATE}, "questions must be a list"),
        (None, "questions is missing"),
    ],
)
def test_questions_of_decisions_have_limits(server: Served, questions: Any, said: str) -> None:
    body = {"model": "any", "input": "Hello.", "questions": questions}
    error = refused(httpx.post(server.url + DECISIONS, json=body))
    assert said in error["message"] and error["param"] == "questions"


@pytest.mark.parametrize(
    ("questions", "said"),
    [
        ({}, "1 to 400 questions"),
        ({str(i): NOUL for i in range(401)}, "got 401"),
        ({"pick": {"type": "choice", "instructions": "?", "criteria": {"a": None}}}, "'pick'"),
        ({"much": {"type": "score", "instructions": "?", "criteria": ["one"]}}, "'much'"),
        ({"so": {"type": "predicate", "instructions": "?"}}, "'so': type must be one of noul"),
        ({"so": {"type": "noul"}}, "the question 'so': instructions are missing"),
        ([NOUL], "questions must be an object"),
    ],
)
def test_errors_of_systemone_name_the_question(server: Served, questions: Any, said: str) -> None:
    body = {"model": "any", "state": "Hello.", "questions": questions}
    error = refused(httpx.post(server.url + SYSTEMONE, json=body))
    assert said in error["message"] and error["param"] == "questions"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "input is missing"),
        (1, "a text or a list of messages"),
        ({"role": "user", "content": "hi"}, "a text or a list of messages"),
        ([], "a text or a list of messages"),
        (["hi"], "input[0] must be a message"),
        ([{"role": "king", "content": "hi"}], "input[0]: role must be one of user"),
        ([{"role": "user", "content": "hi"}, {"role": "user"}], "input[1]: content must be"),
        ([{"role": "user", "content": [IMAGE]}], "'input_image': only text is read"),
        (
            [{"type": "function_call_output", "call_id": "1", "output": [IMAGE]}],
            "'input_image': only text is read",
        ),
    ],
)
def test_inputs_of_decisions_are_texts_or_conversations(
    server: Served, given: Any, said: str
) -> None:
    error = refused(httpx.post(server.url + DECISIONS, json=decisions_body(given)))
    assert said in error["message"] and error["param"] == "input"


@pytest.mark.parametrize("state", [None, 1, True, [IMAGE], {"messages": [{"content": [IMAGE]}]}])
def test_states_are_texts_or_json_without_images(server: Served, state: Any) -> None:
    body = {"state": state, "questions": {"so": NOUL}}
    assert refused(httpx.post(server.url + SYSTEMONE, json=body))["param"] == "state"


def test_an_input_over_the_context_is_refused_with_the_contexts_size(server: Served) -> None:
    error = refused(httpx.post(server.url + DECISIONS, json=decisions_body("word " * 5000)))
    assert error["code"] == "context_length_exceeded" and error["param"] == "input"
    assert "2048" in error["message"]


def test_a_body_may_have_a_mebibyte_and_no_more(server: Served) -> None:
    fits = json.dumps(decisions_body("")).encode()
    fits += b" " * (2**20 - len(fits))
    assert httpx.post(server.url + DECISIONS, content=fits).status_code == 200
    error = refused(httpx.post(server.url + DECISIONS, content=fits + b" "), 413)
    assert "1048576 bytes" in error["message"]


def test_a_body_whose_length_is_not_told_is_counted(server: Served) -> None:
    def chunks() -> Any:
        for _ in range(17):
            yield b" " * 2**16

    assert (
        "1048576" in refused(httpx.post(server.url + DECISIONS, content=chunks()), 413)["message"]
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe{}", "not JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"input": NaN}', "NaN is no JSON"),
        (b'{"input": 1' + b"0" * 5000 + b"}", "not JSON"),
        (b'{"input": "\\ud800"}', "no Unicode"),
        (b'{"\\ud800": 1}', "no Unicode"),
        (b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "deeper than 64 levels"),
        (b'{"input": ' + json.dumps(nested(64)).encode() + b"}", "deeper than 64 levels"),
        (b'{"model": 1}', "model must be a text"),
    ],
)
def test_a_body_that_is_no_request_is_refused(server: Served, body: bytes, said: str) -> None:
    assert said in refused(httpx.post(server.url + DECISIONS, content=body))["message"]


def test_json_of_64_levels_is_read(server: Served) -> None:
    body = {"state": nested(63), "questions": {"so": NOUL}}
    assert httpx.post(server.url + SYSTEMONE, json=body).status_code == 200


def test_what_may_be_included_is_listed(server: Served) -> None:
    body = {**decisions_body(), "include": ["everything"]}
    error = refused(httpx.post(server.url + DECISIONS, json=body))
    assert error["param"] == "include" and "option_mass, prompts, timings" in error["message"]


def test_a_compressed_body_is_refused(server: Served) -> None:
    body = gzip.compress(json.dumps(decisions_body()).encode())
    answer = httpx.post(server.url + DECISIONS, content=body, headers={"content-encoding": "gzip"})
    assert "'gzip'" in refused(answer, 415)["message"]


def test_paths_and_methods_that_are_not_there_are_said_so(server: Served) -> None:
    assert refused(httpx.get(f"{server.url}/v2/decisions"), 404)["code"] == "not_found"
    assert refused(httpx.post(f"{server.url}/v1/decisions/"), 404)
    answer = httpx.get(server.url + DECISIONS)
    assert "takes POST, not GET" in refused(answer, 405)["message"]
    assert answer.headers["allow"] == "POST"


def test_no_answer_tells_where_files_are(server: Served) -> None:
    here = str(Path.cwd())
    told = [
        httpx.get(server.url + path).text
        for path in ("/", "/v1/models", "/health", "/metrics", "/openapi.json", "/nowhere")
    ]
    bodies = [
        {},
        decisions_body("word " * 5000),
        decisions_body([]),
        {**decisions_body(), "include": ["prompts"]},
    ]
    told += [httpx.post(server.url + DECISIONS, json=body).text for body in bodies]
    for text in told:
        assert ".gguf" not in text and here not in text and "site-packages" not in text


def test_a_refused_request_leaves_the_others_as_they_are(server: Served) -> None:
    expected = httpx.post(server.url + DECISIONS, json=decisions_body()).json()["answers"]
    for body in ({}, decisions_body("word " * 5000), decisions_body("", choice("one"))):
        refused(httpx.post(server.url + DECISIONS, json=body))
        again = httpx.post(server.url + DECISIONS, json=decisions_body()).json()["answers"]
        assert again[0]["choice"] == expected[0]["choice"]
        assert again[0]["confidence"] == pytest.approx(expected[0]["confidence"], abs=ROUNDING)
