"""Calls on a context: open and load a model, set options, describe it, set callbacks."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..checks import check_text
from ..errors import ModelError
from .cffi_values import CallbackState, c_string, progress_callback
from .loading import header_ffi
from .native_calls import NativeCalls

__all__ = ["ContextCalls", "VerifierEvent"]

ProgressCallback = Callable[[str, float], None]
"""Called with a stage, ``"load"`` or ``"prefill"``, and the fraction done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class VerifierEvent:
    """The outcome of one draft in speculative decoding.

    Attributes
    ----------
    accepted : tuple of int
        The drafted tokens that the model accepted.
    rejected : tuple of (int, int) or None
        The positions of the first and the last rejected token, counted from 0 at the first token
        after the prompt; None = all were accepted.
    corrected : tuple of int
        The token that was generated in place of the first rejected token; empty if there is none.
    """

    accepted: tuple[int, ...]
    rejected: tuple[int, int] | None
    corrected: tuple[int, ...]


VerifierCallback = Callable[[VerifierEvent], None]


class ContextCalls(NativeCalls):
    """Calls on a context. Destroying a context closes its streams."""

    def create(self, path: str) -> Any:
        """Open a bundle directory or a model file, and return the context."""
        error = self._ffi.new("char **")
        ctx = self._lib.eliza_inference_create(c_string(path, "path"), error)
        if not ctx:
            kind = self._kind_of_failure(ModelError)
            said = self._take(error) or "the library gave no reason"
            raise kind(f"cannot open the model {path}: {said}")
        self._dialect.created(ctx)
        return ctx

    def destroy(self, ctx: Any) -> None:
        """Close the streams of a context and free it. A second call does nothing."""
        self.destroyer(ctx)()
        self.forget_callbacks(ctx)

    def destroyer(self, ctx: Any) -> Callable[[], None]:
        """Return a function that frees a context and holds no reference to its callbacks."""
        self._check_ctx(ctx)
        return self._dialect.destroyer(ctx)

    def load(self, ctx: Any) -> None:
        """Load the model now, not when the first stream is opened."""
        self._need("mmap_acquire")
        self._checked("load the model", self._lib.eliza_inference_mmap_acquire, ctx, b"text")

    def set_option(self, ctx: Any, key: str, value: str) -> None:
        """Set an option of a context. The C header lists all options."""
        self._need("set_option")
        check_text("key", key)
        check_text("value", value)
        self._checked(
            f"set {key} to {value!r}",
            self._lib.eliza_inference_set_option,
            ctx,
            c_string(key, "the option's name"),
            c_string(value, f"the value of {key}"),
        )

    def describe(self, ctx: Any | None = None) -> dict[str, Any]:
        """Return facts about the library, and about the model of `ctx` if one is given."""
        self._need("describe")
        out = self._ffi.new("char **")
        self._checked(
            "describe the library",
            self._lib.eliza_inference_describe,
            self._ffi.NULL if ctx is None else ctx,
            out,
        )
        facts: dict[str, Any] = json.loads(self._take(out))
        return facts

    def set_progress_callback(self, ctx: Any, callback: ProgressCallback | None) -> None:
        """Report the progress of loading and prefill to a function; None turns reporting off.

        An exception in `callback` does not stop the work. It is raised when the work has finished.
        """
        self._set_callback(ctx, "progress", progress_callback(), callback)

    def set_verifier_callback(self, ctx: Any, callback: VerifierCallback | None) -> None:
        """Report the outcome of each draft to a function; None turns reporting off.

        `callback` runs on the thread that generates, and must not call the library. If it raises an
        exception, the work continues. ``next`` raises the exception at the end of the same call,
        and the tokens of this call are lost. ``generate`` raises it at the end of the generation.
        """
        self._set_callback(ctx, "verifier", _verifier_callback(), callback)


@functools.cache
def _verifier_callback() -> Any:
    ffi, _ = header_ffi()

    def on_event(event: Any, user: Any) -> None:
        state: CallbackState = ffi.from_handle(user)
        try:
            state.function(_verifier_event(ffi, event))
        except BaseException as error:  # raised again by reraise()
            state.keep(error)

    return ffi.callback("eliza_verifier_callback", on_event)


def _verifier_event(ffi: Any, event: Any) -> VerifierEvent:
    def ids(pointer: Any, count: int) -> tuple[int, ...]:
        return tuple(ffi.unpack(pointer, count)) if pointer and count else ()

    return VerifierEvent(
        accepted=ids(event.accepted_token_ids, event.n_accepted),
        rejected=None if event.rejected_from < 0 else (event.rejected_from, event.rejected_to),
        corrected=ids(event.corrected_token_ids, event.n_corrected),
    )
