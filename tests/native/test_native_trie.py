"""Compare constrained generation with slow reference implementations.

The models have random weights and real vocabularies of 32,000 and 128,256 tokens. The reference
logits come from plain llama.cpp, which decodes the whole text again for every token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from effort import share
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sync_runner import SyncRunner
from token_trie import build_token_trie

from bench.choosing.other_libraries import Logits
from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.elizaos import FfiStreamingGenerateArgs, FfiStreamingResult
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import STOP_AT_LEAF
from eliza_ffi.model import Model

# Two ways of decoding round differently, so logits that are closer than this may swap their order.
TOO_CLOSE = 5e-3

few_tokens = st.integers(0, 5)
leaf_sets = st.lists(st.lists(few_tokens, min_size=1, max_size=5), min_size=1, max_size=12)


def payload_of(token_lists: Sequence[Sequence[int]]) -> TokenTreePayload:
    """Return a payload with numbered leaves."""
    leaves = tuple(TokenTreeLeaf(f"leaf{i}", tuple(t)) for i, t in enumerate(token_lists))
    return TokenTreePayload("m", (TokenTreeDescriptor("p", leaves),))


@pytest.fixture(scope="session")
def logits(hooks_path: Path) -> Logits:
    return Logits(hooks_path)


@dataclass(frozen=True)
class Subject:
    model: Model
    runner: SyncRunner
    n_vocab: int

    def generate(
        self, prompt: Sequence[int], payload: TokenTreePayload, **fields: Any
    ) -> FfiStreamingResult:
        args = FfiStreamingGenerateArgs(prompt, token_tree_payload=payload, **fields)
        return self.runner.generate_with_usage(args)


@pytest.fixture(scope="session", params=["llama-spm", "llama-bpe"])
def subject(
    request: pytest.FixtureRequest, library: Library, random_model_path: Callable[..., Path]
) -> Iterator[Subject]:
    path = random_model_path(request.param, n_embd=64, n_layers=2, seed=1)
    with Model(path, library=library, n_ctx=512, n_threads=1, seed=7) as model:
        n_vocab = model.describe()["model"]["n_vocab"]
        yield Subject(model, SyncRunner(model.binding, model.session.ctx), n_vocab)


def to_vocabulary(token_lists: Sequence[Sequence[int]], base: int) -> list[list[int]]:
    """Spread a few token ids over the vocabulary, so that any part of it may be allowed."""
    return [[base + 997 * token for token in tokens] for tokens in token_lists]


@given(
    token_lists=leaf_sets,
    base=st.integers(300, 26000),
    mode=st.sampled_from([0, 1]),
    temperature=st.sampled_from([0.0, 0.7, 3.0]),
    top_k=st.sampled_from([0, 1, 3]),
    top_p=st.sampled_from([1.0, 0.3]),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=share(60))
def test_every_constrained_generation_returns_a_leaf(
    subject: Subject,
    token_lists: list[list[int]],
    base: int,
    mode: int,
    temperature: float,
    top_k: int,
    top_p: float,
) -> None:
    leaves = to_vocabulary(token_lists, base)
    result = subject.generate(
        [1, base, 5],
        payload_of(leaves),
        token_tree_mode=mode | STOP_AT_LEAF,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
    )
    assert list(result.tokens) in leaves
    assert result.finish_reason == "leaf"
    assert result.leaf is not None
    assert result.leaf.name == f"leaf{leaves.index(list(result.tokens))}"
    assert result.leaf.logprob <= 1e-9
    assert result.stats is not None
    assert result.stats.trie_departures == 0


def log_softmax_of(logits: NDArray[np.float64], token: int) -> float:
    largest = logits.max()
    return float(logits[token] - largest - np.log(np.exp(logits - largest).sum()))


def masked_argmax(
    plain: Logits, subject: Subject, prompt: list[int], leaves: list[list[int]]
) -> tuple[list[int], float]:
    """Choose with masked logits of the whole vocabulary and one forward pass per token.

    Returns the tokens and the natural logarithm of their probability among the leaves. If a leaf is
    complete and longer leaves begin with it, the argmax over the whole vocabulary decides whether
    the choice ends.
    """
    node = build_token_trie(payload_of(leaves).leaves())
    chosen: list[int] = []
    logprob = 0.0
    while node.children:
        logits = plain.after(subject.model.path, prompt + chosen, subject.n_vocab).astype(float)
        mask = np.full(subject.n_vocab, 0.0 if node.is_terminal else -np.inf)
        mask[node.allowed] = 0.0
        masked = logits + mask
        best = int(masked.argmax())
        contenders = np.sort(masked[np.isfinite(masked)])[-2:]
        assume(len(contenders) == 1 or contenders[1] - contenders[0] > TOO_CLOSE)
        if best not in node.children:
            continued = np.exp([log_softmax_of(masked, token) for token in node.allowed])
            return chosen, logprob + float(np.log1p(-continued.sum()))
        logprob += log_softmax_of(masked, best)
        chosen.append(best)
        node = node.children[best]
    return chosen, logprob


@pytest.mark.slow
@given(
    token_lists=leaf_sets,
    base=st.integers(300, 26000),
    prompt=st.lists(st.integers(300, 31000), min_size=1, max_size=6),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
    max_examples=25,
)
def test_mode_0_takes_the_masked_argmax_over_all_logits(
    logits: Logits, subject: Subject, token_lists: list[list[int]], base: int, prompt: list[int]
) -> None:
    leaves = to_vocabulary(token_lists, base)
    tokens, logprob = masked_argmax(logits, subject, prompt, leaves)
    result = subject.generate(prompt, payload_of(leaves), token_tree_mode=STOP_AT_LEAF)
    assert list(result.tokens) == tokens
    assert result.leaf is not None
    assert result.leaf.logprob == pytest.approx(logprob, abs=2e-2)
