"""A slow, obvious trie of a vocabulary: a tree of nodes, walked recursively.

Tests compare the flattened trie with it.

>>> trie = SimpleTrie([b"a", b"b", b"ax", b"ayz", b"b"])
>>> trie.n_nodes
6
>>> trie.allowed(PrefixOf([b"ay", b"b"]))
[0, 1, 4]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


class Recognizer(Protocol):
    """An automaton over bytes; a state can be any value except None."""

    start: Any

    def step(self, state: Any, byte: int) -> Any | None:
        """Return the state after a byte; None = the byte is not allowed."""


class PrefixOf:
    """Accepts the prefixes of some strings; a state is the bytes read so far."""

    start = b""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = texts

    def step(self, state: bytes, byte: int) -> bytes | None:
        longer = state + bytes([byte])
        return longer if any(text.startswith(longer) for text in self._texts) else None


@dataclass
class Node:
    """A node of the tree: the tokens that end here, and the children by their byte."""

    tokens: list[int] = field(default_factory=list)
    children: dict[int, Node] = field(default_factory=dict)


class SimpleTrie:
    """The bytes of all tokens as a tree of `n_nodes` nodes. Tokens without bytes are left out."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self.n_nodes = 1
        self._root = Node()
        for token, text in enumerate(texts):
            if not text:
                continue
            node = self._root
            for byte in text:
                if byte not in node.children:
                    node.children[byte] = Node()
                    self.n_nodes += 1
                node = node.children[byte]
            node.tokens.append(token)

    def allowed(self, recognizer: Recognizer, state: Any = None) -> list[int]:
        """Return the tokens that the recognizer allows after a state, in ascending order.

        Without a state, the walk begins in the recognizer's start state.
        """
        found: list[int] = []
        _walk(self._root, recognizer, recognizer.start if state is None else state, found)
        return sorted(found)


def _walk(node: Node, recognizer: Recognizer, state: Any, found: list[int]) -> None:
    found += node.tokens
    for byte, child in node.children.items():
        following = recognizer.step(state, byte)
        if following is not None:
            _walk(child, recognizer, following, found)
