"""Token trees are in :mod:`eliza_ffi.choices`; this name stays for those who import it."""

from __future__ import annotations

from .choices.token_tree import (
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
    "TokenTreeDescriptor",
    "TokenTreeLeaf",
    "TokenTreePayload",
    "TokenTrieNode",
    "build_token_tree_descriptor",
    "build_token_trie",
    "count_terminals",
    "estimate_trie_bytes",
    "is_unique_continuation",
    "step",
]
