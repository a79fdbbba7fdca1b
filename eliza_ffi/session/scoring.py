"""Score labels after prompts; the endings of one prompt in one library call if possible.

If the input of a decision comes first, for example, the endings of its prompt are the questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..choices.prepared_labels import ChoiceTokens
from ..errors import ContextFullError, NotSupportedError, TokenTrieError
from ..library.binding import CffiBinding
from ..library.protocol import (
    TRIE_ARGMAX,
    EndingScores,
    PreparedChoices,
    Ranking,
    Tokens,
)
from .requests import GenerationRequest
from .run import Run


@dataclass(frozen=True, eq=False)
class Ending:
    """Tokens that follow the prompt, and the labels that follow these tokens.

    Attributes
    ----------
    tokens : sequence of int
        Empty if the labels follow the prompt directly.
    choices : PreparedChoices or TokenTreePayload
        The labels.
    k : int or None
        Find the k most probable labels instead of scoring all. Only for prepared labels, and for
        a library that can rank.
    lead : str
        Spaces that each label begins with, because they have no tokens before it.
    """

    tokens: Tokens
    choices: ChoiceTokens
    k: int | None = None
    lead: str = ""


@dataclass(frozen=True)
class Hidden:
    """Hidden states to read after a prompt: those of its last token.

    Attributes
    ----------
    layers : tuple of int
        Ascending, as in :meth:`eliza_ffi.Model.hidden_states`.
    n_embd : int
        The number of values in a hidden state of the model.
    """

    layers: tuple[int, ...]
    n_embd: int


@dataclass(frozen=True, eq=False)
class ScoredPrompt:
    """A prompt, and the endings to score after it.

    Attributes
    ----------
    generation : GenerationRequest
        The prompt and the slot.
    endings : sequence of Ending
    is_counted : bool
        Whether its tokens count as tokens of the request.
    hidden : Hidden or None
        The hidden states to read.
    positions : sequence of int
        The positions of the tokens whose embeddings to read, ascending. Such a prompt has no
        endings, is read without the KV cache of its slot, and cannot be cancelled while it is read.
    """

    generation: GenerationRequest
    endings: Sequence[Ending] = ()
    is_counted: bool = True
    hidden: Hidden | None = None
    positions: Sequence[int] = ()

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the prompt and all endings, without labels."""
        n_endings = sum(len(ending.tokens) for ending in self.endings)
        return len(self.generation.prompt_tokens) + n_endings


@dataclass(frozen=True, eq=False)
class ScoreArgs:
    """Prompts with endings to score.

    Attributes
    ----------
    prompts : sequence of ScoredPrompt
        They are scored one after the other.
    joint, allowed_probability : bool
        Whether to compute these scores, too; see
        :class:`~eliza_ffi.library.protocol.EndingScores`.
    """

    prompts: Sequence[ScoredPrompt]
    joint: bool = False
    allowed_probability: bool = False

    @property
    def endings(self) -> list[Ending]:
        """The endings of all prompts, in order."""
        return [ending for prompt in self.prompts for ending in prompt.endings]

    @property
    def slot_id(self) -> int:
        """The slot that the prompts use; -1 = any."""
        return self.prompts[0].generation.slot_id


@dataclass(frozen=True, eq=False)
class ScoreResult:
    """The scores of all endings.

    Attributes
    ----------
    scores : tuple of EndingScores
        For the endings without `k`, in their order.
    prompt_tokens : int
        The number of tokens of the counted prompts and all their endings. The common beginning
        of a prompt and a prompt with `hidden` before it counts once.
    cached_tokens : int
        The number of prompt tokens found in the KV cache; 0 if the library does not count them.
    forward_passes : int
        The number of forward passes for all endings; -1 if the library does not count them.
    rankings : tuple of Ranking
        For the endings with `k`, in their order.
    hidden : tuple of array of float32
        For the prompts with `hidden` (shape [n_layers, n_embd]) or `positions` (shape [n_positions,
        n_values]), in their order.
    """

    scores: tuple[EndingScores, ...]
    prompt_tokens: int
    cached_tokens: int
    forward_passes: int
    rankings: tuple[Ranking, ...] = ()
    hidden: tuple[NDArray[np.float32], ...] = ()


def check_scores(binding: CffiBinding, args: ScoreArgs) -> bool:
    """Return whether the library scores all endings of a prompt in one call.

    An older library has no such function, and scores one ending after the other. It can then
    compute only probabilities among the labels.

    Raises
    ------
    NotSupportedError
        If the library does not support the requested scores.
    """
    is_prepared = all(isinstance(each.choices, PreparedChoices) for each in args.endings)
    if binding.supports("score_endings") and is_prepared:
        return True
    if args.joint or args.allowed_probability:
        raise NotSupportedError(
            "this library cannot compute probabilities over the whole vocabulary: it has no "
            "llm_stream_score_endings"
        )
    if not binding.supports("token_trie_scores"):
        raise NotSupportedError("this library cannot score labels: it has no token_trie_scores")
    return False


