"""Endpoints that answer JSON requests: at once, or with a stream of events or lines."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar
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
from .admission import Admission, Place
from .deadline import Deadline, cancelled, while_wanted
from .http_error import HTTPError, failure, invalid
from .metrics import ServeMetrics
from .record import CLIENT_GONE, RequestRecord, record_of
from .request_body import MAX_NAME_LENGTH, Body, json_object, read_body, read_fields
from .settings import QuestionSet, ServeSettings

if TYPE_CHECKING:
    from ..evidence.cascade import Cascade
    from .learner import SetLearner

B = TypeVar("B", bound=Body)

HandlerResult: TypeAlias = (
    "dict[str, Any] | list[dict[str, Any]] | AsyncGenerator[dict[str, Any], None]"
)
"""What a handler returns: the JSON of a response, or of each event of a stream."""

LONG_BODY = 2**15  # bytes; longer bodies are parsed in a thread, so as not to delay other requests
TEXTS_AT_ONCE = 32  # that are embedded or ranked before another request gets its turn
MAX_IGNORED = 20  # names in the header x-ignored-fields

PATHS = {"encoder": "/v1/embeddings", "reranker": "/v1/rerank"}
"""The endpoint for each kind of model that generates no text, in addition to decisions."""

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
    n_ctx: Callable[[], int]  # the length of the context; 0 = not known before the first request
    learners: Mapping[str, SetLearner] = field(default_factory=dict)  # of sets, by name
    cascade: Cascade | None = None  # of all models, if there are several


@dataclass(frozen=True, kw_only=True)
class RequestContext(ServerState):
    """One running request: everything except the body that its handler needs."""

    deadline: Deadline
    place: Place  # in the admission
    record: RequestRecord
    input_name: str  # as in `Endpoint`
    headers: dict[str, str]  # of the response; more can be added

    def question_set(self, name: str) -> QuestionSet | None:
        """Return a set, with the calibration that is in use now."""
        if name in self.learners:
            return self.learners[name].version.served
        return self.settings.sets.get(name)

    def count_tokens(self, n_prompt: int, n_cached: int, n_generated: int = 0) -> None:
        """Count tokens in the metrics, and in the request's line of the log."""
        self.metrics.count_tokens(n_prompt, n_cached, n_generated)
        self.record.n_prompt += n_prompt
        self.record.n_cached += n_cached
        self.record.n_generated += n_generated

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
            message, session = str(error), self.model.session
            for opened in filter(None, (session, session.encoder)):
                message = message.replace(str(opened.path), self.settings.name)
            return HTTPError(501, message, "not_supported")
        return self.deadline.passed() if isinstance(error, BusyError) else None

    def context_full(self, problem: str) -> HTTPError:
        """Return the error for a request that needs more tokens than the context has."""
        name, n_ctx = self.input_name, self.n_ctx()
        context = f"the context of {n_ctx} tokens" if n_ctx else "the context"
        return HTTPError(400, f"{name}: {problem} {context}", "context_length_exceeded", name)

    async def in_groups(
        self,
        texts: Sequence[str],
        call: Callable[[Sequence[str]], Awaitable[Iterable[Any]]],
        field: str,
        after: str = "",
    ) -> list[Any]:
        """Return the results of calls with a few of the texts each, which let other requests run.

        An error about a text begins with the `field` of the request, the text's index, and `after`.
        """
        results: list[Any] = []
        begins = range(0, len(texts), TEXTS_AT_ONCE)
        async with self.place.in_parts(len(begins)) as part:
            for begin in begins:
                async with part():
                    work = call(texts[begin : begin + TEXTS_AT_ONCE])
                    try:
                        results.extend(await self.deadline.before_end(work))
                    except InvalidArgumentError as error:
                        if error.index is None:
                            raise
                        place = item_name(field, begin + error.index, len(texts))
                        reason = str(error).partition(": ")[2]
                        raise invalid(field, reason, f"{place}{after}") from error
        return results


def item_name(field: str, index: int, n: int) -> str:
    """Return the name of one of the `n` items of a field, for errors."""
    return f"{field}[{index}]" if n > 1 else field


