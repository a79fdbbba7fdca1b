"""Count the Python calls inside the package and the library calls of one request of each kind.

    python -m bench.calls

The embedded model answers each request a few times before it is counted, so that what is computed
once per process does not count. A generator counts each time it goes on. The calls of all threads
count. A served request is passed to the application in this process, without a connection.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import httpx

import eliza_ffi
from eliza_ffi import AsyncModel, Choice, Model
from eliza_ffi.serve.app import make_app
from eliza_ffi.serve.settings import ServeSettings

PACKAGE = str(Path(eliza_ffi.__file__).parent)
REPEATS = 3

TICKET = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["bug", "wish"]},
        "urgent": {"type": "boolean"},
        "team": {"enum": ["billing", "login", "delivery"]},
        "note": {"type": "string", "maxLength": 12},
        "stars": {"type": "integer", "minimum": 1, "maximum": 5},
    },
    "required": ["kind", "urgent", "team", "note", "stars"],
    "additionalProperties": False,
}
QUESTIONS = {
    "kind": Choice("What is it?", ["bug", "wish"]),
    "team": Choice("Who answers it?", ["billing", "login", "delivery"]),
}
MESSAGES = [{"role": "user", "content": "Close the window."}]


def tool(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {"where": {"enum": ["here", "there"]}}}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def requests(model: Model) -> dict[str, Callable[[], Any]]:
    """Return the requests by their names."""
    post = served(model)
    chat: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 8, "seed": 1}
    tools: dict[str, Any] = {"tools": [tool("close"), tool("open")], "tool_choice": "required"}
    tools["parallel_tool_calls"] = False
    return {
        "choose between two labels": lambda: model.choose("Open?", ["yes", "no"]),
        "decide two questions": lambda: model.decide("It crashes.", QUESTIONS),
        "fill five fields": lambda: model.fill("A ticket: ", TICKET),
        "call one of two tools": lambda: model.call_tool(
            MESSAGES, [tool("close"), tool("open")], "required"
        ),
        "generate eight tokens": lambda: model.generate("Once", 8),
        "served chat": post("/v1/chat/completions", chat),
        "served streamed chat": post("/v1/chat/completions", {**chat, "stream": True}),
        "served tool call": post("/v1/chat/completions", {"messages": MESSAGES, **tools}),
    }


class CountingLibrary:
    """The functions of the library, which count their calls."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.n_calls = 0

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self._library, name)

        def call(*arguments: Any) -> Any:
            self.n_calls += 1
            return function(*arguments)

        return call


def served(model: Model) -> Callable[[str, dict[str, Any]], Callable[[], Any]]:
    """Return a function that makes a request to a server of the model."""
    app = make_app(AsyncModel.of(model), ServeSettings("embedded"))
    loop = asyncio.new_event_loop()
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")

    def request(path: str, body: dict[str, Any]) -> Callable[[], Any]:
        def send() -> None:
            loop.run_until_complete(client.post(path, json=body)).raise_for_status()

        return send

    return request


class PythonCalls:
    """Counts the calls of functions of the package in all threads that start later."""

    def __init__(self) -> None:
        self._n_calls = 0
        threading.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        self._n_calls += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    def of(self, request: Callable[[], Any]) -> int:
        """Return how many Python calls inside the package a request makes."""
        self._n_calls = 0
        sys.setprofile(self._note)
        try:
            request()
        finally:
            sys.setprofile(None)
        return self._n_calls


def main() -> None:
    calls = PythonCalls()
    with Model(n_threads=1) as model:
        binding = model.session.binding
        library = CountingLibrary(binding._lib)
        for name, request in requests(model).items():
            for _ in range(REPEATS):
                request()
            n_python = calls.of(request)
            kept, library.n_calls = binding._lib, 0
            binding._lib = binding.library.lib = library
            binding._functions.clear()
            request()
            binding._lib = binding.library.lib = kept
            binding._functions.clear()
            print(f"{name:28}{n_python:6,} Python calls{library.n_calls:5} library calls")


if __name__ == "__main__":
    main()
