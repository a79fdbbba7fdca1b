"""Adapters with one interface for all libraries: compile a constraint, compute masks along tokens.

Each library is called from Python with the least overhead: a mask is one call that writes one bit
for each token into an existing buffer. eliza-ffi itself returns a pointer to a mask in its cache.
To compare fairly, its time here includes a copy of as many bytes. It also includes accepting the
token, because the test hook does both in one call.
"""

from __future__ import annotations

import functools
import importlib
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eliza_ffi import __version__

from ..choosing.other_libraries import LlGuidanceTokenizer
from ..model import gbnf_of
from .constraints import Constraint, lark_of, lark_of_schema
from .native import NativeVocabulary, NativeWalk
from .vocabularies import GreedySpeller, TokenBytes


class Matcher(Protocol):
    """A compiled constraint.

    Attributes
    ----------
    step_ns : list of int
        The nanoseconds of each mask of the last walk, including accepting the token.
    """

    step_ns: list[int]

    def restart(self) -> None:
        """Go back to the start of the text."""

    def walk(self, tokens: Sequence[int]) -> list[int]:
        """Return the nanoseconds of each mask along the tokens."""

    def allowed(self) -> NDArray[np.integer[Any]]:
        """Return the allowed tokens in ascending order; they may include control tokens."""

    def accept(self, token: int) -> None:
        """Append a token to the text; raises ValueError if the library rejects it."""


class Engine(Protocol):
    """A library with a prepared vocabulary.

    Attributes
    ----------
    version : str
    vocabulary_seconds : float
        The time to prepare the vocabulary.
    control : tuple of int
        Tokens without text.
    accepts_by_itself : bool
        Whether accepting a token is a separate call.
    """

    version: str
    vocabulary_seconds: float
    control: tuple[int, ...]
    accepts_by_itself: bool

    def forget(self) -> None:
        """Drop all cached results of constraints."""

    def compile(self, constraint: Constraint) -> Matcher:
        """Compile a constraint."""

    def empty_call(self) -> int:
        """Return the nanoseconds of a call of the same kind that computes nothing."""


class Eliza:
    """eliza-ffi, through its test hooks."""

    accepts_by_itself = False

    def __init__(self, vocabulary: TokenBytes, hooks: Path) -> None:
        self.version = __version__
        self.control = vocabulary.control
        self.texts = vocabulary.texts
        self.vocabulary = NativeVocabulary(hooks, vocabulary.texts)
        self.vocabulary_seconds = self.vocabulary.build_seconds

    def forget(self) -> None:
        self.vocabulary.forget()

    def compile(self, constraint: Constraint) -> ElizaMatcher:
        return ElizaMatcher(self.vocabulary, constraint)

    def empty_call(self) -> int:
        walk, ffi = self.vocabulary.walk({"json": "number"}), self.vocabulary.ffi
        mask, buffer = ffi.from_buffer(bytearray(4)), ffi.from_buffer(bytearray(4))
        return _timed(
            functools.partial(self.vocabulary.lib.eliza_test_walk_may_end, walk.pointer),
            functools.partial(ffi.memmove, buffer, mask, 0),
        )


class ElizaMatcher:
    """A walk of the test hooks. The times of `walk` include accepting the token."""

    def __init__(self, vocabulary: NativeVocabulary, constraint: Constraint) -> None:
        self._vocabulary = vocabulary
        self._constraint = constraint
        self._walk: NativeWalk
        n_bytes = (vocabulary.n_vocab + 31) // 32 * 4
        self._mask = vocabulary.ffi.from_buffer(bytearray(n_bytes))
        self._buffer = vocabulary.ffi.from_buffer(bytearray(n_bytes))
        self.step_ns: list[int] = []
        self.restart()

    def restart(self) -> None:
        self._walk = self._vocabulary.walk(self._constraint.span)

    def walk(self, tokens: Sequence[int]) -> list[int]:
        ffi = self._vocabulary.ffi
        mask, buffer, n_bytes = self._mask, self._buffer, len(self._mask)
        all_tokens = ffi.new("int32_t[]", list(tokens))
        by_clock = ffi.new("int64_t[]", len(tokens))  # the library's own times, not used here
        steps = [
            functools.partial(
                self._vocabulary.lib.eliza_test_walk_time,
                *(self._walk.pointer, all_tokens + i, 1, False, by_clock + i),
            )
            for i in range(len(tokens))
        ]
        spent = []
        for step in steps:
            begin = time.perf_counter_ns()
            step()
            ffi.memmove(buffer, mask, n_bytes)
            spent.append(time.perf_counter_ns() - begin)
        self.step_ns = spent
        return spent

    def allowed(self) -> NDArray[np.integer[Any]]:
        return self._walk.allowed_array()

    def accept(self, token: int) -> None:
        self._walk.accept(token)


