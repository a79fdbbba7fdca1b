"""Batches: results are in the order of the items, and items are read only when needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from eliza_ffi.errors import GenerationCancelledError
from eliza_ffi.session.batches import run_in_order


def nothing() -> None: ...


def test_items_are_read_only_up_to_the_look_ahead() -> None:
    first_may_end = threading.Event()
    n_read = n_ended = 0

    def items() -> Iterator[int]:
        nonlocal n_read
        for i in range(100):
            n_read += 1
            yield i

    def run(i: int) -> int:
        nonlocal n_ended
        if i == 0:
            first_may_end.wait()
        n_ended += 1
        if i == 9:  # the last item that may begin while the first one runs
            first_may_end.set()
        return i

    results = run_in_order(items(), run, nothing, at_once=2, look_ahead=10)
    assert next(results) == 0
    assert n_read == 10
    assert list(results) == list(range(1, 100))
    assert n_ended == 100


def test_an_exception_is_raised_in_order_and_cancels_running_calls() -> None:
    begun, cancelled = threading.Event(), threading.Event()
    started: list[int] = []

    def run(i: int) -> int:
        started.append(i)
        if i == 1:
            begun.wait()
            raise ValueError("the second")
        if i == 2:
            begun.set()
            assert cancelled.wait(30)
            raise GenerationCancelledError("ended")
        return i

    results = run_in_order(range(9), run, cancelled.set, at_once=2, look_ahead=4)
    assert next(results) == 0
    with pytest.raises(ValueError, match="the second"):
        next(results)
    assert len(started) < 9


def test_closing_the_results_cancels_running_calls() -> None:
    cancelled = threading.Event()
    run = lambda i: i == 0 or cancelled.wait(5)  # noqa: E731
    results = run_in_order(range(9), run, cancelled.set, at_once=3, look_ahead=6)
    assert next(results)
    results.close()
    assert cancelled.is_set()
