"""Run requests when it is their turn, and again if that can help."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import aclosing, closing, contextmanager
from typing import TypeVar

from ..errors import BusyError, ContextFullError, ElizaError, FillError
from .lifecycle import Work
from .threads import Threads
from .turns import Turn, Turns, check_wait

__all__ = ["Scheduler"]

T = TypeVar("T")


class Scheduler:
    """Runs the requests for the slots of one context.

    A request waits for its turn and then runs. Two failures make it run again, unless it has given
    out a step:

    - The slots share the context's cells, and the other requests left too little room. If the
      request fits into the context alone, it runs again when the others have ended.
    - It names a slot, and the slot holds the stream of a request that named none. Only the library
      knows which slot such a stream has. The request gives up its turn, and runs again when another
      request has ended.

    Parameters
    ----------
    turns
    threads
        Threads for event loops.
    n_ctx
        Returns the context's length in tokens, or None if it is not known.
    slots_wait
        Whether the library itself waits for a slot that is in use.
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
        """Yield the steps of a request, the last of which is its result, after a wait for a slot.

        Parameters
        ----------
        work
        wait
            As :meth:`~eliza_ffi.session.turns.Turns.one`; False does not wait for the others
            either, and takes any slot, however many requests of its kind run.
        """
        attempt = _Attempt(work, check_wait(wait))
        while True:
            try:
                with (
                    self.turns.one(
                        attempt.wait,
                        alone=attempt.alone,
                        at_most=attempt.at_most,
                        slot_id=work.slot_id,
                        after=attempt.after,
                    ) as turn,
                    attempt.running(turn, self.turns),
                    closing(work.steps()) as steps,
                ):
                    for step in steps:
                        attempt.has_given_out = True
                        yield step
                return
            except ElizaError as error:
                fits = _is_full(error) and self._fits(work)
                attempt = attempt.following(error, fits, not self._slots_wait)

    async def steps_async(self, work: Work[T], wait: bool | float) -> AsyncGenerator[T, None]:
        """The same on an event loop, the request on a thread. Leave early through ``aclose()``."""
        attempt = _Attempt(work, check_wait(wait))
        while True:
            try:
                async with self.turns.one_async(
                    attempt.wait,
                    alone=attempt.alone,
                    at_most=attempt.at_most,
                    slot_id=work.slot_id,
                    after=attempt.after,
                ) as turn:
                    with attempt.running(turn, self.turns):
                        async with aclosing(self.threads.steps(work)) as steps:
                            async for step in steps:
                                attempt.has_given_out = True
                                yield step
                return
            except ElizaError as error:
                fits = _is_full(error) and await self.threads.run(self._fits, work)
                attempt = attempt.following(error, fits, not self._slots_wait)

    def _fits(self, work: Work[T]) -> bool:
        n_ctx = self._n_ctx()
        return n_ctx is None or work.n_tokens <= n_ctx


class _Attempt:
    """One of the runs of a request.

    Parameters
    ----------
    work
    wait
        As :meth:`Scheduler.steps`.
    alone
        Whether the run must be the only one.
    after
        The turn of an earlier run that found its slot in use.
    reason
        The error of an earlier run, to be raised if this one gets no turn.
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
        self.at_most = work.at_most if wait and not alone else None
        self.after = after
        self.has_given_out = False
        self._work = work
        self._reason = reason
        self._begin = time.monotonic()
        self._turn: Turn | None = None
        self._was_alone = False

    @contextmanager
    def running(self, turn: Turn, turns: Turns) -> Iterator[None]:
        """Note the turn, and whether other requests run at the same time."""
        self._turn = turn
        is_alone, n_moves = turns.n_inside == 1, turns.n_moves
        try:
            yield
        finally:
            self._was_alone = is_alone and turns.n_moves == n_moves

    def following(self, error: ElizaError, fits: bool, may_try_slot: bool) -> _Attempt:
        """Return the next attempt after a failed one, or raise the error.

        Parameters
        ----------
        error
        fits
            Whether the context was full, and is long enough for this request alone.
        may_try_slot
            Whether to try a slot again that was in use.
        """
        is_busy = isinstance(error, BusyError)
        if is_busy and self._turn is None and self._reason is not None:
            raise self._reason from self._reason.__cause__
        if self.has_given_out or self.wait is False:
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
