"""JSON Schemas of classes, with limits that pydantic checks but leaves out of its own schemas."""

from __future__ import annotations

import functools
import math
from decimal import Decimal
from typing import Any

MAX_DECIMAL_PLACES = 4
"""The most decimal places of a `Decimal` with `max_digits`, but without `decimal_places`."""

_LEAP_YEAR = "([1-9][0-9](0[48]|[2468][048]|[13579][26])|(1[26]|[2468][048]|[3579][26])00)"
_DATE = (
    "([1-9][0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])"
    "|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_ZONE = r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
_PATTERNS = {"date": _DATE, "date-time": f"{_DATE}T{_TIME}", "time": _TIME}
"""Python's dates and times, which have no year 0 and no leap second."""


@functools.cache
def schema_generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class Generator(GenerateJsonSchema):
        def date_schema(self, schema: Any) -> Any:
            return _with_pattern(super().date_schema(schema))

        def datetime_schema(self, schema: Any) -> Any:
            return _with_pattern(super().datetime_schema(schema), schema)

        def time_schema(self, schema: Any) -> Any:
            return _with_pattern(super().time_schema(schema), schema)

        def decimal_schema(self, schema: Any) -> Any:
            return _decimal(super().decimal_schema(schema), schema)

        def uuid_schema(self, schema: Any) -> Any:
            made, hexadecimal = super().uuid_schema(schema), "[0-9a-f]"
            if version := schema.get("version"):
                group = f"-{hexadecimal}{{4}}"
                variant = f"{version}{hexadecimal}{{3}}-[89ab]{hexadecimal}{{3}}"
                pattern = f"^{hexadecimal}{{8}}{group}-{variant}-{hexadecimal}{{12}}$"
                made = {"type": "string", "pattern": pattern}
            return made

    return Generator


def _with_pattern(made: dict[str, Any], time: Any = None) -> dict[str, Any]:
    """Replace the format of dates and times, which demands a time zone, by a pattern."""
    if (pattern := _PATTERNS.get(made.get("format", ""))) is None:
        return made
    has_zone = time is not None and time.get("tz_constraint") != "naive"
    return {"type": "string", "pattern": f"^{pattern}{_ZONE if has_zone else ''}$"}


def _decimal(made: dict[str, Any], schema: Any) -> dict[str, Any]:
    """Return the schema of a decimal, which pydantic describes as any number or any string."""
    alternatives = made.get("anyOf", [made])
    number = next((each for each in alternatives if each.get("type") == "number"), None)
    if number is None:
        return made
    digits, places = schema.get("max_digits"), schema.get("decimal_places")
    if digits is None:
        return number if places is None else _rounded(number, places)
    if places is not None:
        return _rounded(number, places, digits - places)
    most = min(digits, MAX_DECIMAL_PLACES)
    return {"anyOf": [_rounded(number, n, digits - n) for n in range(most + 1)]}


def _rounded(number: dict[str, Any], places: int, whole: float = math.inf) -> dict[str, Any]:
    step = Decimal(10) ** -places
    made = {"multipleOf": float(step) if step < 1 else 1, **number}
    if whole < math.inf:
        most = Decimal(10) ** int(whole) - step
        limit = float(most) if places else int(most)
        made["maximum"] = min(made.get("maximum", limit), limit)
        made["minimum"] = max(made.get("minimum", -limit), -limit)
    if whole > 0:
        return made
    # pydantic counts the digit of 0 in front of the point only if no digit follows.
    least = float(step)
    above = {**made, "minimum": max(made["minimum"], least)}
    return {"anyOf": [above, {**made, "maximum": min(made["maximum"], -least)}]}
