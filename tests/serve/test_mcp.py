"""The tools of ``eliza-ffi mcp``, called by MCP's official client over both transports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from checkout import ROOT
from served import Exchange

from eliza_ffi import Model
from eliza_ffi.decisions import Choice, Predicate, question_to
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

mcp = pytest.importorskip("mcp", reason="the package mcp is not installed")
from eliza_ffi.serve.admission import Admission  # noqa: E402
from eliza_ffi.serve.mcp import make_mcp_app  # noqa: E402
from eliza_ffi.serve.settings import ServeSettings  # noqa: E402

TEAM = Choice("Which team should read this?", ["billing", "support"], "team")
URGENT = Predicate("The writer needs an answer today.", "urgent")
INPUT = "I was charged twice!"
LABELS = ["billing", "support", "sales"]
PROMPT = "Which team should read this mail? I was charged twice!"


def command(folder: Path, *more: str) -> list[str]:
    questions = folder / "tickets.json"
    questions.write_text(json.dumps([question_to(TEAM), question_to(URGENT)]))
    options = ("--questions", str(questions), "--threads", "1", "--batching", "off")
    return ["-m", "eliza_ffi", "mcp", *options, *more]


@pytest.fixture(scope="module")
def environment(library: Library) -> dict[str, str]:
    return {**os.environ, LIBRARY_VARIABLE: str(library.path), "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mcp")
    process = subprocess.Popen(
        [sys.executable, *command(folder, "--port", "0", "--api-key-file", key_file(folder))],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    yield process.stdout.readline().split()[-1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def key_file(folder: Path) -> str:
    (folder / "keys").write_text("secret\n")
    return str(folder / "keys")


@pytest.fixture(params=["stdio", "http"])
def ask(
    request: pytest.FixtureRequest, environment: dict[str, str], tmp_path: Path
) -> Callable[[Callable[[Any], Awaitable[Any]]], Any]:
    """Return a function that connects a client and calls a function with it."""
    if request.param == "http":
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        address = request.getfixturevalue("url")
        headers = {"Authorization": "Bearer secret"}

        def connect() -> Any:
            return streamable_http_client(
                address, http_client=create_mcp_http_client(headers=headers)
            )
    else:
        started = mcp.StdioServerParameters(
            command=sys.executable, args=command(tmp_path), env=environment
        )

        def connect() -> Any:
            return mcp.stdio_client(started)

    def run(use: Callable[[Any], Awaitable[Any]]) -> Any:
        async def connected() -> Any:
            async with mcp.Client(connect()) as client:
                return await use(client)

        return asyncio.run(connected())

    return run


def test_the_tools_give_the_answers_of_the_model(ask: Any, library: Library) -> None:
    async def use(client: Any) -> list[Any]:
        listed = (await client.list_tools()).tools
        assert {each.name for each in listed} == {"choose", "rank", "decide"}
        (decide,) = (each for each in listed if each.name == "decide")
        assert "The set 'tickets' answers: team, urgent." in decide.description
        assert "ChoiceQuestion" in decide.input_schema["$defs"]
        calls = [
            ("choose", {"prompt": PROMPT, "labels": LABELS}),
            ("rank", {"prompt": PROMPT, "labels": LABELS, "k": 2}),
            ("decide", {"input": INPUT, "questions": [question_to(TEAM)]}),
            ("decide", {"input": INPUT, "set": "tickets"}),
        ]
        results = [await client.call_tool(name, arguments) for name, arguments in calls]
        assert not any(result.is_error for result in results)
        return [result.structured_content for result in results]

    chosen, ranked, own, named = ask(use)
    with Model(library=library, n_slots=1, options={"batching": "off"}) as model:
        messages = [{"role": "user", "content": PROMPT}]
        choice = model.choose(messages, LABELS, probabilities=True)
        assert chosen["label"] == choice.value
        assert chosen["probabilities"] == pytest.approx(dict(choice.probabilities or {}))
        ranking = list(model.rank(messages, LABELS, 2))
        assert [each["label"] for each in ranked["labels"]] == [label for label, _ in ranking]
        assert ranked["proven"]
        decision = model.decide(INPUT, [TEAM, URGENT])
        assert [each["name"] for each in named["answers"]] == ["team", "urgent"]
        assert named["answers"][1]["probability"] == pytest.approx(decision["urgent"].probability)
        assert own["answers"][0]["choice"] == decision["team"].value


def test_errors_reach_the_agent(ask: Any) -> None:
    async def use(client: Any) -> list[str]:
        calls = [
            ("choose", {"prompt": PROMPT, "labels": []}),
            ("decide", {"input": INPUT, "set": "unknown"}),
            ("decide", {"input": INPUT, "questions": {"team": {"type": "choices"}}}),
        ]
        results = [await client.call_tool(name, arguments) for name, arguments in calls]
        assert all(result.is_error for result in results)
        return [result.content[0].text for result in results]

    empty, unknown, wrong = ask(use)
    assert "label" in empty
    assert "either questions or one of the sets: tickets; got 'unknown'" in unknown
    assert "'team'" in wrong and "'choices'" in wrong


def test_http_needs_the_key_and_the_servers_own_origin(url: str) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"accept": "application/json, text/event-stream"}
    assert httpx.post(url, json=body, headers=headers).status_code == 401
    headers |= {"authorization": "Bearer secret", "origin": "https://example.org"}
    assert httpx.post(url, json=body, headers=headers).status_code == 403


# ---- Limits over HTTP ---------------------------------------------------------------------------

ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
KEY = {"authorization": "Bearer secret"}


def call_of(tool: str, **arguments: Any) -> dict[str, Any]:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


DECIDE = call_of("decide", input=INPUT, questions=[question_to(URGENT)])


def test_the_path_with_a_slash_is_served_and_not_redirected(url: str) -> None:
    for address in (url, f"{url}/"):
        answer = httpx.post(address, json=DECIDE, headers={**ACCEPT, **KEY}, timeout=60)
        assert answer.status_code == 200, answer.text
        assert "probability" in answer.json()["result"]["structuredContent"]["answers"][0]


def test_a_stream_without_a_request_is_rejected(url: str) -> None:
    """It stayed open until the deadline, and its end was logged as a failure."""
    for method in ("GET", "DELETE"):
        answer = httpx.request(method, url, headers={"accept": "text/event-stream", **KEY})
        assert answer.status_code == 405 and answer.headers["allow"] == "POST"


def test_a_choice_has_as_many_options_as_the_server_allows(url: str) -> None:
    question = question_to(Choice("Which?", [f"option {i}" for i in range(256)]))
    body = call_of("decide", input=INPUT, questions=[question])
    answer = httpx.post(url, json=body, headers={**ACCEPT, **KEY}, timeout=60).json()
    assert "256 options, expected at most 255" in answer["result"]["content"][0]["text"]


def test_health_needs_no_key_and_metrics_count_calls(url: str) -> None:
    base = url.removesuffix("/mcp")
    for path in ("/health", "/healthz", "/readyz", "/livez"):
        assert httpx.get(base + path).json() == {"status": "ok"}
    assert httpx.get(f"{base}/metrics").status_code == 401

    def figures() -> dict[str, float]:
        text = httpx.get(f"{base}/metrics", headers=KEY).text
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    before = figures()
    httpx.post(url, json=DECIDE, headers={**ACCEPT, **KEY}, timeout=60)
    after = figures()
    for name in (
        'eliza_requests_total{code="200",endpoint="/mcp"}',
        'eliza_questions_total{type="predicate"}',
    ):
        assert after[name] == before.get(name, 0) + 1


class SlowModel:
    """A model whose decisions last until they are cancelled."""

    def __init__(self) -> None:
        self.session = SimpleNamespace(
            decisions_at_once=lambda _: 1, at_once=lambda _: 1, describe=dict, kind="decoder"
        )
        self.begun, self.n_cancelled = asyncio.Semaphore(0), 0

    async def decide(self, *_: Any, **__: Any) -> Any:
        self.begun.release()
        try:
            await asyncio.Event().wait()
        finally:
            self.n_cancelled += 1


def test_work_ends_when_the_client_leaves_and_the_queue_is_limited(library: Library) -> None:
    async def scene() -> None:
        model: Any = SlowModel()
        settings = ServeSettings("tiny", n_waiting=0)
        admission = Admission(2, 0)
        app: Any = make_mcp_app(model, settings, admission)
        starlette = app._app
        async with starlette.router.lifespan_context(starlette):
            calls = [Exchange(app, "/mcp", DECIDE, **ACCEPT) for _ in range(2)]
            for _ in calls:
                await model.begun.acquire()
            assert admission.n_running == 2
            full = Exchange(app, "/mcp", DECIDE, **ACCEPT)
            await full.task
            assert "the queue is full" in json.loads(full.text)["result"]["content"][0]["text"]
            for call in calls:
                call.leaves.set()
                await call.task
            assert model.n_cancelled == 2 and admission.is_empty

    asyncio.run(scene())
