"""Skeletons from JSON Schema."""

from __future__ import annotations

from typing import Any

import pytest

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.skeleton.json_schema import DEEPEST_SCHEMA
from eliza_ffi.skeleton.response import Skeleton

SEARCH = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "search",
    "type": "object",
    "required": ["query"],
    "additionalProperties": False,
    "properties": {
        "query": {"type": "string", "description": "what to look for"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 3},
        "where": {
            "type": "object",
            "properties": {"lang": {"enum": ["en", "de"]}, "safe": {"type": "boolean"}},
        },
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 2},
        "kind": {"const": "web"},
        "more": True,
    },
}


def test_an_object_is_a_row_of_literals_and_values() -> None:
    skeleton = Skeleton.from_json_schema(SEARCH)
    assert [(span.kind, span.key, span.value) for span in skeleton.spans] == [
        ("literal", None, '{"query":'),
        ("free-string", "query", None),
        ("literal", None, ',"limit":'),
        ("enum", "limit", None),
        ("literal", None, ',"where":{"lang":'),
        ("enum", "where.lang", None),
        ("literal", None, ',"safe":'),
        ("boolean", "where.safe", None),
        ("literal", None, '},"tags":'),
        ("pattern", "tags", None),
        ("literal", None, ',"kind":"web","more":'),
        ("free-json", "more", None),
        ("literal", None, "}"),
    ]
    text = '{"query":"x","limit":2,"where":{"lang":"de","safe":true},"tags":["a"],"kind":"web",'
    assert skeleton.matches(text + '"more":[1]}')


