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
    FillResult,
    FillRun,
    SpanFill,
)
from .generation import (
    GenerationRun,
)
from .streaming import (
    FfiStreamingRunner,
    SyncStreamingRunner,
)

# Their names before there was a `requests.Generation`, which is a result.
Generation = GenerationRun
Filling = FillRun

__all__ = [
    "FfiStreamingGenerateArgs",
    "FfiStreamingResult",
    "FfiStreamingRunner",
    "FillArgs",
    "FillResult",
    "FillRun",
    "Fillable",
    "Filling",
    "Generation",
    "GenerationRun",
    "SpanFill",
    "SyncStreamingRunner",
    "Usage",
]
