"""Numbers of a schema that llguidance would round, because it computes with 64-bit floats."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

LARGEST_INTEGER = 2**53
"""Larger integers may be rounded as 64-bit floats."""

MAX_LISTED = 64
"""A range with at most this many numbers is listed."""

MIN_ABOVE_0 = 1e-17
"""The smallest number above 0 with as many digits as :mod:`.json_limit` allows."""

LIMITS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def list_few_numbers(part: dict[str, Any]) -> None:
    """Replace a range by a list of its numbers, if they are few and floats are not exact enough: if
    the range has integers above 2^53 or multiples of a fraction."""
    if part.keys() & {"enum", "const", "$ref"} or part.get("type") not in ("integer", "number"):
        return
    limits = {name: part[name] for name in LIMITS if name in part}
    step = part.get("multipleOf", 1 if part["type"] == "integer" else None)
    if step is None or not all(is_number(each) for each in (*limits.values(), step)):
        return
    is_large = any(abs(each) > LARGEST_INTEGER for each in limits.values())
    is_fraction = Fraction(str(step)).denominator > 1
    if (is_large or is_fraction) and (listed := _listed(limits, Fraction(str(step)))):
        for name in (*limits, "multipleOf"):
            part.pop(name, None)
        part["enum"] = listed


def _listed(limits: dict[str, Any], step: Fraction) -> list[int | float]:
    """Return the multiples of a step inside the limits; empty if there are too many."""
    exact = {name: Fraction(str(each)) / step for name, each in limits.items()}
    least = [math.ceil(exact[name]) for name in ("minimum",) if name in exact]
    least += [math.floor(exact[name]) + 1 for name in ("exclusiveMinimum",) if name in exact]
    most = [math.floor(exact[name]) for name in ("maximum",) if name in exact]
    most += [math.ceil(exact[name]) - 1 for name in ("exclusiveMaximum",) if name in exact]
    if not least or not most or min(most) - max(least) >= MAX_LISTED:
        return []
    return [_number(n * step) for n in range(max(least), min(most) + 1)]


def _number(value: Fraction) -> int | float:
    if value.denominator == 1:
        return value.numerator
    return float(Decimal(value.numerator) / Decimal(value.denominator))


def without_large_integers(part: dict[str, Any]) -> None:
    """Allow any integer where ``enum`` or ``const`` of a part has one that would be rounded."""
    values = part.get("enum", [part["const"]] if "const" in part else [])
    large = [each for each in values if _has_large(each)]
    if large:
        for name in ("enum", "const"):
            part.pop(name, None)
        others = [each for each in values if not _has_large(each)]
        found = [*([{"enum": others}] if others else []), *map(_with_any_integer, large)]
        part.update(found[0] if len(found) == 1 else {"anyOf": found})


def _has_large(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_large, value.values()))
    return any(map(_has_large, value)) if isinstance(value, list) else _is_large(value)


def _with_any_integer(value: Any) -> dict[str, Any]:
    """Return a schema of a value that allows any integer in place of a large one."""
    if not _has_large(value):
        return {"const": value}
    if isinstance(value, dict):
        fields = {name: _with_any_integer(each) for name, each in value.items()}
        closed = {"required": list(fields), "additionalProperties": False}
        return {"type": "object", "properties": fields, **closed}
    if isinstance(value, list):
        items = list(map(_with_any_integer, value))
        return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
    return {"type": "integer"}


def without_exclusive_bounds(part: dict[str, Any]) -> None:
    """Replace exclusive lower bounds from 0 on, and upper bounds up to 0, by the next number but
    one: llguidance may round the next number. Above an exclusive bound of 0, it allows 0.5 but not
    0.50."""
    for near, far, sign, stricter in (
        ("Minimum", "Maximum", 1.0, max),
        ("Maximum", "Minimum", -1.0, min),
    ):
        bound: Any = part.get(f"exclusive{near}")
        if part.get("type") == "integer" or not is_number(bound) or abs(bound) >= 2**52:
            continue
        next_one = bound + sign * (2 * math.ulp(bound) if bound else MIN_ABOVE_0)
        others = [part.get(name, sign * math.inf) for name in (far.lower(), f"exclusive{far}")]
        # Errors about bounds that contradict each other must name the schema's own ones.
        if bound * sign >= 0 and all(each * sign > next_one * sign for each in others):
            part[near.lower()] = stricter(part.get(near.lower(), next_one), next_one)
            del part[f"exclusive{near}"]


def _is_large(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > LARGEST_INTEGER


def is_number(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) and not isinstance(value, bool)
