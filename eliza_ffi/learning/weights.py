r"""Weights of several sources of evidence, fitted to labelled examples.

.. math:: \log p_k \propto b_k + \sum_s w_s z_{sk}

z are the log-probabilities of a source, w its weight, and b a constant for each option. This is
multinomial logistic regression with few parameters. They are penalized as if they had normal
distributions around the default weights and around 0 (ridge regression; Hastie, Tibshirani and
Friedman, "The Elements of Statistical Learning", second edition, 2009, sections 4.4 and 3.4.1), so
that a few examples change them little. The sum is convex, and is minimized by Newton's method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..decisions.probabilities import Array, log_softmax

WEIGHT_DEVIATION, CONSTANT_DEVIATION = 0.5, 1.0
"""The standard deviations of the weights and of the constants before the examples are seen."""

MAX_WEIGHTED_OPTIONS = 255
"""With more options, the default weights are kept, because each option has a constant to fit."""

MAX_STEPS = 50
TOLERANCE = 1e-8


def fit_weights(
    sources: Array,
    targets: NDArray[np.intp],
    start: ArrayLike,
    spread: ArrayLike = WEIGHT_DEVIATION,
) -> tuple[Array, Array]:
    """Return the weights, shape [n_sources], and the constants, shape [n_options].

    `sources` has log-probabilities, shape [n_sources, n, n_options], and `targets` the right
    options, shape [n]. `start` has the default weights, and `spread` the standard deviations of the
    weights before the examples are seen.
    """
    n_sources, n, n_options = sources.shape
    center = np.concatenate([start, np.zeros(n_options)])
    if n_options > MAX_WEIGHTED_OPTIONS:
        return center[:n_sources], center[n_sources:]
    constants = np.full(n_options, CONSTANT_DEVIATION)
    deviations = np.concatenate([np.broadcast_to(spread, n_sources), constants])
    precision = 1 / np.square(deviations)
    member = np.eye(n_options)[targets]

    def log_p(values: Array) -> Array:
        weighted: Array = np.tensordot(values[:n_sources], sources, 1)
        return log_softmax(weighted + values[n_sources:])

    def loss(values: Array) -> float:
        penalty = 0.5 * float(precision @ np.square(values - center))
        return float(-log_p(values)[range(n), targets].sum()) + penalty

    values, current = center, loss(center)
    for _ in range(MAX_STEPS):
        p = np.exp(log_p(values))
        error = p - member
        slope = np.concatenate([np.tensordot(sources, error, 2), error.sum(axis=0)])
        slope += precision * (values - center)
        deviation = sources - (p * sources).sum(axis=-1, keepdims=True)
        of_weights = np.einsum("nk,snk,tnk->st", p, sources, deviation)
        mixed = np.einsum("nk,snk->sk", p, deviation)
        of_constants = np.diag(p.sum(axis=0)) - p.T @ p
        curvature = np.block([[of_weights, mixed], [mixed.T, of_constants]])
        step = np.linalg.solve(curvature + np.diag(precision), slope)
        size = 1.0
        while (reached := loss(values - size * step)) > current and size > TOLERANCE:
            size /= 2
        if reached > current:
            break
        values, current = values - size * step, reached
        if np.abs(step).max() < TOLERANCE:
            break
    return values[:n_sources], values[n_sources:]
