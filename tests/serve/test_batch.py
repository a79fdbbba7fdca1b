"""Many inputs in one request: a line of JSON for each, as soon as it is answered."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from served import (
    DECISIONS,
    ROUNDING,
    Served,
    choice,
    decisions_body,
    slow_body,
)

from eliza_ffi import Model

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
    body = {"inputs": ["Choose."] * 200, "questions": slow_body()["questions"]}
    with httpx.stream("POST", server.url + BATCH, json=body, timeout=120) as response:
        lines = response.iter_lines()
        assert json.loads(next(lines))["answers"]
        other = httpx.post(server.url + DECISIONS, json=decisions_body(), timeout=60)
        assert other.status_code == 200
        assert server.figures()['eliza_queue_requests{state="running"}'] == 1
    server.wait_until_idle(10)
