"""Adaptive-p: sample tokens whose probability is, on average, near a target."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from .candidates import Candidates, Sampler
from .random_numbers import MersenneTwister

__all__ = ["AdaptiveP"]

INVERSE_WIDTH = np.float32(1) / np.float32(0.3)
PEAK_LOGIT = np.float32(5)
SHARPNESS = np.float32(10)

ONE = np.float32(1)


@dataclass
class AdaptiveP(Sampler):
    r"""``llama_sampler_init_adaptive_p``, which draws the token.

    Each logit is replaced by a function of the distance between the token's probability and the
    adapted target `t'`. The token is drawn from the new logits:

    .. math:: l_i \leftarrow 5 - 10 \frac{d_i^2}{1 + d_i}, \quad d_i = \frac{|p_i - t'|}{0.3}, \quad
              t' = \min(1, \max(0, 2 t - \bar p))

    :math:`\bar p` is the exponentially weighted mean of the original probabilities of the accepted
    tokens. Its initial value is `t`.

    Attributes
    ----------
    target : float
        `t`, 0 to 1. Below 0, tokens are drawn from the unchanged logits.
    decay : float
        0 to 0.99. With each further token, the weight of an earlier token is multiplied by this.
    seed : int or None

    References
    ----------
    https://github.com/ggml-org/llama.cpp/pull/17927
    """

    target: float
    decay: float = 0.9
    seed: int | None = None
    _random: MersenneTwister = field(init=False, repr=False)
    _weighted_sum: np.float32 = field(init=False, repr=False)
    _total_weight: np.float32 = field(init=False, repr=False)
    _pending: tuple[int, np.float32] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = MersenneTwister(self.seed)
        self._forget()

    def apply(self, candidates: Candidates) -> None:
        candidates.softmax(sort=False)
        if self.target < 0:
            candidates.selected = self._random.index(candidates.probs)
            return
        original = candidates.probs
        distance = np.abs((original - self._adapted_target()) * INVERSE_WIDTH)
        shaped = PEAK_LOGIT - SHARPNESS * distance * distance / (ONE + distance)
        candidates.logits = np.where(candidates.logits == -np.inf, candidates.logits, shaped)
        # As in llama.cpp, `is_sorted` does not change. If it is True, the softmax subtracts the
        # first logit, which need not be the largest now. The new logits are so close to each other
        # that this is harmless.
        candidates.softmax(sort=False)
        candidates.selected = self._random.index(candidates.probs)
        self._pending = (candidates.token, np.float32(original[candidates.selected]))

    def accept(self, token: int) -> None:
        if self._pending is not None and self._pending[0] == token:
            decay = np.float32(self.decay)
            self._weighted_sum = self._pending[1] + decay * self._weighted_sum
            self._total_weight = ONE + decay * self._total_weight
        self._pending = None

    def reset(self) -> None:
        self._random.reset()
        self._forget()

    def _forget(self) -> None:
        rest = ONE - np.float32(self.decay)
        self._weighted_sum = np.float32(self.target) / rest
        self._total_weight = ONE / rest
        self._pending = None

    def _adapted_target(self) -> np.float32:
        mean = self._weighted_sum / self._total_weight
        return np.float32(np.clip(np.float32(2) * np.float32(self.target) - mean, 0, 1))
