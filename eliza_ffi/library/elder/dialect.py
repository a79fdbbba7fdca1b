"""How to speak to libraries that are older than ours, or not ours at all.

They may crash on a closed handle and on two calls at once in one stream, read less of the
configuration than ours, and have no ``next``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from ..abi import PREFIX
from ..cffi_values import CallbackState, CffiStream
from ..dialect import Dialect, Push
from ..loading import Library
from ..protocol import StreamConfig, StreamStep, TokenCallback
from .config import check_config, config_buffer
from .pull import NO_LIMIT, PushedPull
from .streams import ElderContexts, ElderStream

__all__ = ["ElderDialect", "dialect_of"]


class ElderDialect(Dialect):
    """Of a library that trusts its callers: what they must not do is refused before it."""

    no_limit = NO_LIMIT

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self._contexts = ElderContexts()
        # Before it could report a refusal, set_token_trie returned nothing: its result is noise.
        self.reports_refused_tries = library.has(f"{PREFIX}token_trie_supported")
        self._pushes_only = not library.has(f"{PREFIX}llm_stream_next")

    def supports(self, name: str) -> bool:
        """Return whether the method of this name works; pulls are made of pushes."""
        return (self._pushes_only and name in ("next", "cancel")) or super().supports(name)

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
        return ElderStream(ctx)

    def opened(self, stream: CffiStream, config: StreamConfig, push: Push) -> None:
        """Note a stream that was opened, and how its tokens are pulled."""
        stream = _elder(stream)
        if self._pushes_only:
            stream.pushed = PushedPull(
                partial(_push_to_pull, stream, push),
                partial(stream.interrupt, self.library),
                partial(stream.decoder.decode, b"", True),
                config.max_tokens,
            )
        self._contexts.opened(stream)

    def close(self, stream: CffiStream) -> None:
        """Free a stream once what runs on it was interrupted; a second time does nothing."""
        stream = _elder(stream)
        stream.close(self.library)
        self._contexts.closed(stream)

    def turn(self, stream: CffiStream, doing: str) -> AbstractContextManager[None]:
        """Hold the stream during a call that may come between two pulls."""
        return _elder(stream).turn(doing)

    def turn_at_rest(self, stream: CffiStream, doing: str) -> AbstractContextManager[None]:
        """Hold the stream during a call that nothing may be under way beside."""
        return _elder(stream).turn_at_rest(doing)

    def prefilled(self, stream: CffiStream) -> None:
        """Have pulls go on behind the prompt."""
        if (pushed := _elder(stream).pushed) is not None:
            pushed.begin()

    def next(self, stream: CffiStream, pull: Callable[[CffiStream], StreamStep]) -> StreamStep:
        """Return the next step, pulled or pushed."""
        stream = _elder(stream)
        with stream.turn("generate"):
            return pull(stream) if stream.pushed is None else stream.pushed.next()

    def pushing(self, stream: CffiStream) -> AbstractContextManager[None]:
        """Hold the stream during a ``generate`` of the caller's own."""
        return _elder(stream).pushing("generate")

    def cancel(self, stream: CffiStream) -> None:
        """Stop the call that is running on the stream, if it is open."""
        stream = _elder(stream)
        if stream.pointer and stream.pushed is not None and not stream.is_pushing:
            stream.pushed.cancel()
        elif stream.pointer:
            super().cancel(stream)


def dialect_of(library: Library) -> Dialect:
    """Return how to speak to a library."""
    is_whole = not library.is_elder and library.has(f"{PREFIX}llm_stream_next")
    return Dialect(library) if is_whole else ElderDialect(library)


def _elder(stream: CffiStream) -> ElderStream:
    assert isinstance(stream, ElderStream)  # new_stream made it
    return stream


def _push_to_pull(stream: ElderStream, push: Push, limit: int, on_token: TokenCallback) -> None:
    state = CallbackState(on_token)
    # The stream's own: a character may be cut in two by a call that was halted.
    state.decoder = stream.decoder
    push(stream, limit, state)


def _destroy(library: Library, contexts: ElderContexts, ctx: Any) -> None:
    streams = contexts.remove(ctx)
    if streams is None:
        return
    for stream in streams:
        stream.close(library)
    library.lib.eliza_inference_destroy(ctx)
