"""Schemas that are made to take long: each is compiled or rejected, and none takes long."""

from __future__ import annotations

from typing import Any

import pytest

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.schema import schema_grammar

STRING = {"type": "string"}


def nested(
    levels: int,
    keyword: str,
    *,
    is_list: bool = False,
    name: str | None = None,
    beside: dict[str, Any] | None = None,
) -> Any:
    schema: Any = {}
    for _ in range(levels):
        inner = [schema] if is_list else schema if name is None else {name: schema}
        schema = {keyword: inner, **(beside or {})}
    return schema


def fan(n: int, keyword: str) -> dict[str, Any]:
    """Return a schema that comes to 2**n others."""

    def twice(target: str) -> dict[str, Any]:
        both = [{"$ref": target}, {"$ref": target}]
        if keyword == "properties":
            return {keyword: dict(zip("ab", both, strict=True))}
        return {keyword: both}

    defs: dict[str, Any] = {f"d{i}": twice(f"#/$defs/d{i + 1}") for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{n}": STRING}}


def fields(n: int, schema: Any) -> dict[str, Any]:
    return {"properties": {f"f{i}": schema(i) for i in range(n)}}


def deep_value() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


# What takes a while to make is made by the test. Without a reason, the schema is compiled.
HOSTILE: dict[str, tuple[Any, str | None]] = {
    "deep items": (lambda: nested(100_000, "items"), "nested deeper than 100"),
    "deep not": (lambda: nested(100_000, "not"), "nested deeper than 100"),
    "deep allOf": (lambda: nested(100_000, "allOf", is_list=True), "nested deeper than 100"),
    "deep anyOf": (lambda: nested(100_000, "anyOf", is_list=True), "nested deeper than 100"),
    "deep const": (lambda: {"const": deep_value()}, "nested deeper than 100"),
    "deep enum": (lambda: {"enum": [1, deep_value()]}, "nested deeper than 100"),
    "a fan of properties": (fan(25, "properties"), None),
    "a fan of alternatives": (fan(25, "anyOf"), None),
    "a fan of demands": (fan(25, "allOf"), None),
    "alternatives times alternatives": (
        {"allOf": [{"anyOf": [{"minimum": i}, {"minimum": -i}]} for i in range(40)]},
        "schema too large",
    ),
    "many that only one may be": (
        {"oneOf": [{"minLength": i, "maxLength": i} for i in range(900)]},
        None,
    ),
    "references in a circle": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        None,
    ),
    "a huge enum": (lambda: {"enum": list(range(10**6))}, "expected at most 32768 values"),
    "a huge enum in an array": (
        {"items": {"enum": [f"value {i}" for i in range(20_000)]}},
        None,
    ),
    "long bounds": (
        fields(300, lambda i: {"type": "number", "minimum": -(10**300) + i, "maximum": 10**300}),
        "at #/properties/f0/minimum: ",
    ),
    "bounds that Python does not write out": ({"minimum": 10**5000}, "not JSON"),
    "a multiple that Python does not write out": ({"multipleOf": 10**5000}, "not JSON"),
    "counts that Python does not write out": ({"minItems": 10**5000}, "not JSON"),
    "long strings": (
        fields(300, lambda i: {"type": "string", "maxLength": 500 + i}),
        None,
    ),
    "long strings in an array": (
        {"items": fields(30, lambda i: {"type": "string", "minLength": 500, "maxLength": 600 + i})},
        None,
    ),
    "many items": (
        {"items": {"items": {"items": STRING, "minItems": 60}, "minItems": 60}, "minItems": 60},
        None,
    ),
    "different items of many values": (
        {"items": {"enum": list(range(600))}, "uniqueItems": True},
        None,
    ),
    "alternatives that are told apart late": (
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
    "many fields": (
        fields(20_000, lambda i: STRING),
        "properties: expected at most 4096 fields, got 20000",
    ),
    "deep then": (
        lambda: nested(100_000, "then", beside={"if": {"minimum": 1}}),
        "nested deeper than 100",
    ),
    "deep demands of a field": (
        lambda: nested(100_000, "dependentSchemas", beside={"properties": {"a": {}}}, name="a"),
        "nested deeper than 100",
    ),
    "many demands of fields": (
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
        "not disjoint",
    ),
    "patterns whose automata are large": (
        {
            **fields(50, lambda i: STRING),
            "patternProperties": {f"(a|b)*a(a|b){{{i}}}c": {} for i in range(60)},
        },
        "not disjoint",
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
    "choices one after the other": (
        {"allOf": [{"anyOf": [{"minimum": i}]} for i in range(400)]},
        None,
    ),
    "strings of many patterns of which one may be": (
        {"type": "string", "oneOf": [{"pattern": f"^x{i}[a-z]*$"} for i in range(300)]},
        None,
    ),
    "strings that lack large patterns": (
        {
            "type": "string",
            "allOf": [{"not": {"pattern": f"^(a|b)*a(a|b){{{i}}}$"}} for i in range(1, 20)],
        },
        None,
    ),
    "many fields that are too much": (
        fields(
            60,
            lambda i: {
                "items": {"items": {"items": {"items": STRING, "minItems": 8}, "minItems": 8}},
                "minItems": 8 + i % 5,
            },
        ),
        None,
    ),
    "many fields that cannot be said": (
        fields(3000, lambda i: {"type": "array", "contains": {}}),
        None,
    ),
    "one of many fields": (
        {**fields(1500, lambda i: STRING), "maxProperties": 1},
        None,
    ),
    "many scopes of what is evaluated": (
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
def test_it_is_compiled_or_rejected_soon(name: str) -> None:
    # How long it takes is measured, not tested: limits are on what is counted.
    given, reason = HOSTILE[name]
    schema = given() if callable(given) else given
    if reason is None:
        assert schema_grammar(schema).grammar
        return
    with pytest.raises(InvalidArgumentError, match=reason):
        schema_grammar(schema)
