"""A request that a caller runs, awaits or cancels."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import aclosing, closing
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from ..structured.fill_result import FilledSpan, PartialField
from .run import Run
from .threads import tell

if TYPE_CHECKING:
    from .session import Session

P = ParamSpec("P")
R = TypeVar("R")

STEPS = (str, FilledSpan, PartialField)
"""The types of the steps that come before the result of a run."""


class Task(Generic[R]):
    """A request of one or several runs. Any thread can cancel it.

    Parameters
    ----------
    session
    runs
        The run of the request. Or a generator of runs, each of which waits for its own turn: it is
        sent the result of each run, and returns the result of the task. It may yield no run.
    timeout
        As :meth:`~eliza_ffi.session.scheduler.Scheduler.steps`.
    on_step
        Called with the steps before the result.
    read
        Converts the result of a single run to the result of the task.
    """

    def __init__(
        self,
        session: Session,
        runs: Run[Any] | Generator[Run[Any], Any, R],
        timeout: float | None = None,
        *,
        on_step: Callable[[Any], Any] | None = None,
        read: Callable[[Any], R] | None = None,
    ) -> None:
        self._session = session
        self._timeout = timeout
        self._on_step = on_step
        self._read = read
        self._lock = threading.Lock()
        self._is_cancelled = False
        self._run: Run[Any] | None = None  # the current run; None if the task is over
        self._result: Any = None
        self._runs = None if isinstance(runs, Run) else runs
        if isinstance(runs, Run):
            self._run = runs
        else:
            self._follow(None)

    def run(self) -> R:
        """Run the request on this thread, and return its result."""
        scheduler = self._session.scheduler
        while self._run is not None:
            with closing(scheduler.steps(self._run, self._timeout)) as steps:
                for step in steps:
                    if isinstance(step, STEPS) and self._on_step is not None:
                        self._on_step(step)
            self._follow(step)
        return cast(R, self._result)

    async def run_async(self) -> R:
        """Run the request on threads, and await its result."""
        scheduler = self._session.scheduler
        while self._run is not None:
            async with aclosing(scheduler.steps_async(self._run, self._timeout)) as steps:
                async for step in steps:
                    if isinstance(step, STEPS):
                        await tell(self._on_step, step)
            if self._runs is None:
                self._follow(step)
            else:  # on a thread, because the next run may be tokenized first
                await self._session.helpers.run(self._follow, step)
        return cast(R, self._result)

    def _follow(self, result: Any) -> None:
        """Prepare the next run. If there is none, set the task's result."""
        run = None
        if self._runs is None:
            self._result = result if self._read is None else self._read(result)
        else:
            try:
                run = self._runs.send(result)
            except StopIteration as end:
                self._result = end.value
        with self._lock:
            self._run = run
            if run is not None and self._is_cancelled:
                run.cancel()

    def cancel(self) -> None:
        """Cancel the current run and those that follow."""
        with self._lock:
            self._is_cancelled = True
            if self._run is not None:
                self._run.cancel()


def run_on_this_thread(
    runs: Callable[Concatenate[Session, P], Generator[Run[Any], Any, R]],
) -> Callable[Concatenate[Session, P], R]:
    """Return a function that runs what a generator function yields, and returns its result."""

    @wraps(runs)
    def run(session: Session, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return Task(session, runs(session, *args, **kwargs)).run()

    return run
