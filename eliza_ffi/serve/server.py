"""Run the application in uvicorn, from opening the socket to a graceful shutdown."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn

from ..async_model import AsyncModel
from ..decisions.answers import name_of
from ..decisions.questions import MAX_OPTIONS, Choice, Predicate
from ..errors import ContextFullError, ElizaError, InvalidArgumentError
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
from .settings import QuestionSet, ServeSettings

__all__ = ["check_model", "listen", "serve"]

for _hook in ("startup", "handle_exit", "on_tick"):  # undocumented parts of uvicorn
    if not hasattr(uvicorn.Server, _hook):
        raise unsupported_uvicorn(f"Server.{_hook}")

BACKLOG = 1024
"""The maximum number of connections that wait to be accepted."""

SWITCH_SECONDS = 5e-4
"""Python's thread switch interval. With the default, a forward pass or a request can wait ten times
as long for its thread."""

IDLE_SECONDS = 75
"""A connection that is idle for this long between two requests is closed. Longer than the 60
seconds of many proxies, because a request on a connection that is being closed is lost."""

CLOSING_SECONDS = 5
"""Time limit for connections to close after the last response."""


def listen(settings: ServeSettings) -> socket.socket:
    """Return a socket that listens on the address and port of the settings.

    Raises
    ------
    InvalidArgumentError
        If the limit on open files allows too few connections.
    OSError
        If the address does not belong to this machine, or is in use.
    """
    connection_limit()  # if this fails, fail before the model is loaded
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


def check_model(model: Model, settings: ServeSettings) -> bool:
    """Make one decision with the server's settings, so that problems show before the first request.

    It answers the named sets of questions, too. Their prompts are then in the KV cache.

    Returns
    -------
    bool
        Whether the model can generate text. An encoder can only compute embeddings.

    Raises
    ------
    ElizaError
        If the model can neither make decisions nor compute embeddings, or does not support these
        settings.
    """
    try:
        model.decide(
            "A cat sat on the mat.",
            [Predicate("It is about an animal.")],
            **settings.asking,
        )
    except ElizaError:
        if not _only_embeds(model):
            raise
        if settings.sets:
            raise
        return False
    for each in settings.sets.values():
        try:
            _check_set(each)
            model.decide("A cat sat on the mat.", each.questions, **each.asking)
        except (InvalidArgumentError, ContextFullError) as error:
            raise type(error)(f"the set of questions {each.name!r}: {error}") from error
    return True


def _check_set(asked: QuestionSet) -> None:
    """Check that the endpoints can answer the questions."""
    for i, question in enumerate(asked.questions):
        name = name_of(question.name, i)
        if isinstance(question, Choice) and question.has_many_options:
            raise InvalidArgumentError(
                f"{name}: {len(question.options)} options, expected at most {MAX_OPTIONS}"
            )


def _only_embeds(model: Model) -> bool:
    """Return whether a model computes embeddings and generates no text."""
    try:
        model.generate("A cat", 1)
    except ElizaError:
        with suppress(ElizaError):
            model.embed("A cat")
            return True
    return False


def serve(
    model: Model,
    settings: ServeSettings,
    listening: socket.socket,
    on_ready: Callable[[], None] = lambda: None,
    *,
    generates: bool = True,
) -> int:
    """Serve a model until SIGTERM or SIGINT; return the signal.

    After the signal, new requests are rejected with 503. The server stops when all running and
    waiting requests are answered. A second signal closes all connections and stops it immediately.

    Parameters
    ----------
    model
        An open model. It is not closed here.
    listening
        The socket from :func:`listen`. It is closed at the end.
    on_ready
        Called as soon as the server accepts requests and handles signals.
    generates
        The result of :func:`check_model`.
    """
    async_model = AsyncModel.of(model)
    admission = admission_for(async_model, settings)
    connections = Connections(connection_limit())
    config = uvicorn.Config(
        connections.watched(make_app(async_model, settings, admission, generates=generates)),
        http=connections.protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",  # do not log malformed requests
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=ACCEPTED_AT_ONCE,  # asyncio accepts up to this many connections per turn
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
