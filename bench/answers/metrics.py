"""Figures of measured probabilities that `eliza_ffi.learning.metrics` does not have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from eliza_ffi.learning.metrics import nll
from eliza_ffi.learning.thresholds import automation

Probabilities = NDArray[np.float64]
"""The probabilities of all options for each row, shape [n_rows, n_options]."""

BINS = 15
LEAST = 1e-9
"""Smaller probabilities count as this, so that a single answer cannot make the NLL infinite."""


def figures_of(probabilities: Probabilities, targets: Sequence[int]) -> dict[str, Any]:
    """Return accuracy with an interval, NLL, ECE, the ECE of a perfectly calibrated model, and the
    share of the rows that can be automated at 5 % error.
    """
    answers = probabilities.argmax(axis=1)
    sure = probabilities.max(axis=1)
    right = answers == np.asarray(targets)
    return {
        "rows": len(right),
        "accuracy": float(right.mean()),
        "interval": accuracy_interval(right),
        "nll": nll(np.log(np.maximum(probabilities, LEAST)), targets),
        "ece": equal_mass_error(sure, right),
        "calibrated_ece": calibrated_error(sure),
        "automated": automation(sure, right).share,
    }


def accuracy_interval(right: NDArray[np.bool_], n_samples: int = 10_000) -> tuple[float, float]:
    """Return the 95 % interval of an accuracy, by the bootstrap over rows."""
    # A bootstrap sample of n rows has a binomial number of right answers.
    n_right = np.random.default_rng(0).binomial(len(right), right.mean(), n_samples)
    low, high = np.percentile(n_right / len(right), [2.5, 97.5])
    return float(low), float(high)


def equal_mass_error(
    sure: NDArray[np.float64],  # the probabilities of the answers
    right: NDArray[np.bool_],  # whether each answer is right
) -> float:
    """Return the ECE with `BINS` bins that have the same number of answers."""
    order = np.argsort(sure, kind="stable")
    gaps = sure[order] - right[order]
    return float(sum(abs(part.sum()) for part in np.array_split(gaps, BINS)) / len(gaps))


def calibrated_error(sure: NDArray[np.float64], n_samples: int = 200) -> float:
    """Return the mean ECE if every answer were right with exactly its probability.

    With few rows, the ECE of such a model is far from 0. Only the difference to it is an error.
    """
    draws = np.random.default_rng(0).random((n_samples, len(sure)))
    return float(np.mean([equal_mass_error(sure, draw < sure) for draw in draws]))
