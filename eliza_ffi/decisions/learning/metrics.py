"""Metrics of answers with probabilities.

In the formulas, n is the number of examples, p the probabilities of the options, y the right
option, and t a threshold. The answer to an example is its most probable option, the first one in a
tie. The probability of the answer is the probability of that option.

================  ==========================================================  ====================
metric            formula                                                     source
================  ==========================================================  ====================
accuracy          share of examples whose answer is right
macro-F1          mean over options of 2 TP / (2 TP + FP + FN)                Opitz and Burst 2019
NLL               mean of -log p_y
Brier             mean of the sum over options c of (p_c - [c = y])^2         Brier 1950
ECE               sum over bins b of n_b / n abs(accuracy_b - p_b)            Naeini et al. 2015
coverage          share of examples whose answer has a probability >= t       Geifman, El-Yaniv 2017
flips             share of examples whose answer depends on the order
level error       mean of abs(sum over levels i of i p_i - y)
================  ==========================================================  ====================

All functions are pure functions on arrays with at least one example. They do not check their
arguments.

References
----------
Opitz and Burst, "Macro F1 and Macro F1", arXiv:1911.03347: the variant that is the mean of the F1
scores. Brier, "Verification of forecasts expressed in terms of probability", Monthly Weather Review
78(1), 1950. Naeini, Cooper and Hauskrecht, "Obtaining Well Calibrated Probabilities Using Bayesian
Binning", AAAI 2015; by default with 10 bins of equal width, as in the diagrams of Guo et al.,
arXiv:1706.04599. Geifman and El-Yaniv, "Selective Classification for Deep Neural Networks",
arXiv:1705.08500.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
"""The probability thresholds of a report's coverage table."""


@dataclass(frozen=True)
class Bin:
    """Summarize the answers whose probability is in an interval.

    Attributes
    ----------
    low, high : float
        The interval. It includes `high`; only the first bin includes `low`.
    n : int
        The number of answers.
    probability, accuracy : float or None
        The mean probability and the accuracy of these answers; None without answers.
    """

    low: float
    high: float
    n: int
    probability: float | None
    accuracy: float | None


@dataclass(frozen=True)
class CoveragePoint:
    """Summarize the answers whose probability is at least a threshold.

    Attributes
    ----------
    threshold : float
    coverage : float
        The share of examples with such an answer.
    accuracy : float or None
        The accuracy of these answers; None without answers.
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
    return float((np.asarray(answers) == np.asarray(targets)).mean())


def nll(log_probabilities: ArrayLike, targets: ArrayLike) -> float:
    """Return the mean of -log p of the right options, in nats; 0 is best.

    Parameters
    ----------
    log_probabilities
        Shape [n, n_options]. Logarithms keep small probabilities from being rounded to 0.
    targets
        Shape [n].
    """
    values, y = np.asarray(log_probabilities), np.asarray(targets)
    return float(-values[np.arange(len(y)), y].mean())


def brier(probabilities: ArrayLike, targets: ArrayLike) -> float:
    """Return the Brier score, from 0 (best) to 2 (worst).

    The squared errors are summed over all options, as in Brier's paper. For two options the result
    is twice the result of implementations that count a single option.

    Parameters
    ----------
    probabilities
        Shape [n, n_options].
    targets
        Shape [n].
    """
    p = np.asarray(probabilities)
    certain = np.eye(p.shape[1])[np.asarray(targets)]
    return float(((p - certain) ** 2).sum(axis=1).mean())


def confusion_matrix(answers: ArrayLike, targets: ArrayLike, n_options: int) -> NDArray[np.intp]:
    """Count the examples for each pair of a right option and an answer.

    Parameters
    ----------
    answers, targets
        Shape [n].

    Returns
    -------
    array, shape [n_options, n_options]
        One row for each right option and one column for each answer.
    """
    pairs = np.asarray(targets, dtype=np.intp) * n_options + np.asarray(answers, dtype=np.intp)
    counts = np.bincount(pairs.ravel(), minlength=n_options * n_options)
    matrix: NDArray[np.intp] = counts.reshape(n_options, n_options)
    return matrix


def macro_f1(confusion: ArrayLike) -> float:
    """Return the unweighted mean of the F1 scores of the options.

    Options that are neither the right option nor the answer of any example are left out.

    Parameters
    ----------
    confusion
        A matrix from :func:`confusion_matrix` with at least one example.
    """
    counts = np.asarray(confusion, dtype=np.float64)
    both = counts.sum(axis=0) + counts.sum(axis=1)  # 2 TP + FP + FN
    seen = both > 0
    return float((2.0 * counts.diagonal()[seen] / both[seen]).mean())


def reliability(probabilities: ArrayLike, right: ArrayLike, bins: int = 10) -> tuple[Bin, ...]:
    """Return the accuracy of answers by their probability, in bins of equal width.

    Parameters
    ----------
    probabilities
        The probabilities of the answers, 0 to 1, shape [n].
    right
        Whether each answer is right, shape [n].
    bins
        The number of bins.
    """
    sure, hit = np.asarray(probabilities), np.asarray(right)
    edges = np.arange(bins + 1) / bins
    # Rounding can make a probability slightly larger than 1.
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
    """Return the ECE: the mean absolute difference between probability and accuracy of a bin.

    Each bin is weighted with its number of answers.

    Parameters
    ----------
    diagram
        The bins from :func:`reliability`.
    """
    gaps = (
        each.n * abs(each.accuracy - each.probability)
        for each in diagram
        if each.accuracy is not None and each.probability is not None
    )
    return sum(gaps) / sum(each.n for each in diagram)


def coverage(
    probabilities: ArrayLike, right: ArrayLike, thresholds: Sequence[float] = THRESHOLDS
) -> tuple[CoveragePoint, ...]:
    """Return coverage and accuracy if answers below a probability threshold are withheld.

    Parameters
    ----------
    probabilities, right
        As in :func:`reliability`.
    thresholds
        For each threshold, one point is returned. Answers below the threshold are withheld.
    """
    sure, hit = np.asarray(probabilities), np.asarray(right)
    order = np.argsort(sure)
    hits_from = np.append(np.cumsum(hit[order][::-1])[::-1], 0.0)
    points = []
    for threshold, place in zip(thresholds, np.searchsorted(sure[order], thresholds), strict=True):
        kept = len(sure) - int(place)
        right_of_kept = float(hits_from[place] / kept) if kept else None
        points.append(CoveragePoint(float(threshold), kept / len(sure), right_of_kept))
    return tuple(points)


def flip_rate(answers: ArrayLike) -> float:
    """Return the share of examples whose answer depends on the order of the options.

    Parameters
    ----------
    answers
        The answer in each order, shape [n_orders, n]. An option has the same index in all orders.
    """
    each = np.asarray(answers)
    return float((each != each[0]).any(axis=0).mean())


def level_error(probabilities: ArrayLike, targets: ArrayLike) -> float:
    """Return the mean distance between the expected level and the right level, in levels.

    Parameters
    ----------
    probabilities
        Shape [n, n_levels].
    targets
        Shape [n].
    """
    p = np.asarray(probabilities)
    return float(np.abs(p @ np.arange(p.shape[1]) - np.asarray(targets)).mean())
