"""The library behind :class:`LlmStreamingBinding`: one method per C function, and nothing more.

This is the raw layer: it checks that arguments fit their C types and turns statuses into
exceptions. cffi lets go of the GIL during every call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cffi_values import (
    TOKENS_PER_PULL,
    CallbackState,
    CffiStream,
    c_string,
    config_struct,
    progress_callback,
    token_array,
    token_callback,
)
from .errors import (
    ContextFullError,
    ElizaError,
    ModelError,
    NativeFault,
    NotSupportedError,
    TokenTrieError,
    error_from_status,
    error_from_text,
)
from .library import PREFIX, Library
from .protocol import (
    LlmStreamingBinding,
    SpanResult,
    StreamConfig,
    StreamStats,
    StreamStep,
    TokenCallback,
    Tokens,
    TrieLeaf,
)

__all__ = [
    "CffiBinding",
    "CffiStream",
    "LlmStreamingBinding",
    "StreamConfig",
    "StreamStats",
    "StreamStep",
    "TrieLeaf",
    "token_array",
]

ERR_INVALID_ARG = -2
ERR_FFI_FAULT = -4

LARGEST_TEXT_CAP = 1 << 24

ProgressCallback = Callable[[str, float], None]
"""Takes a stage, ``"load"`` or ``"prefill"``, and the fraction done, 0 to 1."""


class CffiBinding:
    """Calls libelizainference.

    Parameters
    ----------
    library
        The loaded library.

    Notes
    -----
    A stream or context that was closed is refused by the library with an error.
    """

    def __init__(self, library: Library) -> None:
        self.library = library
        self._ffi = library.ffi
        self._lib = library.lib
        # Before it could report a refusal, set_token_trie returned nothing: its result is noise.
        self._trie_reports = library.has("eliza_inference_token_trie_supported")
        self._finish_reasons = {
            number: name.removeprefix("ELIZA_FINISH_").lower()
            for number, name in self._ffi.typeof("eliza_finish_reason").elements.items()
        }
        self._strategies = {
            bit: name.removeprefix("ELIZA_STRATEGY_").lower().replace("_", "-")
            for bit, name in self._ffi.typeof("eliza_strategy").elements.items()
        }
        self._progress: dict[Any, CallbackState] = {}
        # A stream keeps the callback it was opened with: handles live as long as their context.
        self._progress_handles: dict[Any, list[Any]] = {}

    def supports(self, name: str) -> bool:
        """Return whether the library has ``eliza_inference_[llm_stream_]<name>``."""
        return self.library.has(f"{PREFIX}llm_stream_{name}") or self.library.has(PREFIX + name)

    # ---- contexts ---------------------------------------------------------------------------

    def create(self, path: str) -> Any:
        """Open a bundle directory or a model file; returns the context."""
        error = self._ffi.new("char **")
        ctx = self._lib.eliza_inference_create(c_string(path, "the model path"), error)
        if not ctx:
            raise ModelError(f"cannot open the model {path}: {self._take(error) or 'no reason'}")
        return ctx

    def destroy(self, ctx: Any) -> None:
        """Free a context and close its streams."""
        self._lib.eliza_inference_destroy(ctx)
        self._progress.pop(ctx, None)
        self._progress_handles.pop(ctx, None)

    def load(self, ctx: Any) -> None:
        """Load the model now rather than with the first stream."""
        self._need("mmap_acquire")
        self._checked("load the model", self._lib.eliza_inference_mmap_acquire, ctx, b"text")

    def set_option(self, ctx: Any, key: str, value: str) -> None:
        """Set one option of a context by name; the header lists them."""
        self._need("set_option")
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
        """Have loading and prefill reported; None switches it off.

        An exception in `callback` does not stop the work; it is raised when the work has ended.
        """
        self._need("set_progress_callback")
        set_callback = self._lib.eliza_inference_set_progress_callback
        doing = "set the progress callback"
        if callback is None:
            self._checked(doing, set_callback, ctx, self._ffi.NULL, self._ffi.NULL)
            self._progress.pop(ctx, None)
            return
        state = CallbackState(callback)
        handle = self._ffi.new_handle(state)
        self._progress_handles.setdefault(ctx, []).append(handle)
        self._checked(doing, set_callback, ctx, progress_callback(), handle)
        self._progress[ctx] = state

    # ---- tokens -----------------------------------------------------------------------------

    def tokenize(
        self, ctx: Any, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Return the tokens of a text."""
        self._need("tokenize")
        raw = text.encode("utf-8", "surrogatepass")
        out = self._ffi.new("int **")
        count = self._ffi.new("size_t *")
        self._checked(
            "tokenize",
            self._lib.eliza_inference_tokenize,
            ctx,
            raw,
            len(raw),
            int(add_special),
            int(parse_special),
            out,
            count,
        )
        try:
            return list(self._ffi.unpack(out[0], count[0])) if count[0] else []
        finally:
            self._lib.eliza_inference_free_tokens(out[0])

    def detokenize(
        self, ctx: Any, tokens: Tokens, remove_special: bool = False, unparse_special: bool = False
    ) -> str:
        """Return the text of tokens; bytes that are not UTF-8 come out as U+FFFD."""
        raw = self.detokenize_bytes(ctx, tokens, remove_special, unparse_special)
        return raw.decode("utf-8", "replace")

    def detokenize_bytes(
        self, ctx: Any, tokens: Tokens, remove_special: bool = False, unparse_special: bool = False
    ) -> bytes:
        """Return the bytes of tokens, which may end inside a character."""
        self._need("detokenize")
        ids = token_array(tokens)
        pointer = self._ffi.from_buffer("int[]", ids)
        cap = 64 + 16 * len(ids)
        while True:
            text = self._ffi.new("char[]", cap)
            size = self._checked(
                "detokenize",
                self._lib.eliza_inference_detokenize,
                ctx,
                pointer,
                len(ids),
                int(remove_special),
                int(unparse_special),
                text,
                cap,
            )
            if size < cap:
                return bytes(self._ffi.buffer(text, size))
            cap = size + 1

    # ---- streams ----------------------------------------------------------------------------

    def open(self, ctx: Any, config: StreamConfig) -> CffiStream:
        """Take a KV slot and open a stream in it."""
        struct, _strings = config_struct(config)
        error = self._ffi.new("char **")
        pointer = self._lib.eliza_inference_llm_stream_open(ctx, struct, error)
        if not pointer:
            raise error_from_text(self._take(error), "open a stream")
        stream = CffiStream(ctx, pointer)
        try:
            self._reraise_from_progress(ctx)
        except BaseException:
            self.close(stream)
            raise
        return stream

    def prefill(self, stream: CffiStream, tokens: Tokens) -> None:
        """Append the prompt and decode it."""
        ids = token_array(tokens)
        status = self._lib.eliza_inference_llm_stream_prefill(
            stream.pointer, self._ffi.from_buffer("int32_t[]", ids), len(ids), stream.error
        )
        self._reraise_from_progress(stream.ctx)
        if status < 0:
            raise self._stream_error(stream, status, f"prefill {len(ids)} tokens")

    def next(self, stream: CffiStream) -> StreamStep:
        """Pull the next step."""
        status = self._call_next(stream)
        while status == ERR_INVALID_ARG and self._has_grown_text(stream):
            status = self._call_next(stream)
        if status < 0:
            raise self._stream_error(stream, status, "generate")
        done = status == 1
        return StreamStep(
            tuple(self._ffi.unpack(stream.tokens, stream.count[0])),
            stream.decoder.decode(self._ffi.string(stream.text), done),
            done,
            stream.drafted[0],
            stream.accepted[0],
        )

    def generate(self, stream: CffiStream, max_tokens: int, on_token: TokenCallback) -> None:
        """Push tokens to `on_token`; an exception in it stops the generation and is raised here."""
        self._need("llm_stream_generate")
        state = CallbackState(on_token)
        handle = self._ffi.new_handle(state)
        status = self._lib.eliza_inference_llm_stream_generate(
            stream.pointer, max_tokens, token_callback(), handle, stream.error
        )
        state.reraise()
        if status < 0:
            raise self._stream_error(stream, status, "generate")
        tail = state.decoder.decode(b"", True)
        if tail:
            on_token(-1, tail)

    def cancel(self, stream: CffiStream) -> None:
        """Stop the call that is running on the stream; safe from any thread."""
        self._need("llm_stream_cancel")
        self._lib.eliza_inference_llm_stream_cancel(stream.pointer)

    def close(self, stream: CffiStream) -> None:
        """Free the stream's slot; closing twice is harmless."""
        pointer, stream.pointer = stream.pointer, self._ffi.NULL
        if pointer:
            self._lib.eliza_inference_llm_stream_close(pointer)

    def stats(self, stream: CffiStream) -> StreamStats:
        """Return the counts of the stream."""
        self._need("llm_stream_stats")
        status, struct = self._call_stats(stream)
        if status < 0:
            raise self._stream_error(stream, status, "read the stream's counts")
        values = {field.name: getattr(struct, field.name) for field in fields(StreamStats)}
        values["finish_reason"] = self._finish_reasons.get(struct.finish_reason, "unknown")
        values["trie_active"] = bool(struct.trie_active)
        values["strategies"] = tuple(
            name for bit, name in self._strategies.items() if struct.strategies & bit
        )
        return StreamStats(**values)

    def set_sampling(self, stream: CffiStream, settings: str) -> None:
        """Sample otherwise from now on; `settings` is the JSON of a ``SamplingParams``."""
        self._need("llm_stream_set_sampling")
        raw = settings.encode("utf-8", "surrogatepass")
        status = self._lib.eliza_inference_llm_stream_set_sampling(
            stream.pointer, raw, len(raw), stream.error
        )
        if status < 0:
            raise self._stream_error(stream, status, "set the sampling")

    def describe_chain(self, stream: CffiStream) -> tuple[str, ...]:
        """Return the names of the samplers a stream runs, in the order they act."""
        self._need("llm_stream_describe_chain")
        out = self._ffi.new("char **")
        status = self._lib.eliza_inference_llm_stream_describe_chain(
            stream.pointer, out, stream.error
        )
        if status < 0:
            raise self._stream_error(stream, status, "read the stream's samplers")
        return tuple(filter(None, self._take(out).split(";")))

    # ---- the trie ---------------------------------------------------------------------------

    def trie_modes(self) -> int:
        """Return the bit set of supported trie modes and flags; 0 if the library has no trie."""
        if not (self.supports("set_token_trie") and self._trie_reports):
            return 0
        return int(self._lib.eliza_inference_token_trie_supported())

    def set_token_trie(self, stream: CffiStream, payload: str | bytes, mode: int) -> None:
        """Start a span; `payload` is JSON, or the bytes of a binary tree."""
        self._need("set_token_trie")
        raw = payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
        status = self._lib.eliza_inference_set_token_trie(stream.pointer, raw, len(raw), mode)
        if self._trie_reports and status < 0:
            reason = self._last_error(stream) or f"status {status}"
            raise TokenTrieError(f"the token trie was refused: {reason}")

    def set_text_choices(self, stream: CffiStream, choices: Sequence[str], mode: int) -> None:
        """Start a span of choices that may be cut into tokens in every way."""
        self._need("set_text_choices")
        raw = json.dumps(choices, ensure_ascii=False).encode("utf-8", "surrogatepass")
        status = self._lib.eliza_inference_set_text_choices(stream.pointer, raw, len(raw), mode)
        if status < 0:
            raise TokenTrieError(f"the choices were refused: {self._last_error(stream)}")

    def clear_token_trie(self, stream: CffiStream) -> None:
        """End the span, if one is active."""
        self._need("clear_token_trie")
        self._lib.eliza_inference_clear_token_trie(stream.pointer)

    def token_trie_leaf(self, stream: CffiStream) -> TrieLeaf | None:
        """Return the leaf the last span ended on, or None if none has."""
        self._need("token_trie_leaf")
        null = self._ffi.NULL
        logprob = self._ffi.new("double *")
        leaf = self._lib.eliza_inference_token_trie_leaf
        if leaf(stream.pointer, null, 0, logprob) < 0:
            return None
        cap = 256
        while cap <= LARGEST_TEXT_CAP:
            name = self._ffi.new("char[]", cap)
            if leaf(stream.pointer, name, cap, null) >= 0:
                return TrieLeaf(self._ffi.string(name).decode("utf-8", "replace"), logprob[0])
            cap *= 8
        raise NativeFault(f"cannot read the leaf's name: {self._last_error(stream)}")

    def token_trie_scores(self, stream: CffiStream) -> NDArray[np.float64]:
        """Return the logarithm of every leaf's probability, shape ``[leaves]``, payload order.

        To be asked after the span was set and before its first token.
        """
        self._need("token_trie_scores")
        scores = self._lib.eliza_inference_token_trie_scores
        count = scores(stream.pointer, self._ffi.NULL, 0)
        logprobs = np.zeros(max(count, 0), dtype=np.float64)
        if count > 0:
            count = scores(stream.pointer, self._ffi.from_buffer("double[]", logprobs), count)
        if count < 0:
            raise self._stream_error(stream, count, "score the choices")
        return logprobs

    # ---- skeletons --------------------------------------------------------------------------

    def fill(self, stream: CffiStream, span: Mapping[str, Any]) -> SpanResult:
        """Write one span of an answer."""
        self._need("llm_stream_fill")
        raw = json.dumps(span).encode()
        out = self._ffi.new("char **")
        status = self._lib.eliza_inference_llm_stream_fill(
            stream.pointer, raw, len(raw), out, stream.error
        )
        written = self._take(out)
        result = span_result(json.loads(written)) if written else None
        if status < 0 or result is None:
            error = self._stream_error(stream, status, "fill a span")
            if isinstance(error, ContextFullError):
                error.partial = result
            raise error
        return result

    # ---- internals --------------------------------------------------------------------------

    def _need(self, name: str) -> None:
        if not self.library.has(PREFIX + name):
            raise NotSupportedError(
                f"{self.library.path} (ABI version {self.library.abi_version}) "
                f"has no {PREFIX}{name}"
            )

    def _checked(self, doing: str, function: Any, ctx: Any, *arguments: Any) -> int:
        """Call a function that returns a status and takes ``char ** err`` last."""
        error = self._ffi.new("char **")
        status = int(function(ctx, *arguments, error))
        self._reraise_from_progress(ctx)
        if status < 0:
            raise error_from_status(status, self._take(error), doing)
        return status

    def _reraise_from_progress(self, ctx: Any) -> None:
        state = self._progress.get(ctx)
        if state is not None:
            state.reraise()

    def _take(self, error: Any) -> str:
        """Copy a string the library allocated and give it back."""
        pointer, error[0] = error[0], self._ffi.NULL
        if not pointer:
            return ""
        try:
            return str(self._ffi.string(pointer), "utf-8", "replace")
        finally:
            self._lib.eliza_inference_free_string(pointer)

    def _stream_error(self, stream: CffiStream, status: int, doing: str) -> ElizaError:
        said = self._take(stream.error) or self._last_error(stream)
        is_full = status == ERR_FFI_FAULT and self._is_context_full(stream)
        return error_from_status(status, said, doing, ContextFullError if is_full else None)

    def _is_context_full(self, stream: CffiStream) -> bool:
        if not self.supports("stats"):
            return False
        status, struct = self._call_stats(stream)
        reason = self._finish_reasons.get(struct.finish_reason)
        return status >= 0 and reason == "context_full"

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

    def _call_next(self, stream: CffiStream) -> int:
        return int(
            self._lib.eliza_inference_llm_stream_next(
                stream.pointer,
                stream.tokens,
                TOKENS_PER_PULL,
                stream.count,
                stream.text,
                stream.text_cap,
                stream.drafted,
                stream.accepted,
                stream.error,
            )
        )

    def _has_grown_text(self, stream: CffiStream) -> bool:
        """Make room for a token whose text did not fit; False if that is not what was wrong."""
        text = self._ffi.string(stream.error[0]) if stream.error[0] else b""
        if not text.startswith(b"text_cap") or stream.text_cap >= LARGEST_TEXT_CAP:
            return False
        self._take(stream.error)
        stream.text_cap *= 4
        stream.text = self._ffi.new("char[]", stream.text_cap)
        return True


def span_result(facts: Mapping[str, Any]) -> SpanResult:
    """Return what the library's JSON says of a span."""
    return SpanResult(
        text=facts["text"],
        logprob=facts["logprob"],
        tokens=facts["tokens"],
        truncated=facts["truncated"],
        choice=facts["choice"],
        answer_tokens=tuple(facts["answer_tokens"]),
    )
