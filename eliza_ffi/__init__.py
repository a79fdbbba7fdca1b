"""Run a language model in process, and make it choose.

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
    from .choices import Choice, Chooser, TokenTreePayload
    from .elizaos import FfiStreamingGenerateArgs, FfiStreamingRunner
    from .errors import BusyError, ElizaError
    from .library import InferenceCapabilities, detect_capabilities
    from .model import Model
    from .requests import Generation
    from .sampling import SamplingParams
    from .skeleton import Action, FillResult, Skeleton
    from .tool_calls import TextAnswer, ToolCall, ToolCalls

__all__ = [
    "Action",
    "AsyncModel",
    "BusyError",
    "Choice",
    "Chooser",
    "ElizaError",
    "FfiStreamingGenerateArgs",
    "FfiStreamingRunner",
    "FillResult",
    "Generation",
    "InferenceCapabilities",
    "Model",
    "Prompt",
    "SamplingParams",
    "Skeleton",
    "TextAnswer",
    "TokenTreePayload",
    "ToolCall",
    "ToolCalls",
    "__version__",
    "detect_capabilities",
]

__version__ = "0.2.0"
"""The package's version."""

_ROOMS = {
    "async_model": ("AsyncModel",),
    "chat": ("Prompt",),
    "choices": ("Choice", "Chooser", "TokenTreePayload"),
    "errors": ("BusyError", "ElizaError"),
    "library": ("InferenceCapabilities", "detect_capabilities"),
    "model": ("Model",),
    "requests": ("Generation",),
    "elizaos": ("FfiStreamingGenerateArgs", "FfiStreamingRunner"),
    "sampling": ("SamplingParams",),
    "skeleton": ("Action", "FillResult", "Skeleton"),
    "tool_calls": ("TextAnswer", "ToolCall", "ToolCalls"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load what is asked for: numpy and cffi take longer than most commands."""
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f".{_ROOM_OF[name]}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
