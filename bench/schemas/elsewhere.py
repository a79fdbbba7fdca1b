"""Generate JSON for a schema with loops over llama-cpp-python, as its users write them."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from eliza_ffi.structured.schema import COMPACT

from ..choosing.other_libraries import VocabularyBytes, xgrammar_compiler
from .answering import AnsweringSetting, WrittenAnswer


class _MaskWalk(Protocol):
    """A library's masks along one text."""

    def forced(self) -> list[int]:
        """Return the forced tokens."""

    def choose(self, logits: NDArray[np.float32]) -> int:
        """Return the most likely allowed token; modifies the logits."""

    def accept(self, token: int) -> bool:
        """Append a token to the text; return whether the text has ended."""


class _GuidanceWalk:
    """llguidance's masks, applied with its own function.

    Parameters
    ----------
    tokenizer
        A tokenizer of llguidance.
    """

    def __init__(self, tokenizer: Any, schema: str) -> None:
        matcher = importlib.import_module("llguidance").LLMatcher
        self._numpy = importlib.import_module("llguidance.numpy")
        grammar = matcher.grammar_from_json_schema(schema, COMPACT)
        self._matcher = matcher(tokenizer, grammar, log_level=0)
        if self._matcher.is_error():
            raise ValueError(self._matcher.get_error())
        self._mask = self._numpy.allocate_token_bitmask(1, tokenizer.vocab_size)

    def forced(self) -> list[int]:
        return list(self._matcher.compute_ff_tokens())

    def choose(self, logits: NDArray[np.float32]) -> int:
        self._numpy.fill_next_token_bitmask(self._matcher, self._mask)
        self._numpy.apply_token_bitmask_inplace(logits, self._mask)
        return int(logits.argmax())

    def accept(self, token: int) -> bool:
        if not self._matcher.consume_token(token):
            raise ValueError(f"llguidance rejected token {token}: {self._matcher.get_error()}")
        return bool(self._matcher.is_stopped())


class _XGrammarWalk:
    """xgrammar's masks, applied with its CPU kernel to a torch view of the logits.

    Parameters
    ----------
    compiler
        A compiler of xgrammar without a cache.
    """

    def __init__(self, compiler: Any, schema: str, vocabulary: VocabularyBytes) -> None:
        self._package = importlib.import_module("xgrammar")
        self._torch = importlib.import_module("torch")
        compiled = compiler.compile_json_schema(schema, any_whitespace=False, separators=(",", ":"))
        self._matcher = self._package.GrammarMatcher(compiled)
        self._mask = self._package.allocate_token_bitmask(1, len(vocabulary.tokens))
        self._tokenize = vocabulary.tokenize

    def forced(self) -> list[int]:
        text = self._matcher.find_jump_forward_string()
        return self._tokenize(text) if text else []

    def choose(self, logits: NDArray[np.float32]) -> int:
        view = self._torch.from_numpy(logits)
        if self._matcher.fill_next_token_bitmask(self._mask):
            self._package.apply_token_bitmask_inplace(view, self._mask[0])
        return int(view.argmax())

    def accept(self, token: int) -> bool:
        if not self._matcher.accept_token(token):
            raise ValueError(f"xgrammar rejected token {token}")
        return bool(self._matcher.is_terminated())


class _Llama:
    """A model in llama-cpp-python, with the prompt in its cache, except for the last token."""

    def __init__(self, setting: AnsweringSetting) -> None:
        self._package: Any = importlib.import_module("llama_cpp")
        path = setting.model.describe()["model"]["path"]
        threads = {"n_threads": setting.n_threads, "n_threads_batch": setting.n_threads}
        self.llama: Any = self._package.Llama(path, n_ctx=setting.n_ctx, verbose=False, **threads)
        self.prompt = list(setting.prompt)
        self.vocabulary = self._package.llama_model_get_vocab(self.llama.model)
        self._n_vocab = int(self._package.llama_vocab_n_tokens(self.vocabulary))
        self.llama.eval(self.prompt[:-1])

    def begin(self) -> None:
        """Decode the prompt's last token."""
        self.llama.n_tokens = len(self.prompt) - 1
        self.llama.eval(self.prompt[-1:])

    def logits(self) -> NDArray[np.float32]:
        """Return a copy of the last token's logits."""
        pointer = self._package.llama_get_logits_ith(self.llama.ctx, -1)
        row: NDArray[np.float32] = np.ctypeslib.as_array(pointer, shape=(self._n_vocab,)).copy()
        return row

    def check_grammar(self, grammar: Any) -> None:
        """Raise ValueError if llama.cpp cannot parse a grammar.

        Without this check, such a grammar would end the process later.
        """
        text = grammar._grammar.encode()
        sampler = self._package.llama_sampler_init_grammar(self.vocabulary, text, b"root")
        if not sampler:
            raise ValueError("llama.cpp cannot parse the grammar of this schema")
        self._package.llama_sampler_free(sampler)

    def ends(self, token: int) -> bool:
        """Return whether a token ends the generation."""
        return bool(self._package.llama_vocab_is_eog(self.vocabulary, token))

    def text(self, tokens: list[int]) -> str:
        """Return the text of some tokens."""
        written: bytes = b"".join(self.llama.detokenize([token]) for token in tokens)
        return written.decode("utf-8", "replace")


