"""Run the application in uvicorn, from opening the socket to a graceful shutdown.

uvicorn neither limits the number of open connections nor closes slow ones. :class:`Connection`
wraps its protocol for this, and uses only the interfaces of asyncio and ASGI.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import uvicorn
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..async_model import AsyncModel
from ..decisions.questions import Predicate
from ..errors import ContextFullError, InvalidArgumentError, NotSupportedError
from ..evidence.cascade import Cascade, check_sources
from ..model import Model
from .admission import Admission
from .app import admission_for, make_app
from .guard import LIVE_PATH, Guard
from .http_error import HTTPError
from .learner import learning
from .questions import check_options
from .settings import ServeSettings


def _unsupported_uvicorn(missing: str) -> NotSupportedError:
    return NotSupportedError(
        f"expected a uvicorn that has {missing}, got uvicorn {uvicorn.__version__}; "
        "install another version: pip install -U 'eliza-ffi[serve]'"
    )


try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:
    raise _unsupported_uvicorn("H11Protocol") from None

for _hook in ("startup", "handle_exit", "on_tick"):  # undocumented parts of uvicorn
    if not hasattr(uvicorn.Server, _hook):
        raise _unsupported_uvicorn(f"Server.{_hook}")

BACKLOG = 1024  # connections that wait to be accepted
CLOSING_SECONDS = 5  # for connections to close after the last response

SWITCH_SECONDS = 5e-4
"""Python's thread switch interval. With the default, a forward pass or a request can wait ten times
as long for its thread."""

IDLE_SECONDS = 75
"""A connection that is idle for this long between two requests is closed. Longer than the 60
seconds of many proxies, because a request on a connection that is being closed is lost."""

MAX_CONNECTIONS = 1000  # open ones
MIN_CONNECTIONS = 16  # the server does not start if the limit on open files allows fewer
ACCEPTED_AT_ONCE = 8  # by one iteration of the event loop

RESERVED_FILES = 96
"""File descriptors for everything except counted connections: the model, the threads, the event
loop, and connections that were just accepted or aborted, which are not counted."""

HEAD_SECONDS = 10.0  # for the head of a request, from its first byte or the start of the connection
WRITE_SECONDS = 30.0  # for a client to read enough of a response for the server to send more of it
WARNING_SECONDS = 60.0  # the shortest time between two log lines about the same limit

logger = logging.getLogger(__name__)


def listen(settings: ServeSettings) -> socket.socket:
    """Return a socket that listens on the address of the settings; raise if it is in use."""
    connection_limit()  # if this fails, fail before the model is loaded
    if settings.is_unix_socket:
        return _listen_on_path(settings.host)
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host,
        settings.port,
        type=socket.SOCK_STREAM,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_PASSIVE,
    )[0]
    # asyncio sets TCP_NODELAY only if the socket's protocol is known, and socket.create_server does
    # not set it. Without TCP_NODELAY, a response can wait until earlier data is acknowledged.
    listening = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


def _listen_on_path(path: str) -> socket.socket:
    """Return a Unix socket that listens. The file of a server that has ended is replaced."""
    if not hasattr(socket, "AF_UNIX"):
        raise NotSupportedError(f"this system has no Unix sockets, got the address {path!r}")
    if Path(path).is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
            if other.connect_ex(path) == errno.ECONNREFUSED:
                Path(path).unlink()
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.bind(path)
        listening.listen(BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening


@contextmanager
def answering_while_loading(listening: socket.socket, settings: ServeSettings) -> Iterator[None]:
    """Answer all requests with 503 during a ``with`` block, which loads the model.

    Otherwise the socket would accept connections, and their requests would hang. Only ``/livez``
    says that the process is alive.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        response: Response = JSONResponse({"status": "ok"})
        if scope["path"] != LIVE_PATH:
            headers = {"retry-after": "1", "connection": "close"}
            error = HTTPError(503, "the model is being loaded", "loading", headers=headers)
            response = error.response(scope["path"])
        await response(scope, receive, send)

    running = uvicorn.Server(_config(Guard(answer, settings), lifespan="off", backlog=BACKLOG))
    copy = listening.dup()  # which the server closes
    thread = threading.Thread(target=running.run, args=([copy],), name="eliza-ffi-loading")
    thread.start()
    try:
        yield
    finally:
        running.should_exit = True
        thread.join()


