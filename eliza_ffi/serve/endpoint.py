"""Endpoints that answer JSON requests: at once, or with a stream of events or lines."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..async_model import AsyncModel
from ..errors import (
    BusyError,
    ContextFullError,
    ElizaError,
    InvalidAnswerError,
    InvalidArgumentError,
    NoChatTemplateError,
    NotSupportedError,
)
from .admission import Admission
from .bodies import json_object, read_body
from .fields import MAX_NAME_LENGTH, Body, read_fields
from .metrics import CLIENT_GONE, ServeMetrics
from .patience import Deadline, while_wanted
from .refusals import FAILED, Refusal, unfit
from .settings import ServeSettings

__all__ = [
    "Answer",
    "Endpoint",
    "EndpointApp",
    "Running",
    "Serving",
    "context_full",
    "refusal_for",
]

B = TypeVar("B", bound=Body)

Answer: TypeAlias = "dict[str, Any] | AsyncGenerator[dict[str, Any], None]"
"""The answer of a handler: the JSON of a response, or of each event of a stream."""

LONG_BODY = 2**15
"""Bodies of this many bytes or more are parsed in a thread, so as not to delay other requests."""

FIRST_EVENT_SECONDS = 0.5
"""A stream waits this long for its first event before it sends the head, so that an error of the
library still gets its own status."""

MOST_IGNORED = 20
"""The maximum number of names in the header ``x-ignored-fields``."""

COMMENT_SECONDS = 15.0
"""The time after which a silent stream sends a comment. Many proxies close a connection that is
silent for a minute."""


@dataclass(frozen=True)
class Serving:
    """The parts of a server that all endpoints share.

    Attributes
    ----------
    fingerprint : str
        The versions of llama.cpp and of this package.
    generates : bool
        Whether the model can generate text; False = it can only compute embeddings.
    n_ctx : callable
        Returns the length of the context in tokens; 0 = not known before the first request.
    """

    model: AsyncModel
    settings: ServeSettings
    admission: Admission
    metrics: ServeMetrics
    fingerprint: str
    generates: bool
    n_ctx: Callable[[], int]


@dataclass(frozen=True)
class Running(Serving):
    """One running request: what its handler needs besides the body.

    Attributes
    ----------
    waited : float
        The seconds that the request waited in the queue.
    input_name : str
        As in `Endpoint`.
    """

    deadline: Deadline
    waited: float
    input_name: str

    def head(self, prefix: str, kind: str) -> dict[str, Any]:
        """Return the fields at the beginning of a completion or of its chunks.

        Parameters
        ----------
        prefix
            The beginning of the id.
        kind
            The value of the field ``object``.
        """
        return {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self.settings.name,
            "system_fingerprint": self.fingerprint,
        }


@dataclass(frozen=True)
class Endpoint(Generic[B]):
    """A path that answers JSON requests.

    Attributes
    ----------
    kind : type
        The model of the request's body.
    answer : callable
        The handler. Before it returns a stream, it finds all errors that it can find without the
        model, because they get a status of their own only before the stream begins.
    response : type
        The type of the response's JSON, for the OpenAPI document.
    summary : str
        What the endpoint does, for the OpenAPI document.
    input_name : str
        The field that the error names if the input does not fit into the context.
    decides : bool
        Whether the handler makes decisions, of which few run at the same time on a CPU.
    embeds : bool
        Whether the endpoint needs only embeddings.
    named_events : bool
        Whether each event of a stream is named after its field ``type`` and numbered, as in
        ``/v1/responses``. Otherwise the stream ends with ``[DONE]``, as in
        ``/v1/chat/completions``.
    lines : bool
        Whether a stream consists of JSON Lines, not of server-sent events.
    """

    path: str
    kind: type[B]
    answer: Callable[[B, Running], Awaitable[Answer]]
    response: Any
    summary: str
    input_name: str
    decides: bool = False
    embeds: bool = False
    named_events: bool = False
    lines: bool = False


class EndpointApp:
    """The ASGI application of an endpoint.

    This is a class because Starlette calls an object as an ASGI application, but would pass a
    request to a function.
    """

    def __init__(self, endpoint: Endpoint[Any], serving: Serving) -> None:
        self._endpoint = endpoint
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        deadline = Deadline(self._serving.settings.deadline)
        sender = _Sender(scope, receive, send, self._endpoint)
        try:
            if not (self._serving.generates or self._endpoint.embeds):
                message = "the model cannot generate text; use /v1/embeddings"
                raise Refusal(501, message, "not_supported")
            body = await deadline.before_end(read_body(Request(scope, receive)))
            async with sender.with_comments(partial(self._streams, body)):
                await while_wanted(self._respond(body, deadline, sender), receive, deadline)
        except ClientDisconnect:
            if not sender.has_begun:
                await sender.response(Response(status_code=CLIENT_GONE))
        except Exception as error:
            if sender.has_begun:
                await sender.end_with(error)
            if not (sender.has_begun and isinstance(error, Refusal)):
                raise  # a failure, which the guard logs

    async def _streams(self, body: bytes) -> bool:
        """Return whether the answer to a request will be a stream."""
        if "stream" not in self._endpoint.kind.model_fields:
            return False
        try:
            request = await _read(self._endpoint.kind, body)
        except Refusal:  # _respond will raise it, too
            return False
        return bool(request.stream)

    async def _respond(self, body: bytes, deadline: Deadline, send: _Sender) -> None:
        """Wait for a place, run the handler, and send its answer."""
        endpoint, serving = self._endpoint, self._serving
        async with serving.admission.place(endpoint.decides) as waited:
            serving.metrics.count_wait(waited)
            running = Running(
                **vars(serving), deadline=deadline, waited=waited, input_name=endpoint.input_name
            )
            try:
                request = await _read(endpoint.kind, body)
                answer = await endpoint.answer(request, running)
                if not isinstance(answer, dict):
                    await send.stream(answer)
                    return
            except ElizaError as error:
                refusal = refusal_for(error, running)
                if refusal is None:
                    raise
                raise refusal from error
        headers = _ignored(request)
        await send.response(Response(to_json(answer), 200, headers, "application/json"))


async def _read(kind: type[B], body: bytes) -> B:
    """Parse and check a body. A long body is parsed in another thread."""
    if len(body) < LONG_BODY:
        return read_fields(kind, json_object(body))
    return await asyncio.to_thread(lambda: read_fields(kind, json_object(body)))


def _ignored(request: Body) -> dict[str, str]:
    """Return the header that names the fields of a request that have no effect."""
    first = islice(request.model_extra or (), MOST_IGNORED)
    names = ", ".join(quote(name[:MAX_NAME_LENGTH]) for name in first)
    return {"x-ignored-fields": names} if names else {}


def refusal_for(error: ElizaError, running: Running) -> Refusal | None:
    """Return the response for an error; None = it is a failure of the server."""
    deadline, input_name = running.deadline, running.input_name
    if isinstance(error, ContextFullError):
        if not deadline.left:  # it might have fitted once other requests freed the context
            return deadline.passed()
        return context_full(running, "the request does not fit")
    if isinstance(error, InvalidAnswerError):
        return Refusal(422, str(error), "invalid_answer")
    if isinstance(error, NoChatTemplateError):  # its message has the name of the file
        message = f"{input_name}: the model has no chat template; use /v1/completions"
        return Refusal(400, message, "no_chat_template", input_name)
    if isinstance(error, InvalidArgumentError):
        if error.argument in ("input", "messages", "prompt"):
            return unfit(input_name, str(error))
        return Refusal(400, str(error), "invalid_value")
    if isinstance(error, NotSupportedError):
        return Refusal(501, str(error), "not_supported")
    return deadline.passed() if isinstance(error, BusyError) else None


def context_full(running: Running, problem: str) -> Refusal:
    """Return the error for a request that needs more tokens than the context has."""
    n_ctx = running.n_ctx()
    context = f"the context of {n_ctx} tokens" if n_ctx else "the context"
    name = running.input_name
    return Refusal(400, f"{name}: {problem} {context}", "context_length_exceeded", name)


class _Sender:
    """Sends the response of one request.

    Attributes
    ----------
    has_begun : bool
        Whether a stream has begun, so that no status can be sent any more.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send, endpoint: Endpoint[Any]) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._named_events, self._lines = endpoint.named_events, endpoint.lines
        self._n_sent = 0
        self._beginning = asyncio.Lock()
        self._last_time = time.monotonic()
        self.has_begun = False

    async def response(self, response: Response) -> None:
        await response(self._scope, self._receive, self._send)

    @asynccontextmanager
    async def with_comments(self, streams: Callable[[], Awaitable[bool]]) -> AsyncIterator[None]:
        """Send comments while a stream is silent.

        The first comment begins the stream if it has not begun, for example because the request
        waits in the queue. `streams` returns whether the response will be a stream.
        """
        commenting = asyncio.ensure_future(self._comment(streams))
        try:
            yield
        finally:
            commenting.cancel()
            await asyncio.wait((commenting,))
            if not commenting.cancelled():
                commenting.exception()  # retrieved, so that asyncio does not log it

    async def _comment(self, streams: Callable[[], Awaitable[bool]]) -> None:
        while not self._lines:  # JSON Lines have no comments
            due = self._last_time + COMMENT_SECONDS - time.monotonic()
            if due > 0:
                await asyncio.sleep(due)
                continue
            if not self.has_begun and not await streams():
                return
            await self._begin()
            await self._part(b": waiting\n\n")

    async def stream(self, events: AsyncGenerator[dict[str, Any], None]) -> None:
        """Send events; the head is sent before the first event if that does not come soon."""
        async with aclosing(events):
            first = asyncio.ensure_future(anext(events, None))
            try:
                await asyncio.wait((first,), timeout=FIRST_EVENT_SECONDS)
                if not first.done():
                    await self._begin()
                event = await first
            finally:
                first.cancel()
                await asyncio.wait((first,))  # before the events are closed
            await self._begin()
            if event is not None:
                await self._event(event)
            async for event in events:
                await self._event(event)
        has_done = not (self._named_events or self._lines)
        await self._part(b"data: [DONE]\n\n" if has_done else b"", is_last=True)

    async def end_with(self, error: Exception) -> None:
        """End a stream with an event for an error."""
        if not isinstance(error, Refusal):
            error = Refusal(500, FAILED, "internal_error")
        body = error.body()
        await self._event({**body["error"], "type": "error"} if self._named_events else body)
        await self._part(b"", is_last=True)

    async def _begin(self) -> None:
        """Send the head, unless it was sent."""
        async with self._beginning:
            if not self.has_begun:
                self.has_begun = True
                kind = b"application/jsonl" if self._lines else b"text/event-stream; charset=utf-8"
                headers = [(b"content-type", kind)]
                start = {"type": "http.response.start", "status": 200, "headers": headers}
                await self._send(start)

    async def _event(self, event: dict[str, Any]) -> None:
        """Send an event as a server-sent event, or as a line."""
        if self._lines:
            part = to_json(event) + b"\n"
        elif self._named_events:
            name = f"event: {event['type']}\n".encode()
            part = name + b"data: " + to_json({**event, "sequence_number": self._n_sent}) + b"\n\n"
        else:
            part = b"data: " + to_json(event) + b"\n\n"
        self._n_sent += 1
        await self._part(part)

    async def _part(self, body: bytes, is_last: bool = False) -> None:
        self._last_time = time.monotonic()
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
