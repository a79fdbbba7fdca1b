"""End a request at its deadline, or when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from .refusals import Refusal

__all__ = ["Deadline", "while_wanted"]

T = TypeVar("T")


class Deadline:
    """The time at which a request is cancelled.

    Parameters
    ----------
    seconds
        The time from now to the deadline.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> float:
        """Seconds until the deadline, 0 or more."""
        return max(0.0, self._end - asyncio.get_running_loop().time())

    def passed(self) -> Refusal:
        """Return the error for a request that missed the deadline."""
        # The header tells OpenAI's clients not to retry. The same request would be too slow again.
        return Refusal(
            504,
            f"the request was not answered within the deadline of {self._seconds:g} s",
            "deadline_exceeded",
            headers={"x-should-retry": "false"},
        )

    async def before_end(self, step: Awaitable[T]) -> T:
        """Await `step`; cancel it when the deadline passes.

        Raises
        ------
        Refusal
            If the deadline has passed.
        """
        try:
            return await asyncio.wait_for(step, self.left)
        except asyncio.TimeoutError:
            raise self.passed() from None


async def while_wanted(work: Coroutine[Any, Any, T], receive: Receive, deadline: Deadline) -> T:
    """Run `work` to its end, or cancel it when the deadline passes or the client disconnects.

    After a cancellation, the exception is raised only after `work` has ended.

    Parameters
    ----------
    receive
        The request's ASGI `receive`. The request's body must have been read.

    Raises
    ------
    Refusal
        If the deadline has passed.
    ClientDisconnect
        If the client has disconnected.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait(
            (working, leaving), timeout=deadline.left, return_when=asyncio.FIRST_COMPLETED
        )
        if working.done():
            return working.result()
        raise ClientDisconnect if leaving.done() else deadline.passed()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait((working, leaving))
        if not working.cancelled():
            working.exception()  # retrieved, so that asyncio does not log it


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
