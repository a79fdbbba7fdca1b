r"""Mirostat, versions 1 and 2: truncation that keeps the surprise of the text near a target.

Both versions draw the token, and then adjust the largest allowed surprise :math:`\mu`:

.. math:: \mu \leftarrow \mu - \eta \, (-\log_2 p - \tau), \quad \mu_0 = 2 \tau

where `p` is the probability of the drawn token among the remaining candidates.

Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity",
arXiv:2007.14966.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arithmetic import log32, pow32, running_sum
from .candidates import Candidates, Sampler
from .random_numbers import MersenneTwister

__all__ = ["Mirostat", "MirostatV2"]

ONE = np.float32(1)


@dataclass
class MirostatV2(Sampler):
    r"""``llama_sampler_init_mirostat_v2``: remove tokens with a surprise above :math:`\mu` bits.

    Attributes
    ----------
    tau : float
        The target surprise, in bits.
    eta : float
        The learning rate.
    seed : int or None
    mu : float32
        The largest surprise that is currently allowed, in bits.
    """

    tau: float = 5.0
    eta: float = 0.1
    seed: int | None = None
    mu: np.float32 = field(init=False)
    _random: MersenneTwister = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = MersenneTwister(self.seed)
        self.mu = np.float32(2) * np.float32(self.tau)

    def apply(self, candidates: Candidates) -> None:
        candidates.softmax(sort=True)
        self._truncate(candidates)
        candidates.softmax(sort=True)
        candidates.selected = self._random.index(candidates.probs)
        error = _surprise(candidates.probs[candidates.selected]) - np.float32(self.tau)
        self.mu = self.mu - np.float32(self.eta) * error

    def _truncate(self, candidates: Candidates) -> None:
        too_surprising = _surprise(candidates.probs) > self.mu
        if too_surprising.any():
            candidates.keep(slice(max(int(too_surprising.argmax()), 1)))

    def reset(self) -> None:
        self._random.reset()
        self.mu = np.float32(2) * np.float32(self.tau)


@dataclass
class Mirostat(MirostatV2):
    r"""``llama_sampler_init_mirostat``: top-k, where `k` is estimated from Zipf's law.

    The exponent `s` of the law is fitted to the `m` most probable candidates,

    .. math:: \hat s = \frac{\sum_i t_i b_i}{\sum_i t_i^2}, \quad t_i = \ln\frac{i + 2}{i + 1}, \;
              b_i = \ln\frac{p_i}{p_{i+1}}, \qquad
              k = \left(\frac{\epsilon \, 2^\mu}{1 - n^{-\epsilon}}\right)^{1 / \hat s}, \;
              \epsilon = \hat s - 1

    with the vocabulary's size `n`.

    Attributes
    ----------
    n_vocab : int
    m : int
        100 in llama.cpp.

    Notes
    -----
    If `k` is NaN or does not fit into 32 bits, which happens with equal logits, llama.cpp converts
    it to ``int`` nevertheless, which is undefined behaviour in C++. On x86 the result is the
    smallest ``int``, so k becomes 1.
    """

    n_vocab: int = 0
    m: int = 100

    def _truncate(self, candidates: Candidates) -> None:
        k = self._estimate(candidates.probs)
        fits = np.isfinite(k) and abs(k) < 2**31
        candidates.sort(max(int(k), 1) if fits else 1)

    def _estimate(self, probs: NDArray[np.float32]) -> np.float32:
        n = min(self.m, len(probs))
        i = np.arange(n - 1, dtype=np.float32)
        with np.errstate(all="ignore"):
            t = log32((i + 2) / (i + 1))
            b = log32(probs[: n - 1] / probs[1:n])
            s = _sum(t * b) / _sum(t * t)
            epsilon = s - ONE
            numerator = epsilon * pow32(2, self.mu)
            return np.float32(
                pow32(numerator / (ONE - pow32(np.float32(self.n_vocab), -epsilon)), ONE / s)
            )


def _surprise(probs: ArrayLike) -> NDArray[np.float32]:
    """Return ``-log2(p)``, in bits."""
    with np.errstate(divide="ignore"):
        return -np.log2(np.asarray(probs, dtype=np.float64)).astype(np.float32)


def _sum(values: NDArray[np.float32]) -> np.float32:
    return np.float32(running_sum(values)[-1]) if len(values) else np.float32(0)
