"""Call the C library, with one method for each C function. It checks that arguments fit their C
types, and turns negative statuses into exceptions. cffi releases the GIL during every call."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._lazy import lazy_property
from ..checks import (
    check_callable,
    check_each,
    check_flag,
    check_kind,
    check_one_of,
    check_path,
    check_several,
    check_text,
    check_whole,
    wrong,
)
from ..errors import (
    ContextFullError,
    ElizaError,
    InvalidArgumentError,
    ModelError,
    NativeFaultError,
    NotSupportedError,
    TokenTrieError,
    error_from_status,
    kind_of_status,
)
from .abi import PREFIX, symbols_of
from .cffi_values import (
    ANY_TURN,
    MAX_TOKENS_PER_PULL,
    TOKENS_PER_PULL,
    CallbackState,
    CffiStream,
    c_string,
    progress_callback,
    token_array,
    token_callback,
    verifier_callback,
)
from .dialect import dialect_of
from .loading import Library
from .log_lines import interrupts, raise_interrupt
from .protocol import (
    Chosen,
    Decided,
    EndingScores,
    EotScore,
    Hidden,
    PreparedChoices,
    ProgressCallback,
    Ranking,
    SpanResult,
    StreamConfig,
    StreamStats,
    StreamStep,
    TokenCallback,
    Tokens,
    TokenTable,
    TrieLeaf,
    VerifierCallback,
    VerifierEvent,
)

__all__ = ["CffiBinding", "EotScore", "VerifierEvent", "token_array"]

ERR_INVALID_ARG = -2
ERR_TEXT_CAP = -10

LARGEST_TEXT_CAP = 1 << 24
LEAF_CAP = 256

SPECIAL_TOKENS = 16
"""An upper bound of the number of tokens that a tokenizer adds to a text."""

MAX_MS_PER_PULL = 100
"""Time limit of a call that generates several tokens, in milliseconds.