def check_model(model: Model, settings: ServeSettings, cascade: Cascade | None = None) -> None:
    """Make one decision with the server's settings, so that problems show before the first request.

    It answers the named sets of questions, too. Their prompts are then in the KV cache. An
    ElizaError is raised if the model cannot decide, or does not support these settings.
    """
    text = "A cat sat on the mat."
    question = Predicate(
        "It is about an animal.", if_true="an animal", if_false="something other than an animal"
    )
    if cascade is None:
        model.decide(text, [question], **settings.decide_options)
    else:
        check_sources(cascade, text, [question])
    for each in settings.sets.values():
        try:
            check_options(each.questions, settings.max_options)
            if cascade is None:
                model.decide(text, each.questions, **each.decide_options)
            else:
                check_sources(cascade, text, each.questions, **each.cascade_options)
        except (InvalidArgumentError, ContextFullError, NotSupportedError) as error:
            raise type(error)(f"the set of questions {each.name!r}: {error}") from error


def serve(
    model: Model,
    settings: ServeSettings,
    listening: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
    cascade: Cascade | None = None,
) -> int:
    """Serve a model until SIGTERM or SIGINT; return the signal.

    After the signal, new requests are rejected with 503. The server stops when all running and
    waiting requests are answered. A second signal closes all connections and stops it immediately.
    The model is not closed, but the socket is. `on_ready` is called as soon as the server accepts
    requests and handles signals.
    """
    async_model = AsyncModel.of(model)
    admission = admission_for(async_model, settings)
    with learning(model, settings) as learners:
        app = make_app(async_model, settings, admission, learners, cascade)
        return run_app(app, admission, listening, on_ready)


def run_app(
    app: ASGIApp,
    admission: Admission,
    listening: socket.socket,
    on_ready: Callable[[], None],
    *,
    lifespan: Literal["off", "on"] = "off",
) -> int:
    """Run an application as :func:`serve` describes; return the signal that ended it.

    All its running and waiting requests must have a place of `admission`.
    """
    connections = Connections(connection_limit())
    config = _config(
        connections.watched(app),
        http=connections.protocol,
        lifespan=lifespan,
        backlog=ACCEPTED_AT_ONCE,  # asyncio accepts up to this many connections per turn
        timeout_keep_alive=IDLE_SECONDS,
    )
    server = _Server(config, admission, connections, on_ready)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        server.run(sockets=[listening])
    finally:
        sys.setswitchinterval(before)
    return server.signal


def _config(app: ASGIApp, **more: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ws="none",
        log_config=None,
        log_level="error",  # do not log malformed requests
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSING_SECONDS,
        **more,
    )


class _Server(uvicorn.Server):
    """Finishes the running and waiting requests before it stops."""

    def __init__(
        self,
        config: uvicorn.Config,
        admission: Admission,
        connections: Connections,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self.signal = 0  # the last one; 0 = none
        self._admission = admission
        self._connections = connections
        self._no_files = OccasionalWarning("a connection was not accepted: %s")
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_loop_error)
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)  # asyncio has set the backlog to ACCEPTED_AT_ONCE
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signal = sig
        if self._admission.is_closed and self._loop is not None:
            # Closing a connection cancels its request, so no request is left to finish.
            self.should_exit = True
            self._loop.call_soon_threadsafe(self._connections.abort_all)
        self._admission.close()

    async def on_tick(self, counter: int) -> bool:
        if self._admission.is_closed and self._admission.is_empty:
            self.should_exit = True
        return await super().on_tick(counter)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            self._no_files.say(error)  # asyncio would log it for every waiting connection
        else:
            loop.default_exception_handler(context)


# ---- Connections --------------------------------------------------------------------------------

_connection: ContextVar[Connection] = ContextVar("connection")


def connection_limit() -> int:
    """Return how many connections the limit on open files allows; raise if it allows too few."""
    if sys.platform == "win32":
        return MAX_CONNECTIONS
    import resource  # exists only on Unix

    n_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if n_files == resource.RLIM_INFINITY:
        return MAX_CONNECTIONS
    if n_files < RESERVED_FILES + MIN_CONNECTIONS:
        raise InvalidArgumentError(
            f"expected a limit of at least {RESERVED_FILES + MIN_CONNECTIONS} open files, got "
            f"{n_files}; raise it with: ulimit -n 1024"
        )
    return min(MAX_CONNECTIONS, n_files - RESERVED_FILES)


