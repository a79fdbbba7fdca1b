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

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._lazy import Recent, once_for_each
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


class OptionPrior:
    """The prior of a question. The first request that needs it sets its `scores`."""

    def __init__(self, asked: RenderedQuestion) -> None:
        self.inputs = [*CONTENT_FREE, *EVERYDAY, *(option.meaning for option in asked.options)]
        self.scores: Sequence[OptionScores] = ()
        self._by_rule: dict[Rule, Array] = {}

    def log_probabilities(self, rule: Rule) -> Array:
        if rule not in self._by_rule:
            logs = np.array([log_softmax(each.of(rule)) for each in self.scores])
            ends = (len(CONTENT_FREE), len(CONTENT_FREE) + len(EVERYDAY))
            log_p = log_mean([log_mean(each) for each in np.split(logs, ends)])
            self._by_rule[rule] = np.maximum(log_p, LEAST_LOG_PRIOR)
        return self._by_rule[rule]


@once_for_each
def known_priors(session: Session) -> Recent[OptionPrior]:
    return Recent(MOST_KNOWN)
