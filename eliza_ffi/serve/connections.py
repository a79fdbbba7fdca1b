"""Limit the number of open connections, and close idle ones.

uvicorn does neither. :class:`Connection` wraps uvicorn's protocol, and uses only the interfaces of
asyncio and ASGI.
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
    """Return the error for a uvicorn version without `missing`."""
    return NotSupportedError(
        f"expected a uvicorn that has {missing}, got uvicorn {uvicorn.__version__}; "
        "install another version: pip install -U 'eliza-ffi[serve]'"
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
"""The maximum number of open connections."""

ACCEPTED_AT_ONCE = 8
"""The maximum number of connections that one iteration of the event loop accepts."""

RESERVED_FILES = 96
"""File descriptors for everything except counted connections: the model, the threads, the event
loop, and connections that were just accepted or aborted, which are not counted."""

LEAST_CONNECTIONS = 16
"""The server does not start if the limit on open files allows fewer connections."""

HEAD_SECONDS = 10.0
"""Time limit for the head of a request, from its first byte or the start of the connection."""

WRITE_SECONDS = 30.0
"""Time limit for a client to read enough of a response for the server to send more of it."""

WARNING_SECONDS = 60.0
"""Shortest time between two log lines about the same limit."""

logger = logging.getLogger(__name__)

_connection: ContextVar[Connection] = ContextVar("connection")


def connection_limit() -> int:
    """Return how many connections the limit on open files allows, at most 1,000.

    Raises
    ------
    InvalidArgumentError
        If it allows fewer than 16.
    """
    if sys.platform == "win32":
        return MOST_CONNECTIONS
    import resource  # exists only on Unix

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
        The format string, as for :mod:`logging`.
    """

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

    Parameters
    ----------
    limit
        The maximum number of open connections.
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
        """Remove a closed connection."""
        self._open.discard(connection)
        self.note_busy(connection)

    def note_busy(self, connection: Connection) -> None:
        """Mark a connection as busy with a request."""
        self._idle.pop(connection, None)

    def note_idle(self, connection: Connection) -> None:
        """Mark a connection as waiting for a request."""
        if connection in self._open:
            self._idle[connection] = None

    def abort_all(self) -> None:
        """Close all connections without responses."""
        for connection in list(self._open):
            connection.abort()


class Connection(asyncio.Protocol):
    """A uvicorn connection that counts towards the limit, and is closed if its client is too slow.

    It is closed if the head of a request does not arrive in time, or if the client does not read
    the response. uvicorn itself closes connections that are idle between two requests. The deadline
    of a request limits the time for its body.

    Parameters
    ----------
    **arguments
        As uvicorn passes them to its own protocols.
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
        """Close the connection without a response."""
        self.connections.remove(self)
        self._transport.abort()

    def _await_head(self) -> None:
        if self._head is None:
            self._head = asyncio.get_running_loop().call_later(HEAD_SECONDS, self.abort)


_REFUSED = Refusal(503, "all connections of this server are in use", "connections_full")
_BODY = json.dumps(_REFUSED.body())
_FULL = (
    "HTTP/1.1 503 Service Unavailable\r\n"
    "content-type: application/json\r\n"
    f"content-length: {len(_BODY)}\r\n"
    "retry-after: 1\r\n"
    f"connection: close\r\n\r\n{_BODY}"
).encode()
"""The response to a new connection if all others are busy."""
