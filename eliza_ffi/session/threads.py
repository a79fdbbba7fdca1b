"""Threads for calls that would block an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import deque
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from ..errors import ElizaError
from .run import Run

MAX_SLOTS = 64
"""Maximum number of slots of a context, and so of threads that run generations at one time."""

DELIVERY_SECONDS = 0.001
"""The time that an event loop waits for the tokens of other streams before it handles a token."""

T = TypeVar("T")
Step = TypeVar("Step")


class Threads:
    """A pool of threads. A thread starts when it is needed, and lives until the pool is closed.

    If a task is cancelled while its call runs on a thread, the task ends only after the call has
    returned. So no call outlives its task.
    """

    def __init__(self, n_threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
        self._inboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Inbox] = WeakKeyDictionary()
        self._is_closed = False

    async def run(
        self, call: Callable[..., T], *arguments: Any, cancel: Callable[[], None] | None = None
    ) -> T:
        """Run a call on a thread, and return its result.

        `cancel` is called when the task is cancelled, to end the call early. Raises ElizaError if
        the pool is closed.
        """
        context = contextvars.copy_context()
        future = self._start(partial(context.run, call, *arguments))
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            if cancel is not None:
                cancel()
            await _ended(future)
            raise
        return future.result()

    async def steps(self, run: Run[Step]) -> AsyncGenerator[Step, None]:
        """Do the run on a thread, and yield its steps; to stop early, call ``aclose()``.

        The thread puts the steps into a queue. If the loop requested every step, each token would
        cost two wake-ups: of the thread and of the loop. With a queue, the thread never sleeps, and
        the loop wakes up during the next forward pass.
        """
        loop = asyncio.get_running_loop()
        inbox = self._inboxes.setdefault(loop, _Inbox())
        queue: asyncio.Queue[tuple[Step] | None] = asyncio.Queue()  # None marks the end

        def run_on_thread() -> None:
            try:
                # `closing` closes the stream even if queueing a step fails because the loop is
                # closed.
                with closing(run.steps()) as steps:
                    for n_before, step in enumerate(steps):
                        inbox.put(loop, queue, (step,), wait=n_before > 0)
            finally:
                inbox.put(loop, queue, None, wait=False)

        thread = self._start(run_on_thread)
        try:
            while (item := await queue.get()) is not None:
                yield item[0]
            await asyncio.wait([thread])
            thread.result()  # raises the run's exception after the last step
        finally:
            if not thread.done():
                run.cancel()
            await _ended(thread)

    def _start(self, call: Callable[[], T]) -> asyncio.Future[T]:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError:
            if not self._is_closed:
                raise
            raise ElizaError("the model is closed") from None
        future.add_done_callback(_mark_as_read)
        return future

    def close(self) -> None:
        """End idle threads now, and each busy thread when its call returns."""
        self._is_closed = True
        self._pool.shutdown(wait=False)


class _Inbox:
    """Passes items from threads to queues of one event loop.

    The streams of a shared forward pass finish a token at the same time, and the next pass begins
    when their threads have asked for it. If the loop handled each token at once, these threads
    would wait for the loop, because only one thread at a time can run Python. The inbox therefore
    lets the loop wait for a millisecond, and wakes it up once for all tokens.
    """

    def __init__(self) -> None:
        self._items: deque[tuple[asyncio.Queue[Any], Any]] = deque()
        self._is_called = False

    def put(
        self, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[Any], item: Any, *, wait: bool
    ) -> None:
        """Put an item into a queue of `loop`, from any thread.

        `wait` says whether the loop may wait for other items first. Raises RuntimeError if the loop
        is closed.
        """
        self._items.append((queue, item))
        if not wait:
            loop.call_soon_threadsafe(self._deliver)
        elif not self._is_called or loop.is_closed():
            self._is_called = True
            loop.call_soon_threadsafe(loop.call_later, DELIVERY_SECONDS, self._deliver)

    def _deliver(self) -> None:
        self._is_called = False  # first, so that an item that arrives now causes another call
        while self._items:
            queue, item = self._items.popleft()
            queue.put_nowait(item)


def _mark_as_read(future: asyncio.Future[Any]) -> None:
    """Keep asyncio from logging a failure that nobody reads, because it comes from a cancel."""
    if not future.cancelled():
        future.exception()


async def _ended(future: asyncio.Future[Any]) -> None:
    """Wait until a call on a thread returns; only then raise a CancelledError that has arrived."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def tell(callback: Callable[..., Any] | None, *arguments: Any) -> None:
    """Call a callback, if there is one, and await its result if that can be awaited."""
    if callback is not None:
        result = callback(*arguments)
        if inspect.isawaitable(result):
            await result
