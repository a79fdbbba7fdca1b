"""Tests of streams whose first event comes late: the head, comments, and errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from served import Exchange, ask, events_of

from eliza_ffi import AsyncModel, Model
from eliza_ffi.serve import endpoint
from eliza_ffi.serve import text as answers
from eliza_ffi.serve.app import admission_for, make_app
from eliza_ffi.serve.settings import ServeSettings

pytestmark = pytest.mark.slow

CHAT, RESPONSES, COMPLETIONS = "/v1/chat/completions", "/v1/responses", "/v1/completions"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 2},
    RESPONSES: {"input": "Hello.", "max_output_tokens": 2},
    COMPLETIONS: {"prompt": "Hello.", "max_tokens": 2},
}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "x"}}}


@pytest.fixture
def app(tiny_model: Model) -> Any:
    tiny_model.generate("a", 1)  # the server knows the length of the context after a request
    return make_app(AsyncModel.of(tiny_model), ServeSettings("tiny"))


def waiting_text(monkeypatch: pytest.MonkeyPatch, read: asyncio.Event) -> None:
    """Make the model read every prompt until an event is set."""
    plain = answers._steps

    async def slow(*arguments: Any) -> AsyncGenerator[Any, None]:
        await read.wait()
        async for step in plain(*arguments):
            yield step

    monkeypatch.setattr(answers, "_steps", slow)


@pytest.mark.anyio
@pytest.mark.parametrize("path", BODIES)
async def test_a_stream_begins_while_the_model_reads_the_prompt(
    app: Any, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Earlier versions sent nothing before the first token, which proxies take for a failure."""
    read = asyncio.Event()
    waiting_text(monkeypatch, read)
    exchange = Exchange(app, path, {**BODIES[path], "stream": True})
    await exchange.until(lambda: bool(exchange.sent))  # the head does not wait for a comment
    assert [each["type"] for each in exchange.sent] == ["http.response.start"]
    read.set()
    await exchange.task
    read.clear()
    monkeypatch.setattr(endpoint, "COMMENT_SECONDS", 0.05)
    exchange = Exchange(app, path, {**BODIES[path], "stream": True})
    await exchange.until(lambda: exchange.text.count(": waiting\n\n") >= 2)
    assert exchange.sent[0]["status"] == 200
    assert (b"content-type", b"text/event-stream; charset=utf-8") in exchange.sent[0]["headers"]
    assert "data:" not in exchange.text
    read.set()
    await exchange.task
    assert "data: {" in exchange.text and exchange.sent[-1]["more_body"] is False


@pytest.mark.anyio
@pytest.mark.parametrize("path", BODIES)
async def test_comments_are_sent_while_a_stream_waits_in_the_queue(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(endpoint, "COMMENT_SECONDS", 0.05)
    model = AsyncModel.of(tiny_model)
    settings = ServeSettings("tiny", deadline=0.5)
    admission = admission_for(model, settings)
    monkeypatch.setattr(admission, "_may_run", lambda _: False)
    app = make_app(model, settings, admission)
    stream = Exchange(app, path, {**BODIES[path], "stream": True})
    plain = Exchange(app, path, BODIES[path])
    wrong = Exchange(app, path, {"stream": True, "temperature": "hot"})
    await asyncio.gather(stream.task, plain.task, wrong.task)
    assert stream.sent[0]["status"] == 200 and stream.text.startswith(": waiting\n\n")
    (error,) = events_of(stream.text)
    assert error.get("error", error)["code"] == "deadline_exceeded"
    assert ("event: error\n" in stream.text) == (path == RESPONSES)
    assert plain.sent[0]["status"] == wrong.sent[0]["status"] == 504
    assert "waiting" not in plain.text + wrong.text


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        (CHAT, {"messages": [{"role": "user", "content": "word " * 5000}]}, "messages"),
        (COMPLETIONS, {"prompt": ["a", "word " * 5000]}, "prompt"),
        (RESPONSES, {"input": "word " * 5000}, "input"),
        (CHAT, {"tools": [TOOL]}, "tools"),
        (CHAT, {"guided_json": {"type": "x"}}, "guided_json"),
        (RESPONSES, {"guided_regex": "("}, "guided_regex"),
        (CHAT, {"grammar": "root"}, "grammar"),
        (CHAT, {"grammar": "root ::= <|im_end|>"}, "grammar"),
        (CHAT, {"logit_bias": {"9999999": 1}}, "logit_bias"),
        (CHAT, {"guided_choice": ["a", "x" * 50_000]}, "guided_choice"),
    ],
)
def test_errors_of_a_stream_that_are_known_early_have_a_status(
    app: Any, path: str, change: dict[str, Any], field: str
) -> None:
    (answer,) = ask(app, ("POST", path, {**BODIES[path], "stream": True, **change}))
    assert answer.status_code == 400 and answer.json()["error"]["param"] == field


SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        (CHAT, {"max_tokens": 2}, "max_tokens"),
        (CHAT, {"max_tokens": None, "max_completion_tokens": 2}, "max_completion_tokens"),
        (RESPONSES, {"max_output_tokens": 2}, "max_output_tokens"),
        (COMPLETIONS, {"max_tokens": 2}, "max_tokens"),
        (CHAT, {"max_tokens": 9, "temperature": 1, "seed": 1, "stop": ["{"]}, "stop"),
        (
            CHAT,
            {"max_tokens": None, "messages": [{"role": "user", "content": "word " * 1985}]},
            "messages",
        ),
    ],
)
def test_an_incomplete_answer_names_the_field_that_ended_it(
    app: Any, path: str, change: dict[str, Any], field: str
) -> None:
    """Earlier versions always named max_tokens, and advised to pass on_limit="close"."""
    body = {**BODIES[path], "guided_json": SCHEMA, **change}
    plain, stream = ask(app, ("POST", path, body), ("POST", path, {**body, "stream": True}))
    last = (events_of(stream.text) or [stream.json()])[-1]
    assert plain.status_code == 422
    for error in (plain.json()["error"], last.get("error", last)):
        assert error["code"] == "incomplete_answer" and error["param"] == field
        assert "on_limit" not in error["message"] and "n_ctx" not in error["message"]
        assert error["usage"]["prompt_tokens"] > 0
        n_tokens = error["usage"]["completion_tokens"]
        assert f"after {n_tokens} tokens" in error["message"]
        assert bool(error["partial_text"]) == (field != "stop")
        retry = "with the same seed" if "seed" in change else "at temperature 0"
        assert f"; {retry}, the same request usually gives the same answer" in error["message"]
    if path == RESPONSES:
        assert "event: error\n" in stream.text
        assert last["sequence_number"] == len(events_of(stream.text)) - 1


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_an_answer_that_fills_the_context_says_so(
    app: Any, tiny_model: Model, path: str, stream: bool
) -> None:
    controls = sorted(tiny_model.vocabulary().controls)
    endless = {"temperature": 0, "logit_bias": {str(token): -100 for token in controls}}
    text = "word " * 1985
    prompt = {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}

    def reasons(**body: Any) -> tuple[str, str | None]:
        (answer,) = ask(app, ("POST", path, {**body, "stream": stream}))
        (choice,) = (events_of(answer.text)[-1] if stream else answer.json())["choices"]
        return choice["finish_reason"], choice.get("stop_reason")

    assert reasons(**prompt, **endless, max_tokens=1000) == ("length", "context_full")
    assert reasons(**BODIES[path], **endless) == ("length", None)