class TokenTimes:
    """Measures the times of the tokens of one streamed answer."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._first = 0.0  # the time of the first piece of the answer; 0 = none came

    def note_piece(self) -> None:
        if not self._first:
            self._first = time.perf_counter()
            seconds = self._first - self._context.record.begin
            self._context.metrics.first_token_seconds.observe(seconds)

    def note_end(self, n_tokens: int) -> None:
        if self._first and n_tokens > 1:
            seconds = time.perf_counter() - self._first
            self._context.metrics.token_seconds.observe(seconds / (n_tokens - 1))


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
    summary: str
    input_name: str  # the field that the error names if the input does not fit into the context
    decides: bool = False  # a CPU runs few decisions at the same time
    embeds: bool = False  # needs no generated text
    other_paths: tuple[str, ...] = ()  # that other servers have for the same requests
    named_events: bool = False
    lines: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, *self.other_paths)

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
        record = record_of(scope)
        sender = _Sender(scope, receive, send, self._endpoint)
        try:
            needs_text = not (self._endpoint.embeds or self._endpoint.decides)
            path = PATHS.get(self._state.model.session.kind)
            if needs_text and path is not None:
                message = f"the model cannot generate text; use /v1/decisions or {path}"
                raise HTTPError(501, message, "not_supported")
            max_body = self._state.settings.max_body
            body = await deadline.before_end(read_body(Request(scope, receive), max_body))
            idle = partial(sender.comment, partial(self._streams, body))
            await while_wanted(
                self._respond(body, deadline, sender, record), receive, deadline, idle
            )
        except ClientDisconnect:
            record.status = CLIENT_GONE  # also if a stream had begun with the status 200
            if not sender.has_begun:
                await sender.response(Response(status_code=CLIENT_GONE))
        except Exception as error:
            if sender.has_begun:
                http_error = error if isinstance(error, HTTPError) else failure()
                record.status = http_error.status
                await sender.end_with(http_error)
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

    async def _respond(
        self, body: bytes, deadline: Deadline, sender: _Sender, record: RequestRecord
    ) -> None:
        """Wait in the queue, run the handler, and send its answer."""
        endpoint, state = self._endpoint, self._state
        async with state.admission.place(endpoint.decides) as place:
            state.metrics.queue_seconds.observe(place.waited)
            context = RequestContext(
                **vars(state),
                deadline=deadline,
                place=place,
                record=record,
                input_name=endpoint.input_name,
                headers=sender.headers,
            )
            try:
                # Not before, because a waiting body takes less memory than its fields.
                request = await _read(endpoint.kind, body)
                sender.headers.update(_ignored(request))
                answer = await endpoint.answer(request, context)
                if not isinstance(answer, dict | list):
                    await sender.stream(answer)
                    return
            except ElizaError as error:
                http_error = context.http_error(error)
                if http_error is None:
                    raise
                raise http_error from error
        response = Response(to_json(answer), 200, sender.headers, "application/json")
        await sender.response(response)


async def _read(kind: type[B], body: bytes) -> B:
    """Parse and check a body. A long body is parsed in another thread."""
    if len(body) < LONG_BODY:
        return read_fields(kind, json_object(body))
    return await asyncio.to_thread(lambda: read_fields(kind, json_object(body)))


def _ignored(request: Body) -> dict[str, str]:
    """Return the headers that name the fields and tools of a request that have no effect."""
    headers = {}
    named = {"fields": request.model_extra or (), "tools": request.ignored_tools}
    for header, ignored in named.items():
        if ignored:
            headers[f"x-ignored-{header}"] = header_of(ignored)
    return headers


def header_of(names: Iterable[str]) -> str:
    """Return the first names of fields or tools as the value of a header."""
    # A header must not begin or end with a space, so an empty name is written as quotes.
    first = islice(names, MAX_IGNORED)
    return ", ".join(quote(name[:MAX_NAME_LENGTH]) or '""' for name in first)


class _Sender:
    """Sends the response of one request."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, endpoint: Endpoint[Any]) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._named_events, self._lines = endpoint.named_events, endpoint.lines
        self._n_sent = 0
        self._beginning = asyncio.Lock()
        self._last_time = time.monotonic()
        self.headers: dict[str, str] = {}  # of the answer
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

    async def end_with(self, error: HTTPError) -> None:
        """End a stream with an event for an error."""
        body = error.body()
        await self._event({**body["error"], "type": "error"} if self._named_events else body)
        await self._part(b"", is_last=True)

    async def _begin(self, seconds: float = 0.0) -> None:
        """Wait, and send the head, unless it was sent."""
        await asyncio.sleep(seconds)
        async with self._beginning:
            if not self.has_begun:
                kind = b"application/jsonl" if self._lines else b"text/event-stream; charset=utf-8"
                # nginx would otherwise collect the events before it passes them on.
                headers = [(b"content-type", kind), (b"x-accel-buffering", b"no")]
                headers += [(key.encode(), value.encode()) for key, value in self.headers.items()]
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
