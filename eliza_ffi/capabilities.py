"""Capabilities are in :mod:`eliza_ffi.library`; this name stays for those who import it."""

from __future__ import annotations

from .library.capabilities import (
    InferenceCapabilities,
    detect_capabilities,
)

__all__ = [
    "InferenceCapabilities",
    "detect_capabilities",
]
