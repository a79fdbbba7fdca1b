"""Scoring choices behind endings of one prompt: open, prefill, one call into the library, close."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from ..choices.prepared_labels import ChoiceTokens
from ..errors import NotSupportedError
from ..library.protocol import (
    TRIE_ARGMAX,
    EndingScores,
    LlmStreamingBinding,
    PreparedChoices,
    Tokens,
)
from .lifecycle import Lifecycle
from .request import GenerationRequest

__all__ = ["Ending", "ScoreArgs", "ScoreResult", "ScoreRun"]


@dataclass(frozen=True, eq=False)
class Ending:
    """Tokens behind a prompt, and the choices behind them.

    Attributes
    ----------
    tokens : sequence of int
        None where the choices come right behind the prompt.
    choices : PreparedChoices or TokenTreePayload
    """

    tokens: Tokens
    choices: ChoiceTokens


@dataclass(frozen=True, eq=False)
class ScoreArgs:
    """What to score.

    Attributes
    ----------
    generation : GenerationRequest
        The prompt and the slot.
    endings : sequence of Ending
    joint, option_mass : bool
        Whether to find these, too; see :class:`~eliza_ffi.library.protocol.EndingScores`.
    """

    generation: GenerationRequest
    endings: Sequence[Ending]
    joint: bool = False
    option_mass: bool = False

    @property
    def n_tokens(self) -> int:
        """How many the prompt has with its longest ending, labels left out."""
        longest = max((len(ending.tokens) for ending in self.endings), default=0)
        return len(self.generation.prompt_tokens) + longest


@dataclass(frozen=True, eq=False)
class ScoreResult:
    """What came of it.

    Attributes
    ----------
    scores : tuple of EndingScores
        In the order of the endings.
    prompt_tokens : int
        Of the prompt, and of all endings.
    cached_tokens : int
        Of the prompt's, found in the KV cache; 0 where the library does not count.
    forward_passes : int
        Of all; -1 where the library does not count.
    """

    scores: tuple[EndingScores, ...]
    prompt_tokens: int
    cached_tokens: int
    forward_passes: int


class ScoreRun:
    """One run of the lifecycle, which another thread may cancel.

    Parameters
    ----------
    binding, ctx
        The library and the context to score with.
    args
        What to score.

    Raises
    ------
    NotSupportedError
        If the library cannot score what is asked for. One that knows no endings scores them one
        after the other, and legal probabilities alone.
    """

    def __init__(self, binding: LlmStreamingBinding, ctx: Any, args: ScoreArgs) -> None:
        self._binding = binding
        self._prepared = [
            (ending.tokens, ending.choices)
            for ending in args.endings
            if isinstance(ending.choices, PreparedChoices)
        ]
        is_prepared = len(self._prepared) == len(args.endings)
        self._together = binding.supports("score_endings") and is_prepared
        if not self._together and (args.joint or args.option_mass):
            raise NotSupportedError(
                "this library finds no probabilities among the whole vocabulary: it has no "
                "llm_stream_score_endings"
            )
        if not self._together and not binding.supports("token_trie_scores"):
            raise NotSupportedError(
                "this library cannot score choices: it has no token_trie_scores"
            )
        self._lifecycle = Lifecycle(binding, ctx, "scoring")
        self.args = args

    def cancel(self) -> None:
        """End the scoring: the native call that is running returns soon."""
        self._lifecycle.cancel()

    def run(self) -> ScoreResult:
        """Score all endings.

        Raises
        ------
        ContextFullError
            If the prompt with its longest ending does not fit into the context.
        GenerationCancelled
            If it was cancelled.
        ElizaError
            If the library fails.
        """
        with closing(self.steps()) as steps:
            return next(steps)

    def steps(self) -> Generator[ScoreResult, None, None]:
        """Yield the result, as runs of several steps yield theirs."""
        prompt = self.args.generation.prompt_tokens
        n_tokens = len(prompt) + sum(len(ending.tokens) for ending in self.args.endings)
        counts = _Counts()
        scores = self._all(counts) if self._together else self._one_by_one(counts)
        yield ScoreResult(scores, n_tokens, counts.cached_tokens, counts.forward_passes)

    def _all(self, counts: _Counts) -> tuple[EndingScores, ...]:
        args = self.args
        with self._lifecycle.prefilled(
            args.generation.config(), args.generation.prompt_tokens
        ) as stream:
            scores = self._binding.score_endings(
                stream, self._prepared, joint=args.joint, option_mass=args.option_mass
            )
            counts.add(self._binding, stream)
        return scores

    def _one_by_one(self, counts: _Counts) -> tuple[EndingScores, ...]:
        """The slow way: a stream for each ending. What they share stays in the KV cache."""
        scores = []
        for ending in self.args.endings:
            tokens = [*self.args.generation.prompt_tokens, *ending.tokens]
            generation = replace(self.args.generation, prompt_tokens=tokens)
            with self._lifecycle.prefilled(generation.config(), tokens) as stream:
                if isinstance(ending.choices, PreparedChoices):
                    self._binding.set_choices(stream, ending.choices, TRIE_ARGMAX)
                else:
                    self._binding.set_token_trie(stream, ending.choices.to_json(), TRIE_ARGMAX)
                scores.append(EndingScores(self._binding.token_trie_scores(stream)))
                counts.add(self._binding, stream, is_first=ending is self.args.endings[0])
        return tuple(scores)


class _Counts:
    """What streams have cost together."""

    def __init__(self) -> None:
        self.cached_tokens = 0
        self.forward_passes = 0

    def add(self, binding: LlmStreamingBinding, stream: Any, is_first: bool = True) -> None:
        if not binding.supports("stats"):
            self.forward_passes = -1
            return
        stats = binding.stats(stream)
        # What the first one has read is no news to the others.
        self.cached_tokens += stats.prompt_tokens_reused if is_first else 0
        self.forward_passes += stats.forward_passes