class LlGuidance:
    """llguidance, with its slices of the vocabulary for JSON."""

    accepts_by_itself = True

    def __init__(self, vocabulary: TokenBytes) -> None:
        self._package = importlib.import_module("llguidance")
        self.version = metadata.version("llguidance")
        self.control = vocabulary.control
        wrapper = importlib.import_module("llguidance._tokenizer").TokenizerWrapper
        speller = GreedySpeller(vocabulary.texts)
        wrapped = wrapper(
            LlGuidanceTokenizer(
                *(vocabulary.names, vocabulary.control, vocabulary.eos),
                speller.spell,
            )
        )
        begin = time.perf_counter()
        slices = self._package.LLTokenizer.json_slices()
        self._tokenizer = self._package.LLTokenizer(wrapped, slices=slices)
        self.vocabulary_seconds = time.perf_counter() - begin
        self._n_vocab = len(vocabulary.texts)

    def forget(self) -> None:
        pass

    def compile(self, constraint: Constraint) -> LlGuidanceMatcher:
        make = self._package.LLMatcher
        if constraint.schema is None:
            lark = lark_of(constraint.choices)
        else:
            lark = lark_of_schema(constraint.schema)
        matcher = make(self._tokenizer, make.grammar_from_lark(lark))
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        mask = _empty_mask(self._n_vocab)
        fill = functools.partial(matcher.unsafe_compute_mask_ptr, mask.ctypes.data, mask.nbytes)
        return LlGuidanceMatcher(matcher, fill, mask)

    def empty_call(self) -> int:
        matcher = self._package.LLMatcher(self._tokenizer, '{"grammars": []}', log_level=0)
        return _timed(matcher.is_error)


class XGrammar:
    """xgrammar with one thread."""

    accepts_by_itself = True

    def __init__(self, vocabulary: TokenBytes) -> None:
        self._package = importlib.import_module("xgrammar")
        self.version = metadata.version("xgrammar")
        self.control = vocabulary.control
        begin = time.perf_counter()
        information = self._package.TokenizerInfo(
            list(vocabulary.names),
            self._package.VocabType.RAW,
            vocab_size=len(vocabulary.names),
            stop_token_ids=[vocabulary.eos],
        )
        self.vocabulary_seconds = time.perf_counter() - begin
        self._compiler = self._package.GrammarCompiler(
            information, max_threads=1, cache_enabled=False
        )
        self._n_vocab = len(vocabulary.names)

    def forget(self) -> None:
        pass

    def compile(self, constraint: Constraint) -> PeerMatcher:
        compiler = self._compiler
        if constraint.schema is None:
            compiled = compiler.compile_grammar(gbnf_of(constraint.choices))
        elif constraint.schema:
            compiled = compiler.compile_json_schema(constraint.schema)
        else:
            compiled = compiler.compile_builtin_json_grammar()
        matcher = self._package.GrammarMatcher(compiled)
        mask = _empty_mask(self._n_vocab)
        handle = matcher._handle  # avoids the overhead of the Python wrapper
        fill = functools.partial(handle.fill_next_token_bitmask, mask[None, :], 0, False)
        return PeerMatcher(matcher.reset, fill, matcher.accept_token, mask)

    def empty_call(self) -> int:
        matcher = self._package.GrammarMatcher(self._compiler.compile_regex("a"))
        return _timed(matcher._handle.is_terminated)


class PeerMatcher:
    """A matcher that calls the functions of another library."""

    def __init__(
        self,
        reset: Callable[[], object],
        fill: Callable[[], object],
        accept: Callable[[int], bool],
        mask: NDArray[np.int32],
    ) -> None:
        self._reset = reset
        self._fill, self._accept, self._mask = fill, accept, mask
        self.step_ns: list[int] = []

    def restart(self) -> None:
        self._reset()

    def walk(self, tokens: Sequence[int]) -> list[int]:
        fill, accept = self._fill, self._accept
        spent, self.step_ns = [], []
        for token in tokens:
            begin = time.perf_counter_ns()
            fill()
            masked = time.perf_counter_ns()
            is_legal = accept(token)
            self.step_ns.append(time.perf_counter_ns() - begin)
            spent.append(masked - begin)
            if not is_legal:
                raise ValueError(f"the library rejected token {token}")
        return spent

    def allowed(self) -> NDArray[np.integer[Any]]:
        self._mask[:] = -1  # if every token is allowed, xgrammar does not change the mask
        self._fill()
        return tokens_of(self._mask)

    def accept(self, token: int) -> None:
        if not self._accept(token):
            raise ValueError(f"the library rejected token {token}")


class LlGuidanceMatcher(PeerMatcher):
    """A matcher of llguidance, which also reports whether the text may end."""

    def __init__(self, matcher: Any, fill: Callable[[], object], mask: NDArray[np.int32]) -> None:
        super().__init__(matcher.reset, fill, matcher.consume_token, mask)
        self.may_end: Callable[[], bool] = matcher.is_accepting
        self.is_over: Callable[[], bool] = matcher.is_stopped


def tokens_of(mask: NDArray[np.int32]) -> NDArray[np.integer[Any]]:
    """Return the positions of the set bits in ascending order."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little")
    return np.flatnonzero(bits)


def _empty_mask(n_vocab: int) -> NDArray[np.int32]:
    return np.zeros((n_vocab + 31) // 32, dtype=np.int32)


def _timed(*functions: Callable[[], object], repeat: int = 1001) -> int:
    """Return the median nanoseconds to call all functions once."""
    spent = []
    for _ in range(repeat):
        begin = time.perf_counter_ns()
        for function in functions:
            function()
        spent.append(time.perf_counter_ns() - begin)
    return sorted(spent)[repeat // 2]
