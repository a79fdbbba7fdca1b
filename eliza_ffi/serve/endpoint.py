"""An endpoint that answers a JSON request: at once, or with a stream of server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic_core import to_json
from starlette.requests import Request
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
    NotSupportedError,
)
from .admission import Admission
from .bodies import json_object, read_body
from .fields import Body, read_fields
from .metrics import CLIENT_GONE, ServeMetrics
from .patience import ClientGone, Deadline, while_wanted
from .refusals import Refusal
from .settings import ServeSettings

__all__ = ["Endpoint", "Events", "Running", "Serving"]

B = TypeVar("B", bound=Body)

LONG_BODY = 2**15
"""Bodies of this many bytes or more are parsed in a thread, so as not to delay other requests."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Serving:
    """The parts of a server that all endpoints share.

    Attributes
    ----------
    model : AsyncModel
    settings : ServeSettings
    admission : Admission
    metrics : ServeMetrics
    started : int
        The time of the start, in seconds since 1970.
    fingerprint : str
        The versions of llama.cpp and of this package.
    """

    model: AsyncModel
    settings: ServeSettings
    admission: Admission
    metrics: ServeMetrics
    started: int
    fingerprint: str


@dataclass(frozen=True)
class Running(Serving):
    """One running request: what its handler needs besides the body.

    Attributes
    ----------
    deadline : Deadline
    waited : float
        The seconds that the request waited in the queue.
    """

    deadline: Deadline
    waited: float


@dataclass(frozen=True)
class Events:
    """The answer of a handler that streams.

    Attributes
    ----------
    items : async generator of dict
        The JSON of each event.
    are_named : bool
        Whether each event is named after its field ``type``, as in ``/v1/responses``. Otherwise the
        stream ends with ``[DONE]``, as in ``/v1/chat/completions``.
    """

    items: AsyncGenerator[dict[str, Any], None]
    are_named: bool = False

    def written(self, item: dict[str, Any]) -> bytes:
        """Return an event in the form of server-sent events."""
        name = b"event: " + item["type"].encode() + b"\n" if self.are_named else b""
        return name + b"data: " + to_json(item) + b"\n\n"

    def error(self, refusal: Refusal, n_sent: int) -> dict[str, Any]:
        """Return the event for an error after `n_sent` other events."""
        if self.are_named:
            details = refusal.body()["error"]
            return {**details, "type": "error", "sequence_number": n_sent}
        return refusal.body()


class Endpoint(Generic[B]):
    """The ASGI application of one path.

    Parameters
    ----------
    path
    kind
        The model of the request's body.
    answer
        The handler. It returns the response's JSON or an `Events`.
    response
        The type of the response's JSON, for the OpenAPI document.
    summary
        What the endpoint does, for the OpenAPI document.
    input_name
        The field that the error names if the input does not fit into the context.
    decides
        Whether the handler makes decisions, of which few run at the same time on a CPU.
    """

    def __init__(
        self,
        path: str,
        kind: type[B],
        answer: Callable[[B, Running], Awaitable[dict[str, Any] | Events]],
        response: Any,
        *,
        summary: str,
        input_name: str,
        decides: bool = False,
    ) -> None:
        self.path = path
        self.kind = kind
        self.response = response
        self.summary = summary
        self._answer = answer
        self._input_name = input_name
        self._decides = decides

    def on(self, serving: Serving) -> _Bound:
        """Return the ASGI application for a server."""
        return _Bound(self, serving)

    async def respond(
        self, serving: Serving, body: bytes, deadline: Deadline, send: _Sender
    ) -> None:
        """Wait for a place, run the handler, and send its answer."""
        async with serving.admission.place(self._decides) as waited:
            serving.metrics.count_wait(waited)
            try:
                request = await self._read(body)
                running = Running(**vars(serving), deadline=deadline, waited=waited)
                answer = await self._answer(request, running)
                if isinstance(answer, Events):
                    await send.stream(answer)
                    return
            except ElizaError as error:
                refusal = self._refusal(error, deadline)
                if refusal is None:
                    raise
                raise refusal from error
        await send.response(Response(to_json(answer), media_type="application/json"))

    async def _read(self, body: bytes) -> B:
        """Parse and check a body. A long body is parsed in another thread."""
        if len(body) < LONG_BODY:
            return read_fields(self.kind, json_object(body))
        return await asyncio.to_thread(lambda: read_fields(self.kind, json_object(body)))

    def _refusal(self, error: ElizaError, deadline: Deadline) -> Refusal | None:
        """Return the response for an error; None = it is a failure of the server."""
        if isinstance(error, ContextFullError):
            if not deadline.left:  # it might have fitted once other requests freed the context
                return deadline.passed()
            return Refusal(400, str(error), "context_length_exceeded", self._input_name)
        if isinstance(error, InvalidAnswerError):
            return Refusal(422, str(error), "invalid_answer")
        if isinstance(error, FillError):
            return Refusal(422, str(error), "incomplete_answer", "max_tokens")
        if isinstance(error, InvalidArgumentError):
            return Refusal(400, str(error), "invalid_value")
        if isinstance(error, NotSupportedError):
            return Refusal(501, str(error), "not_supported")
        if isinstance(error, BusyError):
            return deadline.passed()
        return None


class _Bound:
    """An endpoint of one server.

    This is a class because Starlette calls an object as an ASGI application, but would pass a
    request to a function.
    """

    def __init__(self, endpoint: Endpoint[Any], serving: Serving) -> None:
        self._endpoint = endpoint
        self._serving = serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        deadline = Deadline(self._serving.settings.deadline)
        sender = _Sender(scope, receive, send)
        try:
            body = await read_body(request, deadline)
            work = self._endpoint.respond(self._serving, body, deadline, sender)
            await while_wanted(work, receive, deadline)
        except ClientGone:
            if not sender.has_begun:
                await sender.response(Response(status_code=CLIENT_GONE))
        except Exception as error:
            if not sender.has_begun:
                raise
            await sender.end_with(error)


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
                    await self._begin()
                    self._events = events
                await self._part(events.written(item))
                self._n_sent += 1
        await self._part(b"" if events.are_named else b"data: [DONE]\n\n", is_last=True)

    async def end_with(self, error: Exception) -> None:
        """End a stream with an event for an error."""
        assert self._events is not None
        if not isinstance(error, Refusal):
            logger.error("a stream failed", exc_info=error)
            message = "the server failed; its log has the details"
            error = Refusal(500, message, "internal_error")
        event = self._events.error(error, self._n_sent)
        await self._part(self._events.written(event), is_last=True)

    async def _begin(self) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _part(self, body: bytes, is_last: bool = False) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})
