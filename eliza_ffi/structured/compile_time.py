"""Limit the CPU time in which Python compiles a schema."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import InvalidArgumentError

MAX_SECONDS = 1.0
"""The maximum CPU time to compile a schema, in seconds."""

_of_thread = threading.local()


@contextmanager
def limited_time() -> Iterator[None]:
    """Let :func:`check_time` raise on this thread after `MAX_SECONDS` of CPU time."""
    _of_thread.end = time.thread_time() + MAX_SECONDS
    _of_thread.next_check = 0.0
    try:
        yield
    finally:
        _of_thread.next_check = math.inf


def check_time() -> None:
    """Raise InvalidArgumentError if the time of :func:`limited_time` has passed."""
    now = time.perf_counter()
    if now < getattr(_of_thread, "next_check", math.inf):
        return
    left = _of_thread.end - time.thread_time()
    if left < 0:
        raise InvalidArgumentError(
            f"the JSON schema takes more than {MAX_SECONDS:g} s to compile: use fewer nested "
            "schemas, or share them through $defs"
        )
    # Reading the CPU time needs a system call. It does not advance faster than the clock.
    _of_thread.next_check = now + left
