"""Make one choice with one library, and collect everything that is compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eliza_ffi.choices.token_tree import TokenTreePayload, build_token_tree_descriptor
from eliza_ffi.library.protocol import STOP_AT_LEAF, TRIE_ARGMAX, StreamConfig, StreamStats, Tokens
from eliza_ffi.model import Model


@dataclass(frozen=True)
class Way:
    """One way to decode a choice; each attribute is the value of the option of this name."""

    strategy: str
    restricted_head: str

    def __str__(self) -> str:
        return self.strategy + (", restricted head" if self.restricted_head == "auto" else "")


REFERENCE = Way("token-by-token", "off")
"""All logits, one token per pass, on the CPU: the slow, obvious way."""

WAYS = tuple(
    Way(strategy, restricted_head)
    for strategy, restricted_head in itertools.product(
        ("token-by-token", "skip-ahead", "tree", "auto"), ("off", "auto")
    )
)


@dataclass(frozen=True)
class Outcome:
    tokens: tuple[int, ...]  # the leaf's tokens
    logprob: float  # log-probability of that leaf, computed by the stream while it chose
    # Log-probabilities of all leaves in payload order, shape ``[leaves]``, computed by a second
    # stream.
    logprobs: NDArray[np.float64]
    stats: StreamStats  # stats of the stream that chose


def payload_of(model: Model, answers: list[str]) -> TokenTreePayload:
    return TokenTreePayload("", (build_token_tree_descriptor("answer", answers, model.tokenize),))


def choose(model: Model, prompt: Tokens, payload: TokenTreePayload, way: Way) -> Outcome:
    """Let the model choose greedily."""
    binding: Any = model.binding
    ctx = model.session.ctx
    binding.set_option(ctx, "strategy", way.strategy)
    binding.set_option(ctx, "restricted_head", way.restricted_head)
    with _span(binding, ctx, prompt, payload) as stream:
        tokens: list[int] = []
        done = False
        while not done:
            step = binding.next(stream)
            tokens += step.tokens
            done = step.done
        logprob, stats = binding.token_trie_leaf(stream).logprob, binding.stats(stream)
    with _span(binding, ctx, prompt, payload) as stream:
        return Outcome(tuple(tokens), logprob, binding.token_trie_scores(stream), stats)


def choose_by_masks(model: Model, prompt: Tokens, payload: TokenTreePayload, way: Way) -> Outcome:
    """Let the model choose with a token mask at every step instead of a trie.

    The scores come from a trie, the tokens and the stats from the masks.
    """
    outcome = choose(model, prompt, payload, way)
    leaves = [tuple(leaf.tokens) for leaf in payload.leaves()]
    binding: Any = model.binding
    with closing(binding.open(model.session.ctx, StreamConfig())) as stream:
        binding.prefill(stream, prompt)
        n_vocab = binding.stats(stream).n_vocab
        tokens: tuple[int, ...] = ()
        while tokens not in leaves:
            n = len(tokens)
            legal = {leaf[n] for leaf in leaves if leaf[:n] == tokens}
            mask = np.zeros((n_vocab + 31) // 32, np.uint32)
            for token in legal:
                mask[token // 32] |= np.uint32(1 << token % 32)
            binding.set_token_mask(stream, mask)
            tokens += tuple(binding.next(stream).tokens)
            if len(tokens) != n + 1 or tokens[n] not in legal:
                break
        stats = replace(binding.stats(stream), finish_reason="leaf", spans=1)
    return replace(outcome, tokens=tokens, stats=stats)


@contextmanager
def _span(binding: Any, ctx: Any, prompt: Tokens, payload: TokenTreePayload) -> Iterator[Any]:
    with closing(binding.open(ctx, StreamConfig())) as stream:
        binding.prefill(stream, prompt)
        binding.set_token_trie(stream, payload.to_json(), TRIE_ARGMAX | STOP_AT_LEAF)
        yield stream
