"""Deterministic finite automata that define the allowed text of a free span.

>>> from eliza_ffi.structured.automata import compile_regex
>>> compile_regex("[0-9]+").accepts(b"42")
True
"""

from __future__ import annotations

from .dfa import Dfa
from .exploring import explored, intersection
from .json_values import any_text, json_integer, json_number, json_string
from .nfa import Nfa
from .regex import compile_regex
from .tables import DEAD, MOST_STATES

__all__ = [
    "DEAD",
    "MOST_STATES",
    "Dfa",
    "Nfa",
    "any_text",
    "compile_regex",
    "explored",
    "intersection",
    "json_integer",
    "json_number",
    "json_string",
]
