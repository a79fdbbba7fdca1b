"""Score labels after prompts; the endings of one prompt in one library call if possible.

If the input of a decision comes first, for example, the endings of its prompt are the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ContextFullError, TokenTrieError
from ..library.protocol import (
    EndingScores,
    Hidden,
    PreparedChoices,
    Ranking,
    StreamConfig,
    Tokens,
)
from .run import LONG_CALL, Run


@dataclass(frozen=True, eq=False)
class Ending:
    """Tokens that follow the prompt, and the labels that follow these tokens."""

    tokens: Tokens  # empty if the labels follow the prompt directly
    choices: PreparedChoices  # the labels
    k: int | None = None  # find the k most probable labels instead of scoring all
    lead: str = ""  # spaces that each label begins with, because they have no tokens before it


@dataclass(frozen=True, eq=False)
class ScoredPrompt:
    """A prompt, and the endings to score after it."""

    config: StreamConfig  # the slot, and its cache
    tokens: Tokens
    endings: Sequence[Ending] = ()
    hidden: Hidden | None = None  # the hidden states to read
    # The positions of the tokens whose embeddings to read, ascending. Such a prompt has no endings,
    # is read without the KV cache of its slot, and cannot be cancelled while it is read.
    positions: Sequence[int] = ()
    # The role of each token for a model that reads all questions at once; see
    # eliza_inference_token_embeddings. `positions` are then numbers of options.
    roles: Sequence[int] = ()

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the prompt and all endings, without labels."""
        return len(self.tokens) + sum([len(ending.tokens) for ending in self.endings])


@dataclass(frozen=True, eq=False)
class ScoreArgs:
    """Prompts with endings to score."""

    prompts: Sequence[ScoredPrompt]  # they are scored one after the other
    # Whether to compute these scores, too, as in EndingScores.
    full: bool = False
    allowed_probability: bool = False
    # Reads something else about the input. It calls its argument between calls of the library.
    # The result has the number of tokens read in its attribute `n_tokens`.
    evidence: Callable[[Callable[[], None]], Any] | None = None

    @property
    def endings(self) -> list[Ending]:
        """The endings of all prompts, in order."""
        return [ending for prompt in self.prompts for ending in prompt.endings]

    @property
    def slot_id(self) -> int:
        """The slot that the prompts use; -1 = any."""
        return self.prompts[0].config.slot_id if self.prompts else -1


@dataclass(frozen=True, eq=False)
class ScoreResult:
    """The scores of all endings."""

    scores: tuple[EndingScores, ...]  # for the endings without `k`, in their order
    # The number of tokens of the counted prompts and all their endings. The common beginning of a
    # prompt and a prompt with `hidden` before it counts once.
    prompt_tokens: int
    cached_tokens: int  # the number of prompt tokens found in the KV cache
    forward_passes: int  # the number of forward passes for all endings; -1 if they were not counted
    rankings: tuple[Ranking, ...] = ()  # for the endings with `k`, in their order
    # For the prompts with `hidden` (shape [n_layers, n_ranges, n_embd]) or `positions` (shape
    # [n_positions, n_values]), in their order.
    hidden: tuple[NDArray[np.float32], ...] = ()
    evidence: Any = None  # what `ScoreArgs.evidence` has read


