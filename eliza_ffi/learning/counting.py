r"""Shares of answers among the rows of a table, with intervals.

Let f_i be 1 if the model gives row i an answer, and y_i be 1 if the answer is right. With n labels
of randomly chosen rows, the share of the answer among all N rows is estimated by

.. math:: \lambda \frac1N \sum_i f_i + \frac1n \sum_{labelled} (y_i - \lambda f_i)

This is prediction-powered inference: the labels correct the model's share. The power-tuned
:math:`\lambda = \mathrm{cov}(y, f) / \mathrm{var}(f)`, kept between 0 and 1, makes the variance
smallest, so that a bad model does no harm. The labelled rows are a part of the N rows, so the
variance of the second mean is that of a sample without replacement. The quantile is that of
Student's distribution, by its expansion (Cornish and Fisher). :data:`PSEUDO` keeps an interval from
being empty if the labels happen to have no mistake.

References
----------
Angelopoulos, Bates, Fannjiang, Jordan and Zrnic, "Prediction-Powered Inference", Science 382, 2023.
Angelopoulos, Duchi and Zrnic, "PPI++", arXiv:2311.01453. Cochran, "Sampling Techniques", third
edition, 1977, chapter 7: the regression estimator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from ..checks import check_kind, check_whole, wrong
from ..decisions.answers import given_answer
from ..decisions.examples import read_examples
from ..decisions.probabilities import Array
from ..decisions.questions import MultiLabel, Question
from ..errors import InvalidArgumentError
from ..evidence.certificates import inner_fraction

PSEUDO = 0.5
"""A constant that is added to the sum of squares of the mistakes."""

MIN_LABELS = 10
"""The minimum number of labelled rows of a group for an interval."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """Hold the share of an answer among the rows of a group.

    Attributes
    ----------
    answer, group : value
        The group is None if rows have no groups.
    share : float
        The estimated share of the rows for which the answer is right.
    interval : (float, float) or None
        It contains the share with the given probability, over draws of the labelled rows.
    n_rows, n_labels : int
    reason : str or None
        Why there is no interval. The share is then the model's own, whose error is unknown.
    """

    answer: Any
    group: Any
    share: float
    interval: tuple[float, float] | None
    n_rows: int
    n_labels: int
    reason: str | None = None


def shares_of(
    answers: Sequence[Sequence[Any]],
    options: Sequence[Any],
    labels: Mapping[int, Sequence[Any]] | None = None,
    groups: Sequence[Any] | None = None,
    confidence: float = 0.9,
) -> list[Share]:
    """Return the share of each option among rows, by group.

    `answers` has the answers of the model to each row: one, several labels, or none. `labels` has
    the right answers of randomly chosen rows, by the index of the row.
    """
    confidence = inner_fraction("confidence", confidence)
    labels, n = labels or {}, len(answers)
    places = np.array(sorted(labels), dtype=np.intp)
    if len(places) and not 0 <= places[0] <= places[-1] < n:
        raise wrong("labels", f"indices of the {n} inputs, from 0", int(places[-1]))
    if groups is not None and len(groups) != n:
        raise InvalidArgumentError(
            f"groups: expected one for each of {n} inputs, got {len(groups)}"
        )
    members = np.array([""] * n if groups is None else [str(each) for each in groups])
    found = []
    for group in dict.fromkeys(members.tolist()):
        inside = members == group
        chosen = places[inside[places]]
        for option in options:
            f = np.array([float(option in each) for each in answers])
            y = np.array([float(option in labels[place]) for place in places.tolist()])
            slope = _slope(f[places], y)
            share, half = float(f[inside].mean()), None
            if len(chosen) >= MIN_LABELS:
                rest = y[inside[places]] - slope * f[chosen]
                share = float(slope * f[inside].mean() + rest.mean())
                half = _half(rest, int(inside.sum()), confidence)
            reason = f"{len(chosen)} random labels, at least {MIN_LABELS} are needed"
            found.append(
                Share(
                    answer=option,
                    group=None if groups is None else group,
                    share=min(max(share, 0.0), 1.0),
                    interval=None if half is None else (max(share - half, 0), min(share + half, 1)),
                    n_rows=int(inside.sum()),
                    n_labels=len(chosen),
                    reason=reason if half is None else None,
                )
            )
    return found


def answers_of(answer: Any) -> tuple[Any, ...]:
    """Return the answers that count: those that fit, or the most probable one."""
    return tuple(answer.labels) if hasattr(answer, "labels") else (given_answer(answer),)


def right_answers(question: Question, labels: Mapping[int, Any]) -> dict[int, tuple[Any, ...]]:
    """Return the right answers of labelled rows; None as a label is left out."""
    check_kind("labels", labels, Mapping, "a mapping from indices to right answers")
    every = ((check_whole("an index of labels", each, 0), labels[each]) for each in labels)
    told = [(place, label) for place, label in every if label is not None]
    pairs = [("", label) for _, label in told]
    values = question.values
    rows = read_examples([replace(question, name=None)], pairs).targets.tolist()
    is_many = isinstance(question, MultiLabel)
    return {
        place: tuple(v for v, each in zip(values, row, strict=True) if each == 0)
        if is_many
        else (values[row[0]],)
        for (place, _), row in zip(told, rows, strict=True)
    }


def _slope(f: Array, y: Array) -> float:
    if not len(f) or f.var() == 0:
        return 0.0
    return min(max(float(np.mean((y - y.mean()) * (f - f.mean())) / f.var()), 0.0), 1.0)


def _half(rest: Array, n_rows: int, confidence: float) -> float:
    """Return half of the width of an interval around the mean of a random sample."""
    n = len(rest)
    variance = (np.square(rest - rest.mean()).sum() + PSEUDO) / (n - 1)
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    quantile = z + (z**3 + z) / (4 * (n - 1))
    return float(quantile * np.sqrt(variance / n * (1 - n / n_rows)))
