"""Run a limited number of requests at once, queue a limited number, and reject the rest."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TypeAlias

from .http_error import HTTPError

MAX_RETRY_SECONDS = 60  # in a Retry-After header

MAX_OVERTAKING = 8
"""The number of requests that may overtake a waiting part of another request."""

PartPlace: TypeAlias = "Callable[[], AbstractAsyncContextManager[float]]"
"""A function that waits until a part of a request may run; the context manager that it returns
yields the seconds that the part waited."""


class Admission:
    """Limits the running and the waiting requests.

    Requests run in order of arrival. While as many decisions run as are allowed, other requests
    overtake the waiting decisions. A request with many parts, such as a batch of decisions or
    several answers to a prompt, gives up its place (:meth:`Place.in_parts`), and each of its parts
    takes a place of its own. Waiting requests go before waiting parts, so a large request does not
    hold up small ones.
    """

    def __init__(
        self,
        max_running: int,
        max_waiting: int,  # further requests are rejected
        max_decisions: int | None = None,  # of the running ones; None = `max_running`
    ) -> None:
        # The waiting requests and parts in order of arrival; True = it makes decisions.
        self._waiting: dict[asyncio.Future[None], bool] = {}
        self._waiting_parts: dict[asyncio.Future[None], bool] = {}
        self._n_overtaken = 0  # requests that went before the first waiting part
        self._n_places = 0  # in use, by requests and by parts
        self._n_parts = 0  # of these places
        self._n_in_parts = 0  # requests that gave up their places
        self._n_decisions = 0  # running
        self._max_running = max_running
        self._max_decisions = max_decisions or max_running
        self._max_waiting = max_waiting
        self._seconds_each = 0.0
        self.n_running = 0  # requests, also between two of their parts
        self.is_closed = False

    @asynccontextmanager
    async def place(self, decides: bool = False) -> AsyncIterator[Place]:
        """Wait until the request may run; yield its place."""
        self.check_open()
        # A part gives its place to a waiting request soon.
        if not self._may_run(decides) and self.n_waiting >= self._max_waiting + self._n_parts:
            raise self._full(decides)
        async with self._entered(self._waiting, decides) as waited:
            place = Place(self, decides, waited)
            self.n_running += 1
            try:
                yield place
            finally:
                self.n_running -= 1

    @asynccontextmanager
    async def _entered(
        self, queue: dict[asyncio.Future[None], bool], decides: bool
    ) -> AsyncIterator[float]:
        """Wait in a queue for a place, and hold it; yield the seconds that it took to get it."""
        arrived = time.monotonic()
        if self._may_run(decides):
            self._count(decides, 1)
        else:
            await self._wait(queue, decides)
        begin = time.monotonic()
        is_part = queue is self._waiting_parts
        self._n_parts += is_part
        try:
            yield begin - arrived
        finally:
            self._n_parts -= is_part
            self._note_seconds(time.monotonic() - begin)
            self._count(decides, -1)
            self._let_in()

    def _may_run(self, decides: bool) -> bool:
        if self._n_places >= self._max_running:
            return False
        return not decides or self._n_decisions < self._max_decisions

    def _count(self, decides: bool, change: int) -> None:
        self._n_places += change
        self._n_decisions += change * decides

    async def _wait(self, queue: dict[asyncio.Future[None], bool], decides: bool) -> None:
        turn = asyncio.get_running_loop().create_future()
        queue[turn] = decides
        try:
            await turn
        except asyncio.CancelledError:
            queue.pop(turn, None)
            if not turn.cancelled():  # it was let in before it was cancelled
                self._count(decides, -1)
                self._let_in()
            raise

    def _let_in(self) -> None:
        """Let waiting requests run, in order of arrival, and then waiting parts."""
        queues = [self._waiting, self._waiting_parts]
        if self._n_overtaken >= MAX_OVERTAKING:  # so that parts do not wait for ever
            queues.reverse()
        for queue in queues:
            for turn, decides in list(queue.items()):
                if self._may_run(decides):
                    del queue[turn]
                    if not turn.cancelled():
                        self._count(decides, 1)
                        turn.set_result(None)
                        is_ahead = queue is self._waiting and bool(self._waiting_parts)
                        self._n_overtaken = self._n_overtaken + 1 if is_ahead else 0

    def _full(self, decides: bool) -> HTTPError:
        return HTTPError(
            429,
            f"the queue is full: {self._max_waiting} requests are waiting",
            "queue_full",
            headers={"retry-after": str(self._retry_after(decides))},
        )

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


class Place:
    """The place of a running request."""

    def __init__(self, admission: Admission, decides: bool, waited: float) -> None:
        self._admission = admission
        self._decides = decides
        self.waited = waited  # seconds in the queue

    @asynccontextmanager
    async def in_parts(self, n: int) -> AsyncIterator[PartPlace]:
        """Divide the request into `n` parts for a ``with`` block; yield the function for a place.

        A single part runs in the place of the request. Of several parts, each waits for a place of
        its own, and the request gives up its place. Raise an HTTPError if too many such requests
        run already: they wait, like the requests in the queue.
        """
        if n == 1:
            yield lambda: nullcontext(self.waited)
            return
        admission = self._admission
        n_waiting = admission.n_waiting + admission._n_in_parts
        if n_waiting >= admission._max_waiting + admission._max_running:
            raise admission._full(self._decides)
        admission._n_in_parts += 1
        admission._count(self._decides, -1)
        admission._let_in()
        try:
            yield self._part
        finally:
            admission._n_in_parts -= 1
            admission._count(self._decides, 1)  # `Admission.place` gives it up again

    def _part(self) -> AbstractAsyncContextManager[float]:
        return self._admission._entered(self._admission._waiting_parts, self._decides)
