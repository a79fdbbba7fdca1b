"""Tests of the application and the command in this process, also with models that fail."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from real_templates import real_templates
from served import DECISIONS, ask, decisions_body, events_of, joined

from eliza_ffi import AsyncModel, Model
from eliza_ffi.chat import ChatTemplate
from eliza_ffi.chat.thinking import ThinkingFormat, WrittenReasoning
from eliza_ffi.errors import (
    BusyError,
    ContextFullError,
    ElizaError,
    InvalidArgumentError,
    ModelError,
    NativeFaultError,
    NoChatTemplateError,
    NotSupportedError,
    OutOfMemoryError,
)
from eliza_ffi.sampling.params import Sampling
from eliza_ffi.serve import text as answers
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.settings import ServeSettings
from eliza_ffi.session import thinking
from eliza_ffi.session.runs import text_run
from eliza_ffi.structured.guidance import Guidance

pytestmark = pytest.mark.slow

SECRET = "/home/somebody/model.gguf"


class FailingModel:
    """A model that raises the same exception for every input."""

    def __init__(self, error: Exception) -> None:
        self.session = SimpleNamespace(
            **{"kind": "decoder", "path": SECRET, "encoder": None, "describe": dict},
            **dict.fromkeys(("at_once", "decisions_at_once"), lambda _: 1),
        )
        self._error = error

    async def decide(self, *_: Any, **__: Any) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NativeFaultError(f"{SECRET} is broken"), 500, "internal_error"),
        (OutOfMemoryError(f"no memory for {SECRET}"), 500, "internal_error"),
        (ElizaError(f"the model {SECRET} is closed"), 500, "internal_error"),
        (RuntimeError(SECRET), 500, "internal_error"),
        (NotSupportedError(f"{SECRET} is not a reranker"), 501, "not_supported"),
        (BusyError("all slots are in use"), 504, "deadline_exceeded"),
        (ContextFullError("does not fit the context of 8"), 400, "context_length_exceeded"),
        (InvalidArgumentError("the label cannot be spelled"), 400, "invalid_value"),
        (NoChatTemplateError(f"the model {SECRET} has no chat template"), 400, "no_chat_template"),
        (ModelError(f"{SECRET} is damaged"), 500, "internal_error"),
    ],
)
def test_model_errors_get_a_response_that_names_no_file(
    error: Exception, status: int, code: str
) -> None:
    app = make_app(FailingModel(error), ServeSettings("tiny"))  # type: ignore[arg-type]
    answer, after = ask(app, ("POST", DECISIONS, decisions_body()), ("GET", "/metrics", None))
    assert answer.status_code == status and answer.json()["error"]["code"] == code
    assert "somebody" not in answer.text
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert f'eliza_requests_total{{code="{status}",endpoint="/v1/decisions"}} 1.0' in after.text
    assert 'eliza_queue_requests{state="running"} 0.0' in after.text


@pytest.mark.parametrize(("argument", "param"), [(None, None), ("prompt", "input"), ("seed", None)])
def test_errors_are_classified_by_the_argument_and_not_by_their_text(
    argument: str | None, param: str | None
) -> None:
    error = InvalidArgumentError("it does not fit, so the model cannot generate text")
    error.argument = argument
    app = make_app(FailingModel(error), ServeSettings("tiny"))  # type: ignore[arg-type]
    (answer,) = ask(app, ("POST", DECISIONS, decisions_body()))
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


def test_the_log_has_a_failure_under_its_request_id(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app(FailingModel(RuntimeError("so it failed")), ServeSettings("tiny"))  # type: ignore[arg-type]
    failed, refused = ask(app, ("POST", DECISIONS, decisions_body()), ("POST", DECISIONS, {}))
    (record,) = caplog.records
    assert failed.headers["x-request-id"] in record.getMessage()
    assert f"POST '{DECISIONS}'" in record.getMessage()
    assert record.exc_info is not None and "so it failed" in str(record.exc_info[1])
    assert refused.headers["x-request-id"] not in caplog.text


def test_the_log_has_a_failed_stream_under_its_request_id(
    tiny_model: Model, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any) -> AsyncGenerator[str, None]:
        yield "a"
        raise RuntimeError(f"{SECRET} is broken")

    monkeypatch.setattr(answers, "_steps", broken)
    app = make_app(AsyncModel.of(tiny_model), ServeSettings("tiny"))
    (answer,) = ask(app, ("POST", "/v1/completions", {"prompt": "a", "stream": True}))
    assert answer.status_code == 200
    last = answer.text.strip().split("\n\n")[-1].removeprefix("data: ")
    assert json.loads(last)["error"]["code"] == "internal_error" and "somebody" not in last
    (record,) = caplog.records
    assert answer.headers["x-request-id"] in record.getMessage()
    assert record.exc_info is not None and SECRET in str(record.exc_info[1])


def test_requests_are_logged_on_demand(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "eliza_ffi.serve")
    model: Any = FailingModel(InvalidArgumentError("the label cannot be spelled"))
    for logs_requests in (False, True):
        caplog.clear()
        app = make_app(model, ServeSettings("tiny", logs_requests=logs_requests))
        answers = ask(app, ("POST", DECISIONS, decisions_body()), ("GET", "/health", None))
        seen = (f"POST '{DECISIONS}', status 400, ", "GET '/health', status 200, ")
        expected = [
            f"request {each.headers['x-request-id']}: {what}"
            for each, what in zip(answers, seen, strict=True)
        ]
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == len(expected) * logs_requests
        assert all(line.startswith(each) for line, each in zip(lines, expected, strict=False))


HELLO = [{"role": "user", "content": "Hello, who are you?"}]
BRIEF = "I can choose actions and answer briefly."
CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"


@pytest.fixture
def thinking_app(tiny_model: Model, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that returns an application whose model writes reasoning between marks.

    The marks are words that the embedded model writes.
    """

    def make(start: str, end: str) -> Any:
        format = ThinkingFormat("", start, end, end)
        monkeypatch.setattr(thinking, "known_thinking_format", lambda _: format)
        return make_app(AsyncModel.of(tiny_model), ServeSettings("tiny"))

    return make


