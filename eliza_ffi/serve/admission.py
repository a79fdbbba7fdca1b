"""Run a limited number of requests at once, queue a limited number, and reject the rest."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .http_error import HTTPError

MAX_RETRY_SECONDS = 60  # in a Retry-After header


class Admission:
    """Limits the running and the waiting requests.

    Requests run in order of arrival. While as many decisions run as are allowed, other requests
    overtake the waiting decisions.
    """

    def __init__(
        self,
        max_running: int,
        max_waiting: int,  # further requests are rejected
        max_decisions: int | None = None,  # of the running ones; None = `max_running`
    ) -> None:
        # The waiting requests in order of arrival; True = the request makes decisions.
        self._waiting: dict[asyncio.Future[None], bool] = {}
        self._n_decisions = 0  # running
        self._max_running = max_running
        self._max_decisions = max_decisions or max_running
        self._max_waiting = max_waiting
        self._seconds_each = 0.0
        self.n_running = 0
        self.is_closed = False

    @asynccontextmanager
    async def place(self, decides: bool = False) -> AsyncIterator[float]:
        """Wait until the request may run; yield the seconds that it waited."""
        self.check_open()
        must_wait = not self._may_run(decides)
        if must_wait and self.n_waiting >= self._max_waiting:
            raise HTTPError(
                429,
                f"the queue is full: {self._max_waiting} requests are waiting",
                "queue_full",
                headers={"retry-after": str(self._retry_after(decides))},
            )
        arrived = time.monotonic()
        if must_wait:
            await self._wait(decides)
        else:
            self._count(decides, 1)
        begin = time.monotonic()
        try:
            yield begin - arrived
        finally:
            self._note_seconds(time.monotonic() - begin)
            self._count(decides, -1)
            self._let_in()

    def _may_run(self, decides: bool) -> bool:
        if self.n_running >= self._max_running:
            return False
        return not decides or self._n_decisions < self._max_decisions

    def _count(self, decides: bool, change: int) -> None:
        self.n_running += change
        self._n_decisions += change * decides

    async def _wait(self, decides: bool) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = decides
        try:
            await turn
        except asyncio.CancelledError:
            self._waiting.pop(turn, None)
            if not turn.cancelled():  # it was let in before it was cancelled
                self._count(decides, -1)
                self._let_in()
            raise

    def _let_in(self) -> None:
        """Let waiting requests run, in order of arrival."""
        for turn, decides in list(self._waiting.items()):
            if self._may_run(decides):
                del self._waiting[turn]
                if not turn.cancelled():
                    self._count(decides, 1)
                    turn.set_result(None)

    def check_open(self) -> None:
        """Raise an HTTPError if :meth:`close` was called."""
        if self.is_closed:
            raise HTTPError(
                503,
                "the server is shutting down; it finishes the running requests",
                "shutting_down",
                headers={"retry-after": "1", "connection": "close"},
            )

    def close(self) -> None:
        """Reject new requests from now on. Waiting requests are still answered."""
        self.is_closed = True

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_empty(self) -> bool:
        return self.n_running + self.n_waiting == 0

    def _note_seconds(self, seconds: float) -> None:
        self._seconds_each += (seconds - self._seconds_each) / 16

    def _retry_after(self, decides: bool) -> int:
        """Estimate the seconds until all requests that are waiting now have started."""
        at_once = self._max_decisions if decides else self._max_running
        seconds = self._seconds_each * (self.n_waiting + 1) / at_once
        return min(max(1, math.ceil(seconds)), MAX_RETRY_SECONDS)
