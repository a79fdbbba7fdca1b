"""The validation of finished values: Python's `re` never sees a pattern of the schema."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.validation import schema_validator

HOSTILE = "^(a+)+$"
VALUE = {"a" * 60 + "!": 1, "aa": "a" * 60 + "!"}
DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
CLOSED = {"patternProperties": {HOSTILE: {}}, "unevaluatedProperties": False}
SCHEMAS: dict[str, dict[str, Any]] = {
    "pattern": {"additionalProperties": {"pattern": HOSTILE}},
    "propertyNames": {"propertyNames": {"pattern": HOSTILE}},
    "patternProperties": {"patternProperties": {HOSTILE: {"type": "string"}}},
    "additionalProperties": {"patternProperties": {HOSTILE: {}}, "additionalProperties": False},
    "unevaluatedProperties": CLOSED,
    "unevaluatedProperties behind a reference": {
        "$defs": {"x": {"patternProperties": {HOSTILE: {}}}},
        "$ref": "#/$defs/x",
        "unevaluatedProperties": False,
    },
    "unevaluatedProperties over branches": {
        "anyOf": [{"patternProperties": {HOSTILE: {}}}, {"required": ["b"]}],
        "if": {"patternProperties": {HOSTILE: {}}},
        "then": {"patternProperties": {f"{HOSTILE}|b": {}}},
        "unevaluatedProperties": False,
    },
    **{
        f"a part of draft {draft}": {"allOf": [{"$schema": name, **CLOSED, "pattern": HOSTILE}]}
        for draft, name in DRAFTS.items()
    },
    **{
        f"a reference to a part of draft {draft}": {
            "$defs": {"x": {"$schema": name, "additionalProperties": {"pattern": HOSTILE}}},
            "allOf": [{"$ref": "#/$defs/x"}],
        }
        for draft, name in DRAFTS.items()
    },
}


@pytest.mark.parametrize("draft", [None, *DRAFTS])
@pytest.mark.parametrize("name", SCHEMAS)
def test_no_pattern_reaches_python_s_regular_expressions(
    name: str, draft: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = re.search

    def checked(pattern: Any, *more: Any, **options: Any) -> Any:
        assert HOSTILE not in str(pattern)
        return search(pattern, *more, **options)

    monkeypatch.setattr(re, "search", checked)
    schema = SCHEMAS[name] if draft is None else {"$schema": DRAFTS[draft], **SCHEMAS[name]}
    try:
        schema_validator(json.dumps(schema))(json.dumps(VALUE))
    except InvalidArgumentError as error:
        assert "cannot validate" not in str(error)


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
        expected = Draft202012Validator(whole).is_valid(value)
        try:
            schema_validator(json.dumps(whole))(json.dumps(value))
            found = True
        except InvalidArgumentError:
            found = False
        assert found == expected, value
