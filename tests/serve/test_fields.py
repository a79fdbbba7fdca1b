"""Tests of fields that real clients send in more than one form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from served import ask, rejected

pytestmark = pytest.mark.slow

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
HELLO = [{"role": "user", "content": "Hello"}]
NAMES = ("get_weather", "send_mail", "stop")
PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
FLAT = [{"type": "function", "name": name, "parameters": PARAMETERS} for name in NAMES]
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": PARAMETERS}} for name in NAMES
]


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def allowed_flat(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "name": name} for name in names]
    return {"type": "allowed_tools", "mode": mode, "tools": tools}


@pytest.mark.parametrize("name", NAMES)
def test_only_allowed_tools_are_called(app_of: Callable[..., Any], name: str) -> None:
    one: dict[str, Any] = {"parallel_tool_calls": False}
    chat = {"messages": HELLO, "tools": TOOLS, "tool_choice": allowed("required", name), **one}
    flat = {"input": "Hello", "tools": FLAT, "tool_choice": allowed_flat("required", name), **one}
    called, response = ask(app_of(), ("POST", CHAT, chat), ("POST", RESPONSES, flat))
    (choice,) = called.json()["choices"]
    assert {call["function"]["name"] for call in choice["message"]["tool_calls"]} == {name}
    assert set(choice["probabilities"]) <= {name, ""}
    assert {each["name"] for each in response.json()["output"]} == {name}
    assert response.json()["tool_choice"] == allowed_flat("required", name)


def test_an_allowed_tool_that_does_not_exist_is_named(app_of: Callable[..., Any]) -> None:
    chat = {"messages": HELLO, "tools": TOOLS, "tool_choice": allowed("auto", "stop", "fly")}
    flat = {"input": "Hello", "tools": FLAT, "tool_choice": allowed_flat("auto", "stop", "fly")}
    for answer in ask(app_of(), ("POST", CHAT, chat), ("POST", RESPONSES, flat)):
        error = rejected(answer)
        assert error["param"] == "tool_choice" and "got 'fly'" in error["message"]


def test_any_64_bit_integer_is_a_seed(app_of: Callable[..., Any]) -> None:
    app = app_of()

    def texts(*seeds: int | None) -> list[str]:
        body = {"messages": HELLO, "max_tokens": 12, "temperature": 2}
        answers = ask(app, *(("POST", CHAT, {**body, "seed": seed}) for seed in seeds))
        return [each.json()["choices"][0]["message"]["content"] for each in answers]

    for seed in (-(2**63), -2, 2**32 - 1, 2**63 - 1, 2**64 - 1):
        first, again, small = texts(seed, seed, seed % (2**32 - 1))
        assert first == again == small
    assert len(set(texts(-1, None))) == 1  # the model of the tests has a fixed seed
    for seed in (-(2**63) - 1, 2**64):
        (answer,) = ask(app, ("POST", CHAT, {"messages": HELLO, "seed": seed}))
        assert rejected(answer)["param"] == "seed"


def test_models_have_the_length_of_the_context(app_of: Callable[..., Any]) -> None:
    app = app_of("--alias", "tiny")
    listed, one = ask(app, ("GET", "/v1/models", None), ("GET", "/v1/models/tiny", None))
    assert listed.json()["data"][0]["max_model_len"] == one.json()["max_model_len"] > 0
