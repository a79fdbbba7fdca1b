"""Automata of decimal numbers between bounds, and of the multiples of a whole number.

Numbers are spelled in one way: a minus where they are below zero, no zeros in front, no exponent.
A fraction, where one is allowed, may end in zeros.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import InvalidArgumentError
from .dfa import Dfa
from .exploring import explored

__all__ = ["MOST_MULTIPLE", "decimals", "multiples"]

MOST_MULTIPLE = 1000
"""The greatest number whose multiples are told apart: each remainder is a state."""

_ALPHABET = b"0123456789-."
_MINUS, _POINT, _OTHER = 10, 11, 12


def _byte_classes() -> npt.NDArray[np.uint8]:
    classes = np.full(256, _OTHER, dtype=np.uint8)
    for of_class, byte in enumerate(_ALPHABET):
        classes[byte] = of_class
    return classes


@dataclass(frozen=True)
class _Bound:
    """The digits of a bound that is not negative, before and behind the point."""

    whole: tuple[int, ...]
    fraction: tuple[int, ...]

    @classmethod
    def of(cls, scaled: int, n_fraction: int) -> _Bound:
        digits = str(scaled).rjust(n_fraction + 1, "0")
        cut = len(digits) - n_fraction
        return cls(tuple(map(int, digits[:cut])), tuple(map(int, digits[cut:])))

    def compared(self, so_far: int, at: int, digit: int) -> int:
        """Return how a whole part compares with this one's first digits, one digit later."""
        if so_far or at >= len(self.whole):
            return so_far
        return (digit > self.whole[at]) - (digit < self.whole[at])

    def order(self, n_digits: int, so_far: int) -> int:
        """Return how a whole part of so many digits compares with this one: -1, 0 or 1."""
        if n_digits != len(self.whole):
            return 1 if n_digits > len(self.whole) else -1
        return so_far


@dataclass(frozen=True)
class _Whole:
    """Digits before the point have been read: how many, and how they compare with the bounds."""

    is_negative: bool
    n_digits: int
    is_zero: bool
    with_least: int
    with_most: int


@dataclass(frozen=True)
class _Fraction:
    """Digits behind the point have been read; whether all digits so far are those of a bound."""

    is_negative: bool
    n_digits: int
    is_least: bool
    is_most: bool


_State = str | _Whole | _Fraction


@functools.lru_cache(maxsize=256)
def decimals(least: int | None, most: int | None, n_fraction: int = 0) -> Dfa | None:
    """Return the automaton of the decimal numbers between two bounds, or None if there are none.

    Parameters
    ----------
    least, most
        The bounds, both included, in units of the last decimal place: with two places, 150 is 1.5.
        None where there is none.
    n_fraction
        The most decimal places.

    Examples
    --------
    >>> decimals(-5, 120).accepts(b"-3"), decimals(-5, 120).accepts(b"121")
    (True, False)
    >>> decimals(25, None, n_fraction=2).accepts(b"0.3")
    True
    """
    lows: dict[bool, _Bound] = {}
    highs: dict[bool, _Bound | None] = {}
    if most is None or most >= 0:
        lows[False] = _Bound.of(max(least or 0, 0), n_fraction)
        highs[False] = None if most is None else _Bound.of(most, n_fraction)
    if least is None or least < 0:
        lows[True] = _Bound.of(max(1, -most if most is not None else 1), n_fraction)
        highs[True] = None if least is None else _Bound.of(-least, n_fraction)
    # Beyond the longest bound all numbers of digits are alike.
    longest = 1 + max(
        (len(bound.whole) for bound in (*lows.values(), *highs.values()) if bound), default=0
    )

    def whole_step(state: _Whole, digit: int) -> _Whole | None:
        if state.is_zero:
            return None
        negative, at = state.is_negative, state.n_digits
        high = highs[negative]
        following = _Whole(
            negative,
            min(at + 1, longest),
            at == 0 and digit == 0,
            lows[negative].compared(state.with_least, at, digit),
            0 if high is None else high.compared(state.with_most, at, digit),
        )
        return None if high is not None and at + 1 > len(high.whole) else following

    def pointed(state: _Whole) -> _Fraction | None:
        """Return what the whole part leaves of the bounds, None if it is outside them."""
        high = highs[state.is_negative]
        with_least = lows[state.is_negative].order(state.n_digits, state.with_least)
        with_most = -1 if high is None else high.order(state.n_digits, state.with_most)
        if state.n_digits == 0 or with_least < 0 or with_most > 0:
            return None
        return _Fraction(state.is_negative, 0, with_least == 0, with_most == 0)

    def fraction_step(state: _Fraction, digit: int) -> _Fraction | None:
        at = state.n_digits
        if at == n_fraction:
            return None
        is_least, is_most = state.is_least, state.is_most
        if is_least:
            bound = lows[state.is_negative].fraction[at]
            if digit < bound:
                return None
            is_least = digit == bound
        if is_most:
            high = highs[state.is_negative]
            assert high is not None  # which is_most says
            if digit > high.fraction[at]:
                return None
            is_most = digit == high.fraction[at]
        return _Fraction(state.is_negative, at + 1, is_least, is_most)

    def step(state: _State, of_class: int) -> _State | None:
        if of_class == _OTHER:
            return None
        if isinstance(state, _Fraction):
            return fraction_step(state, of_class) if of_class < 10 else None
        if isinstance(state, _Whole):
            if of_class == _POINT:
                return pointed(state) if n_fraction else None
            return whole_step(state, of_class) if of_class < 10 else None
        if of_class == _MINUS:
            return _Whole(True, 0, False, 0, 0) if True in lows else None
        if of_class == _POINT or False not in lows:
            return None
        return whole_step(_Whole(False, 0, False, 0, 0), of_class)

    def is_accepting(state: _State) -> bool:
        # What is not written is zeros, which are never above a bound, but may be below one.
        if isinstance(state, _Whole):
            left = pointed(state)
            return left is not None and is_enough(left)
        return isinstance(state, _Fraction) and state.n_digits > 0 and is_enough(state)

    def is_enough(state: _Fraction) -> bool:
        return not state.is_least or not any(lows[state.is_negative].fraction[state.n_digits :])

    start: _State = "start"
    return explored(start, step, is_accepting, _byte_classes())


@functools.lru_cache(maxsize=16)
def multiples(of: int) -> Dfa:
    """Return the automaton of the whole numbers that are multiples of another.

    Raises
    ------
    InvalidArgumentError
        If that one is not from 1 to 1,000.
    """
    if not 1 <= of <= MOST_MULTIPLE:
        raise InvalidArgumentError(f"multiples of {of} are not supported: 1 to {MOST_MULTIPLE} are")

    def step(state: tuple[str, int], of_class: int) -> tuple[str, int] | None:
        where, remainder = state
        if of_class == _MINUS:
            return ("minus", 0) if where == "start" else None
        if of_class >= 10 or where == "zero" or (where == "minus" and of_class == 0):
            return None
        if where == "start" and of_class == 0:
            return ("zero", 0)
        return ("digits", (remainder * 10 + of_class) % of)

    def is_accepting(state: tuple[str, int]) -> bool:
        return state[0] in ("zero", "digits") and state[1] == 0

    made = explored(("start", 0), step, is_accepting, _byte_classes())
    assert made is not None  # zero is a multiple of all
    return made
