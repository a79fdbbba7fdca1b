"""Vocabularies of 128,000 tokens and more. A model with one takes up to a second to open."""

from __future__ import annotations

import pytest
from write_decision_models import DEFINITIONS

LARGE_VOCABULARIES = frozenset(("llama-bpe", "qwen2", "command-r", "gemma-4"))

DECISION_MODEL_TYPES = tuple(
    pytest.param(type, marks=pytest.mark.slow)
    if definition.vocab in LARGE_VOCABULARIES
    else pytest.param(type)
    for type, definition in DEFINITIONS.items()
)
"""The parameters of a fixture that opens a model of each type."""
