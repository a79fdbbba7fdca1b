"""Many measurements as a few figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["mean", "median", "median_ratio", "percentile", "percentiles", "quartiles"]


Values = Sequence[float] | NDArray[Any]


def mean(values: Values) -> float:
    """Return the mean of at least one value."""
    return float(np.mean(np.asarray(values)))


def median(values: Values) -> float:
    """Return the median of at least one value."""
    return float(np.median(np.asarray(values)))


def percentile(values: Values, percent: float) -> float:
    """Return the value that so many per cent are not above, between two of them if need be."""
    return float(np.percentile(np.asarray(values), percent))


def quartiles(values: Values) -> tuple[float, float, float]:
    """Return the first quartile, the median and the third."""
    return percentile(values, 25), median(values), percentile(values, 75)


def percentiles(values: Values, name: str) -> dict[str, float]:
    """Return median and 99th percentile, by the name that their columns have.

    Parameters
    ----------
    values
    name
        With a ``*`` where ``p50`` or ``p99`` stands, such as ``"token_ms_*"``.
    """
    return {name.replace("*", f"p{each}"): percentile(values, each) for each in (50, 99)}


def median_ratio(values: Sequence[float], others: Sequence[float]) -> float:
    """Return the median of the ratios within a round, in which nothing else has changed.

    Rounds that one of the two has more of than the other are left out.
    """
    return median([a / b for a, b in zip(values, others, strict=False)])
