"""Label sets, their token sequences, and the payloads that pass them to the library."""

from __future__ import annotations

from .label_set import (
    ChoiceResult,
    LabelSet,
    as_label_set,
    tokenize_choice,
)
from .prepared_labels import (
    ChoiceCache,
    PreparedLabels,
)
from .rank_result import RankLevel, RankResult
from .token_tree import (
    TokenTreeDescriptor,
    TokenTreeLeaf,
    TokenTreePayload,
    TokenTrieNode,
    build_token_tree_descriptor,
    build_token_trie,
    count_terminals,
    estimate_trie_bytes,
    is_unique_continuation,
    step,
)

__all__ = [
    "ChoiceCache",
    "ChoiceResult",
    "LabelSet",
    "PreparedLabels",
    "RankLevel",
    "RankResult",
    "TokenTreeDescriptor",
    "TokenTreeLeaf",
    "TokenTreePayload",
    "TokenTrieNode",
    "as_label_set",
    "build_token_tree_descriptor",
    "build_token_trie",
    "count_terminals",
    "estimate_trie_bytes",
    "is_unique_continuation",
    "step",
    "tokenize_choice",
]
