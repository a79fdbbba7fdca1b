"""Run a limited number of requests at once, queue a limited number, and reject the rest."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from .refusals import Refusal

__all__ = ["Admission"]

MAX_RETRY_SECONDS = 60
"""Highest value of a Retry-After header."""


class Admission:
    """Limits the running and the waiting requests; requests wait in order of arrival.

    Parameters
    ----------
    max_running
        The maximum number of requests that run at the same time.
    max_waiting
        The maximum number of waiting requests. Further requests are rejected.
    max_decisions
        The maximum number of running requests that make decisions; None = `max_running`.

    Attributes
    ----------
    n_running, n_waiting : int
        The number of running and of waiting requests.
    is_closed : bool
        Whether new requests are rejected.
    """

    def __init__(
        self, max_running: int, max_waiting: int, max_decisions: int | None = None
    ) -> None:
        self._places = asyncio.Semaphore(max_running)
        self._decisions = asyncio.Semaphore(max_decisions or max_running)
        self._max_running = max_running
        self._max_decisions = max_decisions or max_running
        self._max_waiting = max_waiting
        self._seconds_each = 0.0
        self.n_running = 0
        self.n_waiting = 0
        self.is_closed = False

    @asynccontextmanager
    async def place(self, decides: bool = False) -> AsyncIterator[float]:
        """Wait until the request may run; yield the seconds that it waited.

        Parameters
        ----------
        decides
            Whether the request makes decisions.

        Raises
        ------
        Refusal
            If the queue is full, or the server is shutting down.
        """
        self.check_open()
        is_full = self._places.locked() or (decides and self._decisions.locked())
        if is_full and self.n_waiting >= self._max_waiting:
            raise Refusal(
                429,
                f"the queue is full: {self._max_waiting} requests are waiting",
                "queue_full",
                headers={"retry-after": str(self._retry_after(decides))},
            )
        arrived = time.monotonic()
        async with AsyncExitStack() as held:
            self.n_waiting += 1
            try:
                if decides:  # first, so that waiting decisions hold no place
                    await held.enter_async_context(self._decisions)
                await held.enter_async_context(self._places)
            finally:
                self.n_waiting -= 1
            self.n_running += 1
            begin = time.monotonic()
            try:
                yield begin - arrived
            finally:
                self._note_seconds(time.monotonic() - begin)
                self.n_running -= 1

    def check_open(self) -> None:
        """Raise if new requests are rejected.

        Raises
        ------
        Refusal
            If :meth:`close` was called.
        """
        if self.is_closed:
            raise Refusal(
                503,
                "the server is shutting down; it finishes the running requests",
                "shutting_down",
                headers={"retry-after": "1", "connection": "close"},
            )

    def close(self) -> None:
        """Reject new requests from now on. Waiting requests are still answered."""
        self.is_closed = True

    @property
    def is_empty(self) -> bool:
        """Whether no request is running or waiting."""
        return self.n_running + self.n_waiting == 0

    def _note_seconds(self, seconds: float) -> None:
        self._seconds_each += (seconds - self._seconds_each) / 16

    def _retry_after(self, decides: bool) -> int:
        """Estimate the seconds until all requests that are waiting now have started."""
        at_once = self._max_decisions if decides else self._max_running
        seconds = self._seconds_each * (self.n_waiting + 1) / at_once
        return min(max(1, math.ceil(seconds)), MAX_RETRY_SECONDS)
