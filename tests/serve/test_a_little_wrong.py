"""Requests that are a little wrong, in thousands of ways: answered or refused, never a failure."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from served import DECISIONS, SYSTEMONE, Served

pytestmark = pytest.mark.slow

N_REQUESTS = 120

RIGHT: dict[str, dict[str, Any]] = {
    DECISIONS: {
        "model": "any",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Hello."},
                    {"type": "input_json", "data": {"a": [1]}},
                ],
            },
            {"type": "function_call", "name": "find", "call_id": "1", "arguments": "{}"},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        ],
        "questions": [
            {
                "type": "choice",
                "name": "team",
                "instructions": [{"type": "input_text", "text": "Which?"}],
                "choices": [{"value": "a", "description": "d"}, {"value": True}],
                "none": "neither",
            },
            {"type": "predicate", "instructions": "So?", "if_true": "y", "if_false": "n"},
            {
                "type": "score",
                "instructions": "How?",
                "levels": [{"label": "l", "description": "e"}, {"label": "m"}],
            },
            {"type": "labels", "instructions": "Q?", "labels": [{"value": "a"}, {"value": "b"}]},
        ],
        "include": ["timings", "option_mass", "prompts"],
    },
    SYSTEMONE: {
        "model": "any",
        "state": {"a": [1, {"b": None}]},
        "questions": {
            "q": {
                "type": "choice",
                "instructions": {"ask": 1},
                "criteria": {"x": None, "y": {"d": 1}},
            },
            "n": {"type": "noul", "instructions": "I", "criteria": {"true": "t", "false": "f"}},
            "s": {"type": "score", "instructions": "I", "criteria": ["l", {"m": 1}, 3]},
        },
        "include": ["timings"],
    },
}
VALUES = [
    *(None, True, False, 0, -1, 1.5, 10**30, [], {}, [[]], {"": ""}),
    *("", "a", " ", "\0", "\n\n", "true", "é𝄞", "<|im_end|>", "input_image", "text", "A" * 300),
]
KEYS = ["type", "name", "value", "label", "criteria", "role", "content", "none", "", "x"]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in JSON with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def spoil(given: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    spoilt = copy.deepcopy(given)
    for _ in range(draw.choice((1, 1, 2, 3))):
        found = list(places(spoilt))
        if not found:
            break
        container, key = draw.choice(found)
        how = draw.random()
        if how < 0.6:
            container[key] = draw.choice(VALUES)
        elif how < 0.8:
            del container[key]
        elif isinstance(container, dict):
            container[draw.choice(KEYS)] = draw.choice(VALUES)
        else:
            container.append(draw.choice(VALUES))
    return spoilt


@pytest.mark.parametrize("path", RIGHT)
def test_requests_that_are_a_little_wrong_do_not_make_it_fail(server: Served, path: str) -> None:
    draw = random.Random(path)
    codes: Counter[int] = Counter()
    with server.client() as client:
        assert client.post(path, json=RIGHT[path]).status_code == 200
        for _ in range(N_REQUESTS):
            body = spoil(RIGHT[path], draw)
            answer = client.post(path, json=body)
            codes[answer.status_code] += 1
            assert answer.status_code in (200, 400), (answer.text, json.dumps(body))
            assert (answer.status_code == 400) == ("error" in answer.json())
    assert codes[200] > 10 and codes[400] > 10  # both sides of the line
