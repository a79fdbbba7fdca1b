"""Strings of a schema: patterns, lengths and formats."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator

import numpy as np

from ...automata import DEAD, Dfa, compile_regex, explored, intersection, with_length
from ...errors import InvalidArgumentError
from ..json_text import string_body
from ..placed_span import pattern_dfa
from .shapes import Text

__all__ = [
    "FORMATS",
    "LONGEST_STRING",
    "body_dfa",
    "has_classes",
    "is_found",
    "safe_patterns",
    "searching",
]

LONGEST_STRING = 1000
"""The most characters that are counted: an automaton counts with its states."""

MOST_STATES = 2**14
"""The most states with which the characters of a string are counted."""

LONGEST_SEARCHED = 200
"""The most characters of a text, and of the pattern, where the one is looked for in the other."""

MOST_SEARCHING_STATES = 2**8
"""The most states of an automaton that looks for one alternative of a pattern."""

_ASCII = r"[\x00-\x7F]*"
_NO_OTHER_SPACE = (
    r"[^\x1C-\x1F\x85\xA0\u1680\u180E\u2000-\u200A\u2028\u2029\u202F\u205F\u3000\uFEFF]*"
)
_ANYTHING = r"(?:.|\n)*"
_ANY_BODY = r"[^\x00-\x1F]*"

# 29 February only in years that have one.
_YEAR = "[12][0-9]{3}"
_LEAP_YEAR = "(?:[12][0-9](?:0[48]|[2468][048]|[13579][26])|(?:12|16|20|24|28)00)"
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_CLOCK = "(?:[0-9]{1,2}H(?:[0-9]{1,2}M(?:[0-9]{1,2}S)?)?|[0-9]{1,2}M(?:[0-9]{1,2}S)?|[0-9]{1,2}S)"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_WORD = "[A-Za-z0-9_+-]{1,30}"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?"

FORMATS = {
    "date": _DATE,
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "duration": f"P(?:[0-9]{{1,4}}D(?:T{_CLOCK})?|T{_CLOCK})",
    "uuid": "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "email": rf"{_WORD}(?:\.{_WORD})?@(?:{_LABEL}\.){{1,3}}[A-Za-z]{{2,10}}",
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
}
"""Patterns of the formats that are kept to; any other format says nothing."""


def safe_patterns(patterns: Collection[str]) -> tuple[str, ...]:
    """Return what else strings must match, so that they match for every reader of the patterns.

    What is no space, digit or letter is ASCII's for some readers, and Unicode's for others.
    """
    for pattern in patterns:
        has_negated = "[^" in pattern
        if any(each in pattern for each in (r"\D", r"\W")):
            return (_ASCII,)
        if has_negated and any(each in pattern for each in (r"\d", r"\w")):
            return (_ASCII,)
    if any(r"\S" in each or (r"\s" in each and "[^" in each) for each in patterns):
        return (_NO_OTHER_SPACE,)
    return ()


@functools.lru_cache(maxsize=256)
def body_dfa(text: Text, longest: int = LONGEST_STRING) -> Dfa:
    """Return the automaton of a string's inside.

    Parameters
    ----------
    text
    longest
        The most characters, if their number has a limit and the fewest allow it.

    Raises
    ------
    InvalidArgumentError
        If a pattern has an error, there is no such string, or counting takes too many states.
    """
    first, *others = (*(text.patterns or (_ANY_BODY,)), *safe_patterns(text.patterns))
    body: Dfa | None = pattern_dfa(first, True)
    for pattern in others:
        assert body is not None
        body = intersection(body, pattern_dfa(pattern, True), MOST_STATES)
        if body is None:
            raise InvalidArgumentError(f"no string matches both {first!r:.80} and {pattern!r:.80}")
    assert body is not None
    if text.unlike or text.lacking:
        body = _without(body, text)
        if body is None:
            raise InvalidArgumentError(f"no string that matches {first!r:.80} is left")
    if not text.fewest and text.most is None:
        return body
    most = text.most
    if most is not None:
        countable = max(MOST_STATES // body.n_states - 1, 1)
        most = min(most, max(text.fewest, min(longest, countable)))
    limited = with_length(body, text.fewest, most, MOST_STATES)
    if limited is None:
        counted = f"{text.fewest} or more" if most is None else f"{text.fewest} to {most}"
        raise InvalidArgumentError(f"no string of {counted} characters matches {first!r:.80}")
    return limited


_Place = tuple[int, bytes | None, tuple[int, ...]]
"""A state of the string's automaton, what of a refused string has come, and where patterns are."""


