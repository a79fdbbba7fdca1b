r"""Gumbel-max: sample a token with noise and an argmax, as docs/reference/sampling.md describes.

The uniform numbers are a hash of the seed, the position in the sequence and the token:

    s = (position + seed_offset) * 2654435761                     modulo 2**32
    u = clamp(pcg_hash(s + token) / 2**32, 1e-7, 1 - 1e-7)        single precision

`position` is the number of tokens before the drawn one; `seed_offset` identifies the generation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

MIN_UNIFORM = np.float32(1e-7)
MAX_UNIFORM = np.float32(1) - np.float32(1e-7)
KNUTH = 2654435761


def pcg_hash(state: ArrayLike) -> NDArray[np.uint32]:
    """Return the PCG hash of 32-bit numbers: one generator step, then the permutation RXS-M-XS.

    O'Neill, "PCG: A Family of Simple Fast Space-Efficient Statistically Good Algorithms for Random
    Number Generation", HMC-CS-2014-0905.
    """
    with np.errstate(over="ignore"):
        stepped = np.asarray(state, dtype=np.uint32) * np.uint32(747796405) + np.uint32(2891336453)
        shift = (stepped >> np.uint32(28)) + np.uint32(4)
        word = ((stepped >> shift) ^ stepped) * np.uint32(277803737)
    hashed: NDArray[np.uint32] = (word >> np.uint32(22)) ^ word
    return hashed


def element_seed(position: int, seed_offset: int) -> int:
    return (position + seed_offset) * KNUTH % 2**32


def gumbel_uniform(position: int, seed_offset: int, tokens: ArrayLike) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):
        start = np.uint32(element_seed(position, seed_offset))
        state = np.asarray(tokens).astype(np.uint32) + start
    uniform = pcg_hash(state).astype(np.float32) / np.float32(2**32)
    clamped: NDArray[np.float32] = np.clip(uniform, MIN_UNIFORM, MAX_UNIFORM)
    return clamped


def gumbel_noise(uniform: NDArray[np.float32]) -> NDArray[np.float32]:
    noise: NDArray[np.float32] = -np.log(-np.log(uniform))
    return noise


def gumbel_argmax(
    logits: dict[int, float], position: int, seed_offset: int, temperature: float = 1.0
) -> int:
    """Draw one of the tokens that have these logits."""
    noise = gumbel_noise(gumbel_uniform(position, seed_offset, list(logits)))
    scores = np.array([*logits.values()]) + temperature * noise
    return [*logits][int(scores.argmax())]
