"""The candidate tokens, as in llama.cpp's ``llama_token_data_array``, and the sampler interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eliza_ffi.errors import InvalidArgumentError

from .arithmetic import exp32, running_sum
from .stages import check_logits, largest_first

MIN_KEEP = 1
"""Every sampler keeps at least this many candidates."""

Indexes = slice | NDArray[Any]


@dataclass
class Candidates:
    """Candidate tokens with their logits and probabilities. Samplers change and remove them.

    The arrays have the shape [k]. Samplers pass the logits to each other; a token with ``-inf``
    cannot be drawn. `probs` is the result of the last softmax. `is_sorted` tells whether the logits
    are known to be in descending order. `position` is the number of tokens before the drawn one,
    including the prompt. `selected` is the index of the drawn token.
    """

    ids: NDArray[np.int32]
    logits: NDArray[np.float32]
    probs: NDArray[np.float32]
    is_sorted: bool = False
    position: int = 0
    selected: int | None = None

    @classmethod
    def of(cls, logits: ArrayLike, ids: ArrayLike | None = None, position: int = 0) -> Candidates:
        """Create candidates from logits and their tokens, by default 0 to k - 1; shape [k].

        Raise InvalidArgumentError if a logit is NaN or ``+inf``, or all are ``-inf``.
        """
        values = check_logits(logits)
        tokens = np.arange(len(values)) if ids is None else np.asarray(ids)
        return cls(tokens.astype(np.int32), values, np.zeros_like(values), position=position)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def token(self) -> int:
        """The drawn token."""
        assert self.selected is not None
        return int(self.ids[self.selected])

    def keep(self, indexes: Indexes) -> None:
        """Keep only the candidates at these indexes, in this order."""
        self.ids, self.logits = self.ids[indexes], self.logits[indexes]
        self.probs = self.probs[indexes]

    def sort(self, k: int | None = None) -> None:
        """Sort by descending logit and keep the first `k`; None = keep all.

        Candidates with equal logits keep their order. In llama.cpp their order is unspecified.
        """
        k = len(self) if k is None else min(k, len(self))
        self.keep(slice(k) if self.is_sorted else largest_first(self.logits, k))
        self.is_sorted = True

    def softmax(self, *, sort: bool) -> None:
        """Compute the probabilities from the logits; with `sort`, sort the candidates first."""
        if sort:
            self.sort()
        weights = self.weights()
        self.probs = weights / running_sum(weights)[-1]

    def weights(self) -> NDArray[np.float32]:
        """Return ``exp(logit - largest)``, the unnormalized probabilities; shape [k]."""
        self.check()
        return exp32(self.logits - (self.logits[0] if self.is_sorted else self.logits.max()))

    def check(self) -> None:
        """Raise InvalidArgumentError if all logits are ``-inf``, which biases can cause."""
        if self.logits.max() == -np.inf:
            raise InvalidArgumentError("all logits are -inf: there is nothing to choose from")


class Sampler(ABC):
    """One sampler of a chain, like llama.cpp's ``llama_sampler``."""

    @abstractmethod
    def apply(self, candidates: Candidates) -> None:
        """Change the candidates, or draw one of them."""

    def accept(self, token: int) -> None:  # noqa: B027 - most samplers have no state
        """Record the next token of the text."""
