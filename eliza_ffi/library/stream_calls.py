"""Calls that generate: open a stream, prefill, pull or push tokens, cancel, close."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_callable, check_each, check_kind, check_whole, wrong
from ..errors import InvalidArgumentError, NotSupportedError
from . import native_calls
from .cffi_values import (
    MOST_TOKENS_PER_PULL,
    TOKENS_PER_PULL,
    CallbackState,
    CffiStream,
    token_array,
    token_callback,
)
from .native_calls import ERR_TEXT_CAP, NativeCalls
from .protocol import StreamConfig, StreamStep, TokenCallback, Tokens

__all__ = ["StreamCalls"]

MOST_MS_PER_PULL = 100
"""Time limit of a call that generates several tokens, in milliseconds.

It is short because Python handles signals such as Ctrl-C only between two calls."""


class StreamCalls(NativeCalls):
    """Calls that open and close a stream, and generate."""

    # ---- open and close ---------------------------------------------------------------------

    def open(self, ctx: Any, config: StreamConfig) -> CffiStream:
        """Open a stream in a free KV slot."""
        return self._open(ctx, config)

    def _open(self, ctx: Any, config: StreamConfig, context_size: int = 0) -> CffiStream:
        self._check_ctx(ctx)
        check_kind("config", config, StreamConfig, "a StreamConfig")
        stream = self._dialect.new_stream(ctx)
        struct, _alive = self._dialect.config(config, context_size)
        error = self._ffi.new("char **")
        lib = self._lib
        if not stream.open(
            lib.eliza_inference_llm_stream_open,
            (ctx, struct, error),
            lib.eliza_inference_llm_stream_close,
        ):
            kind = self._kind_of_failure(InvalidArgumentError)
            said = self._take(error)
            probe = "eliza_inference_llm_stream_supported"
            if self.library.has(probe) and not self.library.probe(probe):
                reason = f": {said}" if said else ""
                raise NotSupportedError(
                    f"{self.library.path} was built without text generation{reason}"
                )
            raise kind(f"cannot open a stream: {said or 'the library gave no reason'}")
        try:
            self._reraise_from_callbacks(ctx)
        except BaseException:
            self.close(stream)
            raise
        return stream

    def close(self, stream: CffiStream) -> None:
        """Close a stream and free its slot. Closing a stream twice is allowed."""
        self._check_stream(stream)
        stream.close()

    # ---- generate ---------------------------------------------------------------------------

    def prefill(self, stream: CffiStream, tokens: Tokens) -> None:
        """Append the prompt, or the next part of a conversation, and decode it."""
        ids = token_array(tokens)
        prefill = self._lib.eliza_inference_llm_stream_prefill
        ids_in_c = self._ffi.from_buffer("int32_t[]", ids)
        self._checked_stream(f"prefill {len(ids)} tokens", prefill, stream, ids_in_c, len(ids))

    def set_token_mask(self, stream: CffiStream, mask: NDArray[np.uint32] | None) -> None:
        """Restrict the next token to a set; None removes the restriction.

        Parameters
        ----------
        stream
        mask
            Shape ((n_vocab + 31) // 32,): token t is allowed if bit ``t % 32`` of word ``t // 32``
            is set.
        """
        self._need("llm_stream_set_token_mask")
        try:
            words = np.ascontiguousarray(() if mask is None else mask, np.uint32)
        except (OverflowError, TypeError, ValueError):
            raise wrong("mask", "an array of uint32 or None", mask) from None
        bits = self._ffi.NULL if mask is None else self._ffi.from_buffer("uint32_t[]", words)
        set_mask = self._lib.eliza_inference_llm_stream_set_token_mask
        self._checked_stream("set a token mask", set_mask, stream, bits, words.size)

    def set_forced_tokens(self, stream: CffiStream, tokens: Tokens) -> None:
        """Make these tokens the next ones; they need no forward pass each."""
        self._need("llm_stream_set_forced_tokens")
        ids = token_array(tokens)
        force = self._lib.eliza_inference_llm_stream_set_forced_tokens
        ids_in_c = self._ffi.from_buffer("int32_t[]", ids)
        self._checked_stream(f"set {len(ids)} forced tokens", force, stream, ids_in_c, len(ids))

    def decode(self, stream: CffiStream) -> None:
        """Run the forward pass that the next token needs, if any."""
        self._need("llm_stream_decode")
        self._checked_stream("decode", self._lib.eliza_inference_llm_stream_decode, stream)

    def next(self, stream: CffiStream) -> StreamStep:
        """Generate the next step: one token, or several that need no forward pass each."""
        with stream.turn("generate"):
            return self._pull(stream, self._call_next)

    def next_many(self, stream: CffiStream) -> StreamStep:
        """Generate tokens for up to 0.1 s, and return them as one step.

        The call returns earlier if the generation ends, or after 256 tokens.
        """
        self._need("llm_stream_next_many")
        with self._turn(stream, "generate"):
            return self._pull(stream, self._call_next_many)

    def set_stops(self, stream: CffiStream, stops: Sequence[str]) -> None:
        """Set the stop strings. `next` and `next_many` return after a token that completes one."""
        self._need("llm_stream_set_stops")
        # A string with NUL can never be generated, so it is left out.
        given = check_each("stops", stops, str, "a string")
        possible = [stop.encode(errors="surrogatepass") for stop in given if "\0" not in stop]
        kept = [self._ffi.new("char[]", stop) for stop in possible]
        array = self._ffi.new("char *[]", kept)
        set_stops = self._lib.eliza_inference_llm_stream_set_stops
        self._checked_stream("set stop strings", set_stops, stream, array, len(kept))

    def _pull(
        self, stream: CffiStream, call: Callable[[CffiStream], tuple[int, int]]
    ) -> StreamStep:
        status, n_tokens = call(stream)
        while status == ERR_TEXT_CAP and self._has_grown_text(stream):
            status, n_tokens = call(stream)
        self._reraise_from_callbacks(stream.ctx)
        if status < 0:
            raise self._stream_error(stream, status, "generate")
        done = status == 1
        return StreamStep(
            tuple(self._ffi.unpack(stream.tokens, n_tokens)),
            stream.decoder.decode(self._ffi.string(stream.text), done),
            done,
            stream.drafted[0],
            stream.accepted[0],
        )

    def generate(self, stream: CffiStream, max_tokens: int, on_token: TokenCallback) -> None:
        """Generate, and call `on_token` with each token.

        An exception in `on_token` stops the generation and is raised here.

        Parameters
        ----------
        stream
        max_tokens
            The most tokens to generate; 0 = no limit other than the configuration's.
        on_token
            See :data:`~eliza_ffi.library.protocol.TokenCallback`.
        """
        self._need("llm_stream_generate")
        self._check_stream(stream)
        check_callable("on_token", on_token)
        check_whole("max_tokens", max_tokens, 0)
        state = CallbackState(on_token)
        limit = max_tokens or self._dialect.no_limit
        handle = self._ffi.new_handle(state)
        with self._turn(stream, "generate"):
            status = self._lib.eliza_inference_llm_stream_generate(
                stream.pointer, limit, token_callback(), handle, stream.error
            )
            state.reraise()
            self._reraise_from_callbacks(stream.ctx)
            if status < 0:
                raise self._stream_error(stream, status, "generate")
        tail = state.decoder.decode(b"", True)
        if tail:
            on_token(-1, tail)

    def cancel(self, stream: CffiStream) -> None:
        """Stop the call that is running on the stream. Any thread may call this."""
        self._check_stream(stream)
        if stream.pointer:
            self._lib.eliza_inference_llm_stream_cancel(stream.pointer)

    def _call_next(self, stream: CffiStream) -> tuple[int, int]:
        status = self._lib.eliza_inference_llm_stream_next(
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
        return int(status), stream.count[0]

    def _call_next_many(self, stream: CffiStream) -> tuple[int, int]:
        status = self._lib.eliza_inference_llm_stream_next_many(
            stream.pointer,
            MOST_MS_PER_PULL,
            stream.tokens,
            MOST_TOKENS_PER_PULL,
            stream.wide_count,
            stream.text,
            stream.text_cap,
            stream.drafted,
            stream.accepted,
            stream.error,
        )
        return int(status), stream.wide_count[0]

    def _has_grown_text(self, stream: CffiStream) -> bool:
        """Enlarge the text buffer for a long token; return False if it has its maximum size."""
        if stream.text_cap >= native_calls.LARGEST_TEXT_CAP:
            return False
        self._take(stream.error)
        stream.text_cap *= 4
        stream.text = self._ffi.new("char[]", stream.text_cap)
        return True
