"""`eliza_ffi.session.threads`: steps of runs on threads reach the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest

from eliza_ffi.session.threads import Threads, _Inbox

N_RUNS, N_STEPS = 4, 20


class Together:
    """A run whose steps come at the same time as the steps of other runs."""

    def __init__(self, barrier: threading.Barrier) -> None:
        self._barrier = barrier

    def steps(self) -> Generator[int, None, None]:
        for i in range(N_STEPS):
            self._barrier.wait(10.0)
            yield i
            time.sleep(0.003)  # a forward pass

    def cancel(self) -> None:
        self._barrier.abort()


def test_steps_of_several_runs_share_a_wake_up_of_the_loop() -> None:
    threads = Threads(N_RUNS, "test")
    n_calls = 0

    async def all_steps() -> list[list[int]]:
        loop = asyncio.get_running_loop()
        call = loop.call_soon_threadsafe

        def counted(*arguments: Any, **more: Any) -> asyncio.Handle:
            nonlocal n_calls
            n_calls += 1
            return call(*arguments, **more)

        loop.call_soon_threadsafe = counted  # type: ignore[assignment,method-assign]
        barrier = threading.Barrier(N_RUNS)

        async def one() -> list[int]:
            return [step async for step in threads.steps(Together(barrier))]

        return await asyncio.gather(*(one() for _ in range(N_RUNS)))

    try:
        assert asyncio.run(all_steps()) == [[*range(N_STEPS)]] * N_RUNS
    finally:
        threads.close()
    assert n_calls < N_RUNS * N_STEPS / 2


def test_every_step_for_a_closed_loop_raises() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    inbox, queue = _Inbox(), asyncio.Queue[int]()
    for wait in (True, True, False):
        with pytest.raises(RuntimeError, match="closed"):
            inbox.put(loop, queue, 1, wait=wait)
