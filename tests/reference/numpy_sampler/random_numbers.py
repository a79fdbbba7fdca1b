"""Random numbers as in C++: ``std::mt19937`` and the distributions of libstdc++ and libc++."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["MersenneTwister"]


class MersenneTwister:
    """A ``std::mt19937``.

    Parameters
    ----------
    seed
        0 to 2**32 - 1; None = a random seed, and another one after each reset.

    References
    ----------
    Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998; [rand.predef] in the C++
    standard: the 10,000th word for seed 5489 is 4123659995.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self.reset()

    def reset(self) -> None:
        """Restart the sequence of numbers."""
        self.seed = secrets.randbits(32) if self._seed is None else self._seed
        self._words = np.random.MT19937()
        state: Any = np.random.RandomState(self.seed).get_state(legacy=False)
        self._words.state = state

    def word(self) -> int:
        """Return 32 random bits."""
        return int(self._words.random_raw())

    def uniform(self) -> float:
        """Return ``uniform_real_distribution<double>(0, 1)``; uses two words, the lower first."""
        low = float(self.word())
        u = (low + float(self.word()) * 2.0**32) / 2.0**64
        return min(u, float(np.nextafter(1.0, 0.0)))

    def uniform32(self) -> np.float32:
        """Return ``uniform_real_distribution<float>(0, 1)``; uses one word."""
        u = np.float32(self.word()) / np.float32(2**32)
        return np.float32(min(u, np.nextafter(np.float32(1), np.float32(0))))

    def index(self, weights: NDArray[np.float32]) -> int:
        """Return ``discrete_distribution`` for weights of shape [k]; uses no word if k is 1."""
        if len(weights) < 2:
            return 0
        shares = weights.astype(np.float64)
        cumulative = np.add.accumulate(shares / np.add.accumulate(shares)[-1])
        cumulative[-1] = 1.0
        return int(np.searchsorted(cumulative, self.uniform(), side="left"))
