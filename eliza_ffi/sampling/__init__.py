"""Sampling settings: the samplers that a token is drawn with, their order, and presets."""

from __future__ import annotations

from .order import BOOK_ORDER, DEFAULT_ORDER, SAMPLER_NAMES, parse_order
from .params import PRESETS, Sampling

__all__ = [
    "BOOK_ORDER",
    "DEFAULT_ORDER",
    "PRESETS",
    "SAMPLER_NAMES",
    "Sampling",
    "parse_order",
]
