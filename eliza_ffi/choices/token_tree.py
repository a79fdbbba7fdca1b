"""Labels as token sequences: the payload that passes them to the library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .._lazy import lazy_property
from ..checks import check_callable, check_each, check_kind, check_text, found
from ..errors import InvalidArgumentError, TokenTrieError

LARGEST_TOKEN = 2**31 - 1


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
            {"path": each.path, "leaves": [vars(leaf) for leaf in each.leaves]}
            for each in self.descriptors
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


def build_token_tree_descriptor(
    path: str, names: Iterable[str], tokenize: Callable[[str], Sequence[int]]
) -> TokenTreeDescriptor:
    """Tokenize labels and sort them, so that equal label sets have equal JSON.

    >>> build_token_tree_descriptor("action", ["REPLY", "IGNORE"], model.tokenize).leaves[0].name
    'IGNORE'

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
