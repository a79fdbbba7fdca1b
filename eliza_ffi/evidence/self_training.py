"""What inputs without right answers have taught (:mod:`eliza_ffi.learning.self_training`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..checks import check_flag, check_number, check_whole
from ..decisions.probabilities import Array, Floats, tempered
from .heads import Head

MIN_ROWS = 60
"""The minimum number of different inputs to learn from."""


@dataclass(frozen=True, kw_only=True)
class SelfTraining:
    """Hold what a question's rows without right answers have taught.

    Attributes
    ----------
    n_rows : int
        The number of different inputs.
    head : Head or None
        The head, whose log-probabilities are added to the model's own. None if the gate rejected
        it, or if right answers have shown that it is not needed.
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

    n_rows: int
    head: Head | None = None
    agreement: float = 0.0
    own_agreement: float = 0.0
    explained: float = 0.0
    keeps_shares: bool = False
    changed: float = 0.0
    temperature: float = 1.0

    def improved(self, log_p: Array, states: Floats) -> Array:
        """Return log-probabilities with what the rows taught, shape [n, n_options].

        `states` are the features of the head, shape [n, n_embd].
        """
        if self.head is None:
            return log_p
        return tempered(log_p + self.head.log_probabilities(states[None]), self.temperature)

    def __str__(self) -> str:
        if not self.agreement:
            return (
                f"the model's own answers are kept: got {self.n_rows} different rows, but learning "
                f"without right answers needs {MIN_ROWS}, and a choice or a predicate"
            )
        figures = (
            f"heads of two halves of {self.n_rows:,} rows agree on {self.agreement:.1%} of the "
            f"rows, and with the model's own answers on {self.own_agreement:.1%}"
        )
        if self.head is None:
            return f"the model's own answers are kept: {figures}"
        return f"the rows change {self.changed:.1%} of the answers: {figures}"

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        return vars(self) | {"head": None if self.head is None else self.head.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SelfTraining:
        """Read the result of :meth:`to_dict`; raise KeyError if a field is missing."""
        shares = ("agreement", "own_agreement", "changed")
        return cls(
            n_rows=check_whole("n_rows", data["n_rows"], 0),
            head=None if data["head"] is None else Head.from_dict(data["head"]),
            explained=float(check_number("explained", data["explained"], -np.inf, 1)),
            keeps_shares=check_flag("keeps_shares", data["keeps_shares"]),
            temperature=float(check_number("temperature", data["temperature"], 1e-3, 1e3)),
            **{name: float(check_number(name, data[name], 0, 1)) for name in shares},
        )
