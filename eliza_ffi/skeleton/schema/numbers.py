"""Numbers of a schema: bounds and multiples."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ...automata import MOST_MULTIPLE, decimals, intersection, multiples
from ...errors import InvalidArgumentError
from ..json_text import json_text
from .places import shown
from .shapes import Known, Never, Number, Plain, Shape, choice

__all__ = [
    "Bounds",
    "divides_whole_numbers",
    "number_shape",
    "read_multiple",
    "read_number",
]

MOST_INTEGERS = 1000
"""The most whole numbers that become a choice of one of them."""

SAFE_DIGITS = 15
"""Decimals of so many digits are told apart by floats, and keep their order."""

_LARGEST = 10**400
_INFINITE = (math.inf, -math.inf)
_ANY_STATES = 2**13


@dataclass
class Bounds:
    """The least and the greatest number, and whether these are excluded themselves."""

    least: Fraction | None = None
    is_least_excluded: bool = False
    most: Fraction | None = None
    is_most_excluded: bool = False
    multiple: int | None = None

    def raise_least(self, bound: Fraction, is_excluded: bool) -> None:
        """Take a lower bound in addition."""
        if self.least is None or (bound, is_excluded) > (self.least, self.is_least_excluded):
            self.least, self.is_least_excluded = bound, is_excluded

    def lower_most(self, bound: Fraction, is_excluded: bool) -> None:
        """Take an upper bound in addition."""
        if self.most is None or (-bound, is_excluded) > (-self.most, self.is_most_excluded):
            self.most, self.is_most_excluded = bound, is_excluded

    @property
    def is_open(self) -> bool:
        return self.least is None and self.most is None and self.multiple is None

    @property
    def n_digits(self) -> int:
        """How many digits they have before the point."""
        bounds = [bound for bound in (self.least, self.most) if bound is not None]
        return sum(len(str(int(abs(bound)))) for bound in bounds)

    def allow(self, value: float) -> bool:
        """Return whether a number is within them."""
        if isinstance(value, float) and not math.isfinite(value):
            return False
        number = _fraction(value)
        if self.least is not None and (number, not self.is_least_excluded) <= (self.least, False):
            return False
        if self.most is not None and (-number, not self.is_most_excluded) <= (-self.most, False):
            return False
        return self.multiple is None or number % self.multiple == 0

    def scaled(self, unit: int) -> tuple[int | None, int | None]:
        """Return the first and the last number within them, counted in a unit's parts."""
        least = most = None
        if self.least is not None:
            least = math.ceil(self.least * unit)
            least += self.is_least_excluded and least == self.least * unit
        if self.most is not None:
            most = math.floor(self.most * unit)
            most -= self.is_most_excluded and most == self.most * unit
        return least, most


def read_number(value: Any, name: str) -> Fraction:
    """Return a bound as it is written.

    Raises
    ------
    InvalidArgumentError
        If it is none.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -_LARGEST < value < _LARGEST or value in _INFINITE:
        raise InvalidArgumentError(
            f"{name} must be a number of at most 400 digits, not {shown(value)}"
        )
    return _fraction(value)


def _fraction(value: float) -> Fraction:
    # A float stands for the decimal that it is written as.
    return Fraction(value) if isinstance(value, int) else Fraction(repr(value))


def number_shape(bounds: Bounds, is_whole: bool) -> Shape:
    """Return the shape of the numbers within bounds.

    Whole numbers are written without a fraction. Others have as many decimal places as, with the
    digits of the bounds, come to 15 digits, so that no reader's rounding leads out of the bounds.
    """
    kind = "integer" if is_whole else "number"
    if bounds.is_open:
        return Plain(kind)
    if not is_whole and bounds.multiple is None:
        return _decimal_shape(bounds)
    least, most = bounds.scaled(1)
    step = bounds.multiple or 1
    if least is not None and most is not None:
        first, last = -(-least // step), most // step
        if first > last:
            return Never(f"there is no whole number from {_shown(least)} to {_shown(most)}")
        if last - first < MOST_INTEGERS:
            return choice(i * step for i in range(first, last + 1))
    dfa = decimals(least, most)
    if step > 1 and dfa is not None:
        dfa = intersection(dfa, multiples(step), _ANY_STATES)
    assert dfa is not None  # there are more than a thousand such numbers
    return Number("integer", dfa)


def _decimal_shape(bounds: Bounds) -> Shape:
    ends = [abs(bound) for bound in (bounds.least, bounds.most) if bound is not None]
    n_fraction = max(0, SAFE_DIGITS - len(str(int(max(ends)))))
    least, most = bounds.scaled(10**n_fraction)
    dfa = decimals(least, most, n_fraction)
    if dfa is not None:
        return Number("number", dfa)
    if bounds.least is not None and bounds.allow(float(bounds.least)):
        return Known(json_text(float(bounds.least)))
    return Never(f"there is no number of {n_fraction} decimal places within the bounds")


def read_multiple(value: Any) -> int:
    """Return what numbers must be multiples of, if that is a whole number up to 1,000.

    Raises
    ------
    InvalidArgumentError
        If it is not.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not 1 <= value <= MOST_MULTIPLE:
        raise InvalidArgumentError(
            f"multipleOf must be a whole number from 1 to {MOST_MULTIPLE}, not {shown(value)}"
        )
    return int(value)


def divides_whole_numbers(value: Any) -> bool:
    """Return whether every whole number is a multiple of a decimal, such as 0.01, for any reader.

    Readers divide by the nearest float. Its error must be so small that rounding undoes it.
    """
    if not isinstance(value, float) or not 1e-9 < value < 1:
        return False
    parts = 1 / Fraction(repr(value))
    return parts.denominator == 1 and abs(Fraction(value) * parts - 1) <= Fraction(1, 2**54)


def _shown(number: int) -> str:
    text = str(number)
    return text if len(text) <= 24 else f"{text[:21]}..."
