"""Connections that do nothing: they are closed, so that they do not take the place of others."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["HEAD_SECONDS", "WRITE_SECONDS", "ImpatientProtocol"]

HEAD_SECONDS = 10.0
"""In which the whole head of a request must come, from its first byte or the connection on."""

WRITE_SECONDS = 30.0
"""In which a client must take some of an answer that waits for it."""


class ImpatientProtocol(H11Protocol):
    """uvicorn's, with ends to two waits that have none there.

    A connection is closed whose request's head does not come in time, and one whose client does not
    read its answer. uvicorn itself ends those that are idle between requests; bodies have the
    deadline of their request.
    """

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._head: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._answer_taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()
        else:
            self._head_came()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        self._answer_taken()
        super().resume_writing()

    def _await_head(self) -> None:
        if self._head is None:
            self._head = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _head_came(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _answer_taken(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
