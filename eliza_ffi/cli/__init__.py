"""The ``eliza-ffi`` command: a file for each of its commands."""

from __future__ import annotations

from .main import (
    main,
)

__all__ = [
    "main",
]
