"""How to speak to a library of this name. Ours checks what it is handed, so little is to be done.

What other libraries need is :mod:`eliza_ffi.library.older`'s dialect; the calls know this one only.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from .cffi_values import CffiStream, config_struct
from .loading import Library
from .protocol import StreamConfig

__all__ = ["Dialect"]

ANY_TURN: AbstractContextManager[None] = nullcontext()


class Dialect:
    """Of this project's library, which recognises closed handles and second calls by itself.

    Parameters
    ----------
    library
        The loaded library.

    Attributes
    ----------
    no_limit : int
        What ``generate`` is told where any number of tokens may come.
    reports_refused_tries : bool
        Whether what ``set_token_trie`` returns is a status.
    """

    no_limit = 0
    reports_refused_tries = True

    def __init__(self, library: Library) -> None:
        self.library = library

    # ---- contexts ---------------------------------------------------------------------------

    def created(self, ctx: Any) -> None:
        """Note a new context."""

    def check(self, ctx: Any, doing: str) -> None:
        """Raise InvalidArgumentError if the context is not alive and the library would not."""

    def destroyer(self, ctx: Any) -> Callable[[], None]:
        """Return what frees a context; a second time it does nothing."""
        return partial(self.library.lib.eliza_inference_destroy, ctx)

    # ---- streams ----------------------------------------------------------------------------

    def config(self, config: StreamConfig, context_size: int) -> tuple[Any, Any]:
        """Return a pointer to the C struct of a configuration, and what must outlive its use.

        Raises
        ------
        NotSupportedError
            If the library would not even read one of the settings.
        """
        struct, strings = config_struct(config)
        return struct, strings

    def new_stream(self, ctx: Any) -> CffiStream:
        """Return a stream that is still to be opened."""
        return CffiStream(ctx)

    def opened(self, stream: CffiStream) -> None:
        """Note a stream that was opened."""

    def close(self, stream: CffiStream) -> None:
        """Free a stream; a second time does nothing."""
        stream.free()

    def turn(self, stream: CffiStream, doing: str) -> AbstractContextManager[None]:
        """Hold the stream during one call."""
        return ANY_TURN

    def cancel(self, stream: CffiStream) -> None:
        """Stop the call that is running on the stream."""
        self.library.lib.eliza_inference_llm_stream_cancel(stream.pointer)
