"""The reference implementation of the native trie, in pure Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from eliza_ffi.choices.token_tree import TokenTreeLeaf

__all__ = ["TokenTrieNode", "build_token_trie"]


@dataclass
class TokenTrieNode:
    """A node of the trie, which represents a prefix of one or more labels, by the next token.

    `leaf` is the label that is complete here; the first one if several labels have the same tokens.
    """

    children: dict[int, TokenTrieNode] = field(default_factory=dict)
    leaf: TokenTreeLeaf | None = None

    @property
    def is_terminal(self) -> bool:
        """Whether a label is complete at this node."""
        return self.leaf is not None

    @property
    def allowed(self) -> list[int]:
        """The allowed next tokens, ascending."""
        return sorted(self.children)


def build_token_trie(leaves: Iterable[TokenTreeLeaf]) -> TokenTrieNode:
    """Build a trie from leaves and return its root."""
    root = TokenTrieNode()
    for leaf in leaves:
        node = root
        for token in leaf.tokens:
            node = node.children.setdefault(token, TokenTrieNode())
        if node.leaf is None:
            node.leaf = leaf
    return root
