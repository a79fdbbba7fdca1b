"""Statistics: reduce many measurements to a few figures; and the order of measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
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


def percentiles(
    values: Values,
    # The pattern of the keys, such as ``"token_ms_*"``; ``*`` becomes ``p50`` or ``p99``.
    name: str,
) -> dict[str, float]:
    """Return the median and the 99th percentile as a dict with two keys."""
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
    """Return the result of a method of another library or program.

    If the method fails now, or has failed before, the result is None, and `problems` has the error:
    no error of another library may end a run.
    """
    if name in problems:
        return None
    try:
        return work(*given)
    except Exception as error:
        problems[name] = f"{type(error).__name__}: {error}"
        return None
