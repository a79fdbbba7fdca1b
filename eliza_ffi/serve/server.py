"""uvicorn around the application: from the socket to the last answer."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import uvicorn

from ..async_model import AsyncModel
from ..decisions.questions import Predicate
from ..model import Model
from .admission import Admission
from .app import admission_for, make_app
from .connections import (
    ACCEPTED_AT_ONCE,
    Connections,
    OccasionalWarning,
    connection_limit,
    unsupported_uvicorn,
)
from .settings import ServeSettings

__all__ = ["check_model", "listen", "serve"]

for _hook in ("startup", "handle_exit", "on_tick"):  # undocumented
    if not hasattr(uvicorn.Server, _hook):
        raise unsupported_uvicorn(f"Server.{_hook}")

BACKLOG = 1024
"""Connections that wait to be accepted."""

SWITCH_SECONDS = 5e-4
"""After which Python changes threads; by default a pass or a request waits ten times as long."""

IDLE_SECONDS = 5
"""After which a connection between two requests is closed."""

CLOSING_SECONDS = 5
"""That connections have after the last answer."""


def listen(settings: ServeSettings) -> socket.socket:
    """Return a socket that listens where the settings say.

    Raises
    ------
    InvalidArgumentError
        If the limit of open files leaves too few connections.
    OSError
        If the address is not this machine's, or taken.
    """
    connection_limit()  # fails before the model is loaded, which takes long
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host,
        settings.port,
        type=socket.SOCK_STREAM,
        proto=socket.IPPROTO_TCP,
        flags=socket.AI_PASSIVE,
    )[0]
    # With its protocol, which socket.create_server leaves open: asyncio knows by it that answers
    # are not to wait for the acknowledgement of what was sent before.
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


def check_model(model: Model, settings: ServeSettings) -> None:
    """Ask the model once, as it will be asked: better now than at the first request.

    Raises
    ------
    ElizaError
        If it cannot answer, or not in the way the settings say.
    """
    model.decide(
        "A cat sat on the mat.",
        [Predicate("It is about an animal.")],
        labels=settings.labels,
        orders=settings.orders,
        scoring=settings.scoring,
    )


def serve(
    model: Model,
    settings: ServeSettings,
    listening: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
) -> int:
    """Serve a model until a signal comes; return the signal.

    After SIGTERM or SIGINT, running and waiting requests are answered, new requests are rejected
    with 503, and then the server ends. A second signal closes all connections and ends it at once.

    Parameters
    ----------
    model
        Open; it is not closed here.
    settings
    listening
        As :func:`listen` returns it; it is closed at the end.
    on_ready
        Called once requests are answered, and signals heard.
    """
    face = AsyncModel.of(model)
    admission = admission_for(face, settings)
    connections = Connections(connection_limit())
    config = uvicorn.Config(
        connections.watched(make_app(face, settings, admission)),
        http=connections.protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # what strangers send is no news
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,  # asyncio accepts up to this many before it starts one
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )
    server = _Server(config, admission, connections, on_ready)
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        server.run(sockets=[listening])
    finally:
        sys.setswitchinterval(before)
    return server.signal


class _Server(uvicorn.Server):
    def __init__(
        self,
        config: uvicorn.Config,
        admission: Admission,
        connections: Connections,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self._admission = admission
        self._connections = connections
        self._on_ready = on_ready
        self._no_files = OccasionalWarning("a connection was not accepted: %s")
        self._loop: asyncio.AbstractEventLoop | None = None
        self.signal = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._on_loop_error)
        await super().startup(sockets)
        for listening in sockets or ():
            listening.listen(BACKLOG)  # asyncio has set it to ACCEPTED_AT_ONCE
        self._on_ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.signal = sig
        if self._admission.is_closed and self._loop is not None:
            # A closed connection cancels its request, so that the server has none left to finish.
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
