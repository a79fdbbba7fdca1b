"""The binding is in :mod:`eliza_ffi.library`; this name stays for those who import it."""

from __future__ import annotations

from .library.binding import (
    CffiBinding,
    CffiStream,
    EotScore,
    LlmStreamingBinding,
    StreamConfig,
    StreamStats,
    StreamStep,
    TrieLeaf,
    VerifierEvent,
    token_array,
)

__all__ = [
    "CffiBinding",
    "CffiStream",
    "EotScore",
    "LlmStreamingBinding",
    "StreamConfig",
    "StreamStats",
    "StreamStep",
    "TrieLeaf",
    "VerifierEvent",
    "token_array",
]
