"""Deterministic finite automata over bytes, which define the allowed text of a free span.

An automaton reads the UTF-8 bytes of a string. Each byte belongs to a *class*, and the class
selects the transition to the next state::

    state = 0
    for byte in string:
        state = transitions[state, classes[byte]]     # -1: no accepted string begins like this
    accepted = state != -1 and accepting[state]

Bytes that lead to the same next state from every state share a class. Most automata have about a
dozen classes, so the table is small enough for the processor's cache.

>>> number = compile_regex(NUMBER_PATTERN)
>>> number.accepts(b"-12.5e3"), number.accepts(b"007")
(True, False)
>>> list(number.ends(b"1.25}"))
[1, 3, 4]
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import InvalidArgumentError

DEAD = -1
"""The entry of the transition table for "no next state"."""

MOST_CHARACTERS = 2**18
"""The longest pattern."""

MOST_STATES = 65_535
"""The maximum number of states. The native library stores state numbers in 16 bits."""

MOST_WORK = 2**23
"""The limit on the steps of a compilation, which take a few seconds.

A limit on the number of states does not limit the time, because each state is a set of expressions,
and these sets can be large."""

INTEGER_PATTERN = "-?(?:0|[1-9][0-9]*)"
"""A JSON number without fraction and exponent."""

NUMBER_PATTERN = rf"{INTEGER_PATTERN}(?:\.[0-9]+)?(?:[Ee][+-]?[0-9]+)?"
"""A JSON number (RFC 8259, section 6)."""

STRING_BODY_PATTERN = (
    r'(?:[^"\\\x00-\x1F]|\\["\\\/bfnrt]|\\u(?:[0-9A-CEFa-cef][0-9A-Fa-f]|[Dd][0-7])[0-9A-Fa-f]{2}'
    r"|\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})*"
)
"""The inside of a JSON string (RFC 8259, section 7).

