"""The backend equality suite: what it takes for the same, for a near-tie, and for wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import check_load
import numpy as np
import pytest
from backend_suite.cases import ANSWERS, WAYS, ModelCase, Way
from backend_suite.choosing import Outcome
from backend_suite.comparing import Subject, compare
from backend_suite.judging import (
    LARGEST_NOISE,
    ROUNDINGS,
    Verdict,
    allowed_along,
    judge,
    margin_between,
    noise_between,
)
from backend_suite.reporting import details

from eliza_ffi.choices.token_tree import TokenTreeDescriptor, TokenTreeLeaf, TokenTreePayload
from eliza_ffi.library.loading import Library
from eliza_ffi.library.protocol import StreamStats

pytestmark = pytest.mark.slow

LEAVES = ((1, 2, 3), (1, 2, 4), (5, 6))
PAYLOAD = TokenTreePayload(
    "",
    (
        TokenTreeDescriptor(
            "answer", tuple(TokenTreeLeaf(str(i), tokens) for i, tokens in enumerate(LEAVES))
        ),
    ),
)
WAY = Way("token-by-token", "off", "off")


def outcome(tokens: tuple[int, ...], probabilities: tuple[float, float, float]) -> Outcome:
    """An outcome whose stats are those of the trie above."""
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


def verdict_of(other: Outcome, noise: float = 0.1) -> Verdict:
    return judge(PAYLOAD, REFERENCE_OUTCOME, other, WAY, noise)


def test_the_same_leaf_is_the_same_and_tells_how_far_probabilities_are() -> None:
    verdict = verdict_of(outcome((1, 2, 3), (0.3, 0.31, 0.39)))
    assert verdict.kind == "same"
    assert verdict.difference == pytest.approx(np.log(0.31 / 0.3))


def test_the_same_leaf_with_a_probability_beyond_rounding_is_too_far() -> None:
    moved = outcome((1, 2, 3), (0.3, 0.31, 0.39))
    difference = np.log(0.31 / 0.3)
    assert verdict_of(moved, noise=1.01 * difference / ROUNDINGS).kind == "same"
    verdict = verdict_of(moved, noise=0.99 * difference / ROUNDINGS)
    assert verdict.kind == "too far" and verdict.is_failure


@pytest.mark.parametrize("own", [-9.0, float("nan")])
def test_the_probability_that_the_choosing_stream_told_is_compared_as_well(own: float) -> None:
    assert verdict_of(replace(REFERENCE_OUTCOME, logprob=own)).kind == "too far"


def test_the_margin_is_that_of_the_decision_where_two_leaves_part() -> None:
    # At the second decision 0.31 to 0.3; at the first 0.61 to 0.39.
    assert margin_between(PAYLOAD, REFERENCE_OUTCOME, (1, 2, 4)) == pytest.approx(
        np.log(0.31 / 0.3)
    )
    assert margin_between(PAYLOAD, REFERENCE_OUTCOME, (5, 6)) == pytest.approx(np.log(0.61 / 0.39))


def test_another_leaf_is_a_near_tie_where_its_own_difference_explains_it() -> None:
    near = verdict_of(outcome((1, 2, 4), (0.3, 0.31, 0.39)))
    assert near.kind == "near-tie" and not near.is_failure
    assert near.margin <= 2 * near.difference


def test_another_leaf_that_its_own_numbers_do_not_explain_is_a_failure() -> None:
    # Scores as good as the reference's, and yet the other side of a decision of 0.61 to 0.39.
    far = verdict_of(outcome((5, 6), (0.3, 0.31, 0.39)))
    assert far.kind == "other leaf" and far.is_failure
    assert far.margin > 2 * far.difference
    identical = verdict_of(outcome((1, 2, 4), (0.31, 0.3, 0.39)))
    assert identical.kind == "other leaf" and identical.difference == 0


def test_another_leaf_whose_probabilities_are_beyond_rounding_is_no_near_tie() -> None:
    verdict = verdict_of(outcome((1, 2, 4), (0.2, 0.41, 0.39)))
    assert verdict.margin <= 2 * verdict.difference
    assert verdict.kind == "too far" and verdict.is_failure


@pytest.mark.parametrize("moved", [1.01 * LARGEST_NOISE, float("nan"), float("inf")])
def test_noise_that_no_rounding_makes_is_refused_as_a_yardstick(moved: float) -> None:
    scores = np.array([-1.0, -2.0])
    with pytest.raises(RuntimeError, match="that is no rounding"):
        noise_between(scores, scores - np.array([0.0, moved]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"candidates_seen": 5}, "candidates_seen is 5, not 4"),
        ({"decisions": 3}, "decisions is 3, not 2"),
        ({"tokens_forced": 0}, "tokens_forced is 0, not 1"),
        ({"finish_reason": "length"}, "finish_reason is length, not leaf"),
        ({"forward_passes": 9}, "9 passes for 3 tokens"),
        ({"tree_passes": 1}, "1 tree passes, token by token"),
    ],
)
def test_stats_that_contradict_the_trie_are_wrong(change: dict[str, int], problem: str) -> None:
    good = outcome((1, 2, 3), (0.31, 0.3, 0.39))
    verdict = verdict_of(replace(good, stats=replace(good.stats, **change)))
    assert verdict.kind == "wrong" and verdict.is_failure
    assert problem in "; ".join(verdict.problems)


def test_scores_that_do_not_add_up_and_tokens_that_are_no_leaf_are_wrong() -> None:
    good = outcome((1, 2, 3), (0.31, 0.3, 0.39))
    half = replace(good, logprobs=good.logprobs - np.log(2))
    assert "add up to 0.5" in verdict_of(half).problems[0]
    assert "are no leaf" in verdict_of(replace(good, tokens=(1, 2))).problems[0]
    short = replace(good, logprobs=good.logprobs[:2])
    assert verdict_of(short).problems == ("2 scores for 3 leaves",)
    assert verdict_of(short).difference == float("inf")


def test_the_allowed_tokens_are_counted_along_the_way() -> None:
    assert allowed_along(list(LEAVES), (1, 2, 3)) == [2, 1, 2]
    assert allowed_along(list(LEAVES), (5, 6)) == [2, 1]


def test_a_library_agrees_with_its_own_slowest_way(
    library: Library, random_model_path: Callable[..., Path]
) -> None:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    subject = Subject(library.path, n_gpu_layers=0)
    placed: list[object] = []
    compared = compare(
        ModelCase("small", path),
        subject,
        subject,
        prompts={"short": "Next: "},
        answers={name: ANSWERS[name] for name in ("3 apart", "12 alike")},
        ways=WAYS,
        on_devices=placed.append,
    )
    assert len(compared) == 2 * len(WAYS)
    assert details(compared) == []
    assert len(placed) == 1


def test_a_backend_without_a_device_is_not_compared(
    library: Library, random_model_path: Callable[..., Path]
) -> None:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    subject = Subject(library.path, n_gpu_layers=-1, options=(("device", "none"),))
    with (
        pytest.raises(RuntimeError, match="there is no device to check"),
        subject.open(path, "off"),
    ):
        pass


def test_a_built_library_is_loaded_and_named(
    library: Library, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check_load.main([str(library.path), "cpu"]) == 0
    assert "ABI 12, backend cpu; devices: CPU" in capsys.readouterr().out
    assert check_load.main([str(library.path.parent), "vulkan"]) == 1
    assert "was built for cpu, not vulkan" in capsys.readouterr().err
