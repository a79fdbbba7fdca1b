"""Single-precision arithmetic and random numbers as in C++, to agree with the native code.

numpy sums pairwise, and its `exp` of a ``float32`` has errors of a few units in the last place. In
this module, sums run from the first element to the last. Functions are computed in ``float64`` and
rounded once, which gives the result of the C library's ``expf`` and ``logf`` in all but a few cases
per thousand.
"""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float32]


def running_sum(values: NDArray[Any], dtype: type[np.floating[Any]] = np.float32) -> NDArray[Any]:
    """Return ``out[i] = values[0] + ... + values[i]``, rounded after each addition; shape [n]."""
    return np.add.accumulate(values, dtype=dtype)


def exp32(x: ArrayLike) -> Floats:
    """Return ``e**x`` in single precision."""
    return np.exp(np.asarray(x, dtype=np.float64)).astype(np.float32)


def log32(x: ArrayLike) -> Floats:
    """Return the natural logarithm in single precision; ``-inf`` for 0."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(x, dtype=np.float64)).astype(np.float32)


def pow32(base: ArrayLike, exponent: ArrayLike) -> Floats:
    """Return ``base**exponent`` in single precision, with NaN and infinities as in C's ``powf``."""
    with np.errstate(all="ignore"):
        x, y = np.asarray(base, dtype=np.float64), np.asarray(exponent, dtype=np.float64)
        return np.power(x, y).astype(np.float32)


class MersenneTwister:
    """A ``std::mt19937``. Without a seed, the seed is random.

    Matsumoto and Nishimura, "Mersenne Twister", ACM TOMACS 8(1), 1998; [rand.predef] in the C++
    standard: the 10,000th word for seed 5489 is 4123659995.
    """

    def __init__(self, seed: int | None) -> None:
        self.seed = secrets.randbits(32) if seed is None else seed
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
