"""Tests of rejected requests: their messages, and that they do not affect other requests."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from served import DECISIONS, SYSTEMONE, Served, decisions_body, rejected

pytestmark = pytest.mark.slow

NOUL = {"type": "noul", "instructions": "It is urgent."}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


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
    error = rejected(httpx.post(server.url + DECISIONS, json=decisions_body("word " * 5000)))
    assert error["code"] == "context_length_exceeded" and error["param"] == "input"
    assert "2048" in error["message"]


def test_a_body_has_at_most_one_mebibyte(server: Served) -> None:
    fits = json.dumps(decisions_body("")).encode()
    fits += b" " * (2**20 - len(fits))
    assert httpx.post(server.url + DECISIONS, content=fits).status_code == 200
    error = rejected(httpx.post(server.url + DECISIONS, content=fits + b" "), 413)
    assert "1048576 bytes" in error["message"]


def test_the_length_of_a_chunked_body_is_counted(server: Served) -> None:
    def chunks() -> Any:
        for _ in range(17):
            yield b" " * 2**16

    assert (
        "1048576" in rejected(httpx.post(server.url + DECISIONS, content=chunks()), 413)["message"]
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
    assert message in rejected(httpx.post(server.url + DECISIONS, content=body))["message"]


def test_json_with_200_levels_is_accepted(server: Served) -> None:
    body = {"state": nested(199), "questions": {"so": NOUL}}
    assert httpx.post(server.url + SYSTEMONE, json=body).status_code == 200


def test_a_compressed_body_is_rejected(server: Served) -> None:
    body = gzip.compress(json.dumps(decisions_body()).encode())
    answer = httpx.post(server.url + DECISIONS, content=body, headers={"content-encoding": "gzip"})
    assert "'gzip'" in rejected(answer, 415)["message"]


def test_unknown_paths_and_methods_are_rejected(server: Served) -> None:
    assert rejected(httpx.get(f"{server.url}/v2/decisions"), 404)["code"] == "not_found"
    assert rejected(httpx.post(f"{server.url}/v1/decisions/"), 404)
    answer = httpx.get(server.url + DECISIONS)
    assert "expected POST, got GET" in rejected(answer, 405)["message"]
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
