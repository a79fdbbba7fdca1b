"""elizaOS's binding on phones is in :mod:`eliza_ffi.library.elder`; this name stays."""

from __future__ import annotations

from .library.elder.aosp import (
    AospStreamingLlmBinding,
)

__all__ = [
    "AospStreamingLlmBinding",
]
