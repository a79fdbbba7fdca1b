"""How long a request is worked on: until its deadline, or until nobody waits for the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from .refusals import Refusal

__all__ = ["ClientGone", "Deadline", "while_wanted"]

T = TypeVar("T")


class ClientGone(Exception):  # noqa: N818 - an outcome
    """Nobody waits for the answer any more."""


class Deadline:
    """A moment at which a request is given up.

    Parameters
    ----------
    seconds
        From now.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> float:
        """Seconds until then, 0 or more."""
        return max(0.0, self._end - asyncio.get_running_loop().time())

    def passed(self) -> Refusal:
        """Return what is answered then."""
        # Who was too slow once would be again: OpenAI's clients ask no second time.
        return Refusal(
            504,
            f"there was no answer within the deadline of {self._seconds:g} s",
            "deadline_exceeded",
            headers={"x-should-retry": "false"},
        )

    async def before_end(self, step: Awaitable[T]) -> T:
        """Await something that is cancelled when the deadline passes."""
        try:
            return await asyncio.wait_for(step, self.left)
        except asyncio.TimeoutError:
            raise self.passed() from None


async def while_wanted(work: Coroutine[Any, Any, T], receive: Receive, deadline: Deadline) -> T:
    """Run something until it ends, or else its deadline passes or the client goes away.

    What is not wanted any more is cancelled, and has ended when this raises.

    Parameters
    ----------
    work
    receive
        The request's, whose body has been read.
    deadline

    Raises
    ------
    Refusal
        If the deadline has passed.
    ClientGone
        If nobody waits any more.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait(
            (working, leaving), timeout=deadline.left, return_when=asyncio.FIRST_COMPLETED
        )
        if working.done():
            return working.result()
        raise ClientGone if leaving.done() else deadline.passed()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.wait((working, leaving))
        if not working.cancelled():
            working.exception()  # looked at: nobody wants it any more


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
