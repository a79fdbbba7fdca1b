"""Labels as token sequences: a trie, and the payload that passes the labels to the library.

The trie here is the reference implementation of the native trie, in pure Python. It defines the
native trie's behaviour in readable form, and the native trie is tested against it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .._lazy import lazy_property
from ..checks import check_callable, check_each, check_kind, check_text, check_whole, found
from ..errors import InvalidArgumentError, TokenTrieError

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

LARGEST_TOKEN = 2**31 - 1

BYTES_PER_NODE = 16
"""The size of a native trie node: token, first child, number of children, leaf; 4 bytes each."""


@dataclass(frozen=True)
class TokenTreeLeaf:
    """One label: its name and its tokens.

    Raises
    ------
    InvalidArgumentError
        If the name or the token list is empty, or a token is not an int from 0 to 2**31 - 1.
    """

    name: str
    tokens: tuple[int, ...]

    def __post_init__(self) -> None:
        problem = _leaf_problem(self.name, self.tokens)
        if problem is not None:
            where, what = problem
            raise InvalidArgumentError(f"leaf {found(self.name)}: {where}{what}")
        object.__setattr__(self, "tokens", tuple(self.tokens))


@dataclass(frozen=True)
class TokenTreeDescriptor:
    """The labels of one constrained span, for example the values of one field.

    Attributes
    ----------
    path : str
        The name of the span, such as ``"action"`` or ``"parameters.status"``.
    leaves : tuple of TokenTreeLeaf
        The labels, in the order of their names.
    """

    path: str
    leaves: tuple[TokenTreeLeaf, ...]

    def __post_init__(self) -> None:
        check_text("path", self.path)
        leaves = check_each("leaves", self.leaves, TokenTreeLeaf, "a TokenTreeLeaf")
        object.__setattr__(self, "leaves", leaves)


@dataclass(frozen=True)
class TokenTreePayload:
    """Label sets in the form that the library reads: token sequences of one model's vocabulary.

    Attributes
    ----------
    model_id : str
        The model whose tokenizer produced the tokens.
    descriptors : tuple of TokenTreeDescriptor
        The label sets. The library allows every label of every set.
    """

    model_id: str
    descriptors: tuple[TokenTreeDescriptor, ...]

    def __post_init__(self) -> None:
        check_text("model_id", self.model_id)
        descriptors = check_each(
            "descriptors", self.descriptors, TokenTreeDescriptor, "a TokenTreeDescriptor"
        )
        object.__setattr__(self, "descriptors", descriptors)

    def select(self, path: str) -> TokenTreePayload:
        """Return a payload with only the descriptors of one path.

        Raises
        ------
        TokenTrieError
            If the payload has no such descriptor; the message lists the paths that it has.
        """
        check_text("path", path)
        chosen = tuple(descriptor for descriptor in self.descriptors if descriptor.path == path)
        if not chosen:
            paths = ", ".join(repr(descriptor.path) for descriptor in self.descriptors) or "none"
            raise TokenTrieError(
                f"the payload has no descriptor with path {path!r}; its paths are {paths}"
            )
        return TokenTreePayload(self.model_id, chosen)

    def leaves(self) -> Iterator[TokenTreeLeaf]:
        """Yield the leaves of all descriptors."""
        for descriptor in self.descriptors:
            yield from descriptor.leaves

    def to_json(self) -> str:
        """Return the payload as JSON, with the same bytes as JavaScript's ``JSON.stringify``."""
        return self._json

    @lazy_property
    def _json(self) -> str:
        descriptors = [
            {
                "path": descriptor.path,
                "leaves": [
                    {"name": leaf.name, "tokens": list(leaf.tokens)} for leaf in descriptor.leaves
                ],
            }
            for descriptor in self.descriptors
        ]
        payload = {"modelId": self.model_id, "descriptors": descriptors}
        return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> TokenTreePayload:
        """Read a payload from JSON; unknown keys are ignored.

        Raises
        ------
        TokenTrieError
            If the text is not JSON or not a payload. The message names the descriptor, leaf and
            token.
        """
        check_kind("text", text, (str, bytes, bytearray), "a string or bytes")
        try:
            raw = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise TokenTrieError(f"the payload is not JSON: {error}") from None
        root = _expect(raw, dict, "the payload")
        model_id = _expect(root.get("modelId"), str, "modelId")
        listed = _expect(root.get("descriptors"), list, "descriptors")
        return cls(
            model_id,
            tuple(_read_descriptor(item, f"descriptors[{i}]") for i, item in enumerate(listed)),
        )


