"""Choices: sets of them as token sequences, and the payloads that carry them to the library."""

from __future__ import annotations

from .choice_set import (
    Choice,
    ChoiceSet,
    as_choice_set,
    tokenize_choice,
)
from .chooser import (
    ChoiceCache,
    Chooser,
)
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
    "Choice",
    "ChoiceCache",
    "ChoiceSet",
    "Chooser",
    "TokenTreeDescriptor",
    "TokenTreeLeaf",
    "TokenTreePayload",
    "TokenTrieNode",
    "as_choice_set",
    "build_token_tree_descriptor",
    "build_token_trie",
    "count_terminals",
    "estimate_trie_bytes",
    "is_unique_continuation",
    "step",
    "tokenize_choice",
]
