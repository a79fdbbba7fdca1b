"""Statistics: reduce many measurements to a few figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = Sequence[float] | NDArray[Any]


def mean(values: Values) -> float:
    """Return the mean of one or more values."""
    return float(np.mean(np.asarray(values)))


def median(values: Values) -> float:
    """Return the median of one or more values."""
    return float(np.median(np.asarray(values)))


def percentile(values: Values, percent: float) -> float:
    """Return the given percentile, interpolated linearly between neighbouring values."""
    return float(np.percentile(np.asarray(values), percent))


def quartiles(values: Values) -> tuple[float, float, float]:
    """Return the first quartile, the median and the third quartile."""
    return percentile(values, 25), median(values), percentile(values, 75)


def percentiles(values: Values, name: str) -> dict[str, float]:
    """Return the median and the 99th percentile as a dict with two keys.

    Parameters
    ----------
    name
        The pattern of the keys, such as ``"token_ms_*"``; ``*`` becomes ``p50`` or ``p99``.
    """
    return {name.replace("*", f"p{each}"): percentile(values, each) for each in (50, 99)}


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return ``values[i] / others[i]`` for each round.

    Both values of a ratio come from the same round, so a change in the machine's speed between
    rounds does not affect it. If one sequence is longer, its extra rounds are ignored.
    """
    return [a / b for a, b in zip(values, others, strict=False)]


def median_ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the `ratios` within a round."""
    return median(ratios(values, others))
