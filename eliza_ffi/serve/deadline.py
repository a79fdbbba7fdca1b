"""End a request at its deadline, or when its client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect
from starlette.types import Receive

from .http_error import HTTPError

T = TypeVar("T")


class Deadline:
    """The time at which a request is cancelled, in seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = asyncio.get_running_loop().time() + seconds

    @property
    def left(self) -> float:
        """Seconds until the deadline, 0 or more."""
        return max(0.0, self._end - asyncio.get_running_loop().time())

    def passed(self) -> HTTPError:
        # The header tells OpenAI's clients not to retry. The same request would be too slow again.
        return HTTPError(
            504,
            f"the request was not answered within the deadline of {self._seconds:g} s",
            "deadline_exceeded",
            headers={"x-should-retry": "false"},
        )

    async def before_end(self, step: Awaitable[T]) -> T:
        """Await `step`; cancel it and raise an HTTPError when the deadline passes."""
        try:
            return await asyncio.wait_for(step, self.left)
        except asyncio.TimeoutError:
            raise self.passed() from None


async def while_wanted(
    work: Coroutine[Any, Any, T],
    receive: Receive,
    deadline: Deadline,
    idle: Callable[[], Awaitable[float]] | None = None,
) -> T:
    """Run `work` to its end, or cancel it when the deadline passes or the client disconnects.

    The HTTPError or ClientDisconnect is raised only after `work` has ended. The body of the request
    must have been read with `receive`. `idle` is called at once, and again after as many seconds as
    it returns.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_gone(receive))
    try:
        while True:
            left = deadline.left if idle is None else min(deadline.left, await idle())
            await asyncio.wait(
                (working, leaving), timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            if working.done():
                return working.result()
            if leaving.done():
                raise ClientDisconnect
            if not deadline.left:
                raise deadline.passed()
    finally:
        await cancelled(working, leaving)


async def all_of(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run coroutines at the same time, and return their results. An error cancels the others."""
    tasks = [*map(asyncio.ensure_future, work)]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        await cancelled(*tasks)
        raise


async def cancelled(*tasks: asyncio.Future[Any]) -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
