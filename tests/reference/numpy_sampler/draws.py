"""The samplers at the end of a chain, which draw one of the candidates."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .candidates import Candidates, Sampler
from .gumbel import gumbel_noise, gumbel_uniform
from .random_numbers import MersenneTwister

__all__ = ["Dist", "Greedy", "Gumbel"]


@dataclass
class Greedy(Sampler):
    """``llama_sampler_init_greedy``: take the largest logit, the first one if several are equal."""

    def apply(self, candidates: Candidates) -> None:
        candidates.check()
        candidates.selected = int(candidates.logits.argmax())


@dataclass
class Dist(Sampler):
    r"""``llama_sampler_init_dist``: invert the cumulative distribution function of the softmax.

    Returns the first `n` with :math:`\sum_{i \le n} w_i \ge u \sum_i w_i`, where
    :math:`w_i = e^{l_i - \max l}`. Sums are in double precision. A random number is used even if
    there is only one candidate.

    Attributes
    ----------
    seed : int or None
    """

    seed: int | None = None
    _random: MersenneTwister = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = MersenneTwister(self.seed)

    def apply(self, candidates: Candidates) -> None:
        weights = candidates.weights().astype(np.float64)
        cumulative = np.add.accumulate(weights)
        reached = cumulative >= cumulative[-1] * self._random.uniform()
        candidates.probs = (weights / cumulative[-1]).astype(np.float32)
        candidates.selected = int(reached.argmax()) if reached.any() else len(candidates) - 1

    def reset(self) -> None:
        self._random.reset()


@dataclass
class Gumbel(Sampler):
    """``llama_sampler_init_gumbel``: the argmax of logit + noise, where the noise is a hash.

    Has no state; the position comes from the candidates. If scores are equal, the lowest id is
    taken. See :mod:`numpy_sampler.gumbel`.

    Attributes
    ----------
    seed_offset : int
    """

    seed_offset: int

    def apply(self, candidates: Candidates) -> None:
        candidates.check()
        uniform = gumbel_uniform(candidates.position, self.seed_offset, candidates.ids)
        scores = candidates.logits + gumbel_noise(uniform)
        best = np.flatnonzero(scores == scores.max())
        candidates.selected = int(best[candidates.ids[best].argmin()])
