"""Tests of ``/v1/chat/completions`` with OpenAI's client and with plain HTTP."""

from __future__ import annotations

import json
import math
from functools import partial
from typing import Any

import httpx
import pytest
from served import ROUNDING, Order, Served, events_of, rejected

from eliza_ffi import Model
from eliza_ffi.serve.chat import ChatMessage

pytestmark = pytest.mark.slow

openai = pytest.importorskip("openai", "3.54", "the package openai is not installed")

PATH = "/v1/chat/completions"
HELLO: list[Any] = [{"role": "user", "content": "Hello, who are you?"}]


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    """Return a tool whose arguments are all required."""
    schema = {"type": "object", "properties": arguments, "required": [*arguments]}
    function = {"name": name, "description": "Returns something.", "parameters": schema}
    return {"type": "function", "function": function}


WEATHER = tool("get_weather", city={"type": "string", "maxLength": 20}, unit={"enum": ["C", "F"]})
STOCK = tool("get_stock", count={"type": "integer", "minimum": 1, "maximum": 9})


@pytest.fixture
def create(client: Any) -> Any:
    """Return OpenAI's method that sends a conversation, by default `HELLO`."""
    return partial(client.chat.completions.create, model="any", messages=HELLO)


def refused(server: Served, status: int = 400, **fields: Any) -> dict[str, Any]:
    """Send a request that must be rejected, and return the error."""
    body = {"messages": HELLO, **fields}
    return rejected(httpx.post(server.url + PATH, json=body, timeout=60), status)


def test_greedy_text_matches_the_model_in_process(create: Any, tiny_model: Model) -> None:
    found = create(temperature=0)
    expected = tiny_model.generate(HELLO)
    (choice,) = found.choices
    assert choice.message.content == expected.text and choice.finish_reason == "stop"
    assert found.usage.prompt_tokens == expected.prompt_tokens
    assert found.usage.completion_tokens == len(expected.tokens)
    again = create(temperature=0)
    assert again.usage.prompt_tokens_details.cached_tokens > 0


def test_a_stream_has_the_same_text_and_the_usage(create: Any) -> None:
    whole = create(temperature=0)
    *chunks, last = create(temperature=0, stream=True, stream_options={"include_usage": True})
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant" and len(chunks) > 5
    assert whole.system_fingerprint == last.system_fingerprint != ""
    assert "".join(each.content or "" for each in deltas) == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "stop"
    assert last.choices == [] and last.usage.total_tokens == whole.usage.total_tokens


def test_developer_messages_and_parts_are_read(create: Any, tiny_model: Model) -> None:
    hello = [{"type": "text", "text": "Hello."}]
    given = [{"role": "developer", "content": "Be short."}, {"role": "user", "content": hello}]
    found = create(messages=given, temperature=0, max_completion_tokens=4)
    plain = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello."}]
    expected = tiny_model.generate(plain, 4)
    assert found.choices[0].message.content == expected.text
    assert found.choices[0].finish_reason == "length"


def test_several_answers_differ_and_repeat_with_a_seed(create: Any) -> None:
    def texts() -> list[str]:
        found = create(n=4, seed=7, max_tokens=12)
        assert [choice.index for choice in found.choices] == [0, 1, 2, 3]
        return [choice.message.content for choice in found.choices]

    first = texts()
    assert len(set(first)) > 1 and first == texts()


def test_logprobs_match_the_model_in_process(create: Any, tiny_model: Model) -> None:
    found = create(temperature=0, max_tokens=4, logprobs=True, top_logprobs=2)
    expected = tiny_model.generate(HELLO, 4, logprobs=2).logprobs
    assert expected is not None
    content = found.choices[0].logprobs.content
    assert [each.token for each in content] == [each.text for each in expected]
    for got, each in zip(content, expected, strict=True):
        assert math.exp(got.logprob) == pytest.approx(math.exp(each.logprob), abs=ROUNDING)
        assert len(got.top_logprobs) == 2 and bytes(got.bytes).decode() == got.token


