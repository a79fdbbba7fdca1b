"""The reference implementation of ranking: compute the probability of every label, then sort."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from eliza_ffi import RankResult

__all__ = ["Exhaustive", "label_logprobs"]

Floats = NDArray[np.float64]


def label_logprobs(
    labels: Sequence[Sequence[int]], logits_after: Callable[[tuple[int, ...]], NDArray[np.float32]]
) -> Floats:
    """Compute the natural logarithm of every label's probability, token by token.

    At each token, the probability is the softmax over the tokens that can continue a label. If
    another label ends there, it is the softmax over the vocabulary. All tokens that continue no
    label then count for the label that ends. `logits_after` returns the logits of the whole
    vocabulary after the prompt and the given tokens.
    """
    wholes = {tuple(label) for label in labels}
    next_tokens: dict[tuple[int, ...], set[int]] = {}
    for label in wholes:
        for i, token in enumerate(label):
            next_tokens.setdefault(label[:i], set()).add(token)

    steps: dict[tuple[int, ...], dict[int | None, float]] = {}
    for prefix, children in next_tokens.items():
        ordered = sorted(children)
        if len(ordered) == 1 and prefix not in wholes:
            steps[prefix] = {ordered[0]: 0.0}
            continue
        logits = logits_after(prefix).astype(np.float64)
        if prefix in wholes:
            logprobs = logits - np.logaddexp.reduce(logits)
            others = np.delete(logprobs, ordered)
            steps[prefix] = {None: float(np.logaddexp.reduce(others))}
        else:
            logprobs = logits - np.logaddexp.reduce(logits[ordered])
            steps[prefix] = {}
        steps[prefix].update((token, float(logprobs[token])) for token in ordered)

    def logprob(label: tuple[int, ...]) -> float:
        of_tokens = sum(steps[label[:i]][token] for i, token in enumerate(label))
        return of_tokens + (steps[label][None] if label in steps else 0.0)

    return np.array([logprob(tuple(label)) for label in labels])


@dataclass(frozen=True)
class Exhaustive:
    """All labels and their log-probabilities (natural logarithms)."""

    texts: Sequence[str]
    logprobs: Floats

    def groups(self, separator: str, level: int) -> Exhaustive:
        """Return the groups of labels with the same first `level` parts; their masses are sums."""
        sums: dict[str, float] = {}
        for text, logprob in zip(self.texts, self.logprobs.tolist(), strict=True):
            group = separator.join(text.split(separator)[:level])
            sums[group] = float(np.logaddexp(sums.get(group, -np.inf), logprob))
        return Exhaustive(tuple(sums), np.array(list(sums.values())))

    def logprob_of(self, text: str) -> float:
        return float(self.logprobs[list(self.texts).index(text)])

    def check(self, ranked: RankResult[str], k: int, tolerance: float) -> None:
        """Assert that a ranking has the `k` most probable labels, in order.

        `tolerance` is the largest difference between two computations of the same log-probability.
        Labels may change places only if their log-probabilities differ by at most twice the
        tolerance.
        """
        assert ranked.proven
        assert len(ranked.labels) == len(set(ranked.labels)) == min(k, len(self.texts))
        number = {text: i for i, text in enumerate(self.texts)}
        of_places = self.logprobs[[number[label] for label in ranked.labels]]
        order = np.argsort(-self.logprobs, kind="stable")
        np.testing.assert_allclose(
            ranked.probabilities, np.exp(of_places), rtol=tolerance, atol=1e-300
        )
        assert list(ranked.probabilities) == sorted(ranked.probabilities, reverse=True)
        best = self.logprobs[order]
        gaps = np.concatenate(([np.inf], best[:-1] - best[1:], [np.inf]))
        is_clear = np.minimum(gaps[:-1], gaps[1:]) > 2 * tolerance
        for place, label in enumerate(ranked.labels):
            if is_clear[place]:
                assert label == self.texts[order[place]]
            assert best[place] - of_places[place] <= 2 * tolerance
        assert abs(ranked.rest - (1.0 - sum(ranked.probabilities))) < 1e-6
