"""The reference implementation of the sampler: slow, obvious, in numpy.

>>> from numpy_sampler import Chain
>>> from eliza_ffi.sampling import Sampling
>>> chain = Chain(Sampling.preset("balanced", seed=7), n_vocab=4)
>>> chain.sample([1.0, 3.0, 2.0, 0.0]) in (0, 1, 2)
True

- :class:`Chain` implements the native chain, with one class per sampler of llama.cpp.
- :mod:`~numpy_sampler.stages` has the stages of a CPU sampler as plain functions.
- :mod:`~numpy_sampler.gumbel` samples without a softmax and without state.
"""

from __future__ import annotations

from .arithmetic import MersenneTwister
from .candidates import MIN_KEEP, Candidates, Sampler
from .chain import Chain
from .gumbel import gumbel_argmax, gumbel_noise, gumbel_uniform, pcg_hash
from .samplers import (
    AdaptiveP,
    Dist,
    Dry,
    Greedy,
    Gumbel,
    Infill,
    InfillVocabulary,
    LogitBias,
    MinP,
    Mirostat,
    MirostatV2,
    Penalties,
    Temperature,
    TopK,
    TopNSigma,
    TopP,
    TypicalP,
    Xtc,
    breaker_sequences,
)
from .stages import distribution

__all__ = [
    "MIN_KEEP",
    "AdaptiveP",
    "Candidates",
    "Chain",
    "Dist",
    "Dry",
    "Greedy",
    "Gumbel",
    "Infill",
    "InfillVocabulary",
    "LogitBias",
    "MersenneTwister",
    "MinP",
    "Mirostat",
    "MirostatV2",
    "Penalties",
    "Sampler",
    "Temperature",
    "TopK",
    "TopNSigma",
    "TopP",
    "TypicalP",
    "Xtc",
    "breaker_sequences",
    "distribution",
    "gumbel_argmax",
    "gumbel_noise",
    "gumbel_uniform",
    "pcg_hash",
]
