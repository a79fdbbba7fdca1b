"""How to call older versions of the library, and other libraries of the same name.

Such a library may crash on a closed handle, or when two calls run on one stream at the same time.
It may read fewer bytes, or more, of a stream's configuration than this project's library.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from ...errors import InvalidArgumentError
from ..abi import PREFIX
from ..dialect import Dialect
from ..loading import Library
from ..protocol import StreamConfig
from .config import older_config
from .stream import UncheckedStream

__all__ = ["OlderDialect", "dialect_of"]


class OlderDialect(Dialect):
    """Makes the checks that an older library does not make itself."""

    no_limit = 2**31 - 1  # some libraries read 0 as "no token"

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        # In elizaOS's header, set_token_trie returns void.
        self.reports_rejected_tries = library.has(f"{PREFIX}token_trie_supported")
        # The streams of every context that is not destroyed.
        self._streams: dict[Any, weakref.WeakSet[UncheckedStream]] = {}
        # Reentrant, because the garbage collector may destroy a context while the lock is held.
        self._lock = threading.RLock()

    def created(self, ctx: Any) -> None:
        """Record a new context."""
        with self._lock:
            self._streams[ctx] = weakref.WeakSet()

    def check(self, ctx: Any, doing: str) -> None:
        """Raise InvalidArgumentError if the context is destroyed."""
        if ctx not in self._streams:
            raise InvalidArgumentError(f"cannot {doing}: the context is destroyed")

    def destroyer(self, ctx: Any) -> Callable[[], None]:
        """Return a function that closes the streams of a context and then frees the context."""
        return partial(self._destroy, ctx)

    def _destroy(self, ctx: Any) -> None:
        with self._lock:
            streams = self._streams.pop(ctx, None)
        if streams is None:
            return
        for stream in list(streams):
            stream.close()
        self.library.lib.eliza_inference_destroy(ctx)

    def config(self, config: StreamConfig, context_size: int) -> tuple[Any, Any]:
        """Return the C struct in a layout that every version can read."""
        return older_config(self.library, config, context_size)

    def new_stream(self, ctx: Any) -> UncheckedStream:
        """Return a stream that has no handle yet and checks its calls."""
        stream = UncheckedStream(ctx, self.library)
        with self._lock:
            self.check(ctx, "open a stream")
            self._streams[ctx].add(stream)
        return stream


def dialect_of(library: Library) -> Dialect:
    """Return the dialect of a library."""
    return OlderDialect(library) if library.is_older else Dialect(library)
