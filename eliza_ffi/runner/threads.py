"""Threads beside an event loop, for calls that would hold the loop up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ..errors import ElizaError

__all__ = ["Threads"]

T = TypeVar("T")


class Threads:
    """A pool of threads. Each starts when it is needed and lives until the pool is closed.

    Parameters
    ----------
    n_threads
        Calls that run at once; further calls wait for a thread.
    name
        The beginning of the threads' names.
    """

    def __init__(self, n_threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix=name)
        self._is_closed = False

    def start(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Run a call on a thread, and return its future for the running event loop.

        Raises
        ------
        ElizaError
            If the pool is closed.
        """
        try:
            return asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError:
            if not self._is_closed:
                raise
            raise ElizaError("the model is closed") from None

    def close(self) -> None:
        """End all idle threads now, and each other thread when its call returns."""
        self._is_closed = True
        self._pool.shutdown(wait=False)
