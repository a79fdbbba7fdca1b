"""Tests of what the log and the metrics say about requests."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import httpx
import pytest
from served import DECISIONS, Exchange, Served, ask, decisions_body

from eliza_ffi import AsyncModel, Model
from eliza_ffi.serve import text as answers
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.http_error import HTTPError
from eliza_ffi.serve.settings import ServeSettings

pytestmark = pytest.mark.slow

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
BATCH = "/v1/decisions/batch"
HELLO = [{"role": "user", "content": "Hello"}]


def app_with_log(model: Model, caplog: pytest.LogCaptureFixture, **settings: Any) -> Any:
    caplog.set_level("INFO", "eliza_ffi.serve")
    return make_app(AsyncModel.of(model), ServeSettings("tiny", logs_requests=True, **settings))


def metric(text: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, RESPONSES])
def test_a_stream_that_ends_with_an_error_is_counted_with_its_status(
    tiny_model: Model, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """The model cannot complete the JSON with so few tokens."""
    app = app_with_log(tiny_model, caplog)
    given = {CHAT: {"messages": HELLO}, COMPLETIONS: {"prompt": "a"}, RESPONSES: {"input": "a"}}
    limit = "max_output_tokens" if path == RESPONSES else "max_tokens"
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    body = {**given[path], limit: 5, "json_schema": schema, "stream": True}
    answer, figures = ask(app, ("POST", path, body), ("GET", "/metrics", None))
    assert answer.status_code == 200 and "incomplete_answer" in answer.text
    name = f'eliza_requests_total{{code="422",endpoint="{path}"}}'
    assert metric(figures.text, name) == 1
    assert f"'{path}', status 422" in caplog.text
    assert metric(figures.text, 'eliza_tokens_total{source="generated"}') == 5
    assert metric(figures.text, 'eliza_tokens_total{source="read"}') > 0


async def leave_after_first_part(app: Any, path: str, body: Any) -> None:
    """Send a request, and disconnect as soon as the first part of its answer has arrived."""
    exchange = Exchange(app, path, body)
    await exchange.until(lambda: bool(exchange.text))
    exchange.leaves.set()
    await exchange.task


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, {"messages": HELLO, "stream": True, "guided_regex": "[a-z ]{900,}"}),
        (COMPLETIONS, {"prompt": "a", "stream": True, "guided_regex": "[a-z ]{900,}", "n": 2}),
        (BATCH, {**decisions_body(), "inputs": [f"{i} times" for i in range(99)]}),
    ],
)
def test_a_stream_whose_client_leaves_is_counted_as_499_with_its_tokens(
    tiny_model: Model, caplog: pytest.LogCaptureFixture, path: str, body: dict[str, Any]
) -> None:
    app = app_with_log(tiny_model, caplog)
    sent = {key: body[key] for key in body if key != "input"}
    asyncio.run(leave_after_first_part(app, path, sent))
    (figures,) = ask(app, ("GET", "/metrics", None))
    assert metric(figures.text, f'eliza_requests_total{{code="499",endpoint="{path}"}}') == 1
    assert metric(figures.text, f'eliza_requests_total{{code="200",endpoint="{path}"}}') == 0
    assert f"'{path}', status 499" in caplog.text
    assert metric(figures.text, 'eliza_tokens_total{source="read"}') > 0
    generated = metric(figures.text, 'eliza_tokens_total{source="generated"}')
    assert generated < 900 and (path == BATCH or generated > 0)


@pytest.mark.parametrize(
    ("sent", "is_kept"),
    [("abc-123_X", True), ("a" * 128, True), ("a" * 129, False), ("a b", False), ("\xe9", False)],
)
def test_the_clients_request_id_is_kept_if_it_is_plain(
    tiny_model: Model, caplog: pytest.LogCaptureFixture, sent: str, is_kept: bool
) -> None:
    app = app_with_log(tiny_model, caplog)

    headers: Any = {"x-request-id": sent.encode("latin-1")}
    (answer,) = ask(app, ("GET", "/health", None), headers=headers)
    id = answer.headers["x-request-id"]
    assert (id == sent) == is_kept and f"request {id}: GET" in caplog.text
    assert is_kept or re.fullmatch("[0-9a-f]{32}", id)


def test_the_log_has_tokens_and_finish_reasons(
    tiny_model: Model, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_with_log(tiny_model, caplog)
    chat = {"messages": HELLO, "max_tokens": 3, "temperature": 0}
    first, _, decided = ask(
        app,
        ("POST", CHAT, chat),
        ("POST", CHAT, {**chat, "n": 2}),
        ("POST", DECISIONS, decisions_body()),
    )
    usage = first.json()["usage"]
    n, n_reused = usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].endswith(f", {n} prompt tokens ({n_reused} reused), 3 generated, length")
    assert ", 6 generated, length x 2" in lines[1]
    n = decided.json()["usage"]["input_tokens"]
    assert f", {n} prompt tokens (" in lines[2] and "generated" not in lines[2]


def test_streams_have_metrics_of_the_first_token_and_the_others(tiny_model: Model) -> None:
    app = make_app(AsyncModel.of(tiny_model), ServeSettings("tiny", deadline=77))
    body = {"messages": HELLO, "max_tokens": 4, "temperature": 0}
    *_, figures = ask(
        app,
        ("POST", CHAT, {**body, "stream": True}),
        ("POST", COMPLETIONS, {"prompt": "a", "stream": True, "temperature": 0}),
        ("POST", CHAT, body),
        ("GET", "/metrics", None),
    )
    for name in ("time_to_first_token", "time_per_output_token"):
        assert metric(figures.text, f"eliza_{name}_seconds_count") == 2
        assert metric(figures.text, f'eliza_{name}_seconds_bucket{{le="77.0"}}') == 2
        assert 'le="60.0"' in figures.text and 'le="120.0"' not in figures.text


def test_streams_ask_proxies_not_to_buffer(server: Served) -> None:
    body = {"messages": HELLO, "max_tokens": 2, "stream": True}
    assert httpx.post(server.url + CHAT, json=body).headers["x-accel-buffering"] == "no"
    batch = {"inputs": ["a"], "questions": decisions_body()["questions"]}
    answer = httpx.post(f"{server.url}{DECISIONS}/batch", json=batch)
    assert answer.headers["x-accel-buffering"] == "no"


def test_a_stream_that_passes_the_deadline_is_counted_as_504(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(*_: Any) -> AsyncGenerator[str, None]:
        yield "a"
        raise HTTPError(504, "too late", "deadline_exceeded")

    monkeypatch.setattr(answers, "_steps", late)
    app = make_app(AsyncModel.of(tiny_model), ServeSettings("tiny"))
    body = {"prompt": "a", "stream": True}
    answer, figures = ask(app, ("POST", COMPLETIONS, body), ("GET", "/metrics", None))
    last = answer.text.strip().split("\n\n")[-1].removeprefix("data: ")
    assert json.loads(last)["error"]["code"] == "deadline_exceeded"
    name = f'eliza_requests_total{{code="504",endpoint="{COMPLETIONS}"}}'
    assert metric(figures.text, name) == 1
