"""Every strategy chooses the same tokens as token-by-token decoding, on many models and tries.

Weights and KV cache are in full precision, so the strategies differ only in the order of sums.
Decisions that this rounding may change are skipped and counted.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.library.binding import CffiBinding
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import STOP_AT_LEAF, TRIE_ARGMAX, StreamConfig
from eliza_ffi.model import Model

STRATEGIES = ("token-by-token", "skip-ahead", "tree", "auto")
N_MODELS = 8
N_TRIES = 60
NEAR_TIE = 1e-3


def random_leaves(dice: random.Random, n_vocab: int) -> list[tuple[int, ...]]:
    """Return token sequences with shared prefixes and suffixes, nested sequences and duplicates."""
    alphabet = [dice.randrange(n_vocab) for _ in range(dice.randint(2, 8))]
    longest = dice.randint(1, 8)
    return [
        tuple(dice.choice(alphabet) for _ in range(dice.randint(1, longest)))
        for _ in range(dice.randint(1, 40))
    ]


def payload(leaves: list[tuple[int, ...]]) -> str:
    named = tuple(TokenTreeLeaf(str(i), tokens) for i, tokens in enumerate(leaves))
    return TokenTreePayload("", (TokenTreeDescriptor("p", named),)).to_json()


def least_margin(
    leaves: list[tuple[int, ...]], logprobs: np.ndarray, walk: tuple[int, ...]
) -> float:
    """Return the smallest log-probability margin between the best two tokens along a walk."""
    least = np.inf
    distinct = dict(zip(leaves, np.exp(logprobs), strict=True))
    for depth in range(len(walk)):
        mass: dict[int, float] = {}
        for leaf, p in distinct.items():
            if leaf[:depth] == walk[:depth]:
                next_token = leaf[depth] if len(leaf) > depth else -1
                mass[next_token] = mass.get(next_token, 0.0) + p
        ordered = np.sort(np.log(list(mass.values())))
        if len(ordered) > 1:
            least = min(least, float(ordered[-1] - ordered[-2]))
    return least


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(N_MODELS))
def test_all_strategies_choose_the_same_tokens_on_random_models(
    library: Library, random_model_path: Callable[..., Path], seed: int
) -> None:
    dice = random.Random(seed)
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=seed, tensor_type="f32")
    options = {"n_threads": "1", "n_ctx": "1024"}
    near_ties = 0
    with Model(path, library=library, options=options) as model:
        binding: CffiBinding = model.binding
        ctx = model.session.ctx
        n_vocab = model.describe()["model"]["n_vocab"]
        config = StreamConfig(cache_type_k="f32", cache_type_v="f32")

        def choose(
            strategy: str, prompt: list[int], trie: str, scored: bool = False
        ) -> tuple[tuple[int, ...], np.ndarray | None]:
            binding.set_option(ctx, "strategy", strategy)
            stream = binding.open(ctx, config)
            try:
                binding.prefill(stream, prompt)
                binding.set_token_trie(stream, trie, TRIE_ARGMAX | STOP_AT_LEAF)
                scores = binding.token_trie_scores(stream) if scored else None
                tokens: list[int] = []
                done = False
                while not done:
                    step = binding.next(stream)
                    tokens += step.tokens
                    done = step.done
                return tuple(tokens), scores
            finally:
                binding.close(stream)

        for _ in range(N_TRIES):
            leaves = random_leaves(dice, n_vocab)
            prompt = [dice.randrange(3, n_vocab) for _ in range(dice.randint(2, 30))]
            trie = payload(leaves)
            slow, _ = choose("token-by-token", prompt, trie)
            _, scores = choose("token-by-token", prompt, trie, scored=True)
            assert scores is not None
            if least_margin(leaves, scores, slow) < NEAR_TIE:
                near_ties += 1
                continue
            for strategy in STRATEGIES[1:]:
                assert choose(strategy, prompt, trie)[0] == slow, (strategy, leaves, prompt)
    assert near_ties < N_TRIES // 10
