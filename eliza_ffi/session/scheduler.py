"""Run requests when a slot is free, and again if their named slot was in use."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, closing
from typing import Any, TypeVar

from ..errors import BusyError, InvalidArgumentError
from .run import Run
from .threads import Threads
from .turns import Turn, Turns, check_timeout

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

    def steps(self, run: Run[T], timeout: float | None) -> Generator[T, None, None]:
        """Wait for a slot, and yield the steps of a request. The last step is its result.

        `timeout` is as for :meth:`~eliza_ffi.session.turns.Turns.one`. If it is 0, the request
        never runs again, and the limit `run.at_most` does not apply to it.
        """
        attempt = _Attempt(run, check_timeout(timeout))
        while True:
            try:
                with (
                    self.turns.one(attempt.timeout, **attempt.place) as attempt.turn,
                    closing(run.steps()) as steps,
                ):
                    for step in steps:
                        attempt.has_yielded = True
                        yield step
                return
            except (BusyError, InvalidArgumentError) as error:
                attempt.prepare_next(error, may_try_slot=not self._slots_wait)

    async def steps_async(self, run: Run[T], timeout: float | None) -> AsyncGenerator[T, None]:
        """Do the same as :meth:`steps`, with the request on a thread; ``aclose()`` stops it."""
        attempt = _Attempt(run, check_timeout(timeout))
        while True:
            try:
                async with (
                    self.turns.one_async(attempt.timeout, **attempt.place) as attempt.turn,
                    aclosing(self.threads.steps(run)) as steps,
                ):
                    async for step in steps:
                        attempt.has_yielded = True
                        yield step
                return
            except (BusyError, InvalidArgumentError) as error:
                attempt.prepare_next(error, may_try_slot=not self._slots_wait)


class _Attempt:
    """The current attempt to run a request, within `timeout` seconds.

    `reason` is the error of an earlier attempt that found its slot in use. It is raised if this
    attempt gets no turn.
    """

    def __init__(self, run: Run[T], timeout: float | None) -> None:
        self._model = run.model
        self.timeout = timeout
        at_most = None if timeout == 0 else run.at_most
        self.place: dict[str, Any] = {"at_most": at_most, "slot_id": run.slot_id}
        self.has_yielded = False
        self.turn: Turn | None = None
        self._reason: BusyError | None = None
        self._begin = time.monotonic()

    def prepare_next(self, error: BusyError | InvalidArgumentError, *, may_try_slot: bool) -> None:
        """Prepare the next attempt after a failed one, or raise the error.

        `may_try_slot` says whether to try again if the named slot was in use.
        """
        if isinstance(error, InvalidArgumentError):  # perhaps because the model is closed
            _ = self._model.ctx  # raises if the model is closed
            raise error
        if self.turn is None and self._reason is not None:
            raise self._reason from self._reason.__cause__
        names_slot = self.place["slot_id"] >= 0 and self.turn is not None
        begin, self._begin = self._begin, time.monotonic()
        if self.timeout is not None:
            self.timeout = max(0.0, self.timeout - (self._begin - begin))
        if self.has_yielded or not names_slot or not may_try_slot or self.timeout == 0:
            raise error
        self.place["after"], self.turn = self.turn, None
        self._reason = self._reason or error
