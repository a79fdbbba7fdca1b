"""Run a limited number of requests at once, queue a limited number, and reject the rest."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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

    Attributes
    ----------
    n_running, n_waiting : int
        The number of running and of waiting requests.
    is_closed : bool
        Whether new requests are rejected.
    """

    def __init__(self, max_running: int, max_waiting: int) -> None:
        self._places = asyncio.Semaphore(max_running)
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._seconds_each = 0.0
        self.n_running = 0
        self.n_waiting = 0
        self.is_closed = False

    @asynccontextmanager
    async def place(self) -> AsyncIterator[float]:
        """Wait until the request may run; yield the seconds that it waited.

        Raises
        ------
        Refusal
            If the queue is full, or the server is shutting down.
        """
        self.check_open()
        if self._places.locked() and self.n_waiting >= self._max_waiting:
            raise Refusal(
                429,
                f"the queue is full: {self._max_waiting} requests are waiting",
                "queue_full",
                headers={"retry-after": str(self._retry_after())},
            )
        arrived = time.monotonic()
        self.n_waiting += 1
        try:
            await self._places.acquire()
            self.n_running += 1
        finally:
            self.n_waiting -= 1
        begin = time.monotonic()
        try:
            yield begin - arrived
        finally:
            self._note_seconds(time.monotonic() - begin)
            self.n_running -= 1
            self._places.release()

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

    def _retry_after(self) -> int:
        """Estimate the seconds until all requests that are waiting now have started."""
        seconds = self._seconds_each * (self.n_waiting + 1) / self._max_running
        return min(max(1, math.ceil(seconds)), MAX_RETRY_SECONDS)
