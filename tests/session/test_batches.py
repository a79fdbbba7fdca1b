"""Batches: results are in the order of the items, and items are read only when needed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from eliza_ffi.errors import GenerationCancelledError
from eliza_ffi.session.batches import run_in_order


class Work:
    """A job that calls a function with the event `was_cancelled`."""

    def __init__(self, call: Callable[[threading.Event], int]) -> None:
        self.was_cancelled = threading.Event()
        self._call = call

    def run(self) -> int:
        return self._call(self.was_cancelled)

    def cancel(self) -> None:
        self.was_cancelled.set()


def test_results_are_in_the_order_of_the_items() -> None:
    def start(i: int) -> Work:
        return Work(lambda cancelled: time.sleep(0.002 * (7 - i % 8)) or i)

    assert list(run_in_order(range(40), start, at_once=8, look_ahead=20)) == list(range(40))


def test_items_are_read_only_up_to_the_look_ahead() -> None:
    first_may_end = threading.Event()
    n_read = 0
    n_ended = 0

    def items() -> Iterator[int]:
        nonlocal n_read
        for i in range(100):
            n_read += 1
            yield i

    def start(i: int) -> Work:
        def call(cancelled: threading.Event) -> int:
            nonlocal n_ended
            if i == 0:
                first_may_end.wait()
            n_ended += 1
            if i == 9:  # the last item that may begin while the first one runs
                first_may_end.set()
            return i

        return Work(call)

    results = run_in_order(items(), start, at_once=2, look_ahead=10)
    assert next(results) == 0
    assert n_read == 10
    assert list(results) == list(range(1, 100))
    assert n_ended == 100


def test_an_exception_is_raised_in_order_and_cancels_running_jobs() -> None:
    begun = threading.Event()
    jobs: list[Work] = []

    def start(i: int) -> Work:
        def call(cancelled: threading.Event) -> int:
            if i == 1:
                begun.wait()
                raise ValueError("the second")
            if i == 2:
                begun.set()
                assert cancelled.wait(30)
                raise GenerationCancelledError("ended")
            return i

        jobs.append(Work(call))
        return jobs[-1]

    results = run_in_order(range(9), start, at_once=2, look_ahead=4)
    assert next(results) == 0
    with pytest.raises(ValueError, match="the second"):
        next(results)
    assert len(jobs) < 9


def test_closing_the_results_cancels_running_jobs() -> None:
    endless = threading.Event()

    def start(i: int) -> Work:
        def call(cancelled: threading.Event) -> int:
            if i > 0:
                endless.set()
                assert cancelled.wait(30)
            else:
                endless.wait()
            return i

        return Work(call)

    results = run_in_order(range(9), start, at_once=3, look_ahead=6)
    assert next(results) == 0
    results.close()
    assert not [each for each in threading.enumerate() if each.name.startswith("eliza-ffi-many")]
