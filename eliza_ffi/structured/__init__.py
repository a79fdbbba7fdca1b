"""Structured answers: shapes, token masks, and skeletons (fixed text with values to fill in).

A shape (:mod:`shape`) is a schema, a class, a regular expression or a grammar. llguidance computes
its token masks (:mod:`guidance`, :mod:`masks`), and :mod:`validation` checks the finished value.
"""

from __future__ import annotations

from .fill_result import FilledSpan, FillResult, PartialField, StructuredResult
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
    "StructuredResult",
    "TokenTexts",
]
