"""Statistics: reduce many measurements to a few figures; and the order of measurements."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
Values = Sequence[float] | NDArray[Any]


mean, median = statistics.fmean, statistics.median


def percentile(values: Values, percent: float) -> float:
    """Return the given percentile, interpolated linearly between neighbouring values."""
    return float(np.percentile(np.asarray(values), percent))


def quartiles(values: Values) -> tuple[float, float, float]:
    """Return the first quartile, the median and the third quartile."""
    low, middle, high = np.percentile(np.asarray(values), [25, 50, 75])
    return float(low), float(middle), float(high)


def percentiles(values: Values, name: str) -> dict[str, float]:
    """Return the median and the 99th percentile; ``*`` in the name becomes ``p50`` and ``p99``."""
    return {name.replace("*", f"p{each}"): percentile(values, each) for each in (50, 99)}


def ratios(values: Sequence[float], others: Sequence[float]) -> list[float]:
    """Return ``values[i] / others[i]`` for each round.

    Both values of a ratio come from the same round, so a change in the machine's speed between
    rounds does not affect it. If one sequence is longer, its extra rounds are ignored.
    """
    return [a / b for a, b in zip(values, others, strict=False)]


def in_turns(names: Iterable[str], n_rounds: int) -> Iterator[list[str]]:
    """Yield the names for each round; another name is first in the next round."""
    order = list(names)
    for _ in range(n_rounds):
        yield order
        order = [*order[1:], *order[:1]]


def attempt(
    problems: MutableMapping[str, str], name: str, work: Callable[..., T], *given: Any
) -> T | None:
    """Return the result of another program's method; None if it fails, or has failed before.

    `problems` gets the error, so that it does not end the run.
    """
    if name in problems:
        return None
    try:
        return work(*given)
    except Exception as error:
        problems[name] = f"{type(error).__name__}: {error}"
        return None
