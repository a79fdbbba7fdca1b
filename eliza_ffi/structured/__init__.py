"""Schemas, token masks and validation of JSON answers, and skeletons (fixed text with values to
fill in)."""

from __future__ import annotations

from .fill_result import FilledSpan, FillResult, PartialField
from .masks import Masks, MaskSource
from .sampler_plan import SpanOverride, SpanSamplerPlan, SpanSampling
from .shape import Gbnf, Lark, Regex
from .skeleton import Skeleton
from .spans import KINDS, Scalar, SkeletonSpan
from .token_texts import TokenTexts

__all__ = [
    "KINDS",
    "FillResult",
    "FilledSpan",
    "Gbnf",
    "Lark",
    "MaskSource",
    "Masks",
    "PartialField",
    "Regex",
    "Scalar",
    "Skeleton",
    "SkeletonSpan",
    "SpanOverride",
    "SpanSamplerPlan",
    "SpanSampling",
    "TokenTexts",
]
