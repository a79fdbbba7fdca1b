"""OpenAPI's ``nullable`` in schemas: null is allowed, in every place where it can stand."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import jsonschema
import pytest

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.model import Model
from eliza_ffi.sampling.params import Sampling
from eliza_ffi.structured.limits import checked_schema
from eliza_ffi.structured.validation import checked_value

TEXT = {"type": "string"}
PARTS: list[dict[str, Any]] = [
    TEXT,
    {"type": ["string", "integer"]},
    {"enum": ["a", "b"]},
    {"type": "string", "enum": ["a", "b"]},
    {"type": "string", "const": "a"},
    {"$ref": "#/$defs/text"},
    {"allOf": [{"$ref": "#/$defs/text"}]},
    {"anyOf": [TEXT, {"type": "integer"}], "description": "either"},
    {"oneOf": [TEXT, {"type": "integer"}]},
    {"type": "string", "not": {"const": "b"}},
    {"type": "object", "properties": {"a": TEXT}, "required": ["a"]},
    {"type": "array", "items": TEXT},
]


def around(part: dict[str, Any]) -> list[dict[str, Any]]:
    """Return schemas with the part at the places where a value, an item or a field stands."""
    return [
        {**part, "$defs": {"text": TEXT}},
        {"type": "array", "items": part, "$defs": {"text": TEXT}},
        {"type": "array", "prefixItems": [part], "$defs": {"text": TEXT}},
        {"type": "object", "additionalProperties": part, "$defs": {"text": TEXT}},
        {"type": "object", "properties": {"nullable": part}, "$defs": {"text": TEXT}},
        {"$ref": "#/$defs/part", "$defs": {"part": part, "text": TEXT}},
    ]


VALUES = ["a", "b", 1, True, [], ["a"], [1], {}, {"a": "a"}, {"a": 1}, {"nullable": "a"}]
WITH_NULL = [None, [None], ["a", None], {"a": None}, {"nullable": None}]


@pytest.mark.parametrize("part", PARTS)
def test_nullable_allows_null_and_changes_nothing_else(part: dict[str, Any]) -> None:
    either = {"anyOf": [part, {"type": "null"}]}
    for schema, expected in zip(around({**part, "nullable": True}), around(either), strict=True):
        found = jsonschema.Draft202012Validator(json.loads(checked_schema(schema)))
        right = jsonschema.Draft202012Validator(expected)
        for value in VALUES + WITH_NULL:
            assert found.is_valid(value) == right.is_valid(value), (schema, value)
    for schema, expected in zip(around({**part, "nullable": False}), around(part), strict=True):
        found = jsonschema.Draft202012Validator(json.loads(checked_schema(schema)))
        right = jsonschema.Draft202012Validator(expected)
        assert [*map(found.is_valid, WITH_NULL)] == [*map(right.is_valid, WITH_NULL)]


def test_values_and_names_called_nullable_are_no_keywords() -> None:
    schema = {
        "type": "object",
        "properties": {"nullable": {"type": "boolean"}, "b": {"const": {"nullable": True}}},
        "required": ["nullable"],
    }
    assert json.loads(checked_schema(schema)) == schema


def test_the_model_writes_null_for_a_nullable_field(tiny_model: Model) -> None:
    field = {"type": "string", "enum": ["x"], "nullable": True}
    schema: dict[str, Any] = {"type": "object", "properties": {"a": field}, "required": ["a"]}
    schema["additionalProperties"] = False
    texts = {
        tiny_model.generate("a", 20, schema=schema, sampling=Sampling(temperature=2, seed=i)).text
        for i in range(30)
    }
    assert texts == {'{"a":"x"}', '{"a":null}'}


def test_the_arguments_of_a_tool_are_an_object_even_if_its_schema_is_nullable(
    tiny_model: Model,
) -> None:
    field = {"type": "string", "nullable": True}
    parameters = {"type": "object", "properties": {"a": field}, "required": ["a"], "nullable": True}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    for seed in range(10):
        sampling = Sampling(temperature=2, seed=seed)
        call = tiny_model.call_tool(
            [{"role": "user", "content": "a"}], tools, tool_choice="required", sampling=sampling
        )
        assert call.arguments["a"] is None or isinstance(call.arguments["a"], str)


def test_errors_still_name_the_place_of_a_wrong_keyword() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "nothing", "nullable": True}}}
    with pytest.raises(InvalidArgumentError, match="#/properties/a/type"):
        checked_schema(schema)
    value = partial(checked_value, checked_schema({"type": "string", "nullable": True}))
    assert value("null") is None
