"""Deterministic finite automata that define the allowed text of a free span.

>>> from eliza_ffi.structured.automata import compile_regex
>>> compile_regex("[0-9]+").accepts(b"42")
True
"""

from __future__ import annotations

from .dfa import DEAD, Dfa
from .json_values import (
    INTEGER_PATTERN,
    NUMBER_PATTERN,
    STRING_BODY_PATTERN,
    STRING_PATTERN,
    json_integer,
    json_number,
    json_string,
)
from .regex import compile_regex

__all__ = [
    "DEAD",
    "INTEGER_PATTERN",
    "NUMBER_PATTERN",
    "STRING_BODY_PATTERN",
    "STRING_PATTERN",
    "Dfa",
    "compile_regex",
    "json_integer",
    "json_number",
    "json_string",
]