Unlike the RFC's grammar, it matches only text that decodes to valid Unicode: the bytes are UTF-8,
and escaped surrogates form pairs of a high and a low one."""

STRING_PATTERN = f'"{STRING_BODY_PATTERN}"'

CodePoints = list[tuple[int, int]]
"""Ranges of code points, first and last included."""

_DIGITS, _LINE_FEED = [(0x30, 0x39)], [(0x0A, 0x0A)]
_CATEGORIES: dict[str, CodePoints] = {
    "DIGIT": _DIGITS,
    "SPACE": [(0x09, 0x0D), (0x20, 0x20)],
    "WORD": [*_DIGITS, (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)],
}
_SURROGATES = (0xD800, 0xDFFF)
_UNSUPPORTED = {
    "ASSERT": "lookaround",
    "ASSERT_NOT": "lookaround",
    "AT": "an anchor inside the pattern or a word boundary",
    "ATOMIC_GROUP": "an atomic group",
    "GROUPREF": "a backreference",
    "GROUPREF_EXISTS": "a conditional",
    "POSSESSIVE_REPEAT": "a possessive quantifier",
}


@dataclass(frozen=True, eq=False)
class Dfa:
    """A deterministic automaton over bytes. The start state is 0.

    The native library checks the tables. It rejects useless states: those that cannot be reached,
    and those from which no accepting state can be reached.

    Attributes
    ----------
    classes : uint8[256]
        The class of each byte.
    transitions : int32[n_states, n_classes]
        The next state, or `DEAD`.
    accepting : bool[n_states]
        Whether a string may end in this state.
    """

    classes: npt.NDArray[np.uint8]
    transitions: npt.NDArray[np.int32]
    accepting: npt.NDArray[np.bool_]

    @property
    def n_states(self) -> int:
        return len(self.accepting)

    def ends(self, data: bytes, start: int = 0) -> Iterator[int]:
        """Yield the offsets at which an accepted string that begins at `start` may end."""
        state = 0
        for position in range(start, len(data) + 1):
            if self.accepting[state]:
                yield position
            if position < len(data):
                state = int(self.transitions[state, self.classes[data[position]]])
                if state == DEAD:
                    return

    def accepts(self, data: bytes) -> bool:
        """Return whether the automaton accepts these bytes."""
        return len(data) in self.ends(data)

    def to_dict(self) -> dict[str, Any]:
        """Return the automaton as JSON data, as the native library reads a span's ``"dfa"``.

        For each state, ``transitions`` has a list with the next state or -1 for each class.
        ``accepting`` has the accepting states in ascending order.
        """
        return {
            "classes": self.classes.tolist(),
            "transitions": self.transitions.tolist(),
            "accepting": np.flatnonzero(self.accepting).tolist(),
        }


def compile_regex(pattern: str, excluded: str = "") -> Dfa:
    r"""Compile a regular expression, which must match the whole text.

    The syntax is that of Python's `re`, with ASCII's digits, letters and spaces in ``\d``, ``\w``
    and ``\s``. Flags, and constructs that are not regular or look around, are not supported. No
    matching text may contain one of the `excluded` characters: those that JSON strings escape.

    Raise InvalidArgumentError if the pattern is malformed or not supported, has more than 262,144
    characters, nests groups too deeply, matches no text, or needs more than 65,535 states or more
    than 2**23 steps to compile.
    """
    if not isinstance(pattern, str):
        raise InvalidArgumentError(f"pattern must be a string, got {type(pattern).__name__}")
    try:
        if len(pattern) > MOST_CHARACTERS:
            raise _PatternError(f"expected at most {MOST_CHARACTERS} characters")
        expressions = _Expressions()
        whole = _Reader(expressions, excluded).read(pattern)
        if whole == _Expressions.NOTHING:
            without = " without characters that need an escape in JSON" if excluded else ""
            raise _PatternError(f"it matches no text{without}")
        return _automaton(expressions, whole)
    except RecursionError:
        problem = "its groups are nested too deeply"
    except (re.error, OverflowError, ValueError) as error:
        problem = str(error)
    shown = repr(pattern if len(pattern) <= 60 else pattern[:57] + "...")
    raise InvalidArgumentError(f"cannot compile the pattern {shown}: {problem}")


class _PatternError(ValueError):
    """The pattern is not supported, or is too large."""


class _Expressions:
    """Regular expressions over bytes, by their numbers. Equal expressions have equal numbers."""

    EMPTY = 0
    """Matches only the empty string."""
    NOTHING = 1
    """Matches no string. No other expression contains it."""

    def __init__(self) -> None:
        self.may_be_empty = [True, False]
        self._forms: list[tuple[Any, ...]] = [("empty",), ("nothing",)]
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._edges: dict[int, list[tuple[int, int, int]]] = {self.EMPTY: []}

    def _number(self, may_be_empty: bool, *form: Any) -> int:
        if form not in self._numbers:
            self._numbers[form] = len(self._forms)
            self._forms.append(form)
            self.may_be_empty.append(may_be_empty)
        return self._numbers[form]

    def byte(self, first: int, last: int) -> int:
        return self._number(False, "byte", first, last)

    def then(self, one: int, two: int) -> int:
        if self.NOTHING in (one, two):
            return self.NOTHING
        if self.EMPTY in (one, two):
            return two if one == self.EMPTY else one
        return self._number(self.may_be_empty[one] and self.may_be_empty[two], "then", one, two)

    def either(self, parts: Iterable[int]) -> int:
        different = dict.fromkeys(part for part in parts if part != self.NOTHING)
        if len(different) < 2:
            return next(iter(different), self.NOTHING)
        return self._number(any(self.may_be_empty[part] for part in different), "any", *different)

    def repeat(self, part: int, least: int, most: int | None) -> int:
        if part == self.NOTHING and least > 0:
            return self.NOTHING
        if part in (self.EMPTY, self.NOTHING) or most == 0:
            return self.EMPTY
        return self._number(least == 0 or self.may_be_empty[part], "repeat", part, least, most)

    def edges(self, number: int) -> list[tuple[int, int, int]]:
        """Return the bytes with which an expression can begin, and what follows them.

        Each edge has the first byte, the last byte, and an expression for the rest of the string:
        the partial derivatives of Antimirov (1996).
        """
        if number not in self._edges:
            self._edges[number] = list(self._new_edges(*self._forms[number]))
        return self._edges[number]

    def _new_edges(self, kind: str, *parts: Any) -> Iterator[tuple[int, int, int]]:
        if kind == "byte":
            yield (*parts, self.EMPTY)
        elif kind == "any":
            for part in parts:
                yield from self.edges(part)
        else:
            one, following = parts[0], parts[1]
            if kind == "repeat":
                _, least, most = parts
                rest = None if most is None else most - 1
                following = self.repeat(one, max(least - 1, 0), rest)
            for first, last, target in self.edges(one):
                yield first, last, self.then(target, following)
            if kind == "then" and self.may_be_empty[one]:
                yield from self.edges(following)


class _Reader:
    """Converts patterns, as Python's own parser reads them, to expressions."""

    def __init__(self, expressions: _Expressions, excluded: str) -> None:
        self._expressions = expressions
        self._excluded = [(code, code) for code in map(ord, excluded)]

    def read(self, pattern: str) -> int:
        # The parser has no public name, but has been the same for many versions of Python.
        parser = importlib.import_module(
            "re._parser" if sys.version_info >= (3, 11) else "sre_parse"
        )
        parsed = parser.parse(pattern, re.ASCII)
        if parsed.state.flags & ~re.ASCII:
            raise _PatternError("flags are not supported")
        self._unlimited = parser.MAXREPEAT
        return self._sequence(parsed, is_first=True, is_last=True)

    def _sequence(self, items: Any, is_first: bool = False, is_last: bool = False) -> int:
        """Read a sequence. Anchors are allowed where it is first or last in the pattern."""
        items = list(items)
        while is_first and items and _is_anchor(items[0], "AT_BEGINNING"):
            del items[0]
        while is_last and items and _is_anchor(items[-1], "AT_END"):
            del items[-1]
        whole = _Expressions.EMPTY
        for i, (kind, value) in reversed([*enumerate(items)]):
            is_end = is_last and i == len(items) - 1
            part = self._part(kind.name, value, is_first and i == 0, is_end)
            whole = self._expressions.then(part, whole)
        return whole

    def _part(self, kind: str, value: Any, is_first: bool, is_last: bool) -> int:
        if kind == "BRANCH":
            sequences = (self._sequence(each, is_first, is_last) for each in value[1])
            return self._expressions.either(sequences)
        if kind == "SUBPATTERN":
            _, added_flags, removed_flags, items = value
            if added_flags or removed_flags:
                raise _PatternError("flags are not supported")
            return self._sequence(items, is_first, is_last)
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, items = value
            most = None if most == self._unlimited else most
            return self._expressions.repeat(self._sequence(items), least, most)
        if kind in _UNSUPPORTED:
            raise _PatternError(f"{_UNSUPPORTED[kind]} is not supported")
        return self._characters(_code_points([(kind, value)]))

    def _characters(self, ranges: CodePoints) -> int:
        """Return the expression of one character, encoded in UTF-8."""
        allowed = _complement([*_complement(ranges), *self._excluded, _SURROGATES])
        expressions = self._expressions
        characters = []
        for run in (run for each in allowed for run in _utf8_runs(*each)):
            whole = _Expressions.EMPTY
            for first, last in reversed(run):
                whole = expressions.then(expressions.byte(first, last), whole)
            characters.append(whole)
        return expressions.either(characters)


