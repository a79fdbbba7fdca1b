"""Who waits for a slot of a context: threads and tasks in one queue, first come, first served."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from numbers import Real
from operator import attrgetter
from typing import Any

from ..checks import wrong
from ..errors import BusyError

__all__ = ["Turns", "check_wait"]


def check_wait(wait: Any) -> bool | float:
    """Return how long to wait, in seconds or as a bool; raise InvalidArgumentError otherwise."""
    if isinstance(wait, bool):
        return wait
    with suppress(OverflowError):
        if isinstance(wait, Real) and not math.isnan(wait):
            return float(wait)
    raise wrong("wait", "True, False or a number of seconds", wait)


class Turns:
    """So many at once, the others after them.

    Parameters
    ----------
    n
        How many may be inside.
    patience
        Seconds that somebody waits who did not say how long: not in all, but for anyone at all to
        get a turn or to leave. A queue that moves is waited in to its end.

    Attributes
    ----------
    n_moves : int
        How often somebody went in or out.
    """

    def __init__(self, n: int, patience: float) -> None:
        self.n = n
        self.patience = patience
        # Weak, so that nobody stays inside whom an interrupt kept from leaving. No `WeakSet`: it
        # forgets in a callback, where an interrupt would be lost with what was to be forgotten.
        self._inside: set[weakref.ref[_Turn]] = set()
        # In the order they came; in the second those who may be kept by their like alone.
        self._waiting: tuple[deque[_Turn], deque[_Turn]] = (deque(), deque())
        self._numbers = itertools.count()
        self.n_moves = 0
        self._lock = threading.RLock()

    @contextmanager
    def one(
        self, wait_for: bool | float, *, alone: bool = False, at_most: int | None = None
    ) -> Iterator[None]:
        """Be inside for a while, after a wait on this thread.

        Parameters
        ----------
        wait_for
            Seconds at the most; True = as `patience` has it, False = none.
        alone
            Wait until nobody else is inside, and keep the others waiting.
        at_most
            Wait until fewer than so many are inside who said so too, and let others pass meanwhile.

        Raises
        ------
        BusyError
            If there was no turn in time.
        """
        wait_for = check_wait(wait_for)
        turn = self._enter(alone, at_most)
        try:
            # A lock alone: an interrupt inside Python's own waiting, of events and futures, may
            # leave a lock released that somebody else holds.
            gate = threading.Lock()
            gate.acquire()
            turn.add_done_callback(lambda _: gate.release())
            while not turn.done():
                n_before = self.n_moves
                gate.acquire(timeout=self._timeout(wait_for))
                self._check(turn, wait_for, n_before)
            yield
        finally:
            self._leave(turn)

    @asynccontextmanager
    async def one_async(
        self, wait_for: bool | float, *, alone: bool = False, at_most: int | None = None
    ) -> AsyncIterator[None]:
        """The same, after a wait of the running task."""
        wait_for = check_wait(wait_for)
        turn = self._enter(alone, at_most)
        try:
            while not turn.done():
                n_before = self.n_moves
                await asyncio.wait([asyncio.wrap_future(turn)], timeout=self._timeout(wait_for))
                self._check(turn, wait_for, n_before)
            yield
        finally:
            self._leave(turn)

    def _timeout(self, wait_for: bool | float) -> float:
        seconds = self.patience if wait_for is True else float(wait_for)
        return min(max(seconds, 0.0), threading.TIMEOUT_MAX)

    def _check(self, turn: _Turn, wait_for: bool | float, n_before: int) -> None:
        """Raise where the wait is over and the turn has not come."""
        has_moved = wait_for is True and self.n_moves > n_before
        if not turn.done() and not has_moved and turn.cancel():
            timeout = self._timeout(wait_for)
            waited = f" after {timeout:g} s" if timeout else ""
            if self._is_kept_by_its_like(turn) and self.n_inside < self.n:
                raise BusyError(f"{turn.at_most} of its kind run, as many as there may be{waited}")
            raise BusyError(
                f"all {self.n} slots are in use by open streams{waited} "
                f"(options n_slots, slot_wait_ms)"
            )

    def _enter(self, alone: bool = False, at_most: int | None = None) -> _Turn:
        with self._lock:
            turn = _Turn(next(self._numbers), alone, at_most)
            self._waiting[at_most is not None].append(turn)
            self._let_in()
        return turn

    @property
    def n_inside(self) -> int:
        """How many are inside."""
        return len(self._visitors())

    def _visitors(self) -> list[_Turn]:
        # A copy in one step: who reads it without the lock meets no change on the way.
        return [turn for one in list(self._inside) if (turn := one()) is not None]

    def _leave(self, turn: _Turn) -> None:
        turn.cancel()  # if it never came
        with self._lock:
            self._inside = {one for one in self._inside if one() is not turn}
            self.n_moves += 1
            self._let_in()

    def _let_in(self) -> None:
        # In an order that an interrupt between two steps does no harm to.
        self._inside = {one for one in self._inside if one() is not None}
        while (turn := self._next()) is not None:
            if turn.running() or turn.set_running_or_notify_cancel():
                self._inside.add(weakref.ref(turn))
                self.n_moves += 1
                turn.set_result(None)

    def _next(self) -> _Turn | None:
        """Return the first of those who wait and whom there is room for."""
        for queue in self._waiting:
            while queue and queue[0].done():
                queue.popleft()
        for turn in sorted((each[0] for each in self._waiting if each), key=attrgetter("number")):
            if len(self._inside) >= self._room_for(turn):
                return None
            if not self._is_kept_by_its_like(turn):
                return turn
        return None

    def _is_kept_by_its_like(self, turn: _Turn) -> bool:
        if turn.at_most is None:
            return False
        return sum(one.at_most is not None for one in self._visitors()) >= turn.at_most

    def _room_for(self, turn: _Turn) -> int:
        """Return how many may be inside with it, itself included."""
        return 1 if turn.alone or any(one.alone for one in self._visitors()) else self.n


class _Turn(Future[None]):
    """One's place, from the wait to the end of the visit."""

    def __init__(self, number: int, alone: bool, at_most: int | None) -> None:
        super().__init__()
        self.number = number
        self.alone = alone
        self.at_most = at_most
