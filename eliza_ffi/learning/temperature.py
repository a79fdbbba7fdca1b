"""Temperatures, which make answers less or more confident, fitted to right answers.

References
----------
Guo et al., "On Calibration of Modern Neural Networks", arXiv:1706.04599.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from ..decisions.probabilities import log_softmax, tempered
from ..errors import InvalidArgumentError
from ..evidence.scoring import MAX_TEMPERATURE, MIN_TEMPERATURE

PRIOR_WEIGHT = 1.0
"""The weight of the prior in :func:`fit_temperature`."""

_HALVINGS = 40  # log(20 / 0.05) / 2**40 is 5e-12


def fit_temperature(log_probabilities: ArrayLike, targets: ArrayLike) -> float:
    r"""Fit a temperature to the right answers, shrunk slightly towards 1.

    .. math:: T = \arg\min_T \; -\sum_j \log \mathrm{softmax}(z_j / T)_{y_j}
              + \lambda (1/T - 1 + \log T)

    `log_probabilities` is z, shape [n, n_options]; `targets` has the right options y, shape [n].

    The second term is the prior: 1/T has a gamma distribution with its mode at 1, so that the sum
    is convex in b = 1/T. It has about the weight of one example. Without it, a few examples that
    all happen to be right move T to its lower bound, and the first wrong answer afterwards costs
    far more than the fit gains.

    The slope in b is the sum of E[z] - z_y under softmax(b z), plus 1 - 1/b from the prior. It
    changes its sign once. Bisection is slower than Newton's method, but always converges.
    """
    z = np.asarray(log_probabilities, dtype=np.float64)
    y = np.asarray(targets, dtype=np.intp)
    if not np.isfinite(z).all():
        raise InvalidArgumentError("log_probabilities must be finite; an option has probability 0")
    z = z - z.max(axis=1, keepdims=True)
    rows = np.arange(len(y))
    right = z[rows, y]

    def slope(log_t: float) -> float:
        p = np.exp(log_softmax(z * np.exp(-log_t)))
        of_prior = PRIOR_WEIGHT * (1.0 - np.exp(log_t))
        return float(((p * z).sum(axis=1) - right).sum() + of_prior)

    def loss(temperature: float) -> float:
        of_prior = PRIOR_WEIGHT * (1.0 / temperature - 1.0 + np.log(temperature))
        return float(-tempered(z, temperature)[rows, y].sum() + of_prior)

    low, high = np.log(MIN_TEMPERATURE), np.log(MAX_TEMPERATURE)
    if slope(low) <= 0:
        best = MIN_TEMPERATURE
    elif slope(high) >= 0:
        best = MAX_TEMPERATURE
    else:
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) > 0 else (low, middle)
        best = float(np.exp((low + high) / 2))
    return best if loss(best) < loss(1.0) else 1.0
