"""Results of learning from unlabelled inputs (:mod:`eliza_ffi.learning.self_training`)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from ..decisions.probabilities import Array, Floats, tempered
from .heads import Head
from .json_fields import Count, JsonFields, Share

MIN_ROWS = 60
"""The minimum number of different inputs to learn from."""


@dataclass(frozen=True, kw_only=True)
class SelfTraining(JsonFields):
    """Hold the result of learning from unlabelled rows, for one question.

    Attributes
    ----------
    n_rows : int
        The number of different inputs.
    head : Head or None
        The head, whose log-probabilities are added to the model's own. None if the checks rejected
        the head, or if labelled examples have shown that it is not needed.
    agreement : float
        The share of the rows for which heads of two halves of the rows give the same answer.
    own_agreement : float
        The mean share of the rows for which such a head gives the model's own answer.
    explained : float
        How well such a head alone predicts the own answers of the other half: 1 is always, 0 is as
        well as the most frequent answer. It can be negative.
    keeps_shares : bool
        Whether the head keeps the shares of the model's own answers.
    changed : float
        The share of the rows whose answer the head changes.
    temperature : float
        The sum of both log-probabilities is divided by this.
    """

    n_rows: Count
    head: Head | None = None
    agreement: Share = 0.0
    own_agreement: Share = 0.0
    explained: Annotated[float, (-math.inf, 1.0)] = 0.0
    keeps_shares: bool = False
    changed: Share = 0.0
    temperature: Annotated[float, (1e-3, 1e3)] = 1.0

    def improved(self, log_p: Array, states: Floats) -> Array:
        """Return log-probabilities that are improved by the head, shape [n, n_options].

        `states` are the features of the head, shape [n, n_embd].
        """
        if self.head is None:
            return log_p
        return tempered(log_p + self.head.log_probabilities(states[None]), self.temperature)

    def __str__(self) -> str:
        if not self.agreement:
            return (
                f"the model's own answers are kept: got {self.n_rows} different rows, but learning "
                f"without labels needs {MIN_ROWS}, and a choice or a predicate"
            )
        figures = (
            f"heads of two halves of {self.n_rows:,} rows agree on {self.agreement:.1%} of the "
            f"rows, and with the model's own answers on {self.own_agreement:.1%}"
        )
        if self.head is None:
            return f"the model's own answers are kept: {figures}"
        return f"the rows change {self.changed:.1%} of the answers: {figures}"
