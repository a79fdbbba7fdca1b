"""Convert values between Python and C: token arrays, configuration, stream buffers, callbacks."""

from __future__ import annotations

import codecs
import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flag, check_number, check_text, check_whole, found, wrong
from ..errors import InvalidArgumentError
from .loading import header_ffi
from .protocol import StreamConfig, Tokens, VerifierEvent

try:
    import _cffi_backend

    gcp: Any = _cffi_backend.gcp
except (AttributeError, ImportError):  # private to cffi; FFI.gc does the same in Python code
    gcp = None

TOKENS_PER_PULL = 32
MAX_TOKENS_PER_PULL = 256
TEXT_CAP = 4096

CONFIG_CHECKS: dict[str, Callable[[str, Any], object]] = {
    **dict.fromkeys(("temperature", "top_p", "repeat_penalty"), check_number),
    **dict.fromkeys(("max_tokens", "top_k", "slot_id"), check_whole),
    **dict.fromkeys(("draft_min", "draft_max", "n_gpu_layers"), check_whole),
    **dict.fromkeys(("prompt_cache_key", "mtp_drafter_path", "gbnf_grammar"), check_text),
    **dict.fromkeys(("cache_type_k", "cache_type_v"), check_text),
    "disable_thinking": check_flag,
}
"""The check of each field of a stream's configuration."""

ANY_TURN: AbstractContextManager[None] = nullcontext()


def token_array(tokens: Tokens, name: str = "tokens") -> NDArray[np.int32]:
    """Return whole numbers from 0 to 2**31 - 1, such as token ids, as an array of shape ``[n]``.
    `name` is the argument's name, for errors."""
    try:
        wide = np.asarray(tokens)
    except ValueError:  # a list of lists of different lengths
        wide = np.asarray(None)
    if wide.ndim == 1 and wide.size == 0:
        return np.empty(0, dtype=np.int32)
    if wide.ndim != 1 or wide.dtype.kind not in "iu":
        kind = f" ({wide.dtype}, shape {list(wide.shape)})" if wide.ndim else ""
        raise InvalidArgumentError(
            f"{name}: expected a flat sequence of whole numbers, got {found(tokens)}{kind}"
        )
    if int(wide.min()) < 0 or int(wide.max()) > 2**31 - 1:
        position = int(np.argmax((wide < 0) | (wide > 2**31 - 1)))
        raise InvalidArgumentError(
            f"{name}[{position}] is {wide[position]}, outside 0 to {2**31 - 1}"
        )
    return np.ascontiguousarray(wide, dtype=np.int32)


class CffiStream:
    """An open stream, with the buffers for its tokens and text.

    The buffers are allocated once and used for every token.
    """

    __slots__ = (
        "__weakref__",
        "_owner",
        "accepted",
        "count",
        "ctx",
        "drafted",
        "error",
        "pointer",
        "text",
        "text_cap",
        "tokens",
        "wide_count",
    )

    def __init__(self, ctx: Any) -> None:
        ffi, _ = header_ffi()
        self.ctx = ctx
        self.pointer = ffi.NULL
        self._owner: list[Any] = []
        self.tokens = ffi.new("int32_t[]", MAX_TOKENS_PER_PULL)
        self.count = ffi.new("size_t *")
        self.wide_count = ffi.new("uint64_t *")
        self.text_cap = TEXT_CAP
        self.text = ffi.new("char[]", TEXT_CAP)
        self.drafted = ffi.new("int32_t *")
        self.accepted = ffi.new("int32_t *")
        self.error = ffi.new("char **")

    def open(self, make: Callable[..., Any], arguments: Sequence[Any], free: Any) -> bool:
        """Store the handle that `make` returns, and return whether it is a valid one.

        From then on `free` is called with the handle when this object is collected, or before that
        by :meth:`close`.
        """
        own = gcp or header_ffi()[0].gc
        # One C call runs `make` and stores its result. Between two lines of Python, an interrupt
        # could lose the handle, and its slot would stay taken.
        made = map(make, *zip(arguments, strict=True))
        self._owner.extend(map(own, made, (free,)))
        self.pointer = self._owner[0]
        if not self.pointer:
            own(self.pointer, None)  # do not call `free` with NULL
        return bool(self.pointer)

    def turn(self, doing: str) -> AbstractContextManager[None]:
        """Reserve the stream for one call.

        This class reserves nothing, because this project's library checks for concurrent calls.
        """
        return ANY_TURN

    def decode(self, text: bytes, done: bool) -> str:
        """Return the text of a step; `done` says whether it is the last step.

        This project's library returns whole characters.
        """
        return text.decode(errors="replace")

    def close(self) -> None:
        """Free the handle. A second call does nothing."""
        ffi, _ = header_ffi()
        if self._owner:
            ffi.release(self._owner[0])
        self.pointer = ffi.NULL


class CallbackState:
    """The Python side of a C callback, which is its user pointer: the function to call, and the
    exception that it raised, by thread, because it is raised again in the call that the thread has
    made."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._of_thread = threading.local()

    def keep(self, error: BaseException) -> None:
        """Store an exception, which must not propagate through C code."""
        self._of_thread.error = error

    def reraise(self) -> None:
        """Raise the exception stored on this thread, if there is one."""
        error = getattr(self._of_thread, "error", None)
        if error is not None:
            self._of_thread.error = None
            raise error


@functools.cache
def token_callback() -> Any:
    ffi, _ = header_ffi()

    def on_token(token: int, text: Any, user: Any) -> int:
        state: CallbackState = ffi.from_handle(user)
        try:
            raw = ffi.string(text) if text else b""
            return 1 if state.function(token, state.decoder.decode(raw)) else 0
        except BaseException as error:  # raised again by reraise()
            state.keep(error)
            return 1

    return ffi.callback("eliza_token_callback", on_token, error=1)


@functools.cache
def progress_callback() -> Any:
    ffi, _ = header_ffi()

    def on_progress(stage: Any, fraction: float, user: Any) -> None:
        state: CallbackState = ffi.from_handle(user)
        try:
            state.function(ffi.string(stage).decode("utf-8", "replace"), fraction)
        except BaseException as error:  # raised again by reraise()
            state.keep(error)

    return ffi.callback("eliza_progress_callback", on_progress)


@functools.cache
def verifier_callback() -> Any:
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


def config_struct(config: StreamConfig) -> tuple[Any, list[Any]]:
    """Return the C struct, and the strings it points to, which the caller must keep alive."""
    ffi, _ = header_ffi()
    struct = ffi.new("eliza_llm_stream_config_t *")
    strings = []
    for name, check in CONFIG_CHECKS.items():
        value = getattr(config, name)
        if check is check_text:
            if value is None:
                continue
            value = ffi.new("char[]", c_string(value, name))
            strings.append(value)
        try:
            setattr(struct, name, value)
        except (OverflowError, TypeError):
            check(name, value)
            raise wrong(name, "a number that fits its C type", value) from None
    return struct, strings


def c_string(text: str, what: str) -> bytes:
    """Encode a string for C, without the final NUL, which cffi adds; errors begin with `what`."""
    try:
        raw = check_text(what, text).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise wrong(what, "a string that UTF-8 can hold", text) from None
    if b"\0" in raw:
        raise InvalidArgumentError(f"{what} contains a NUL character: {text!r}")
    return raw
