"""Automata for JSON strings and numbers, and for any UTF-8 text."""

from __future__ import annotations

import functools

from .dfa import Dfa
from .regex import compile_regex

__all__ = ["any_text", "json_integer", "json_number", "json_string"]


@functools.cache
def any_text() -> Dfa:
    """Return the automaton of all UTF-8 text."""
    return compile_regex(r"(?:.|\n)*")


@functools.cache
def json_string() -> Dfa:
    r"""Return the automaton of a JSON string (RFC 8259, section 7) with its quotes.

    Unlike the RFC's grammar, it accepts only strings that decode to valid Unicode: the bytes are
    UTF-8, and escaped surrogates form pairs of a high and a low one.
    """
    unescaped = r'[^"\\\x00-\x1F]'
    short = r'\\["\\/bfnrt]'
    not_surrogate = r"\\u(?:[0-9A-CEFa-cef][0-9A-Fa-f]|[Dd][0-7])[0-9A-Fa-f]{2}"
    pair = r"\\u[Dd][89ABab][0-9A-Fa-f]{2}\\u[Dd][C-Fc-f][0-9A-Fa-f]{2}"
    return compile_regex(f'"(?:{unescaped}|{short}|{not_surrogate}|{pair})*"')


@functools.cache
def json_number() -> Dfa:
    """Return the automaton of a JSON number (RFC 8259, section 6)."""
    return compile_regex(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[Ee][+-]?\d+)?")


@functools.cache
def json_integer() -> Dfa:
    """Return the automaton of a JSON number without fraction and exponent."""
    return compile_regex(r"-?(?:0|[1-9]\d*)")
