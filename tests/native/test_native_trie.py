"""Compare the native trie and constrained generation with slow reference implementations.

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

ENDED = 2**64 - 1  # the hook writes this count after the span has ended
# Two ways of decoding round differently, so logits that are closer than this may swap their order.
TOO_CLOSE = 5e-3

few_tokens = st.integers(0, 5)
leaf_sets = st.lists(st.lists(few_tokens, min_size=1, max_size=5), min_size=1, max_size=12)


def payload_of(token_lists: Sequence[Sequence[int]], split: int = 0) -> TokenTreePayload:
    """Return a payload with numbered leaves, the first `split` of them in their own descriptor."""
    leaves = tuple(TokenTreeLeaf(f"leaf{i}", tuple(t)) for i, t in enumerate(token_lists))
    parts = [part for part in (leaves[:split], leaves[split:]) if part]
    descriptors = tuple(TokenTreeDescriptor(f"p{i}", part) for i, part in enumerate(parts))
    return TokenTreePayload("m", descriptors)


class Hooks(Logits):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._ffi.cdef(
            """
            int eliza_test_trie_walk(const char * payload, size_t len, int32_t n_vocab,
                                     const int32_t * tokens, size_t n_tokens,
                                     int32_t * allowed_out, size_t cap, size_t * counts_out);
            """
        )

    def walk(
        self, payload: str, tokens: Sequence[int], n_vocab: int = 0
    ) -> list[list[int] | None] | None:
        """Return the allowed tokens before each token and after the last; None after the end.

        The whole result is None if the payload was rejected.
        """
        raw = payload.encode()
        cap = 4096
        allowed = self._ffi.new("int32_t[]", cap)
        counts = self._ffi.new("size_t[]", len(tokens) + 1)
        status = self._lib.eliza_test_trie_walk(
            raw, len(raw), n_vocab, list(tokens), len(tokens), allowed, cap, counts
        )
        if status == -1:
            return None
        assert status == 0
        sets: list[list[int] | None] = []
        begin = 0
        for count in counts:
            if count == ENDED:
                sets.append(None)
            else:
                sets.append(self._ffi.unpack(allowed + begin, count))
                begin += count
        return sets


@pytest.fixture(scope="session")
def hooks(hooks_path: Path) -> Hooks:
    return Hooks(hooks_path)


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


# ---- the trie ----------------------------------------------------------------------------------


def brute_force_walk(
    token_lists: Sequence[Sequence[int]], tokens: Sequence[int]
) -> list[list[int] | None]:
    """Search through all leaves at every step. The span ends after a leaf or another token."""
    sets: list[list[int] | None] = []
    for n in range(len(tokens) + 1):
        walked = list(tokens[:n])
        longer = [t for t in token_lists if len(t) > n and list(t[:n]) == walked]
        has_ended = bool(sets) and sets[-1] is None
        sets.append(sorted({t[n] for t in longer}) if longer and not has_ended else None)
    return sets


@pytest.mark.slow
@given(
    token_lists=leaf_sets,
    walk=st.lists(few_tokens, max_size=7),
    split=st.integers(0, 12),
    follow=st.integers(0, 11),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=share(300))
def test_the_native_trie_and_a_search_through_all_leaves_agree_at_every_step(
    hooks: Hooks, token_lists: list[list[int]], walk: list[int], split: int, follow: int
) -> None:
    # A random walk usually leaves the trie with its first token, so these follow a leaf first.
    leaf = token_lists[follow % len(token_lists)]
    tokens = [*leaf[: len(leaf) - follow % 2], *walk]
    expected = brute_force_walk(token_lists, tokens)
    assert hooks.walk(payload_of(token_lists, split).to_json(), tokens) == expected


@given(token_lists=leaf_sets, too_large=st.integers(0, 2**31 - 1))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_native_trie_rejects_tokens_outside_the_vocabulary(
    hooks: Hooks, token_lists: list[list[int]], too_large: int
) -> None:
    n_vocab = 6
    assert hooks.walk(payload_of(token_lists).to_json(), [], n_vocab) is not None
    with_it = [*token_lists, [too_large]]
    is_rejected = hooks.walk(payload_of(with_it).to_json(), [], n_vocab) is None
    assert is_rejected == (too_large >= n_vocab)


def test_a_payload_may_contain_any_unicode_text(hooks: Hooks) -> None:
    leaves = (TokenTreeLeaf('Grüße "\\\n\u2028😀', (3,)), TokenTreeLeaf("\u0001", (1,)))
    payload = TokenTreePayload("modèle", (TokenTreeDescriptor("påth", leaves),))
    assert hooks.walk(payload.to_json(), [3]) == [[1, 3], None]


# ---- constrained generation --------------------------------------------------------------------


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
    hooks: Hooks, subject: Subject, prompt: list[int], leaves: list[list[int]]
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
        logits = hooks.after(subject.model.path, prompt + chosen, subject.n_vocab).astype(float)
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
    hooks: Hooks, subject: Subject, token_lists: list[list[int]], base: int, prompt: list[int]
) -> None:
    leaves = to_vocabulary(token_lists, base)
    tokens, logprob = masked_argmax(hooks, subject, prompt, leaves)
    result = subject.generate(prompt, payload_of(leaves), token_tree_mode=STOP_AT_LEAF)
    assert list(result.tokens) == tokens
    assert result.leaf is not None
    assert result.leaf.logprob == pytest.approx(logprob, abs=2e-2)
