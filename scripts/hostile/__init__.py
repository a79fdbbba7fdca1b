"""What ``check_hostile.py`` tries: input of strangers, kind by kind, and what must come of it."""

from __future__ import annotations

from . import arguments, files, grammars, memory, signals, templates
from .case import Case

__all__ = ["ALL_CASES"]

ALL_CASES: tuple[Case, ...] = (
    *grammars.CASES,
    *templates.CASES,
    *files.CASES,
    *arguments.CASES,
    *memory.CASES,
    *signals.CASES,
)
"""All cases, in the order they are tried."""
