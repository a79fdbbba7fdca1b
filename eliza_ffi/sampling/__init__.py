"""Sampling settings: the samplers that a token is drawn with, their order, and presets."""

from __future__ import annotations

from .params import BOOK_ORDER, DEFAULT_ORDER, PRESETS, SAMPLER_NAMES, Sampling, parse_order

__all__ = ["BOOK_ORDER", "DEFAULT_ORDER", "PRESETS", "SAMPLER_NAMES", "Sampling", "parse_order"]