class _MaskLoop:
    """A generation loop with a library's masks. Forced tokens are decoded together in one pass."""

    def __init__(self, llama: _Llama, most: int) -> None:
        self._llama = llama
        self._most = most

    def answer(self, start: Callable[[], _MaskWalk]) -> WrittenAnswer | None:
        llama, clock = self._llama, time.perf_counter
        begin = clock()
        walk = start()
        compiled = clock()
        llama.begin()
        tokens: list[int] = []
        waiting: list[int] = []
        passes, first, has_ended = 0, 0.0, False
        while not has_ended and len(tokens) < self._most:
            came = walk.forced()
            if not came:
                if waiting:
                    llama.llama.eval(waiting)
                    passes, waiting = passes + 1, []
                came = [walk.choose(llama.logits())]
            first = first or clock()
            for token in came:
                has_ended = walk.accept(token) or llama.ends(token)
                if llama.ends(token):
                    break
                tokens.append(token)
                waiting.append(token)
        end = clock()
        if not has_ended:
            return None
        took = (1e3 * (compiled - begin), 1e3 * (first - compiled), 1e3 * (end - compiled))
        return WrittenAnswer(llama.text(tokens), len(tokens), passes, *took)


class GuidanceAnswers:
    """llguidance over llama-cpp-python, with llguidance's own tokenizer for llama.cpp."""

    def __init__(self, setting: AnsweringSetting) -> None:
        self._llama = _Llama(setting)
        self._loop = _MaskLoop(self._llama, setting.most)
        tokenizer_of = importlib.import_module("llguidance.llamacpp").lltokenizer_from_vocab
        self._tokenizer = tokenizer_of(self._llama.vocabulary)

    def answer(self, schema: Any) -> WrittenAnswer | None:
        return self._loop.answer(lambda: _GuidanceWalk(self._tokenizer, json.dumps(schema)))

    def close(self) -> None:
        self._llama.llama.close()


class XGrammarAnswers:
    """xgrammar over llama-cpp-python."""

    def __init__(self, setting: AnsweringSetting) -> None:
        self._llama = _Llama(setting)
        self._loop = _MaskLoop(self._llama, setting.most)
        self._vocabulary = VocabularyBytes(setting.model)
        self._compiler = xgrammar_compiler(self._vocabulary)

    def answer(self, schema: Any) -> WrittenAnswer | None:
        text = json.dumps(schema)
        return self._loop.answer(lambda: _XGrammarWalk(self._compiler, text, self._vocabulary))

    def close(self) -> None:
        self._llama.llama.close()


class GrammarAnswers:
    """llama-cpp-python with its own grammar for a schema."""

    def __init__(self, setting: AnsweringSetting) -> None:
        self._llama = _Llama(setting)
        self._most = setting.most
        self._grammar_of: Any = importlib.import_module("llama_cpp").LlamaGrammar.from_json_schema

    def answer(self, schema: Any) -> WrittenAnswer | None:
        llama, clock = self._llama, time.perf_counter
        begin = clock()
        grammar = self._grammar_of(json.dumps(schema), verbose=False)
        llama.check_grammar(grammar)
        compiled = clock()
        tokens: list[int] = []
        first = 0.0
        for token in llama.llama.generate(llama.prompt, temp=0.0, grammar=grammar):
            first = first or clock()
            if llama.ends(token):
                end = clock()
                took = (1e3 * (compiled - begin), 1e3 * (first - compiled), 1e3 * (end - compiled))
                return WrittenAnswer(llama.text(tokens), len(tokens), len(tokens), *took)
            tokens.append(token)
            if len(tokens) == self._most:
                break
        return None

    def close(self) -> None:
        self._llama.llama.close()
