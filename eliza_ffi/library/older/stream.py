"""An open stream of a library that does not check its calls."""

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
    """A stream that rejects a second call at the same time, and any call after it was closed.

    This project's library rejects both by itself. An older library may crash.

    Parameters
    ----------
    ctx
        The context.
    library
        The library that the stream is opened in.
    """

    __slots__ = ("_caller", "_library", "_lock")

    def __init__(self, ctx: Any, library: Library) -> None:
        super().__init__(ctx)
        self._library = library
        self._lock = threading.Lock()  # held during a call
        self._caller: int | None = None

    @contextmanager
    def turn(self, doing: str) -> Iterator[None]:
        """Hold the stream during one call.

        Raises
        ------
        InvalidArgumentError
            If another call is running on the stream, or the stream is closed. A call from the
            stream's own callback is another call.
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
        """Cancel a call that runs on another thread, wait until it has returned, and free.

        Raises
        ------
        InvalidArgumentError
            If a callback of the stream itself calls this.
        """
        if self._caller == threading.get_ident():
            raise InvalidArgumentError("cannot close a stream from inside its own callback")
        if self._lock.locked() and self.pointer:
            self._library.lib.eliza_inference_llm_stream_cancel(self.pointer)
        with self._lock:
            super().close()
