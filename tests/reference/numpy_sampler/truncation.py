r"""Samplers that leave out tokens: top-k, top-p, min-p, typical, top-n-sigma and XTC.

Each takes the softmax of what the samplers before it left, so each one's probabilities sum to 1.
The order therefore matters, and temperature before or after them gives different sets.
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
    """``llama_sampler_init_top_k``: the `k` largest logits; 0 or less = off.

    References
    ----------
    Fan, Lewis and Dauphin, "Hierarchical Neural Story GenerationResult", arXiv:1805.04833.
    """

    k: int

    def apply(self, candidates: Candidates) -> None:
        if self.k > 0:
            candidates.sort(self.k)


@dataclass
class TopP(Sampler):
    r"""``llama_sampler_init_top_p``: the shortest beginning with :math:`\sum p_i \ge p`; 1 = off.

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
    r"""``llama_sampler_init_min_p``: :math:`l_i \ge \max_j l_j + \ln p`; 0 = off.

    That is :math:`p_i \ge p \cdot \max_j p_j` without a softmax. The order is left as it was.

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
    r"""``llama_sampler_init_typical``: the most typical tokens with :math:`\sum p_i > p`; 1 = off.

    A token is the more typical, the nearer its surprise is to the expected one:
    :math:`|-\ln p_i - H|` with the entropy :math:`H = -\sum_j p_j \ln p_j`, in nats. The order
    afterwards is by that, not by the logit.

    References
    ----------
    Meister et al., "Locally Typical Sampling", arXiv:2202.00666.

    Notes
    -----
    A token of probability 0 has no part in the entropy and is the least typical. llama.cpp computes
    ``0 * log(0)``, which is NaN and leaves the choice of tokens to chance.
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
    r"""``llama_sampler_init_top_n_sigma``: :math:`l_i \ge \max_j l_j - n \sigma`; 0 or less = off.

    :math:`\sigma` is the standard deviation of the logits above ``-inf``. What falls below is set
    to ``-inf`` and stays among the candidates.

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

    With a probability, drops all tokens of at least a threshold but the least likely of them. It
    needs two candidates, and draws its own random number, from a generator with the chain's seed.
    A candidate at ``-inf`` is no top choice, be the threshold 0: nothing could be drawn if it were
    the least likely one.

    Attributes
    ----------
    probability : float
        0 = off.
    threshold : float
        Above 0.5 = off: two tokens cannot both have that much.
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
