"""Find, load, probe and call libelizainference. Each C function has one method."""

from __future__ import annotations

from .binding import CffiBinding
from .capabilities import InferenceCapabilities, detect_capabilities
from .cffi_values import CffiStream
from .loading import ABI_VERSION, LIBRARY_VARIABLE, PREFIX, REQUIRED_SYMBOLS, Library, find_library
from .protocol import (
    STOP_AT_LEAF,
    TEXT_HEAL_PROMPT,
    TRIE_ARGMAX,
    TRIE_BEST_LEAF,
    TRIE_SAMPLE,
    EotScore,
    SpanResult,
    StreamConfig,
    StreamStats,
    StreamStep,
    TokenCallback,
    Tokens,
    TrieLeaf,
    VerifierEvent,
)

__all__ = [
    "ABI_VERSION",
    "LIBRARY_VARIABLE",
    "PREFIX",
    "REQUIRED_SYMBOLS",
    "STOP_AT_LEAF",
    "TEXT_HEAL_PROMPT",
    "TRIE_ARGMAX",
    "TRIE_BEST_LEAF",
    "TRIE_SAMPLE",
    "CffiBinding",
    "CffiStream",
    "EotScore",
    "InferenceCapabilities",
    "Library",
    "SpanResult",
    "StreamConfig",
    "StreamStats",
    "StreamStep",
    "TokenCallback",
    "Tokens",
    "TrieLeaf",
    "VerifierEvent",
    "detect_capabilities",
    "find_library",
]
