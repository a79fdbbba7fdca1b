"""Skeletons from JSON Schema."""

from __future__ import annotations

import re
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


@pytest.mark.slow
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
        # Types
        ({"title": "any", "default": 1}, ["[]", '"x"', "null"], [""]),
        ({"type": ["string", "null"]}, ['"\\n"', "null"], ["1", '"', "nul"]),
        ({"type": ["integer", "boolean", "null"]}, ["-12", "true", "null"], ["1.5", '"1"']),
        ({"type": ["integer", "number"]}, ["1.5"], ["null"]),
        ({"minLength": 1}, ['"a"'], ["1", '""']),
        ({"additionalProperties": {"type": "null"}}, ["{}", '{"a":null,"":null}'], ['{"a":1}']),
        ({"type": "object"}, ["{}", '{"a":{"b":1}}', '{"a":[1,"b"]}'], ["[]", "1"]),
        ({"nullable": True, "type": "null", "unknown": {"if": 1}}, ["null"], ["1"]),
        # References
        (
            {"$defs": {"A/b": {"enum": [1, 2]}}, "$ref": "#/$defs/A~1b", "title": "x"},
            ["1", "2"],
            ["3"],
        ),
        ({"$ref": "#/definitions/a%20b", "definitions": {"a b": {"const": 1}}}, ["1"], ["2"]),
        (
            {"$id": "x:y", "$ref": "x:y#/$defs/a", "$defs": {"a": {"type": "null"}}},
            ["null"],
            ["1"],
        ),
        (
            {"$ref": "#/$defs/a", "minimum": 5, "$defs": {"a": {"type": "integer", "maximum": 9}}},
            ["5", "9"],
            ["4", "10"],
        ),
        (
            {"properties": {"v": {"const": 1}, "n": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
            ['{"v":1,"n":null}', '{"v":1,"n":{"v":1,"n":{"v":1,"n":null}}}'],
            ['{"v":1,"n":{"v":1,"n":{"v":1,"n":{"v":1,"n":null}}}}', '{"v":1}'],
        ),
        (
            {"properties": {"v": {"const": 1}, "next": {"$ref": "#"}}},
            ['{"v":1,"next":{"v":1,"next":{"v":1}}}'],
            ['{"v":1}'],
        ),
        (
            {"properties": {"c": {"type": "array", "items": {"$ref": "#"}}}},
            ['{"c":[]}', '{"c":[{"c":[{"c":[]},{"c":[]}]}]}'],
            ['{"c":[{"c":[{"c":[{"c":[]}]}]}]}'],
        ),
        # Alternatives
        ({"anyOf": [{"type": "integer"}, {"const": "x"}]}, ["0", '"x"'], ['"y"', "0.5"]),
        ({"anyOf": [{"type": "integer"}, True]}, ['"any"'], [""]),
        ({"anyOf": [False, {"const": 1}]}, ["1"], ["2"]),
        ({"oneOf": [{"type": "string"}, {"type": "number"}]}, ['"a"', "1.5"], ["null"]),
        (
            {"type": "integer", "anyOf": [{"minimum": 5, "maximum": 6}, {"enum": [1, 2.5, 9]}]},
            ["5", "6", "1", "9"],
            ["2.5", "7"],
        ),
        (
            {
                "oneOf": [
                    {"properties": {"k": {"const": "a"}, "x": {"type": "integer"}}},
                    {"properties": {"k": {"const": "b"}, "y": {"type": "boolean"}}},
                ]
            },
            ['{"k":"a","x":12}', '{"k":"b","y":true}'],
            ['{"k":"a","y":true}', '{"k":"c","x":1}'],
        ),
        (
            {
                "oneOf": [
                    {"properties": {"a": {"const": 1}}, "required": ["a"]},
                    {"properties": {"b": {"const": 1}}, "additionalProperties": False},
                ]
            },
            ['{"a":1}', '{"b":1}'],
            ['{"a":1,"b":1}'],
        ),
        (
            {"allOf": [{"type": "integer", "minimum": 1}, {"maximum": 2}, {"title": "x"}]},
            ["1", "2"],
            ["0", "3"],
        ),
        (
            {
                "allOf": [
                    {"properties": {"a": {"minimum": 1}}, "additionalProperties": {"const": 2}},
                    {"properties": {"a": {"maximum": 1, "type": "integer"}, "b": {}}},
                ]
            },
            ['{"a":1,"b":2}'],
            ['{"a":1,"b":3}'],
        ),
        ({"type": "string", "not": {"type": "null"}}, ['"a"'], ["null"]),
        ({"enum": [1, 2, 3], "not": {"const": 4}}, ["1"], ["4"]),
        ({"enum": [1, 2, 3], "not": {"const": 2}}, ["1", "3"], ["2"]),
        ({"type": "boolean", "not": {"const": True}}, ["false"], ["true"]),
        ({"type": ["string", "null"], "not": {"type": "null"}}, ['"a"'], ["null"]),
        (
            {"type": "string", "not": {"enum": ["ab", "a"]}},
            ['""', '"b"', '"abc"', '"aa"'],
            ['"a"', '"ab"'],
        ),
        (
            {"type": "string", "not": {"pattern": "^x|[0-9]$"}},
            ['"ax"', '"1a"', '""'],
            ['"x"', '"a1"', '"xa"'],
        ),
        (
            {"properties": {"a": {"const": 1}, "b": {"const": 2}}, "not": {"required": ["b"]}},
            ['{"a":1}'],
            ['{"a":1,"b":2}', '{"b":2}'],
        ),
        (
            {
                "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
                "not": {"anyOf": [{"required": ["b"]}, {"required": ["a", "c"]}]},
            },
            ['{"c":3}'],
            ['{"a":1,"c":3}', '{"a":1,"b":2,"c":3}'],
        ),
        (
            {
                "properties": {"a": {"enum": [1, 2]}, "b": {"const": 2}},
                "not": {"properties": {"a": {"const": 1}}},
            },
            ['{"a":2,"b":2}'],
            ['{"a":1,"b":2}'],
        ),
        ({"type": "array", "not": {"maxItems": 0}}, ["[1]"], ["[]"]),
        # One of several that may be valid together
        (
            {
                "properties": {"a": {"const": 1}, "b": {"const": 2}, "c": {"const": 3}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            ['{"a":1,"c":3}', '{"b":2,"c":3}'],
            ['{"a":1,"b":2,"c":3}', '{"c":3}'],
        ),
        (
            {"oneOf": [{"type": ["string", "null"]}, {"type": ["integer", "null"]}]},
            ['"a"', "1"],
            ["null"],
        ),
        (
            {"oneOf": [{"items": {"enum": [1, 2]}}, {"items": {"const": "a"}}]},
            ["[1]", "[2,1]", '["a"]'],
            ["[]"],
        ),
        ({"oneOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, ["1", "3"], ["2"]),
        (
            {
                "type": "string",
                "oneOf": [{"pattern": "^[0-9]+$"}, {"enum": ["new", "77"]}, {"pattern": "^v"}],
            },
            ['"7"', '"new"', '"v"'],
            ['"77"', '"a"'],
        ),
        # Conditions
        (
            {
                "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"}},
                "required": ["kind"],
                "if": {"properties": {"kind": {"const": "a"}}},
                "then": {"properties": {"n": {"minimum": 1, "maximum": 2}}},
                "else": {"properties": {"n": {"const": 9}}},
            },
            ['{"kind":"a","n":1}', '{"kind":"b","n":9}'],
            ['{"kind":"a","n":9}', '{"kind":"b","n":1}'],
        ),
        (
            {
                "properties": {"a": {"const": 1}},
                "if": {"required": ["a"]},
                "then": {"required": ["b"]},
            },
            ["{}"],
            ['{"a":1}', '{"b":1}'],
        ),
        ({"enum": [1, "a"], "if": {"type": "string"}, "then": False}, ["1"], ['"a"']),
        ({"enum": [1, 5], "if": {"minimum": 3}, "else": {"const": 1}}, ["1", "5"], []),
        ({"type": "null", "if": {"type": "string"}}, ["null"], []),
        (
            {"properties": {"a": {"if": {}, "then": False}, "b": {"const": 1}}},
            ['{"b":1}'],
            ['{"a":1,"b":1}'],
        ),
        (
            {"enum": [1, "a", None, {"b": []}], "type": ["string", "object"]},
            ['"a"', '{"b":[]}'],
            [],
        ),
        ({"enum": ["ab", "c"], "minLength": 2}, ['"ab"'], ['"c"']),
        # Objects
        (
            {"properties": {"a": False, "b": {"const": 1}}, "required": ["c", "b"]},
            ['{"b":1,"c":[]}'],
            ['{"b":1}', '{"a":1,"b":1,"c":1}'],
        ),
        (
            {"properties": {"a": {}}, "required": ["z"], "additionalProperties": {"const": 3}},
            ['{"a":0,"z":3}'],
            ['{"a":0,"z":4}'],
        ),
        ({"type": "object", "additionalProperties": False}, ["{}"], ['{"a":1}']),
        (
            {
                "allOf": [{"properties": {"a": {"const": 1}}}],
                "properties": {"b": {"const": 2}},
                "unevaluatedProperties": False,
            },
            ['{"b":2,"a":1}'],
            ['{"b":2}'],
        ),
        (
            {
                "allOf": [{"unevaluatedProperties": False, "properties": {"a": {"const": 1}}}],
                "properties": {"b": {"const": 2}},
            },
            ['{"a":1}'],
            ['{"b":2,"a":1}'],
        ),
        (
            {
                "properties": {"a": {"const": 1}},
                "anyOf": [{"properties": {"b": {"const": 2}}, "unevaluatedProperties": False}],
                "patternProperties": {"^c": {}},
                "unevaluatedProperties": False,
            },
            ['{"b":2}'],
            ['{"a":1,"b":2}', '{"a":1}'],
        ),
        (
            {
                "properties": {"a": {"const": 1}, "b": {"const": 2}},
                "dependentSchemas": {"a": {"properties": {"c": {"const": 3}}}},
            },
            ['{"a":1,"b":2,"c":3}'],
            ['{"a":1,"b":2}'],
        ),
        (
            {
                "properties": {"a": {"const": 1}, "b": {"const": 2}},
                "dependencies": {"a": {"required": ["z"]}, "b": {"not": {"required": ["z"]}}},
                "additionalProperties": False,
            },
            ['{"b":2}'],
            ['{"a":1,"b":2}', '{"a":1,"b":2,"z":1}'],
        ),
        (
            {"properties": {"a": {}, "b": {"const": 1}}, "dependencies": {"a": ["z"]}},
            ['{"b":1}'],
            ['{"a":1,"b":1}'],
        ),
        (
            {"properties": {"a": {"const": 1}, "b": {"const": 2}}, "maxProperties": 1},
            ['{"a":1}', '{"b":2}'],
            ["{}", '{"a":1,"b":2}'],
        ),
        (
            {
                "properties": {name: {"const": 1} for name in "abcd"},
                "maxProperties": 3,
                "required": ["d"],
            },
            ['{"a":1,"b":1,"d":1}'],
            ['{"a":1,"b":1,"c":1,"d":1}', '{"a":1,"d":1}'],
        ),
        (
            {"properties": {"a": {"const": 1}}, "patternProperties": {"b$": False}},
            ['{"a":1}'],
            [],
        ),
        (
            {
                "properties": {"ab": {}, "cab": {}, "b": {}, "a$": {}, "c": {}, "ac": {}},
                "patternProperties": {"^a|b$": {"enum": [1, 2]}, "^[^a]+$": {"const": 2}},
            },
            ['{"ab":1,"cab":2,"b":2,"a$":2,"c":2,"ac":1}'],
            [
                '{"ab":3,"cab":2,"b":2,"a$":2,"c":2,"ac":1}',
                '{"ab":1,"cab":2,"b":1,"a$":2,"c":2,"ac":1}',
            ],
        ),
        (
            {"patternProperties": {"^a.?": {"minimum": 1}, "^ab": {"type": "integer"}}},
            ["{}", '{"a":1}', '{"ab":2,"a":3}'],
            ['{"a":0}', '{"b":1}', '{"a":1.5}'],
        ),
        (
            {
                "allOf": [
                    {"patternProperties": {"^a$": {"type": "integer"}}},
                    {"additionalProperties": {"maximum": 1}},
                ],
            },
            ['{"a":1}'],
            ['{"a":2}'],
        ),
        (
            {"patternProperties": {"^[a-c]$": {"type": "boolean"}}, "minProperties": 1},
            ['{"a":true}', '{"b":false,"c":true}'],
            ["{}", '{"d":true}'],
        ),
        (
            {"properties": {"x-a": {}, "b": {}}, "patternProperties": {"^x-": {"type": "null"}}},
            ['{"x-a":null,"b":1}'],
            ['{"x-a":1,"b":1}'],
        ),
        (
            {"propertyNames": {"enum": ["a", "b"]}, "additionalProperties": {"const": 1}},
            ["{}", '{"a":1}', '{"b":1,"a":1}'],
            ['{"c":1}'],
        ),
        (
            {"properties": {"a": {}, "b": {}}, "dependentRequired": {"a": ["b"]}},
            ['{"a":1,"b":1}'],
            ['{"a":1}'],
        ),
        # Arrays
        (
            {"items": {"properties": {"n": {"type": "string"}, "v": {"type": "number"}}}},
            ["[]", '[{"n":"","v":1}]', '[{"n":"a","v":1},{"n":"b\\n","v":-1e3}]'],
            ['[{"n":"a"}]', '[{"n":"a","v":1},]', '[{"n":"a","v":1}'],
        ),
        (
            {"items": {"properties": {"b": {"type": "boolean"}}}, "minItems": 2, "maxItems": 3},
            ['[{"b":true},{"b":false}]', '[{"b":true},{"b":false},{"b":false}]'],
            ['[{"b":true}]', "[]"],
        ),
        (
            {"prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2},
            ['[1,"a"]'],
            ["[1]", '[1,"a",2]'],
        ),
        ({"items": [{"const": 1}, {"const": 2}], "maxItems": 1}, ["[1]"], ["[]", "[1,2]"]),
        (
            {"prefixItems": [{"const": 1}], "items": {"const": 2}, "minItems": 3},
            ["[1,2,2]"],
            ["[1]"],
        ),
        ({"type": "array", "items": {"type": "array"}}, ["[]", "[[],[1,{}]]"], ["[1]"]),
        ({"type": "array"}, ["[]", '[1,"a",[]]'], ["{}"]),
        ({"items": False}, ["[]"], ["[1]"]),
        ({"prefixItems": [{"const": 1}, False]}, ["[1]"], ["[]", "[1,2]"]),
        (
            {"items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 1, "maxItems": 2},
            ['["a"]', '["a","c"]', '["b","c"]'],
            ["[]", '["a","a"]', '["a","b","c"]'],
        ),
        ({"items": {"enum": [1, 2]}, "uniqueItems": True}, ["[]", "[2]", "[1,2]"], ["[1,1]"]),
        ({"items": {"type": "string", "maxLength": 2}}, ['["ab","日本"]'], ['["abc"]']),
        (
            {"items": {"type": "string"}, "uniqueItems": True},
            ["[]", '["a"]'],
            ['["a","b"]', '["a","a"]'],
        ),
        (
            {"items": {"type": "object"}, "uniqueItems": True, "minItems": 1},
            ['[{"a":1}]'],
            ["[]", "[{},{}]"],
        ),
        # Numbers
        ({"type": "integer", "minimum": 0}, ["0", "10", "9" * 40], ["-1", "00", "1.0"]),
        ({"type": "integer", "exclusiveMaximum": -10}, ["-11", "-100"], ["-10", "0", "-9"]),
        ({"type": "integer", "minimum": -7.5, "maximum": 10**20}, ["-7", "0", "99"], ["-8"]),
        ({"type": "integer", "multipleOf": 7, "minimum": 1}, ["7", "700"], ["0", "8", "-7"]),
        (
            {"type": "integer", "multipleOf": 5, "minimum": 1, "maximum": 12},
            ["5", "10"],
            ["0", "12"],
        ),
        ({"type": "number", "multipleOf": 1}, ["-3", "0"], ["1.5", "1.0"]),
        (
            {"type": "integer", "allOf": [{"multipleOf": 4}, {"multipleOf": 6}]},
            ["12", "-24"],
            ["4", "6"],
        ),
        (
            {"type": "number", "minimum": 0, "maximum": 1},
            ["0", "0.5", "1", "1.0"],
            ["1.01", "-0.1"],
        ),
        (
            {"type": "number", "minimum": 0, "exclusiveMinimum": True, "maximum": 0.25},
            ["0.25", "0.1", "0.00001", "0.250"],
            ["0", "0.0", "0.251", "1"],
        ),
        ({"type": "number", "exclusiveMinimum": -1.5}, ["-1.4", "7.25"], ["-1.5", "-1.50", "-2"]),
        ({"type": "number", "minimum": 2.5, "maximum": 2.5}, ["2.5"], ["2.4", "3"]),
        ({"type": "number", "minimum": 1e-30, "maximum": 1e-30}, ["1e-30"], ["0"]),
        ({"type": "number", "multipleOf": 0.01}, ["0", "-7", "12345"], ["0.5", "1" * 17]),
        # Strings
        ({"type": "string", "pattern": "[a-z]+", "maxLength": 2}, ['"ab"'], ['"abc"', '"A"']),
        ({"type": "string", "maxLength": 10**9}, ['"ab"', '""'], ['"\\n"']),
        # What some readers take for a space, a digit or a letter
        ({"type": "string", "pattern": "^\\S+$"}, ['"aé日"'], ['"a\u3000"', '"\xa0"', '"\ufeff"']),
        ({"type": "string", "pattern": "^[^:\\s]+$"}, ['"é"'], ['"\u2003"', '":"']),
        ({"type": "string", "pattern": "^\\W$"}, ['"-"'], ['"é"', '"a"']),
        ({"type": "string", "pattern": "^[^\\d]$"}, ['"a"'], ['"٣"', '"3"']),
        ({"type": "string", "pattern": "^[a-z]\\s\\d$"}, ['"a 1"'], ['"a\u3000" 1', '"a ٣"']),
        (
            {"type": "string", "format": "date"},
            ['"2024-02-29"', '"2000-02-29"', '"1999-12-31"'],
            ['"2023-02-29"', '"1900-02-29"', '"2024-04-31"', '"2024-13-01"', '"0000-01-01"'],
        ),
        (
            {"type": "string", "format": "date-time"},
            ['"2024-02-29T23:59:59Z"', '"2024-01-01T00:00:00.123+01:30"'],
            ['"2024-02-29 23:59:59Z"', '"2024-02-29T24:00:00Z"', '"2024-01-01T00:00:00"'],
        ),
        ({"type": "string", "format": "time"}, ['"10:20:30Z"'], ['"10:20"', '"10:20:60Z"']),
        (
            {"type": "string", "format": "uuid"},
            ['"01234567-89ab-cdef-0123-456789abcdef"'],
            ['"0123456789abcdef0123456789abcdef"'],
        ),
        (
            {"type": "string", "format": "email"},
            ['"a.b@c-d.org"'],
            ['"a@b"', '"@b.org"', '"a b@c.de"'],
        ),
        (
            {"type": "string", "format": "ipv4"},
            ['"255.0.10.9"'],
            ['"256.0.0.1"', '"1.2.3"', '"01.2.3.4"'],
        ),
        (
            {"type": "string", "format": "duration"},
            ['"P3D"', '"P1DT2H3M4S"', '"PT5M"', '"PT10S"'],
            ['"P"', '"PT"', '"P1DT"', '"PT1H2S"', '"3D"'],
        ),
        ({"type": "string", "format": "made-up"}, ['"anything"'], ["1"]),
        ({"type": "string", "format": "date", "pattern": "^x$"}, ['"x"'], ['"2024-02-29"']),
    ],
)
def test_what_is_written_is_valid(schema: Any, legal: list[str], illegal: list[str]) -> None:
    skeleton = Skeleton.from_json_schema(schema)
    assert [text for text in legal if not skeleton.matches(text)] == []
    assert [text for text in illegal if skeleton.matches(text)] == []


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (False, "at #: nothing that can be written is valid: #: no value is valid against false"),
        (3, "at #: a schema must be an object"),
        ({"$ref": "#"}, "'#' contains itself without end"),
        ({"type": "object", "properties": {"a/b": {"anyOf": []}}}, "at #/properties/a~1b: anyOf"),
        (
            {"properties": {"a": {"contains": {}, "type": "array"}}},
            "at #/properties/a: contains is not supported",
        ),
        ({"if": {}, "then": False}, "#/then: no value is valid against false"),
        ({"if": {"minLength": 3}, "then": False, "type": "string"}, "at #/if: not is supported"),
        ({"type": "string", "oneOf": []}, "at #: oneOf must be a list of schemas"),
        ({"allOf": {}}, "at #: allOf must be a list of schemas"),
        ({"type": []}, "type is an empty list"),
        ({"type": "date"}, "type must be one of object, string,"),
        (
            {"properties": {}, "required": ["a"], "additionalProperties": False},
            "#/additionalProperties: no value is valid against false",
        ),
        ({"type": "object", "properties": {}, "required": "a"}, "required must be a list"),
        ({"type": "object", "properties": {}, "required": [[]]}, r"required names \[\]"),
        (
            {"type": "object", "properties": {}, "minProperties": 1},
            "minProperties is 1, but 0 properties are written",
        ),
        ({"type": "object", "properties": {"\ud800": {}}}, "lone surrogate"),
        ({"enum": []}, "enum is empty"),
        ({"enum": ["a", "a"]}, r'enum\[1\] is "a", the same as enum\[0\]'),
        ({"enum": [{1}]}, r"enum\[0\]: not a JSON value"),
        ({"enum": "ab"}, "enum must be a list"),
        ({"type": "null", "enum": [1, "a"]}, "allows no value of enum or const"),
        ({"const": 1, "enum": [2]}, "no value of enum and const is left"),
        ({"const": "\udfff"}, "at #: const: the value has a lone surrogate"),
        ({"type": "integer", "minimum": 3, "maximum": 2}, "no whole number from 3 to 2"),
        ({"type": "number", "exclusiveMinimum": 3, "maximum": 3}, "there is no number"),
        ({"type": "number", "minimum": "3"}, "minimum must be a number of at most 400 digits"),
        ({"type": "number", "minimum": float("nan")}, "minimum must be a number"),
        ({"type": "number", "maximum": 10**5000}, "maximum must be a number of at most 400 digits"),
        ({"type": "number", "multipleOf": 0.3}, "multipleOf must be a whole number from 1 to 1000"),
        ({"type": "number", "multipleOf": 1e-05}, "multipleOf must be a whole number"),
        ({"type": "string", "pattern": "(?=a)"}, r"at #: .*\(\?="),
        ({"type": "string", "pattern": '"+'}, "matches no text that stands in a JSON string"),
        ({"type": "string", "pattern": 3}, "pattern must be a string"),
        ({"type": "string", "pattern": "a", "minLength": 2}, "no string of 2 or more characters"),
        ({"type": "string", "minLength": -1}, "minLength must be a whole number"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "maxLength is 2, below minLength, 3"),
        (
            {"items": {"type": "string"}, "uniqueItems": True, "minItems": 2},
            "uniqueItems is supported only",
        ),
        ({"prefixItems": [{}, {}], "uniqueItems": True}, "uniqueItems is not supported"),
        ({"items": {"const": 1}, "uniqueItems": True, "minItems": 2}, "all items are the same"),
        ({"items": {"enum": [1, 2]}, "uniqueItems": True, "minItems": 3}, "fewer than 3 different"),
        ({"type": "array", "minItems": 65}, "minItems must be at most 64"),
        ({"prefixItems": [{}, False], "minItems": 2}, "the item 1 cannot be written"),
        ({"type": "array", "contains": {}}, "at #: contains is not supported"),
        ({"type": "array", "items": [{}], "minItems": 2, "additionalItems": False}, "false"),
        ({"$ref": "other.json"}, r"at #: \$ref 'other.json' is not supported"),
        ({"$ref": "#/$defs/a"}, r"at #: \$ref '#/\$defs/a' refers to nothing"),
        ({"$ref": "#named"}, r"at #: \$ref '#named' is not supported"),
        ({"$ref": 3}, r"\$ref must be a string"),
        (
            {"properties": {"a": {"$id": "x:y", "properties": {"b": {"$ref": "#"}}}}},
            r"at #/properties/a/properties/b: \$ref '#' is not supported",
        ),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "may be valid against option 1 too"),
        ({"type": "string", "not": {"minLength": 3}}, "at #/not: not is supported only"),
        ({"type": "string", "not": {}}, "everything is valid against what it must not be"),
        ({"enum": [1, 2], "not": {"type": "integer"}}, "allows no value of enum"),
        ({"type": "object", "minProperties": 2}, "minProperties above 1 is not supported"),
        ({"dependencies": {"a": {"required": ["b"]}}}, "dependentRequired is not supported"),
        ({"dependencies": {"a": [3]}}, "dependencies must name fields"),
        ({"dependentRequired": []}, "dependentRequired must be an object"),
        (
            {
                "properties": {"a": {}},
                "required": ["a"],
                "dependentSchemas": {"a": {"properties": {"a": False}}},
            },
            "no value is valid against false",
        ),
        ({"type": "integer", "allOf": [{"multipleOf": 7}, {"multipleOf": 999}]}, "multiples of 69"),
        ({"properties": {"a": {}}, "dependentRequired": {"a": ["b"]}}, "'a' needs 'b'"),
        (
            {"properties": {"a": {}}, "required": ["a"], "patternProperties": {"(?=a)": {}}},
            "at #/properties/a: it is not known whether the name",
        ),
        ({"required": True}, "that of draft 3 is not supported"),
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


def test_what_is_fixed_below_an_object_is_known_text() -> None:
    schema = {
        "properties": {
            "at": {
                "prefixItems": [{"properties": {"x": {"type": "integer"}}}, {"type": "boolean"}],
                "minItems": 2,
            },
            "range": {"items": {"type": "number"}, "minItems": 2, "maxItems": 2},
            "age": {"$ref": "#/$defs/age"},
            "rows": {"items": {"properties": {"id": {"$ref": "#/$defs/age"}}}},
        },
        "$defs": {"age": {"type": "integer", "minimum": 0}},
    }
    skeleton = Skeleton.from_json_schema(schema)
    assert [(span.kind, span.key, span.value) for span in skeleton.spans] == [
        ("literal", None, '{"at":[{"x":'),
        ("integer", "at.0.x", None),
        ("literal", None, "},"),
        ("boolean", "at.1", None),
        ("literal", None, '],"range":'),
        ("pattern", "range", None),
        ("literal", None, ',"age":'),
        ("integer", "age", None),
        ("literal", None, ',"rows":'),
        ("pattern", "rows", None),
        ("literal", None, "}"),
    ]
    assert Skeleton.from_dict(skeleton.to_dict()) == skeleton
    assert skeleton.matches('{"at":[{"x":1},true],"range":[0,1.5],"age":3,"rows":[{"id":0}]}')


LEFT_OUT: dict[str, tuple[Any, str, str]] = {
    # name: (schema, a text that is written, what is left out)
    "a field": (
        {"properties": {"a": {"const": 1}, "b": {"type": "array", "contains": {}}}},
        '{"a":1}',
        "at #/properties/b: contains is not supported",
    ),
    "a field of a pattern that is not regular": (
        {"properties": {"a": {"const": 1}, "b": {"type": "string", "pattern": "(a)\\1"}}},
        '{"a":1}',
        "at #/properties/b: .*backreference",
    ),
    "a field that refers elsewhere": (
        {"properties": {"a": {"const": 1}, "b": {"$ref": "https://example.org/b.json"}}},
        '{"a":1}',
        "at #/properties/b: .* is not supported",
    ),
    "a field around what is required": (
        {
            "properties": {
                "a": {"const": 1},
                "b": {
                    "properties": {"c": {"const": 2}, "d": {"type": "array", "contains": {}}},
                    "required": ["d"],
                },
            }
        },
        '{"a":1}',
        "at #/properties/b/properties/d: contains",
    ),
    "an option": (
        {"anyOf": [{"type": "array", "contains": {}}, {"type": "integer"}]},
        "1",
        "at #/anyOf/0: contains is not supported",
    ),
    "an option that cannot be told from another": (
        {"oneOf": [{"type": "number"}, {"type": "integer"}, {"const": "a"}]},
        '"a"',
        "option 0 too, where only one may be",
    ),
    "a branch": (
        {"type": "integer", "if": {"minimum": 3}, "then": {"minimum": 7}},
        "8",
        "at #/if: not is supported only",
    ),
    "numbers between whole ones": (
        {"type": "number", "multipleOf": 0.01, "minimum": 0},
        "1500",
        "at #: multipleOf must be a whole number",
    ),
    "all items but one": (
        {"properties": {"a": {"items": {"type": "string"}, "uniqueItems": True}}},
        '{"a":["x"]}',
        "at #/properties/a: uniqueItems is supported only",
    ),
    "a field whose demands cannot be kept": (
        {
            "properties": {"a": {"const": 1}, "b": {"const": 2}},
            "dependentSchemas": {"b": {"properties": {"c": {"contains": {}}}, "required": ["c"]}},
        },
        '{"a":1}',
        "contains is not supported",
    ),
    "a field that is too much for an automaton": (
        {
            "properties": {
                "a": {"const": 1},
                "b": {
                    "properties": {
                        "rows": {
                            "items": {"items": {"items": {"type": "string"}, "minItems": 60}},
                            "minItems": 60,
                        }
                    },
                    "required": ["rows"],
                },
            }
        },
        '{"a":1}',
        "at #/properties/b/properties/rows: .*too much for an automaton",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LEFT_OUT)
def test_what_need_not_be_written_is_left_out_where_it_cannot_be_said(name: str) -> None:
    schema, text, reason = LEFT_OUT[name]
    skeleton = Skeleton.from_json_schema(schema)
    assert skeleton.matches(text)
    assert any(re.search(reason, each) for each in skeleton.left_out)


def test_nothing_is_left_out_of_what_can_be_said() -> None:
    assert Skeleton.from_json_schema(SEARCH).left_out == ()
    assert Skeleton.from_dict(Skeleton.from_json_schema(SEARCH).to_dict()).left_out == ()


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"b": {"type": "array", "contains": {}}}}, "contains is not supported"),
        (
            {
                "properties": {"a": {}, "b": {"type": "array", "contains": {}}},
                "minProperties": 2,
            },
            "at #/properties/b: contains is not supported",
        ),
        (
            {"properties": {"a": {}, "b": {"contains": {}, "type": "array"}}, "required": ["b"]},
            "at #/properties/b: contains is not supported",
        ),
        ({"anyOf": [{"type": "array", "contains": {}}, False]}, "at #/anyOf/0: contains"),
    ],
)
def test_what_has_to_be_written_is_not_left_out(schema: Any, reason: str) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        Skeleton.from_json_schema(schema)


def test_an_error_in_the_schema_is_told_wherever_it_is() -> None:
    for wrong in ({"enum": []}, {"type": "date"}, {"$ref": "#/$defs/none"}, {"anyOf": []}):
        with pytest.raises(InvalidArgumentError, match="at #/properties/b: "):
            Skeleton.from_json_schema({"properties": {"a": {"const": 1}, "b": wrong}})