It is short because Python handles signals such as Ctrl-C only between two calls."""

MAX_TOKENS = 2**24
"""Maximum number of tokens whose log-probabilities can be read in one call."""

MAX_TOP = 1024
"""Maximum number of alternatives per token whose log-probabilities the library reports."""

MAX_LAYERS = 2**16
MAX_EMBD = 2**20
"""Larger numbers are mistakes: no model has as many layers, or values in a hidden state."""

RANGE = "a (begin, end) tuple"

ENDINGS = "a list of (tokens, PreparedChoices) tuples"
DECISION = "a Decision, as decision() returns it"
STREAM = "a stream, as open() returns it"

RANK_LEGAL, RANK_JOINT = 0, 1
NO_PASSES = -1

RANKED = np.dtype(
    {"names": ["label", "logprob", "most_logprob"], "formats": [np.int32, np.float64, np.float64]},
    align=True,
)
"""The C type ``eliza_ranked_t``."""

COUNTERS = tuple(field.name for field in fields(StreamStats))
COUNTERS_OF = attrgetter(*COUNTERS)

POOLING = {"mean": 1, "cls": 2, "last": 3}

TOKEN_CONTROL, TOKEN_END = 1, 2  # the header's ELIZA_TOKEN_CONTROL and ELIZA_TOKEN_END

EMBEDDING_CAP = 4096
"""The buffer size of the first attempt. If it is too small, the library returns the size needed."""


class _Functions(dict[str, Any]):
    """The functions of a library by name without the prefix. Looks each up when first needed."""

    def __init__(self, library: Library) -> None:
        self._library = library

    def __missing__(self, name: str) -> Any:
        self._library.need(PREFIX + name)
        self[name] = getattr(self._library.lib, PREFIX + name)
        return self[name]


class CffiBinding:
    """Calls libelizainference: this project's library, or another library of that name.

    Parameters
    ----------
    library
        The loaded library.
    cache_type_k, cache_type_v
        The data types of the KV cache for streams whose configuration names none; None = f16.

    Notes
    -----
    A call on a closed stream or context raises an error. So does a call on a stream while another
    call is running on the same stream. Destroying a context closes its streams.
    """

    def __init__(
        self, library: Library, cache_type_k: str | None = None, cache_type_v: str | None = None
    ) -> None:
        self.library = check_kind("library", library, Library, "a Library")
        self._cache_types = cache_type_k, cache_type_v
        self._ffi = library.ffi
        self._lib = library.lib
        self._finish_reasons = {
            number: name.removeprefix("ELIZA_FINISH_").lower()
            for number, name in self._ffi.typeof("eliza_finish_reason").elements.items()
        }
        self._strategies = {
            bit: name.removeprefix("ELIZA_STRATEGY_").lower().replace("_", "-")
            for bit, name in self._ffi.typeof("eliza_strategy").elements.items()
        }
        self._dialect = dialect_of(library)
        self._functions = _Functions(library)
        self._supported: dict[str, bool] = {}
        self._callbacks: dict[tuple[Any, str], CallbackState] = {}
        # A stream keeps calling the callback that was set when it was opened. Handles of replaced
        # callbacks are therefore kept until their context is destroyed.
        self._callback_handles: dict[Any, list[Any]] = {}

    def supports(self, name: str) -> bool:
        """Return whether this library supports the method of this name.

        The library must have a function ``eliza_inference_[llm_[stream_]]<name>``.
        """
        if not isinstance(name, str) or name not in self._supported:
            found = any(map(self.library.has, symbols_of(check_text("name", name))))
            self._supported[name] = found
        return self._supported[name]

    # ---- contexts ----------------------------------------------------------------------------

    def create(self, path: str) -> Any:
        """Open a bundle directory or a model file, and return the context."""
        self.library.forward_log_lines()  # logging may have been set up after the last call
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
        self._call("mmap_acquire", "load the model", ctx, b"text")

    def set_option(self, ctx: Any, key: str, value: str) -> None:
        """Set an option of a context. The C header lists all options."""
        check_text("key", key)
        check_text("value", value)
        key_in_c = c_string(key, "the option's name")
        value_in_c = c_string(value, f"the value of {key}")
        self._call("set_option", f"set {key} to {value!r}", ctx, key_in_c, value_in_c)

    def describe(self, ctx: Any | None = None) -> dict[str, Any]:
        """Return facts about the library, and about the model of `ctx` if one is given."""
        out = self._ffi.new("char **")
        self._call("describe", "describe the library", self._ffi.NULL if ctx is None else ctx, out)
        facts: dict[str, Any] = json.loads(self._take(out))
        return facts

    def set_progress_callback(self, ctx: Any, callback: ProgressCallback | None) -> None:
        """Report the progress of loading and prefill to a function; None turns reporting off.

        An exception in `callback` is raised when the work has finished.
        """
        self._set_callback(ctx, "progress", progress_callback(), callback)

    def set_verifier_callback(self, ctx: Any, callback: VerifierCallback | None) -> None:
        """Report the outcome of each draft to a function; None turns reporting off.

        `callback` runs on the thread that generates, and must not call the library. If it raises an
        exception, the work continues. ``next`` raises the exception at the end of the same call,
        and the tokens of this call are lost. ``generate`` raises it at the end of the generation.
        """
        self._set_callback(ctx, "verifier", verifier_callback(), callback)

    # ---- streams -----------------------------------------------------------------------------

    def open(self, ctx: Any, config: StreamConfig, context_size: int = 0) -> CffiStream:
        """Open a stream in a free KV slot.

        `context_size` is the size of its context in tokens, for libraries that have one per stream;
        0 = the library's default.
        """
        if not isinstance(ctx, self._ffi.CData):
            self._check_ctx(ctx)
        self.library.forward_log_lines()
        check_kind("config", config, StreamConfig, "a StreamConfig")
        stream = self._dialect.new_stream(ctx)
        if any(self._cache_types):
            config = self._with_cache_types(config)
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
            if interrupts or self._callbacks:
                self._reraise_from_callbacks(ctx)
        except BaseException:
            self.close(stream)
            raise
        return stream

    def _with_cache_types(self, config: StreamConfig) -> StreamConfig:
        """Return a configuration with the default types of the KV cache where it names none."""
        type_k, type_v = self._cache_types
        type_k, type_v = config.cache_type_k or type_k, config.cache_type_v or type_v
        return replace(config, cache_type_k=type_k, cache_type_v=type_v)

    def close(self, stream: CffiStream) -> None:
        """Close a stream and free its slot. Closing a stream twice is allowed."""
        check_kind("stream", stream, CffiStream, STREAM)
        stream.close()

    # ---- generate ---------------------------------------------------------------------------

    def prefill(self, stream: CffiStream, tokens: Tokens) -> None:
        """Append the prompt, or the next part of a conversation, and decode it."""
        ids, n = self._ids(tokens)
        self._call_on(stream, "llm_stream_prefill", f"prefill {n} tokens", ids, n)

    def append(self, stream: CffiStream, tokens: Tokens) -> None:
        """Append a prompt that is decoded together with the labels or endings that follow."""
        ids, n = self._ids(tokens)
        self._call_on(stream, "llm_stream_append", f"prefill {n} tokens", ids, n)

    def reset_keep(self, stream: CffiStream, n_keep: int) -> None:
        """Keep the first `n_keep` tokens as the prompt, and remove all other tokens.

        An earlier cancel has no effect any more.
        """
        reset, doing = self._functions["llm_stream_reset_keep"], "start again after a prompt"
        n_keep = check_whole("n_keep", n_keep, 0)
        with self._turn(stream, doing):
            status = int(reset(stream.pointer, n_keep))
            if status < 0:
                raise self._stream_error(stream, status, doing)

    def set_token_mask(self, stream: CffiStream, mask: NDArray[np.uint32] | None) -> None:
        """Restrict the next token to a set; None removes the restriction.

        `mask` has the shape ((n_vocab + 31) // 32,): token t is allowed if bit ``t % 32`` of word
        ``t // 32`` is set.
        """
        try:
            words = np.ascontiguousarray(() if mask is None else mask, np.uint32)
        except (OverflowError, TypeError, ValueError):
            raise wrong("mask", "an array of uint32 or None", mask) from None
        bits = self._ffi.NULL if mask is None else self._ffi.from_buffer("uint32_t[]", words)
        self._call_on(stream, "llm_stream_set_token_mask", "set a token mask", bits, words.size)

    def set_forced_tokens(self, stream: CffiStream, tokens: Tokens) -> None:
        """Make these tokens the next ones; they need no forward pass each."""
        ids, n = self._ids(tokens)
        self._call_on(stream, "llm_stream_set_forced_tokens", f"set {n} forced tokens", ids, n)

    def decode(self, stream: CffiStream) -> None:
        """Run the forward pass that the next token needs, if any."""
        self._call_on(stream, "llm_stream_decode", "decode")

    def next(self, stream: CffiStream, *, at_once: bool = False) -> StreamStep:
        """Generate the next step: one token, or several that need no forward pass each.

        With `at_once`, generate tokens for up to 0.1 s, and return them as one step. The call
        returns earlier if the generation ends, or after 256 tokens.
        """
        pull, count = self._lib.eliza_inference_llm_stream_next, stream.count
        most, limits = TOKENS_PER_PULL, tuple[int, ...]()
        if at_once:
            pull, count = self._functions["llm_stream_next_many"], stream.wide_count
            most, limits = MAX_TOKENS_PER_PULL, (MAX_MS_PER_PULL,)
        # As in _turn(), without a call: each token of a masked answer comes here.
        with ANY_TURN if type(stream) is CffiStream else self._turn(stream, "generate"):
            while True:
                status = pull(
                    stream.pointer,
                    *(*limits, stream.tokens, most, count, stream.text, stream.text_cap),
                    *(stream.drafted, stream.accepted, stream.error),
                )
                if status != ERR_TEXT_CAP or stream.text_cap >= LARGEST_TEXT_CAP:
                    break
                # The text of a long token does not fit: enlarge the buffer.
                self._take(stream.error)
                stream.text_cap *= 4
                stream.text = self._ffi.new("char[]", stream.text_cap)
            if interrupts or self._callbacks:
                self._reraise_from_callbacks(stream.ctx)
            if status < 0:
                raise self._stream_error(stream, status, "generate")
            text, done = self._ffi.string(stream.text), status == 1
            return StreamStep(
                tuple(self._ffi.unpack(stream.tokens, count[0])),
                text.decode(errors="replace")
                if type(stream) is CffiStream
                else stream.decode(text, done),
                done,
                stream.drafted[0],
                stream.accepted[0],
            )

    def set_stops(self, stream: CffiStream, stops: Sequence[str]) -> None:
        """Set the stop strings. `next` returns after a token that completes one."""
        # A string with NUL can never be generated, so it is left out.
        texts = check_each("stops", stops, str, "a string")
        possible = [stop.encode(errors="surrogatepass") for stop in texts if "\0" not in stop]
        buffers = [self._ffi.new("char[]", stop) for stop in possible]
        array = self._ffi.new("char *[]", buffers)
        self._call_on(stream, "llm_stream_set_stops", "set stop strings", array, len(buffers))

    def generate(self, stream: CffiStream, max_tokens: int, on_token: TokenCallback) -> None:
        """Generate up to `max_tokens` tokens (0 = as configured), and call `on_token` with each.

        An exception in `on_token` stops the generation and is raised here.
        """
        push = self._functions["llm_stream_generate"]
        check_callable("on_token", on_token)
        max_tokens = check_whole("max_tokens", max_tokens, 0)
        state = CallbackState(on_token)
        limit = max_tokens or self._dialect.no_limit
        handle = self._ffi.new_handle(state)
        with self._turn(stream, "generate"):
            status = push(stream.pointer, limit, token_callback(), handle, stream.error)
            state.reraise()
            if interrupts or self._callbacks:
                self._reraise_from_callbacks(stream.ctx)
            if status < 0:
                raise self._stream_error(stream, status, "generate")
        tail = state.decoder.decode(b"", True)
        if tail:
            on_token(-1, tail)

    def cancel(self, stream: CffiStream) -> None:
        """Stop the call that is running on the stream. Any thread may call this."""
        check_kind("stream", stream, CffiStream, STREAM)
        if stream.pointer:
            self._lib.eliza_inference_llm_stream_cancel(stream.pointer)

    # ---- state -------------------------------------------------------------------------------

    def save_slot(self, stream: CffiStream, path: str | os.PathLike[str]) -> None:
        """Save the tokens and the KV cache of the stream's slot to a file."""
        self._slot_file(stream, "save", path)

    def restore_slot(self, stream: CffiStream, path: str | os.PathLike[str]) -> None:
        """Restore a slot from a file; raise an error if the file does not fit the model."""
        self._slot_file(stream, "restore", path)

    def _slot_file(self, stream: CffiStream, verb: str, path: str | os.PathLike[str]) -> None:
        raw = os.fsencode(check_path("path", path))
        doing = f"{verb} the slot {os.fspath(path)}"
        self._call_on(stream, f"llm_stream_{verb}_slot", doing, raw)

    def stats(self, stream: CffiStream) -> StreamStats:
        """Return the counters of the stream."""
        read = self._functions["llm_stream_stats"]
        struct = self._ffi.new("eliza_llm_stream_stats_t *")
        doing = "read the stream's counters"
        with ANY_TURN if type(stream) is CffiStream else self._turn(stream, doing):
            status = read(stream.pointer, struct, self._ffi.sizeof("eliza_llm_stream_stats_t"))
        if status < 0:
            raise self._stream_error(stream, status, doing)
        return self._stats_in(struct)

    def _stats_in(self, struct: Any) -> StreamStats:
        values = dict(zip(COUNTERS, COUNTERS_OF(struct), strict=True))
        values["finish_reason"] = self._finish_reasons.get(struct.finish_reason, "unknown")
        values["trie_active"] = bool(struct.trie_active)
        bits = struct.strategies
        found = [name for bit, name in self._strategies.items() if bits & bit] if bits else ()
        values["strategies"] = tuple(found)
        return StreamStats(**values)

    def set_sampling(self, stream: CffiStream, settings: str) -> None:
        """Change the sampling of all following tokens; `settings` is the JSON of a ``Sampling``."""
        raw = check_text("settings", settings).encode("utf-8", "surrogatepass")
        self._call_on(stream, "llm_stream_set_sampling", "set the sampling", raw, len(raw))

    def set_logprobs(self, stream: CffiStream, n_top: int) -> None:
        """Record log-probabilities for all following tokens and their `n_top` alternatives."""
        n_top = check_whole("n_top", n_top, 0)
        doing = f"report log-probabilities with {n_top} alternatives"
        self._call_on(stream, "llm_stream_set_logprobs", doing, n_top)

    def take_logprobs(self, stream: CffiStream, n_tokens: int, n_top: int) -> NDArray[np.void]:
        """Return the log-probabilities of at most `n_tokens` tokens generated since the last call.

        Returns
        -------
        array of (token, logprob), shape [n, 1 + n_top]
            In each row the generated token, then the most probable tokens at its position. Unknown
            entries are -1 and nan.
        """
        n_tokens = check_whole("n_tokens", n_tokens, 0, MAX_TOKENS)
        found, entries = self._logprob_entries(n_tokens, n_top)
        doing = "read the log-probabilities"
        count = self._call_on(stream, "llm_stream_take_logprobs", doing, entries, found.size)
        return found[:count]

    def prefill_logprobs(self, stream: CffiStream, tokens: Tokens, n_top: int) -> NDArray[np.void]:
        """Append a prompt and return the log-probabilities of its tokens, computed in few passes.

        Returns
        -------
        array of (token, logprob), shape [n_tokens, 1 + n_top]
            In each row the token, then the most probable tokens at its position. The first token of
            a conversation has the log-probability nan and no alternatives (-1).
        """
        ids, n = self._ids(tokens)
        logprobs, entries = self._logprob_entries(n, n_top)
        doing = f"read a prompt of {n} tokens with log-probabilities"
        out = n_top, entries, logprobs.size
        self._call_on(stream, "llm_stream_prefill_logprobs", doing, ids, n, *out)
        return logprobs

    def _ranges(self, ranges: Sequence[tuple[int, int]], n_tokens: int) -> tuple[Any, int]:
        pairs = check_each("ranges", ranges, (tuple, list), RANGE)
        if not pairs:
            raise InvalidArgumentError("ranges: expected at least one range, got none")
        bounds = np.empty((len(pairs), 2), np.uint64)
        for i, pair in enumerate(pairs):
            if len(pair) != 2:
                raise wrong(f"ranges[{i}]", RANGE, pair)
            bounds[i] = [check_whole(f"ranges[{i}]", at, 0, n_tokens) for at in pair]
        return self._ffi.from_buffer("uint64_t[]", bounds), len(bounds)

    def _ids(self, tokens: Tokens, name: str = "tokens") -> tuple[Any, int]:
        """Return whole numbers as a C array, which keeps them alive, and its length."""
        ids = token_array(tokens, name)
        return self._ffi.from_buffer("int32_t[]", ids), len(ids)

    def _logprob_entries(self, n_tokens: int, n_top: int) -> tuple[NDArray[np.void], Any]:
        """Return an array for log-probabilities, and a pointer to its entries."""
        n_top = check_whole("n_top", n_top, 0, MAX_TOP)
        found = np.zeros((n_tokens, n_top + 1), dtype=[("token", "i4"), ("logprob", "f4")])
        return found, self._ffi.from_buffer("eliza_token_logprob_t[]", found, require_writable=True)

    def describe_chain(self, stream: CffiStream) -> tuple[str, ...]:
        """Return the names of a stream's samplers, in the order in which they run."""
        out = self._ffi.new("char **")
        self._call_on(stream, "llm_stream_describe_chain", "read the stream's samplers", out)
        return tuple(filter(None, self._take(out).split(";")))

    def fill(self, stream: CffiStream, span: Mapping[str, Any]) -> SpanResult:
        """Write one span of an answer."""
        write = self._functions["llm_stream_fill"]
        try:
            raw = json.dumps(span).encode()
        except (TypeError, ValueError) as not_json:
            raise wrong("span", "JSON", span, str(not_json)) from None
        out = self._ffi.new("char **")
        with ANY_TURN if type(stream) is CffiStream else self._turn(stream, "fill a span"):
            status = write(stream.pointer, raw, len(raw), out, stream.error)
            written, result = self._take(out), None
            if written:
                facts = json.loads(written)
                result = SpanResult(
                    text=facts["text"],
                    logprob=facts["logprob"],
                    tokens=facts["tokens"],
                    truncated=facts["truncated"],
                    choice=facts["choice"],
                    answer_tokens=tuple(facts["answer_tokens"]),
                    answer_bytes=tuple(facts["answer_bytes"]),
                )
            if status < 0 or result is None:
                error = self._stream_error(stream, status, "fill a span")
                if isinstance(error, ContextFullError):
                    error.partial = result
                raise error
        return result

    # ---- spans -------------------------------------------------------------------------------

    @lazy_property
    def trie_modes(self) -> int:
        """The bit set of supported trie modes and flags.

        0 if the library has no token trie or does not report its modes.
        """
        if not (self.supports("set_token_trie") and self._dialect.reports_rejected_tries):
            return 0
        return int(self._lib.eliza_inference_token_trie_supported())

    def set_token_trie(self, stream: CffiStream, payload: str | bytes, mode: int) -> None:
        """Start a span. `payload` is JSON, or the bytes of a binary (``RTKT``) tree."""
        raw = _payload_bytes(payload)
        self._start_span(stream, "set_token_trie", "the token trie", raw, len(raw), mode=mode)

    def prepare_choices(self, ctx: Any, texts: Sequence[str]) -> PreparedChoices:
        """Tokenize choices once, for use in any number of spans."""
        prepared = self._prepared(ctx, "prepare_choices", _json_of("texts", texts), len(texts))
        return replace(prepared, texts=texts)

    def prepare_token_trie(self, ctx: Any, payload: str | bytes, n: int) -> PreparedChoices:
        """Parse a payload with `n` leaves once, for use in any number of spans."""
        return self._prepared(ctx, "prepare_token_trie", _payload_bytes(payload), n)

    def _prepared(self, ctx: Any, name: str, raw: bytes, n: int) -> PreparedChoices:
        prepare = self._functions[name]
        self._check_ctx(ctx)
        n = check_whole("n", n, 0)
        longest = self._ffi.new("size_t *")
        error = self._ffi.new("char **")
        handle = prepare(ctx, raw, len(raw), longest, error)
        kind = None if handle else self._kind_of_failure(InvalidArgumentError)
        if handle:
            handle = self._ffi.gc(handle, self._lib.eliza_inference_free_choices)
        said = self._take(error)
        if interrupts or self._callbacks:
            self._reraise_from_callbacks(ctx)
        if kind is not None:
            raise kind(said or "the library rejected the choices")
        return PreparedChoices(handle, longest[0], n)

    def set_choices(self, stream: CffiStream, choices: PreparedChoices, mode: int) -> None:
        """Start a span with prepared choices."""
        check_kind("choices", choices, PreparedChoices, "a PreparedChoices")
        self._start_span(stream, "set_choices", "the choices", choices.handle, mode=mode)

    def choose(
        self,
        stream: CffiStream,
        prompt: Tokens,
        choices: PreparedChoices,
        mode: int,
        *,
        scores: bool = False,
    ) -> Chosen:
        """Append a prompt, choose one of prepared choices after it, and read the counters.

        `mode` is a trie mode without flags. `scores` says whether to compute all probabilities.
        """
        choose = self._functions["llm_stream_choose"]
        check_kind("choices", choices, PreparedChoices, "a PreparedChoices")
        mode = check_whole("mode", mode, 0)
        scores = check_flag("scores", scores)
        ffi, ids = self._ffi, self._ids(prompt)
        result, stats = ffi.new("eliza_choice_t *"), ffi.new("eliza_llm_stream_stats_t *")
        tokens = ffi.new("int32_t[]", choices.longest)
        logprobs = np.empty(choices.n, np.float64) if scores else None
        all_in_c = ffi.NULL if logprobs is None else ffi.from_buffer("double[]", logprobs)
        with ANY_TURN if type(stream) is CffiStream else self._turn(stream, "choose"):
            n = choose(
                stream.pointer,
                *(*ids, choices.handle, mode, result),
                *(tokens, choices.longest, all_in_c, choices.n if scores else 0),
                *(stats, ffi.sizeof("eliza_llm_stream_stats_t"), stream.error),
            )
            if interrupts or self._callbacks:
                self._reraise_from_callbacks(stream.ctx)
            if n == ERR_INVALID_ARG:
                said = self._take(stream.error)
                kind = InvalidArgumentError if said.startswith("tokens[") else TokenTrieError
                raise kind(f"the library rejected the prompt or the labels: {said}")
            if n < 0:
                raise self._stream_error(stream, n, "choose")
        read = tuple(ffi.unpack(tokens, n))
        return Chosen(result.label, result.logprob, read, self._stats_in(stats), logprobs)

    def set_text_choices(self, stream: CffiStream, choices: Sequence[str], mode: int) -> None:
        """Start a span with choices given as strings, in any tokenization."""
        raw = _json_of("choices", choices)
        self._start_span(stream, "set_text_choices", "the choices", raw, len(raw), mode=mode)

    def _start_span(
        self, stream: CffiStream, name: str, what: str, *labels: Any, mode: int
    ) -> None:
        """Call a function that starts a span with labels; `what` names the labels in messages."""
        start = self._functions[name]
        mode = check_whole("mode", mode, 0)
        with self._turn(stream, f"set {what}"):
            status: Any = start(stream.pointer, *labels, mode)
            if self._dialect.reports_rejected_tries and status < 0:
                said = self._last_error(stream) or f"status {status}"
                kind = TokenTrieError if status == ERR_INVALID_ARG else kind_of_status(status)
                raise kind(f"the library rejected {what}: {said}")

    def clear_token_trie(self, stream: CffiStream) -> None:
        """End the span, if one is active."""
        clear = self._functions["clear_token_trie"]
        with self._turn(stream, "clear the token trie"):
            clear(stream.pointer)

    def token_trie_leaf(self, stream: CffiStream) -> TrieLeaf | None:
        """Return the leaf on which the last span ended, or None if no span has ended on a leaf."""
        leaf = self._functions["token_trie_leaf"]
        logprob, cap = self._ffi.new("double *"), LEAF_CAP
        with self._turn(stream, "read the leaf"):
            while cap <= LARGEST_TEXT_CAP:
                name = self._ffi.new("char[]", cap)
                if leaf(stream.pointer, name, cap, logprob) >= 0:
                    return TrieLeaf(self._ffi.string(name).decode("utf-8", "replace"), logprob[0])
                if cap == LEAF_CAP and leaf(stream.pointer, self._ffi.NULL, 0, logprob) < 0:
                    return None  # no leaf, and not a name that is too long
                cap *= 8
            raise NativeFaultError(f"cannot read the leaf's name: {self._last_error(stream)}")

    def token_trie_scores(self, stream: CffiStream) -> NDArray[np.float64]:
        """Return the natural logarithm of every leaf's probability, shape ``[n_leaves]``.

        The leaves are in the order of the payload. Call this after the start of the span and before
        its first token.
        """
        scores = self._functions["token_trie_scores"]
        with self._turn(stream, "score the choices"):
            count = scores(stream.pointer, self._ffi.NULL, 0)
            logprobs = np.zeros(max(count, 0), dtype=np.float64)
            if count > 0:
                count = scores(stream.pointer, self._ffi.from_buffer("double[]", logprobs), count)
            if count < 0:
                raise self._stream_error(stream, count, "score the choices")
        return logprobs

    def score_endings(
        self,
        stream: CffiStream,
        endings: Sequence[tuple[Tokens, PreparedChoices]],
        *,
        full: bool,
        allowed_probability: bool,
    ) -> tuple[EndingScores, ...]:
        """Score the choices after each of several endings of the conversation.

        Each ending is a pair of its tokens and the choices that may follow them. All are decoded
        together and then removed, so the conversation does not change. `full` and
        `allowed_probability` say whether to compute these fields of the result, which need the
        logits of the whole vocabulary.
        """
        scored = _Endings(self, endings, full, allowed_probability)
        self._call_on(
            stream,
            "llm_stream_score_endings",
            f"score {len(scored.structs)} endings",
            *(scored.structs, len(scored.structs), *scored.outputs, scored.n),
        )
        return scored.scores()

    def decision(
        self,
        config: StreamConfig,
        tokens: Tokens,
        endings: Sequence[tuple[Tokens, PreparedChoices]] = (),
        *,
        full: bool = False,
        allowed_probability: bool = False,
        hidden: Hidden | None = None,
    ) -> Decision:
        """Return a decision for :meth:`decide`: a prompt, and what to compute after it.

        `config` has the slot and the cache. `endings`, `full` and `allowed_probability` are as in
        :meth:`score_endings`. Without endings, `hidden` must have the hidden states to read.
        """
        check_kind("config", config, StreamConfig, "a StreamConfig")
        struct = self._ffi.new("eliza_decide_t *")
        struct.size = self._ffi.sizeof("eliza_decide_t")
        struct.tokens, struct.n_tokens = ids = self._ids(tokens)
        if any(self._cache_types):
            config = self._with_cache_types(config)
        struct.config, _ = owned = self._dialect.config(config, 0)
        scored = _Endings(self, endings, full, allowed_probability)
        struct.endings, struct.n_endings, struct.cap = scored.structs, len(scored.structs), scored.n
        struct.legal_out, struct.joint_out, struct.option_mass_out = scored.outputs
        states: NDArray[np.float32] | None = None
        alive: tuple[Any, ...] = ()
        if hidden is not None:
            check_kind("hidden", hidden, Hidden, "a Hidden or None")
            listed = check_several("layers", hidden.layers, "a list of whole numbers")
            layers = [check_whole(f"layers[{i}]", n, 1, MAX_LAYERS) for i, n in enumerate(listed)]
            n_embd = check_whole("n_embd", hidden.n_embd, 1, MAX_EMBD)
            states = np.empty((len(layers), len(hidden.ranges), n_embd), np.float32)
            alive = self._ids(layers), self._ranges(hidden.ranges, struct.n_tokens)
            struct.layers, struct.n_layers = alive[0]
            struct.ranges, struct.n_ranges = alive[1]
            struct.states_out = self._ffi.from_buffer("float[]", states, require_writable=True)
            struct.n_kept = check_whole("n_kept", hidden.n_kept, 0, MAX_TOKENS)
            struct.states_cap = states.size
        n_all = struct.n_tokens + scored.n_tokens
        return Decision(struct, scored, states, (ids, owned, alive), n_all)

    def decide(self, ctx: Any, decision: Decision) -> Decided:
        """Read the prompt of a decision, and score the choices after all its endings together."""
        struct = check_kind("decision", decision, Decision, DECISION).struct
        self._call("decide", f"read {struct.n_tokens} tokens", ctx, struct)
        passes, n_cached = struct.forward_passes, struct.tokens_cached
        return Decided(decision.scored.scores(), decision.states, passes, n_cached)

    def cancel_decision(self, ctx: Any, decision: Decision) -> None:
        """Stop a decision, even before it begins. Any thread may call this."""
        self._check_ctx(ctx)
        struct = check_kind("decision", decision, Decision, DECISION).struct
        self._functions["cancel_decide"](ctx, struct)

    def rank(
        self,
        stream: CffiStream,
        choices: PreparedChoices,
        *,
        k: int,
        after: Tokens = (),
        groups: Tokens | None = None,
        max_passes: int | None = None,
        full: bool = False,
    ) -> Ranking:
        """Return the `k` most probable choices after the conversation, which does not change.

        The tokens `after` follow the conversation, before the choices. If `groups` has the group of
        each choice, shape ``[n_choices]``, the groups are ranked, by the sum of the probabilities
        of their choices. `max_passes` limits the forward passes; None = as many as the proof needs.
        With `full`, the rank is by the full probability of a choice's tokens over the whole
        vocabulary, instead of its probability among the choices.
        """
        check_kind("choices", choices, PreparedChoices, "a PreparedChoices")
        ending = self._ffi.new("eliza_ending_t *")
        array = self._set_ending(ending, after, choices)
        rule = RANK_JOINT if check_flag("full", full) else RANK_LEGAL
        ranking = self._rank(
            stream,
            "llm_stream_rank",
            ending,
            n=choices.n,
            k=k,
            groups=groups,
            max_passes=max_passes,
            rule=rule,
        )
        del array  # of the ending's tokens
        return ranking

    def rank_texts(
        self,
        stream: CffiStream,
        texts: Sequence[str],
        *,
        k: int,
        groups: Tokens | None = None,
        max_passes: int | None = None,
    ) -> Ranking:
        """Return the most probable texts, which any tokens may spell; parameters as :meth:`rank`.

        The probability of a text is the sum over all its spellings. Its bounds in a proven ranking
        differ by at most 0.001.
        """
        raw = _json_of("texts", texts)
        return self._rank(
            stream,
            "llm_stream_rank_texts",
            *(raw, len(raw)),
            n=len(texts),
            k=k,
            groups=groups,
            max_passes=max_passes,
        )

    def _rank(
        self,
        stream: CffiStream,
        name: str,
        *labels: Any,
        n: int,
        k: int,
        groups: Tokens | None,
        max_passes: int | None,
        rule: int = RANK_LEGAL,
    ) -> Ranking:
        options = self._ffi.new("eliza_rank_options_t *")
        options.size = self._ffi.sizeof("eliza_rank_options_t")
        options.k = check_whole("k", k, 1, 2**32 - 1)
        options.rule = rule
        if max_passes is not None:
            options.max_passes = check_whole("max_passes", max_passes, 0, 2**31 - 1) or NO_PASSES
        if groups is not None:
            numbers, options.n_groups = self._ids(groups, "groups")
            options.groups = numbers
        ranked = np.zeros(min(k, n), dtype=RANKED)
        summary = self._ffi.new("eliza_ranking_t *")
        ranked_in_c = self._ffi.from_buffer("eliza_ranked_t[]", ranked)
        out = ranked_in_c, len(ranked), summary
        self._call_on(stream, name, "rank the choices", *labels, options, *out)
        found = ranked[: summary.n_ranked]
        return Ranking(
            labels=found["label"],
            logprobs=found["logprob"],
            most_logprobs=found["most_logprob"],
            proven=bool(summary.proven),
            rest=summary.rest,
            forward_passes=summary.forward_passes,
            rows_read=summary.rows_read,
        )

    def _set_ending(self, ending: Any, tokens: Tokens, choices: PreparedChoices) -> Any:
        """Fill in an ``eliza_ending_t``, and return the array that it points to."""
        check_kind("the choices of an ending", choices, PreparedChoices, "a PreparedChoices")
        ids, ending.n_tokens = self._ids(tokens)
        ending.tokens, ending.choices = ids, choices.handle
        return ids

    # ---- text without a stream ---------------------------------------------------------------

    def tokenize(
        self, ctx: Any, text: str, add_special: bool = False, parse_special: bool = False
    ) -> list[int]:
        """Tokenize a string.

        `add_special` says whether to add the tokens that the model requires at the beginning and
        the end, such as BOS; `parse_special`, whether to read the name of a special token in `text`
        as that token.
        """
        raw = check_text("text", text).encode("utf-8", "surrogatepass")
        if not (isinstance(add_special, bool) and isinstance(parse_special, bool)):
            add_special = check_flag("add_special", add_special)
            parse_special = check_flag("parse_special", parse_special)
        text_in_c = ctx, raw, len(raw), add_special, parse_special
        cap = len(raw) + SPECIAL_TOKENS  # a token has at least one byte
        if "eliza_inference_tokenize_into" in self.library.functions:
            tokens = self._ffi.new("int32_t[]", cap)
            n = self._call("tokenize_into", "tokenize", *text_in_c, tokens, cap)
            if n <= cap:
                return list(self._ffi.unpack(tokens, n))
        free = self._functions["free_tokens"]
        out = self._ffi.new("int **")
        count = self._ffi.new("size_t *")
        self._call("tokenize", "tokenize", *text_in_c, out, count)
        try:
            return list(self._ffi.unpack(out[0], count[0])) if count[0] else []
        finally:
            free(out[0])

    def detokenize(
        self, ctx: Any, tokens: Tokens, remove_special: bool = False, unparse_special: bool = False
    ) -> str:
        """Return the text of tokens. Bytes that are not UTF-8 are replaced by U+FFFD."""
        raw = self.detokenize_bytes(ctx, tokens, remove_special, unparse_special)
        return raw.decode("utf-8", "replace")

    def detokenize_bytes(
        self, ctx: Any, tokens: Tokens, remove_special: bool = False, unparse_special: bool = False
    ) -> bytes:
        """Return the bytes of tokens. They may end in the middle of a character."""
        remove_special = check_flag("remove_special", remove_special)
        unparse_special = check_flag("unparse_special", unparse_special)
        ids = token_array(tokens)
        tokens_in_c = self._ffi.from_buffer("int[]", ids), len(ids)
        special = int(remove_special), int(unparse_special)
        cap = 64 + 16 * len(ids)
        while True:
            text = self._ffi.new("char[]", cap)
            size = self._call("detokenize", "detokenize", ctx, *tokens_in_c, *special, text, cap)
            if size < cap:
                return bytes(self._ffi.buffer(text, size))
            cap = size + 1

    def vocabulary(self, ctx: Any) -> TokenTable:
        """Return the bytes of all tokens, and which are control tokens or end a generation."""
        doing = "read the vocabulary"
        null, n_bytes = self._ffi.NULL, self._ffi.new("int64_t *")
        n = self._call("vocabulary", doing, ctx, null, null, 0, null, 0, n_bytes)
        ends, kinds = np.empty(n, np.int64), np.empty(n, np.uint8)
        raw = np.empty(max(1, int(n_bytes[0])), np.uint8)
        from_buffer = self._ffi.from_buffer
        self._call(
            "vocabulary",
            doing,
            ctx,
            *(from_buffer("int64_t[]", ends), from_buffer("uint8_t[]", kinds), n),
            *(from_buffer("uint8_t[]", raw), raw.size, n_bytes),
        )
        data, bounds = raw.tobytes(), ends.tolist()
        return TokenTable(
            texts=tuple(data[begin:end] for begin, end in zip([0, *bounds], bounds, strict=False)),
            control=tuple(np.flatnonzero(kinds & TOKEN_CONTROL).tolist()),
            ends=tuple(np.flatnonzero(kinds & TOKEN_END).tolist()),
        )

    def embed(self, ctx: Any, text: str, pooling: str = "mean") -> NDArray[np.float32]:
        """Return the embedding of a string: a unit vector of shape ``[n_embd]``.

        `pooling` says how to combine the vectors of the tokens: ``"mean"``, ``"cls"`` (take the
        first) or ``"last"`` (take the last).
        """
        check_one_of("pooling", pooling, POOLING)
        raw = check_text("text", text).encode("utf-8", "surrogatepass")
        arguments = raw, len(raw), POOLING[pooling]
        (embedding,) = self._embeddings("embed", "embed the text", ctx, arguments)
        return np.asarray(embedding)

    def embed_texts(
        self, ctx: Any, texts: Sequence[str], pooling: str | None = None, in_windows: bool = False
    ) -> NDArray[np.float32]:
        """Return the embeddings of strings: unit vectors, as rows.

        Short texts share forward passes. `pooling` is as in `embed`; None = as the model's file
        says. With `in_windows`, a text that is longer than the model allows is read in overlapping
        windows, whose embeddings are averaged; otherwise such a text is an error.
        """
        if pooling is not None:
            check_one_of("pooling", pooling, POOLING)
        n, *arrays, _alive = self._texts("texts", texts)
        kind = 0 if pooling is None else POOLING[pooling]
        arguments = *arrays, n, kind, int(check_flag("in_windows", in_windows))
        return self._embeddings("embed_texts", f"embed {n} texts", ctx, arguments, n)

    def rerank(self, ctx: Any, query: str, documents: Sequence[str]) -> NDArray[np.float32]:
        """Return the relevance of documents for a query, as a reranker computes it.

        The more relevant a document, the higher its value. The values have no fixed range.
        """
        raw = check_text("query", query).encode("utf-8", "surrogatepass")
        n, *arrays, _alive = self._texts("documents", documents)
        found = np.empty(n, np.float32)
        out = self._ffi.from_buffer("float[]", found, require_writable=True), n
        self._call("rerank", f"rerank {n} documents", ctx, raw, len(raw), *arrays, n, *out)
        return found

    def _texts(self, name: str, texts: Sequence[str]) -> tuple[int, Any, Any, Any]:
        """Return the number of strings, C arrays of them and of their lengths, and buffers to keep
        alive."""
        raw = [
            text.encode("utf-8", "surrogatepass")
            for text in check_each(name, texts, str, "a string")
        ]
        alive = [self._ffi.from_buffer("char[]", each) for each in raw]
        lengths = self._ffi.new("uint64_t[]", [len(each) for each in raw])
        return len(raw), self._ffi.new("char *[]", alive), lengths, alive

    def token_embeddings(
        self, ctx: Any, tokens: Tokens, positions: Sequence[int], roles: Sequence[int] = ()
    ) -> NDArray[np.float32]:
        """Return llama.cpp's embeddings of single tokens, as rows that are not normalized.

        The tokens are at the `positions` in `tokens`, ascending. Decision models may return scores.
        Models that read all questions at once need the role of each token, 0 to 4, and `positions`
        are then numbers of options; eliza_inference.h explains both.
        """
        (ids, n), places = self._ids(tokens), self._ids(positions, "positions")
        kinds, n_kinds = self._ids(roles, "roles")
        if n_kinds not in (0, n):
            raise InvalidArgumentError(f"roles: expected one for each of {n} tokens, got {n_kinds}")
        arguments = (ids, kinds if n_kinds else self._ffi.NULL, n, *places)
        doing = f"read the embeddings of {places[1]} of {n} tokens"
        return self._embeddings("token_embeddings", doing, ctx, arguments, places[1])

    def _embeddings(
        self, name: str, doing: str, ctx: Any, arguments: Sequence[Any], n: int = 1
    ) -> NDArray[np.float32]:
        """Call a function that writes `n` embeddings and their size; return them as rows."""
        size, values = self._ffi.new("int *"), np.empty(EMBEDDING_CAP, np.float32)
        while True:
            out = self._ffi.from_buffer("float[]", values), values.size
            try:
                self._call(name, doing, ctx, *arguments, *out, size)
            except InvalidArgumentError:
                if n * size[0] <= values.size:
                    raise
                values = np.empty(n * size[0], np.float32)
                continue
            return np.resize(values, (n, size[0]))

    def eot_score(self, ctx: Any, tokens: Tokens, target: int) -> EotScore:
        """Return the probability that token `target`, such as an end of turn, comes next."""
        ids = self._ids(tokens)
        target = int(token_array([target])[0])
        probability, top_probability = self._ffi.new("float *"), self._ffi.new("float *")
        top = self._ffi.new("int32_t *")
        self._call(
            "llm_eot_score",
            f"score token {target} after {ids[1]} tokens",
            ctx,
            *(*ids, target, probability, top, top_probability),
        )
        return EotScore(probability[0], top[0], top_probability[0])

    # ---- checks ------------------------------------------------------------------------------

    def _turn(self, stream: CffiStream, doing: str) -> AbstractContextManager[None]:
        if type(stream) is CffiStream:
            return ANY_TURN
        check_kind("stream", stream, CffiStream, STREAM)
        return stream.turn(doing)

    def _check_ctx(self, ctx: Any) -> None:
        check_kind("ctx", ctx, self._ffi.CData, "a context, as create() returns it")

    # ---- callbacks --------------------------------------------------------------------------

    def _set_callback(
        self, ctx: Any, kind: str, in_c: Any, callback: Callable[..., Any] | None
    ) -> None:
        """Call ``set_<kind>_callback`` of the library; None removes the callback. `in_c` is the C
        function that calls it."""
        self._check_ctx(ctx)
        call = f"set_{kind}_callback", f"set the {kind} callback", ctx
        if callback is None:
            self._call(*call, self._ffi.NULL, self._ffi.NULL)
            self._callbacks.pop((ctx, kind), None)
            return
        check_callable("callback", callback)
        state = CallbackState(callback)
        handle = self._ffi.new_handle(state)
        self._callback_handles.setdefault(ctx, []).append(handle)
        self._call(*call, in_c, handle)
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
        for (of, _), state in list(self._callbacks.items()):
            if of == ctx:
                state.reraise()

    # ---- results ----------------------------------------------------------------------------

    def _call(self, name: str, doing: str, ctx: Any, *arguments: Any) -> int:
        """Call a function that returns a status and whose last argument is ``char ** err``. `doing`
        describes the call in messages, after the word "cannot"."""
        function = self._functions[name]
        if not isinstance(ctx, self._ffi.CData):
            self._check_ctx(ctx)
        if self._dialect.checks_contexts and ctx != self._ffi.NULL:
            self._dialect.check(ctx, doing)
        error = self._ffi.new("char **")
        status = int(function(ctx, *arguments, error))
        if interrupts or self._callbacks:
            self._reraise_from_callbacks(ctx)
        if status < 0:
            raise error_from_status(status, self._take(error), doing)
        return status

    def _call_on(self, stream: CffiStream, name: str, doing: str, *arguments: Any) -> int:
        """Do the same as :meth:`_call` for a function that takes a stream."""
        function = self._functions[name]
        with ANY_TURN if type(stream) is CffiStream else self._turn(stream, doing):
            status = int(function(stream.pointer, *arguments, stream.error))
            if interrupts or self._callbacks:
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
        """Return the error class for a call that has just returned NULL; `otherwise` if it is not
        known."""
        if not self.library.has(PREFIX + "last_status"):
            return otherwise
        return kind_of_status(self._lib.eliza_inference_last_status())

    def _last_error(self, stream: CffiStream) -> str:
        if not self.supports("last_error"):
            return ""
        pointer = self._lib.eliza_inference_last_error(stream.pointer)
        return self._ffi.string(pointer).decode("utf-8", "replace") if pointer else ""


class _Endings:
    """The C structs of endings, and the arrays for their scores."""

    def __init__(
        self,
        binding: CffiBinding,
        endings: Sequence[tuple[Tokens, PreparedChoices]],
        full: bool,
        allowed_probability: bool,
    ) -> None:
        full = check_flag("full", full)
        allowed_probability = check_flag("allowed_probability", allowed_probability)
        pairs = tuple(check_several("endings", endings, ENDINGS))
        ffi = binding._ffi
        self.structs = ffi.new("eliza_ending_t[]", len(pairs))
        self._sizes, self._alive = [], []
        self.n_tokens = 0  # of the endings, each with its longest choice
        for ending, pair in zip(self.structs, pairs, strict=True):
            if not (isinstance(pair, tuple) and len(pair) == 2):
                raise wrong("endings", ENDINGS, endings)
            tokens, choices = pair
            self._alive.append(binding._set_ending(ending, tokens, choices))
            self._sizes.append(choices.n)
            self.n_tokens += ending.n_tokens + choices.longest
        self.n = sum(self._sizes)
        self._constrained = np.zeros(self.n)
        self._full = np.zeros(self.n) if full else None
        self._allowed = np.zeros(len(pairs)) if allowed_probability else None
        arrays = self._constrained, self._full, self._allowed
        self.outputs = [
            ffi.NULL if not len(pairs) or array is None else ffi.from_buffer("double[]", array)
            for array in arrays
        ]

    def scores(self) -> tuple[EndingScores, ...]:
        """Return the scores that the library has written, for each ending."""
        begin, found = 0, []
        for i, size in enumerate(self._sizes):
            part = slice(begin, begin := begin + size)
            full = None if self._full is None else self._full[part]
            allowed = None if self._allowed is None else float(self._allowed[i])
            found.append(EndingScores(self._constrained[part], full, allowed))
        return tuple(found)


@dataclass(eq=False)
class Decision:
    """A request of :meth:`CffiBinding.decide`."""

    struct: Any
    scored: _Endings
    states: NDArray[np.float32] | None
    alive: Any  # the other arrays that the struct points to
    n_tokens: int  # of the prompt and its endings, each with its longest choice


def _json_of(name: str, texts: Sequence[str]) -> bytes:
    check_several(name, texts, "a list of strings")
    try:
        return json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError):
        raise wrong(name, "a list of strings", texts) from None


def _payload_bytes(payload: str | bytes) -> bytes:
    check_kind("payload", payload, (str, bytes), "a string of JSON, or bytes")
    return payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