@pytest.mark.parametrize("start", ["I am", "<|im_start|>assistant\n"])
def test_reasoning_is_separate_from_the_answer(
    tiny_model: Model, thinking_app: Callable[..., Any], start: str
) -> None:
    text = tiny_model.generate(HELLO).text
    before, _, after = text.partition("a small")
    before, after = before.removeprefix(start).strip(), after.lstrip()
    body = {"messages": HELLO, "temperature": 0}
    found, streamed, logged = ask(
        thinking_app(start, "a small"),
        ("POST", CHAT, body),
        ("POST", CHAT, {**body, "stream": True}),
        ("POST", CHAT, {**body, "stream": True, "logprobs": True}),
    )
    message = found.json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (before, after)
    usage = found.json()["usage"]["completion_tokens_details"]
    assert usage["reasoning_tokens"] == len(tiny_model.tokenize(before)) > 0
    for stream in (streamed, logged):
        chunks = events_of(stream.text)
        assert (joined(chunks, "reasoning_content"), joined(chunks)) == (before, after)
        assert sum("reasoning_content" in chunk["choices"][0]["delta"] for chunk in chunks) > 1
    logprobs = [chunk["choices"][0]["logprobs"] for chunk in chunks]
    tokens = [each["token"] for entry in logprobs if entry for each in entry["content"]]
    assert "".join(tokens) == text


@pytest.mark.parametrize(
    ("stop", "content"),
    [
        (",", BRIEF),
        ("a", "I c"),
        (["z", "answer "], "I can choose actions and "),
        ("small assistant", BRIEF),
        (". I", BRIEF),
    ],
)
def test_stop_strings_apply_only_to_the_answer(
    thinking_app: Callable[..., Any], stop: Any, content: str
) -> None:
    body = {"messages": HELLO, "temperature": 0, "stop": stop}
    whole, stream = ask(
        thinking_app("I am", "assistant."),
        ("POST", CHAT, body),
        ("POST", CHAT, {**body, "stream": True}),
    )
    (choice,) = whole.json()["choices"]
    chunks = events_of(stream.text)
    assert choice["finish_reason"] == chunks[-1]["choices"][0]["finish_reason"] == "stop"
    reasoning = choice["message"]["reasoning_content"], joined(chunks, "reasoning_content")
    assert reasoning == ("Eliza, a small",) * 2
    assert choice["message"]["content"] == joined(chunks) == content


def test_reasoning_is_an_item_of_a_response(thinking_app: Callable[..., Any]) -> None:
    app = thinking_app("I am", "a small")
    body = {"input": HELLO, "temperature": 0}
    found, streamed, cut = ask(
        app,
        ("POST", RESPONSES, body),
        ("POST", RESPONSES, {**body, "stream": True}),
        ("POST", RESPONSES, {**body, "max_output_tokens": 4}),
    )
    reasoning, message = found.json()["output"]
    assert reasoning["content"] == [{"type": "reasoning_text", "text": "Eliza,"}]
    assert message["content"][0]["text"].startswith("assistant")
    events = events_of(streamed.text)
    items = events[-1]["response"]["output"]
    assert [each["content"] for each in items] == [reasoning["content"], message["content"]]
    for kind, item in (("reasoning_text", items[0]), ("output_text", items[1])):
        deltas = [each for each in events if each["type"] == f"response.{kind}.delta"]
        assert "".join(each["delta"] for each in deltas) == item["content"][0]["text"]
        assert {each["item_id"] for each in deltas} == {item["id"]}
        assert {each["output_index"] for each in deltas} == {items.index(item)}
    (only,) = cut.json()["output"]
    assert only["type"] == "reasoning" and only["status"] == cut.json()["status"] == "incomplete"
    talk = {"input": [*HELLO, reasoning, message, *HELLO], "max_output_tokens": 2}
    (again,) = ask(app, ("POST", RESPONSES, talk))
    assert again.status_code == 200, again.text


