"""How good answers with probabilities are.

Of n examples, k options, probabilities p and right options y; an example's answer is its likeliest
option (of several the first), its probability that option's:

================  ==========================================================  ====================
metric            formula                                                     source
================  ==========================================================  ====================
accuracy          share of examples whose answer is right
macro-F1          mean over options of 2 TP / (2 TP + FP + FN)                Opitz and Burst 2019
NLL               mean of -log p_y
Brier             mean of the sum over options c of (p_c - [c = y])^2         Brier 1950
ECE               sum over bins b of n_b / n abs(accuracy_b - p_b)            Naeini et al. 2015
coverage          share of examples whose answer has a probability of t on    Geifman, El-Yaniv 2017
flips             share of examples not answered alike in all orders
level error       mean of abs(sum over levels i of i p_i - y)
================  ==========================================================  ====================

All are pure functions on arrays.

References
----------
Opitz and Burst, "Macro F1 and Macro F1", arXiv:1911.03347, the mean of the F1. Brier, "Verification
of forecasts expressed in terms of probability", Monthly Weather Review 78(1), 1950. Naeini, Cooper
and Hauskrecht, "Obtaining Well Calibrated Probabilities Using Bayesian Binning", AAAI 2015; with 10
bins of one width as Guo et al., arXiv:1706.04599, draw it. Geifman and El-Yaniv, "Selective
Classification for Deep Neural Networks", arXiv:1705.08500.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidArgumentError

__all__ = [
    "THRESHOLDS",
    "Bin",
    "CoveragePoint",
    "accuracy",
    "brier",
    "calibration_error",
    "confusion_matrix",
    "coverage",
    "flip_rate",
    "level_error",
    "macro_f1",
    "nll",
    "reliability",
]

THRESHOLDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Probabilities below which one may want to abstain."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Bin:
    """The answers whose probability lies in an interval.

    Attributes
    ----------
    low, high : float
        The interval, without `low` but in the first bin, and with `high`.
    n : int
    probability, accuracy : float or None
        Means over these answers; None where there are none.
    """

    low: float
    high: float
    n: int
    probability: float | None
    accuracy: float | None


@dataclass(frozen=True)
class CoveragePoint:
    """What answering only from some probability on comes to.

    Attributes
    ----------
    threshold : float
    coverage : float
        The share of examples that are still answered.
    accuracy : float or None
        The share of these that are answered right; None where there are none.
    """

    threshold: float
    coverage: float
    accuracy: float | None


def accuracy(answers: ArrayLike, targets: ArrayLike) -> float:
    """Return the share of answers that are right.

    Parameters
    ----------
    answers, targets
        Shape [n].
    """
    given, y = np.asarray(answers), np.asarray(targets)
    if given.ndim != 1 or given.shape != y.shape or not len(y):
        raise InvalidArgumentError(f"shapes {given.shape} and {y.shape} are no answers and targets")
    return float((given == y).mean())


def nll(log_probabilities: ArrayLike, targets: ArrayLike) -> float:
    """Return the mean of -log p of the right options, in nats; 0 is best.

    Parameters
    ----------
    log_probabilities
        Shape [n, n_options]. Logarithms, so that no small probability is rounded to nothing.
    targets
        Shape [n].
    """
    values, y = _checked(log_probabilities, targets)
    return float(-values[np.arange(len(y)), y].mean())


def brier(probabilities: ArrayLike, targets: ArrayLike) -> float:
    """Return the mean squared distance to certainty of the right option: 0 is best, 2 worst.

    Summed over all options, as Brier did: of two options it is twice what some others return.

    Parameters
    ----------
    probabilities
        Shape [n, n_options].
    targets
        Shape [n].
    """
    p, y = _checked(probabilities, targets)
    certain = np.eye(p.shape[1])[y]
    return float(((p - certain) ** 2).sum(axis=1).mean())


def confusion_matrix(answers: ArrayLike, targets: ArrayLike, n_options: int) -> NDArray[np.intp]:
    """Return how often each option was answered where each was right.

    Parameters
    ----------
    answers, targets
        Shape [n].
    n_options

    Returns
    -------
    array, shape [n_options, n_options]
        A row for what is right, a column for what was answered.
    """
    pairs = np.asarray(targets, dtype=np.intp) * n_options + np.asarray(answers, dtype=np.intp)
    counts = np.bincount(pairs.ravel(), minlength=n_options * n_options)
    matrix: NDArray[np.intp] = counts.reshape(n_options, n_options)
    return matrix


def macro_f1(confusion: ArrayLike) -> float:
    """Return the mean of the options' F1, each counted alike however rare it is.

    Options that are neither right nor answered anywhere are left out.

    Parameters
    ----------
    confusion
        As of :func:`confusion_matrix`, not all 0.
    """
    counts = np.asarray(confusion, dtype=np.float64)
    both = counts.sum(axis=0) + counts.sum(axis=1)  # 2 TP + FP + FN
    if not both.any():
        raise InvalidArgumentError("no examples, no F1")
    seen = both > 0
    return float((2.0 * counts.diagonal()[seen] / both[seen]).mean())


def reliability(probabilities: ArrayLike, right: ArrayLike, bins: int = 10) -> tuple[Bin, ...]:
    """Return how often answers are right by how sure they are.

    Parameters
    ----------
    probabilities
        Of the answers, shape [n], 0 to 1.
    right
        Which of them are right, shape [n].
    bins
        How many intervals of one width.
    """
    sure, hit = _answers(probabilities, right)
    if bins < 1:
        raise InvalidArgumentError(f"there must be 1 bin or more, not {bins}")
    edges = np.arange(bins + 1) / bins
    # Rounding may leave a sure answer a little above 1.
    place = np.clip(np.searchsorted(edges, sure, side="left") - 1, 0, bins - 1)
    n = np.bincount(place, minlength=bins)
    sums = [np.bincount(place, weights=values, minlength=bins) for values in (sure, hit)]
    return tuple(
        Bin(
            float(edges[b]),
            float(edges[b + 1]),
            int(n[b]),
            *(float(total[b] / n[b]) if n[b] else None for total in sums),
        )
        for b in range(bins)
    )


def calibration_error(diagram: Sequence[Bin]) -> float:
    """Return the ECE: the mean gap between how sure and how right answers are, over all examples.

    Parameters
    ----------
    diagram
        As of :func:`reliability`.
    """
    n = sum(each.n for each in diagram)
    if not n:
        raise InvalidArgumentError("no examples, no calibration error")
    gaps = (
        each.n * abs(each.accuracy - each.probability)
        for each in diagram
        if each.accuracy is not None and each.probability is not None
    )
    return sum(gaps) / n


def coverage(
    probabilities: ArrayLike, right: ArrayLike, thresholds: Sequence[float] = THRESHOLDS
) -> tuple[CoveragePoint, ...]:
    """Return what is answered, and how well, where unsure answers are withheld.

    Parameters
    ----------
    probabilities, right
        As of :func:`reliability`.
    thresholds
        What is as sure as that is answered.
    """
    sure, hit = _answers(probabilities, right)
    order = np.argsort(sure)
    hits_from = np.append(np.cumsum(hit[order][::-1])[::-1], 0.0)
    points = []
    for threshold, place in zip(thresholds, np.searchsorted(sure[order], thresholds), strict=True):
        kept = len(sure) - int(place)
        right_of_kept = float(hits_from[place] / kept) if kept else None
        points.append(CoveragePoint(float(threshold), kept / len(sure), right_of_kept))
    return tuple(points)


def flip_rate(answers: ArrayLike) -> float:
    """Return the share of examples that are not answered alike in all orders of the options.

    Parameters
    ----------
    answers
        Shape [n_orders, n]: which option was answered, named alike in all orders.
    """
    each = np.asarray(answers)
    if each.ndim != 2 or not each.size:
        raise InvalidArgumentError(f"answers of shape {each.shape} are none in several orders")
    return float((each != each[0]).any(axis=0).mean())


def level_error(probabilities: ArrayLike, targets: ArrayLike) -> float:
    """Return the mean distance between the expected level of a scale and the right one, in levels.

    Parameters
    ----------
    probabilities
        Shape [n, n_levels].
    targets
        Shape [n].
    """
    p, y = _checked(probabilities, targets)
    return float(np.abs(p @ np.arange(p.shape[1]) - y).mean())


def _checked(values: ArrayLike, targets: ArrayLike) -> tuple[Array, NDArray[np.intp]]:
    p, y = np.asarray(values, dtype=np.float64), np.asarray(targets, dtype=np.intp)
    if p.ndim != 2 or y.shape != p.shape[:1] or not len(y):
        raise InvalidArgumentError(
            f"shapes {p.shape} and {y.shape} are no probabilities and targets"
        )
    if not ((y >= 0) & (y < p.shape[1])).all():
        raise InvalidArgumentError(f"a target is none of {p.shape[1]} options")
    return p, y


def _answers(probabilities: ArrayLike, right: ArrayLike) -> tuple[Array, Array]:
    sure, hit = (np.asarray(values, dtype=np.float64) for values in (probabilities, right))
    if sure.ndim != 1 or sure.shape != hit.shape or not len(sure):
        raise InvalidArgumentError(
            f"shapes {sure.shape} and {hit.shape} are no probabilities and answers"
        )
    return sure, hit
