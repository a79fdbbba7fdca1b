"""Metrics of answers with probabilities, and the report of a question that contains them.

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
automated         largest coverage at which at most 5 % of the answers are wrong
flips             share of examples whose answer depends on the order
level error       mean of abs(sum over levels i of i p_i - y)
================  ==========================================================  ====================

The functions take arrays of at least one example and do not check them: `answers`, `targets`,
`sure` (the probabilities of the answers) and `right` (whether each answer is right) of shape [n],
and probabilities of shape [n, n_options].

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

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..decisions.probabilities import Array
from ..evidence.certificates import Automation

THRESHOLDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""The probability thresholds of a report's coverage table."""


@dataclass(frozen=True)
class Bin:
    """Summarize the answers whose probability is above `low` and at most `high`.

    The first bin includes `low`. `probability` is the mean of these answers.
    """

    low: float
    high: float
    n: int
    probability: float | None
    accuracy: float | None


@dataclass(frozen=True)
class CoveragePoint:
    """Summarize the answers whose probability is at least a threshold.

    `coverage` is the share of examples with such an answer.
    """

    threshold: float
    coverage: float
    accuracy: float | None


@dataclass(frozen=True)
class CostReport:
    """Summarize the costs of the certified answers; without a risk, of those not for review.

    `mean` is their mean cost, None without such answers, and `most_expected` the highest expected
    cost of a certified answer, None without a certified threshold.
    """

    mean: float | None
    most_expected: float | None


@dataclass(frozen=True)
class SetReport:
    """Summarize sets of options: how many contain the right one, and their mean size."""

    coverage: float
    size: float


@dataclass(frozen=True, kw_only=True)
class OptionReport:
    """Summarize the `n` examples of a right option, for a calibration with a risk.

    `certified` is the share of certified answers, `accuracy` the share of these that is right (None
    if there are none), and `in_set` the share of the sets that contain the option.
    """

    option: str
    n: int
    certified: float
    accuracy: float | None
    in_set: float


