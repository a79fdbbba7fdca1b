"""Single-precision arithmetic as in C++, so that the reference agrees with the native code.

numpy sums pairwise, and its `exp` of a ``float32`` has errors of a few units in the last place. In
this module, sums run from the first element to the last. Functions are computed in ``float64`` and
rounded once, which gives the result of the C library's ``expf`` and ``logf`` in all but a few cases
per thousand.
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
