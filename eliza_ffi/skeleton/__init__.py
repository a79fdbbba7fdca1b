"""Structured answers: known text with blanks, and what each blank may hold."""

from __future__ import annotations

from .actions import (
    Action,
    Parameter,
)
from .fill_result import (
    AnswerWriter,
    FillResult,
    SpanFill,
)
from .planning import (
    ActionSkeleton,
    ParametersSkeleton,
)
from .response import (
    KINDS,
    Sampling,
    Scalar,
    Skeleton,
    SkeletonSpan,
    SpanOverride,
    SpanSamplerPlan,
)

Answer = AnswerWriter
"""Its name before."""

__all__ = [
    "KINDS",
    "Action",
    "ActionSkeleton",
    "Answer",
    "AnswerWriter",
    "FillResult",
    "Parameter",
    "ParametersSkeleton",
    "Sampling",
    "Scalar",
    "Skeleton",
    "SkeletonSpan",
    "SpanFill",
    "SpanOverride",
    "SpanSamplerPlan",
]
