"""How far the answers to recent inputs are from the answers that a calibration was fitted on.

If the inputs change, the guarantees of a calibration no longer hold, and its probabilities may be
wrong. Other answers, or other probabilities, are a sign of that which needs no labels.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..answers import Decision
from ..doubts import most_probable, single_answers
from ..examples import option_names
from .calibration import Calibration, QuestionCalibration

LARGE = 3.0
"""A distance so many times larger than the one by chance is a sign."""

MOST_RECENT = 1000
"""After so many answers to a question its counts are halved, so that recent answers weigh more."""


class RecentAnswers:
    """Counts the answers to the questions of a calibration. Thread-safe.

    With `keeps_all`, all answers count in the same way, however many there are.
    """

    def __init__(self, calibration: Calibration, *, keeps_all: bool = False) -> None:
        self._fitted = calibration.questions
        self._most = math.inf if keeps_all else MOST_RECENT
        self._lock = threading.Lock()
        self._names: tuple[str, ...] = ()
        self._counts = [_Counts(each.n_options) for each in self._fitted]

    def add(self, decision: Decision) -> None:
        names, answers = zip(*single_answers(decision), strict=True)
        with self._lock:
            self._names = names
            for fitted, counts, answer in zip(self._fitted, self._counts, answers, strict=True):
                counts.answers[fitted.values.index(most_probable(answer))] += 1
                counts.probability += max(answer.distribution)
                counts.abstained += answer.abstained
                if counts.answers.sum() >= self._most:
                    counts.halve()

    def drift(self) -> dict[str, dict[str, Any]]:
        """Compare the answers with those that the calibration was fitted on.

        For each question with a single answer, return ``n``, the number of answers; ``fitted`` and
        ``recent``, each with the ``shares`` of the answers and their mean ``probability``; the
        share that ``abstained``; ``distance``, half of the sum of the differences between the
        shares, from 0 to 1; and ``by_chance``, the distance to expect if the inputs have not
        changed.
        """
        with self._lock:
            pairs = zip(self._names, self._fitted, self._counts, strict=False)
            return {name: counts.drift(fitted) for name, fitted, counts in pairs}


class _Counts:
    """The counts of the answers to one question."""

    def __init__(self, n_options: int) -> None:
        self.answers = np.zeros(n_options)
        self.probability = self.abstained = 0.0

    def halve(self) -> None:
        self.answers, self.probability = self.answers / 2, self.probability / 2
        self.abstained /= 2

    def drift(self, fitted: QuestionCalibration) -> dict[str, Any]:
        n = float(self.answers.sum())
        before, now = np.array(fitted.shares), self.answers / n
        together = (before * fitted.n_examples + self.answers) / (fitted.n_examples + n)
        # The mean absolute value of a normal variable is sqrt(2 / pi) standard deviations.
        deviations = np.sqrt(together * (1 - together) * (1 / fitted.n_examples + 1 / n))
        names = option_names(fitted.asked)

        def described(shares: Any, probability: float) -> dict[str, Any]:
            rounded = np.round(shares, 4).tolist()
            return {
                "shares": dict(zip(names, rounded, strict=True)),
                "probability": round(probability, 4),
            }

        return {
            "n": round(n),
            "distance": round(float(abs(before - now).sum()) / 2, 4),
            "by_chance": round(float(deviations.sum()) * math.sqrt(2 / math.pi) / 2, 4),
            "fitted": described(before, fitted.mean_probability),
            "recent": described(now, self.probability / n),
            "abstained": round(self.abstained / n, 4),
        }


def reasons_to_doubt_drift(drift: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each question whose answers differ from the fitted ones."""
    return [
        f"{name}: the answers differ from those that the calibration was fitted on (distance "
        f"{found['distance']:.2f}, by chance {found['by_chance']:.2f}): label some of these "
        "inputs, evaluate, and calibrate again if necessary"
        for name, found in drift.items()
        if found["distance"] > LARGE * found["by_chance"]
    ]
