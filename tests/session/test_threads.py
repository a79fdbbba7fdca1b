"""`eliza_ffi.session.threads`: steps of runs on threads reach the event loop."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest

from eliza_ffi.session.threads import _Inbox


def test_steps_of_several_runs_share_a_wake_up_of_the_loop() -> None:
    loop, queue, inbox = Mock(), asyncio.Queue[int](), _Inbox()
    loop.is_closed.return_value = False
    for i in range(9):
        inbox.put(loop, queue, i, wait=True)
    loop.call_soon_threadsafe.assert_called_once()
    inbox._deliver()
    assert [queue.get_nowait() for _ in range(9)] == [*range(9)]


def test_every_step_for_a_closed_loop_raises() -> None:
    loop, inbox, queue = asyncio.new_event_loop(), _Inbox(), asyncio.Queue[int]()
    loop.close()
    for wait in (True, True, False):
        with pytest.raises(RuntimeError, match="closed"):
            inbox.put(loop, queue, 1, wait=wait)
