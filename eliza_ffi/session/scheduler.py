"""Run requests when a slot is free, and again if their named slot was in use."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, TypeVar

from ..errors import BusyError
from .lifecycle import Work
from .threads import Threads
from .turns import Turn, Turns, check_wait

__all__ = ["Scheduler"]

T = TypeVar("T")


class Scheduler:
    """Runs the requests of one context, each in a slot.

    A request waits for its turn and then runs. If it names a slot, and a request that named no slot
    is using this slot, it gives up its turn, and runs again when another request has ended. Only
    the library knows which slots the requests without a name use.

    `threads` run the requests of event loops. `slots_wait` says whether the library itself waits
    for a free slot.
    """

    def __init__(
        self,
        turns: Turns,
        threads: Threads,
        *,
        slots_wait: bool,
    ) -> None:
        self.turns = turns
        self.threads = threads
        self._slots_wait = slots_wait

    def steps(self, work: Work[T], wait: bool | float) -> Generator[T, None, None]:
        """Wait for a slot, and yield the steps of a request. The last step is its result.

        `wait` is as `wait_for` of :meth:`~eliza_ffi.session.turns.Turns.one`. If it is False, the
        request never runs again, and the limit `work.at_most` does not apply to it.
        """
        attempt = _Attempt(work, check_wait(wait))
        while True:
            try:
                with (
                    self.turns.one(attempt.wait, **attempt.place) as attempt.turn,
                    closing(work.steps()) as steps,
                ):
                    for step in steps:
                        attempt.has_yielded = True
                        yield step
                return
            except BusyError as error:
                attempt = attempt.following(error, may_try_slot=not self._slots_wait)

    async def steps_async(self, work: Work[T], wait: bool | float) -> AsyncGenerator[T, None]:
        """Do the same as :meth:`steps`, with the request on a thread; ``aclose()`` stops it."""
        attempt = _Attempt(work, check_wait(wait))
        while True:
            try:
                async with (
                    self.turns.one_async(attempt.wait, **attempt.place) as attempt.turn,
                    aclosing(self.threads.steps(work)) as steps,
                ):
                    async for step in steps:
                        attempt.has_yielded = True
                        yield step
                return
            except BusyError as error:
                attempt = attempt.following(error, may_try_slot=not self._slots_wait)


class _Attempt:
    """One attempt to run a request.

    `after` is the turn of an earlier attempt that found its slot in use. `reason` is the error of
    an earlier attempt. It is raised if this attempt gets no turn.
    """

    def __init__(
        self,
        work: Work[T],
        wait: bool | float,
        *,
        after: Turn | None = None,
        reason: BusyError | None = None,
    ) -> None:
        self.wait = wait
        self.place: dict[str, Any] = {
            "at_most": work.at_most if wait else None,
            "slot_id": work.slot_id,
            "after": after,
        }
        self.has_yielded = False
        self._work = work
        self._reason = reason
        self._begin = time.monotonic()
        self.turn: Turn | None = None

    def following(self, error: BusyError, *, may_try_slot: bool) -> _Attempt:
        """Return the next attempt after a failed one, or raise the error.

        `may_try_slot` says whether to try again if the named slot was in use.
        """
        if self.turn is None and self._reason is not None:
            raise self._reason from self._reason.__cause__
        names_slot = self._work.slot_id >= 0 and self.turn is not None
        if self.has_yielded or not names_slot or not may_try_slot or self._rest_of_wait <= 0:
            raise error
        return _Attempt(
            self._work, self._rest_of_wait, after=self.turn, reason=self._reason or error
        )

    @property
    def _rest_of_wait(self) -> bool | float:
        if self.wait is True:
            return True
        return max(0.0, float(self.wait) - (time.monotonic() - self._begin))