def test_each_chunk_of_a_stream_has_the_logprobs_of_its_text(create: Any) -> None:
    asked = {"temperature": 0, "logprobs": True, "top_logprobs": 1}
    whole = create(**asked).choices[0]
    stream = create(**asked, stream=True)
    found = []
    for chunk in stream:
        (choice,) = chunk.choices
        tokens = choice.logprobs.content if choice.logprobs else []
        if choice.delta.content:
            assert "".join(each.token for each in tokens) == choice.delta.content
        found += tokens
    assert [each.token for each in found] == [each.token for each in whole.logprobs.content]


def test_an_exact_choice_has_probabilities(client: Any, create: Any, tiny_model: Model) -> None:
    labels = ["yes", "no", "I do not know"]
    extra = {"guided_choice": labels}
    (choice,) = create(extra_body={"structured_outputs": {"choice": labels}}).choices
    (same,) = create(extra_body=extra).choices
    response = client.responses.create(model="any", input=HELLO, extra_body=extra)
    (other,) = client.completions.create(model="any", prompt="Hello", extra_body=extra).choices
    expected = tiny_model.choose(HELLO, labels, mode="best", probabilities=True)
    assert expected.probabilities is not None and other.text in labels
    assert choice.message.content == same.message.content == response.output_text == expected.value
    probabilities = list(expected.probabilities.values())
    for found in (choice, same, response.output[0]):
        assert list(found.probabilities) == labels
        assert list(found.probabilities.values()) == pytest.approx(probabilities, abs=ROUNDING)
    assert sum(other.probabilities.values()) == pytest.approx(1)


def test_a_choice_longer_than_the_limit_is_an_error(server: Served) -> None:
    label = "I do not know at all"
    error = refused(server, 422, guided_choice=[label], max_tokens=2)
    assert error["code"] == "incomplete_answer" and error["param"] == "max_tokens"
    assert error["partial_text"] == label and error["usage"]["completion_tokens"] > 2


def test_a_choice_is_sampled_at_a_temperature(create: Any) -> None:
    found = create(temperature=2, n=12, seed=1, extra_body={"guided_choice": ["yes", "no"]})
    assert {choice.message.content for choice in found.choices} == {"yes", "no"}


def test_openais_client_parses_and_streams_a_pydantic_class(client: Any) -> None:
    asked = {"model": "any", "messages": HELLO, "response_format": Order}
    found = client.chat.completions.parse(**asked)
    assert isinstance(found.choices[0].message.parsed, Order)
    with client.chat.completions.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        found = stream.get_final_completion()
    assert isinstance(found.choices[0].message.parsed, Order)
    assert {"content.delta", "content.done"} <= kinds


SCHEMA = Order.model_json_schema()


@pytest.mark.parametrize(
    "limit",
    [
        {"guided_json": SCHEMA},
        {"structured_outputs": {"json": SCHEMA}},
        {"json_schema": SCHEMA},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"guided_regex": "[a-c]{3}"},
        {"structured_outputs": {"regex": "[a-c]{3}"}},
        {"grammar": "root ::= [a-c] [a-c] [a-c]"},
    ],
)
def test_other_servers_forms_of_limits_are_understood(create: Any, limit: dict[str, Any]) -> None:
    text = create(temperature=1, extra_body=limit).choices[0].message.content
    if "json" in str(limit):
        Order.model_validate_json(text)
    else:
        assert len(text) == 3 and set(text) <= set("abc")


def test_a_json_object_is_whole(create: Any) -> None:
    """That a part of one is an error is tested in ``test_streams.py``."""
    (choice,) = create(response_format={"type": "json_object"}).choices
    assert isinstance(json.loads(choice.message.content), dict)


def check_calls(calls: Any) -> None:
    assert calls
    for call in calls:
        arguments = json.loads(call.function.arguments)
        if call.function.name == "get_weather":
            assert arguments["unit"] in ("C", "F") and len(arguments["city"]) <= 20
        else:
            assert call.function.name == "get_stock" and 1 <= arguments["count"] <= 9


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "get_weather"}}]
)
def test_required_tool_calls_are_valid_calls(create: Any, choice: Any) -> None:
    asked = {"tools": [WEATHER, STOCK], "tool_choice": choice}
    found = create(**asked)
    (first,) = found.choices
    assert first.finish_reason == "tool_calls" and first.message.content is None
    check_calls(first.message.tool_calls)
    sampled = create(**asked, temperature=1.5, seed=3, n=3)
    for each in sampled.choices:
        check_calls(each.message.tool_calls)
    if isinstance(choice, dict):
        assert first.message.tool_calls[0].function.name == "get_weather"


