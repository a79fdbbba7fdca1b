"""Which decisions may think: only uncertain ones, and at most a share of all."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .._lazy import once_for_each
from ..decisions.answers import Decision, single_answers

if TYPE_CHECKING:
    from ..session.session import Session

MAX_COUNTED = 1000
"""After this many decisions, all counts are halved, so that recent decisions weigh more."""


def certainty(decision: Decision) -> float:
    """Return the lowest probability that a question's most probable answer has."""
    lowest: float = min(max(answer.distribution) for _, answer in single_answers(decision))
    return lowest


class ThinkBudget:
    """Counts decisions, and those that think. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._n_decided = self._n_thought = 0.0

    @staticmethod
    @once_for_each
    def of(session: Session) -> ThinkBudget:
        """Return the budget that all single decisions of a session share."""
        return ThinkBudget()

    def add(self, n_decided: int, n_thought: int) -> None:
        """Count decisions of an earlier run."""
        with self._lock:
            self._n_decided += n_decided
            self._n_thought += n_thought

    def allows(self, is_uncertain: bool, share: float) -> bool:
        """Count a decision, and return whether it thinks.

        At any time, at most this share of the counted decisions thinks.
        """
        with self._lock:
            self._n_decided += 1
            thinks = is_uncertain and self._n_thought + 1 <= share * self._n_decided
            self._n_thought += thinks
            if self._n_decided >= max(MAX_COUNTED, 2 / share if share else 0.0):
                self._n_decided /= 2
                self._n_thought /= 2
            return thinks
