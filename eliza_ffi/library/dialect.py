"""The steps of a call that differ between this project's library and older versions.

This project's library checks its arguments, so most methods here do nothing.
:mod:`eliza_ffi.library.older` overrides them for older versions.
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
    """How to call this project's library, which rejects closed handles and concurrent calls.

    Parameters
    ----------
    library
        The loaded library.

    Attributes
    ----------
    no_limit : int
        The ``max_tokens`` that means "no limit" to ``generate``.
    reports_rejected_tries : bool
        Whether ``set_token_trie`` returns a status.
    """

    no_limit = 0
    reports_rejected_tries = True

    def __init__(self, library: Library) -> None:
        self.library = library

    def created(self, ctx: Any) -> None:
        """Record a new context."""

    def check(self, ctx: Any, doing: str) -> None:
        """Raise InvalidArgumentError for a destroyed context if the library does not check that."""

    def destroyer(self, ctx: Any) -> Callable[[], None]:
        """Return a function that frees a context. Calling it again does nothing."""
        return partial(self.library.lib.eliza_inference_destroy, ctx)

    def config(self, config: StreamConfig, context_size: int) -> tuple[Any, Any]:
        """Return a pointer to the C struct, and the objects that own the memory it uses.

        Raises
        ------
        NotSupportedError
            If the library's version does not support a setting.
        """
        return config_struct(config)

    def new_stream(self, ctx: Any) -> CffiStream:
        """Return a stream that has no handle yet."""
        return CffiStream(ctx)
