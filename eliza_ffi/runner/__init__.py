"""Run requests: wait for a slot, open a stream, prefill, generate, close."""

from __future__ import annotations

from .filling import Fillable, FillRequest, FillResult, FillRun, SpanFill
from .generation import GenerationRun
from .request import GenerationRequest, RunResult, TextChoices

__all__ = [
    "FillRequest",
    "FillResult",
    "FillRun",
    "Fillable",
    "GenerationRequest",
    "GenerationRun",
    "RunResult",
    "SpanFill",
    "TextChoices",
]
