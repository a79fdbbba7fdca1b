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

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .._lazy import Recent, once_for_each
from ..decisions.probabilities import log_mean, log_softmax
from .scoring import SCORING_RULES, OptionScores, Prior

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


def measured(scores: Sequence[OptionScores]) -> Prior:
    """Return the prior from the scores of the options for the first of :data:`INPUTS`."""
    prior: Prior = {}
    for scoring in SCORING_RULES[: 1 if scores[0].full is None else None]:
        logs = np.array([log_softmax(each.of(scoring)) for each in scores])
        groups = filter(len, np.split(logs, [len(CONTENT_FREE)]))
        log_p = log_mean([log_mean(each) for each in groups])
        prior[scoring] = np.maximum(log_p, MIN_LOG_PRIOR)
    return prior


@once_for_each
def known_priors(session: Session) -> Recent[Prior]:
    """Return the priors by their questions and settings. A prior is empty before it is measured."""
    return Recent(MAX_KNOWN)
