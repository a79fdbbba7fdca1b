"""Temperature, fixed or dependent on the entropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arithmetic import log32, pow32, running_sum
from .candidates import Candidates, Sampler

__all__ = ["Temperature"]


@dataclass
class Temperature(Sampler):
    r"""``llama_sampler_init_temp_ext``: :math:`l_i \leftarrow l_i / T`.

    With a range `d`, the temperature depends on the entropy `H` of the `k` candidates:

    .. math:: T' = T_{lo} + (T_{hi} - T_{lo}) \left(\frac{H}{\ln k}\right)^e, \quad
              T_{lo} = \max(0, T - d), \; T_{hi} = T + d

    A temperature of 0 sets all logits to ``-inf`` except the largest one (the first, if several are
    equal).

    Attributes
    ----------
    temperature : float
        `T`, 0 or more.
    range : float
        `d`; 0 = the temperature is fixed.
    exponent : float
        `e`.

    References
    ----------
    https://github.com/ggml-org/llama.cpp/pull/4972 (dynamic temperature).
    """

    temperature: float
    range: float = 0.0
    exponent: float = 1.0

    def apply(self, candidates: Candidates) -> None:
        if self.range > 0:
            if len(candidates) > 1:
                _divide(candidates, self._dynamic(candidates))
                candidates.softmax(sort=False)
        else:
            _divide(candidates, np.float32(self.temperature))

    def _dynamic(self, candidates: Candidates) -> np.float32:
        temperature, distance = np.float32(self.temperature), np.float32(self.range)
        low, high = max(np.float32(0), temperature - distance), temperature + distance
        candidates.softmax(sort=True)
        positive = candidates.probs[candidates.probs > 0]
        entropy = running_sum(-positive * log32(positive))[-1]
        share = entropy / -log32(np.float32(1) / np.float32(len(candidates)))
        return np.float32(low + (high - low) * pow32(share, np.float32(self.exponent)))


def _divide(candidates: Candidates, temperature: np.float32) -> None:
    if temperature > 0:
        np.divide(candidates.logits, temperature, out=candidates.logits)
        return
    best = int(candidates.logits.argmax())
    candidates.logits[:best] = -np.inf
    candidates.logits[best + 1 :] = -np.inf
