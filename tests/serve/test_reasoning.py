"""Reasoning over HTTP: chat templates that begin it, and answers after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from served import ROUNDING, ask, events_of, joined, rejected

from eliza_ffi import Model
from eliza_ffi.chat import ChatTemplate

pytestmark = pytest.mark.slow

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
USAGE_OF_STREAM = {"stream": True, "stream_options": {"include_usage": True}}
OPEN = ChatTemplate(
    "{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n<think>\n{% endif -%}"
)
TALK = [{"role": "user", "content": "Is water wet?"}]
CLOSED = "<|im_start|>user\nIs water wet?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
FLAG = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}


def test_labels_and_json_follow_the_end_of_a_reasoning_that_the_template_begins(
    app_with: Callable[..., Any], tiny_model: Model
) -> None:
    tokens = tiny_model.tokenize(CLOSED, parse_special=True)
    label = tiny_model.choose(tokens, ["yes", "no"], probabilities=True)
    text = tiny_model.generate(tokens, 60, schema=FLAG).text
    app = app_with(OPEN)
    labels, json, response, stream = ask(
        app,
        ("POST", CHAT, {"messages": TALK, "guided_choice": ["yes", "no"]}),
        ("POST", CHAT, {"messages": TALK, "guided_json": FLAG}),
        ("POST", RESPONSES, {"input": TALK, "guided_choice": ["yes", "no"]}),
        ("POST", CHAT, {"messages": TALK, "guided_json": FLAG, "stream": True}),
    )
    expected = pytest.approx(label.probabilities, abs=ROUNDING)
    assert labels.json()["choices"][0]["probabilities"] == expected
    assert response.json()["output"][-1]["probabilities"] == expected
    assert json.json()["choices"][0]["message"]["content"] == text
    assert json.json()["usage"]["prompt_tokens"] == len(tokens)
    assert joined(events_of(stream.text)) == text


def test_an_effort_of_none_ends_a_reasoning_that_the_template_begins(
    app_with: Callable[..., Any], tiny_model: Model
) -> None:
    tokens = tiny_model.tokenize(CLOSED, parse_special=True)
    expected = tiny_model.generate(tokens, 8).text
    body = {"messages": TALK, "temperature": 0, "max_tokens": 8}
    thinking, direct = ask(
        app_with(OPEN),
        ("POST", CHAT, body),
        ("POST", CHAT, {**body, "reasoning_effort": "none"}),
    )
    assert thinking.json()["choices"][0]["message"]["reasoning_content"]
    message = direct.json()["choices"][0]["message"]
    assert message["content"] == expected and "reasoning_content" not in message


CALLING = {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required"}


@pytest.mark.parametrize(
    "limit",
    [{"guided_choice": ["yes", "no"]}, {"guided_json": FLAG}, {"guided_regex": "yes|no"}, CALLING],
)
def test_the_model_can_think_before_a_limit_or_a_call(
    app_with: Callable[..., Any], limit: dict[str, Any]
) -> None:
    body = {"messages": TALK, **limit}
    plain, whole, stream = (
        each.raise_for_status()
        for each in ask(
            app_with(OPEN),
            ("POST", CHAT, body),
            ("POST", CHAT, {**body, "think": 9}),
            ("POST", CHAT, {**body, "think": 9, **USAGE_OF_STREAM}),
        )
    )
    message, usage = whole.json()["choices"][0]["message"], whole.json()["usage"]
    assert message["reasoning_content"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 9}
    assert usage["completion_tokens"] > 9
    closing = plain.json()["usage"]["prompt_tokens"] - usage["prompt_tokens"]
    assert 0 < closing < 15  # the tokens that end the reasoning
    events = events_of(stream.text)
    assert joined(events[:-1], "reasoning_content") == message["reasoning_content"]
    assert joined(events[:-1]) == (message["content"] or "")
    n_tokens = events[-1]["usage"]["completion_tokens"]
    assert n_tokens == usage["completion_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_with_a_call_has_the_reasoning_before_it(
    app_with: Callable[..., Any], stream: bool
) -> None:
    body = {
        "input": TALK,
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "think": 9,
        "stream": stream,
    }
    (answer,) = ask(app_with(OPEN), ("POST", RESPONSES, body))
    found = events_of(answer.text)[-1]["response"] if stream else answer.json()
    reasoning, call = found["output"]
    assert reasoning["type"] == "reasoning" and reasoning["status"] == "completed"
    assert call["type"] == "function_call" and call["arguments"] == "{}"
    if stream:
        events = events_of(answer.text)
        deltas = [each["delta"] for each in events if each["type"].endswith("_text.delta")]
        assert "".join(deltas) == reasoning["content"][0]["text"]
        places = [each.get("output_index") for each in events if "arguments" in each["type"]]
        assert set(places) == {1}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"guided_choice": ["a"], "reasoning_effort": "none"},
        {
            "guided_choice": ["a"],
            "messages": [*TALK, {"role": "assistant", "content": "It"}],
            "continue_final_message": True,
        },
    ],
)
def test_think_without_an_answer_after_it_is_rejected(
    app_with: Callable[..., Any], more: dict[str, Any]
) -> None:
    (answer,) = ask(app_with(OPEN), ("POST", CHAT, {"messages": TALK, "think": 9, **more}))
    assert rejected(answer)["param"] == "think"


@pytest.mark.parametrize("name", ["close_reasoning", "continue_final_message"])
def test_arguments_of_the_tokenizer_are_no_variables_of_the_template(
    app_with: Callable[..., Any], name: str
) -> None:
    body = {"messages": TALK, "chat_template_kwargs": {name: True}}
    (answer,) = ask(app_with(OPEN), ("POST", CHAT, body))
    assert rejected(answer)["param"] == "chat_template_kwargs"


def test_stop_strings_end_the_content_and_not_the_reasoning(app_with: Callable[..., Any]) -> None:
    app = app_with(OPEN)
    body = {"messages": TALK, "temperature": 0, "max_tokens": 12}
    (free,) = ask(app, ("POST", CHAT, body))
    reasoning = free.json()["choices"][0]["message"]["reasoning_content"]
    stops = {"stop": [reasoning.strip()[2:4], reasoning.strip()[-1]]}
    whole, stream = ask(
        app, ("POST", CHAT, {**body, **stops}), ("POST", CHAT, {**body, **stops, "stream": True})
    )
    choice = whole.json()["choices"][0]
    assert choice["message"]["reasoning_content"] == reasoning
    assert choice["finish_reason"] == free.json()["choices"][0]["finish_reason"]
    deltas = [each["choices"][0]["delta"] for each in events_of(stream.text)]
    assert "".join(each.get("reasoning_content") or "" for each in deltas) == reasoning
