"""How to speak to libraries that are older than ours, or not ours at all.

They may crash on a closed handle and on two calls at once in one stream, and they may read less of
the configuration than ours.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ..abi import PREFIX
from ..cffi_values import CffiStream
from ..dialect import Dialect
from ..loading import Library
from ..protocol import StreamConfig
from .config import check_config, config_buffer
from .streams import UncheckedContexts, UncheckedStream

__all__ = ["OlderDialect", "dialect_of"]


class OlderDialect(Dialect):
    """Of a library that trusts its callers: what they must not do is refused before it."""

    no_limit = 2**31 - 1  # some libraries take 0 for "no token"

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self._contexts = UncheckedContexts()
        # Before it could report a refusal, set_token_trie returned nothing: its result is noise.
        self.reports_refused_tries = library.has(f"{PREFIX}token_trie_supported")

    # ---- contexts ---------------------------------------------------------------------------

    def created(self, ctx: Any) -> None:
        """Note a new context."""
        self._contexts.add(ctx)

    def check(self, ctx: Any, doing: str) -> None:
        """Raise InvalidArgumentError if the context is not alive."""
        self._contexts.check(ctx, doing)

    def destroyer(self, ctx: Any) -> Callable[[], None]:
        """Return what frees a context, and its streams before it."""
        return partial(_destroy, self.library, self._contexts, ctx)

    # ---- streams ----------------------------------------------------------------------------

    def config(self, config: StreamConfig, context_size: int) -> tuple[Any, Any]:
        """Return the C struct, laid out for every version, and what must outlive its use."""
        check_config(self.library, config, context_size)
        return config_buffer(config, context_size)

    def new_stream(self, ctx: Any) -> CffiStream:
        """Return a stream that knows whose turn it is."""
        self.check(ctx, "open a stream")
        return UncheckedStream(ctx)

    def opened(self, stream: CffiStream) -> None:
        """Note a stream that was opened."""
        self._contexts.opened(_older(stream))

    def close(self, stream: CffiStream) -> None:
        """Free a stream once what runs on it was interrupted; a second time does nothing."""
        stream = _older(stream)
        stream.close(self.library)
        self._contexts.closed(stream)

    def turn(self, stream: CffiStream, doing: str) -> AbstractContextManager[None]:
        """Hold the stream during one call."""
        return _older(stream).turn(doing)

    def cancel(self, stream: CffiStream) -> None:
        """Stop the call that is running on the stream, if it is open."""
        if stream.pointer:
            super().cancel(stream)


def dialect_of(library: Library) -> Dialect:
    """Return how to speak to a library."""
    return OlderDialect(library) if library.is_older else Dialect(library)


def _older(stream: CffiStream) -> UncheckedStream:
    assert isinstance(stream, UncheckedStream)  # new_stream made it
    return stream


def _destroy(library: Library, contexts: UncheckedContexts, ctx: Any) -> None:
    streams = contexts.remove(ctx)
    if streams is None:
        return
    for stream in streams:
        stream.close(library)
    library.lib.eliza_inference_destroy(ctx)
