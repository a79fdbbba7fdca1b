"""Run many requests, a limited number at the same time, with the results in order."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from queue import SimpleQueue
from typing import Any, Literal, TypeVar, get_origin

from ..checks import check_callback, check_flag, check_ordered
from ..choices.label_set import LabelSet, as_label_set
from ..errors import ElizaError, GenerationCancelledError, InvalidArgumentError
from .task import Task
from .threads import tell

Item = TypeVar("Item")
Result = TypeVar("Result")

Progress = Callable[[int, "int | None"], Any]
"""A callback with the number of finished requests and the total, which is None if unknown."""

OnError = Callable[[int, Exception], Any]
"""Called with the number of an item, from 0, and the exception of its task. Returns the result of
the item, or raises an exception, which ends all tasks."""


def length_of(items: Iterable[Any]) -> int | None:
    """Return the number of items, or None if the iterable has no length."""
    return len(items) if isinstance(items, Sized) else None


def labels_for(prompts: Iterable[Item], labels: Any) -> Iterable[tuple[Item, Any]]:
    """Return each prompt with its labels. The prompts are read one by one.

    `labels` is one label set for all prompts, in any form that ``choose`` takes, or an iterable
    with one label set per prompt.
    """
    is_one_set = (
        isinstance(labels, str | type | Mapping | LabelSet) or get_origin(labels) is Literal
    )
    if is_one_set or not isinstance(labels, Iterable):  # a Literal is iterable
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

    The name of an item is `called` with its number, such as ``inputs[2]``. An error about another
    argument, which all items have in common, stays as it is.
    """

    def raise_named(i: int, error: Exception) -> Any:
        is_of_item = getattr(error, "argument", None) in (None, called.removesuffix("s"))
        if is_of_item and isinstance(error, ElizaError) and error.args:
            error.args = (f"{called}[{i}]: {error.args[0]}", *error.args[1:])
        raise error

    keeps = check_flag("return_exceptions", return_exceptions)
    return (lambda i, error: error) if keeps else raise_named


def run_many(
    items: Iterable[Item],
    start: Callable[[Item], Task[Result]],
    *,
    at_once: int,
    total: int | None,
    progress: Progress | None,
    on_error: OnError,
) -> list[Any]:
    """Run a task for each item on threads, and return the results in the order of the items.

    Each item is read when one of `at_once` threads is free for it, and `start` makes its task on
    that thread. `total` is the number of items, None if it is unknown.
    """
    check_callback("progress", progress)
    results, running = dict[int, Any](), Running(start)
    with closing(_ended(items, running.run, running.cancel, at_once)) as ended:
        for i, future in ended:
            results[i] = _result_of(i, future, on_error)
            if progress is not None:
                progress(len(results), total)
    return [results[i] for i in range(len(results))]


def run_in_order(
    items: Iterable[Item],
    run: Callable[[Item], Result],
    cancel: Callable[[], None],
    *,
    at_once: int,
    look_ahead: int,
) -> Generator[Result, None, None]:
    """Call `run` with each item on threads, and yield the results in the order of the items.

    Use this function if the results of all items would not fit into memory. If the generator is
    closed, or a call raises an exception, `cancel` should end the running calls.

    `look_ahead` is the maximum number of calls that have begun but whose results have not been
    yielded; at least `at_once`. While a slow call runs, later ones may return. Their results are
    kept until the slow one returns.
    """
    finished: dict[int, Future[Result]] = {}
    n_yielded = 0
    with closing(_ended(items, run, cancel, at_once, lambda: n_yielded + look_ahead)) as ended:
        for i, future in ended:
            finished[i] = future
            while n_yielded in finished:
                result = finished.pop(n_yielded).result()
                n_yielded += 1
                yield result


def _ended(
    items: Iterable[Item],
    run: Callable[[Item], Result],
    cancel: Callable[[], None],
    at_once: int,
    before: Callable[[], int] | None = None,
) -> Generator[tuple[int, Future[Result]], None, None]:
    """Call `run` with each item on threads; yield an item's number and future when its call ends.

    Items are numbered from 0. If `before` is given, only items with numbers below `before()` may
    start; the limit is read again each time a call ends.
    """
    running: dict[Future[Any], int] = {}
    # Not `concurrent.futures.wait`: an interrupt inside it may release a lock that a call holds.
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
                    future = threads.submit(run, item)
                    running[future] = i
                    n_begun = i + 1
                    future.add_done_callback(ended.put)
                if not running:
                    return
                future = ended.get()
                yield running.pop(future), future
        except BaseException:
            cancel()  # the end of the `with` block waits for these calls
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
    results: dict[int, Any] = {}
    running: dict[asyncio.Future[Any], int] = {}
    numbered = enumerate(items)
    try:
        while True:
            for i, item in itertools.islice(numbered, at_once - len(running)):
                running[asyncio.ensure_future(call(item))] = i
            if not running:
                return [results[i] for i in range(len(results))]
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                i = running.pop(future)
                results[i] = _result_of(i, future, on_error)
                await tell(progress, len(results), total)
    finally:
        for future in running:
            future.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _result_of(i: int, done: Future[Any] | asyncio.Future[Any], on_error: OnError) -> Any:
    """Return the result of item `i`, whose task has ended."""
    error = done.exception()
    if error is not None and not isinstance(error, Exception):
        raise error
    return done.result() if error is None else on_error(i, error)


class Running:
    """The running tasks. After they are cancelled, no further task begins."""

    def __init__(self, start: Callable[[Any], Task[Any]]) -> None:
        self._start = start
        self._tasks: set[Task[Any]] = set()
        self._is_cancelled = False
        self._lock = threading.Lock()

    def run(self, item: Any) -> Any:
        task = self._start(item)
        with self._lock:
            if self._is_cancelled:
                raise GenerationCancelledError("the batch was cancelled")
            self._tasks.add(task)
        try:
            return task.run()
        finally:
            with self._lock:
                self._tasks.discard(task)

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            for task in self._tasks:
                task.cancel()
