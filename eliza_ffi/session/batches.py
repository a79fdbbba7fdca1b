"""Run many requests, a limited number at the same time, with the results in order."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from ..checks import check_callback, check_flag, check_ordered
from ..choices.label_set import LabelSet, as_label_set
from ..errors import ElizaError, GenerationCancelledError, InvalidArgumentError
from .threads import tell

Item = TypeVar("Item")
R = TypeVar("R")
Result = TypeVar("Result", covariant=True)

Progress = Callable[[int, "int | None"], Any]
"""A callback with the number of finished requests and the total, which is None if unknown."""

OnError = Callable[[int, Exception], Any]
"""Called with the number of an item, from 0, and the exception of its job. Returns the result of
the item, or raises an exception, which ends all jobs."""


class Job(Protocol[Result]):
    """A request that can be run, and cancelled from another thread."""

    def run(self) -> Result:
        """Run the request and return its result."""

    def cancel(self) -> None:
        """Cancel the request from another thread."""


@dataclass(frozen=True, eq=False)
class RunJob(Generic[R]):
    """A job made from two functions: one runs the request, the other cancels it."""

    run: Callable[[], R]
    cancel: Callable[[], None]


def length_of(items: Iterable[Any]) -> int | None:
    """Return the number of items, or None if the iterable has no length."""
    return len(items) if isinstance(items, Sized) else None


def labels_for(prompts: Iterable[Item], labels: Any) -> Iterable[tuple[Item, Any]]:
    """Return each prompt with its labels. The prompts are read one by one.

    `labels` is one label set for all prompts, in any form that ``choose`` takes, or an iterable
    with one label set per prompt.
    """
    if isinstance(labels, str | type | Mapping | LabelSet) or not isinstance(labels, Iterable):
        one_set = as_label_set(labels)
    else:
        sets = iter(check_ordered("labels", labels, "labels, or one label set for each prompt"))
        first = list(itertools.islice(sets, 1))
        if first and not isinstance(first[0], str):
            return _pairs(prompts, itertools.chain(first, sets))
        one_set = as_label_set([*first, *sets])
    return ((prompt, one_set) for prompt in prompts)


def _pairs(prompts: Iterable[Item], labels: Iterable[Any]) -> Iterator[tuple[Item, Any]]:
    missing = object()
    for i, (item, own) in enumerate(itertools.zip_longest(prompts, labels, fillvalue=missing)):
        if item is missing or own is missing:
            n_prompts, n_sets = (i, f"more than {i}") if item is missing else (f"more than {i}", i)
            raise InvalidArgumentError(
                f"expected one label set for each prompt, got {n_prompts} prompts and {n_sets} "
                f"label sets"
            )
        yield item, own  # type: ignore[misc]


def kept_or_raised(return_exceptions: bool, called: str) -> OnError:
    """Return the function that returns the exceptions of items, or raises them with a name.

    The name of an item is `called` with its number, such as ``inputs[2]``.
    """

    def raise_named(i: int, error: Exception) -> Any:
        if isinstance(error, ElizaError) and error.args:
            error.args = (f"{called}[{i}]: {error.args[0]}", *error.args[1:])
        raise error

    keeps = check_flag("return_exceptions", return_exceptions)
    return (lambda i, error: error) if keeps else raise_named


def run_many(
    items: Iterable[Item],
    start: Callable[[Item], Job[Result]],
    *,
    at_once: int,
    total: int | None,
    progress: Progress | None,
    on_error: OnError,
) -> list[Any]:
    """Run a job for each item on threads, and return the results in the order of the items.

    Parameters
    ----------
    items
        Each item is read when a thread is free for it.
    start
        Makes the job of an item, on the thread that runs it.
    at_once
        Maximum number of jobs that run at the same time.
    total
        The number of items, or None if it is unknown.
    progress
        Called on this thread with the number of finished jobs and `total`.
    on_error
        What to do with the exception of a job.
    """
    check_callback("progress", progress)
    results = _Results(on_error)
    with closing(_ended(items, start, at_once)) as ended:
        for i, future in ended:
            results.take(i, future)
            if progress is not None:
                progress(len(results), total)
    return results.in_order()


def run_in_order(
    items: Iterable[Item],
    start: Callable[[Item], Job[Result]],
    *,
    at_once: int,
    look_ahead: int,
) -> Generator[Result, None, None]:
    """Run a job for each item on threads, and yield the results in the order of the items.

    Use this function if the results of all items would not fit into memory. If the generator is
    closed, or a job raises an exception, all running jobs are cancelled.

    Parameters
    ----------
    items, start, at_once
        As :func:`run_many`.
    look_ahead
        Maximum number of jobs that have begun but whose results have not been yielded; at least
        `at_once`. While a slow job runs, later jobs may finish. Their results are kept until the
        slow job ends.
    """
    finished: dict[int, Future[Result]] = {}
    n_yielded = 0
    with closing(_ended(items, start, at_once, lambda: n_yielded + look_ahead)) as ended:
        for i, future in ended:
            finished[i] = future
            while n_yielded in finished:
                result = finished.pop(n_yielded).result()
                n_yielded += 1
                yield result


def _ended(
    items: Iterable[Item],
    start: Callable[[Item], Job[Result]],
    at_once: int,
    before: Callable[[], int] | None = None,
) -> Generator[tuple[int, Future[Result]], None, None]:
    """Run a job for each item on threads; yield each item's number and future when its job ends.

    Items are numbered from 0. If `before` is given, only items with numbers below `before()` may
    start; the limit is read again each time a job ends.
    """
    running: dict[Future[Any], int] = {}
    jobs = _Running()
    # Not `concurrent.futures.wait`: an interrupt inside it may release a lock that a job holds.
    ended: SimpleQueue[Future[Any]] = SimpleQueue()
    numbered = enumerate(items)
    n_begun = 0
    with ThreadPoolExecutor(at_once, thread_name_prefix="eliza-ffi-many") as threads:
        try:
            while True:
                room = at_once - len(running)
                if before is not None:
                    room = min(room, before() - n_begun)
                for i, item in itertools.islice(numbered, room):
                    future = threads.submit(jobs.run, start, item)
                    running[future] = i
                    n_begun = i + 1
                    future.add_done_callback(ended.put)
                if not running:
                    return
                future = ended.get()
                yield running.pop(future), future
        except BaseException:
            jobs.cancel_all()  # the end of the `with` block waits for these jobs
            raise


async def run_many_async(
    items: Iterable[Item],
    call: Callable[[Item], Awaitable[Result]],
    *,
    at_once: int,
    total: int | None,
    progress: Progress | None,
    on_error: OnError,
) -> list[Any]:
    """Do the same as :func:`run_many` on an event loop; `call` and `progress` are awaited."""
    check_callback("progress", progress)
    results = _Results(on_error)
    running: dict[asyncio.Future[Any], int] = {}
    numbered = enumerate(items)
    try:
        while True:
            for i, item in itertools.islice(numbered, at_once - len(running)):
                running[asyncio.ensure_future(call(item))] = i
            if not running:
                return results.in_order()
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                results.take(running.pop(future), future)
                await tell(progress, len(results), total)
    finally:
        for future in running:
            future.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class _Results:
    """Collects the results of jobs in the order in which they end."""

    def __init__(self, on_error: OnError) -> None:
        self._on_error = on_error
        self._of_item: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self._of_item)

    def take(self, i: int, done: Future[Any] | asyncio.Future[Any]) -> None:
        """Store the result of item `i`."""
        error = done.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        self._of_item[i] = done.result() if error is None else self._on_error(i, error)

    def in_order(self) -> list[Any]:
        return [self._of_item[i] for i in range(len(self._of_item))]


class _Running:
    """The running jobs. After they are cancelled, no further job begins."""

    def __init__(self) -> None:
        self._jobs: set[Job[Any]] = set()
        self._is_cancelled = False
        self._lock = threading.Lock()

    def run(self, start: Callable[[Item], Job[Result]], item: Item) -> Result:
        job = start(item)
        with self._lock:
            if self._is_cancelled:
                raise GenerationCancelledError("the batch was cancelled")
            self._jobs.add(job)
        try:
            return job.run()
        finally:
            with self._lock:
                self._jobs.discard(job)

    def cancel_all(self) -> None:
        with self._lock:
            self._is_cancelled = True
            for job in self._jobs:
                job.cancel()
