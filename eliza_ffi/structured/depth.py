"""Limit chains of schemas or rules that refer to each other: llguidance follows them by recursion,
5 kB each."""

from __future__ import annotations

import graphlib
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from ..errors import InvalidArgumentError
from .schema_walk import OF_SAME_VALUE, SchemaDocument

MAX_CHAIN = 500
"""The maximum length of a chain of parts, each of which contains or names the next part."""

_RULE = re.compile(r"^[ \t]*[!?]*(\w+)[^:\n]*:", re.MULTILINE)
_WORD = re.compile(r"\w+")

Node = TypeVar("Node", bound=Hashable)


def check_references(document: SchemaDocument) -> None:
    """Raise InvalidArgumentError if a chain of subschemas and references is too long, or if a part
    leads back to itself for the same value, so that a validator would not come to an end."""
    inner: dict[int, list[int]] = {}  # by the identities of parts
    of_same_value: dict[int, list[int]] = {}
    for pointer, part in document.parts():
        parts = document.inner(pointer, part)
        found = [(key, id(each)) for key, _, each in parts if isinstance(each, dict)]
        inner[id(part)] = [each for _, each in found]
        of_same_value[id(part)] = [each for key, each in found if key in OF_SAME_VALUE]
    _check("the schema", "schemas", inner)
    try:
        graphlib.TopologicalSorter(of_same_value).prepare()
    except graphlib.CycleError:
        raise InvalidArgumentError(
            "a part of the schema refers to itself for the same value"
        ) from None


def check_depth_of_grammar(grammar: str) -> None:
    """Raise InvalidArgumentError if a chain of rules of a Lark grammar is too long."""
    rules = list(_RULE.finditer(grammar))
    ends = [*(rule.start() for rule in rules[1:]), len(grammar)]
    inner: dict[str, set[str]] = {rule.group(1): set() for rule in rules}
    for rule, end in zip(rules, ends, strict=False):
        words = set(_WORD.findall(grammar, rule.end(), end))
        inner[rule.group(1)] |= words & inner.keys()
    _check("the Lark grammar", "rules", inner)


def _check(what: str, parts: str, inner: Mapping[Node, Iterable[Node]]) -> None:
    if _longest_chain(inner) > MAX_CHAIN:
        raise InvalidArgumentError(
            f"{what} is nested too deeply: expected chains of at most {MAX_CHAIN} {parts}, each of "
            "which contains or names the next one, got a longer chain"
        )


def _longest_chain(inner: Mapping[Node, Iterable[Node]]) -> int:
    """Return an upper bound for the length of a path that visits no node twice. All nodes of a
    strongly connected component (Tarjan's algorithm) count, because they may be on one path."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    open_nodes: list[Node] = []
    longest: dict[Node, int] = {}  # of the nodes in complete components
    for root in inner:
        if root in index:
            continue
        path: list[tuple[Node, Iterator[Node]]] = []
        following: Node | None = root
        while path or following is not None:
            if following is not None:
                index[following] = low[following] = len(index)
                open_nodes.append(following)
                path.append((following, iter(inner[following])))
                following = None
            node, others = path[-1]
            for other in others:
                if other not in index:
                    following = other
                    break
                if other not in longest:
                    low[node] = min(low[node], low[other])
            if following is not None:
                continue
            path.pop()
            if path:
                low[path[-1][0]] = min(low[path[-1][0]], low[node])
            if low[node] == index[node]:
                component = [open_nodes.pop()]
                while component[-1] != node:
                    component.append(open_nodes.pop())
                below = [longest.get(each, 0) for member in component for each in inner[member]]
                longest.update(dict.fromkeys(component, len(component) + max(below, default=0)))
    return max(longest.values(), default=0)