def test_control_tokens_can_be_a_part_of_the_text(tiny_model: Model) -> None:
    (mark,) = tiny_model.tokenize("<|im_start|>", parse_special=True)
    sampling = Sampling(logit_bias=((mark, 100.0),))
    format = ThinkingFormat("", "", "<|im_start|>", "<|im_start|>")
    reasoning = WrittenReasoning(format, True, {mark: "<|im_start|>"})
    for given, text in ((None, ""), (reasoning, "<|im_start|>" * 2)):
        more: Any = {"max_tokens": 3, "sampling": sampling, "reasoning": given}
        run = text_run(tiny_model.session, "hello", method="generate", **more)
        result: Any = next(run.steps())
        assert result.text == text


FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}


@pytest.mark.parametrize("with_tools", [False, True])
def test_calls_of_other_servers_are_read_with_mistrals_template(
    app_with: Callable[..., Any], with_tools: bool
) -> None:
    app = app_with(real_templates()["mistralai-Mistral-Nemo-Instruct-2407"])
    id, function = "call_abc123DEF456ghi789", {"name": "f", "arguments": "{}"}
    call = {"id": id, "type": "function", "function": function}
    talk = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": id, "content": "x"},
    ]
    items = [
        {"role": "user", "content": "a"},
        {"type": "function_call", "call_id": id, **function},
        {"type": "function_call_output", "call_id": id, "output": "x"},
    ]
    tools = [{"type": "function", "function": FUNCTION}] if with_tools else None
    flat = [{"type": "function", **FUNCTION}] if with_tools else None
    for answer in ask(
        app,
        ("POST", CHAT, {"messages": talk, "tools": tools, "max_tokens": 5}),
        ("POST", RESPONSES, {"input": items, "tools": flat, "max_output_tokens": 5}),
    ):
        assert answer.status_code == 200, answer.text


def test_messages_that_the_template_rejects_are_named(app_with: Callable[..., Any]) -> None:
    app = app_with(ChatTemplate("{{ raise_exception('roles must alternate') }}"))
    messages = {"messages": [{"role": "user", "content": "a"}]}
    tools = [{"type": "function", "function": FUNCTION}]
    for path, body, param in (
        (CHAT, messages, "messages"),
        (CHAT, {**messages, "tools": tools}, "messages"),
        (RESPONSES, {"input": "a"}, "input"),
        (RESPONSES, {"input": "a", "stream": True}, "input"),
    ):
        (answer,) = ask(app, ("POST", path, body))
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["param"] == param and "roles must alternate" in error["message"]


def test_requests_are_answered_while_a_schema_is_compiled(
    app_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    compiled = Guidance._compiled

    def slow(self: Guidance, constraint: Any) -> Any:
        if "slow" in constraint.grammar:
            begun.set()
            assert go_on.wait(60)
        return compiled(self, constraint)

    monkeypatch.setattr(Guidance, "_compiled", slow)
    chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4}

    async def ask_both() -> None:
        transport = httpx.ASGITransport(app=app_of())
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            def post(**more: Any) -> Any:
                return client.post("/v1/chat/completions", json={**chat, **more}, timeout=60)

            slow = asyncio.ensure_future(post(guided_json={"const": "slow"}))
            try:
                assert await asyncio.to_thread(begun.wait, 60)
                assert (await client.get("/health")).status_code == 200
                assert (await post()).status_code == 200
                assert (await post(guided_json={"const": 1})).status_code == 200
                assert not slow.done()
            finally:
                go_on.set()
            assert (await slow).json()["choices"][0]["message"]["content"] == '"slow"'

    asyncio.run(ask_both())


def test_a_chat_is_answered_before_a_choice_among_thousands_of_labels(
    app_of: Callable[..., Any],
) -> None:
    labels = [f"label {i * 7919 % 5003} of {i}" for i in range(5000)]
    chat = {"messages": [{"role": "user", "content": "x"}]}

    async def ask_both() -> None:
        transport = httpx.ASGITransport(app=app_of())
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            def post(**more: Any) -> Any:
                return client.post("/v1/chat/completions", json={**chat, **more}, timeout=300)

            choice = asyncio.ensure_future(post(guided_choice=labels))
            await asyncio.sleep(0.05)
            assert (await post(max_tokens=1)).status_code == 200
            assert not choice.done()
            assert (await choice).json()["choices"][0]["message"]["content"] in labels

    asyncio.run(ask_both())
