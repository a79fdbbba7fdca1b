"""The backend equality suite distinguishes equal results, near-ties and faults."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from backend_suite.cases import ANSWERS, WAYS, ModelCase, Way
from backend_suite.choosing import Outcome
from backend_suite.comparing import Subject, compare
from backend_suite.judging import ROUNDINGS, Verdict, judge
from backend_suite.reporting import details

from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import StreamStats

pytestmark = pytest.mark.slow

LEAVES = ((1, 2, 3), (1, 2, 4), (5, 6))
TREE_LEAVES = tuple(TokenTreeLeaf(str(i), tokens) for i, tokens in enumerate(LEAVES))
PAYLOAD = TokenTreePayload("", (TokenTreeDescriptor("answer", TREE_LEAVES),))
WAY = Way("token-by-token", "off")


def outcome(tokens: tuple[int, ...], probabilities: tuple[float, float, float]) -> Outcome:
    """Return an outcome with the stats that its tokens have in the trie above."""
    decisions, candidates = {3: (2, 4), 2: (1, 2)}[len(tokens)]
    counts = dict.fromkeys(StreamStats.__dataclass_fields__, 0)
    stats = StreamStats(
        **{
            **counts,
            "finish_reason": "leaf",
            "trie_active": False,
            "strategies": ("token-by-token",),
            "spans": 1,
            "generated_tokens": len(tokens),
            "decisions": decisions,
            "candidates_seen": candidates,
            "tokens_forced": len(tokens) - decisions,
        }  # type: ignore[arg-type]
    )
    logprobs = np.log(probabilities)
    return Outcome(tokens, float(logprobs[LEAVES.index(tokens)]), logprobs, stats)


REFERENCE_OUTCOME = outcome((1, 2, 3), (0.31, 0.3, 0.39))
DIFFERENCE = np.log(0.31 / 0.3)


def verdict_of(other: Outcome, noise: float = 0.1) -> Verdict:
    return judge(PAYLOAD, REFERENCE_OUTCOME, other, WAY, noise)


@pytest.mark.parametrize(
    ("tokens", "probabilities", "noise", "kind"),
    [
        ((1, 2, 3), (0.3, 0.31, 0.39), 1.01 * DIFFERENCE / ROUNDINGS, "same"),
        ((1, 2, 3), (0.3, 0.31, 0.39), 0.99 * DIFFERENCE / ROUNDINGS, "too far"),
        ((1, 2, 4), (0.3, 0.31, 0.39), 0.1, "near-tie"),
        ((1, 2, 4), (0.31, 0.3, 0.39), 0.1, "other leaf"),
        ((5, 6), (0.3, 0.31, 0.39), 0.1, "other leaf"),
        ((1, 2, 4), (0.2, 0.41, 0.39), 0.1, "too far"),
    ],
)
def test_a_verdict_depends_on_the_leaf_the_difference_and_the_noise(
    tokens: tuple[int, ...], probabilities: tuple[float, float, float], noise: float, kind: str
) -> None:
    verdict = verdict_of(outcome(tokens, probabilities), noise)
    assert verdict.kind == kind
    assert verdict.is_failure == (kind not in ("same", "near-tie"))


@pytest.mark.parametrize("change", [{"candidates_seen": 5}, {"tree_passes": 1}])
def test_stats_that_contradict_the_trie_are_wrong(change: dict[str, int]) -> None:
    stats = replace(REFERENCE_OUTCOME.stats, **change)
    assert verdict_of(replace(REFERENCE_OUTCOME, stats=stats)).kind == "wrong"


def test_all_strategies_of_a_library_agree_with_its_reference(
    library: Library, random_model_path: Callable[..., Path]
) -> None:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    subject = Subject(library.path, n_gpu_layers=0)
    compared = compare(
        ModelCase("small", path),
        subject,
        subject,
        prompts={"short": "Next: "},
        answers={name: ANSWERS[name] for name in ("3 apart", "12 alike")},
        ways=WAYS,
    )
    assert len(compared) == 2 * len(WAYS)
    assert details(compared) == []


def test_a_backend_without_a_device_is_not_compared(
    library: Library, random_model_path: Callable[..., Path]
) -> None:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    subject = Subject(library.path, n_gpu_layers=-1, options=(("device", "none"),))
    with pytest.raises(RuntimeError, match="on a device"), subject.open(path):
        pass
