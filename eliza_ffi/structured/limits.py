"""Limits of size and depth for llguidance's input, because its compilation cannot be interrupted,
and follows references by recursion. It takes about two seconds at these limits."""

from __future__ import annotations

import functools
import graphlib
import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ..checks import wrong
from ..errors import InvalidArgumentError
from .json_text import is_unicode, json_parts
from .schema_walk import OF_SAME_VALUE, SchemaDocument, rules_of
from .validation import checked_draft

MAX_SCHEMA_BYTES = 2**20
"""The longest schema, in bytes of JSON in UTF-8."""

MAX_BYTES = 2**18
"""The longest regular expression or Lark grammar, in bytes of UTF-8."""

MAX_VALUES = 2**15
"""The maximum number of values, also nested, in all ``enum`` and ``const`` of a schema together."""

MAX_FIELDS = 2**12
"""The maximum number of ``properties``, and of ``patternProperties``, of one object."""

DEEPEST = 100
"""The deepest nesting of arrays and objects in a schema's JSON."""

_VALUE = re.compile(r"/(?:const(?:/|$)|enum/\d)")


def checked_text(kind: str, text: Any) -> str:
    """Return a regular expression or a grammar. Raise InvalidArgumentError if it is not a string,
    or too long."""
    if not isinstance(text, str):
        raise wrong(f"a {kind}", "a string", text)
    _check_bytes(f"the {kind}", text, MAX_BYTES)
    return text


def checked_schema(schema: Any) -> str:
    """Check a schema, and return it as JSON, in which ``nullable`` is written as JSON Schema.
    Errors are InvalidArgumentErrors that name the place."""
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (RecursionError, TypeError, ValueError) as error:
        _check_parts(schema)
        raise InvalidArgumentError(f"the schema is not JSON: {error}") from None
    state = _state_of(text)
    if not state:
        _check_parts(schema)
        _check_bytes("the schema", text, MAX_SCHEMA_BYTES)
        checked_draft(text)
        state.append(with_null(text))
    return state[0]


@functools.lru_cache(maxsize=64)
def _state_of(text: str) -> list[str]:
    """Return a list for each recent schema, which gets the result once the schema was checked."""
    return []


def _check_parts(schema: Any) -> None:
    n_values = 0
    for pointer, part in json_parts(schema):
        problem = ""
        n_values += _VALUE.search(pointer) is not None
        if n_values > MAX_VALUES:
            problem = f"expected at most {MAX_VALUES} values in all enum and const together"
        elif pointer.count("/") > DEEPEST:
            problem = f"the schema is nested deeper than {DEEPEST} levels"
        elif isinstance(part, str) and not is_unicode(part):
            problem = "the string has a lone surrogate, which is not a character"
        elif isinstance(part, dict):
            for name in ("properties", "patternProperties"):
                fields = part.get(name)
                if isinstance(fields, dict) and len(fields) > MAX_FIELDS:
                    problem = f"{name}: expected at most {MAX_FIELDS} fields, got {len(fields)}"
        if problem:
            shown = pointer if len(pointer) <= 200 else f"{pointer[:200]}..."
            raise InvalidArgumentError(f"JSON schema at #{shown}: {problem}")


def _check_bytes(what: str, text: str, most: int) -> None:
    if len(text) <= most and not is_unicode(text):
        raise InvalidArgumentError(f"{what} has a lone surrogate, which is not a character")
    n_bytes = len(text) if len(text) > most else len(text.encode())
    if n_bytes > most:
        raise InvalidArgumentError(
            f"{what} is too long: expected at most {most} bytes in UTF-8, got more"
        )


def with_null(text: str) -> str:
    """Allow null where ``nullable`` is true, which JSON Schema does not know, in a schema as
    JSON."""
    if '"nullable"' not in text:
        return text
    schema = json.loads(text)
    for _, part in list(SchemaDocument(schema).parts()):
        if part.get("nullable") is True:
            del part["nullable"]
            _allow_null(part)
    return json.dumps(schema, ensure_ascii=False)


def _allow_null(part: dict[str, Any]) -> None:
    if part.keys() & OF_SAME_VALUE:
        inner = {key: part.pop(key) for key in [*part] if key in rules_of(part)}
        part["anyOf"] = [inner, {"type": "null"}]
        return
    if "const" in part:
        part["enum"] = [part.pop("const")]
    for key, null in (("type", "null"), ("enum", None)):
        if key in part:
            allowed = part[key] if isinstance(part[key], list) else [part[key]]
            part[key] = [*allowed, *([] if null in allowed else [null])]


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
