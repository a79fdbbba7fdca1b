"""The other libraries, each behind the same small face.

A mask engine is driven over the logits of the very model and prompts that we answer, along the
tokens of our answer: all libraries then make the same decisions, whatever spelling each would have
preferred.
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
from make_test_models import read_metadata
from numpy.typing import NDArray

from eliza_ffi.choices.label_set import ANCHOR
from eliza_ffi.model import Model

from ..model import gbnf_of
from ..parts.figures import mean, median

__all__ = [
    "LlGuidancePicker",
    "LlGuidanceTokenizer",
    "LlamaCppPython",
    "Logits",
    "MaskPicker",
    "Peer",
    "PeerCost",
    "VocabularyBytes",
    "XGrammarPicker",
    "byte_level",
    "measure_peer",
    "word_piece",
    "xgrammar_compiler",
]

CONTROL_TOKEN, BYTE_TOKEN = 3, 6  # llama.cpp's token types


class Logits:
    """Plain llama.cpp logits, from the library of test hooks."""

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
            raise RuntimeError(f"no logits of {model}")
        return out


class VocabularyBytes:
    """A model's tokens as the bytes they stand for.

    Attributes
    ----------
    tokens : list of bytes
        Control tokens by their name.
    is_control : list of bool
    eos : int
    """

    def __init__(self, model: Model) -> None:
        entries = read_metadata(Path(model.path))
        kind = entries["tokenizer.ggml.model"].value.decode()
        types = entries["tokenizer.ggml.token_type"].value
        raw = entries["tokenizer.ggml.tokens"].value
        self.is_control = [each == CONTROL_TOKEN for each in types]
        self.eos = int(entries["tokenizer.ggml.eos_token_id"].value)
        spell = byte_level if kind == "gpt2" else word_piece
        self.tokens = [
            token
            if control
            else bytes([int(token[3:5], 16)])
            if each == BYTE_TOKEN
            else spell(token)
            for token, control, each in zip(raw, self.is_control, types, strict=True)
        ]
        self._model = model
        self._anchor = model.tokenize(ANCHOR)

    def tokenize(self, text: str) -> list[int]:
        """Return the tokens of a text as they stand in the middle of another."""
        return self._model.tokenize(ANCHOR + text)[len(self._anchor) :]


def word_piece(token: bytes) -> bytes:
    """Undo SentencePiece's mark for a space."""
    return token.replace("▁".encode(), b" ")


def byte_level(token: bytes) -> bytes:
    """Undo GPT-2's mapping of bytes to printable characters."""
    return bytes(_BYTE_OF_CHAR.get(char, ord("?")) for char in token.decode("utf-8", "replace"))


def _gpt2_bytes() -> dict[str, int]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


_BYTE_OF_CHAR = _gpt2_bytes()


class MaskPicker(Protocol):
    """A library that says which tokens are legal next, as a bit mask of the vocabulary.

    Attributes
    ----------
    compile_seconds : float
        What compiling the grammar took, the vocabulary being prepared.
    """

    compile_seconds: float

    def start(self) -> None:
        """Go back to the start of the text."""

    def fill(self) -> None:
        """Compute the mask."""

    def pick(self, logits: NDArray[np.float32]) -> int:
        """Apply the mask by the library's own function and return the most likely legal token."""

    def accept(self, token: int) -> None:
        """Go on behind a token; raises ValueError if the library refuses it."""


class LlGuidancePicker:
    """llguidance, its mask applied by its numpy function."""

    def __init__(self, vocabulary: VocabularyBytes, texts: Sequence[str]) -> None:
        package = importlib.import_module("llguidance")
        self._numpy = importlib.import_module("llguidance.numpy")
        wrapper = importlib.import_module("llguidance._tokenizer").TokenizerWrapper
        controls = [i for i, flag in enumerate(vocabulary.is_control) if flag]
        wrapped = LlGuidanceTokenizer(
            *(vocabulary.tokens, controls, vocabulary.eos),
            lambda data: vocabulary.tokenize(data.decode("utf-8", "replace")),
        )
        tokenizer = package.LLTokenizer(wrapper(wrapped))
        lark = "start: " + " | ".join(json.dumps(text, ensure_ascii=False) for text in texts)
        # Its limits are for grammars that run away; a long list of answers does not.
        limits = package.LLParserLimits(max_items_in_row=max(2000, 2 * len(texts)))
        begin = time.perf_counter()
        grammar = package.LLMatcher.grammar_from_lark(lark)
        self._matcher = package.LLMatcher(tokenizer, grammar, limits=limits)
        self.compile_seconds = time.perf_counter() - begin
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())
        self._mask = self._numpy.allocate_token_bitmask(1, len(vocabulary.tokens))

    def start(self) -> None:
        self._matcher.reset()

    def fill(self) -> None:
        self._numpy.fill_next_token_bitmask(self._matcher, self._mask)

    def pick(self, logits: NDArray[np.float32]) -> int:
        self._numpy.apply_token_bitmask_inplace(logits, self._mask)
        return int(logits.argmax())

    def accept(self, token: int) -> None:
        if not self._matcher.consume_token(token):
            raise ValueError(f"token {token} is refused: {self._matcher.get_error()}")


