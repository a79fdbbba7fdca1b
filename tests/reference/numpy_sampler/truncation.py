r"""Samplers that remove tokens: top-k, top-p, min-p, typical, top-n-sigma and XTC.

A sampler that needs probabilities computes the softmax of the remaining candidates, so they sum to
1. The result therefore depends on the order of the samplers, and on whether temperature comes
before or after them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .arithmetic import log32, running_sum
from .candidates import MIN_KEEP, Candidates, Sampler
from .random_numbers import MersenneTwister

__all__ = ["MinP", "TopK", "TopNSigma", "TopP", "TypicalP", "Xtc"]


@dataclass
class TopK(Sampler):
    """``llama_sampler_init_top_k``: keep the `k` largest logits; 0 or less = off.

    References
    ----------
    Fan, Lewis and Dauphin, "Hierarchical Neural Story Generation", arXiv:1805.04833.
    """

    k: int

    def apply(self, candidates: Candidates) -> None:
        if self.k > 0:
            candidates.sort(self.k)


@dataclass
class TopP(Sampler):
    r"""``llama_sampler_init_top_p``: keep the shortest prefix with :math:`\sum p_i \ge p`; 1 = off.

    References
    ----------
    Holtzman et al., "The Curious Case of Neural Text Degeneration", arXiv:1904.09751.
    """

    p: float

    def apply(self, candidates: Candidates) -> None:
        if self.p >= 1:
            return
        candidates.softmax(sort=False)  # before sorting: the sum runs in the order of the tokens
        candidates.sort()
        reached = running_sum(candidates.probs) >= np.float32(self.p)
        reached[: MIN_KEEP - 1] = False
        if reached.any():
            candidates.keep(slice(int(reached.argmax()) + 1))


@dataclass
class MinP(Sampler):
    r"""``llama_sampler_init_min_p``: keep :math:`l_i \ge \max_j l_j + \ln p`; 0 = off.

    This is :math:`p_i \ge p \cdot \max_j p_j` without a softmax. The order does not change.

    References
    ----------
    Nguyen et al., "Turning Up the Heat: Min-p Sampling", arXiv:2407.01082.
    """

    p: float

    def apply(self, candidates: Candidates) -> None:
        if self.p > 0:
            least = candidates.logits.max() + log32(np.float32(self.p))
            candidates.keep(candidates.logits >= least)


@dataclass
class TypicalP(Sampler):
    r"""``llama_sampler_init_typical``: keep the most typical tokens until :math:`\sum p_i > p`.

    A token is more typical if its surprise is nearer to the expected surprise, that is, if
    :math:`|-\ln p_i - H|` is smaller, with the entropy :math:`H = -\sum_j p_j \ln p_j` in nats.
    Afterwards the tokens are ordered by this distance, not by logit. 1 = off.

    References
    ----------
    Meister et al., "Locally Typical Sampling", arXiv:2202.00666.

    Notes
    -----
    Here, a token of probability 0 does not contribute to the entropy and is the least typical.
    llama.cpp computes ``0 * log(0)``, which is NaN, and then keeps unpredictable tokens.
    """

    p: float

    def apply(self, candidates: Candidates) -> None:
        if self.p >= 1:
            return
        candidates.softmax(sort=True)
        probs, logs = candidates.probs, log32(candidates.probs)
        terms = np.zeros_like(probs)
        np.multiply(-probs, logs, out=terms, where=probs > 0)
        order = np.argsort(np.abs(-logs - running_sum(terms)[-1]), kind="stable")
        reached = running_sum(probs[order]) > np.float32(self.p)
        reached[: MIN_KEEP - 1] = False
        candidates.keep(order[: int(reached.argmax()) + 1] if reached.any() else order)
        candidates.is_sorted = False


@dataclass
class TopNSigma(Sampler):
    r"""``llama_sampler_init_top_n_sigma``: allow :math:`l_i \ge \max_j l_j - n \sigma`.

    :math:`\sigma` is the standard deviation of the logits above ``-inf``. The logits of all other
    tokens are set to ``-inf``; the tokens stay among the candidates. `n` of 0 or less = off.

    References
    ----------
    Tang et al., "Top-nsigma: Not All Logits Are You Need", arXiv:2411.07641.
    """

    n: float

    def apply(self, candidates: Candidates) -> None:
        if self.n <= 0 or len(candidates) <= 1:
            return
        finite = candidates.logits[candidates.logits > -np.inf]
        count = np.float32(len(finite))
        mean = running_sum(finite)[-1] / count
        squares = np.square((finite - mean).astype(np.float64)).astype(np.float32)
        sigma = np.sqrt(running_sum(squares)[-1] / count)
        least = finite.max() - np.float32(self.n) * sigma
        candidates.logits[candidates.logits < least] = -np.inf


@dataclass
class Xtc(Sampler):
    """``llama_sampler_init_xtc``, "exclude top choices".

    With a given probability, removes all tokens whose probability is at least a threshold, except
    the least probable of them. Needs at least two candidates. Uses its own random number generator
    with the chain's seed. A candidate with ``-inf`` does not count as a top choice, even if the
    threshold is 0. Otherwise it could be the only one that remains, and no token could be drawn.

    Attributes
    ----------
    probability : float
        0 = off.
    threshold : float
        Above 0.5 = off, because two tokens cannot both have such a probability.
    seed : int or None

    References
    ----------
    https://github.com/oobabooga/text-generation-webui/pull/6335
    """

    probability: float
    threshold: float = 0.1
    seed: int | None = None
    _random: MersenneTwister = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = MersenneTwister(self.seed)

    def apply(self, candidates: Candidates) -> None:
        if self.probability <= 0 or self.threshold > 0.5 or len(candidates) < 2:
            return
        if self._random.uniform32() > np.float32(self.probability):
            return
        candidates.softmax(sort=True)
        is_likely = candidates.probs >= np.float32(self.threshold)
        n_likely = int((is_likely & (candidates.logits > -np.inf)).sum())
        if n_likely > 1:
            candidates.keep(slice(n_likely - 1, None))

    def reset(self) -> None:
        self._random.reset()
