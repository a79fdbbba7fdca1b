"""The reference implementation of the sampler: slow, obvious, in numpy.

>>> from numpy_sampler import Chain
>>> from eliza_ffi.sampling import Sampling
>>> chain = Chain(Sampling.preset("balanced", seed=7), n_vocab=4)
>>> chain.sample([1.0, 3.0, 2.0, 0.0]) in (0, 1, 2)
True

- :class:`Chain` implements the native chain, with one class per sampler of llama.cpp.
- :mod:`~numpy_sampler.stages` has the stages of a CPU sampler as plain functions;
  :mod:`~numpy_sampler.pipeline` combines them.
- :mod:`~numpy_sampler.gumbel` samples without a softmax and without state.
"""

from __future__ import annotations

from .adaptive_p import AdaptiveP
from .candidates import MIN_KEEP, Candidates, Sampler
from .chain import Chain
from .draws import Dist, Greedy, Gumbel
from .dry import Dry, breaker_sequences
from .gumbel import gumbel_argmax, gumbel_noise, gumbel_uniform, pcg_hash
from .infill import Infill, InfillVocabulary
from .logit_bias import LogitBias
from .mirostat import Mirostat, MirostatV2
from .penalties import Penalties
from .pipeline import distribution, sample_logits, sample_logits_f16
from .random_numbers import MersenneTwister
from .temperature import Temperature
from .truncation import MinP, TopK, TopNSigma, TopP, TypicalP, Xtc

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
    "sample_logits",
    "sample_logits_f16",
]
