"""Run a server with the embedded model in its own process, and build requests for it."""

from __future__ import annotations

import asyncio
import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import jsonschema
import pydantic
from checkout import ROOT

DECISIONS, SYSTEMONE = "/v1/decisions", "/v1/systemone"

KEYS = ("first-key-of-the-tests", "second-key-of-the-tests")
ORIGIN = "https://pages.example"

ROUNDING = 0.03
"""How much a probability may change if other requests share the forward pass.

The value is large because the model's weights have few bits.
"""

START_SECONDS = 120.0

DEFAULTS = ("--threads", "1")
"""Options of every server. Other tests use the other cores, so more threads would wait for them."""


class Order(pydantic.BaseModel):
    """What a customer wants."""

    model_config = pydantic.ConfigDict(extra="forbid")
    item: Literal["tea", "coffee", "water"]
    count: int = pydantic.Field(ge=1, le=9)


class Served:
    """A running server with options of ``eliza-ffi serve``, which override `DEFAULTS`.

    `n_files` is its limit of open files; None = the limit of the tests.
    """

    def __init__(self, *options: str, n_files: int | None = None) -> None:
        command = [sys.executable, "-m", "eliza_ffi", "serve", "--port", "0", *DEFAULTS, *options]
        if n_files is not None:
            command = ["sh", "-c", f'ulimit -n {n_files}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.said: queue.Queue[str] = queue.Queue()
        self._log: list[str] = []
        # Both pipes are read all the time, because a full pipe would block the server.
        self._reading = threading.Thread(target=self._read_log, daemon=True)
        self._reading.start()
        threading.Thread(target=self._read, daemon=True).start()
        try:
            first = self.said.get(timeout=START_SECONDS)
        except queue.Empty:
            self.process.kill()
            raise
        assert " is served at http://" in first, first
        self.url = first.split()[-1].rstrip("/")

    def client(self, **more: Any) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=120, **more)

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port on which the server listens."""
        url = httpx.URL(self.url)
        assert url.port is not None
        return url.host, url.port

    def figures(self) -> dict[str, float]:
        """Return the values of ``/metrics``, by name and labels."""
        text = httpx.get(f"{self.url}/metrics", timeout=60).text
        lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in lines}

    def wait_for(self, name: str, least: float, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while self.figures().get(name, 0.0) < least:
            assert time.monotonic() < end, f"{name} is below {least} after {seconds} s"
            time.sleep(0.02)

    def wait_until_idle(self, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while any(value for name, value in self.figures().items() if "queue_requests" in name):
            assert time.monotonic() < end, f"the server is not idle after {seconds} s"
            time.sleep(0.02)

    def logged(self) -> str:
        """Wait until the server has ended, and return its standard error output."""
        self._reading.join()
        return "".join(self._log)

    def stop(self, sig: signal.Signals = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(60)

    def n_files(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        self._log.extend(self.process.stderr)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.put(line)
        self.said.put(f"the server ended: {self.logged()}")


@contextmanager
def served(*options: str, **more: Any) -> Iterator[Served]:
    """Run a server inside a ``with`` block; see :class:`Served` for the arguments."""
    server = Served(*options, **more)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()


def ask(
    app: Any, *requests: tuple[str, str, Any], headers: dict[str, str] | None = None
) -> list[httpx.Response]:
    async def scene() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        url = "http://127.0.0.1"
        async with httpx.AsyncClient(transport=transport, base_url=url, headers=headers) as client:
            return [await client.request(how, path, json=body) for how, path, body in requests]

    return asyncio.run(scene())


class Exchange:
    """One request to an application; `sent` has the messages of its response so far.

    The client stays until `leaves` is set.
    """

    def __init__(self, app: Any, path: str, body: Any, **headers: str) -> None:
        self.sent: list[dict[str, Any]] = []
        self.leaves = asyncio.Event()
        self._parts = [json.dumps(body).encode()]
        given = {"host": "localhost", **headers}
        scope = {"type": "http", "method": "POST", "path": path, "query_string": b""}
        scope["headers"] = [(name.encode(), value.encode()) for name, value in given.items()]
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if self._parts:
            return {"type": "http.request", "body": self._parts.pop(), "more_body": False}
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)

    async def until(self, is_done: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not is_done():
                await asyncio.sleep(0.01)

        await asyncio.wait_for(wait(), 60)

    @property
    def text(self) -> str:
        return b"".join(each.get("body", b"") for each in self.sent).decode()


def events_of(text: str) -> list[dict[str, Any]]:
    """Return the JSON of the events of a stream."""
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


def joined(chunks: list[dict[str, Any]], name: str = "content") -> str:
    """Return what the deltas of a chat's stream write into a field of the message."""
    return "".join(each["choices"][0]["delta"].get(name) or "" for each in chunks)


def check_documented(answer: httpx.Response, document: dict[str, Any], path: str) -> None:
    """Check that an OpenAPI document describes a response: its status, media type and fields."""
    method = answer.request.method.lower()
    responses = document["paths"][path][method]["responses"]
    status = str(answer.status_code)
    assert status in responses, f"{method} {path} was answered with {status}: {answer.text}"
    response = responses[status]
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
    media_type = answer.headers["content-type"].partition(";")[0]
    schema = response["content"][media_type]["schema"]
    value = answer.json() if media_type == "application/json" else answer.text
    jsonschema.Draft202012Validator(closed(schema)).validate(value)


def closed(schema: Any) -> Any:
    """Return a schema that allows only the fields it lists."""
    if not isinstance(schema, dict):
        return [*map(closed, schema)] if isinstance(schema, list) else schema
    own = {"additionalProperties": False} if schema.get("properties") and "type" in schema else {}
    return {**own, **{name: closed(value) for name, value in schema.items()}}


def rejected(answer: httpx.Response, status: int = 400) -> dict[str, Any]:
    """Return the error of a response, after checking that it has OpenAI's format.

    Errors of ``/v1/systemone`` also have the format of its specification, and those of answers that
    break their limit have the answer's text and usage.
    """
    is_systemone = answer.request.url.path == SYSTEMONE
    assert answer.status_code == (422 if is_systemone and status == 400 else status), answer.text
    assert answer.json().keys() == ({"error", "detail"} if is_systemone else {"error"})
    error: dict[str, Any] = answer.json()["error"]
    is_answer = error["code"] in ("incomplete_answer", "invalid_answer")
    more = {"partial_text", "usage"} if is_answer else set()
    assert error.keys() == {"message", "type", "param", "code", *more}
    assert error["message"] and error["code"]
    return error


def choice(*values: str | bool, name: str | None = None) -> dict[str, Any]:
    question = {
        "type": "choice",
        "instructions": "Which team should read this?",
        "choices": [{"value": value} for value in values],
    }
    return question if name is None else {**question, "name": name}


def decisions_body(given: Any = "I was charged twice!", *questions: Any) -> dict[str, Any]:
    asked = list(questions) or [choice("billing", "support", "sales", name="team")]
    return {"model": "any", "input": given, "questions": asked}


def slow_body(n_questions: int = 12) -> dict[str, Any]:
    """Return the body of a slow request, which takes about half a second per question."""
    options = [f"option {i}" for i in range(255)]
    questions = [
        {**choice(*options), "instructions": f"Which of these, question {i}?"}
        for i in range(n_questions)
    ]
    return decisions_body("Choose.", *questions)