@dataclass
class TokenTrieNode:
    """A node of the trie; it represents a prefix of one or more labels.

    Attributes
    ----------
    children : dict of int to TokenTrieNode
        The child for each possible next token.
    leaf : TokenTreeLeaf or None
        The label that is complete at this node; the first one if several labels have the same
        tokens.
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
    for leaf in check_each("leaves", leaves, TokenTreeLeaf, "a TokenTreeLeaf"):
        node = root
        for token in leaf.tokens:
            node = node.children.setdefault(token, TokenTrieNode())
        if node.leaf is None:
            node.leaf = leaf
    return root


def step(node: TokenTrieNode, token: int) -> TokenTrieNode | None:
    """Return the child for a token; None if the token is not allowed here."""
    return _node(node).children.get(check_whole("token", token))


def is_unique_continuation(node: TokenTrieNode) -> bool:
    """Return whether the node has exactly one child and no label is complete at it."""
    return len(_node(node).children) == 1 and not node.is_terminal


def count_terminals(node: TokenTrieNode) -> int:
    """Return the number of distinct token sequences that end at or below a node."""
    return sum(1 for below in _walk(node) if below.is_terminal)


def estimate_trie_bytes(node: TokenTrieNode) -> int:
    """Return the approximate size of the equivalent native trie in bytes, without names."""
    return BYTES_PER_NODE * sum(1 for _ in _walk(node))


def build_token_tree_descriptor(
    path: str, names: Iterable[str], tokenize: Callable[[str], Sequence[int]]
) -> TokenTreeDescriptor:
    """Tokenize labels and sort them, so that equal label sets have equal JSON.

    Parameters
    ----------
    path
        The path of the span.
    names
        The labels; duplicates are removed.
    tokenize
        A function that returns the tokens that a label has after a prompt, without special tokens.

    Raises
    ------
    InvalidArgumentError
        If there are no names, if a name is empty, or if a name has no tokens.
    """
    check_text("path", path)
    check_callable("tokenize", tokenize)
    names = check_each("names", names, str, "a string")
    # In the order of UTF-16 code units, as in JavaScript: both languages must write the same bytes.
    ordered = sorted(set(names), key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    if not ordered:
        raise InvalidArgumentError(
            f"names: expected at least one for the descriptor of path {path!r}, got none"
        )
    leaves = [TokenTreeLeaf(name, tuple(tokenize(name)) if name else ()) for name in ordered]
    return TokenTreeDescriptor(path, tuple(leaves))


def _node(node: TokenTrieNode) -> TokenTrieNode:
    return check_kind("node", node, TokenTrieNode, "a TokenTrieNode")


def _walk(root: TokenTrieNode) -> Iterator[TokenTrieNode]:
    waiting = [_node(root)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(node.children.values())


def _leaf_problem(name: Any, tokens: Any) -> tuple[str, str] | None:
    """Return the wrong field of a leaf and a description of the problem, or None."""
    if not isinstance(name, str) or not name:
        return "name", f" must be a non-empty string, got {found(name)}"
    if not isinstance(tokens, list | tuple) or not tokens:
        return "tokens", f" must be a non-empty list of token ids, got {found(tokens)}"
    for i, token in enumerate(tokens):
        if not isinstance(token, int) or isinstance(token, bool):
            return f"tokens[{i}]", f" must be a whole number, got {token!r}"
        if not 0 <= token <= LARGEST_TOKEN:
            return f"tokens[{i}]", f" must be 0 to {LARGEST_TOKEN}, got {token}"
    return None


def _read_descriptor(raw: Any, where: str) -> TokenTreeDescriptor:
    item: Mapping[str, Any] = _expect(raw, dict, where)
    path = _expect(item.get("path", ""), str, f"{where}.path")
    listed = _expect(item.get("leaves"), list, f"{where}.leaves")
    leaves = []
    for i, raw_leaf in enumerate(listed):
        at = f"{where}.leaves[{i}]"
        leaf = _expect(raw_leaf, dict, at)
        problem = _leaf_problem(leaf.get("name"), leaf.get("tokens"))
        if problem is not None:
            raise TokenTrieError(f"{at}.{problem[0]}{problem[1]}")
        leaves.append(TokenTreeLeaf(leaf["name"], tuple(leaf["tokens"])))
    return TokenTreeDescriptor(path, tuple(leaves))


def _expect(value: Any, kind: type[Any], where: str) -> Any:
    if not isinstance(value, kind):
        wanted = {"dict": "an object", "list": "a list", "str": "a string"}[kind.__name__]
        raise TokenTrieError(f"{where} must be {wanted}, got {json.dumps(value)[:60]}")
    return value
