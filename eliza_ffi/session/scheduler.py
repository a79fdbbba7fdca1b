"""Run requests when a slot is free, and run them again after failures that a rerun can fix."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, closing, contextmanager
from typing import Any, TypeVar

from ..errors import BusyError, ContextFullError, ElizaError, FillError
from .lifecycle import Work
from .threads import Threads
from .turns import Turn, Turns, check_wait

__all__ = ["Scheduler"]

T = TypeVar("T")


class Scheduler:
    """Runs the requests of one context, each in a slot.

    A request waits for its turn and then runs. It runs again after one of two failures, unless it
    has already yielded a step:

    - The context is full. All slots share the context, and other requests may fill it. If the
      request fits into an empty context, it runs again, alone, when the others have ended.
    - The request names a slot, and a request that named no slot is using it. Only the library knows
      which slots such requests use. The request gives up its turn, and runs again when another
      request has ended.

    `threads` run the requests of event loops. `n_ctx` returns the length of the context in tokens,
    or None if it is unknown. `slots_wait` says whether the library itself waits for a free slot.
    """

    def __init__(
        self,
        turns: Turns,
        threads: Threads,
        *,
        n_ctx: Callable[[], int | None],
        slots_wait: bool,
    ) -> None:
        self.turns = turns
        self.threads = threads
        self._n_ctx = n_ctx
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
                    self.turns.one(attempt.wait, **attempt.place) as turn,
                    attempt.running(turn, self.turns),
                    closing(work.steps()) as steps,
                ):
                    for step in steps:
                        attempt.has_yielded = True
                        yield step
                return
            except ElizaError as error:
                fits = _is_full(error) and self._fits(work)
                attempt = attempt.following(error, fits, not self._slots_wait)

    async def steps_async(self, work: Work[T], wait: bool | float) -> AsyncGenerator[T, None]:
        """Do the same as :meth:`steps`, with the request on a thread; ``aclose()`` stops it."""
        attempt = _Attempt(work, check_wait(wait))
        while True:
            try:
                async with self.turns.one_async(attempt.wait, **attempt.place) as turn:
                    with attempt.running(turn, self.turns):
                        async with aclosing(self.threads.steps(work)) as steps:
                            async for step in steps:
                                attempt.has_yielded = True
                                yield step
                return
            except ElizaError as error:
                fits = _is_full(error) and await self.threads.run(self._fits, work)
                attempt = attempt.following(error, fits, not self._slots_wait)

    def _fits(self, work: Work[T]) -> bool:
        n_ctx = self._n_ctx()
        return n_ctx is None or work.n_tokens <= n_ctx


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
        alone: bool = False,
        after: Turn | None = None,
        reason: ElizaError | None = None,
    ) -> None:
        self.wait = wait
        self.alone = alone
        at_most = work.at_most if wait and not alone else None
        self.place: dict[str, Any] = {
            "alone": alone,
            "at_most": at_most,
            "slot_id": work.slot_id,
            "after": after,
        }
        self.has_yielded = False
        self._work = work
        self._reason = reason
        self._begin = time.monotonic()
        self._turn: Turn | None = None
        self._was_alone = False

    @contextmanager
    def running(self, turn: Turn, turns: Turns) -> Iterator[None]:
        """Record the turn, and whether other requests ran at the same time."""
        self._turn = turn
        is_alone, n_moves = turns.n_running == 1, turns.n_moves
        try:
            yield
        finally:
            self._was_alone = is_alone and turns.n_moves == n_moves

    def following(self, error: ElizaError, fits: bool, may_try_slot: bool) -> _Attempt:
        """Return the next attempt after a failed one, or raise the error.

        `fits` says whether the context was full, but is long enough for this request alone;
        `may_try_slot` whether to try again if the named slot was in use.
        """
        is_busy = isinstance(error, BusyError)
        if is_busy and self._turn is None and self._reason is not None:
            raise self._reason from self._reason.__cause__
        if self.has_yielded or self.wait is False:
            raise error
        if fits and not self.alone and not self._was_alone:
            return _Attempt(self._work, self._rest_of_wait, alone=True, reason=error)
        names_slot = self._work.slot_id >= 0 and self._turn is not None
        if is_busy and names_slot and may_try_slot and self._rest_of_wait > 0:
            return _Attempt(
                self._work,
                self._rest_of_wait,
                alone=self.alone,
                after=self._turn,
                reason=self._reason or error,
            )
        raise error

    @property
    def _rest_of_wait(self) -> bool | float:
        if self.wait is True:
            return True
        return max(0.0, float(self.wait) - (time.monotonic() - self._begin))


def _is_full(error: ElizaError) -> bool:
    reason = error.__cause__ if isinstance(error, FillError) else error
    return isinstance(reason, ContextFullError)
