"""Single-precision arithmetic as C++ does it, so that a twin agrees with the native code.

numpy sums pairwise and its own `exp` of a ``float32`` is off by a few units in the last place. Here
sums run from the first element to the last, and functions are those of ``float64`` rounded once,
which is what the C library's ``expf`` and ``logf`` return in all but a few cases in a thousand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["exp32", "log32", "pow32", "running_sum"]

Floats = NDArray[np.float32]


def running_sum(values: NDArray[Any], dtype: type[np.floating[Any]] = np.float32) -> NDArray[Any]:
    """Return ``out[i] = values[0] + ... + values[i]``, rounded after each addition; shape [n]."""
    return np.add.accumulate(values, dtype=dtype)


def exp32(x: ArrayLike) -> Floats:
    """Return ``e**x``, single precision."""
    return np.exp(np.asarray(x, dtype=np.float64)).astype(np.float32)


def log32(x: ArrayLike) -> Floats:
    """Return the natural logarithm, single precision; that of 0 is ``-inf``."""
    with np.errstate(divide="ignore"):
        return np.log(np.asarray(x, dtype=np.float64)).astype(np.float32)


def pow32(base: ArrayLike, exponent: ArrayLike) -> Floats:
    """Return ``base**exponent``, single precision; NaN and infinities as C's ``powf``."""
    with np.errstate(all="ignore"):
        x, y = np.asarray(base, dtype=np.float64), np.asarray(exponent, dtype=np.float64)
        return np.power(x, y).astype(np.float32)
