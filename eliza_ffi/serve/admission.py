"""Who is answered now, who waits for a place, and who is refused."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .refusals import Refusal

__all__ = ["Admission"]

LONGEST_RETRY = 60
"""Seconds that nobody is asked to wait longer than."""


class Admission:
    """So many requests at once, so many that wait behind them in the order they came.

    Parameters
    ----------
    n_places
        Requests that are worked on at once.
    n_waiting
        Requests that wait; one more is refused.

    Attributes
    ----------
    n_inside, n_outside : int
        How many are worked on, and how many wait.
    is_closed : bool
        Whether whoever comes now is refused.
    """

    def __init__(self, n_places: int, n_waiting: int) -> None:
        self._places = asyncio.Semaphore(n_places)
        self._n_places = n_places
        self._most_waiting = n_waiting
        self._seconds_each = 0.0
        self.n_inside = 0
        self.n_outside = 0
        self.is_closed = False

    @asynccontextmanager
    async def place(self) -> AsyncIterator[float]:
        """Have a place for a while, after a wait whose seconds are yielded.

        Raises
        ------
        Refusal
            If too many wait already, or the server is about to end.
        """
        self.check_open()
        if self._places.locked() and self.n_outside >= self._most_waiting:
            raise Refusal(
                429,
                f"{self._most_waiting} requests wait already, the most there may be",
                "queue_full",
                headers={"retry-after": str(self._retry_after())},
            )
        came = time.monotonic()
        self.n_outside += 1
        try:
            await self._places.acquire()
            self.n_inside += 1
        finally:
            self.n_outside -= 1
        begin = time.monotonic()
        try:
            yield begin - came
        finally:
            self._note_seconds(time.monotonic() - begin)
            self.n_inside -= 1
            self._places.release()

    def check_open(self) -> None:
        """Reject a new request, if it is closed."""
        if self.is_closed:
            raise Refusal(
                503,
                "the server is ending: it finishes the running requests",
                "shutting_down",
                headers={"retry-after": "1", "connection": "close"},
            )

    def close(self) -> None:
        """Reject new requests from now on; waiting requests are still answered."""
        self.is_closed = True

    @property
    def is_empty(self) -> bool:
        """Whether nobody is inside or waits."""
        return self.n_inside + self.n_outside == 0

    def _note_seconds(self, seconds: float) -> None:
        self._seconds_each += (seconds - self._seconds_each) / 16

    def _retry_after(self) -> int:
        """Return in how many seconds those who wait will be inside, as far as one can tell."""
        seconds = self._seconds_each * (self.n_outside + 1) / self._n_places
        return min(max(1, math.ceil(seconds)), LONGEST_RETRY)
