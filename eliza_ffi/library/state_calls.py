"""Calls on a stream that save, restore, read or change its state, or write a span."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_kind, check_path, check_text, check_whole, wrong
from ..errors import ContextFullError
from .cffi_values import CffiStream
from .loading import Library
from .native_calls import NativeCalls
from .protocol import SpanResult, StreamStats

__all__ = ["StateCalls", "span_result"]


MOST_TOKENS = 2**24
"""Maximum number of tokens whose log-probabilities can be read in one call."""

MOST_TOP = 1024
"""Maximum number of alternatives per token whose log-probabilities the library reports."""


class StateCalls(NativeCalls):
    """Calls on a stream that do not generate text freely."""

    def __init__(self, library: Library) -> None:
        super().__init__(library)
        self._strategies = {
            bit: name.removeprefix("ELIZA_STRATEGY_").lower().replace("_", "-")
            for bit, name in self._ffi.typeof("eliza_strategy").elements.items()
        }

    def save_slot(self, stream: CffiStream, path: str | os.PathLike[str]) -> None:
        """Save the tokens and the KV cache of the stream's slot to a file."""
        self._slot_file(stream, "save", path)

    def restore_slot(self, stream: CffiStream, path: str | os.PathLike[str]) -> None:
        """Restore a slot from a file; raise an error if the file does not fit the model."""
        self._slot_file(stream, "restore", path)

    def _slot_file(self, stream: CffiStream, verb: str, path: str | os.PathLike[str]) -> None:
        self._need(f"llm_stream_{verb}_slot")
        raw = os.fsencode(check_path("path", path))
        doing = f"{verb} the slot {os.fspath(path)}"
        call = getattr(self._lib, f"eliza_inference_llm_stream_{verb}_slot")
        self._checked_stream(doing, call, stream, raw)

    def stats(self, stream: CffiStream) -> StreamStats:
        """Return the counters of the stream."""
        self._need("llm_stream_stats")
        self._check_stream(stream)
        doing = "read the stream's counters"
        with self._turn(stream, doing):
            status, struct = self._call_stats(stream)
        if status < 0:
            raise self._stream_error(stream, status, doing)
        values = {field.name: getattr(struct, field.name) for field in fields(StreamStats)}
        values["finish_reason"] = self._finish_reasons.get(struct.finish_reason, "unknown")
        values["trie_active"] = bool(struct.trie_active)
        values["strategies"] = tuple(
            name for bit, name in self._strategies.items() if struct.strategies & bit
        )
        return StreamStats(**values)

    def set_sampling(self, stream: CffiStream, settings: str) -> None:
        """Change the sampling of all following tokens; `settings` is the JSON of a ``Sampling``."""
        self._need("llm_stream_set_sampling")
        raw = check_text("settings", settings).encode("utf-8", "surrogatepass")
        set_sampling = self._lib.eliza_inference_llm_stream_set_sampling
        self._checked_stream("set the sampling", set_sampling, stream, raw, len(raw))

    def set_logprobs(self, stream: CffiStream, n_top: int) -> None:
        """Record log-probabilities for all following tokens and their `n_top` alternatives."""
        self._need("llm_stream_set_logprobs")
        check_whole("n_top", n_top, 0)
        doing = f"report log-probabilities with {n_top} alternatives"
        set_logprobs = self._lib.eliza_inference_llm_stream_set_logprobs
        self._checked_stream(doing, set_logprobs, stream, n_top)

    def take_logprobs(self, stream: CffiStream, n_tokens: int, n_top: int) -> NDArray[np.void]:
        """Return the log-probabilities of at most `n_tokens` tokens generated since the last call.

        Returns
        -------
        array of (token, logprob), shape [n, 1 + n_top]
            In each row the generated token, then the most probable tokens at its position. Unknown
            entries are -1 and nan.
        """
        self._need("llm_stream_take_logprobs")
        check_whole("n_tokens", n_tokens, 0, MOST_TOKENS)
        check_whole("n_top", n_top, 0, MOST_TOP)
        found = np.zeros((n_tokens, n_top + 1), dtype=[("token", "i4"), ("logprob", "f4")])
        entries = self._ffi.from_buffer("eliza_token_logprob_t[]", found, require_writable=True)
        take = self._lib.eliza_inference_llm_stream_take_logprobs
        count = self._checked_stream(
            "read the log-probabilities", take, stream, entries, found.size
        )
        return found[:count]

    def describe_chain(self, stream: CffiStream) -> tuple[str, ...]:
        """Return the names of a stream's samplers, in the order in which they run."""
        self._need("llm_stream_describe_chain")
        out = self._ffi.new("char **")
        describe = self._lib.eliza_inference_llm_stream_describe_chain
        self._checked_stream("read the stream's samplers", describe, stream, out)
        return tuple(filter(None, self._take(out).split(";")))

    def fill(self, stream: CffiStream, span: Mapping[str, Any]) -> SpanResult:
        """Write one span of an answer."""
        self._need("llm_stream_fill")
        check_kind("span", span, Mapping, "a mapping, as the C header describes it")
        try:
            raw = json.dumps(span).encode()
        except (TypeError, ValueError) as not_json:
            raise wrong("span", "JSON", span, str(not_json)) from None
        out = self._ffi.new("char **")
        with self._turn(stream, "fill a span"):
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


def span_result(facts: Mapping[str, Any]) -> SpanResult:
    """Convert the library's JSON to a result."""
    return SpanResult(
        text=facts["text"],
        logprob=facts["logprob"],
        tokens=facts["tokens"],
        truncated=facts["truncated"],
        choice=facts["choice"],
        answer_tokens=tuple(facts["answer_tokens"]),
        answer_bytes=tuple(facts.get("answer_bytes", ())),
    )
