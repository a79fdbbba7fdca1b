"""Make a local language model choose labels, answer typed questions and write structured data.

>>> import eliza_ffi
>>> with eliza_ffi.Model() as model:  # doctest: +SKIP
...     model.choose("message: stop!\\naction: ", ["RESPOND", "IGNORE", "STOP"]).value
'STOP'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .async_model import AsyncModel
    from .chat import Prompt
    from .choices import ChoiceResult, PreparedLabels, RankResult
    from .decisions import Calibration, Decision, Labels, Predicate, Score
    from .errors import (
        BusyError,
        ChatTemplateError,
        ContextFullError,
        ElizaError,
        FillError,
        InvalidAnswerError,
        InvalidArgumentError,
        ModelError,
        NotSupportedError,
    )
    from .model import Model
    from .sampling import Sampling
    from .session import (
        AsyncTextStream,
        CacheOptions,
        GenerationResult,
        Speculation,
        TextAnswer,
        TextStream,
        TokenLogprob,
        ToolCall,
        ToolCalls,
    )
    from .structured import (
        FieldFill,
        FillResult,
        Gbnf,
        Lark,
        Regex,
        ShapedResult,
        Skeleton,
        SpanFill,
    )

__all__ = [
    "AsyncModel",
    "AsyncTextStream",
    "BusyError",
    "CacheOptions",
    "Calibration",
    "ChatTemplateError",
    "ChoiceResult",
    "ContextFullError",
    "Decision",
    "ElizaError",
    "FieldFill",
    "FillError",
    "FillResult",
    "Gbnf",
    "GenerationResult",
    "InvalidAnswerError",
    "InvalidArgumentError",
    "Labels",
    "Lark",
    "Model",
    "ModelError",
    "NotSupportedError",
    "Predicate",
    "PreparedLabels",
    "Prompt",
    "RankResult",
    "Regex",
    "Sampling",
    "Score",
    "ShapedResult",
    "Skeleton",
    "SpanFill",
    "Speculation",
    "TextAnswer",
    "TextStream",
    "TokenLogprob",
    "ToolCall",
    "ToolCalls",
    "__version__",
]

__version__ = "0.2.0"
"""The version of the package."""

_ROOMS = {
    "async_model": ("AsyncModel",),
    "chat": ("Prompt",),
    "choices": (
        "ChoiceResult",
        "PreparedLabels",
        "RankResult",
    ),
    "decisions": (
        "Calibration",
        "Decision",
        "Labels",
        "Predicate",
        "Score",
    ),
    "errors": (
        "BusyError",
        "ChatTemplateError",
        "ContextFullError",
        "ElizaError",
        "FillError",
        "InvalidAnswerError",
        "InvalidArgumentError",
        "ModelError",
        "NotSupportedError",
    ),
    "model": ("Model",),
    "sampling": ("Sampling",),
    "session": (
        "AsyncTextStream",
        "CacheOptions",
        "GenerationResult",
        "Speculation",
        "TextAnswer",
        "TextStream",
        "TokenLogprob",
        "ToolCall",
        "ToolCalls",
    ),
    "structured": (
        "FieldFill",
        "FillResult",
        "Gbnf",
        "Lark",
        "Regex",
        "ShapedResult",
        "Skeleton",
        "SpanFill",
    ),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, because importing numpy and cffi is slow."""
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_ROOM_OF[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