def test_tool_calls_stream_in_pieces(client: Any, create: Any) -> None:
    asked: dict[str, Any] = {"tools": [WEATHER, STOCK], "tool_choice": "required"}
    with client.chat.completions.stream(model="any", messages=HELLO, **asked) as stream:
        pieces = [
            call.function.arguments
            for event in stream
            if event.type == "chunk"
            for call in event.chunk.choices[0].delta.tool_calls or ()
            if call.index == 0
        ]
        found = stream.get_final_completion().choices[0]
    check_calls(found.message.tool_calls)
    assert pieces[0] == "" and len(pieces) > 3
    whole = create(**asked).choices[0]
    assert [call.function.arguments for call in found.message.tool_calls] == [
        call.function.arguments for call in whole.message.tool_calls
    ]
    assert "".join(pieces) == whole.message.tool_calls[0].function.arguments


@pytest.mark.parametrize("n", [1, 5, 12, 20, 40])
def test_a_call_over_the_limit_ends_with_length_and_is_no_call(create: Any, n: int) -> None:
    asked = {"tools": [WEATHER], "tool_choice": "required", "max_completion_tokens": n}
    found = create(**asked)
    (choice,) = found.choices
    calls = choice.message.tool_calls or []
    assert choice.message.content is None
    assert choice.finish_reason == ("tool_calls" if n == 40 else "length")
    if choice.finish_reason == "length":
        assert found.usage.completion_tokens <= n
    if calls:
        check_calls(calls)
    written: dict[int, str] = {}
    for chunk in create(**asked, stream=True):
        for call in chunk.choices[0].delta.tool_calls or ():
            written[call.index] = written.get(call.index, "") + call.function.arguments
    assert chunk.choices[0].finish_reason == choice.finish_reason
    for index, text in written.items():
        if index < len(calls):
            assert text == calls[index].function.arguments
        else:  # the call that did not fit
            with pytest.raises(json.JSONDecodeError):
                json.loads(text)


