"""Make choices with any method, and time them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from eliza_ffi.library.protocol import STOP_AT_LEAF, TRIE_ARGMAX, StreamConfig, StreamStats, Tokens
from eliza_ffi.model import Model

from ..parts.modes import STRICT_GUIDED, Method
from .alternatives import Alternatives


@dataclass(frozen=True)
class TimedChoice:
    """One choice, or the text that an unguided method generated."""

    text: str
    tokens: tuple[int, ...]
    # The time from the end of the prefill to the last token. It includes setting the trie, but not
    # closing the stream.
    seconds: float
    # The time to open the stream, which parses the grammar, and to prefill the prompt.
    prompt_seconds: float
    stats: StreamStats


class Workbench:
    """Makes choices among some alternatives with any method, and times them by a clock."""

    def __init__(
        self,
        model: Model,
        alternatives: Alternatives,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.model = model
        self.alternatives = alternatives
        self.clock = clock
        self.n_vocab = int(model.describe()["model"]["n_vocab"])
        self._ctx = model.session.ctx

    def answer(self, prompt: Tokens, method: Method, max_tokens: int = 0) -> TimedChoice:
        """Make one choice and time it. `max_tokens` limits an unguided text; 0 = no limit."""
        begin = self.clock()
        with self._prefilled(prompt, method, max_tokens) as stream:
            prefilled = self.clock()
            steps = list(self._steps(stream, method))
            end = self.clock()
            return TimedChoice(
                text="".join(text for _, text in steps),
                tokens=tuple(itertools.chain.from_iterable(tokens for tokens, _ in steps)),
                seconds=end - prefilled,
                prompt_seconds=prefilled - begin,
                stats=self.model.binding.stats(stream),
            )

    def candidates(self, prompt: Tokens, method: Method, max_tokens: int = 0) -> list[float]:
        """Make one choice and return the number of candidates of each decision.

        Forced tokens are not decisions. Without a trie, every token of the vocabulary is a
        candidate, because a grammar masks, or sampling reads, the whole vocabulary.
        """
        found: list[float] = []
        binding = self.model.binding
        with self._prefilled(prompt, method, max_tokens) as stream:
            before = binding.stats(stream)
            for _ in self._steps(stream, method):
                now = binding.stats(stream)
                sampled = now.tokens_sampled - before.tokens_sampled
                count = now.decisions - before.decisions + sampled
                seen = now.candidates_seen - before.candidates_seen + sampled * self.n_vocab
                if count:
                    found += [seen / count] * count
                before = now
        return found

    @contextmanager
    def _prefilled(self, prompt: Tokens, method: Method, max_tokens: int) -> Iterator[Any]:
        binding = self.model.binding
        binding.set_option(self._ctx, "strategy", method.strategy)
        binding.set_option(self._ctx, "grammar_order", method.grammar_order)
        grammar = self.alternatives.grammar if method.mode == STRICT_GUIDED else None
        # The comparison is with llama.cpp's own grammar sampler.
        binding.set_option(self._ctx, "grammar_engine", "llama.cpp")
        config = StreamConfig(max_tokens=max_tokens, gbnf_grammar=grammar)
        with closing(binding.open(self._ctx, config)) as stream:
            binding.prefill(stream, prompt)
            yield stream

    def _steps(self, stream: Any, method: Method) -> Iterator[tuple[tuple[int, ...], str]]:
        binding = self.model.binding
        if method.has_trie and method.tokenization == "any":
            binding.set_text_choices(stream, self.alternatives.texts, TRIE_ARGMAX | STOP_AT_LEAF)
        elif method.has_trie:
            binding.set_token_trie(stream, self.alternatives.json, TRIE_ARGMAX | STOP_AT_LEAF)
        text, done = "", False
        while not done:
            step = binding.next(stream)
            text += step.text
            # If the grammar allows only the end token, another pass would be wasted.
            done = step.done or (method.mode == STRICT_GUIDED and self.alternatives.ends_at(text))
            yield step.tokens, step.text
