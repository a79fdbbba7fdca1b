"""The steps of a call that differ between this project's library and elizaOS's own.

elizaOS's library may crash on a closed handle, or when two calls run on one stream at the same
time. It reads more bytes of a stream's configuration than this project's library.
"""

from __future__ import annotations

import codecs
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..errors import InvalidArgumentError
from .abi import CONTEXT_SIZE_OFFSET, MOBILE_CONFIG_SIZE, PREFIX
from .cffi_values import CffiStream, config_struct
from .loading import Library, header_ffi
from .protocol import StreamConfig


class Dialect:
    """How to call this project's library, which rejects closed handles and concurrent calls."""

    no_limit = 0  # the ``max_tokens`` that means "no limit" to ``generate``
    reports_rejected_tries = True  # whether ``set_token_trie`` returns a status
    checks_contexts = False  # whether `check` has an effect

    def __init__(self, library: Library) -> None:
        self.library = library

    def created(self, ctx: Any) -> None:
        """Record a new context."""

    def check(self, ctx: Any, doing: str) -> None:
        """Raise InvalidArgumentError for a destroyed context if the library does not check that."""

    def destroyer(self, ctx: Any) -> Callable[[], None]:
        """Return a function that frees a context, and does nothing when it is called again."""
        return partial(self.library.lib.eliza_inference_destroy, ctx)

    def config(self, config: StreamConfig, context_size: int) -> tuple[Any, Any]:
        """Return a pointer to the C struct, and the objects that own the memory it uses."""
        return config_struct(config)

    def new_stream(self, ctx: Any) -> CffiStream:
        return CffiStream(ctx)


class ElizaosDialect(Dialect):
    """Makes the checks that elizaOS's library does not make itself."""

    no_limit = 2**31 - 1  # some libraries read 0 as "no token"
    checks_contexts = True

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        # In elizaOS's header, set_token_trie returns void.
        self.reports_rejected_tries = library.has(f"{PREFIX}token_trie_supported")
        # The streams of every context that is not destroyed.
        self._streams: dict[Any, weakref.WeakSet[UncheckedStream]] = {}
        # Reentrant, because the garbage collector may destroy a context while the lock is held.
        self._lock = threading.RLock()

    def created(self, ctx: Any) -> None:
        with self._lock:
            self._streams[ctx] = weakref.WeakSet()

    def check(self, ctx: Any, doing: str) -> None:
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
        """Return a struct of 88 bytes. A library that reads only 80 bytes ignores the rest."""
        ffi, _ = header_ffi()
        struct, strings = config_struct(config)
        words = ffi.new("uint64_t[]", MOBILE_CONFIG_SIZE // 8)  # uint64_t aligns the pointers
        ffi.memmove(words, struct, ffi.sizeof("eliza_llm_stream_config_t"))
        ffi.cast("int32_t *", words)[CONTEXT_SIZE_OFFSET // 4] = context_size
        return ffi.cast("eliza_llm_stream_config_t *", words), (words, strings)

    def new_stream(self, ctx: Any) -> UncheckedStream:
        stream = UncheckedStream(ctx, self.library)
        with self._lock:
            self.check(ctx, "open a stream")
            self._streams[ctx].add(stream)
        return stream


def dialect_of(library: Library) -> Dialect:
    return ElizaosDialect(library) if library.is_elizaos else Dialect(library)


class UncheckedStream(CffiStream):
    """A stream of elizaOS's library. Concurrent calls, and calls after its end, are errors."""

    __slots__ = ("_caller", "_decoder", "_library", "_lock")

    def __init__(self, ctx: Any, library: Library) -> None:
        super().__init__(ctx)
        self._library = library
        self._lock = threading.Lock()  # held during a call
        self._caller: int | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def decode(self, text: bytes, done: bool) -> str:
        """Return the whole characters of a step's text, and of the bytes that came before it.

        elizaOS's library splits a character that spans two tokens.
        """
        return self._decoder.decode(text, done)

    @contextmanager
    def turn(self, doing: str) -> Iterator[None]:
        """Reserve the stream for one call. Its callbacks run inside a call, so cannot call it."""
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
        """Free the handle. A call that runs on another thread is cancelled and waited for."""
        if self._caller == threading.get_ident():
            raise InvalidArgumentError("cannot close a stream from inside its own callback")
        if self._lock.locked() and self.pointer:
            self._library.lib.eliza_inference_llm_stream_cancel(self.pointer)
        with self._lock:
            super().close()