@dataclass(frozen=True, eq=False, kw_only=True)
class QuestionReport:
    """Report the quality of the answers to one question, or to all questions together.

    Attributes
    ----------
    name : str
        The name of the question; ``"all"`` for all questions together.
    kind : str
        ``"predicate"``, ``"choice"`` or ``"score"``; ``"all"`` for all questions together. In a
        report of kind ``"all"`` every answer has the same weight, except in `macro_f1`, which is
        the mean over the questions.
    options : tuple of str
        The names of the rows and columns of `confusion`.
    n : int
        The number of evaluated answers.
    accuracy, macro_f1, nll, brier, ece : float
    majority : float
        The accuracy of always giving the most frequent right answer; over all questions, the mean
        weighted by their answers.
    confusion : tuple of tuple of int
        One row for each right option and one column for each answer; empty for all questions
        together.
    flips : float or None
        The proportion of examples whose answer depends on the order of the options. The answers in
        the separate orders are compared, without a calibration. None if only one order was asked.
    level_error : float or None
        For a score, the mean distance between the expected level and the right one, in levels.
        Otherwise None.
    bins : tuple of Bin
        The reliability diagram.
    coverage : tuple of CoveragePoint
    automated : Automation
        How many of the answers could be given without a person.
    certified : CoveragePoint or None
        The answers above the calibration's certified threshold. None without a threshold.
    sets : SetReport or None
        The sets of options. None if the calibration has none.
    by_option : tuple of OptionReport
        For each right option of the examples, how well the certificate and the sets did for it.
        Empty without a calibration that was fitted with a risk.
    costs : CostReport or None
        The costs of the answers. None without a calibration with costs.
    warnings : tuple of str
        What suggests that the prompt does not work; see :mod:`eliza_ffi.evidence.doubts`.
    probabilities : array, shape [n]
        The probability of each answer.
    right : array of bool, shape [n]
        Whether each answer is right.
    """

    name: str
    kind: str
    options: tuple[str, ...]
    n: int
    accuracy: float
    majority: float
    macro_f1: float
    nll: float
    brier: float
    ece: float
    confusion: tuple[tuple[int, ...], ...]
    flips: float | None
    level_error: float | None
    bins: tuple[Bin, ...]
    coverage: tuple[CoveragePoint, ...]
    automated: Automation
    certified: CoveragePoint | None = None
    sets: SetReport | None = None
    by_option: tuple[OptionReport, ...] = ()
    costs: CostReport | None = None
    warnings: tuple[str, ...]
    probabilities: Array = field(repr=False)
    right: NDArray[np.bool_] = field(repr=False)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data, without `probabilities` and `right`."""
        fields = asdict(self)
        del fields["probabilities"], fields["right"]
        return fields


def nll(log_probabilities: ArrayLike, targets: ArrayLike) -> float:
    """Return the mean of -log p of the right options, in nats; 0 is best.

    Logarithms keep small probabilities from being rounded to 0.
    """
    values, y = np.asarray(log_probabilities), np.asarray(targets)
    return float(-values[np.arange(len(y)), y].mean())


def brier(probabilities: ArrayLike, targets: ArrayLike) -> float:
    """Return the Brier score, from 0 (best) to 2 (worst).

    The squared errors are summed over all options, as in Brier's paper. For two options the result
    is twice the result of implementations that count a single option.
    """
    p = np.asarray(probabilities)
    certain = np.eye(p.shape[1])[np.asarray(targets)]
    return float(((p - certain) ** 2).sum(axis=1).mean())


def confusion_matrix(answers: ArrayLike, targets: ArrayLike, n_options: int) -> NDArray[np.intp]:
    """Count the examples for each right option (rows) and answer (columns)."""
    matrix = np.zeros((n_options, n_options), dtype=np.intp)
    np.add.at(matrix, (np.asarray(targets), np.asarray(answers)), 1)
    return matrix


def macro_f1(confusion: ArrayLike) -> float:
    """Return the unweighted mean of the F1 scores of the options in a confusion matrix.

    Options that are neither the right option nor the answer of any example are left out.
    """
    counts = np.asarray(confusion, dtype=np.float64)
    both = counts.sum(axis=0) + counts.sum(axis=1)  # 2 TP + FP + FN
    seen = both > 0
    return float((2.0 * counts.diagonal()[seen] / both[seen]).mean())


def reliability(sure: ArrayLike, right: ArrayLike, bins: int = 10) -> tuple[Bin, ...]:
    """Return the accuracy of answers by their probability, in bins of equal width."""
    sure, hit = np.asarray(sure), np.asarray(right)
    edges = np.arange(bins + 1) / bins
    # Rounding can make a probability slightly larger than 1.
    bin_of = np.clip(np.searchsorted(edges, sure, side="left") - 1, 0, bins - 1)
    found = []
    for b in range(bins):
        inside = bin_of == b
        n = int(inside.sum())
        means = (float(sure[inside].mean()), float(hit[inside].mean())) if n else (None, None)
        found.append(Bin(float(edges[b]), float(edges[b + 1]), n, *means))
    return tuple(found)


def calibration_error(diagram: Sequence[Bin]) -> float:
    """Return the ECE of the bins from :func:`reliability`, weighted with their answers."""
    gaps = (
        each.n * abs(each.accuracy - each.probability)
        for each in diagram
        if each.accuracy is not None and each.probability is not None
    )
    return sum(gaps) / sum(each.n for each in diagram)


def coverage(
    sure: ArrayLike, right: ArrayLike, thresholds: Sequence[float] = THRESHOLDS
) -> tuple[CoveragePoint, ...]:
    """Return coverage and accuracy if answers below each probability threshold are withheld."""
    sure, hit = np.asarray(sure), np.asarray(right)
    order = np.argsort(sure)
    hits_from = np.append(np.cumsum(hit[order][::-1])[::-1], 0.0)
    points = []
    for threshold, start in zip(thresholds, np.searchsorted(sure[order], thresholds), strict=True):
        kept = len(sure) - int(start)
        right_of_kept = float(hits_from[start] / kept) if kept else None
        points.append(CoveragePoint(float(threshold), kept / len(sure), right_of_kept))
    return tuple(points)


def flip_rate(answers: ArrayLike) -> float:
    """Return the share of examples whose answer, shape [n_orders, n], depends on the order."""
    each = np.asarray(answers)
    return float((each != each[0]).any(axis=0).mean())


def level_error(probabilities: ArrayLike, targets: ArrayLike) -> float:
    """Return the mean distance between the expected level and the right level, in levels."""
    p = np.asarray(probabilities)
    return float(np.abs(p @ np.arange(p.shape[1]) - np.asarray(targets)).mean())


def mcnemar(n_gained: int, n_lost: int) -> float:
    """Return the p-value of McNemar's exact test for two classifiers on the same rows, two-sided.

    `n_gained` rows are right only with the second classifier, and `n_lost` only with the first. If
    both have the same accuracy, each of these rows is equally probable to be a gain or a loss
    (McNemar, "Note on the Sampling Error of the Difference between Correlated Proportions or
    Percentages", Psychometrika 12(2), 1947).
    """
    n = n_gained + n_lost
    tail = sum(math.comb(n, k) for k in range(min(n_gained, n_lost) + 1))
    return min(1.0, 2 * tail / (1 << n))
