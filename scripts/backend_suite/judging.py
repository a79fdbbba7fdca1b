"""Whether an outcome is the reference's, and whether its own numbers can be true.

Devices sum in another order and precision, so that numbers of a backend without a fault differ from
the reference's. By how much is not guessed: `noise_between` measures it on the model at hand, by
the reference's own scores with attention summed in single and in half precision. What is close is
then said in that unit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eliza_ffi.choices.token_tree import TokenTreePayload

from .cases import Way
from .choosing import Outcome

__all__ = [
    "LARGEST_NOISE",
    "ROUNDINGS",
    "Verdict",
    "allowed_along",
    "insane_numbers",
    "judge",
    "margin_between",
    "noise_between",
]

ROUNDINGS = 2
"""How often the noise may be in a difference: the reference has rounded, and so has the backend."""

LARGEST_NOISE = 1.0
"""In nats. No rounding moves an answer further; a yardstick beyond it would let everything pass."""

# A tree of probabilities is summed in another order than it was split.
SUM_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Verdict:
    """What a comparison came to.

    Attributes
    ----------
    kind : str
        ``"same"``; ``"near-tie"``: another leaf, and the choice's own difference explains it;
        ``"other leaf"``: it does not; ``"too far"``: some leaf's probability is further from the
        reference's than rounding carries it; ``"wrong"``: the numbers contradict each other.
    difference : float
        The largest difference of a leaf's log-probability from the reference's, in nats.
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
        return self.kind in ("other leaf", "too far", "wrong")


def judge(
    payload: TokenTreePayload, reference: Outcome, outcome: Outcome, way: Way, noise: float
) -> Verdict:
    """Compare an outcome with the reference's.

    Parameters
    ----------
    payload
        What was chosen from.
    reference, outcome
    way
        How the outcome was decoded.
    noise
        What rounding does to a leaf's log-probability on this model, in nats.

    Notes
    -----
    Where no leaf's log-probability is further than `difference` from the reference's, two can
    change places only if the reference had them at most twice that apart: one rises, one falls.
    """
    difference = _largest_difference(payload, reference, outcome)
    problems = insane_numbers(payload, outcome, way)
    if problems:
        return Verdict("wrong", difference, problems=tuple(problems))
    is_same = outcome.tokens == reference.tokens
    margin = 0.0 if is_same else margin_between(payload, reference, outcome.tokens)
    if not difference <= ROUNDINGS * noise:  # not a number is too far, too
        return Verdict("too far", difference, margin)
    if is_same:
        return Verdict("same", difference)
    return Verdict("near-tie" if margin <= 2 * difference else "other leaf", difference, margin)


def noise_between(scores: NDArray[np.float64], rounded: NDArray[np.float64]) -> float:
    """Return how far rounding moves a leaf: the largest difference of two sets of scores.

    Parameters
    ----------
    scores, rounded
        Log-probabilities of the same leaves, shape ``[leaves]``, in nats.

    Raises
    ------
    RuntimeError
        If they are more than `LARGEST_NOISE` apart, or not numbers: then they measure no rounding.
    """
    noise = float(np.abs(scores - rounded).max())
    if not noise <= LARGEST_NOISE:
        raise RuntimeError(
            f"half precision in attention moves the reference's scores by {noise:.2f} nats:"
            " that is no rounding, and nothing can be measured by it"
        )
    return noise


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
    differences = [float(np.abs(reference.logprobs - outcome.logprobs).max())]
    # The stream that chose has computed its leaf on its own way.
    for leaf, logprob in zip(payload.leaves(), reference.logprobs, strict=True):
        if leaf.tokens == outcome.tokens:
            differences.append(abs(outcome.logprob - float(logprob)))
    return float(np.max(differences))  # not a number, if one of them is
