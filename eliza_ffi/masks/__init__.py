"""Masks: which tokens may come next, computed by whoever knows the language of the answer."""

from __future__ import annotations

from .guidance import Guidance, GuidanceMasks, GuidanceSource
from .source import Masks, MaskSource, one_token_mask
from .token_texts import TokenSpeller, TokenTexts

__all__ = [
    "Guidance",
    "GuidanceMasks",
    "GuidanceSource",
    "MaskSource",
    "Masks",
    "TokenSpeller",
    "TokenTexts",
    "one_token_mask",
]