class Scoring:
    """The scoring of labels for a request; `run` is the run that it is a part of."""

    def __init__(self, run: Run[Any], args: ScoreArgs) -> None:
        self._run, self._binding = run, run.binding
        self._together = check_scores(run.binding, args)
        self.args = args

    def result(self) -> ScoreResult:
        """Score all endings."""
        counts = _Counts()
        scores: list[EndingScores] = []
        rankings: list[Ranking] = []
        hidden: list[NDArray[np.float32]] = []
        for prompt in self.args.prompts:
            counts.begin(prompt)
            if prompt.hidden is not None:
                hidden.append(self._read_hidden(prompt, prompt.hidden, counts))
            if prompt.positions:
                hidden.append(self._read_rows(prompt, counts))
            if not prompt.endings:
                continue
            if self._together:
                self._score_together(prompt, counts, scores, rankings)
            else:
                self._score_one_by_one(prompt, counts, scores)
        return ScoreResult(
            tuple(scores),
            counts.prompt_tokens,
            counts.cached_tokens,
            counts.forward_passes,
            tuple(rankings),
            tuple(hidden),
        )

    def _read_hidden(
        self, prompt: ScoredPrompt, hidden: Hidden, counts: _Counts
    ) -> NDArray[np.float32]:
        tokens = prompt.generation.prompt_tokens
        with self._run.opened(prompt.generation) as stream:
            read = partial(
                self._binding.hidden_states, stream, tokens, hidden.layers, 1, hidden.n_embd
            )
            found = self._run.call(read, len(tokens))
            counts.add(self._binding, stream)
        return found[:, 0]

    def _read_rows(self, prompt: ScoredPrompt, counts: _Counts) -> NDArray[np.float32]:
        run, tokens = self._run, prompt.generation.prompt_tokens
        run.check()
        counts.forward_passes = -1
        read = partial(self._binding.token_embeddings, run.model.ctx, tokens, prompt.positions)
        return run.call(read, len(tokens))

    def _score_together(
        self,
        prompt: ScoredPrompt,
        counts: _Counts,
        scores: list[EndingScores],
        rankings: list[Ranking],
    ) -> None:
        args, generation = self.args, prompt.generation
        scored = [
            (ending.tokens, ending.choices)
            for ending in prompt.endings
            if ending.k is None and isinstance(ending.choices, PreparedChoices)
        ]
        n_prompt = len(generation.prompt_tokens)
        labels = [(n_prompt + len(each.tokens), each.choices) for each in prompt.endings]
        with self._run.opened(generation, generation.prompt_tokens) as stream:
            try:
                if scored:
                    score = partial(
                        self._binding.score_endings,
                        stream,
                        scored,
                        joint=args.joint,
                        allowed_probability=args.allowed_probability,
                    )
                    n_tokens = sum(len(tokens) + choices.longest for tokens, choices in scored)
                    scores += self._run.call(score, n_tokens)
                rankings += [
                    self._search(stream, ending.tokens, ending.choices, ending.k)
                    for ending in prompt.endings
                    if ending.k is not None and isinstance(ending.choices, PreparedChoices)
                ]
            except (ContextFullError, TokenTrieError) as error:
                self._run.name_label(error, *labels)
                raise
            counts.add(self._binding, stream)

    def _search(self, stream: Any, tokens: Tokens, choices: PreparedChoices, k: int) -> Ranking:
        self._run.check()
        rank = partial(self._binding.rank, stream, choices, k=min(k, choices.n), after=tokens)
        return self._run.call(rank, len(tokens) + choices.n)

    def _score_one_by_one(
        self, prompt: ScoredPrompt, counts: _Counts, scores: list[EndingScores]
    ) -> None:
        """Score with one stream per ending. Their common tokens stay in the KV cache."""
        for ending in prompt.endings:
            tokens = [*prompt.generation.prompt_tokens, *ending.tokens]
            generation = replace(prompt.generation, prompt_tokens=tokens)
            with self._run.opened(generation, tokens) as stream:
                if isinstance(ending.choices, PreparedChoices):
                    self._binding.set_choices(stream, ending.choices, TRIE_ARGMAX)
                else:
                    self._binding.set_token_trie(stream, ending.choices.to_json(), TRIE_ARGMAX)
                scores.append(EndingScores(self._binding.token_trie_scores(stream)))
                # Later streams reuse the tokens that the first one decoded; do not count these.
                counts.add(self._binding, stream, is_first=ending is prompt.endings[0])


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
        if not prompt.is_counted:
            return
        if before is not None and before.hidden is not None:
            tokens = zip(
                before.generation.prompt_tokens, prompt.generation.prompt_tokens, strict=False
            )
            self._n_known = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], tokens))
        self.prompt_tokens += prompt.n_tokens - self._n_known

    def add(self, binding: CffiBinding, stream: Any, *, is_first: bool = True) -> None:
        """Count the passes of a stream, and the cached tokens if it is the prompt's first one."""
        if not binding.supports("stats"):
            self.forward_passes = -1
            return
        stats = binding.stats(stream)
        if self._prompt is not None and self._prompt.is_counted and is_first:
            self.cached_tokens += max(0, stats.prompt_tokens_reused - self._n_known)
        self.forward_passes += stats.forward_passes
