"""Read the results of a Model and of an AsyncModel in the same way, and cancel tasks."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest


def check_cancelling_ends_calls(
    monkeypatch: pytest.MonkeyPatch, binding: Any, name: str, work: Callable[[], Awaitable[Any]]
) -> None:
    """Check that few of thousands of calls of the library run if the work is cancelled."""
    n_calls, has_begun = 0, threading.Event()
    call = getattr(binding, name)

    def counted(*arguments: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        has_begun.set()
        return call(*arguments)

    monkeypatch.setattr(binding, name, counted)

    async def story() -> None:
        task = asyncio.ensure_future(work())
        assert await asyncio.to_thread(has_begun.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(story())
    n_at_the_end = n_calls
    time.sleep(0.05)
    assert n_calls == n_at_the_end < 1000


async def result_of(found: Any) -> Any:
    """Await a result, or read an iterator to its end and return its items."""
    if hasattr(found, "__aiter__"):
        return [each async for each in found]
    if inspect.isawaitable(found):
        return await found
    return list(found) if isinstance(found, Iterator) else found
