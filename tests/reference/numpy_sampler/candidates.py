"""The tokens that are still in the running: numpy's side of ``llama_token_data_array``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from eliza_ffi.errors import InvalidArgumentError

from .arithmetic import exp32, running_sum
from .stages import check_logits, largest_first

__all__ = ["MIN_KEEP", "Candidates", "Sampler"]

MIN_KEEP = 1
"""No sampler leaves fewer candidates than this."""

Indexes = slice | NDArray[Any]


@dataclass
class Candidates:
    """Candidates with a logit and a probability each, which samplers change, reorder and drop.

    Attributes
    ----------
    ids : array of int32, shape [k]
    logits : array of float32, shape [k]
        What samplers communicate by. ``-inf`` is as good as dropped.
    probs : array of float32, shape [k]
        What the last softmax made of the logits as they were then; not kept in step with them.
    is_sorted : bool
        Whether the logits are known to descend.
    position : int
        Tokens before the one that is drawn, the prompt's included.
    selected : int or None
        Where the token stands that was drawn; None until then.
    """

    ids: NDArray[np.int32]
    logits: NDArray[np.float32]
    probs: NDArray[np.float32]
    is_sorted: bool = False
    position: int = 0
    selected: int | None = None

    @classmethod
    def of(cls, logits: ArrayLike, ids: ArrayLike | None = None, position: int = 0) -> Candidates:
        """Return all tokens of a vocabulary, or the given ones.

        Parameters
        ----------
        logits
            Shape [k]. ``-inf`` means never; if some are ``+inf``, only those are left.
        ids
            The tokens the logits belong to, shape [k]; None = 0 to k - 1.
        position

        Raises
        ------
        InvalidArgumentError
            If a logit is NaN, none is above ``-inf``, or `ids` has another shape.
        """
        values = check_logits(logits)
        tokens = np.arange(len(values)) if ids is None else np.asarray(ids)
        if tokens.shape != values.shape:
            raise InvalidArgumentError(f"{len(tokens)} ids do not go with {len(values)} logits")
        return cls(tokens.astype(np.int32), values, np.zeros_like(values), position=position)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def token(self) -> int:
        """The token that was drawn."""
        if self.selected is None:
            raise InvalidArgumentError("no token has been drawn")
        return int(self.ids[self.selected])

    def keep(self, indexes: Indexes) -> None:
        """Drop all but these, which come in this order."""
        self.ids, self.logits = self.ids[indexes], self.logits[indexes]
        self.probs = self.probs[indexes]

    def sort(self, k: int | None = None) -> None:
        """Bring the `k` largest logits to the front and drop the rest; None = keep all.

        Equals stay in their order; llama.cpp leaves it to ``std::sort``.
        """
        k = len(self) if k is None else min(k, len(self))
        self.keep(slice(k) if self.is_sorted else largest_first(self.logits, k))
        self.is_sorted = True

    def softmax(self, *, sort: bool) -> None:
        """Set the probabilities from the logits, after sorting the candidates if asked to."""
        if sort:
            self.sort()
        weights = self.weights()
        self.probs = weights / running_sum(weights)[-1]

    def weights(self) -> NDArray[np.float32]:
        """Return ``exp(logit - largest)``, the probabilities times their sum; shape [k]."""
        self.check()
        return exp32(self.logits - (self.logits[0] if self.is_sorted else self.logits.max()))

    def check(self) -> None:
        """Raise an InvalidArgumentError if all logits are ``-inf``, as biases can make them."""
        if self.logits.max() == -np.inf:
            raise InvalidArgumentError("all logits are -inf: there is nothing to choose from")


class Sampler(ABC):
    """One link of a chain, as ``llama_sampler``."""

    @abstractmethod
    def apply(self, candidates: Candidates) -> None:
        """Change the candidates, or draw one of them."""

    def accept(self, token: int) -> None:  # noqa: B027 - most samplers remember nothing
        """Take note of a token that the text goes on with."""

    def reset(self) -> None:  # noqa: B027
        """Forget the text, and begin the random numbers anew."""
