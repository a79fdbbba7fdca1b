"""Who waits for a slot of a context: threads and tasks in one queue, first come, first served."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import weakref
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager, suppress
from numbers import Real
from operator import attrgetter
from typing import Any

from ..checks import wrong
from ..errors import BusyError, InvalidArgumentError

__all__ = ["Turn", "Turns", "check_wait"]


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
        self._inside: set[weakref.ref[Turn]] = set()
        # Each in the order in which its turns came: those that any place will do for (None), those
        # that may also have to wait for others of their kind (-1), and those of each slot.
        self._waiting: defaultdict[int | None, deque[Turn]] = defaultdict(deque)
        self._moves_of_slot: Counter[int] = Counter()
        self._numbers = itertools.count()
        self.n_moves = 0
        self._n_left = 0
        self._lock = threading.RLock()

    @contextmanager
    def one(
        self,
        wait_for: bool | float,
        *,
        alone: bool = False,
        at_most: int | None = None,
        slot_id: int = -1,
        after: Turn | None = None,
    ) -> Iterator[Turn]:
        """Be inside for a while, after a wait on this thread.

        Parameters
        ----------
        wait_for
            Seconds at the most; True = as `patience` has it, False = none.
        alone
            Wait until nobody else is inside, and keep the others waiting.
        at_most
            Wait until fewer than so many are inside who said so too, and let others pass meanwhile.
        slot_id
            Wait until nobody is inside who named the same slot, and let others pass meanwhile;
            -1 = no slot is named.
        after
            An earlier turn of this caller that was of no use, because its slot held the stream of
            a caller that had named none. The new turn takes over its place in the queue, and comes
            when another caller has left.

        Raises
        ------
        BusyError
            If there was no turn in time.
        InvalidArgumentError
            If this thread itself holds the slot, and so would wait without end.
        """
        wait_for = check_wait(wait_for)
        turn = Turn(next(self._numbers), alone, at_most, slot_id, threading.get_ident())
        self._enter(turn, after)
        try:
            # A lock alone: an interrupt inside Python's own waiting, of events and futures, may
            # leave a lock released that somebody else holds.
            gate = threading.Lock()
            gate.acquire()
            turn.add_done_callback(lambda _: gate.release())
            while not turn.done():
                before = self._moves_of(turn)
                gate.acquire(timeout=self._timeout(wait_for))
                self._check(turn, wait_for, before)
            yield turn
        finally:
            self._leave(turn)

    @asynccontextmanager
    async def one_async(
        self,
        wait_for: bool | float,
        *,
        alone: bool = False,
        at_most: int | None = None,
        slot_id: int = -1,
        after: Turn | None = None,
    ) -> AsyncIterator[Turn]:
        """The same, after a wait of the running task."""
        wait_for = check_wait(wait_for)
        turn = Turn(next(self._numbers), alone, at_most, slot_id)
        self._enter(turn, after)
        try:
            while not turn.done():
                before = self._moves_of(turn)
                await asyncio.wait([asyncio.wrap_future(turn)], timeout=self._timeout(wait_for))
                self._check(turn, wait_for, before)
            yield turn
        finally:
            self._leave(turn)

    def _timeout(self, wait_for: bool | float) -> float:
        seconds = self.patience if wait_for is True else float(wait_for)
        return min(max(seconds, 0.0), threading.TIMEOUT_MAX)

    def _check(self, turn: Turn, wait_for: bool | float, before: tuple[bool, int]) -> None:
        """Raise where the wait is over and the turn has not come."""
        has_moved = wait_for is True and self._moves_of(turn) != before
        if not turn.done() and not has_moved and turn.cancel():
            timeout = self._timeout(wait_for)
            waited = f" after {timeout:g} s" if timeout else ""
            if self._slot_is_taken(turn):
                raise BusyError(
                    f"slot {turn.slot_id} is in use by another request{waited} "
                    f"(options wait, slot_wait_ms)"
                )
            if self._is_kept_by_its_like(turn) and self.n_inside < self.n:
                raise BusyError(f"{turn.at_most} of its kind run, as many as there may be{waited}")
            raise BusyError(
                f"all {self.n} slots are in use by open streams{waited} "
                f"(options n_slots, slot_wait_ms)"
            )

    def _moves_of(self, turn: Turn) -> tuple[bool, int]:
        """Return what changes when somebody goes in or out whom a turn waits for."""
        if self._slot_is_taken(turn):
            return True, self._moves_of_slot[turn.slot_id]
        return False, self.n_moves

    def _enter(self, turn: Turn, after: Turn | None = None) -> None:
        with self._lock:
            holder = self._holder_of(turn.slot_id)
            if holder is not None and holder.thread is not None and holder.thread == turn.thread:
                raise InvalidArgumentError(
                    f"slot {turn.slot_id} is busy with an unfinished stream of this thread: close "
                    f"that first, or it would be waited for without end"
                )
            of_kind = None if turn.at_most is None else -1
            queue = self._waiting[turn.slot_id if turn.slot_id >= 0 else of_kind]
            if after is None:
                queue.append(turn)
            else:
                turn.number = after.number
                turn.not_before = after.n_left + 2  # this caller has left, and another one must
                queue.appendleft(turn)
            self._let_in()

    @property
    def n_inside(self) -> int:
        """How many are inside."""
        return len(self._visitors())

    @property
    def n_waiting(self) -> int:
        """How many wait, or have just given it up."""
        return sum(len(queue) for queue in list(self._waiting.values()))

    def _visitors(self) -> list[Turn]:
        # A copy in one step: who reads it without the lock meets no change on the way.
        return [turn for one in list(self._inside) if (turn := one()) is not None]

    def _leave(self, turn: Turn) -> None:
        turn.cancel()  # if it never came
        with self._lock:
            n_inside = len(self._inside)
            self._inside = {one for one in self._inside if one() is not turn}
            self._n_left += n_inside - len(self._inside)
            self._note_move(turn)
            self._let_in()

    def _let_in(self) -> None:
        # In an order that an interrupt between two steps does no harm to.
        self._inside = {one for one in self._inside if one() is not None}
        while (turn := self._next()) is not None:
            if turn.running() or turn.set_running_or_notify_cancel():
                turn.n_left = self._n_left
                self._inside.add(weakref.ref(turn))
                self._note_move(turn)
                turn.set_result(None)

    def _note_move(self, turn: Turn) -> None:
        self.n_moves += 1
        if turn.slot_id >= 0:
            self._moves_of_slot[turn.slot_id] += 1

    def _next(self) -> Turn | None:
        """Return the first of those who wait and whom there is room for."""
        for kind, queue in list(self._waiting.items()):
            while queue and queue[0].done():
                queue.popleft()
            if not queue:
                del self._waiting[kind]
        for turn in sorted((each[0] for each in self._waiting.values()), key=attrgetter("number")):
            if len(self._inside) >= self._room_for(turn):
                return None
            is_kept = self._is_kept_by_its_like(turn) or self._slot_is_taken(turn)
            if not is_kept and not self._is_early(turn):
                return turn
        return None

    def _holder_of(self, slot_id: int) -> Turn | None:
        """Return who is inside and named a slot."""
        if slot_id < 0:
            return None
        return next((one for one in self._visitors() if one.slot_id == slot_id), None)

    def _slot_is_taken(self, turn: Turn) -> bool:
        return self._holder_of(turn.slot_id) not in (None, turn)

    def _is_early(self, turn: Turn) -> bool:
        """Return whether its slot still holds the stream of a caller that named none."""
        return turn.not_before > self._n_left

    def _is_kept_by_its_like(self, turn: Turn) -> bool:
        if turn.at_most is None:
            return False
        return sum(one.at_most is not None for one in self._visitors()) >= turn.at_most

    def _room_for(self, turn: Turn) -> int:
        """Return how many may be inside with it, itself included."""
        return 1 if turn.alone or any(one.alone for one in self._visitors()) else self.n


class Turn(Future[None]):
    """One's place, from the wait to the end of the visit.

    `thread` is that of a visitor who blocks it; a task on an event loop has none. `n_left` is how
    many callers had left when this one came in, and `not_before` how many must have left first.
    """

    def __init__(
        self, number: int, alone: bool, at_most: int | None, slot_id: int, thread: int | None = None
    ) -> None:
        super().__init__()
        self.number = number
        self.alone = alone
        self.at_most = at_most
        self.slot_id = slot_id
        self.thread = thread
        self.n_left = 0
        self.not_before = 0
