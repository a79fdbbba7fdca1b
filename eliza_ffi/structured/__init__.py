"""Structured answers: shapes, token masks, and skeletons (fixed text with values to fill in).

A shape (:mod:`shape`) is a schema, a class, a regular expression or a grammar. llguidance computes
its token masks (:mod:`guidance`, :mod:`masks`), and :mod:`validation` checks the finished value.
"""

from __future__ import annotations

from .fill_result import AnswerWriter, FilledSpan, FillResult
from .guidance import Guidance, GuidanceMasks, GuidanceSource
from .json_reader import JsonReader
from .masks import Masks, MaskSource
from .sampler_plan import SpanOverride, SpanSamplerPlan, SpanSampling
from .shape import Gbnf, Lark, Regex, Shape, is_shape, shape_of
from .shaped_result import PartialField, StructuredResult
from .skeleton import Skeleton
from .spans import KINDS, Scalar, SkeletonSpan
from .token_texts import TokenSpeller, TokenTexts

__all__ = [
    "KINDS",
    "AnswerWriter",
    "FillResult",
    "FilledSpan",
    "Gbnf",
    "Guidance",
    "GuidanceMasks",
    "GuidanceSource",
    "JsonReader",
    "Lark",
    "MaskSource",
    "Masks",
    "PartialField",
    "Regex",
    "Scalar",
    "Shape",
    "Skeleton",
    "SkeletonSpan",
    "SpanOverride",
    "SpanSamplerPlan",
    "SpanSampling",
    "StructuredResult",
    "TokenSpeller",
    "TokenTexts",
    "is_shape",
    "shape_of",
]
