"""The probabilities of a question's options for inputs that favour none of them.

Many models prefer some labels whatever the input is. The option prior b is the mean of the options'
probabilities over these inputs, and the probabilities p of an input are divided by it:

.. math:: q_c \\propto p_c / b_c

- the content-free inputs "N/A", "" and "[MASK]" (Zhao et al. 2021, "Calibrate Before Use"),
- everyday sentences about many subjects,
- the description of each option, or its text if it has none. Together they favour no option.

The three groups have the same weight: each alone is worse on some data set. The prior depends on
the model, the question and the prompt, but on no input, so it is computed once for each question
and order of the options, and kept. It costs as many short endings of the prompt as there are
inputs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._lazy import once_for_each
from .prompts import RenderedQuestion
from .scoring import Array, OptionScores, Rule, log_mean, log_softmax

if TYPE_CHECKING:
    from ..session.session import Session

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Content-free inputs (Zhao et al. 2021)."""

EVERYDAY = (
    "The meeting was moved to Tuesday afternoon.",
    "I would like to know more about this.",
    "Thanks, see you tomorrow!",
    "It arrived this morning and everything works.",
    "This is not what I expected at all.",
    "Can you tell me how long it takes?",
    "The new version has three buttons and a small screen.",
    "Please call me back when you have time.",
    "We had dinner at the old place near the river.",
    "Nobody answered the phone for two hours.",
    "The price is 20 dollars per month.",
    "My brother lives in Paris and works as a teacher.",
    "What does this word mean?",
    "Win a free ticket today.",
    "The report is due at the end of the week.",
    "He opened the door and walked in slowly.",
)
"""Sentences that people write every day."""

MOST_OPTIONS = 64
"""A question with more options gets no prior, because it would take too many endings."""

MOST_KNOWN = 512
"""The maximum number of priors that a session keeps."""

LEAST_LOG_PRIOR = -30.0
"""The lower bound of a prior's logarithm, so that no option is multiplied by infinity."""


def inputs_for(asked: RenderedQuestion) -> list[str]:
    """Return the inputs of a question's prior, one group after the other."""
    return [*CONTENT_FREE, *EVERYDAY, *(option.meaning for option in asked.options)]


@dataclass(frozen=True, eq=False)
class OptionPriorScores:
    """Hold the scores of a question's options for the inputs of :func:`inputs_for`."""

    scores: Sequence[OptionScores]

    def log_probabilities(self, rule: Rule) -> Array:
        """Return the logarithm of the prior, shape [n_options]."""
        logs = [log_softmax(each.of(rule)) for each in self.scores]
        ends = (len(CONTENT_FREE), len(CONTENT_FREE) + len(EVERYDAY))
        groups = np.split(np.array(logs), ends)
        bounded: Array = np.maximum(log_mean([log_mean(each) for each in groups]), LEAST_LOG_PRIOR)
        return bounded


class KnownPriors:
    """The priors that a session has computed, the least recently used first. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[Any, OptionPriorScores] = OrderedDict()
        self._lock = threading.Lock()

    @staticmethod
    @once_for_each
    def of(session: Session) -> KnownPriors:
        """Return the priors of a session."""
        return KnownPriors()

    def get(self, key: Any) -> OptionPriorScores | None:
        """Return a prior; None if it is unknown."""
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def put(self, key: Any, prior: OptionPriorScores) -> None:
        """Keep a prior."""
        with self._lock:
            self._known[key] = prior
            while len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
