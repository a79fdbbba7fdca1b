"""The reference implementation of the sampler: slow, obvious, in numpy.

- :class:`Chain` implements the native chain, with one class per sampler of llama.cpp.
- :mod:`~numpy_sampler.stages` has the stages of a CPU sampler as plain functions.
- :mod:`~numpy_sampler.gumbel` samples without a softmax and without state.
"""

from __future__ import annotations

from .candidates import Candidates
from .chain import Chain
from .gumbel import gumbel_argmax, gumbel_noise, gumbel_uniform, pcg_hash
from .samplers import InfillVocabulary, breaker_sequences
from .stages import distribution

__all__ = [
    "Candidates",
    "Chain",
    "InfillVocabulary",
    "breaker_sequences",
    "distribution",
    "gumbel_argmax",
    "gumbel_noise",
    "gumbel_uniform",
    "pcg_hash",
]
