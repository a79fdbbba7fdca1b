r"""Gumbel-max: sample a token with noise and an argmax, without a softmax and without state.

With :math:`G_i = -\log(-\log u_i)` and :math:`u_i` uniform and independent,

.. math:: \arg\max_i \; (l_i + T \cdot G_i) \;\sim\; \mathrm{softmax}(l / T)

(Maddison, Tarlow and Minka, "A* Sampling", arXiv:1411.0030). The uniform numbers are a hash of the
seed, the position in the sequence and the token:

    s = (position + seed_offset) * 2654435761                     modulo 2**32
    u = clamp(pcg_hash(s + token) / 2**32, 1e-7, 1 - 1e-7)        single precision

`position` is the number of tokens before the drawn one; `seed_offset` identifies the generation. No
state is kept between draws: the same seed and position give the same noise, whatever was drawn
before. The noise of a token does not depend on the other candidates.

The numbers are in single precision, as in the native sampler. `u` equals the native value in every
bit: the hash uses integer arithmetic, the conversion to ``float32`` rounds to nearest (it keeps 24
of 32 bits, and values that round up to 1 are clamped), and the division by 2**32 is exact. The last
bit of G may differ if the C library's ``logf`` is not correctly rounded.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .arithmetic import log32
from .stages import check_logits

MIN_UNIFORM = np.float32(1e-7)
MAX_UNIFORM = np.float32(1) - np.float32(1e-7)
"""0x3f7ffffe, which is 1 - 2**-23: the float32 nearest to 1 - 1e-7."""

WORD = 0xFFFFFFFF
KNUTH = np.uint32(2654435761)


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
    """Return ``(position + seed_offset) * 2654435761 mod 2**32``, the same for all tokens.

    `position` is the number of tokens before the drawn one, including the prompt.
    """
    return (position + seed_offset) * int(KNUTH) & WORD


def gumbel_uniform(position: int, seed_offset: int, tokens: ArrayLike) -> NDArray[np.float32]:
    """Return a uniform number in [1e-7, 1 - 1e-7] for each token, in the shape of `tokens`."""
    with np.errstate(over="ignore"):
        state = np.asarray(tokens).astype(np.uint32) + np.uint32(
            element_seed(position, seed_offset)
        )
    uniform = pcg_hash(state).astype(np.float32) / np.float32(2**32)
    clamped: NDArray[np.float32] = np.clip(uniform, MIN_UNIFORM, MAX_UNIFORM)
    return clamped


def gumbel_noise(uniform: ArrayLike) -> NDArray[np.float32]:
    r"""Return the Gumbel noise :math:`-\log(-\log u)`, -2.78 to 15.94 for the possible `u`."""
    return -log32(-log32(uniform))


def gumbel_argmax(
    logits: ArrayLike,
    position: int,
    seed_offset: int,
    temperature: float = 1.0,
    tokens: ArrayLike | None = None,
) -> int:
    """Draw one of the tokens, by default 0 to k - 1; at temperature 0 that of the largest logit.

    ``-inf`` is never drawn. If scores are equal, the lowest id is taken, for any order of the
    tokens.
    """
    values = check_logits(logits)
    ids = np.arange(len(values)) if tokens is None else np.asarray(tokens)
    scores = values
    if temperature > 0:
        noise = gumbel_noise(gumbel_uniform(position, seed_offset, ids))
        scores = values + np.float32(temperature) * noise
    return int(ids[scores == scores.max()].min())
