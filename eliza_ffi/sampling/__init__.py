"""Sampling: the settings, and its mathematics in numpy.

>>> from eliza_ffi.sampling import Chain, SamplingParams
>>> chain = Chain(SamplingParams.preset("balanced", seed=7), n_vocab=4)
>>> chain.sample([1.0, 3.0, 2.0, 0.0]) in (0, 1, 2)
True

- :class:`SamplingParams` and :data:`PRESETS` set up native streams.
- :class:`Chain` is the twin of the native chain, made of one class per llama.cpp sampler.
- :mod:`~eliza_ffi.sampling.twin.reference` has the stages of a CPU sampler as plain functions, and
  :mod:`~eliza_ffi.sampling.twin.pipeline` puts them together.
- :mod:`~eliza_ffi.sampling.twin.gumbel` draws without a softmax and without a state.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .order import BOOK_ORDER, DEFAULT_ORDER, SAMPLER_NAMES, parse_order
from .params import PRESETS, SamplingParams

if TYPE_CHECKING:
    from .twin.adaptive_p import AdaptiveP
    from .twin.candidates import MIN_KEEP, Candidates, Sampler
    from .twin.chain import Chain
    from .twin.draws import Dist, Greedy, Gumbel
    from .twin.dry import Dry, breaker_sequences
    from .twin.gumbel import gumbel_argmax, gumbel_noise, gumbel_uniform, pcg_hash
    from .twin.infill import Infill, InfillVocabulary
    from .twin.logit_bias import LogitBias
    from .twin.mirostat import Mirostat, MirostatV2
    from .twin.penalties import Penalties
    from .twin.pipeline import distribution, sample_logits, sample_logits_f16
    from .twin.random_numbers import MersenneTwister
    from .twin.temperature import Temperature
    from .twin.truncation import MinP, TopK, TopNSigma, TopP, TypicalP, Xtc

__all__ = [
    "BOOK_ORDER",
    "DEFAULT_ORDER",
    "MIN_KEEP",
    "PRESETS",
    "SAMPLER_NAMES",
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
    "SamplingParams",
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
    "parse_order",
    "pcg_hash",
    "sample_logits",
    "sample_logits_f16",
]

_MODULES = {
    "adaptive_p": ("AdaptiveP",),
    "candidates": (
        "MIN_KEEP",
        "Candidates",
        "Sampler",
    ),
    "chain": ("Chain",),
    "draws": (
        "Dist",
        "Greedy",
        "Gumbel",
    ),
    "dry": (
        "Dry",
        "breaker_sequences",
    ),
    "gumbel": (
        "gumbel_argmax",
        "gumbel_noise",
        "gumbel_uniform",
        "pcg_hash",
    ),
    "infill": (
        "Infill",
        "InfillVocabulary",
    ),
    "logit_bias": ("LogitBias",),
    "mirostat": (
        "Mirostat",
        "MirostatV2",
    ),
    "penalties": ("Penalties",),
    "pipeline": (
        "distribution",
        "sample_logits",
        "sample_logits_f16",
    ),
    "random_numbers": ("MersenneTwister",),
    "temperature": ("Temperature",),
    "truncation": (
        "MinP",
        "TopK",
        "TopNSigma",
        "TopP",
        "TypicalP",
        "Xtc",
    ),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load the mathematics when it is asked for: who only sets numbers needs none of it."""
    module = _MODULE_OF.get(name, name)
    try:
        found = importlib.import_module(f".twin.{module}", __name__)
    except ModuleNotFoundError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    return getattr(found, name) if name in _MODULE_OF else found
