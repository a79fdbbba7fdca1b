"""Requests with mistakes for all endpoints of ``eliza-ffi serve``."""

from __future__ import annotations

import copy
import gzip
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

HELLO = {"type": "input_text", "text": "Hello."}
JSON_INPUT = {"type": "input_json", "data": {"a": [1]}}
FOUND = {"type": "function_call", "name": "find", "call_id": "1", "arguments": "{}"}
LEVELS = [{"label": "l", "description": "e"}, {"label": "m"}]
QUESTIONS: list[dict[str, Any]] = [
    {
        **{"type": "choice", "name": "team", "none": "neither"},
        "instructions": [{"type": "input_text", "text": "Which?"}],
        "choices": [{"value": "a", "description": "d"}, {"value": True}],
    },
    {"type": "predicate", "instructions": "So?", "if_true": "y", "if_false": "n"},
    {"type": "score", "instructions": "How?", "levels": LEVELS},
    {"type": "labels", "instructions": "Q?", "labels": [{"value": "a"}, {"value": "b"}]},
]
SYSTEMONE_CHOICE = {"instructions": {"ask": 1}, "criteria": {"x": None, "y": {"d": 1}}}
PARAMETERS = {"type": "object", "properties": {"a": {"enum": [1, 2]}}}
TOOL = {"name": "find", "description": "Finds.", "parameters": PARAMETERS}
CALL = {"id": "a", "type": "function", "function": {"name": "find", "arguments": '{"a": 1}'}}
SHAPE = {"type": "json_schema", "name": "n", "schema": {"enum": ["a", "b"]}}
RIGHT: dict[str, dict[str, Any]] = {
    "/v1/decisions": {
        "model": "any",
        "input": [
            {"role": "user", "content": [HELLO, JSON_INPUT]},
            FOUND,
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        ],
        "questions": QUESTIONS,
        "include": ["timings", "allowed_probability", "prompts"],
    },
    "/v1/decisions/batch": {
        "inputs": ["Hello.", [{"role": "user", "content": "Hello."}]],
        "questions": {"so": {"type": "predicate", "instructions": "So?"}},
        "include": ["allowed_probability"],
    },
    "/v1/systemone": {
        "model": "any",
        "state": {"a": [1, {"b": None}]},
        "questions": {
            "q": {"type": "choice", **SYSTEMONE_CHOICE},
            "n": {"type": "noul", "instructions": "I", "criteria": {"true": "t", "false": "f"}},
            "s": {"type": "score", "instructions": "I", "criteria": ["l", {"m": 1}, 3]},
        },
        "include": ["timings"],
    },
    "/v1/chat/completions": {
        "model": "any",
        "messages": [
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": [{"type": "text", "text": "Hello."}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "a", "content": "found"},
        ],
        "tools": [{"type": "function", "function": TOOL}],
        "tool_choice": {"type": "function", "function": {"name": "find"}},
        "parallel_tool_calls": False,
        **{"temperature": 0.5, "top_p": 0.9, "seed": 1, "stop": ["x"], "n": 2, "max_tokens": 40},
        "logit_bias": {"5": 1},
        "chat_template_kwargs": {"enable_thinking": False},
    },
    "/v1/completions": {
        "model": "any",
        "prompt": ["Hello", "Once"],
        "guided_json": {"type": "object", "properties": {"a": {"enum": ["b"]}}},
        **{"max_tokens": 40, "n": 2, "seed": 3},
    },
    "/v1/embeddings": {"model": "any", "input": ["a", "b"], "encoding_format": "base64"},
    "/v1/responses": {
        "model": "any",
        "input": [
            {"role": "user", "content": [HELLO]},
            FOUND,
            {"type": "function_call_output", "call_id": "1", "output": "found"},
        ],
        "instructions": "Be short.",
        "text": {"format": SHAPE},
        "include": ["message.output_text.logprobs"],
        "reasoning": {"effort": "low"},
        "metadata": {"a": "b"},
        **{"top_logprobs": 2, "max_output_tokens": 40},
    },
}
VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 10**30, [], {}, [[]], {"": ""}),
    *("", "a", " ", "\0", "\n\n", "true", "é𝄞", "<|im_end|>", "input_image", "text", "A" * 300),
]
VALUES += [{"type": "input_image"}, {"type": "input_text", "text": " "}, {"type": "function_call"}]
KEYS = [
    *("type", "name", "value", "label", "criteria", "role", "content", "none", "", "x"),
    *("images", "files", "description", "if_true", "instructions", "data", "text", "include"),
]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in JSON with each of its keys."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def spoil(given: dict[str, Any], draw: random.Random) -> dict[str, Any]:
    """Return a copy of a request in which one to three values are changed, added or left out."""
    changed = copy.deepcopy(given)
    for _ in range(draw.choice((1, 1, 2, 3))):
        found = list(places(changed))
        if not found:
            break
        container, key = draw.choice(found)
        how = draw.random()
        if how < 0.6:
            container[key] = copy.deepcopy(draw.choice(VALUES))
        elif how < 0.8:
            del container[key]
        elif isinstance(container, dict):
            container[draw.choice(KEYS)] = copy.deepcopy(draw.choice(VALUES))
        else:
            container.append(copy.deepcopy(draw.choice(VALUES)))
    return changed


MARK = "\x00raw\x00"
"""Stands for a raw text in a value, until the value is written as JSON."""


def damaged(given: dict[str, Any], draw: random.Random) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of a request that is hard to read.

    One value is very deep, long or no valid Unicode, or bytes of the body are lost or changed. Some
    bodies are compressed before the damage.
    """
    changed = copy.deepcopy(given)
    container, key = draw.choice(list(places(changed)))
    container[key] = MARK
    n = draw.choice((190, 201, 5000, 100_000))
    before, after = draw.choice((("[", "]"), ('{"a":', "}"), ('[{"type":', "}]")))
    raw = draw.choice(
        (
            before * n + "1" + after * n,
            before * n,
            "9" * n,
            "1e" + "9" * n,
            json.dumps("a" * n),
            json.dumps({str(i): i for i in range(n // 2)}),
            draw.choice(("NaN", "-Infinity", "1e400", "-0", "5e-324", "0x1")),
            draw.choice((r'"\ud800"', r'"\ude00\ud83d"', r'"\u0000"', r'"\uXYZW"')),
            '{"a": 1, "a": 2}',
        )
    )
    body = json.dumps(changed).replace(json.dumps(MARK), raw).encode()
    headers = {}
    if draw.random() < 0.3:
        body, headers = gzip.compress(body), {"content-encoding": "gzip"}
    if draw.random() < 0.5:
        bytes_of = bytearray(body)
        at = draw.randrange(len(bytes_of))
        damages: tuple[Callable[[], None], ...] = (
            lambda: bytes_of.__setitem__(at, draw.randrange(256)),
            lambda: bytes_of.__delitem__(slice(at, at + 5)),
            lambda: bytes_of.__delitem__(slice(at, None)),
            lambda: bytes_of.extend(b"\xff{}"),
        )
        draw.choice(damages)()
        body = bytes(bytes_of)
    return body, headers
