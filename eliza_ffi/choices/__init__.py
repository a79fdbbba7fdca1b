"""Label sets, their token sequences, and the payloads that pass them to the library."""

from __future__ import annotations

from .label_set import ChoiceResult, LabelSet, as_label_set, tokenize_choice
from .prepared_labels import PreparedLabels
from .rank_result import RankLevel, RankResult
from .token_tree import (
    TokenTreeDescriptor,
    TokenTreeLeaf,
    TokenTreePayload,
    build_token_tree_descriptor,
)

__all__ = [
    "ChoiceResult",
    "LabelSet",
    "PreparedLabels",
    "RankLevel",
    "RankResult",
    "TokenTreeDescriptor",
    "TokenTreeLeaf",
    "TokenTreePayload",
    "as_label_set",
    "build_token_tree_descriptor",
    "tokenize_choice",
]
