"""Adapters that give the other libraries one common interface.

A mask library runs on the logits of the same model and prompts as eliza-ffi, along the tokens of
eliza-ffi's label. So all libraries make the same decisions, even if a library would have chosen
another tokenization of the label.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import cffi
import numpy as np
from numpy.typing import NDArray

from eliza_ffi.structured.token_texts import TokenTexts

from ..model import gbnf_of
from ..parts.figures import median


class Logits:
    """Logits computed by plain llama.cpp, through the library of test hooks."""

    def __init__(self, hooks: Path) -> None:
        self._ffi: Any = cffi.FFI()
        self._ffi.cdef(
            "int eliza_test_logits(const char *, const int32_t *, size_t, float *, size_t);"
        )
        self._lib: Any = self._ffi.dlopen(str(hooks))

    def after(self, model: str, tokens: Sequence[int], n_vocab: int) -> NDArray[np.float32]:
        """Return the logits after some tokens, shape ``[n_vocab]``."""
        out = np.empty(n_vocab, dtype=np.float32)
        pointer = self._ffi.from_buffer("float[]", out)
        size = self._lib.eliza_test_logits(
            model.encode(), list(tokens), len(tokens), pointer, n_vocab
        )
        if size != n_vocab:
            raise RuntimeError(f"cannot compute logits with {model}")
        return out


class MaskPicker(Protocol):
    """A library that computes a bit mask of the vocabulary with the allowed tokens."""

    def start(self) -> None:
        """Go back to the start of the text."""

    def fill(self) -> None:
        """Compute the mask."""

    def pick(self, logits: NDArray[np.float32]) -> int:
        """Apply the mask with the library's own function; return the most likely allowed token."""

    def accept(self, token: int) -> None:
        """Append a token to the text; raises ValueError if the library rejects it."""


class LlGuidancePicker:
    """llguidance. The mask is applied with its function for numpy."""

    def __init__(self, vocabulary: TokenTexts, texts: Sequence[str]) -> None:
        package = importlib.import_module("llguidance")
        self._numpy = importlib.import_module("llguidance.numpy")
        wrapper = importlib.import_module("llguidance._tokenizer").TokenizerWrapper
        wrapped = LlGuidanceTokenizer(
            *(vocabulary.texts, vocabulary.control, vocabulary.ends[0]),
            lambda data: vocabulary.speller.tokenize(data.decode("utf-8", "replace")),
        )
        tokenizer = package.LLTokenizer(wrapper(wrapped))
        lark = "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
        # The default limits stop grammars that grow without bound. A long list of labels needs a
        # higher limit.
        limits = package.LLParserLimits(max_items_in_row=max(2000, 2 * len(texts)))
        grammar = package.LLMatcher.grammar_from_lark(lark)
        self._matcher = package.LLMatcher(tokenizer, grammar, limits=limits)
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())
        self._mask = self._numpy.allocate_token_bitmask(1, len(vocabulary.texts))

    def start(self) -> None:
        self._matcher.reset()

    def fill(self) -> None:
        self._numpy.fill_next_token_bitmask(self._matcher, self._mask)

    def pick(self, logits: NDArray[np.float32]) -> int:
        self._numpy.apply_token_bitmask_inplace(logits, self._mask)
        return int(logits.argmax())

    def accept(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            raise ValueError(f"llguidance rejected token {token}: {self._matcher.get_error()}")


class LlGuidanceTokenizer:
    """A tokenizer with the interface that llguidance expects."""

    def __init__(
        self,
        tokens: Sequence[bytes],  # the bytes of each token; control tokens have their name here
        controls: Sequence[int],  # the ids of the control tokens
        eos: int,
        tokenize: Callable[[bytes], list[int]],  # returns the tokens of some bytes
    ) -> None:
        self.eos_token_id = eos
        self.bos_token_id = None
        self.tokens = tokens
        self.special_token_ids = list(controls)
        self._tokenize = tokenize

    def __call__(self, text: str | bytes) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        return self._tokenize(data) if data else []


class XGrammarPicker:
    """xgrammar. The mask is applied with its CPU kernel to a torch view of the logits."""

    def __init__(self, vocabulary: TokenTexts, texts: Sequence[str]) -> None:
        self._package = importlib.import_module("xgrammar")
        self._torch = importlib.import_module("torch")
        self._torch.set_num_threads(1)
        information = self._package.TokenizerInfo(
            list(vocabulary.texts),
            self._package.VocabType.RAW,
            vocab_size=len(vocabulary.texts),
            stop_token_ids=[vocabulary.ends[0]],
        )
        compiler = self._package.GrammarCompiler(information, max_threads=1, cache_enabled=False)
        self._matcher = self._package.GrammarMatcher(compiler.compile_grammar(gbnf_of(texts)))
        self._mask = self._package.allocate_token_bitmask(1, len(vocabulary.texts))

    def start(self) -> None:
        self._matcher.reset()

    def fill(self) -> None:
        # If every token is allowed, this returns False and does not change the mask. That cannot
        # happen with a set of labels.
        self._matcher.fill_next_token_bitmask(self._mask)

    def pick(self, logits: NDArray[np.float32]) -> int:
        view = self._torch.from_numpy(logits)
        self._package.apply_token_bitmask_inplace(view, self._mask[0])
        return int(view.argmax())

    def accept(self, token: int) -> None:
        if not self._matcher.accept_token(token):
            raise ValueError(f"xgrammar rejected token {token}")


@dataclass(frozen=True)
class Peer:
    """Another library or program: its version, or the reason why it cannot be used."""

    name: str
    version: str | None
    problem: str | None = None

    @classmethod
    def find(cls, name: str, module: str | None = None) -> Peer:
        """Import an installed package and return its version."""
        try:
            importlib.import_module(module or name)
            return cls(name, metadata.version(name))
        except Exception as error:  # importing native code can fail in many ways
            return cls(name, None, f"{type(error).__name__}: {error}")


def measure_peer(
    engine: MaskPicker,
    # For each prompt the tokens of the label, and the logits before each of these tokens.
    walks: Sequence[tuple[Sequence[int], Sequence[NDArray[np.float32]]]],
    repeat: int,  # Timed walks for each prompt. One untimed walk comes before them.
) -> float:
    """Run a mask library along the tokens of known labels.

    Returns the milliseconds to compute the masks of a choice, apply them, take the argmax and
    accept the tokens, without forward passes; the median over the prompts.
    """
    choices: list[float] = []
    for tokens, rows in walks:
        totals: list[float] = []
        for _ in range(repeat + 1):
            engine.start()
            total = 0.0
            for token, row in zip(tokens, rows, strict=True):
                logits = row.copy()
                begin = time.process_time()
                engine.fill()
                engine.pick(logits)
                engine.accept(token)
                total += time.process_time() - begin
            totals.append(total)
        choices.append(median(totals[1:]))
    return median(choices) * 1e3
