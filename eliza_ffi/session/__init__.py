"""An open model and its requests: scheduling, runs, batches and results."""

from __future__ import annotations

from .filling import Fillable, FillRequest, FillRun
from .generation import GenerationRun
from .options import CacheOptions, Speculation
from .reading import Reading
from .request import GenerationRequest, RunResult, TextChoices
from .requests import GenerationResult, TokenLogprob
from .session import Session
from .text_stream import AsyncTextStream, TextStream
from .tool_calls import TextAnswer, ToolCall, ToolCalls

__all__ = [
    "AsyncTextStream",
    "CacheOptions",
    "FillRequest",
    "FillRun",
    "Fillable",
    "GenerationRequest",
    "GenerationResult",
    "GenerationRun",
    "Reading",
    "RunResult",
    "Session",
    "Speculation",
    "TextAnswer",
    "TextChoices",
    "TextStream",
    "TokenLogprob",
    "ToolCall",
    "ToolCalls",
]