class LlGuidanceTokenizer:
    """What llguidance asks of a tokenizer.

    Parameters
    ----------
    tokens
        Control tokens by their name.
    controls
        Their ids.
    eos
    tokenize
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        controls: Sequence[int],
        eos: int,
        tokenize: Callable[[bytes], list[int]],
    ) -> None:
        self.eos_token_id = eos
        self.bos_token_id = None
        self.tokens = tokens
        self.special_token_ids = list(controls)
        self._tokenize = tokenize

    def __call__(self, text: str | bytes) -> list[int]:
        data = text.encode() if isinstance(text, str) else text
        return self._tokenize(data) if data else []


def xgrammar_compiler(vocabulary: VocabularyBytes) -> Any:
    """Return xgrammar's compiler over a vocabulary, on one thread and without a cache."""
    package = importlib.import_module("xgrammar")
    information = package.TokenizerInfo(
        vocabulary.tokens,
        package.VocabType.RAW,
        vocab_size=len(vocabulary.tokens),
        stop_token_ids=[vocabulary.eos],
    )
    return package.GrammarCompiler(information, max_threads=1, cache_enabled=False)


class XGrammarPicker:
    """xgrammar, its mask applied by its CPU kernel to a torch view of the logits."""

    def __init__(self, vocabulary: VocabularyBytes, texts: Sequence[str]) -> None:
        self._package = importlib.import_module("xgrammar")
        self._torch = importlib.import_module("torch")
        self._torch.set_num_threads(1)
        compiler = xgrammar_compiler(vocabulary)
        begin = time.perf_counter()
        self._matcher = self._package.GrammarMatcher(compiler.compile_grammar(gbnf_of(texts)))
        self.compile_seconds = time.perf_counter() - begin
        self._mask = self._package.allocate_token_bitmask(1, len(vocabulary.tokens))

    def start(self) -> None:
        self._matcher.reset()

    def fill(self) -> None:
        # Says False, and leaves the mask as it is, where every token is legal: never with choices.
        self._matcher.fill_next_token_bitmask(self._mask)

    def pick(self, logits: NDArray[np.float32]) -> int:
        view = self._torch.from_numpy(logits)
        self._package.apply_token_bitmask_inplace(view, self._mask[0])
        return int(view.argmax())

    def accept(self, token: int) -> None:
        if not self._matcher.accept_token(token):
            raise ValueError(f"token {token} is refused")


@dataclass(frozen=True)
class Peer:
    """Whether a peer can be used here: its version, or why not."""

    name: str
    version: str | None
    problem: str | None = None

    @classmethod
    def find(cls, name: str, module: str | None = None) -> Peer:
        """Look for an installed package and import it."""
        try:
            importlib.import_module(module or name)
            return cls(name, metadata.version(name))
        except Exception as error:  # an import of native code fails in many ways
            return cls(name, None, f"{type(error).__name__}: {error}")


@dataclass(frozen=True)
class PeerCost:
    """What a mask engine takes for the choices of some prompts, medians over all steps.

    Attributes
    ----------
    compile_ms : float
        Compiling the grammar, the vocabulary being prepared.
    mask_us : float
        Computing the mask of a step.
    step_us : float
        That, applying it, the argmax and accepting the token.
    steps : float
        Mean steps of a choice.
    choice_select_ms : float
        Median, over the prompts, of all steps of a choice together; forward passes not included.
    same_decisions : float
        The share of the steps whose most likely legal token is ours.
    """

    compile_ms: float
    mask_us: float
    step_us: float
    steps: float
    choice_select_ms: float
    same_decisions: float


def measure_peer(
    engine: MaskPicker,
    walks: Sequence[tuple[Sequence[int], Sequence[NDArray[np.float32]]]],
    repeat: int,
) -> PeerCost:
    """Drive a mask engine along known answers.

    Parameters
    ----------
    engine
        A `MaskPicker`.
    walks
        For each prompt the answer's tokens, and the logits before each of them.
    repeat
        Walks for each prompt; the first, untimed one is not counted.
    """
    masks: list[float] = []
    steps: list[float] = []
    choices: list[float] = []
    same: list[bool] = []
    for tokens, rows in walks:
        totals: list[float] = []
        for turn in range(repeat + 1):
            engine.start()
            walked = []
            for token, row in zip(tokens, rows, strict=True):
                logits = row.copy()
                begin = time.perf_counter()
                engine.fill()
                filled = time.perf_counter()
                picked = engine.pick(logits)
                engine.accept(token)
                end = time.perf_counter()
                walked.append((filled - begin, end - begin))
                if turn == 0:
                    same.append(picked == token)
            if turn > 0:
                masks += [mask for mask, _ in walked]
                steps += [step for _, step in walked]
                totals.append(sum(step for _, step in walked))
        choices.append(median(totals))
    return PeerCost(
        compile_ms=engine.compile_seconds * 1e3,
        mask_us=median(masks) * 1e6,
        step_us=median(steps) * 1e6,
        steps=mean([len(tokens) for tokens, _ in walks]),
        choice_select_ms=median(choices) * 1e3,
        same_decisions=mean(same),
    )


class LlamaCppPython:
    """llama-cpp-python with its grammar: a whole program, not a mask."""

    def __init__(self, model: str, texts: Sequence[str], n_ctx: int, n_threads: int) -> None:
        package = importlib.import_module("llama_cpp")
        self._llama = package.Llama(model, n_ctx=n_ctx, n_threads=n_threads, verbose=False)
        self._grammar_of: Any = package.LlamaGrammar.from_string
        self._gbnf = gbnf_of(texts)

    def choose(
        self, prompt: Sequence[int], ends_at: Callable[[str], bool]
    ) -> tuple[str, int, float]:
        """Return the answer, its tokens' number and the seconds it took.

        The prompt is in the cache from the call before; its last token's pass is part of the time.
        """
        text = b""
        count = 0
        grammar = self._grammar_of(self._gbnf, verbose=False)
        begin = time.perf_counter()
        for token in self._llama.generate(list(prompt), temp=0.0, grammar=grammar):
            if token == self._llama.token_eos():
                break
            text += self._llama.detokenize([token])
            count += 1
            if ends_at(text.decode("utf-8", "replace")):
                break
        return text.decode("utf-8", "replace"), count, time.perf_counter() - begin
