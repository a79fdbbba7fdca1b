"""The vocabulary as a tree of nodes, walked recursively: the slow, obvious way.

It is what the tests compare the flattened trie with, and what tells how many nodes a walk visits.

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

__all__ = ["PrefixOf", "Recognizer", "SimpleTrie", "Walk"]


class Recognizer(Protocol):
    """Which bytes may follow each other; a state is any value."""

    start: Any

    def step(self, state: Any, byte: int) -> Any | None:
        """Return the state behind a byte, None if it is illegal."""


class PrefixOf:
    """Beginnings of some texts; the state is what was read."""

    start = b""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = texts

    def step(self, state: bytes, byte: int) -> bytes | None:
        longer = state + bytes([byte])
        return longer if any(text.startswith(longer) for text in self._texts) else None


@dataclass
class Node:
    """A place in the tree: the tokens that end here, and what follows by the next byte."""

    tokens: list[int] = field(default_factory=list)
    children: dict[int, Node] = field(default_factory=dict)


@dataclass
class Walk:
    """What a walk over the tree found.

    Attributes
    ----------
    tokens : list of int
        The legal ones, in the order of the walk.
    n_visited : int
        Nodes whose byte the recognizer was asked about.
    """

    tokens: list[int] = field(default_factory=list)
    n_visited: int = 0


class SimpleTrie:
    """The tokens' texts as a tree; an empty text is no token's.

    Attributes
    ----------
    n_nodes : int
        With the root.
    """

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
        """Return the tokens whose bytes are legal one after the other, ascending."""
        return sorted(self.walk(recognizer, state).tokens)

    def walk(self, recognizer: Recognizer, state: Any = None) -> Walk:
        """Walk from a state, the recognizer's first one if it is None."""
        walk = Walk()
        _traverse(self._root, recognizer, recognizer.start if state is None else state, walk)
        return walk


def _traverse(node: Node, recognizer: Recognizer, state: Any, walk: Walk) -> None:
    walk.tokens += node.tokens
    for byte, child in node.children.items():
        walk.n_visited += 1
        behind = recognizer.step(state, byte)
        if behind is not None:
            _traverse(child, recognizer, behind, walk)
