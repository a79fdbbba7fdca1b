"""Judge whether an outcome equals the reference, and whether its own numbers are consistent.

Devices sum in a different order and precision, so a correct backend's numbers differ slightly from
the reference's. `noise_between` measures how much on the given model: it compares the reference's
scores with and without flash attention. This noise is the unit of all tolerances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eliza_ffi.choices.token_tree import TokenTreePayload

from .choosing import Outcome, Way

ROUNDINGS = 2
"""Tolerance in units of the noise: the reference and the backend both round."""

LARGEST_NOISE = 1.0
"""In nats. Rounding alone never exceeds this, and a larger noise would let everything pass."""

# Summing the leaves' probabilities rounds, too.
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Verdict:
    """The result of a comparison."""

    # ``"same"``: the same leaf. ``"near-tie"``: another leaf, which the difference of the scores
    # explains. ``"other leaf"``: another leaf, which it does not explain. ``"too far"``: a leaf's
    # probability differs by more than rounding can cause. ``"wrong"``: the numbers contradict each
    # other.
    kind: str
    # The largest difference of a leaf's log-probability from the reference's, in nats.
    difference: float
    # If the leaves differ: the reference's preference for its own leaf at the decision where the
    # two part, in nats. Otherwise 0.
    margin: float = 0.0
    problems: tuple[str, ...] = ()  # descriptions of the contradictions

    @property
    def is_failure(self) -> bool:
        return self.kind in ("other leaf", "too far", "wrong")


def judge(
    payload: TokenTreePayload, reference: Outcome, outcome: Outcome, way: Way, noise: float
) -> Verdict:
    """Compare an outcome with the reference's.

    If no log-probability differs by more than `difference`, then two leaves can change places only
    if they are at most twice `difference` apart in the reference: one rises and the other falls.
    """
    difference = _largest_difference(payload, reference, outcome)
    problems = insane_numbers(payload, outcome, way)
    if problems:
        return Verdict("wrong", difference, problems=tuple(problems))
    is_same = outcome.tokens == reference.tokens
    margin = 0.0 if is_same else margin_between(payload, reference, outcome.tokens)
    if not difference <= ROUNDINGS * noise:  # also true for NaN
        return Verdict("too far", difference, margin)
    if is_same:
        return Verdict("same", difference)
    return Verdict("near-tie" if margin <= 2 * difference else "other leaf", difference, margin)


def noise_between(scores: Sequence[NDArray[Any]], rounded: Sequence[NDArray[Any]]) -> float:
    """Return the noise: the largest difference between log-probabilities, in nats.

    A RuntimeError is raised if it exceeds `LARGEST_NOISE` or is NaN: rounding cannot cause that.
    """
    noise = float(np.max([np.abs(a - b).max() for a, b in zip(scores, rounded, strict=True)]))
    if not noise <= LARGEST_NOISE:
        raise RuntimeError(f"expected a noise of at most {LARGEST_NOISE:g} nats, got {noise:.2f}")
    return noise


def insane_numbers(payload: TokenTreePayload, outcome: Outcome, way: Way) -> list[str]:
    leaves = [leaf.tokens for leaf in payload.leaves()]
    stats = outcome.stats
    problems = []
    if outcome.tokens not in set(leaves):
        return [f"the tokens {list(outcome.tokens)} are not a leaf"]
    if outcome.logprobs.shape != (len(leaves),):
        return [f"expected {len(leaves)} scores, one per leaf, got {outcome.logprobs.size}"]
    total = float(np.exp(outcome.logprobs).sum())
    if not abs(total - 1) < SUM_TOLERANCE:
        problems.append(f"the leaves' probabilities add up to {total}")

    tokens = outcome.tokens
    # No leaf is a prefix of another one.
    steps = [{leaf[i] for leaf in leaves if leaf[:i] == tokens[:i]} for i in range(len(tokens))]
    allowed = [len(each) for each in steps if len(each) > 1]
    expected: dict[str, object] = {
        "finish_reason": "leaf",
        "spans": 1,
        "generated_tokens": len(outcome.tokens),
        "decisions": len(allowed),
        "candidates_seen": sum(allowed),
        "tokens_forced": len(outcome.tokens) - len(allowed),
        "tokens_sampled": 0,
    }
    if way.strategy == "token-by-token":
        expected["tree_passes"] = 0
    # At most one pass per token; the fast strategies need fewer.
    if (passes := stats.passes_after_prompt) > len(outcome.tokens):
        problems.append(f"{passes} passes for {len(outcome.tokens)} tokens after the prompt")
    found = {name: getattr(stats, name) for name in expected}
    if found != expected:
        problems.append(f"expected {expected}, got {found}")
    return problems


def margin_between(payload: TokenTreePayload, reference: Outcome, other: tuple[int, ...]) -> float:
    """Return the reference's preference for its leaf where another leaf parts from it, in nats."""
    leaves = [leaf.tokens for leaf in payload.leaves()]
    shared = 0
    while reference.tokens[shared] == other[shared]:
        shared += 1

    def logprob_below(prefix: tuple[int, ...]) -> float:
        is_below = [leaf[: len(prefix)] == prefix for leaf in leaves]
        return float(np.logaddexp.reduce(reference.logprobs[is_below]))

    return logprob_below(reference.tokens[: shared + 1]) - logprob_below(other[: shared + 1])


def _largest_difference(payload: TokenTreePayload, reference: Outcome, outcome: Outcome) -> float:
    if reference.logprobs.shape != outcome.logprobs.shape:
        return float("inf")
    differences = [float(np.abs(reference.logprobs - outcome.logprobs).max())]
    # The stream that chose computed its leaf's log-probability separately.
    for leaf, logprob in zip(payload.leaves(), reference.logprobs, strict=True):
        if leaf.tokens == outcome.tokens:
            differences.append(abs(outcome.logprob - float(logprob)))
    return float(np.max(differences))  # NaN if one of them is NaN