class Scoring:
    """The scoring of labels for a request; `run` is the run that it is a part of."""

    def __init__(self, run: Run[Any], args: ScoreArgs) -> None:
        self._run, self._binding = run, run.binding
        self.args = args
        self._scores: list[EndingScores] = []
        self._rankings: list[Ranking] = []
        self._hidden: list[NDArray[np.float32]] = []
        self._prompt_tokens = self._cached_tokens = self._forward_passes = 0

    def result(self) -> ScoreResult:
        """Score all endings."""
        evidence, before = None, None
        if self.args.evidence is not None:
            # In another thread than the main one, because its calls may be long.
            evidence = self._run.call(partial(self.args.evidence, self._run.check), LONG_CALL)
            self._prompt_tokens += evidence.n_tokens
            if not self.args.prompts:
                self._forward_passes = -1
        for prompt in self.args.prompts:
            n_known = 0 if before is None else _n_common(before, prompt)
            self._prompt_tokens += prompt.n_tokens - n_known
            try:
                self._read(prompt, n_known)
            except (ContextFullError, TokenTrieError) as error:
                n_prompt = len(prompt.tokens)
                labels = [(n_prompt + len(each.tokens), each.choices) for each in prompt.endings]
                self._run.name_label(error, *labels)
                raise
            before = prompt
        return ScoreResult(
            tuple(self._scores),
            self._prompt_tokens,
            self._cached_tokens,
            self._forward_passes,
            tuple(self._rankings),
            tuple(self._hidden),
            evidence,
        )

    def _read(self, prompt: ScoredPrompt, n_known: int) -> None:
        """Read the results of a prompt; the first `n_known` tokens are counted already."""
        if prompt.positions:
            self._read_rows(prompt)
        scored = [(each.tokens, each.choices) for each in prompt.endings if each.k is None]
        if scored or prompt.hidden is not None:
            self._decide(prompt, scored, n_known)
        if len(scored) < len(prompt.endings):
            self._search(prompt, n_known)

    def _read_rows(self, prompt: ScoredPrompt) -> None:
        run, tokens = self._run, prompt.tokens
        run.check()
        self._forward_passes = -1
        read = partial(
            self._binding.token_embeddings, run.model.ctx, tokens, prompt.positions, prompt.roles
        )
        self._hidden.append(run.call(read, len(tokens)))

    def _decide(
        self, prompt: ScoredPrompt, scored: list[tuple[Tokens, PreparedChoices]], n_known: int
    ) -> None:
        """Score the endings without `k`, and read the hidden states."""
        decision = self._binding.decision(
            prompt.config,
            prompt.tokens,
            scored,
            full=self.args.full,
            allowed_probability=self.args.allowed_probability,
            hidden=prompt.hidden,
        )
        decided = self._run.decide(decision)
        self._scores += decided.scores
        self._cached_tokens += max(0, decided.cached_tokens - n_known)
        self._forward_passes += decided.forward_passes
        if decided.hidden is not None:
            self._hidden.append(decided.hidden)

    def _search(self, prompt: ScoredPrompt, n_known: int) -> None:
        """Rank the labels of the endings with `k`."""
        searched = [ending for ending in prompt.endings if ending.k is not None]
        tokens = prompt.tokens
        with self._run.opened(prompt.config) as stream:
            self._binding.append(stream, tokens)
            for ending in searched:
                choices, k = ending.choices, min(ending.k or 0, ending.choices.n)
                self._run.check()
                rank = partial(self._binding.rank, stream, choices, k=k, after=ending.tokens)
                n_tokens = len(tokens) + len(ending.tokens) + choices.n
                self._rankings.append(self._run.call(rank, n_tokens))
            stats = self._binding.stats(stream)
        if len(searched) == len(prompt.endings):  # otherwise they were counted already
            self._cached_tokens += max(0, stats.prompt_tokens_reused - n_known)
        self._forward_passes += stats.forward_passes


def _n_common(before: ScoredPrompt, prompt: ScoredPrompt) -> int:
    """Return how many tokens of a prompt were counted with the one before it, for its states."""
    if before.hidden is None or before.endings:
        return 0
    pairs = zip(before.tokens, prompt.tokens, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def ranking_of(logprobs: NDArray[np.float64], k: int, forward_passes: int = -1) -> Ranking:
    """Return the k most probable labels, given the log-probabilities of all labels.

    The probabilities of all labels must sum to 1.
    """
    order = np.argsort(-logprobs, kind="stable")[:k].astype(np.int32)
    best = logprobs[order]
    rest = max(0.0, 1.0 - float(np.exp(best).sum()))
    return Ranking(order, best, best, True, rest, forward_passes, -1)
