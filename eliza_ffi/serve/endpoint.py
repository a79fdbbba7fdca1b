"""Endpoints that answer JSON requests: at once, or with a stream of events or lines."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
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
from .deadline import Deadline, cancelled, while_wanted
from .http_error import HTTPError, failure, invalid
from .metrics import CLIENT_GONE, ServeMetrics
from .request_body import MAX_NAME_LENGTH, Body, json_object, read_body, read_fields
from .settings import ServeSettings

B = TypeVar("B", bound=Body)

HandlerResult: TypeAlias = "dict[str, Any] | AsyncGenerator[dict[str, Any], None]"
"""What a handler returns: the JSON of a response, or of each event of a stream."""

LONG_BODY = 2**15  # bytes; longer bodies are parsed in a thread, so as not to delay other requests
MOST_IGNORED = 20  # names in the header x-ignored-fields

FIRST_EVENT_SECONDS = 0.5
"""A stream waits this long for its first event before it sends the head, so that an error of the
library still gets its own status."""

COMMENT_SECONDS = 15.0
"""The time after which a silent stream sends a comment. Many proxies close a connection that is
silent for a minute."""


@dataclass(frozen=True)
class ServerState:
    """The parts of a server that all endpoints share."""

    model: AsyncModel
    settings: ServeSettings
    admission: Admission
    metrics: ServeMetrics
    fingerprint: str  # the versions of llama.cpp and of this package
    generates: bool  # False = the model can only compute embeddings
    n_ctx: Callable[[], int]  # the length of the context; 0 = not known before the first request


@dataclass(frozen=True)
class RequestContext(ServerState):
    """One running request: what its handler needs besides the body."""

    deadline: Deadline
    waited: float  # seconds in the queue
    input_name: str  # as in `Endpoint`

    def head(self, prefix: str, kind: str) -> dict[str, Any]:
        return {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": kind,
            "created": int(time.time()),
            "model": self.settings.name,
            "system_fingerprint": self.fingerprint,
        }

    def http_error(self, error: ElizaError) -> HTTPError | None:
        """Return the response for an error of the model; None = it is a failure of the server."""
        if isinstance(error, ContextFullError):
            if not self.deadline.left:  # it might have fitted once other requests freed the context
                return self.deadline.passed()
            return self.context_full("the request does not fit")
        if isinstance(error, InvalidAnswerError):
            return HTTPError(422, str(error), "invalid_answer")
        if isinstance(error, NoChatTemplateError):  # its message has the name of the file
            message = f"{self.input_name}: the model has no chat template; use /v1/completions"
            return HTTPError(400, message, "no_chat_template", self.input_name)
        if isinstance(error, InvalidArgumentError):
            if error.argument in ("input", "messages", "prompt"):
                return invalid(self.input_name, str(error))
            return HTTPError(400, str(error), "invalid_value")
        if isinstance(error, NotSupportedError):
            return HTTPError(501, str(error), "not_supported")
        return self.deadline.passed() if isinstance(error, BusyError) else None

    def context_full(self, problem: str) -> HTTPError:
        """Return the error for a request that needs more tokens than the context has."""
        name, n_ctx = self.input_name, self.n_ctx()
        context = f"the context of {n_ctx} tokens" if n_ctx else "the context"
        return HTTPError(400, f"{name}: {problem} {context}", "context_length_exceeded", name)


@dataclass(frozen=True)
class Endpoint(Generic[B]):
    """A path that answers JSON requests.

    Before the handler returns a stream, it finds all errors that it can find without the model,
    because they get a status of their own only before the stream begins. Each event of a stream is
    named after its field ``type`` and numbered, as in ``/v1/responses``, or the stream ends with
    ``[DONE]``, as in ``/v1/chat/completions``, or it consists of JSON Lines.
    """

    path: str
    kind: type[B]  # of the request's body
    answer: Callable[[B, RequestContext], Awaitable[HandlerResult]]
    response: Any  # the type of the response's JSON, for the OpenAPI document
    summary: str
    input_name: str  # the field that the error names if the input does not fit into the context
    decides: bool = False  # a CPU runs few decisions at the same time
    embeds: bool = False  # needs only embeddings
    named_events: bool = False
    lines: bool = False

    @property
    def can_stream(self) -> bool:
        """Whether requests can ask for a stream."""
        return "stream" in self.kind.model_fields


class EndpointApp:
    """The ASGI application of an endpoint. Starlette would not treat a function as one."""

    def __init__(self, endpoint: Endpoint[Any], state: ServerState) -> None:
        self._endpoint = endpoint
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        deadline = Deadline(self._state.settings.deadline)
        sender = _Sender(scope, receive, send, self._endpoint)
        try:
            # A set with a head needs only embeddings. Other decisions raise an error later.
            needs_text = not (self._endpoint.embeds or self._endpoint.decides)
            if needs_text and not self._state.generates:
                message = "the model cannot generate text; use /v1/embeddings"
                raise HTTPError(501, message, "not_supported")
            body = await deadline.before_end(read_body(Request(scope, receive)))
            idle = partial(sender.comment, partial(self._streams, body))
            await while_wanted(self._respond(body, deadline, sender), receive, deadline, idle)
        except ClientDisconnect:
            if not sender.has_begun:
                await sender.response(Response(status_code=CLIENT_GONE))
        except Exception as error:
            if sender.has_begun:
                await sender.end_with(error)
            if not (sender.has_begun and isinstance(error, HTTPError)):
                raise  # a failure, which the guard logs

    async def _streams(self, body: bytes) -> bool:
        """Return whether the answer to a request will be a stream that can have comments."""
        if not self._endpoint.can_stream:
            return False
        try:
            request = await _read(self._endpoint.kind, body)
        except HTTPError:  # _respond will raise it, too
            return False
        return bool(request.stream)

    async def _respond(self, body: bytes, deadline: Deadline, sender: _Sender) -> None:
        """Wait in the queue, run the handler, and send its answer."""
        endpoint, state = self._endpoint, self._state
        async with state.admission.place(endpoint.decides) as waited:
            state.metrics.count_wait(waited)
            context = RequestContext(
                **vars(state), deadline=deadline, waited=waited, input_name=endpoint.input_name
            )
            try:
                # Not before, because a waiting body takes less memory than its fields.
                request = await _read(endpoint.kind, body)
                answer = await endpoint.answer(request, context)
                if not isinstance(answer, dict):
                    await sender.stream(answer)
                    return
            except ElizaError as error:
                http_error = context.http_error(error)
                if http_error is None:
                    raise
                raise http_error from error
        headers = _ignored(request)
        await sender.response(Response(to_json(answer), 200, headers, "application/json"))


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


class _Sender:
    """Sends the response of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, endpoint: Endpoint[Any]) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._named_events, self._lines = endpoint.named_events, endpoint.lines
        self._n_sent = 0
        self._beginning = asyncio.Lock()
        self._last_time = time.monotonic()
        self.has_begun = False  # the head of a stream was sent, so no other status can be sent

    async def response(self, response: Response) -> None:
        await response(self._scope, self._receive, self._send)

    async def comment(self, streams: Callable[[], Awaitable[bool]]) -> float:
        """Send a comment if a stream has been silent; return the seconds until the next one.

        The first comment begins the stream if it has not begun, for example because the request
        waits in the queue. `streams` returns whether the response will be a stream.
        """
        left = self._last_time + COMMENT_SECONDS - time.monotonic()
        if left > 0:
            return left
        if self._lines or not (self.has_begun or await streams()):  # JSON Lines have no comments
            return math.inf
        await self._part(b": waiting\n\n")
        return COMMENT_SECONDS

    async def stream(self, events: AsyncGenerator[dict[str, Any], None]) -> None:
        """Send events; the head is sent before the first event if that does not come soon."""
        beginning = asyncio.ensure_future(self._begin(FIRST_EVENT_SECONDS))
        try:
            async with aclosing(events):
                async for event in events:
                    await self._event(event)
        finally:
            await cancelled(beginning)
        has_done = not (self._named_events or self._lines)
        await self._part(b"data: [DONE]\n\n" if has_done else b"", is_last=True)

    async def end_with(self, error: Exception) -> None:
        """End a stream with an event for an error."""
        body = (error if isinstance(error, HTTPError) else failure()).body()
        await self._event({**body["error"], "type": "error"} if self._named_events else body)
        await self._part(b"", is_last=True)

    async def _begin(self, seconds: float = 0.0) -> None:
        """Wait, and send the head, unless it was sent."""
        await asyncio.sleep(seconds)
        async with self._beginning:
            if not self.has_begun:
                kind = b"application/jsonl" if self._lines else b"text/event-stream; charset=utf-8"
                headers = [(b"content-type", kind)]
                start = {"type": "http.response.start", "status": 200, "headers": headers}
                await self._send(start)
                self.has_begun = True

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
        if not self.has_begun:
            await self._begin()
        self._last_time = time.monotonic()
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
