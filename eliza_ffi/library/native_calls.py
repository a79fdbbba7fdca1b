"""What all library calls share: check support and handles, set callbacks, raise errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..checks import check_callable, check_kind, check_text
from ..errors import ElizaError, error_from_status, kind_of_status
from .abi import PREFIX, symbols_of
from .cffi_values import CallbackState, CffiStream
from .loading import Library
from .log_lines import raise_interrupt
from .older.dialect import dialect_of

__all__ = ["ERR_INVALID_ARG", "NativeCalls"]

ERR_INVALID_ARG = -2
ERR_TEXT_CAP = -10

LARGEST_TEXT_CAP = 1 << 24


class NativeCalls:
    """The base of the classes that call the library.

    Parameters
    ----------
    library
        The loaded library.
    """

    def __init__(self, library: Library) -> None:
        self.library = check_kind("library", library, Library, "a Library")
        self._ffi = library.ffi
        self._lib = library.lib
        self._finish_reasons = {
            number: name.removeprefix("ELIZA_FINISH_").lower()
            for number, name in self._ffi.typeof("eliza_finish_reason").elements.items()
        }
        self._dialect = dialect_of(library)
        self._callbacks: dict[tuple[Any, str], CallbackState] = {}
        # A stream keeps calling the callback that was set when it was opened. Handles of replaced
        # callbacks are therefore kept until their context is destroyed.
        self._callback_handles: dict[Any, list[Any]] = {}

    def supports(self, name: str) -> bool:
        """Return whether this library supports the method of this name.

        It does if it has a function ``eliza_inference_[llm_[stream_]]<name>``.
        """
        return any(self.library.has(symbol) for symbol in symbols_of(check_text("name", name)))

    def _need(self, name: str) -> None:
        self.library.need(PREFIX + name)

    def _turn(self, stream: CffiStream, doing: str) -> AbstractContextManager[None]:
        """Reserve the stream for one call."""
        self._check_stream(stream)
        return stream.turn(doing)

    def _check_stream(self, stream: Any) -> None:
        check_kind("stream", stream, CffiStream, "a stream, as open() returns it")

    def _check_ctx(self, ctx: Any) -> None:
        check_kind("ctx", ctx, self._ffi.CData, "a context, as create() returns it")

    # ---- callbacks --------------------------------------------------------------------------

    def _set_callback(
        self, ctx: Any, kind: str, in_c: Any, callback: Callable[..., Any] | None
    ) -> None:
        """Call ``set_<kind>_callback`` of the library; None removes the callback.

        `in_c` is the C function that calls `callback`.
        """
        self._check_ctx(ctx)
        self._need(f"set_{kind}_callback")
        setter = getattr(self._lib, f"{PREFIX}set_{kind}_callback")
        doing = f"set the {kind} callback"
        if callback is None:
            self._checked(doing, setter, ctx, self._ffi.NULL, self._ffi.NULL)
            self._callbacks.pop((ctx, kind), None)
            return
        check_callable("callback", callback)
        state = CallbackState(callback)
        handle = self._ffi.new_handle(state)
        self._callback_handles.setdefault(ctx, []).append(handle)
        self._checked(doing, setter, ctx, in_c, handle)
        self._callbacks[ctx, kind] = state

    def forget_callbacks(self, ctx: Any) -> None:
        """Drop the references to the callbacks of a destroyed context."""
        self._check_ctx(ctx)
        for key in [key for key in self._callbacks if key[0] == ctx]:
            del self._callbacks[key]
        self._callback_handles.pop(ctx, None)

    def _reraise_from_callbacks(self, ctx: Any) -> None:
        """Raise the exception of a callback of the context, now that the C call has returned."""
        raise_interrupt()
        if self._callbacks:
            for (of, _), state in list(self._callbacks.items()):
                if of == ctx:
                    state.reraise()

    # ---- results ----------------------------------------------------------------------------

    def _checked(self, doing: str, function: Any, ctx: Any, *arguments: Any) -> int:
        """Call a function that returns a status and whose last argument is ``char ** err``."""
        self._check_ctx(ctx)
        if ctx != self._ffi.NULL:
            self._dialect.check(ctx, doing)
        error = self._ffi.new("char **")
        status = int(function(ctx, *arguments, error))
        self._reraise_from_callbacks(ctx)
        if status < 0:
            raise error_from_status(status, self._take(error), doing)
        return status

    def _checked_stream(
        self, doing: str, function: Any, stream: CffiStream, *arguments: Any
    ) -> int:
        """Do the same as :meth:`_checked` for a function that takes a stream."""
        with self._turn(stream, doing):
            status = int(function(stream.pointer, *arguments, stream.error))
            self._reraise_from_callbacks(stream.ctx)
            if status < 0:
                raise self._stream_error(stream, status, doing)
        return status

    def _take(self, error: Any) -> str:
        """Copy a string that the library allocated, free the original, and return the copy."""
        pointer, error[0] = error[0], self._ffi.NULL
        if not pointer:
            return ""
        try:
            return str(self._ffi.string(pointer), "utf-8", "replace")
        finally:
            self._lib.eliza_inference_free_string(pointer)

    def _stream_error(self, stream: CffiStream, status: int, doing: str) -> ElizaError:
        said = self._take(stream.error) or self._last_error(stream)
        return error_from_status(status, said, doing)

    def _kind_of_failure(self, otherwise: type[ElizaError]) -> type[ElizaError]:
        """Return the error class for a call that has just returned NULL.

        A library without ``eliza_inference_last_status`` does not report why; the result is then
        `otherwise`.
        """
        if not self.library.has(PREFIX + "last_status"):
            return otherwise
        return kind_of_status(self._lib.eliza_inference_last_status())

    def _call_stats(self, stream: CffiStream) -> tuple[int, Any]:
        struct = self._ffi.new("eliza_llm_stream_stats_t *")
        status = self._lib.eliza_inference_llm_stream_stats(
            stream.pointer, struct, self._ffi.sizeof("eliza_llm_stream_stats_t")
        )
        return int(status), struct

    def _last_error(self, stream: CffiStream) -> str:
        if not self.supports("last_error"):
            return ""
        pointer = self._lib.eliza_inference_last_error(stream.pointer)
        return self._ffi.string(pointer).decode("utf-8", "replace") if pointer else ""
