"""Tests of ``/v1/responses`` with OpenAI's client."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from served import Order

from eliza_ffi import Model
from eliza_ffi.serve.request_body import read_fields
from eliza_ffi.serve.responses import ResponseRequest

pytestmark = pytest.mark.slow

HELLO = "Hello, who are you?"
TALK = [{"role": "user", "content": HELLO}]
WEATHER: dict[str, Any] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        **{"type": "object", "required": ["unit"], "additionalProperties": False},
        "properties": {"unit": {"enum": ["C", "F"]}},
    },
    "strict": True,
}


@pytest.fixture
def create(client: Any) -> Any:
    """Return OpenAI's method that asks for a response, by default `HELLO`."""
    return partial(client.responses.create, model="any", input=HELLO)


def test_a_response_matches_the_model_in_process(create: Any, tiny_model: Model) -> None:
    found = create(temperature=0, store=False)
    expected = tiny_model.generate(TALK)
    assert found.output_text == expected.text and found.status == "completed"
    assert found.usage.input_tokens == expected.prompt_tokens
    assert found.usage.output_tokens == len(expected.tokens)
    short = create(temperature=0, max_output_tokens=3, instructions="Be short.")
    assert short.status == "incomplete"
    assert short.incomplete_details.reason == "max_output_tokens"


def test_a_stream_has_openais_events(client: Any, create: Any) -> None:
    asked = {"temperature": 0}
    events = list(create(**asked, stream=True))
    kinds = [event.type for event in events]
    parts = [kind.removeprefix("response.") for kind in kinds]
    assert parts[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    ended = ["output_text.done", "content_part.done", "output_item.done", "completed"]
    assert parts[-4:] == ended
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    text = events[-1].response.output_text
    assert "".join(deltas) == text == create(**asked).output_text
    with client.responses.stream(model="any", input=HELLO, **asked) as stream:
        assert stream.get_final_response().output_text == text


def test_openais_client_parses_a_pydantic_class(client: Any) -> None:
    found = client.responses.parse(model="any", input=HELLO, text_format=Order)
    assert isinstance(found.output_parsed, Order)


def test_a_tool_loop_reads_calls_and_outputs(client: Any, create: Any) -> None:
    talk: list[Any] = [{"role": "user", "content": HELLO}]
    asked: dict[str, Any] = {"tools": [WEATHER], "tool_choice": "required"}
    calls = create(input=talk, **asked).output
    talk += calls
    for call in calls:
        assert json.loads(call.arguments)["unit"] in ("C", "F")
        output = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        talk.append(output)
    again = create(input=talk, temperature=0, max_output_tokens=8)
    assert calls and again.output_text
    talk += again.output
    events = list(create(input=talk, stream=True, **asked))
    name = "response.function_call_arguments"
    done = {event.item_id: event.arguments for event in events if event.type == f"{name}.done"}
    items = events[-1].response.output
    assert done == {item.id: item.arguments for item in items}
    for item in items:
        assert json.loads(item.arguments)["unit"] in ("C", "F")
        deltas = [e.delta for e in events if e.type == f"{name}.delta" and e.item_id == item.id]
        assert len(deltas) > 1 and "".join(deltas) == item.arguments
    with client.responses.stream(model="any", input=talk, **asked) as stream:
        found = stream.get_final_response().output
    assert [item.arguments for item in found] == [item.arguments for item in items]


def test_a_call_is_a_part_of_the_turn_before_it() -> None:
    """Mistral's templates reject two turns of the assistant in a row."""
    said = {"role": "assistant", "content": "Let me look."}
    calls = [
        {"type": "function_call", "call_id": id, "name": "get_weather", "arguments": "{}"}
        for id in ("a", "b")
    ]
    output = {"type": "function_call_output", "call_id": "a", "output": "sunny"}
    talk = [{"role": "user", "content": HELLO}, said, *calls, output, calls[0]]
    messages = read_fields(ResponseRequest, {"input": talk}).messages()
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[1]["content"] == said["content"]
    assert [each["id"] for each in messages[1]["tool_calls"]] == ["a", "b"]
    assert [each["id"] for each in messages[3]["tool_calls"]] == ["a"]
    thought = {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]}
    *_, first, second = read_fields(ResponseRequest, {"input": [said, thought, *calls]}).messages()
    assert "tool_calls" not in first and second["reasoning_content"] == "Hm."
    assert len(second["tool_calls"]) == 2


@pytest.mark.parametrize("n", [1, 12])
def test_a_call_over_the_limit_makes_the_response_incomplete(create: Any, n: int) -> None:
    asked = {"tools": [WEATHER], "tool_choice": "required", "max_output_tokens": n}
    last = list(create(**asked, stream=True))[-1]
    assert last.type == "response.incomplete"
    for found in (create(**asked), last.response):
        assert found.status == "incomplete" and found.output == []
        assert found.incomplete_details.reason == "max_output_tokens"
