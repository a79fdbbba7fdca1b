r"""End decisions before all orders of the options are asked.

With several orders, the probabilities of the options are averaged over the orders. After some of
them, the best option is often so far ahead that the others cannot change the answer. The orders are
asked :data:`AT_ONCE` at a time, until the log-probability of the best option exceeds that of the
second one by a margin.

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

from ..scoring import Array, QuestionScores, Rule
from .thresholds import is_bounded

if TYPE_CHECKING:
    from .calibration import QuestionCalibration

AT_ONCE = 2
"""The number of orders in a request: the options as given and reversed, or rotations of both."""

MARGINS = tuple(10.0 - 0.25 * i for i in range(40))
"""The margins that are tested, in this order."""


def stop_margin(
    fitted: QuestionCalibration,
    scores: Sequence[QuestionScores],
    rule: Rule,
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
        return np.array([fitted.apply(each.first(n), rule) for each in scores])

    # Shape [n_stages, n]; after the last stage, every decision ends.
    stages = [after(n) for n in range(AT_ONCE, n_orders, AT_ONCE)] + [after(n_orders)]
    answers = np.array([each.argmax(axis=1) for each in stages])
    margins = np.array([_margin(each) for each in stages])
    margins[-1] = np.inf
    found = None
    for margin in MARGINS:
        ends = (margins >= margin).argmax(axis=0)
        n_flips = int((answers[ends, range(len(scores))] != answers[-1]).sum())
        if not is_bounded(n_flips, len(scores), max_flips, 1 - confidence):
            break
        found = margin
    return found


def _margin(log_p: Array) -> Array:
    """Return how much larger the largest value of the last axis is than the second one."""
    second, first = np.sort(log_p, axis=-1)[..., -2:].T
    margin: Array = first - second
    return margin


def has_margin(fitted: QuestionCalibration, log_p: Array) -> bool:
    return fitted.margin is not None and bool(_margin(log_p) >= fitted.margin)


def applied(fitted: QuestionCalibration, scores: QuestionScores, rule: Rule) -> Array:
    """Return the calibrated log-probabilities in the orders after which a decision ends."""
    for n in range(AT_ONCE, len(scores.orders), AT_ONCE) if fitted.margin is not None else ():
        log_p = fitted.apply(scores.first(n), rule)
        if has_margin(fitted, log_p):
            return log_p
    return fitted.apply(scores, rule)
