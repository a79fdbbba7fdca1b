"""Fields that clients send by default, and that change nothing in the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from served import ask, events_of, rejected

from eliza_ffi.chat import ChatTemplate

pytestmark = pytest.mark.slow

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"

ONE_SYSTEM_MESSAGE = ChatTemplate(
    "{%- for m in messages -%}"
    "{%- if m.role == 'system' and not loop.first -%}"
    "{{ raise_exception('System message must be at the beginning.') }}{%- endif -%}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt -%}<|im_start|>assistant\n{% endif -%}"
)

COMMAND = {
    "type": "object",
    "properties": {"command": {"type": "string", "maxLength": 8}},
    "required": ["command"],
    "additionalProperties": False,
}


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "strict": False, "parameters": COMMAND}


FILES = {"type": "namespace", "name": "files", "description": "Files.", "tools": [function("list")]}
AGENT: dict[str, Any] = {
    "model": "any",
    "instructions": "You are a careful helper.",
    "input": [
        {
            "type": "message",
            "role": role,
            "content": [{"type": "input_text", "text": text}],
        }
        for role, text in (("developer", "Work in /srv/app."), ("user", "Which files are there?"))
    ],
    "tools": [
        function("run"),
        FILES,
        {"type": "web_search", "external_web_access": True},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"summary": "auto"},
    "text": {"verbosity": "low"},
    "client_metadata": {"session": "1"},
    "store": False,
    "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
    "prompt": None,
    "max_tool_calls": None,
    "max_output_tokens": 40,
}


@pytest.mark.parametrize("template", [None, ONE_SYSTEM_MESSAGE])
@pytest.mark.parametrize("stream", [False, True])
def test_the_first_request_of_a_coding_agent_is_answered(
    app_of: Callable[..., Any],
    app_with: Callable[..., Any],
    template: ChatTemplate | None,
    stream: bool,
) -> None:
    app = app_of() if template is None else app_with(template)
    (answer,) = ask(app, ("POST", RESPONSES, {**AGENT, "stream": stream}))
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-ignored-tools"] == "web_search, apply_patch"
    if stream:
        assert events_of(answer.text)[-1]["type"] in ("response.completed", "response.incomplete")


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_of_a_namespace_has_its_name_apart(app_of: Callable[..., Any], stream: bool) -> None:
    body = {**AGENT, "tools": [FILES], "tool_choice": "required", "stream": stream}
    app = app_of()
    (answer,) = ask(app, ("POST", RESPONSES, body))
    found = events_of(answer.text)[-1]["response"] if stream else answer.json()
    (call,) = found["output"]
    assert (call["namespace"], call["name"]) == ("files", "list")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "a.txt"}
    (after,) = ask(app, ("POST", RESPONSES, {**body, "input": [*AGENT["input"], call, result]}))
    assert after.status_code == 200, after.text


def test_two_functions_with_one_name_are_rejected(app_of: Callable[..., Any]) -> None:
    (answer,) = ask(app_of(), ("POST", RESPONSES, {**AGENT, "tools": [function("run")] * 2}))
    assert "are both named 'run'" in rejected(answer)["message"]


def test_chat_leaves_out_tools_that_are_no_functions(app_of: Callable[..., Any]) -> None:
    definition = {key: value for key, value in function("run").items() if key != "type"}
    tools = [
        {"type": "function", "function": definition},
        {"type": "custom", "custom": {"name": "patch"}},
        {"type": "web_search"},
    ]
    talk = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 40}
    both, custom, plain = ask(
        app_of(),
        ("POST", CHAT, {**talk, "tools": tools}),
        ("POST", CHAT, {**talk, "tools": tools[1:], "temperature": 0}),
        ("POST", CHAT, {**talk, "temperature": 0}),
    )
    assert both.json()["choices"][0]["probabilities"].keys() == {"run", ""}
    assert both.headers["x-ignored-tools"] == "custom, web_search"
    assert custom.json()["choices"][0]["message"] == plain.json()["choices"][0]["message"]
    assert "x-ignored-tools" not in plain.headers


def test_the_items_of_a_response_can_be_sent_back_with_null_fields(
    app_of: Callable[..., Any],
) -> None:
    """The openai client writes all fields that it knows, such as `async_`."""
    app = app_of()
    (answer,) = ask(app, ("POST", RESPONSES, {**AGENT, "tool_choice": "required"}))
    items = [
        {**item, "async_": None, "created_by": None, "caller": None}
        for item in answer.json()["output"]
    ]
    said = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Hm.", "annotations": None, "parsed": None}],
        "phase": None,
        "other": None,
    }
    (after,) = ask(app, ("POST", RESPONSES, {**AGENT, "input": [*AGENT["input"], *items, said]}))
    assert after.status_code == 200, after.text


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "hi", "x": None}], "y": None}),
        ("/v1/completions", {"prompt": "hi", "y": None}),
        ("/v1/embeddings", {"input": "hi", "y": None}),
        (
            "/v1/decisions",
            {
                "model": "any",
                "input": "hi",
                "y": None,
                "questions": [
                    {"type": "predicate", "name": "a", "instructions": "Hi?", "value": None},
                    {
                        **{"type": "choice", "instructions": "Which?", "levels": None},
                        "choices": [{"value": "a", "label": None}, "b"],
                    },
                ],
            },
        ),
    ],
)
def test_unknown_fields_are_ignored_only_if_they_are_null(
    app_of: Callable[..., Any], path: str, body: dict[str, Any]
) -> None:
    app = app_of()
    null, other = ask(app, ("POST", path, body), ("POST", path, {**body, "y": 0}))
    assert null.status_code == 200, null.text
    assert rejected(other)["code"] == "unknown_parameter"


def test_no_alternatives_to_tokens_need_no_logprobs(app_of: Callable[..., Any]) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    none, some = ask(
        app_of(),
        ("POST", CHAT, {**body, "top_logprobs": 0, "verbosity": "high"}),
        ("POST", CHAT, {**body, "top_logprobs": 1}),
    )
    assert none.status_code == 200
    assert rejected(some)["param"] == "top_logprobs"
