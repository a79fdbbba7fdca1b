"""The cases of ``check_hostile.py``: malicious and malformed input, with the required results."""

from __future__ import annotations

from . import arguments, files, grammars

ALL_CASES = (*grammars.CASES, *files.CASES, *arguments.CASES)
"""All cases, in the order in which they run."""
