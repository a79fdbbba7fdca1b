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
    from .classifier import Classifier
    from .decisions import Choice, Decision, MultiLabel, Predicate, Score
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
    from .evidence import Calibration, Cascade
    from .learning import calibrate, evaluate
    from .model import Model
    from .sampling import Sampling
    from .session import (
        AsyncTextStream,
        CacheOptions,
        GenerationResult,
        RerankResult,
        Speculation,
        TextAnswer,
        TextStream,
        TokenLogprob,
        ToolCall,
        ToolCalls,
    )
    from .structured import (
        FilledSpan,
        FillResult,
        Gbnf,
        Lark,
        PartialField,
        Regex,
        Skeleton,
    )

__version__: str
"""The version of the installed package."""

__all__ = [
    "AsyncModel",
    "AsyncTextStream",
    "BusyError",
    "CacheOptions",
    "Calibration",
    "Cascade",
    "ChatTemplateError",
    "Choice",
    "ChoiceResult",
    "Classifier",
    "ContextFullError",
    "Decision",
    "ElizaError",
    "FillError",
    "FillResult",
    "FilledSpan",
    "Gbnf",
    "GenerationResult",
    "InvalidAnswerError",
    "InvalidArgumentError",
    "Lark",
    "Model",
    "ModelError",
    "MultiLabel",
    "NotSupportedError",
    "PartialField",
    "Predicate",
    "PreparedLabels",
    "Prompt",
    "RankResult",
    "Regex",
    "RerankResult",
    "Sampling",
    "Score",
    "Skeleton",
    "Speculation",
    "TextAnswer",
    "TextStream",
    "TokenLogprob",
    "ToolCall",
    "ToolCalls",
    "__version__",
    "calibrate",
    "evaluate",
]

_ROOMS = (
    "errors",
    "sampling",
    "chat",
    "choices",
    "structured",
    "session",
    "decisions",
    "evidence",
    "learning",
    "model",
    "async_model",
    "classifier",
)
"""Where the public names are. A room comes after the rooms that it imports."""


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, because importing numpy and cffi is slow."""
    if name == "__version__":
        globals()[name] = importlib.import_module("importlib.metadata").version("eliza-ffi")
        return globals()[name]
    if name in __all__:
        for room in _ROOMS:
            module = importlib.import_module(f".{room}", __name__)
            if name in module.__all__:
                globals()[name] = getattr(module, name)
                return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
