"""End decisions before all orders of the options are asked.

With several orders, the probabilities of the options are averaged over the orders. After some of
them, the best option is often so far ahead that the others cannot change the answer. The orders are
asked :data:`AT_ONCE` at a time, until the log-probability of the best option exceeds that of the
second one by a margin (:mod:`eliza_ffi.learning.stopping`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..decisions.probabilities import Array
from .scoring import QuestionScores, ScoringRule

if TYPE_CHECKING:
    from .calibration import QuestionCalibration

AT_ONCE = 2
"""The number of orders in a request: the options as given and reversed, or rotations of both."""


def margin_of(log_p: Array) -> Array:
    """Return how much larger the largest value of the last axis is than the second one."""
    second, first = np.sort(log_p, axis=-1)[..., -2:].T
    margin: Array = first - second
    return margin


def has_margin(fitted: QuestionCalibration, log_p: Array) -> bool:
    return fitted.margin is not None and bool(margin_of(log_p) >= fitted.margin)


def applied(fitted: QuestionCalibration, scores: QuestionScores, scoring: ScoringRule) -> Array:
    """Return the calibrated log-probabilities in the orders after which a decision ends."""
    for n in range(AT_ONCE, len(scores.orders), AT_ONCE) if fitted.margin is not None else ():
        log_p = fitted.apply(scores.first(n), scoring)
        if has_margin(fitted, log_p):
            return log_p
    return fitted.apply(scores, scoring)
