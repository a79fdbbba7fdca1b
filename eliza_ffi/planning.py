"""Planning is in :mod:`eliza_ffi.skeleton`; this name stays for those who import it."""

from __future__ import annotations

from .skeleton.planning import (
    ActionSkeleton,
    ParametersSkeleton,
)

__all__ = [
    "ActionSkeleton",
    "ParametersSkeleton",
]
