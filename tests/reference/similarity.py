"""The reference implementation of an encoder's decisions: cosines, one option at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["similarities", "softmax"]

Embed = Callable[[str], NDArray[np.float64]]

Option = tuple["str | None", "str | None"]
"""A label and a description."""


def similarities(embed: Embed, text: str, options: Sequence[Option]) -> list[float]:
    """Return the cosine of a text and of each option, divided by 0.05."""
    given = embed(text)
    found = []
    for option in options:
        total = np.zeros_like(given)
        for part in option:
            if part is not None:
                total = total + embed(part) + embed(f"This text is about {part}.")
        cosine = float(total @ given) / (math.sqrt(total @ total) * math.sqrt(given @ given))
        found.append(cosine / 0.05)
    return found


def softmax(values: Sequence[float]) -> list[float]:
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]
