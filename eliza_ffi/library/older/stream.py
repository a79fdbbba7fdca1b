"""A stream of a library that does not check for concurrent calls or closed streams."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import InvalidArgumentError
from ..cffi_values import CffiStream
from ..loading import Library

__all__ = ["UncheckedStream"]


class UncheckedStream(CffiStream):
    """A stream that rejects concurrent calls, and every call after it was closed.

    This project's library rejects both itself. An older library may crash.

    Parameters
    ----------
    ctx
        The context.
    library
        The library that opens the stream.
    """

    __slots__ = ("_caller", "_library", "_lock")

    def __init__(self, ctx: Any, library: Library) -> None:
        super().__init__(ctx)
        self._library = library
        self._lock = threading.Lock()  # held during a call
        self._caller: int | None = None

    @contextmanager
    def turn(self, doing: str) -> Iterator[None]:
        """Reserve the stream for one call.

        Raises
        ------
        InvalidArgumentError
            If the stream is closed, or another call is running on it. A stream's callback runs
            inside a call, so it cannot call its own stream.
        """
        if not self._lock.acquire(blocking=False):
            raise InvalidArgumentError(f"cannot {doing}: another call is running on this stream")
        try:
            self._caller = threading.get_ident()
            if not self.pointer:
                raise InvalidArgumentError(f"cannot {doing}: the stream is closed")
            yield
        finally:
            self._caller = None
            self._lock.release()

    def close(self) -> None:
        """Free the handle. A call that runs on another thread is cancelled and waited for.

        Raises
        ------
        InvalidArgumentError
            If called from the stream's own callback.
        """
        if self._caller == threading.get_ident():
            raise InvalidArgumentError("cannot close a stream from inside its own callback")
        if self._lock.locked() and self.pointer:
            self._library.lib.eliza_inference_llm_stream_cancel(self.pointer)
        with self._lock:
            super().close()