def _without(body: Dfa, text: Text) -> Dfa | None:
    """Return the automaton of a string's inside but for what it must not be; None for nothing."""
    refused: dict[bytes, bool] = {}  # what the strings begin with, and whether that is one of them
    for each in text.unlike:
        data = string_body(each).encode()
        for end in range(len(data)):
            refused.setdefault(data[:end], False)
        refused[data] = True
    rows = body.transitions[:, body.classes].tolist()
    found: list[Dfa] = []
    for pattern in text.lacking:
        automata = searching(pattern)
        if automata is None:
            raise InvalidArgumentError(f"it is not known how to keep {pattern!r:.80} out of a text")
        found += automata
    found_rows = [dfa.transitions[:, dfa.classes].tolist() for dfa in found]

    def step(at: _Place, byte: int) -> _Place | None:
        state, begun, places = at
        if rows[state][byte] == DEAD:
            return None
        begun = None if begun is None else begun + bytes((byte,))
        places = tuple(
            DEAD if place == DEAD else each[place][byte]
            for each, place in zip(found_rows, places, strict=True)
        )
        return rows[state][byte], begun if begun in refused else None, places

    def is_accepting(at: _Place) -> bool:
        state, begun, places = at
        is_refused = begun is not None and refused[begun]
        is_found = any(
            place != DEAD and dfa.accepting[place] for dfa, place in zip(found, places, strict=True)
        )
        return bool(body.accepting[state]) and not is_refused and not is_found

    start: _Place = (0, b"" if refused else None, (0,) * len(found))
    every_byte = np.arange(256, dtype=np.uint8)
    return explored(start, step, is_accepting, every_byte, MOST_STATES)


def is_found(pattern: str, text: str) -> bool | None:
    """Return whether a pattern is found in a text, as JSON Schema searches; None if not known."""
    if pattern in ("", ".*", "^.*$", "^.*", ".*$") and "\n" not in text:
        return True
    if len(text) > LONGEST_SEARCHED or text.endswith("\n"):
        return None  # where "$" stands before a last line feed, too, for some
    if not text.isascii() and has_classes(pattern):
        return None
    automata = searching(pattern)
    if automata is None:
        return None
    return any(dfa.accepts(text.encode("utf-8", "surrogatepass")) for dfa in automata)


def has_classes(pattern: str) -> bool:
    """Return whether a pattern has classes that are ASCII for some readers alone."""
    return any(each in pattern for each in (r"\d", r"\w", r"\s", r"\D", r"\W", r"\S"))


@functools.lru_cache(maxsize=512)
def searching(pattern: str) -> tuple[Dfa, ...] | None:
    """Return automata of the texts in which a pattern is found, one of which accepts each of them.

    None for a pattern that is long, has an error, or what is not regular.
    """
    if len(pattern) > LONGEST_SEARCHED:
        return None
    try:
        return tuple(_searching(each) for each in _alternatives(pattern))
    except InvalidArgumentError:
        return None


def _searching(alternative: str) -> Dfa:
    inside = alternative.removeprefix("^")
    before = "" if inside != alternative else _ANYTHING
    inside, behind = inside.rstrip("$"), ""
    n_ends = len(alternative) - len(alternative.rstrip("$"))
    if (len(inside) - len(inside.rstrip("\\"))) % 2 == 1:  # the first of them is a character
        inside, n_ends = inside + "$", n_ends - 1
    if n_ends == 0:
        behind = _ANYTHING
    return compile_regex(f"{before}(?:{inside}){behind}", MOST_SEARCHING_STATES)


def _alternatives(pattern: str) -> Iterator[str]:
    """Yield a pattern's outermost alternatives, each of which may have anchors of its own."""
    begin = depth = at = 0
    in_class = False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and depth == 0:
            yield pattern[begin:at]
            begin = at + 1
        at += 1
    yield pattern[begin:]
