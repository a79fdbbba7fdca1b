"""The probabilities of a question's options for inputs that favour none of them.

Many models prefer some labels whatever the input is. The option prior b is the mean of the options'
probabilities over these inputs, and the probabilities p of an input are divided by it:

.. math:: q_c \\propto p_c / b_c

- the content-free inputs "N/A", "" and "[MASK]" (Zhao et al. 2021, "Calibrate Before Use"),
- everyday sentences about many subjects, if the options have only their names.

Both groups have the same weight. If the words of the descriptions are answers, too, the mean over
all answers of an option varies little, and the sentences did not make the prior more accurate. The
prior depends on the model, the question and the prompt, but on no input, so it is computed once for
each question and order of the options, and kept, also for later processes (:mod:`.measurements`).
It costs as many short endings of the prompt as there are inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._lazy import Recent, once_for_each
from ..decisions.probabilities import Array, log_mean, log_softmax
from .scoring import SCORING_RULES, OptionScores, ScoringRule

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
)
"""Sentences that people write every day."""

INPUTS = (*CONTENT_FREE, *EVERYDAY)
"""The inputs that favour no option. If the options have several answers, only the first ones."""

MAX_OPTIONS = 10
"""A question with more options gets no prior, because the gain is small."""

MAX_KNOWN = 512
"""The maximum number of priors that a session keeps."""

MIN_LOG_PRIOR = -30.0
"""The lower bound of a prior's logarithm, so that no option is multiplied by infinity."""


class OptionPrior:
    """The prior of a question, unknown at first.

    Attributes
    ----------
    numbers : dict of array
        The logarithm of the prior for each scoring rule that was measured.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, Array] = {}

    def measure(self, scores: Sequence[OptionScores]) -> None:
        """Compute the prior from the scores of the options for the first of :data:`INPUTS`."""
        for scoring in SCORING_RULES[: 1 if scores[0].full is None else None]:
            logs = np.array([log_softmax(each.of(scoring)) for each in scores])
            groups = filter(len, np.split(logs, [len(CONTENT_FREE)]))
            log_p = log_mean([log_mean(each) for each in groups])
            self.numbers[scoring] = np.maximum(log_p, MIN_LOG_PRIOR)

    def log_probabilities(self, scoring: ScoringRule) -> Array:
        return self.numbers[scoring]


def mean_of(priors: Iterable[OptionPrior]) -> OptionPrior:
    """Return the mean of the measured priors of questions with the same options."""
    mean, numbers = OptionPrior(), [each.numbers for each in priors]
    mean.numbers = {rule: log_mean([each[rule] for each in numbers]) for rule in numbers[0]}
    return mean


@once_for_each
def known_priors(session: Session) -> Recent[OptionPrior]:
    return Recent(MAX_KNOWN)
