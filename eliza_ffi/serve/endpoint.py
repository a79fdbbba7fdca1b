"""Endpoints that answer JSON requests: at once, or with a stream of server-sent events."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic_core import to_json
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ..async_model import AsyncModel
from ..errors import (
    BusyError,
    ContextFullError,
    ElizaError,
    FillError,
    InvalidAnswerError,
    InvalidArgumentError,
    ModelError,
    NoChatTemplateError,
    NotSupportedError,
)
from .admission import Admission
from .bodies import json_object, read_body
from .fields import Body, read_fields
from .metrics import CLIENT_GONE, ServeMetrics
from .patience import Deadline, while_wanted
from .refusals import FAILED, Refusal
from .settings import ServeSettings

__all__ = ["Endpoint", "EndpointApp", "Events", "Running", "Serving"]

B = TypeVar("B", bound=Body)

LONG_BODY = 2**15
"""Bodies of this many bytes or more are parsed in a thread, so as not to delay other requests."""


@dataclass(frozen=True)
class Serving:
    """The parts of a server that all endpoints share.

    Attributes
    ----------
    fingerprint : str
        The versions of llama.cpp and of this package.
    """

    model: AsyncModel
    settings: ServeSettings
    admission: Admission
    metrics: ServeMetrics
    fingerprint: str


@dataclass(frozen=True)
class Running(Serving):
    """One running request: what its handler needs besides the body.

    Attributes
    ----------
    waited : float
        The seconds that the request waited in the queue.
    """

    deadline: Deadline
    waited: float

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
class Events:
    """The answer of a handler that streams.

    Attributes
    ----------
    items : async generator of dict
        The JSON of each event.
    are_named : bool
        Whether each event is named after its field ``type`` and numbered, as in ``/v1/responses``.
        Otherwise the stream ends with ``[DONE]``, as in ``/v1/chat/completions``.
    """

    items: AsyncGenerator[dict[str, Any], None]
    are_named: bool = False

    def written(self, item: dict[str, Any], number: int) -> bytes:
        """Return the event with a number in the form of server-sent events."""
        if not self.are_named:
            return b"data: " + to_json(item) + b"\n\n"
        name = f"event: {item['type']}\n".encode()
        return name + b"data: " + to_json({**item, "sequence_number": number}) + b"\n\n"

    def error(self, refusal: Refusal) -> dict[str, Any]:
        """Return the event for an error."""
        body = refusal.body()
        return {**body["error"], "type": "error"} if self.are_named else body


@dataclass(frozen=True)
class Endpoint(Generic[B]):
    """A path that answers JSON requests.

    Attributes
    ----------
    kind : type
        The model of the request's body.
    answer : callable
        The handler. It returns the response's JSON or an `Events`.
    response : type
        The type of the response's JSON, for the OpenAPI document.
    summary : str
        What the endpoint does, for the OpenAPI document.
    input_name : str
        The field that the error names if the input does not fit into the context.
    decides : bool
        Whether the handler makes decisions, of which few run at the same time on a CPU.
    """

    path: str
    kind: type[B]
    answer: Callable[[B, Running], Awaitable[dict[str, Any] | Events]]
    response: Any
    summary: str
    input_name: str
    decides: bool = False


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
        sender = _Sender(scope, receive, send)
        try:
            body = await deadline.before_end(read_body(Request(scope, receive)))
            await while_wanted(self._respond(body, deadline, sender), receive, deadline)
        except ClientDisconnect:
            if not sender.has_begun:
                await sender.response(Response(status_code=CLIENT_GONE))
        except Exception as error:
            if sender.has_begun:
                await sender.end_with(error)
            if not (sender.has_begun and isinstance(error, Refusal)):
                raise  # a failure, which the guard logs

    async def _respond(self, body: bytes, deadline: Deadline, send: _Sender) -> None:
        """Wait for a place, run the handler, and send its answer."""
        endpoint, serving = self._endpoint, self._serving
        async with serving.admission.place(endpoint.decides) as waited:
            serving.metrics.count_wait(waited)
            try:
                request = await _read(endpoint.kind, body)
                running = Running(**vars(serving), deadline=deadline, waited=waited)
                answer = await endpoint.answer(request, running)
                if isinstance(answer, Events):
                    await send.stream(answer)
                    return
            except ElizaError as error:
                refusal = _refusal(error, deadline, endpoint.input_name)
                if refusal is None:
                    raise
                raise refusal from error
        await send.response(Response(to_json(answer), media_type="application/json"))


async def _read(kind: type[B], body: bytes) -> B:
    """Parse and check a body. A long body is parsed in another thread."""
    if len(body) < LONG_BODY:
        return read_fields(kind, json_object(body))
    return await asyncio.to_thread(lambda: read_fields(kind, json_object(body)))


def _refusal(error: ElizaError, deadline: Deadline, input_name: str) -> Refusal | None:
    """Return the response for an error; None = it is a failure of the server."""
    if isinstance(error, ContextFullError):
        if not deadline.left:  # it might have fitted once other requests freed the context
            return deadline.passed()
        return Refusal(400, str(error), "context_length_exceeded", input_name)
    if isinstance(error, InvalidAnswerError):
        return Refusal(422, str(error), "invalid_answer")
    if isinstance(error, FillError):
        return Refusal(422, str(error), "incomplete_answer", "max_tokens")
    if isinstance(error, NoChatTemplateError):  # its message has the name of the file
        message = f"{input_name}: the model has no chat template; use /v1/completions"
        return Refusal(400, message, "no_chat_template", input_name)
    if isinstance(error, InvalidArgumentError):
        return Refusal(400, str(error), "invalid_value")
    if isinstance(error, ModelError) and "cannot generate text" in str(error):
        return Refusal(501, "the model cannot generate text; use /v1/embeddings", "not_supported")
    if isinstance(error, NotSupportedError):
        return Refusal(501, str(error), "not_supported")
    return deadline.passed() if isinstance(error, BusyError) else None


class _Sender:
    """Sends the response of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._events: Events | None = None
        self._n_sent = 0

    @property
    def has_begun(self) -> bool:
        """Whether a stream has begun, so that no status can be sent any more."""
        return self._events is not None

    async def response(self, response: Response) -> None:
        await response(self._scope, self._receive, self._send)

    async def stream(self, events: Events) -> None:
        """Send events. The head is sent with the first one, so that earlier errors get a status."""
        async with aclosing(events.items) as items:
            async for item in items:
                if self._events is None:
                    headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
                    start = {"type": "http.response.start", "status": 200, "headers": headers}
                    await self._send(start)
                    self._events = events
                await self._part(events.written(item, self._n_sent))
                self._n_sent += 1
        await self._part(b"" if events.are_named else b"data: [DONE]\n\n", is_last=True)

    async def end_with(self, error: Exception) -> None:
        """End a stream with an event for an error."""
        assert self._events is not None
        if not isinstance(error, Refusal):
            error = Refusal(500, FAILED, "internal_error")
        event = self._events.written(self._events.error(error), self._n_sent)
        await self._part(event, is_last=True)

    async def _part(self, body: bytes, is_last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
