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
    Tokens,
)
from .requests import Request
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

    generation: Request  # the prompt and the slot
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
        n_endings = sum([len(ending.tokens) for ending in self.endings])
        return len(self.generation.prompt_tokens) + n_endings


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
        return self.prompts[0].generation.slot_id if self.prompts else -1


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

    def result(self) -> ScoreResult:
        """Score all endings."""
        counts = _Counts()
        scores: list[EndingScores] = []
        rankings: list[Ranking] = []
        hidden: list[NDArray[np.float32]] = []
        evidence = None
        if self.args.evidence is not None:
            # In another thread than the main one, because its calls may be long.
            evidence = self._run.call(partial(self.args.evidence, self._run.check), LONG_CALL)
            counts.prompt_tokens += evidence.n_tokens
            if not self.args.prompts:
                counts.forward_passes = -1
        for prompt in self.args.prompts:
            counts.begin(prompt)
            if prompt.positions:
                hidden.append(self._read_rows(prompt, counts))
            try:
                states = self._decide(prompt, counts, scores)
                self._search(prompt, counts, rankings)
            except (ContextFullError, TokenTrieError) as error:
                n_prompt = len(prompt.generation.prompt_tokens)
                labels = [(n_prompt + len(each.tokens), each.choices) for each in prompt.endings]
                self._run.name_label(error, *labels)
                raise
            if states is not None:
                hidden.append(states)
        return ScoreResult(
            tuple(scores),
            counts.prompt_tokens,
            counts.cached_tokens,
            counts.forward_passes,
            tuple(rankings),
            tuple(hidden),
            evidence,
        )

    def _read_rows(self, prompt: ScoredPrompt, counts: _Counts) -> NDArray[np.float32]:
        run, tokens = self._run, prompt.generation.prompt_tokens
        run.check()
        counts.forward_passes = -1
        read = partial(
            self._binding.token_embeddings, run.model.ctx, tokens, prompt.positions, prompt.roles
        )
        return run.call(read, len(tokens))

    def _decide(
        self, prompt: ScoredPrompt, counts: _Counts, scores: list[EndingScores]
    ) -> NDArray[np.float32] | None:
        """Append the scores of the endings without `k`, and return the hidden states."""
        scored = [(ending.tokens, ending.choices) for ending in prompt.endings if ending.k is None]
        if not scored and prompt.hidden is None:
            return None
        decision = self._binding.decision(
            prompt.generation,
            prompt.generation.prompt_tokens,
            scored,
            full=self.args.full,
            allowed_probability=self.args.allowed_probability,
            hidden=prompt.hidden,
        )
        n_labels = sum([choices.longest for _, choices in scored])
        decided = self._run.decide(decision, prompt.n_tokens + n_labels)
        scores += decided.scores
        counts.add(decided.cached_tokens, decided.forward_passes)
        return decided.hidden

    def _search(self, prompt: ScoredPrompt, counts: _Counts, rankings: list[Ranking]) -> None:
        """Append the rankings of the endings with `k`."""
        searched = [ending for ending in prompt.endings if ending.k is not None]
        if not searched:
            return
        tokens = prompt.generation.prompt_tokens
        with self._run.opened(prompt.generation) as stream:
            self._binding.append(stream, tokens)
            for ending in searched:
                choices, k = ending.choices, min(ending.k or 0, ending.choices.n)
                self._run.check()
                rank = partial(self._binding.rank, stream, choices, k=k, after=ending.tokens)
                rankings.append(self._run.call(rank, len(tokens) + len(ending.tokens) + choices.n))
            stats = self._binding.stats(stream)
        is_first = len(searched) == len(prompt.endings)
        counts.add(stats.prompt_tokens_reused if is_first else 0, stats.forward_passes)


def ranking_of(logprobs: NDArray[np.float64], k: int, forward_passes: int = -1) -> Ranking:
    """Return the k most probable labels, given the log-probabilities of all labels.

    The probabilities of all labels must sum to 1.
    """
    order = np.argsort(-logprobs, kind="stable")[:k].astype(np.int32)
    best = logprobs[order]
    rest = max(0.0, 1.0 - float(np.exp(best).sum()))
    return Ranking(order, best, best, True, rest, forward_passes, -1)


class _Counts:
    """Counts tokens and forward passes over several streams."""

    def __init__(self) -> None:
        self.prompt_tokens = self.cached_tokens = self.forward_passes = 0
        self._prompt: ScoredPrompt | None = None
        self._n_known = 0  # the first tokens of the prompt, which the one before it has, too

    def begin(self, prompt: ScoredPrompt) -> None:
        """Count the tokens of the next prompt."""
        before, self._prompt, self._n_known = self._prompt, prompt, 0
        if before is not None and before.hidden is not None and not before.endings:
            tokens = zip(
                before.generation.prompt_tokens, prompt.generation.prompt_tokens, strict=False
            )
            self._n_known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], tokens))
        self.prompt_tokens += prompt.n_tokens - self._n_known

    def add(self, n_cached: int, n_passes: int) -> None:
        """Count the passes and the cached tokens of the prompt."""
        self.cached_tokens += max(0, n_cached - self._n_known)
        self.forward_passes += n_passes