def test_a_schema_limits_an_answer_in_words_beside_tools(create: Any, server: Served) -> None:
    schema = {"name": "order", "schema": Order.model_json_schema()}
    asked: dict[str, Any] = {
        "tools": [WEATHER],
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    whole = create(**asked).choices[0]
    assert whole.message.tool_calls is None and whole.probabilities[""] > 0.5
    Order.model_validate_json(whole.message.content)
    streamed = create(**asked, stream=True)
    texts = [chunk.choices[0].delta.content or "" for chunk in streamed]
    assert "".join(texts) == whole.message.content
    called = create(**asked, tool_choice="required").choices[0]
    check_calls(called.message.tool_calls)
    body = {key: asked[key] for key in ("tools", "response_format")}
    assert refused(server, 422, **body, max_tokens=2)["code"] == "incomplete_answer"


def test_an_automatic_choice_may_answer_in_words(create: Any) -> None:
    whole = create(tools=[WEATHER]).choices[0]
    assert whole.message.tool_calls is None and whole.message.content
    assert whole.probabilities[""] > 0.5 > whole.probabilities["get_weather"]
    streamed = create(tools=[WEATHER], stream=True)
    texts = [chunk.choices[0].delta.content or "" for chunk in streamed]
    assert "".join(texts) == whole.message.content and len(texts) > 2


def test_a_tool_loop_reads_the_calls_and_their_results(create: Any) -> None:
    asked = create(tools=[WEATHER], tool_choice="required")
    message = asked.choices[0].message
    (call, *_) = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages = [*HELLO, message, result]
    for more in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        found = create(messages=messages, temperature=0, max_tokens=8, **more)
        assert found.choices[0].message.tool_calls is None
        assert found.usage.prompt_tokens > asked.usage.completion_tokens
    found = create(messages=messages, tools=[WEATHER], tool_choice="required")
    check_calls(found.choices[0].message.tool_calls)


def test_a_tool_may_be_named_like_a_choice(create: Any) -> None:
    for name in ("auto", "none"):
        tool = {"type": "function", "function": {"name": name}}
        found = create(tools=[tool, WEATHER], tool_choice=tool)
        (call,) = found.choices[0].message.tool_calls
        assert call.function.name == name


def test_variables_of_the_template_may_have_any_name(create: Any) -> None:
    names = ("template", "format", "name", "context", "cls", "loop", "no name")
    kwargs = {"chat_template_kwargs": dict.fromkeys(names, 1)}
    found = create(tools=[WEATHER], tool_choice="required", extra_body=kwargs)
    assert found.choices[0].message.tool_calls


def test_a_disconnected_stream_frees_its_slot(server: Served) -> None:
    """The grammar makes an answer that would fill the context."""
    body = {"messages": HELLO, "grammar": 'root ::= "a"+', "stream": True}
    with server.client() as client:
        for _ in range(3):
            with client.stream("POST", PATH, json=body) as answer:
                assert next(answer.iter_bytes()).startswith(b"data: ")
            server.wait_until_idle(5)
    figures = server.figures()
    assert figures['eliza_queue_requests{state="running"}'] == 0


def test_the_final_message_is_continued(create: Any, tiny_model: Model) -> None:
    talk = [*HELLO, {"role": "assistant", "content": "I am Eliza, a"}]
    more = {"continue_final_message": True, "add_generation_prompt": False}
    found = create(messages=talk, temperature=0, extra_body=more)
    whole = tiny_model.generate(HELLO)
    assert whole.text == "I am Eliza, a" + found.choices[0].message.content
    tokens = tiny_model.chat_tokens(talk, continue_final_message=True)
    assert found.usage.prompt_tokens == len(tokens)
    shorter = create(messages=talk, temperature=0, extra_body={"continue_final_message": True})
    assert shorter.choices[0].message.content == found.choices[0].message.content


def test_the_prompt_may_end_without_a_new_turn(create: Any, tiny_model: Model) -> None:
    found = create(temperature=0, max_tokens=1, extra_body={"add_generation_prompt": False})
    tokens = tiny_model.chat_tokens(HELLO, add_generation_prompt=False)
    assert found.usage.prompt_tokens == len(tokens) < len(tiny_model.chat_tokens(HELLO))


def test_earlier_reasoning_may_have_vllms_name() -> None:
    for name in ("reasoning", "reasoning_content"):
        message = ChatMessage(role="assistant", content="a", **{name: "thought"})
        assert message.written()["reasoning_content"] == "thought"
        assert "reasoning" not in message.written()


EMOJI = {"guided_regex": "(\U0001f389\u1e9e){3} x"}
"""Characters whose tokens are no whole characters."""


def test_the_bytes_of_tokens_join_to_the_content(server: Served) -> None:
    """Tokens that end inside a character had the bytes of U+FFFD."""
    chat = {"messages": HELLO, "logprobs": True, "top_logprobs": 3, **EMOJI}
    response = {"input": "Hello.", "include": ["message.output_text.logprobs"], **EMOJI}
    with server.client() as client:
        (choice,) = client.post(PATH, json=chat).json()["choices"]
        text = client.post(PATH, json={**chat, "stream": True}).text
        (part,) = client.post("/v1/responses", json=response).json()["output"][0]["content"]
    chunks = [event["choices"][0] for event in events_of(text)]
    streamed = [e for each in chunks if each["logprobs"] for e in each["logprobs"]["content"]]
    whole = choice["logprobs"]["content"]
    for entries in (whole, streamed, part["logprobs"]):
        read = b"".join(bytes(each["bytes"]) for each in entries).decode()
        assert read == "\U0001f389\u1e9e" * 3 + " x"
        for entry in entries:
            for each in (entry, *entry["top_logprobs"]):
                assert each["bytes"] != [239, 191, 189]
    assert read == choice["message"]["content"] == part["text"]
    assert read == "".join(each["delta"].get("content") or "" for each in chunks)
