"""Approximate the parts of a JSON Schema that llguidance supports in neither mode.

An approximated schema allows every value that the original allows. The finished value is validated
against the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

from ..errors import InvalidArgumentError
from .limits import pointer_part
from .patterns import split_pattern

__all__ = ["approximate", "without_lowest_bounds"]

Part = dict[str, Any]
Compiles = Callable[[Part], bool]

LOWEST = -(2.0**63)
"""llguidance 1.9 overflows its stack, which ends the process, if a constant in a schema rounds to
this number."""

_BOUNDS = ("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum")
_COUNTS = ("Items", "Length", "Properties")
_NOT_ENFORCED = "is not enforced"
_NEXT_TO_REFERENCE = frozenset(
    (
        *("$comment", "$defs", "$id", "$ref", "$schema", "default", "definitions", "deprecated"),
        *("description", "examples", "readOnly", "title", "writeOnly"),
    )
)


def without_lowest_bounds(schema: Any, place: str = "") -> tuple[str, ...]:
    """Remove the bounds that would crash llguidance, and return their places with a reason.

    Raises
    ------
    InvalidArgumentError
        If ``enum`` or ``const`` has such a number.
    """
    removed: list[str] = []
    if isinstance(schema, list):
        for i, each in enumerate(schema):
            removed += without_lowest_bounds(each, f"{place}/{i}")
    elif isinstance(schema, dict):
        for name, each in schema.items():
            removed += without_lowest_bounds(each, f"{place}/{pointer_part(name)}")
        for name in _BOUNDS:
            if _is_lowest(schema.get(name)):
                del schema[name]
                removed.append(f"#{place}/{name}: {name} {_NOT_ENFORCED}")
        for name in ("const", "enum"):
            if _has_lowest(schema.get(name)):
                raise InvalidArgumentError(
                    f"unsupported JSON schema at #{place}/{name}: expected numbers above -2^63"
                )
    return tuple(removed)


def _is_lowest(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value <= 0 and (value < -(10**300) or float(value) <= LOWEST)


def _has_lowest(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_lowest, value.values()))
    return any(map(_has_lowest, value)) if isinstance(value, list) else _is_lowest(value)


def approximate(
    parts: Sequence[tuple[str, Part]], error: str, compiles: Compiles
) -> tuple[str, ...] | None:
    """Change the parts of a schema that may have caused an error of llguidance.

    Parameters
    ----------
    parts
        The schema and its subschemas, with their JSON pointers. They are changed in place.
    error
    compiles
        Returns whether llguidance supports a schema.

    Returns
    -------
    tuple or None
        The places that are no longer enforced, each with a reason. None if the error is of another
        kind.
    """
    rule = next((rule for beginning, rule in _RULES if error.startswith(beginning)), None)
    if rule is None:
        return None
    return tuple(
        f"#{place}/{name}: {reason}"
        for place, part in parts
        for name, reason in rule(part, compiles)
    )


Rule = Callable[[Part, Compiles], Iterator[tuple[str, str]]]


def _patterns(part: Part, compiles: Compiles) -> Iterator[tuple[str, str]]:
    """Remove the conditions of patterns."""
    if isinstance(part.get("pattern"), str):
        split = split_pattern(part["pattern"])
        part["pattern"] = split.main
        if split.conditions:
            yield "pattern", "its lookaround is not enforced"
    if isinstance(part.get("patternProperties"), dict):
        kept = part["patternProperties"] = dict(part["patternProperties"])
        for pattern in list(kept):
            split = split_pattern(pattern)
            value = kept.pop(pattern)
            kept[split.main] = {} if split.conditions or split.main in kept else value
            if split.conditions:
                place = f"patternProperties/{pointer_part(pattern)}"
                yield place, "is not enforced, because it has lookaround"


def _lengths(part: Part, compiles: Compiles) -> Iterator[tuple[str, str]]:
    """Remove lengths that llguidance cannot combine with a pattern."""
    names = [name for name in ("maxLength", "minLength") if name in part]
    if names and isinstance(part.get("pattern"), str):
        both = {name: part[name] for name in (*names, "pattern")}
        if not compiles({"type": "string", **both}):
            for name in names:
                del part[name]
                yield name, f"{name} {_NOT_ENFORCED}"


def _pattern_properties(part: Part, compiles: Compiles) -> Iterator[tuple[str, str]]:
    """Merge the patterns of properties that may match the same name."""
    patterns = part.get("patternProperties")
    if isinstance(patterns, dict) and len(patterns) > 1:
        merged = "|".join(f"(?:{pattern})" for pattern in patterns)
        part["patternProperties"] = {merged: {"anyOf": list(patterns.values())}}
        yield "patternProperties", "several patterns are treated as one"


def _numbers(part: Part, compiles: Compiles) -> Iterator[tuple[str, str]]:
    """Remove bounds and multiples with too many digits."""
    kind = "integer" if part.get("type") == "integer" else "number"
    for name in (*_BOUNDS, "multipleOf"):
        value = part.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and not compiles({"type": kind, name: value}):
            del part[name]
            yield name, f"{name} {_NOT_ENFORCED}"


def _counts(part: Part, compiles: Compiles) -> Iterator[tuple[str, str]]:
    """Write whole numbers without a decimal point."""
    for name in (f"{most}{what}" for what in _COUNTS for most in ("min", "max")):
        value = part.get(name)
        if isinstance(value, float) and value.is_integer():
            part[name] = int(value)
    yield from ()


def _references(part: Part, compiles: Compiles) -> Iterator[tuple[str, str]]:
    """Remove the keywords next to a reference."""
    if isinstance(part.get("$ref"), str):
        for name in part.keys() - _NEXT_TO_REFERENCE:
            del part[name]
            yield pointer_part(name), f"{name} {_NOT_ENFORCED}"


def _reference_names(part: Part, compiles: Compiles) -> Iterator[tuple[str, str]]:
    """Encode the characters of a reference that are not allowed in a URI."""
    if isinstance(part.get("$ref"), str):
        part["$ref"] = quote(part["$ref"], safe="%/:?#@!$&'()*+,;=~")
    yield from ()


_RULES: tuple[tuple[str, Rule], ...] = (
    ("regex parse error", _patterns),
    ("lookarounds not supported", _patterns),
    ("Unable to determine if regex is empty", _lengths),
    ("patternProperty regexes", _pattern_properties),
    ("Failed to generate regex for", _numbers),
    ("Value for 'multipleOf'", _numbers),
    ("Expected positive integer", _counts),
    ("circular references with sibling keys", _references),
    ("Invalid URI reference", _reference_names),
)
