"""What keeps a library from harm that trusts its callers: contexts, streams and whose turn it is.

This project's own library recognises a handle that was closed and refuses a second call on a busy
stream. Others of that name dereference what they are given, so the same is done for them here.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...errors import InvalidArgumentError
from ..cffi_values import CffiStream
from ..loading import Library

__all__ = ["UncheckedContexts", "UncheckedStream"]


class UncheckedStream(CffiStream):
    """An open stream of a library that does not check its calls."""

    __slots__ = ("_caller", "_turn")

    def __init__(self, ctx: Any) -> None:
        super().__init__(ctx)
        self._turn = threading.Lock()
        self._caller: int | None = None

    @contextmanager
    def turn(self, doing: str) -> Iterator[None]:
        """Hold the stream during one call.

        Raises
        ------
        InvalidArgumentError
            If another call is running on it, as from inside its own callback, or it is closed.
        """
        if not self._turn.acquire(blocking=False):
            raise InvalidArgumentError(f"cannot {doing}: another call is running on this stream")
        try:
            self._caller = threading.get_ident()
            if not self.pointer:
                raise InvalidArgumentError(f"cannot {doing}: the stream is closed")
            yield
        finally:
            self._caller = None
            self._turn.release()

    def close(self, library: Library) -> None:
        """Free the stream, once a call on another thread was interrupted and has returned."""
        if self._caller == threading.get_ident():
            raise InvalidArgumentError("cannot close a stream from inside its own callback")
        if self._turn.locked() and self.pointer:
            library.lib.eliza_inference_llm_stream_cancel(self.pointer)
        with self._turn:
            self.free()


class UncheckedContexts:
    """The contexts of a library that are alive, and the streams that are open on them."""

    def __init__(self) -> None:
        self._streams: dict[Any, weakref.WeakSet[UncheckedStream]] = {}
        self._lock = threading.Lock()

    def add(self, ctx: Any) -> None:
        """Note a context that was created."""
        with self._lock:
            self._streams[ctx] = weakref.WeakSet()

    def remove(self, ctx: Any) -> list[UncheckedStream] | None:
        """Forget a context; returns the streams to close before it, or None if it is not alive."""
        with self._lock:
            streams = self._streams.pop(ctx, None)
        return None if streams is None else list(streams)

    def check(self, ctx: Any, doing: str) -> None:
        """Raise InvalidArgumentError if the context is not alive."""
        if ctx not in self._streams:
            raise InvalidArgumentError(f"cannot {doing}: the context is destroyed")

    def opened(self, stream: UncheckedStream) -> None:
        """Note a stream that was opened."""
        with self._lock:
            self._streams[stream.ctx].add(stream)

    def closed(self, stream: UncheckedStream) -> None:
        """Forget it again."""
        with self._lock:
            if stream.ctx in self._streams:
                self._streams[stream.ctx].discard(stream)