def _is_anchor(item: Any, name: str) -> bool:
    return item[0].name == "AT" and item[1].name in (name, f"{name}_STRING")


def _code_points(items: Iterable[tuple[str, Any]]) -> CodePoints:
    """Return the characters of a class, or of a single item."""
    found: CodePoints = []
    is_negated = False
    for kind, value in items:
        if kind == "IN":
            found += _code_points((inner.name, each) for inner, each in value)
        elif kind == "NEGATE":
            is_negated = True
        elif kind == "CATEGORY":
            name = value.name.removeprefix("CATEGORY_")
            category = _CATEGORIES[name.removeprefix("NOT_")]
            found += _complement(category) if name.startswith("NOT_") else category
        elif kind == "RANGE":
            found.append(value)
        elif kind == "LITERAL":
            found.append((value, value))
        else:  # NOT_LITERAL or ANY
            found += _complement(_LINE_FEED if kind == "ANY" else [(value, value)])
    return _complement(found) if is_negated else found


def _complement(ranges: CodePoints) -> CodePoints:
    """Return all other code points, in ascending order. The given ranges may overlap."""
    gaps, begin = [], 0
    for first, last in sorted(ranges):
        if begin < first:
            gaps.append((begin, first - 1))
        begin = max(begin, last + 1)
    return [*gaps, (begin, sys.maxunicode)] if begin <= sys.maxunicode else gaps


