"""Schemas designed to take long: each is compiled or rejected quickly.

Schemas that exceed the limits of sizes are in ``test_limits.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.schema import schema_grammar

STRING = {"type": "string"}


def fan(n: int, keyword: str) -> dict[str, Any]:
    """Return a schema with n references that expand to 2**n schemas."""

    def twice(target: str) -> dict[str, Any]:
        both = [{"$ref": target}, {"$ref": target}]
        if keyword == "properties":
            return {keyword: dict(zip("ab", both, strict=True))}
        return {keyword: both}

    defs: dict[str, Any] = {f"d{i}": twice(f"#/$defs/d{i + 1}") for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{n}": STRING}}


def fields(n: int, schema: Any) -> dict[str, Any]:
    return {"properties": {f"f{i}": schema(i) for i in range(n)}}


# Schemas and the expected error; None if the schema is compiled. Large schemas are functions, so
# that they are created only in their own tests.
HOSTILE: dict[str, tuple[Any, str | None]] = {
    "many references without a target": (
        {
            "$defs": {f"d{i}": {} for i in range(8000)},
            "anyOf": [{"$ref": f"{i}"} for i in range(8000)],
        },
        "is not present in a registry",
    ),
    "a fan of properties": (fan(25, "properties"), None),
    "a fan of alternatives": (fan(25, "anyOf"), None),
    "a fan of requirements": (fan(25, "allOf"), None),
    "oneOf with many alternatives": (
        {"oneOf": [{"minLength": i, "maxLength": i} for i in range(900)]},
        None,
    ),
    "circular references": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        None,
    ),
    "a huge enum in an array": ({"items": {"enum": [f"value {i}" for i in range(8000)]}}, None),
    "a pattern with many conditions": (
        lambda: {"pattern": "^" + "a(?!b)" * 100_000},
        "regex parse error",
    ),
    "a pattern with a long beginning": (
        lambda: {"pattern": f"^{'a' * 900_000}(?!b)$"},
        "regex parse error",
    ),
    "long bounds": (
        fields(300, lambda i: {"type": "number", "minimum": -(10**300) + i, "maximum": 10**300}),
        None,
    ),
    "bounds with too many digits for Python": ({"minimum": 10**5000}, "not JSON"),
    "a multiple with too many digits for Python": ({"multipleOf": 10**5000}, "not JSON"),
    "counts with too many digits for Python": ({"minItems": 10**5000}, "not JSON"),
    "long strings": (fields(300, lambda i: {"type": "string", "maxLength": 500 + i}), None),
    "long strings in an array": (
        {"items": fields(30, lambda i: {"type": "string", "minLength": 500, "maxLength": 600 + i})},
        None,
    ),
    "many items": (
        {"items": {"items": {"items": STRING, "minItems": 60}, "minItems": 60}, "minItems": 60},
        None,
    ),
    "unique items with many values": (
        {"items": {"enum": list(range(600))}, "uniqueItems": True},
        None,
    ),
    "alternatives that differ late": (
        {
            "anyOf": [
                {"items": [{"enum": [0, 1]}] * i + [{"const": 1}] + [{"enum": [0, 1]}] * (40 - i)}
                for i in range(40)
            ]
        },
        None,
    ),
    "a long pointer": ({"$ref": "#/" + "a/" * 100_000}, r"at #/\$ref: "),
    "an index of many digits": ({"$ref": "#/a/" + "9" * 5000, "a": [1]}, r"at #/\$ref: "),
    "many dependent schemas": (
        {
            **fields(300, lambda i: STRING),
            "dependentSchemas": {f"f{i}": {"required": [f"g{i}"]} for i in range(300)},
        },
        None,
    ),
    "many names and many patterns": (
        {
            **fields(400, lambda i: STRING),
            "patternProperties": {f"a{{1,{i + 100}}}": {} for i in range(400)},
        },
        None,
    ),
    "patterns whose automata are large": (
        {
            **fields(50, lambda i: STRING),
            "patternProperties": {f"(a|b)*a(a|b){{{i}}}c": {} for i in range(60)},
        },
        None,
    ),
    "many conditions": (
        {
            **fields(20, lambda i: {"enum": [1, 2, 3]}),
            "allOf": [
                {
                    "if": {"properties": {f"f{i}": {"const": 1}}},
                    "then": {"required": [f"f{(i + 1) % 20}"]},
                }
                for i in range(20)
            ],
        },
        None,
    ),
    "many anyOf in sequence": ({"allOf": [{"anyOf": [{"minimum": i}]} for i in range(400)]}, None),
    "strings that match one of many patterns": (
        {"type": "string", "oneOf": [{"pattern": f"^x{i}[a-z]*$"} for i in range(300)]},
        None,
    ),
    "strings that must not match large patterns": (
        {
            "type": "string",
            "allOf": [{"not": {"pattern": f"^(a|b)*a(a|b){{{i}}}$"}} for i in range(1, 20)],
        },
        None,
    ),
    "many fields with large arrays": (
        fields(
            60,
            lambda i: {
                "items": {"items": {"items": {"items": STRING, "minItems": 8}, "minItems": 8}},
                "minItems": 8 + i % 5,
            },
        ),
        None,
    ),
    "many fields with an unsupported keyword": (
        fields(3000, lambda i: {"type": "array", "contains": {}}),
        None,
    ),
    "one of many fields": ({**fields(1500, lambda i: STRING), "maxProperties": 1}, None),
    "many scopes of unevaluatedProperties": (
        {
            "allOf": [
                {"unevaluatedProperties": False, "properties": {f"p{i}": {}}} for i in range(300)
            ]
        },
        "schema too large",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_is_compiled_or_rejected(name: str) -> None:
    # The time itself is not tested: the limits are on sizes, so that the result is deterministic.
    given, reason = HOSTILE[name]
    schema = given() if callable(given) else given
    if reason is None:
        assert schema_grammar(schema).grammar
        return
    with pytest.raises(InvalidArgumentError, match=reason):
        schema_grammar(schema)
