"""Logit bias: add a number to the logits of single tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .candidates import Candidates, Sampler

__all__ = ["LogitBias"]


@dataclass
class LogitBias(Sampler):
    """``llama_sampler_init_logit_bias``: ``logit += bias``; ``-inf`` bans a token.

    Attributes
    ----------
    biases : mapping of int to float
        The bias of each token. Tokens that are not candidates are ignored.
    """

    biases: Mapping[int, float]

    def apply(self, candidates: Candidates) -> None:
        for token, bias in self.biases.items():
            candidates.logits[candidates.ids == token] += np.float32(bias)