def _utf8_runs(first: int, last: int) -> Iterator[list[tuple[int, int]]]:
    """Split a range of code points into runs whose UTF-8 forms one byte range at each position.

    Ken Thompson's method for grep, described by Russ Cox in "Regular Expression Matching in the
    Wild" (2010). Surrogates are not allowed. Each run has the lowest and the highest value of each
    of its bytes.
    """
    runs = [(first, last)]
    while runs:
        first, last = runs.pop()
        cut = _utf8_cut(first, last)
        if cut is None:
            yield list(zip(chr(first).encode(), chr(last).encode(), strict=True))
        else:
            runs += [(cut + 1, last), (first, cut)]


def _utf8_cut(first: int, last: int) -> int | None:
    """Return the code point after which to split the range, or None if it is a single run."""
    for longest in (0x7F, 0x7FF, 0xFFFF):  # the last code points with 1, 2 and 3 bytes
        if first <= longest < last:
            return longest
    if last <= 0x7F:
        return None
    for low_bits in (0x3F, 0xFFF, 0x3FFFF):  # the bits in 1, 2 and 3 continuation bytes
        if first & ~low_bits != last & ~low_bits:
            if first & low_bits:
                return first | low_bits
            if last & low_bits != low_bits:
                return (last & ~low_bits) - 1
    return None


def _automaton(expressions: _Expressions, start: int) -> Dfa:
    """Return the automaton of an expression, whose states are sets of expressions."""
    states = [frozenset((start,))]
    numbers = {states[0]: 0}
    moves: list[tuple[int, int, int, int]] = []  # a state, its first and last byte, its target
    n_steps = 0
    for state, members in enumerate(states):  # grows during the loop
        edges = [edge for member in members for edge in expressions.edges(member)]
        cuts = sorted({cut for first, last, _ in edges for cut in (first, last + 1)})
        n_steps += 1 + len(cuts) * len(edges)
        if n_steps > MOST_WORK:
            raise _PatternError(f"its automaton takes more than {MOST_WORK} steps")
        for begin, end in pairwise(cuts):
            targets = frozenset(target for first, last, target in edges if first <= begin <= last)
            if targets:
                number = numbers.setdefault(targets, len(states))
                if number == len(states):
                    states.append(targets)
                moves.append((state, begin, end - 1, number))
        if len(states) > MOST_STATES:
            raise _PatternError(f"its automaton needs more than {MOST_STATES} states")
    cuts = sorted({0, *(cut for _, begin, last, _ in moves for cut in (begin, last + 1))} - {256})
    classes = np.searchsorted(cuts, np.arange(256), side="right") - 1
    table = np.full((len(states), len(cuts)), DEAD, np.int32)
    for state, begin, last, number in moves:
        table[state, classes[begin] : classes[last] + 1] = number
    table, merged = np.unique(table, axis=1, return_inverse=True)
    accepting = [any(expressions.may_be_empty[each] for each in members) for members in states]
    return Dfa(merged.reshape(-1)[classes].astype(np.uint8), table, np.array(accepting))
