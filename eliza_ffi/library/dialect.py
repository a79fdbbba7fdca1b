"""How to call a library. This project's library checks its arguments, so little is left to do.

:mod:`eliza_ffi.library.older` derives the dialect of older libraries from this one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from .cffi_values import CffiStream, config_struct
from .loading import Library
from .protocol import StreamConfig

__all__ = ["Dialect"]


class Dialect:
    """The dialect of this project's library, which rejects closed handles and concurrent calls.

    Parameters
    ----------
    library
        The loaded library.

    Attributes
    ----------
    no_limit : int
        The ``max_tokens`` of a ``generate`` without limit.
    reports_refused_tries : bool
        Whether the result of ``set_token_trie`` is a status.
    """

    no_limit = 0
    reports_refused_tries = True

    def __init__(self, library: Library) -> None:
        self.library = library

    def created(self, ctx: Any) -> None:
        """Record a new context."""

    def check(self, ctx: Any, doing: str) -> None:
        """Raise InvalidArgumentError for a destroyed context that the library would accept."""

    def destroyer(self, ctx: Any) -> Callable[[], None]:
        """Return a function that frees a context; calling it again does nothing."""
        return partial(self.library.lib.eliza_inference_destroy, ctx)

    def config(self, config: StreamConfig, context_size: int) -> tuple[Any, Any]:
        """Return a pointer to the C struct, and the objects that it points into.

        Raises
        ------
        NotSupportedError
            If the library's version does not read one of the settings.
        """
        return config_struct(config)

    def new_stream(self, ctx: Any) -> CffiStream:
        """Return a stream with no handle yet."""
        return CffiStream(ctx)
