"""Strings of a schema: patterns, lengths and formats."""

from __future__ import annotations

import functools

from ...automata import Dfa, intersection, with_length
from ...errors import InvalidArgumentError
from ..placed_span import pattern_dfa
from .shapes import Text

__all__ = ["FORMATS", "LONGEST_STRING", "body_dfa"]

LONGEST_STRING = 1000
"""The most characters that are counted: an automaton counts with its states."""

MOST_STATES = 2**14
"""The most states with which the characters of a string are counted."""

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
    first, *others = text.patterns or (_ANY_BODY,)
    body: Dfa | None = pattern_dfa(first, True)
    for pattern in others:
        assert body is not None
        body = intersection(body, pattern_dfa(pattern, True), MOST_STATES)
        if body is None:
            raise InvalidArgumentError(f"no string matches both {first!r:.80} and {pattern!r:.80}")
    assert body is not None
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