class OccasionalWarning:
    """Logs a warning, a format string of :mod:`logging`, at most once a minute."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._last_time = float("-inf")

    def say(self, *arguments: object) -> None:
        """Log the warning, unless it was logged within the last minute."""
        now = time.monotonic()
        if now - self._last_time >= WARNING_SECONDS:
            self._last_time = now
            logger.warning(self._message, *arguments)


class Connections:
    """The open connections of a server.

    At the limit, a new connection replaces the connection that has been idle longest. If no
    connection is idle, the new connection is answered with 503.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # ordered by idle time, the longest first
        self._full = OccasionalWarning(
            "the limit of %d connections is reached: new connections replace idle ones"
        )

    @property
    def protocol(self) -> type[Connection]:
        """The protocol class for uvicorn's setting ``http``."""
        return type("Connection", (Connection,), {"connections": self})

    def watched(self, app: ASGIApp) -> ASGIApp:
        """Wrap an application so that a connection counts as busy while its request runs."""

        async def with_request(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":  # the lifespan
                await app(scope, receive, send)
                return
            connection = _connection.get()
            connection.request_began()
            try:
                await app(scope, receive, send)
            finally:
                connection.request_ended()

        return with_request

    def add(self, connection: Connection) -> bool:
        """Add a new connection; return False if the limit is reached and none is idle."""
        if len(self._open) >= self._limit:
            self._full.say(self._limit)
            if not self._idle:
                return False
            next(iter(self._idle)).abort()
        self._open.add(connection)
        self._idle[connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        self._open.discard(connection)
        self.note_busy(connection)

    def note_busy(self, connection: Connection) -> None:
        self._idle.pop(connection, None)

    def note_idle(self, connection: Connection) -> None:
        if connection in self._open:
            self._idle[connection] = None

    def abort_all(self) -> None:
        for connection in list(self._open):
            connection.abort()


class Connection(asyncio.Protocol):
    """A uvicorn connection that counts towards the limit, and is closed if its client is too slow.

    It is closed if the head of a request does not arrive in time, or if the client does not read
    the response. uvicorn itself closes connections that are idle between two requests. The deadline
    of a request limits the time for its body.
    """

    connections: Connections

    def __init__(self, **arguments: Any) -> None:
        self._http = H11Protocol(**arguments)
        self._transport: asyncio.Transport
        self._has_request = False
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if not self.connections.add(self):
            transport.set_protocol(asyncio.Protocol())  # which ignores the request
            transport.write(_FULL)
            transport.close()
            return
        self._transport = transport
        self._http.connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.remove(self)
        for timer in (self._head, self._unread):
            if timer is not None:
                timer.cancel()
        self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._has_request:
            self._await_head()
        # uvicorn starts a task for the request, which gets a copy of this context.
        token = _connection.set(self)
        try:
            self._http.data_received(data)
        finally:
            _connection.reset(token)

    def eof_received(self) -> None:
        self._http.eof_received()

    def pause_writing(self) -> None:
        self._http.pause_writing()
        self._unread = asyncio.get_running_loop().call_later(WRITE_SECONDS, self.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
        self._http.resume_writing()

    def request_began(self) -> None:
        """Mark the connection as busy, because the head of a request has arrived."""
        self._has_request = True
        self.connections.note_busy(self)
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def request_ended(self) -> None:
        """Mark the connection as idle, because its request has ended."""
        self._has_request = False
        self.connections.note_idle(self)

    def abort(self) -> None:
        self.connections.remove(self)
        self._transport.abort()

    def _await_head(self) -> None:
        if self._head is None:
            self._head = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.abort)


_BODY = json.dumps(
    HTTPError(503, "all connections of this server are in use", "connections_full").body()
)
_FULL = (
    "HTTP/1.1 503 Service Unavailable\r\n"
    "content-type: application/json\r\n"
    f"content-length: {len(_BODY)}\r\n"
    "retry-after: 1\r\n"
    f"connection: close\r\n\r\n{_BODY}"
).encode()
"""The response to a new connection if all others are busy."""
