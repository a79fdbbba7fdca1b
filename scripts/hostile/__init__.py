"""The cases of ``check_hostile.py``: malicious and malformed input, with the required results."""

from __future__ import annotations

from . import arguments, files, grammars, memory, signals, templates
from .case import Case

ALL_CASES: tuple[Case, ...] = (
    *grammars.CASES,
    *templates.CASES,
    *files.CASES,
    *arguments.CASES,
    *memory.CASES,
    *signals.CASES,
)
"""All cases, in the order in which they run."""
