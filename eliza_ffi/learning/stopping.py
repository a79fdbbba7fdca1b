"""Find the margin at which decisions end early (:mod:`eliza_ffi.evidence.stopping`).

:func:`stop_margin` finds the margin from inputs for which all orders were asked. It needs no right
answers. It tests a fixed list of margins, from high to low: the Clopper-Pearson upper bound of the
share of answers that differ from those in all orders must be at most the given share. It ends at
the first margin for which it is not, so that all tests together keep the confidence ("fixed
sequence"; see :mod:`.thresholds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..decisions.probabilities import Array
from ..evidence.scoring import QuestionScores, ScoringRule
from ..evidence.stopping import AT_ONCE, margin_of
from .thresholds import is_bounded

if TYPE_CHECKING:
    from ..evidence.calibration import QuestionCalibration

MARGINS = tuple(10.0 - 0.25 * i for i in range(40))
"""The margins that are tested, in this order."""


def stop_margin(
    fitted: QuestionCalibration,
    scores: Sequence[QuestionScores],
    scoring: ScoringRule,
    max_flips: float,
    confidence: float,
) -> float | None:
    """Return the lowest margin that keeps `max_flips`; None if there is none.

    `scores` has the scores of each input in all orders. `max_flips` is the largest share of answers
    that may differ from the answers in all orders.
    """
    n_orders = min((len(each.orders) for each in scores), default=0)
    if n_orders <= AT_ONCE:
        return None

    def after(n: int) -> Array:
        return np.array([fitted.apply(each.first(n), scoring) for each in scores])

    # Shape [n_stages, n]; after the last stage, every decision ends.
    stages = [after(n) for n in range(AT_ONCE, n_orders, AT_ONCE)] + [after(n_orders)]
    answers = np.array([each.argmax(axis=1) for each in stages])
    margins = np.array([margin_of(each) for each in stages])
    margins[-1] = np.inf
    found = None
    for margin in MARGINS:
        ends = (margins >= margin).argmax(axis=0)
        n_flips = int((answers[ends, range(len(scores))] != answers[-1]).sum())
        if not is_bounded(n_flips, len(scores), max_flips, 1 - confidence):
            break
        found = margin
    return found
