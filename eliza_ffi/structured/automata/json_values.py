"""Regular expressions and automata for JSON strings and numbers."""

from __future__ import annotations

import functools

from .dfa import Dfa
from .regex import compile_regex

__all__ = [
    "INTEGER_PATTERN",
    "NUMBER_PATTERN",
    "STRING_BODY_PATTERN",
    "STRING_PATTERN",
    "json_integer",
    "json_number",
    "json_string",
]

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


@functools.cache
def json_string() -> Dfa:
    """Return the automaton of `STRING_PATTERN`."""
    return compile_regex(STRING_PATTERN)


@functools.cache
def json_number() -> Dfa:
    """Return the automaton of `NUMBER_PATTERN`."""
    return compile_regex(NUMBER_PATTERN)


@functools.cache
def json_integer() -> Dfa:
    """Return the automaton of `INTEGER_PATTERN`."""
    return compile_regex(INTEGER_PATTERN)
