"""The open connections of a server: their number is limited, and idle ones are closed.

uvicorn does neither. :class:`Connection` stands between uvicorn's protocol and the socket. It
uses only the interfaces of asyncio and ASGI.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from contextvars import ContextVar
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import InvalidArgumentError, NotSupportedError
from .refusals import Refusal


def unsupported_uvicorn(missing: str) -> NotSupportedError:
    """Return what to raise where uvicorn lacks something."""
    return NotSupportedError(
        f"expected a uvicorn that has {missing}, got uvicorn {uvicorn.__version__}; "
        "install another one: pip install -U 'eliza-ffi[serve]'"
    )


try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError:
    raise unsupported_uvicorn("H11Protocol") from None

__all__ = [
    "ACCEPTED_AT_ONCE",
    "HEAD_SECONDS",
    "MOST_CONNECTIONS",
    "WRITE_SECONDS",
    "Connection",
    "Connections",
    "OccasionalWarning",
    "connection_limit",
    "unsupported_uvicorn",
]

MOST_CONNECTIONS = 1000
"""Most connections that are open at once."""

ACCEPTED_AT_ONCE = 8
"""Most connections that one turn of the event loop accepts."""

RESERVED_FILES = 96
"""File descriptors for everything except connections: the model, the threads, and the event loop.
Connections also use some of them for a few turns of the event loop: before they are counted, and
after they are aborted."""

LEAST_CONNECTIONS = 16
"""Fewest connections with which the server starts."""

HEAD_SECONDS = 10.0
"""Time for the whole head of a request, from its first byte or the start of the connection."""

WRITE_SECONDS = 30.0
"""Time in which a client must read some of a waiting answer."""

WARNING_SECONDS = 60.0
"""Time between two log lines about the same limit."""

logger = logging.getLogger(__name__)

_connection: ContextVar[Connection] = ContextVar("connection")


def connection_limit() -> int:
    """Return the most connections that the limit of open files allows.

    Raises
    ------
    InvalidArgumentError
        If they are too few.
    """
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource  # Unix alone has it

    n_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if n_files == resource.RLIM_INFINITY:
        return MOST_CONNECTIONS
    if n_files < RESERVED_FILES + LEAST_CONNECTIONS:
        raise InvalidArgumentError(
            f"expected a limit of at least {RESERVED_FILES + LEAST_CONNECTIONS} open files, got "
            f"{n_files}; raise it with: ulimit -n 1024"
        )
    return min(MOST_CONNECTIONS, n_files - RESERVED_FILES)


class OccasionalWarning:
    """Logs a warning at most once a minute.

    Parameters
    ----------
    message
        Its text, as :mod:`logging` formats it.
    """

    def __init__(self, message: str) -> None:
        self._message = message
        self._said = float("-inf")

    def say(self, *arguments: object) -> None:
        """Log the warning, unless it was logged within the last minute."""
        now = time.monotonic()
        if now - self._said >= WARNING_SECONDS:
            self._said = now
            logger.warning(self._message, *arguments)


class Connections:
    """The open connections of a server.

    At the limit, a new connection replaces the one that has waited longest for a request. If every
    connection has a request, the new one is answered with 503.

    Parameters
    ----------
    most
        The limit.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: set[Connection] = set()
        self._idle: dict[Connection, None] = {}  # the longest idle one first
        self._full = OccasionalWarning(
            "the limit of %d connections is reached: new connections replace idle ones"
        )

    @property
    def protocol(self) -> type[Connection]:
        """The protocol of these connections, for uvicorn's setting ``http``."""
        return type("Connection", (Connection,), {"connections": self})

    def watched(self, app: ASGIApp) -> ASGIApp:
        """Return an application that marks its connections as busy while a request runs."""

        async def with_request(scope: Scope, receive: Receive, send: Send) -> None:
            connection = _connection.get()
            connection.request_began()
            try:
                await app(scope, receive, send)
            finally:
                connection.request_ended()

        return with_request

    def add(self, connection: Connection) -> bool:
        """Add a new connection; return whether there was a place for it."""
        if len(self._open) >= self._most:
            self._full.say(self._most)
            if not self._idle:
                return False
            next(iter(self._idle)).abort()
        self._open.add(connection)
        self._idle[connection] = None
        return True

    def remove(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._open.discard(connection)
        self._idle.pop(connection, None)

    def note_busy(self, connection: Connection) -> None:
        """Mark a connection as busy: it has a request."""
        self._idle.pop(connection, None)

    def note_idle(self, connection: Connection) -> None:
        """Mark a connection as idle: it waits for a request."""
        if connection in self._open:
            self._idle[connection] = None

    def abort_all(self) -> None:
        """Close all connections without an answer."""
        for connection in list(self._open):
            connection.abort()


class Connection(asyncio.Protocol):
    """A counted connection of uvicorn, which is closed when its client does nothing.

    It is closed if the head of a request does not come in time, or if the client does not read the
    answer. uvicorn itself closes a connection between two requests. The deadline of a request
    covers its body.

    Parameters
    ----------
    **arguments
        As uvicorn passes them to its own protocols.
    """

    connections: Connections

    def __init__(self, **arguments: Any) -> None:
        self._http = H11Protocol(**arguments)
        self._transport: asyncio.Transport | None = None  # None = there was no place
        self._has_request = False
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if not self.connections.add(self):
            transport.write(_FULL)
            transport.close()
            return
        self._transport = transport
        self._http.connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections.remove(self)
        self._cancel_timers()
        if self._transport is not None:
            self._http.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        if not self._has_request:
            self._await_head()
        # uvicorn starts a task for the request, and the task gets a copy of this context.
        token = _connection.set(self)
        try:
            self._http.data_received(data)
        finally:
            _connection.reset(token)

    def eof_received(self) -> None:
        if self._transport is not None:
            self._http.eof_received()

    def pause_writing(self) -> None:
        if self._transport is not None:
            self._http.pause_writing()
            self._unread = asyncio.get_running_loop().call_later(WRITE_SECONDS, self.abort)

    def resume_writing(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        if self._transport is not None:
            self._http.resume_writing()

    def request_began(self) -> None:
        """Mark the connection as busy: the head of a request has come."""
        self._has_request = True
        self.connections.note_busy(self)
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def request_ended(self) -> None:
        """Mark the connection as idle: the request was answered, or given up."""
        self._has_request = False
        self.connections.note_idle(self)

    def abort(self) -> None:
        """Close the connection without an answer."""
        self.connections.remove(self)
        if self._transport is not None:
            self._transport.abort()

    def _await_head(self) -> None:
        if self._head is None:
            self._head = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.abort)

    def _cancel_timers(self) -> None:
        for timer in (self._head, self._unread):
            if timer is not None:
                timer.cancel()


def _full_answer() -> bytes:
    refusal = Refusal(503, "all connections of this server are in use", "connections_full")
    body = json.dumps(refusal.body()).encode()
    head = (
        "HTTP/1.1 503 Service Unavailable\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        "retry-after: 1\r\n"
        "connection: close\r\n\r\n"
    )
    return head.encode() + body


_FULL = _full_answer()
"""The answer to a new connection if all others are busy."""