@pytest.mark.parametrize(
    ("schema", "legal", "illegal"),
    [
        ({"type": "string"}, ['""', '"a\\n"'], ["a", '"a', "1"]),
        ({"type": "string", "pattern": "^[a-z]+$"}, ['"abc"'], ['""', '"A"']),
        ({"type": "string", "pattern": '["ab]+'}, ['"ab"'], ['"a"b"', '"a\\"b"']),
        ({"type": "string", "minLength": 1}, ['"ü"', '"' + "x" * 99 + '"'], ['""', '"\\n"']),
        ({"type": "string", "minLength": 1, "maxLength": 2}, ['"日本"'], ['"abc"', '""']),
        ({"type": "string", "maxLength": 2}, ['""', '"ab"'], ['"abc"']),
        ({"type": "integer"}, ["0", "-12"], ["1.5", "01", "1e3"]),
        ({"type": "integer", "minimum": -1, "maximum": 1.0}, ["-1", "0", "1"], ["2", "10"]),
        ({"type": "number"}, ["0", "-12.5e-3"], ["+1", ".5"]),
        ({"type": "boolean"}, ["true", "false"], ["null"]),
        ({"type": "null"}, ["null"], ["0"]),
        ({"enum": ["a", 1, 1.5, True, None]}, ['"a"', "1", "1.5", "true", "null"], ["2", "a"]),
        ({"enum": ["only"]}, ['"only"'], ['""']),
        ({"type": ["string", "null"], "enum": ["a", None]}, ['"a"', "null"], ["1"]),
        ({"const": {"a": [1, None]}}, ['{"a":[1,null]}'], ["{}"]),
        ({"type": "object", "properties": {}}, ["{}"], ["", '{"a":1}']),
        ({}, ["[]", '"x"'], [""]),
        (
            {"type": "array", "items": {"enum": ["a", "b.c"]}},
            ["[]", '["a","b.c","a"]'],
            ['["a",]', '["bxc"]', '["a" ]'],
        ),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 2}, ["[true,false]"], ["[]"]),
        ({"type": "array", "items": {"type": "null"}, "maxItems": 0}, ["[]"], ["[null]"]),
        (
            {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            ["[]", '["\\u00e4\\"","b"]'],
            ['["a","b","c"]', '["\\ud800"]'],
        ),
        (
            {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}},
            ["[0,9]"],
            ["[10]"],
        ),
        ({"type": "array", "items": {"const": "x y"}, "minItems": 1}, ['["x y"]'], ["[]"]),
        ({"type": "array", "items": {"type": "number"}, "maxItems": 1}, ["[-1.5]"], ["[1,2]"]),
    ],
)
def test_what_is_written_is_valid(schema: Any, legal: list[str], illegal: list[str]) -> None:
    skeleton = Skeleton.from_json_schema(schema)
    assert [text for text in legal if not skeleton.matches(text)] == []
    assert [text for text in illegal if skeleton.matches(text)] == []


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (False, "at #: no value is valid"),
        (3, "at #: a schema must be an object"),
        ({"$ref": "#"}, r"at #: \$ref is not supported"),
        ({"type": "object", "properties": {"a/b": {"anyOf": []}}}, "at #/properties/a~1b: anyOf"),
        ({"title": "x"}, "at #: a schema needs a type"),
        ({"type": "string", "oneOf": []}, "at #: oneOf is not supported"),
        ({"type": ["string", "null"]}, "a choice of types"),
        ({"type": "date"}, "type must be one of object, string,"),
        ({"type": "object"}, "an object needs properties"),
        ({"type": "object", "properties": {}, "required": ["a"]}, "required names 'a'"),
        ({"type": "object", "properties": {}, "required": "a"}, "required must be a list"),
        ({"type": "object", "properties": {}, "required": [[]]}, r"required names \[\]"),
        ({"type": "object", "properties": {}, "minProperties": 1}, "minProperties is not"),
        ({"type": "object", "properties": {"\ud800": {}}}, "lone surrogate"),
        ({"enum": []}, "enum is empty"),
        ({"enum": ["a", "a"]}, r'enum\[1\] is "a", the same as enum\[0\]'),
        ({"enum": [[1]]}, r"enum\[0\] must be a string, number, boolean or null"),
        ({"enum": "ab"}, "enum must be a list"),
        ({"type": "integer", "enum": [1, "a"]}, r"enum\[1\] is 'a', which is not of type"),
        ({"const": "\udfff"}, "at #: const: the value has a lone surrogate"),
        ({"type": "number", "minimum": 0}, "minimum is not supported"),
        ({"type": "integer", "minimum": 0}, "needs both minimum and maximum"),
        ({"type": "integer", "minimum": 0, "maximum": 10**6}, "must hold 1 to 1000 numbers"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "must hold 1 to 1000 numbers"),
        ({"type": "string", "pattern": "(?=a)"}, r"at #: .*\(\?="),
        ({"type": "string", "pattern": '"+'}, "matches no text that stands in a JSON string"),
        ({"type": "string", "pattern": 3}, "pattern must be a string"),
        ({"type": "string", "pattern": "a", "minLength": 1}, "pattern together with minLength"),
        ({"type": "string", "minLength": -1}, "minLength must be a whole number"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "maxLength is 2, below minLength, 3"),
        ({"type": "array"}, "at #/items: the items of an array"),
        ({"type": "array", "items": {"type": "array"}}, "at #/items: arrays of arrays are not"),
        ({"type": "array", "items": {"type": "string", "maxLength": 3}}, "inside an array"),
        ({"type": "array", "items": {"type": "null"}, "uniqueItems": True}, "uniqueItems is not"),
        ({"type": "array", "items": {"type": "null"}, "maxItems": 65}, "maxItems must be a whole"),
        (
            {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 1},
            "maxItems is 1, below minItems, 2",
        ),
    ],
)
def test_what_a_skeleton_cannot_say_is_named_with_its_place(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        Skeleton.from_json_schema(schema)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "boolean"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"x": schema}}
    return schema


def test_nesting_has_a_limit() -> None:
    assert Skeleton.from_json_schema(nested(DEEPEST_SCHEMA)).placed[0].span.kind == "boolean"
    for levels in (DEEPEST_SCHEMA + 1, 100_000):
        with pytest.raises(InvalidArgumentError, match="nested deeper than 32 levels"):
            Skeleton.from_json_schema(nested(levels))


def test_a_schema_that_contains_itself_is_refused() -> None:
    schema = nested(1)
    schema["properties"]["x"] = schema
    with pytest.raises(InvalidArgumentError, match="contains itself"):
        Skeleton.from_json_schema(schema)
