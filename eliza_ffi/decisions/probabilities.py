"""Formulas for probabilities, which are given and returned as natural logarithms.

References
----------
Zhao et al., "Calibrate Before Use: Improving Few-Shot Performance of Language
Models", arXiv:2102.09690. Zhou et al., "Batch Calibration: Rethinking Calibration for In-Context
Learning and Prompt Engineering", arXiv:2309.17249. Guo et al., "On Calibration of Modern Neural
Networks", arXiv:1706.04599.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidArgumentError

Array = NDArray[np.float64]
Floats = NDArray[np.float32]


def log_softmax(scores: ArrayLike) -> Array:
    """Shift scores so that their exponentials sum to 1 over the last axis."""
    values = np.asarray(scores, dtype=np.float64)
    highest = values.max(axis=-1, keepdims=True)
    if not np.isfinite(highest).all():
        raise InvalidArgumentError("the highest score of the options must be finite")
    shifted = values - highest
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def log_mean(log_probabilities: ArrayLike) -> Array:
    """Return the logarithm of the mean of probabilities over the first axis."""
    values = np.asarray(log_probabilities, dtype=np.float64)
    if not len(values):
        raise InvalidArgumentError("log_probabilities must have at least one row, got none")
    result: Array = np.logaddexp.reduce(values, axis=0) - np.log(len(values))
    return result


def relative_to(log_probabilities: ArrayLike, log_baseline: ArrayLike) -> Array:
    r"""Divide probabilities, shape [..., n_options], by a baseline, shape [n_options].

    .. math:: q_c \propto p_c / b_c

    If b is the mean over neutral inputs, it is a prior of the options (Zhao et al. 2021). If b is
    the mean over a batch of inputs, this is batch calibration (Zhou et al. 2023).
    """
    baseline = np.asarray(log_baseline, dtype=np.float64)
    if not np.isfinite(baseline).all():
        raise InvalidArgumentError("log_baseline must be finite; an option has probability 0")
    return log_softmax(np.asarray(log_probabilities, dtype=np.float64) - baseline)


def tempered(log_probabilities: ArrayLike, temperature: float) -> Array:
    """Return the logarithms of softmax(z / T) over the last axis (Guo et al. 2017).

    A temperature T above 1 makes answers less confident, below 1 more confident. The order of the
    options does not change.
    """
    if not (temperature > 0 and np.isfinite(temperature)):
        raise InvalidArgumentError(
            f"the temperature must be a finite number above 0, got {temperature!r}"
        )
    return log_softmax(np.asarray(log_probabilities, dtype=np.float64) / temperature)


def adjusted(log_p: ArrayLike, log_baseline: ArrayLike | None, temperature: float = 1.0) -> Array:
    """Divide probabilities by a baseline, if there is one, and apply a temperature."""
    values = log_p if log_baseline is None else relative_to(log_p, log_baseline)
    return tempered(values, temperature)
