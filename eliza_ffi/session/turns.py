"""Turns at a context's slots: one first-come, first-served queue for threads and tasks."""

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
from operator import attrgetter, itemgetter
from typing import Any

from ..checks import wrong
from ..errors import BusyError, InvalidArgumentError


def check_timeout(timeout: Any) -> float | None:
    """Check that `timeout` is None or a number of seconds, and return it."""
    if timeout is None:
        return None
    with suppress(OverflowError):
        if isinstance(timeout, Real) and not isinstance(timeout, bool) and not math.isnan(timeout):
            return max(0.0, float(timeout))
    raise wrong("timeout", "a number of seconds or None", timeout)


class Turns:
    """A queue that lets at most `n` callers run at the same time.

    A caller without a time limit of its own gives up if no turn begins or ends for `timeout`
    seconds. As long as the queue moves, the caller keeps waiting.
    """

    def __init__(self, n: int, timeout: float) -> None:
        self.n = n
        self.timeout = timeout
        # Weak references, so that a caller killed by an interrupt does not occupy a place for ever.
        # Not a `WeakSet`: it removes items in a callback, and an interrupt inside that callback
        # would be lost, and the item would stay.
        self._running: set[weakref.ref[Turn]] = set()
        # One queue for the callers without restrictions (None), one for the callers with a limit
        # `at_most` (-1), and one for each named slot. Each is in the order of arrival.
        self._waiting: defaultdict[int | None, deque[Turn]] = defaultdict(deque)
        # By the slot that was named: how many turns have begun, plus how many have ended.
        self._moves: Counter[int] = Counter()
        self._numbers = itertools.count()
        self._n_left = 0
        self._lock = threading.RLock()

    @contextmanager
    def one(
        self,
        timeout: float | None,
        *,
        at_most: int | None = None,
        slot_id: int = -1,
        after: Turn | None = None,
    ) -> Iterator[Turn]:
        """Wait on this thread for a turn, and hold it for the duration of the ``with`` block.

        Wait at most `timeout` seconds; None = the queue's own timeout, 0 = do not wait. With
        `at_most`, wait until fewer than `at_most` callers that also set it are running. With a
        `slot_id`, wait until no caller that named the same slot is running; -1 = no slot is named.
        In both cases, other callers may overtake this one.

        `after` is an earlier turn of this caller that failed, because its slot was in use by a
        caller that had named no slot. The new turn takes over its place in the queue, and begins
        when another caller has ended.
        """
        turn = Turn(next(self._numbers), at_most, slot_id, threading.get_ident())
        self._enter(turn, after)
        try:
            if not turn.done():
                # Wait with a plain lock. The wait methods of events and futures are written in
                # Python: an interrupt inside them may release a lock that another thread holds.
                gate = threading.Lock()
                gate.acquire()
                turn.add_done_callback(lambda _: gate.release())
                for seconds in self._waits(turn, timeout):
                    gate.acquire(timeout=seconds)
            yield turn
        finally:
            self._leave(turn)

    @asynccontextmanager
    async def one_async(
        self,
        timeout: float | None,
        *,
        at_most: int | None = None,
        slot_id: int = -1,
        after: Turn | None = None,
    ) -> AsyncIterator[Turn]:
        """Do the same as :meth:`one`, but wait as an asyncio task."""
        turn = Turn(next(self._numbers), at_most, slot_id)
        self._enter(turn, after)
        try:
            for seconds in self._waits(turn, timeout):
                await asyncio.wait([asyncio.wrap_future(turn)], timeout=seconds)
            yield turn
        finally:
            self._leave(turn)

    def _waits(self, turn: Turn, timeout: float | None) -> Iterator[float]:
        """Yield the seconds to wait until a turn has begun; raise BusyError if it is late."""
        while not turn.done():
            before = self._moves_of(turn)
            yield self._seconds(timeout)
            self._check(turn, timeout, before)

    def _seconds(self, timeout: float | None) -> float:
        seconds = self.timeout if timeout is None else timeout
        return min(max(seconds, 0.0), threading.TIMEOUT_MAX)

    def _check(self, turn: Turn, timeout: float | None, before: tuple[bool, int]) -> None:
        """Raise BusyError if the wait is over and the turn has not begun."""
        has_moved = timeout is None and self._moves_of(turn) != before
        if not turn.done() and not has_moved and turn.cancel():
            seconds = self._seconds(timeout)
            waited = f" after {seconds:g} s" if seconds else ""
            if self._slot_is_taken(turn):
                raise BusyError(
                    f"slot {turn.slot_id} is in use by another request{waited} "
                    f"(options timeout, slot_wait_ms)"
                )
            if self._is_at_limit(turn) and self.n_running < self.n:
                raise BusyError(
                    f"the limit of {turn.at_most} running requests of this kind is reached{waited}"
                )
            raise BusyError(
                f"all {self.n} slots are in use by open streams{waited} "
                f"(options n_slots, slot_wait_ms)"
            )

    def _moves_of(self, turn: Turn) -> tuple[bool, int]:
        """Return a value that changes whenever the queue moves, that is, a turn begins or ends.

        If another caller holds the slot of this turn, only turns in that slot count.
        """
        if self._slot_is_taken(turn):
            return True, self._moves[turn.slot_id]
        return False, self._moves.total()

    def _enter(self, turn: Turn, after: Turn | None = None) -> None:
        with self._lock:
            holder = None if turn.slot_id < 0 else self._holder_of(turn.slot_id)
            if holder is not None and holder.thread is not None and holder.thread == turn.thread:
                raise InvalidArgumentError(
                    f"slot {turn.slot_id} is busy with an unfinished stream of this thread, and "
                    f"the thread would wait for itself: close that stream first"
                )
            of_kind = None if turn.at_most is None else -1
            queue = self._waiting[turn.slot_id if turn.slot_id >= 0 else of_kind]
            if after is None:
                queue.append(turn)
            else:
                turn.number = after.number
                # Two turns must end first: the caller's own earlier turn, and another caller's.
                turn.not_before = after.n_left + 2
                queue.appendleft(turn)
            self._let_in()

    @property
    def n_running(self) -> int:
        """How many callers are running."""
        return len(self._running_turns())

    @property
    def n_waiting(self) -> int:
        """How many callers are waiting, or have just stopped waiting."""
        return sum(len(queue) for queue in list(self._waiting.values()))

    def _running_turns(self) -> list[Turn]:
        # Copy the set in one step, because callers without the lock must not see it change.
        return [turn for one in list(self._running) if (turn := one()) is not None]

    def _leave(self, turn: Turn) -> None:
        turn.cancel()  # in case it never began
        with self._lock:
            held = weakref.ref(turn)
            if held in self._running:
                self._running.discard(held)
                self._n_left += 1
            self._moves[turn.slot_id] += 1
            self._let_in()

    def _let_in(self) -> None:
        # The order of these steps keeps the state valid if an interrupt comes between two of them.
        while True:
            for kind, queue in list(self._waiting.items()):
                while queue and queue[0].done():
                    queue.popleft()
                if not queue:
                    del self._waiting[kind]
            if not self._waiting or (turn := self._next()) is None:
                return
            if turn.running() or turn.set_running_or_notify_cancel():
                turn.n_left = self._n_left
                self._running.add(weakref.ref(turn))
                self._moves[turn.slot_id] += 1
                turn.set_result(None)

    def _next(self) -> Turn | None:
        """Return the first waiting turn that may begin now."""
        if len(self._running) >= self.n:
            self._running = {one for one in self._running if one() is not None}
            if len(self._running) >= self.n:
                return None
        first = map(itemgetter(0), self._waiting.values())
        return min(filter(self._may_begin, first), key=attrgetter("number"), default=None)

    def _may_begin(self, turn: Turn) -> bool:
        if turn.at_most is not None and self._is_at_limit(turn):
            return False
        # A caller that named no slot may still use the slot of an early turn.
        is_early = turn.not_before > self._n_left
        return turn.slot_id < 0 or not (is_early or self._slot_is_taken(turn))

    def _holder_of(self, slot_id: int) -> Turn | None:
        """Return the running turn that named a slot."""
        return next((one for one in self._running_turns() if one.slot_id == slot_id), None)

    def _slot_is_taken(self, turn: Turn) -> bool:
        return turn.slot_id >= 0 and self._holder_of(turn.slot_id) not in (None, turn)

    def _is_at_limit(self, turn: Turn) -> bool:
        """Return whether the limit `at_most` keeps a turn waiting."""
        if turn.at_most is None or len(self._running) < turn.at_most:
            return False
        n_limited = sum(one.at_most is not None for one in self._running_turns())
        return n_limited >= turn.at_most


class Turn(Future[None]):
    """A caller's place in the queue, and then its turn. The future is done when the turn begins.

    `thread` is the thread that the caller blocks; None for a task on an event loop. `n_left` is the
    number of turns that had ended when this turn began. `not_before` is the number of turns that
    must end before this turn may begin.
    """

    def __init__(
        self, number: int, at_most: int | None, slot_id: int, thread: int | None = None
    ) -> None:
        super().__init__()
        self.number = number
        self.at_most = at_most
        self.slot_id = slot_id
        self.thread = thread
        self.n_left = 0
        self.not_before = 0
