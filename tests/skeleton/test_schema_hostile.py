"""Schemas that are made to take long end with an error that says why."""

from __future__ import annotations

from typing import Any

import pytest

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.skeleton.response import Skeleton

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


# What takes a while to make is made by the test.
HOSTILE: dict[str, tuple[Any, str]] = {
    "deep items": (lambda: nested(100_000, "items"), "nested deeper than 32"),
    "deep not": (lambda: nested(100_000, "not"), "not is supported only"),
    "deep allOf": (lambda: nested(100_000, "allOf", is_list=True), "more than 10000 parts"),
    "deep anyOf": (lambda: nested(100_000, "anyOf", is_list=True), "nested deeper than 32"),
    "deep const": (lambda: {"const": deep_value()}, "const: not a JSON value"),
    "deep enum": (lambda: {"enum": [1, deep_value()]}, r"enum\[1\]: not a JSON value"),
    "a fan of properties": (fan(25, "properties"), "more than 10000 parts"),
    "a fan of alternatives": (fan(25, "anyOf"), "more than 10000 parts"),
    "a fan of demands": (fan(25, "allOf"), "more than 10000 parts"),
    "alternatives times alternatives": (
        {"allOf": [{"anyOf": [{"minimum": i}, {"minimum": -i}]} for i in range(40)]},
        "more than 10000 parts",
    ),
    "many that only one may be": (
        {"oneOf": [{"minLength": i, "maxLength": i} for i in range(900)]},
        "more than 10000 parts|may be valid against option",
    ),
    "references in a circle": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        "contains itself without end",
    ),
    "a huge enum": (lambda: {"enum": list(range(10**6))}, "1000000 values, more than 32768"),
    "a huge enum in an array": (
        {"items": {"enum": [f"value {i}" for i in range(20_000)]}},
        "too much for an automaton",
    ),
    "long bounds": (
        fields(300, lambda i: {"type": "number", "minimum": -(10**300) + i, "maximum": 10**300}),
        "more than 10000 parts",
    ),
    "bounds that Python does not write out": ({"minimum": 10**5000}, "at most 400 digits"),
    "a multiple that Python does not write out": ({"multipleOf": 10**5000}, "from 1 to 1000"),
    "counts that Python does not write out": ({"minItems": 10**5000}, "minItems must be at most"),
    "long strings": (
        fields(300, lambda i: {"type": "string", "maxLength": 500 + i}),
        "too much for an automaton|more than 10000 parts",
    ),
    "long strings in an array": (
        {"items": fields(30, lambda i: {"type": "string", "minLength": 500, "maxLength": 600 + i})},
        "too much for an automaton|more than 10000 parts",
    ),
    "many items": (
        {"items": {"items": {"items": STRING, "minItems": 60}, "minItems": 60}, "minItems": 60},
        "too much for an automaton",
    ),
    "different items of many values": (
        {"items": {"enum": list(range(600))}, "uniqueItems": True},
        "too much for an automaton",
    ),
    "alternatives that are told apart late": (
        {
            "anyOf": [
                {"items": [{"enum": [0, 1]}] * i + [{"const": 1}] + [{"enum": [0, 1]}] * (40 - i)}
                for i in range(40)
            ]
        },
        "too much for an automaton",
    ),
    "a long pointer": ({"$ref": "#/" + "a/" * 100_000}, "refers to nothing"),
    "an index of many digits": ({"$ref": "#/a/" + "9" * 5000, "a": [1]}, "refers to nothing"),
    "many fields": (fields(20_000, lambda i: STRING), "more than 10000"),
    "deep then": (
        lambda: nested(100_000, "then", beside={"if": {"minimum": 1}}),
        "nested deeper than 32",
    ),
    "deep demands of a field": (
        lambda: nested(100_000, "dependentSchemas", beside={"properties": {"a": {}}}, name="a"),
        "nested deeper than 32|more than 10000 parts",
    ),
    "many demands of fields": (
        {
            **fields(300, lambda i: STRING),
            "dependentSchemas": {f"f{i}": {"required": [f"g{i}"]} for i in range(300)},
        },
        "more than 10000 parts",
    ),
    "many names and many patterns": (
        {
            **fields(400, lambda i: STRING),
            "patternProperties": {f"a{{1,{i + 100}}}": {} for i in range(400)},
        },
        "more than 10000 parts",
    ),
    "patterns whose automata are large": (
        {
            **fields(50, lambda i: STRING),
            "patternProperties": {f"(a|b)*a(a|b){{{i}}}c": {} for i in range(60)},
        },
        "more than 10000 parts",
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
        "more than 10000 parts",
    ),
    "choices one after the other": (
        {"allOf": [{"anyOf": [{"minimum": i}]} for i in range(400)]},
        "more than 64 anyOf, oneOf and if",
    ),
    "strings of many patterns of which one may be": (
        {"type": "string", "oneOf": [{"pattern": f"^x{i}[a-z]*$"} for i in range(300)]},
        "more than 10000 parts",
    ),
    "strings that lack large patterns": (
        {
            "type": "string",
            "allOf": [{"not": {"pattern": f"^(a|b)*a(a|b){{{i}}}$"}} for i in range(1, 20)],
        },
        "not is supported only",
    ),
    "many fields that are too much": (
        fields(
            60,
            lambda i: {
                "items": {"items": {"items": {"items": STRING, "minItems": 8}, "minItems": 8}},
                "minItems": 8 + i % 5,
            },
        ),
        "too much for an automaton",
    ),
    "many fields that cannot be said": (
        fields(3000, lambda i: {"type": "array", "contains": {}}),
        "contains is not supported",
    ),
    "one of many fields": (
        {**fields(1500, lambda i: STRING), "maxProperties": 1},
        "too much for an automaton",
    ),
    "many scopes of what is evaluated": (
        {
            "allOf": [
                {"unevaluatedProperties": False, "properties": {f"p{i}": {}}} for i in range(300)
            ]
        },
        "more than 10000 parts",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_before_it_takes_long(name: str) -> None:
    # How long it takes is measured, not tested: limits are on what is counted.
    given, reason = HOSTILE[name]
    schema = given() if callable(given) else given
    with pytest.raises(InvalidArgumentError, match=reason):
        Skeleton.from_json_schema(schema)


@pytest.mark.slow
def test_what_is_large_and_plain_is_read() -> None:
    for schema in (
        {"enum": [f"value {i}" for i in range(5000)]},
        fields(1000, lambda i: STRING),
        {"type": "integer", "minimum": -(10**300), "maximum": 10**300},
        {"oneOf": [{"const": f"value {i}"} for i in range(100)]},
        {"items": fields(60, lambda i: STRING)},
    ):
        assert Skeleton.from_json_schema(schema).spans
