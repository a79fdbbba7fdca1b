"""elizaOS's streaming lifecycle: open, prefill, activate the trie, generate, clear, close."""

from __future__ import annotations

from .arguments import (
    FfiStreamingGenerateArgs,
    FfiStreamingResult,
    Usage,
)
from .filling import (
    Fillable,
    FillArgs,
    Filling,
    FillResult,
    SpanFill,
)
from .generation import (
    Generation,
)
from .streaming import (
    FfiStreamingRunner,
    SyncStreamingRunner,
)

__all__ = [
    "FfiStreamingGenerateArgs",
    "FfiStreamingResult",
    "FfiStreamingRunner",
    "FillArgs",
    "FillResult",
    "Fillable",
    "Filling",
    "Generation",
    "SpanFill",
    "SyncStreamingRunner",
    "Usage",
]
