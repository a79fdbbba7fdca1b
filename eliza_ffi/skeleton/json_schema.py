"""Skeletons from JSON Schema: the part of it in which the order of everything is known.

Every answer of such a skeleton is valid against the schema. What a skeleton cannot say is an error
that names the keyword and where it is, as a JSON pointer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import InvalidArgumentError
from .free_values import INTEGER_PATTERN, NUMBER_PATTERN, STRING_PATTERN
from .json_text import json_text
from .placed_span import PlacedSpan, regex_literal
from .spans import Scalar, SkeletonSpan

__all__ = ["DEEPEST_SCHEMA", "skeleton_spans"]

DEEPEST_SCHEMA = 32
"""The deepest that objects may stand in objects."""

MOST_INTEGERS = 1000
"""The widest range of whole numbers that becomes a choice of one of them."""

LONGEST_STRING = 1000
"""The most characters that minLength and maxLength may count: an automaton counts with states."""

MOST_ITEMS = 64

ANNOTATIONS = frozenset(
    (
        *("$schema", "$id", "$comment", "$anchor", "$defs", "definitions", "title"),
        *("description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format"),
    )
)
"""Keywords that restrict nothing; ``format`` does not either, unless a validator is told to."""

KEYWORDS: dict[str, frozenset[str]] = {
    # Whatever additionalProperties allows is kept to: nothing but the properties is written.
    "object": frozenset(("properties", "required", "additionalProperties")),
    "string": frozenset(("pattern", "minLength", "maxLength")),
    "integer": frozenset(("minimum", "maximum")),
    "number": frozenset(),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset(("items", "minItems", "maxItems")),
}


def skeleton_spans(schema: Any) -> tuple[SkeletonSpan, ...]:
    """Return the spans of a skeleton for a schema.

    Parameters
    ----------
    schema
        A JSON Schema, as Python data. Understood are

        - ``object`` with ``properties``, all of which are written, in their order;
        - ``string``, with ``pattern`` (for the whole string, in the syntax of
          :mod:`eliza_ffi.automata.regex_syntax`), ``minLength`` and ``maxLength``; with any of
          these no character is written that would need an escape;
        - ``integer``, with both ``minimum`` and ``maximum`` up to 1,000 numbers apart; ``number``;
          ``boolean``; ``null``;
        - ``array`` whose ``items`` are an ``enum``, a ``const``, or plain strings, numbers,
          integers, booleans or nulls, with ``minItems`` and ``maxItems`` up to 64;
        - ``enum`` of strings, numbers, booleans and null; any ``const``;
        - ``true`` and ``{}``: any value, nested up to 16 deep.

    Raises
    ------
    InvalidArgumentError
        If anything else is in it, or it is nested deeper than 32.
    """
    return tuple(_merged(_spans(schema, "", None, 0)))


def _spans(schema: Any, at: str, key: str | None, depth: int) -> list[SkeletonSpan]:
    if depth > DEEPEST_SCHEMA:
        raise _error(
            at,
            f"the schema is nested deeper than {DEEPEST_SCHEMA} levels; one that contains itself "
            f"has no end",
        )
    if schema is True or schema == {}:
        return [SkeletonSpan("free-json", key)]
    if schema is False:
        raise _error(at, "no value is valid against false")
    if not isinstance(schema, Mapping):
        raise _error(at, f"a schema must be an object, true or false, not {schema!r:.80}")
    if "const" in schema:
        return [_literal(_const(schema, at))]
    if "enum" in schema:
        values = _enum(schema, at)
        return [_literal(json_text(values[0]))] if len(values) == 1 else [_choice(values, key)]
    kind = _type(schema, at)
    if kind == "object":
        return _object(schema, at, key, depth)
    if kind == "array":
        return [SkeletonSpan("pattern", key, pattern=_array_pattern(schema, at))]
    if kind == "string":
        pattern = _string_pattern(schema, at)
        if pattern is None:
            return [SkeletonSpan("free-string", key)]
        return [_literal('"'), SkeletonSpan("pattern", key, pattern=pattern), _literal('"')]
    if kind == "integer" and not KEYWORDS["integer"].isdisjoint(schema):
        return [_choice(_integers(schema, at), key)]
    return [_literal("null") if kind == "null" else SkeletonSpan(kind, key)]


def _object(schema: Mapping[str, Any], at: str, key: str | None, depth: int) -> list[SkeletonSpan]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        raise _error(at, "an object needs properties: a skeleton has fixed keys")
    required = schema.get("required", [])
    if not isinstance(required, list | tuple):
        raise _error(at, f"required must be a list, not {required!r:.80}")
    missing = [name for name in required if name not in list(properties)]
    if missing:
        raise _error(at, f"required names {missing[0]!r}, which is not among the properties")
    spans = [_literal("{")]
    for i, (name, inner) in enumerate(properties.items()):
        inner_at = f"{at}/properties/{_pointer_part(name)}"
        try:
            spans.append(_literal(("," if i else "") + json_text(str(name)) + ":"))
        except InvalidArgumentError as error:
            raise _error(inner_at, str(error)) from None
        inner_key = str(name) if key is None else f"{key}.{name}"
        spans += _spans(inner, inner_at, inner_key, depth + 1)
    return [*spans, _literal("}")]


def _array_pattern(schema: Mapping[str, Any], at: str) -> str:
    item = _item_pattern(schema.get("items", True), f"{at}/items")
    fewest = _count(schema, "minItems", 0, MOST_ITEMS, at)
    most = None
    if "maxItems" in schema:
        most = _count(schema, "maxItems", 0, MOST_ITEMS, at)
        if most < fewest:
            raise _error(at, f"maxItems is {most}, below minItems, {fewest}")
    if most == 0:
        return r"\[\]"
    more = f"{{{max(fewest - 1, 0)},{'' if most is None else most - 1}}}"
    items = f"{item}(?:,{item}){more}"
    return rf"\[{items}\]" if fewest else rf"\[(?:{items})?\]"


def _item_pattern(schema: Any, at: str) -> str:
    """Return a regular expression for an item as JSON spells it."""
    if not isinstance(schema, Mapping):
        raise _error(at, "the items of an array must be of a known type")
    if "const" in schema:
        return regex_literal(_const(schema, at))
    if "enum" in schema:
        return _alternatives(json_text(value) for value in _enum(schema, at))
    kind = _type(schema, at)
    if kind == "integer" and not KEYWORDS["integer"].isdisjoint(schema):
        return _alternatives(json_text(value) for value in _integers(schema, at))
    if kind == "string" and _string_pattern(schema, at) is not None:
        raise _error(at, "pattern, minLength and maxLength are not supported inside an array")
    patterns = {
        "boolean": "(?:true|false)",
        "null": "null",
        "integer": INTEGER_PATTERN,
        "number": NUMBER_PATTERN,
        "string": STRING_PATTERN,
    }
    if kind not in patterns:
        raise _error(at, f"arrays of {kind}s are not supported")
    return patterns[kind]


def _alternatives(texts: Iterable[str]) -> str:
    return f"(?:{'|'.join(regex_literal(text) for text in texts)})"


def _type(schema: Mapping[str, Any], at: str) -> str:
    kind = schema.get("type")
    # A union, a reference or a condition is what is wrong, rather than the type that it replaces.
    _check_keywords(schema, KEYWORDS.get(str(kind), frozenset()), at)
    if kind is None:
        raise _error(at, "a schema needs a type, an enum or a const")
    if isinstance(kind, list | tuple):
        raise _error(at, f"a choice of types, {list(kind)!r:.80}, is not supported")
    if not isinstance(kind, str) or kind not in KEYWORDS:
        raise _error(at, f"type must be one of {', '.join(KEYWORDS)}, not {kind!r:.80}")
    return kind


def _check_keywords(schema: Mapping[str, Any], known: frozenset[str], at: str) -> None:
    for name in schema:
        if name in known or name in ANNOTATIONS or name == "type" or str(name).startswith("x-"):
            continue
        raise _error(at, f"{name} is not supported")


def _const(schema: Mapping[str, Any], at: str) -> str:
    _check_keywords(schema, frozenset(("const",)), at)
    try:
        text = json_text(schema["const"])
    except InvalidArgumentError as error:
        raise _error(at, f"const: {error}") from None
    if "type" in schema:
        _check_type(schema["const"], schema["type"], "const", at)
    return text


def _enum(schema: Mapping[str, Any], at: str) -> tuple[Scalar, ...]:
    _check_keywords(schema, frozenset(("enum",)), at)
    values = schema["enum"]
    if not isinstance(values, list | tuple):
        raise _error(at, f"enum must be a list, not {values!r:.80}")
    try:
        span = SkeletonSpan("enum", enum_values=tuple(values))
    except InvalidArgumentError as error:
        raise _error(at, str(error).replace("enum_values", "enum")) from None
    if "type" in schema:
        for i, value in enumerate(values):
            _check_type(value, schema["type"], f"enum[{i}]", at)
    return span.enum_values or ()


def _integers(schema: Mapping[str, Any], at: str) -> tuple[Scalar, ...]:
    bounds = []
    for name in ("minimum", "maximum"):
        bound = schema.get(name)
        if isinstance(bound, float) and bound.is_integer():
            bound = int(bound)
        if not isinstance(bound, int) or isinstance(bound, bool):
            raise _error(
                at, "an integer's range needs both minimum and maximum, each a whole number"
            )
        bounds.append(bound)
    first, last = bounds
    if not 0 <= last - first < MOST_INTEGERS:
        raise _error(
            at,
            f"the range from minimum {first} to maximum {last} must hold 1 to {MOST_INTEGERS} "
            f"numbers",
        )
    return tuple(range(first, last + 1))


def _string_pattern(schema: Mapping[str, Any], at: str) -> str | None:
    if "pattern" in schema:
        if "minLength" in schema or "maxLength" in schema:
            raise _error(at, "pattern together with minLength or maxLength is not supported")
        pattern = schema["pattern"]
        if not isinstance(pattern, str):
            raise _error(at, f"pattern must be a string, not {pattern!r:.80}")
        try:
            PlacedSpan(0, SkeletonSpan("pattern", pattern=pattern), in_string=True).request()
        except InvalidArgumentError as error:
            raise _error(at, str(error)) from None
        return pattern
    fewest = _count(schema, "minLength", 0, LONGEST_STRING, at)
    if "maxLength" not in schema:
        return rf"[^\x00-\x1F]{{{fewest},}}" if fewest else None
    most = _count(schema, "maxLength", 0, LONGEST_STRING, at)
    if most < fewest:
        raise _error(at, f"maxLength is {most}, below minLength, {fewest}")
    return rf"[^\x00-\x1F]{{{fewest},{most}}}"


def _count(schema: Mapping[str, Any], name: str, default: int, most: int, at: str) -> int:
    value = schema.get(name, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise _error(at, f"{name} must be a whole number from 0 to {most}, not {value!r:.80}")
    return value


def _check_type(value: Any, kind: Any, what: str, at: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    valid = {
        "string": isinstance(value, str),
        "integer": is_number and value % 1 == 0,
        "number": is_number,
        "boolean": isinstance(value, bool),
        "null": value is None,
        "object": isinstance(value, Mapping),
        "array": isinstance(value, list | tuple),
    }
    kinds = kind if isinstance(kind, list | tuple) else [kind]
    if not any(valid.get(str(each), False) for each in kinds):
        raise _error(at, f"{what} is {value!r:.80}, which is not of type {kind!r:.80}")


def _choice(values: tuple[Scalar, ...], key: str | None) -> SkeletonSpan:
    return SkeletonSpan("enum", key, enum_values=values)


def _literal(text: str) -> SkeletonSpan:
    return SkeletonSpan("literal", value=text)


def _merged(spans: Iterable[SkeletonSpan]) -> Iterable[SkeletonSpan]:
    """Join literals that stand side by side."""
    known = ""
    for span in spans:
        if span.kind == "literal":
            known += span.value or ""
            continue
        if known:
            yield _literal(known)
            known = ""
        yield span
    if known:
        yield _literal(known)


def _pointer_part(name: object) -> str:
    shown = str(name).replace("~", "~0").replace("/", "~1")
    return re.sub("[\ud800-\udfff]", "\ufffd", shown)


def _error(at: str, text: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"JSON schema at #{at}: {text}")
