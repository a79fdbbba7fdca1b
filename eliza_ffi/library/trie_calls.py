"""Calls that make a stream choose: start and end spans, read leaves and scores."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_flag, check_kind, check_several, check_whole, wrong
from ..errors import InvalidArgumentError, NativeFault, TokenTrieError, kind_of_status
from . import native_calls
from .abi import PREFIX
from .cffi_values import CffiStream, token_array
from .native_calls import ERR_INVALID_ARG, NativeCalls
from .protocol import EndingScores, PreparedChoices, Ranking, Tokens, TrieLeaf

__all__ = ["TrieCalls"]

ENDINGS = "a list of (tokens, PreparedChoices) tuples"

RANK_LEGAL, RANK_JOINT = 0, 1
NO_PASSES = -1

RANKED = np.dtype(
    {
        "names": ["label", "logprob", "most_logprob"],
        "formats": [np.int32, np.float64, np.float64],
    },
    align=True,
)
"""The C type ``eliza_ranked_t``."""


class TrieCalls(NativeCalls):
    """Calls on spans, and calls that prepare choices for them."""

    def trie_modes(self) -> int:
        """Return the bit set of supported trie modes and flags.

        0 if the library has no token trie or does not report its modes.
        """
        if not (self.supports("set_token_trie") and self._dialect.reports_rejected_tries):
            return 0
        return int(self._lib.eliza_inference_token_trie_supported())

    def set_token_trie(self, stream: CffiStream, payload: str | bytes, mode: int) -> None:
        """Start a span. `payload` is JSON, or the bytes of a binary (``RTKT``) tree."""
        self._need("set_token_trie")
        check_whole("mode", mode, 0)
        raw = _payload_bytes(payload)
        with self._turn(stream, "set the token trie"):
            status: Any = self._lib.eliza_inference_set_token_trie(
                stream.pointer, raw, len(raw), mode
            )
            if self._dialect.reports_rejected_tries:
                self._check_span(stream, status, "the library rejected the token trie")

    def prepare_choices(self, ctx: Any, texts: Sequence[str]) -> PreparedChoices:
        """Tokenize choices once, for use in any number of spans.

        Raises
        ------
        InvalidArgumentError
            If `texts` is empty, has an empty or repeated string, or has a string that the tokenizer
            cannot represent exactly.
        """
        self._need("prepare_choices")
        raw = _json_of("texts", texts)
        return self._prepared(ctx, "prepare_choices", raw, len(texts))

    def prepare_token_trie(self, ctx: Any, payload: str | bytes, n: int) -> PreparedChoices:
        """Parse a payload with `n` leaves once, for use in any number of spans.

        Raises
        ------
        InvalidArgumentError
            If the payload is malformed or made for another vocabulary.
        """
        self._need("prepare_token_trie")
        raw = _payload_bytes(payload)
        return self._prepared(ctx, "prepare_token_trie", raw, n)

    def _prepared(self, ctx: Any, function: str, raw: bytes, n: int) -> PreparedChoices:
        self._check_ctx(ctx)
        check_whole("n", n, 0)
        longest = self._ffi.new("size_t *")
        error = self._ffi.new("char **")
        handle = getattr(self._lib, PREFIX + function)(ctx, raw, len(raw), longest, error)
        kind = None if handle else self._kind_of_failure(InvalidArgumentError)
        if handle:
            handle = self._ffi.gc(handle, self._lib.eliza_inference_free_choices)
        said = self._take(error)
        self._reraise_from_callbacks(ctx)
        if kind is not None:
            raise kind(said or "the library rejected the choices")
        return PreparedChoices(handle, longest[0], n)

    def set_choices(self, stream: CffiStream, choices: PreparedChoices, mode: int) -> None:
        """Start a span with prepared choices."""
        self._need("set_choices")
        check_kind("choices", choices, PreparedChoices, "a PreparedChoices")
        check_whole("mode", mode, 0)
        with self._turn(stream, "set the choices"):
            handle = choices.handle
            status = self._lib.eliza_inference_set_choices(stream.pointer, handle, mode)
            self._check_span(stream, status, "the library rejected the choices")

    def set_text_choices(self, stream: CffiStream, choices: Sequence[str], mode: int) -> None:
        """Start a span with choices given as strings, in any tokenization."""
        self._need("set_text_choices")
        check_whole("mode", mode, 0)
        raw = _json_of("choices", choices)
        with self._turn(stream, "set the choices"):
            status = self._lib.eliza_inference_set_text_choices(stream.pointer, raw, len(raw), mode)
            self._check_span(stream, status, "the library rejected the choices")

    def _check_span(self, stream: CffiStream, status: int, what: str) -> None:
        if status < 0:
            said = self._last_error(stream) or f"status {status}"
            kind = TokenTrieError if status == ERR_INVALID_ARG else kind_of_status(status)
            raise kind(f"{what}: {said}")

    def clear_token_trie(self, stream: CffiStream) -> None:
        """End the span, if one is active."""
        self._need("clear_token_trie")
        with self._turn(stream, "clear the token trie"):
            self._lib.eliza_inference_clear_token_trie(stream.pointer)

    def token_trie_leaf(self, stream: CffiStream) -> TrieLeaf | None:
        """Return the leaf on which the last span ended, or None if no span has ended on a leaf."""
        self._need("token_trie_leaf")
        with self._turn(stream, "read the leaf"):
            return self._leaf(stream)

    def _leaf(self, stream: CffiStream) -> TrieLeaf | None:
        null = self._ffi.NULL
        logprob = self._ffi.new("double *")
        leaf = self._lib.eliza_inference_token_trie_leaf
        if leaf(stream.pointer, null, 0, logprob) < 0:
            return None
        cap = 256
        while cap <= native_calls.LARGEST_TEXT_CAP:
            name = self._ffi.new("char[]", cap)
            if leaf(stream.pointer, name, cap, null) >= 0:
                return TrieLeaf(self._ffi.string(name).decode("utf-8", "replace"), logprob[0])
            cap *= 8
        raise NativeFault(f"cannot read the leaf's name: {self._last_error(stream)}")

    def token_trie_scores(self, stream: CffiStream) -> NDArray[np.float64]:
        """Return the natural logarithm of every leaf's probability, shape ``[n_leaves]``.

        The leaves are in the order of the payload. Call this after the start of the span and before
        its first token.
        """
        self._need("token_trie_scores")
        scores = self._lib.eliza_inference_token_trie_scores
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
        joint: bool,
        option_mass: bool,
    ) -> tuple[EndingScores, ...]:
        """Score the choices after each of several endings of the conversation.

        The endings are decoded together and then removed, so the conversation does not change.

        Parameters
        ----------
        stream
            The stream with the conversation.
        endings
            For each ending, its tokens, and the choices that may follow them.
        joint, option_mass
            Whether to compute these fields of the result. Both need the logits of the whole
            vocabulary.
        """
        self._need("llm_stream_score_endings")
        check_flag("joint", joint)
        check_flag("option_mass", option_mass)
        check_several("endings", endings, ENDINGS)
        endings = tuple(endings)
        structs = self._ffi.new("eliza_ending_t[]", len(endings))
        kept = []
        for ending, pair in zip(structs, endings, strict=True):
            if not (isinstance(pair, tuple) and len(pair) == 2):
                raise wrong("endings", ENDINGS, endings)
            kept.append(self._set_ending(ending, *pair))
        sizes = [choices.n for _, choices in endings]
        legal = np.zeros(sum(sizes), dtype=np.float64)
        joints = np.zeros(len(legal) if joint else 0, dtype=np.float64)
        masses = np.zeros(len(endings) if option_mass else 0, dtype=np.float64)

        def out(array: NDArray[np.float64]) -> Any:
            return self._ffi.from_buffer("double[]", array) if len(array) else self._ffi.NULL

        self._checked_stream(
            f"score {len(endings)} endings",
            self._lib.eliza_inference_llm_stream_score_endings,
            stream,
            structs,
            len(endings),
            out(legal),
            out(joints),
            out(masses),
            len(legal),
        )
        ends = np.cumsum(sizes)[:-1]
        joint_of = np.split(joints, ends) if joint else None
        return tuple(
            EndingScores(
                of_ending,
                None if joint_of is None else joint_of[i],
                float(masses[i]) if option_mass else None,
            )
            for i, of_ending in enumerate(np.split(legal, ends))
        )

    def rank(
        self,
        stream: CffiStream,
        choices: PreparedChoices,
        *,
        k: int,
        after: Tokens = (),
        groups: Tokens | None = None,
        max_passes: int | None = None,
        joint: bool = False,
    ) -> Ranking:
        """Return the most probable choices after the conversation, which does not change.

        Parameters
        ----------
        stream
            The stream with the conversation.
        choices
            The choices.
        k
            How many to return.
        after
            Tokens that follow the conversation, before the choices.
        groups
            The group of each choice, shape ``[n_choices]``. The groups are ranked then, by the sum
            of the probabilities of their choices.
        max_passes
            Maximum number of forward passes; None = as many as the proof needs.
        joint
            Rank by the joint probability of a choice's tokens over the whole vocabulary, instead of
            its probability among the choices.
        """
        self._need("llm_stream_rank")
        check_kind("choices", choices, PreparedChoices, "a PreparedChoices")
        ending = self._ffi.new("eliza_ending_t *")
        kept = self._set_ending(ending, after, choices)
        rule = RANK_JOINT if check_flag("joint", joint) else RANK_LEGAL
        rank = self._lib.eliza_inference_llm_stream_rank
        ranking = self._rank(
            rank, stream, ending, n=choices.n, k=k, groups=groups, max_passes=max_passes, rule=rule
        )
        del kept  # the array of the ending's tokens
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
        self._need("llm_stream_rank_texts")
        raw = _json_of("texts", texts)
        rank = self._lib.eliza_inference_llm_stream_rank_texts
        return self._rank(
            rank, stream, raw, len(raw), n=len(texts), k=k, groups=groups, max_passes=max_passes
        )

    def _rank(
        self,
        function: Any,
        stream: CffiStream,
        *labels: Any,
        n: int,
        k: int,
        groups: Tokens | None,
        max_passes: int | None,
        rule: int = RANK_LEGAL,
    ) -> Ranking:
        """Call a function that ranks `n` labels."""
        options = self._ffi.new("eliza_rank_options_t *")
        options.size = self._ffi.sizeof("eliza_rank_options_t")
        options.k = check_whole("k", k, 1, 2**32 - 1)
        options.rule = rule
        if max_passes is not None:
            options.most_passes = check_whole("max_passes", max_passes, 0, 2**31 - 1) or NO_PASSES
        if groups is not None:
            numbers = token_array(groups, "groups")
            options.groups = self._ffi.from_buffer("int32_t[]", numbers)
            options.n_groups = len(numbers)
        ranked = np.zeros(min(k, n), dtype=RANKED)
        summary = self._ffi.new("eliza_ranking_t *")
        self._checked_stream(
            "rank the choices",
            function,
            stream,
            *labels,
            options,
            self._ffi.from_buffer("eliza_ranked_t[]", ranked),
            len(ranked),
            summary,
        )
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
        ids = token_array(tokens)
        ending.tokens = self._ffi.from_buffer("int32_t[]", ids)
        ending.n_tokens = len(ids)
        ending.choices = choices.handle
        return ids


def _json_of(name: str, texts: Sequence[str]) -> bytes:
    check_several(name, texts, "a list of strings")
    try:
        return json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogatepass")
    except (TypeError, ValueError):
        raise wrong(name, "a list of strings", texts) from None


def _payload_bytes(payload: str | bytes) -> bytes:
    check_kind("payload", payload, (str, bytes), "a string of JSON, or bytes")
    return payload.encode("utf-8", "surrogatepass") if isinstance(payload, str) else payload
