"""Read tool definitions in the forms of OpenAI's two APIs."""

from __future__ import annotations

import json
from typing import Any

import pydantic
import pytest

from eliza_ffi.chat.tools import read_tools
from eliza_ffi.errors import InvalidArgumentError

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Return the weather.",
        "parameters": PARAMETERS,
        "strict": True,
    },
}
FLAT = {"type": "function", **WEATHER["function"]}  # type: ignore[dict-item]


class Arguments(pydantic.BaseModel):
    city: str


def named(name: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


@pytest.mark.parametrize("definition", [WEATHER, FLAT], ids=["chat completions", "responses"])
def test_tool_definitions_of_both_openai_apis_are_read(definition: dict[str, Any]) -> None:
    before = json.dumps(definition)
    (tool,) = read_tools([definition])
    assert (tool.name, tool.description) == ("get_weather", "Return the weather.")
    assert (tool.parameters, tool.strict) == (PARAMETERS, True)
    assert tool.definition == WEATHER
    assert json.dumps(definition) == before


def test_a_tool_needs_only_a_name() -> None:
    (tool,) = read_tools([named("now")])
    assert tool.description == "" and tool.strict is None
    assert tool.parameters == {"type": "object", "properties": {}}
    assert tool.definition["function"] == {
        "name": "now",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }


@pytest.mark.parametrize("parameters", [None, {}, {"properties": {}}])
def test_parameters_without_a_type_describe_an_object(parameters: Any) -> None:
    (tool,) = read_tools([named("now", parameters=parameters)])
    assert tool.parameters["type"] == "object" and tool.parameters["properties"] == {}


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ({}, "tools must be a list of tool definitions, got an empty dict"),
        ([], "expected at least one tool, got none"),
        (FLAT, "got a dict; put a single definition into a list"),
        (["x"], "tool 0 must be a mapping with a name and parameters, got 'x'"),
        ([{"type": "web_search"}], "tool 0: expected the type 'function', got 'web_search'"),
        ([{"type": "function"}], "tool 0 has no name"),
        ([{"type": "function", "function": "x"}], "the 'function' of tool 0 must be a mapping"),
        ([WEATHER, {"type": "function", "function": {}}], "tool 1 has no name"),
        ([named(3)], "the name of tool 0 must be a string, got 3"),
        ([named("")], "tool 0 has no name"),
        ([named("a b")], "the name of tool 0 is 'a b'; expected 1 to 128 letters, digits"),
        ([named("x" * 129)], "expected 1 to 128 letters, digits"),
        ([named("a\n")], "expected 1 to 128 letters, digits"),
        ([WEATHER, named("x"), FLAT], "tools 0 and 2 are both named 'get_weather'"),
        ([named("x", description=3)], "the description of tool 'x' must be a string, got 3"),
        ([named("x", strict="no")], "'strict' of tool 'x' must be True or False, got 'no'"),
        ([named("x", parameters=[])], "'x' must be a JSON Schema as a mapping, got an empty list"),
        ([named("x", parameters=Arguments)], "for a pydantic class pass its model_json_schema()"),
        ([{"name": "x", "input_schema": {}}], "under 'input_schema': rename this key"),
        ([{"name": "x", "inputSchema": {}}], "tool 'x' has its schema under 'inputSchema'"),
        ([named("x", parameters={"type": "string"})], "must have the type 'object', got 'string'"),
        ([named("x", parameters={"anyOf": []})], "must have the type 'object', got no type"),
        ([named("x", parameters={"properties": []})], "'properties' of tool 'x' must be a mapping"),
        ([named("x", parameters={"properties": {"y": {1}}})], "of tool 'x' are not JSON"),
    ],
)
def test_a_malformed_tool_definition_is_rejected(tools: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        read_tools(tools)
    assert message in str(raised.value)
