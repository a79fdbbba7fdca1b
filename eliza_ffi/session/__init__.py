"""An open model and its requests: scheduling, runs, batches and results.

:mod:`session` opens the model. A request is made from arguments (:mod:`requests`,
:mod:`tool_calls`), becomes a job that can be run or awaited (:mod:`jobs`), waits for a slot
(:mod:`scheduler`, :mod:`turns`), runs in one stream (:mod:`generation`, :mod:`filling`,
:mod:`scoring`, :mod:`ranking`), and is read as a result (:mod:`reading`, :mod:`text_stream`).
"""

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
