"""Whether an outcome is the reference's, and whether its own numbers can be true."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eliza_ffi.token_tree import TokenTreePayload

from .cases import Way
from .choosing import Outcome

__all__ = ["Verdict", "allowed_along", "insane_numbers", "judge", "margin_between"]

# A tree of probabilities is summed in another order than it was split.
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Verdict:
    """What a comparison came to.

    Attributes
    ----------
    kind : str
        ``"same"``; ``"near-tie"``: another leaf, from whose decision the reference's is no further
        than rounding may carry; ``"other leaf"``; ``"wrong"``: the numbers contradict each other.
    difference : float
        The largest difference of a leaf's probability (not its logarithm) from the reference's.
    margin : float
        Of a leaf that differs: by how many nats the reference preferred its own at the decision
        where they part; else 0.
    problems : tuple of str
        What is wrong, for people.
    """

    kind: str
    difference: float
    margin: float = 0.0
    problems: tuple[str, ...] = ()

    @property
    def is_failure(self) -> bool:
        return self.kind in ("other leaf", "wrong")


def judge(
    payload: TokenTreePayload, reference: Outcome, outcome: Outcome, way: Way, near_tie: float
) -> Verdict:
    """Compare an outcome with the reference's.

    Parameters
    ----------
    payload
        What was chosen from.
    reference, outcome
    way
        How the outcome was decoded.
    near_tie
        Largest margin, in nats, that rounding may turn.
    """
    difference = _largest_difference(payload, reference, outcome)
    problems = insane_numbers(payload, outcome, way)
    if problems:
        return Verdict("wrong", difference, problems=tuple(problems))
    if outcome.tokens == reference.tokens:
        return Verdict("same", difference)
    margin = margin_between(payload, reference, outcome.tokens)
    return Verdict("near-tie" if margin <= near_tie else "other leaf", difference, margin)


def insane_numbers(payload: TokenTreePayload, outcome: Outcome, way: Way) -> list[str]:
    """Return what in an outcome contradicts the trie, or itself."""
    leaves = [leaf.tokens for leaf in payload.leaves()]
    stats = outcome.stats
    problems = []
    if outcome.tokens not in set(leaves):
        return [f"the tokens {list(outcome.tokens)} are no leaf"]
    if outcome.logprobs.shape != (len(leaves),):
        return [f"{outcome.logprobs.size} scores for {len(leaves)} leaves"]
    total = float(np.exp(outcome.logprobs).sum())
    if not abs(total - 1) < SUM_TOLERANCE:
        problems.append(f"the leaves' probabilities add up to {total}")

    allowed = [each for each in allowed_along(leaves, outcome.tokens) if each > 1]
    expected = {
        "finish_reason": "leaf",
        "spans": 1,
        "generated_tokens": len(outcome.tokens),
        "decisions": len(allowed),
        "candidates_seen": sum(allowed),
        "tokens_forced": len(outcome.tokens) - len(allowed),
        "tokens_sampled": 0,
    }
    for name, value in expected.items():
        if getattr(stats, name) != value:
            problems.append(f"{name} is {getattr(stats, name)}, not {value}")
    # The token after the last decision need not be decoded; with the reference's way all may be.
    if stats.passes_after_prompt > len(outcome.tokens):
        problems.append(
            f"{stats.passes_after_prompt} passes for {len(outcome.tokens)} tokens after the prompt"
        )
    if way.strategy == "token-by-token" and stats.tree_passes:
        problems.append(f"{stats.tree_passes} tree passes, token by token")
    return problems


def allowed_along(leaves: list[tuple[int, ...]], tokens: tuple[int, ...]) -> list[int]:
    """Return how many tokens are legal at each step of a leaf's way.

    No leaf of the suite's answers goes on from another.
    """
    return [
        len({leaf[i] for leaf in leaves if len(leaf) > i and leaf[:i] == tokens[:i]})
        for i in range(len(tokens))
    ]


def margin_between(payload: TokenTreePayload, reference: Outcome, other: tuple[int, ...]) -> float:
    """Return by how many nats the reference preferred its leaf's token where another leaf parts."""
    leaves = [leaf.tokens for leaf in payload.leaves()]
    shared = 0
    while reference.tokens[shared] == other[shared]:
        shared += 1

    def logprob_below(prefix: tuple[int, ...]) -> float:
        below = [
            logprob
            for leaf, logprob in zip(leaves, reference.logprobs, strict=True)
            if leaf[: len(prefix)] == prefix
        ]
        return float(np.logaddexp.reduce(below))

    return logprob_below(reference.tokens[: shared + 1]) - logprob_below(other[: shared + 1])


def _largest_difference(payload: TokenTreePayload, reference: Outcome, outcome: Outcome) -> float:
    if reference.logprobs.shape != outcome.logprobs.shape:
        return float("inf")
    expected, scored = np.exp(reference.logprobs), np.exp(outcome.logprobs)
    differences = [float(np.abs(expected - scored).max())]
    for leaf, probability in zip(payload.leaves(), expected, strict=True):
        if leaf.tokens == outcome.tokens:
            differences.append(abs(float(np.exp(outcome.logprob)) - float(probability)))
    return max(differences)
