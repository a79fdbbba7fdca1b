"""The validation of finished values, with jsonschema as the oracle, and against hostile schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.validation import checked_value

HOSTILE, HARMLESS = "^(a+)+$", "^a+$"  # the same strings match
NAMED = {"patternProperties": {HOSTILE: {"type": "string"}}}
LONG = "a" * 60
PATTERNS: list[dict[str, Any]] = [
    {"additionalProperties": {"pattern": HOSTILE}},
    {"propertyNames": {"pattern": HOSTILE}},
    NAMED,
    {**NAMED, "additionalProperties": False},
    {"$defs": {"x": NAMED}, "allOf": [{"$ref": "#/$defs/x"}], "unevaluatedProperties": False},
    {"anyOf": [NAMED, {"required": ["b"]}], "if": NAMED, "unevaluatedProperties": False},
    {"not": {"additionalProperties": {"pattern": HOSTILE}}},
]


def is_valid(schema: Any, value: Any) -> bool:
    try:
        assert checked_value(json.dumps(schema), json.dumps(value)) == value
    except InvalidArgumentError as error:
        assert "cannot validate" not in str(error)
        return False
    return True


@pytest.mark.parametrize("schema", PATTERNS, ids=map(json.dumps, PATTERNS))
def test_hostile_patterns_match_like_harmless_ones(schema: dict[str, Any]) -> None:
    oracle = Draft202012Validator(json.loads(json.dumps(schema).replace(HOSTILE, HARMLESS)))
    for value in ({f"{LONG}!": 1, "aa": f"{LONG}!"}, {"aa": LONG}, {"aa": 1}, {"b": f"{LONG}!"}):
        assert is_valid(schema, value) == oracle.is_valid(value), value


@pytest.mark.parametrize("keyword", ["const", "default", "enum", "examples"])
def test_values_in_a_schema_are_not_read_as_patterns(keyword: str) -> None:
    value = {"pattern": r"\/", "patternProperties": {r"\/": 1}}
    assert is_valid({keyword: [value] if keyword in ("enum", "examples") else value}, value)
    assert is_valid({"properties": {keyword: {"pattern": r"^\/$"}}}, {keyword: "/"})


def fan(keyword: str, last: Any, n: int = 40) -> dict[str, Any]:
    """Return a schema with n references that expand to 2**n schemas."""
    defs = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{n}": last}}


def nested(times: int, value: Any, around: Any) -> Any:
    for _ in range(times):
        value = around(value)
    return value


def chain(*starts: int, **more: Any) -> dict[str, Any]:
    """Return a schema that refers to some of 2,000 schemas, each of which refers to the next."""
    defs: dict[str, Any] = {
        f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}]} for i in range(2000)
    }
    refs = [{"$ref": f"#/$defs/d{i}"} for i in starts]
    return {"allOf": refs, "$defs": {**defs, "d2000": {}}, **more}


STRING, STEPS, LEVELS = {"type": "string"}, "at most 50000 steps", "at most 200 levels"
BOTH = {"properties": {"a": {"$ref": "#"}}}
INNER = {"$ref": "#/$defs/d0", "unevaluatedProperties": False}
ANCHORS = {
    f"d{i}": {"$dynamicAnchor": f"x{i}", "anyOf": [{"$dynamicRef": f"#x{i + 1}"}] * 2}
    for i in range(40)
}
RECURSIVE = {"$schema": "https://json-schema.org/draft/2019-09/schema", "$recursiveRef": "#"}
HOSTILE_SCHEMAS: dict[str, tuple[Any, Any, str]] = {
    **{keyword: (fan(keyword, STRING), 1, STEPS) for keyword in ("allOf", "anyOf")},
    "$dynamicRef": (
        {"$dynamicRef": "#x0", "$defs": {**ANCHORS, "d40": {"$dynamicAnchor": "x40"}}},
        1,
        STEPS,
    ),
    "itself": ({"$ref": "#"}, 1, STEPS),
    "itself, recursively": (RECURSIVE, 1, STEPS),
    "levels of the value": ({"allOf": [BOTH] * 2}, nested(60, 1, lambda each: {"a": each}), STEPS),
    **{
        name: (nested(40, {}, lambda each, name=name: {"allOf": [each], name: False}), {}, STEPS)
        for name in ("unevaluatedItems", "unevaluatedProperties")
    },
    "a part without a value": ({**fan("allOf", True), "$ref": "#", "not": INNER}, 1, STEPS),
    "a chain": (chain(0), 1, LEVELS),
    "a chain, read from its end": (chain(*range(2000, 0, -100)), 1, LEVELS),
    "a chain to be evaluated": (chain(0, unevaluatedProperties=False), 1, LEVELS),
    "a deep value": ({"items": {"$ref": "#"}}, nested(300, 1, lambda each: [each]), LEVELS),
}


@pytest.mark.parametrize("name", HOSTILE_SCHEMAS)
def test_a_schema_that_would_stop_the_process_is_rejected(name: str) -> None:
    """jsonschema-rs would take hours, without an end, or overflow its stack."""
    schema, value, reason = HOSTILE_SCHEMAS[name]
    with pytest.raises(InvalidArgumentError, match=f"cannot validate the answer: .* {reason}"):
        checked_value(json.dumps(schema), json.dumps(value))


def test_many_patterns_share_the_memory() -> None:
    large = {"not": {"pattern": "^(a{100}){50}$"}}
    assert is_valid(large, "a")
    with pytest.raises(InvalidArgumentError, match=r"cannot validate the answer: .*a\{100}"):
        checked_value(json.dumps({"allOf": [large] * 1000}), '"a"')


def test_an_error_names_the_closest_alternative_unless_they_are_many() -> None:
    kinds = [STRING, {"properties": {"a": {"enum": [1, 2.5]}}}]
    for keyword in ("anyOf", "oneOf"):
        with pytest.raises(InvalidArgumentError) as caught:
            checked_value(json.dumps({"items": {keyword: kinds}}), '[{"a":1.25}]')
        place = f"#/items/{keyword}/1/properties/a/enum"
        assert (
            str(caught.value) == f"at #/0/a: 1.25 is not one of [1, 2.5] (schema keyword {place})"
        )
    with pytest.raises(InvalidArgumentError, match="^the value does not match the schema$"):
        checked_value(json.dumps(fan("anyOf", STRING, n=12)), "1")


UNEVALUATED: list[dict[str, Any]] = [
    {"properties": {"a": {}}},
    {"properties": {"a": {}}, "allOf": [{"properties": {"b": {}}}]},
    {"anyOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {}}}]},
    {"oneOf": [{"properties": {"a": {"const": 1}}, "required": ["a"]}, {"required": ["c"]}]},
    {"if": {"properties": {"a": {"const": 1}}}, "then": {"properties": {"b": {}}}},
    {"if": {"properties": {"a": {"const": 2}}}, "else": {"properties": {"b": {}}}},
    {"dependentSchemas": {"a": {"properties": {"a": {}, "b": {}}}}},
    {"patternProperties": {"^[ab]$": {}}},
    {"allOf": [{"additionalProperties": {"type": "integer"}}]},
    {"allOf": [{"properties": {"a": {}}, "unevaluatedProperties": {"type": "integer"}}]},
    {"$defs": {"x": {"properties": {"a": {}}}}, "$ref": "#/$defs/x"},
    {"$defs": {"x": {"properties": {"b": {}}}}, "properties": {"a": {"$ref": "#/$defs/x"}}},
]


@pytest.mark.parametrize("rest", [False, {"type": "string"}, True])
@pytest.mark.parametrize("schema", UNEVALUATED, ids=map(json.dumps, UNEVALUATED))
def test_unevaluated_properties_are_those_of_jsonschema(schema: dict[str, Any], rest: Any) -> None:
    whole = {**schema, "unevaluatedProperties": rest}
    for value in ({}, {"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"a": "x", "c": 1}, {"c": "x"}):
        assert is_valid(whole, value) == Draft202012Validator(whole).is_valid(value), value
