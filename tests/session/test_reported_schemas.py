"""Schemas that users of other programs reported: answers and tool calls are valid against them."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest
from compiled import schema_masks

from eliza_ffi import Model, Regex
from eliza_ffi.structured.number_values import list_few_numbers
from eliza_ffi.structured.schema_walk import ObjectForm, SchemaDocument, closed_objects
from eliza_ffi.structured.validation import checked_value

BOOLEAN, SHORT = {"type": "boolean"}, {"type": "string", "maxLength": 4}
ID = 1234567890123456789


def an(required: list[str] | None = None, /, **properties: Any) -> dict[str, Any]:
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names}


BASE = {"Base": an(x={"enum": [1, 2]})}
MAIL = {"properties": {"mail": {"enum": ["a"]}}, "required": ["mail"]}
PHONE = {"properties": {"phone": {"enum": ["b"]}}, "required": ["phone"]}
NARROW = {"type": "integer", "minimum": ID, "exclusiveMaximum": ID + 3}
ONE_MULTIPLE = {"type": "number", "minimum": 0.3, "maximum": 0.3, "multipleOf": 0.1}
SCHEMAS: dict[str, Any] = {
    "properties beside oneOf": {**an(id={"enum": [1, 2]}), "oneOf": [MAIL, PHONE]},
    "a reference with siblings": {
        **an(p={"$ref": "#/$defs/Base", "properties": {"y": {"enum": [1, 2]}}, "required": ["y"]}),
        "$defs": BASE,
    },
    "a nested allOf": {
        **an(p={"allOf": [{"$ref": "#/$defs/Base"}, an(y={"enum": [1, 2]})]}),
        "$defs": BASE,
    },
    "anyOf at the root": {"type": "object", "anyOf": [an(a={"const": 1}), an(b={"const": 2})]},
    "allOf at the root": {"type": "object", "allOf": [an(a={"const": 1}), an(b={"const": 2})]},
    "a name that is only required": an(["a", "b"], a={"enum": [1]}),
    "a large integer in an enum": an(channel={"enum": [ID, ID + 1]}),
    "a field called default": an(default={"enum": [ID, ID + 1]}, ok=BOOLEAN),
    "a large constant": an(channel={"const": ID}, ok=BOOLEAN),
    "narrow bounds of large integers": an(n=NARROW),
    "one multiple of a fraction": an(n=ONE_MULTIPLE),
    "a least number of fields": {**an([], a=BOOLEAN, b=SHORT, c=BOOLEAN), "minProperties": 2},
    "a pattern that only matches a declared name": {
        **an(a=BOOLEAN),
        "patternProperties": {"^a$": {"type": "boolean"}},
        "additionalProperties": False,
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_answers_and_tool_calls_are_valid(tiny_model: Model, name: str) -> None:
    schema = SCHEMAS[name]
    validate = partial(checked_value, json.dumps(schema))  # with exact decimals
    tool = {"type": "function", "function": {"name": "act", "parameters": schema}}
    call = tiny_model.call_tool([{"role": "user", "content": "Do it."}], [tool], "required")
    validate(json.dumps(call.arguments))  # type: ignore[union-attr]
    # The embedded model writes other properties without end.
    result = tiny_model.fill("x", schema, max_tokens=200, on_limit="close")
    validate(result.text)


def test_integers_have_up_to_19_digits(tiny_model: Model) -> None:
    masks = schema_masks(tiny_model.session.guidance(), {"type": "integer"})
    source = masks.start()
    for token in tiny_model.tokenize(str(ID)):
        assert source.mask()[token // 32] >> token % 32 & 1
        source.accept(token)
    assert tiny_model.fill("x", Regex("[0-9]{19}")).value.isdigit()


def is_closed(schema: Any) -> bool:
    return json.loads(closed_objects(json.dumps(schema))).get("additionalProperties") is False


@pytest.mark.parametrize(
    "schema, expected",
    [
        (an(a=BOOLEAN), True),
        ({**an(a=BOOLEAN), "$id": "https://example.org/a", "x-order": ["a"]}, True),
        ({**an(a=BOOLEAN), "additionalProperties": True}, False),
        ({**an(a=BOOLEAN), "anyOf": [an(b=BOOLEAN)]}, False),
        ({**an(a=BOOLEAN), "if": {}, "then": an(b=BOOLEAN)}, False),
        ({**an(a=BOOLEAN), "dependentSchemas": {"a": an(b=BOOLEAN)}}, False),
        (an(["b"], a=BOOLEAN), False),
    ],
    ids=str,
)
def test_an_object_is_closed_if_nothing_else_describes_it(schema: Any, expected: bool) -> None:
    assert is_closed(schema) is expected


def test_a_definition_is_closed_unless_it_is_combined_with_others() -> None:
    def definition(**users: Any) -> bool:
        schema = {**an(**users), "$defs": BASE}
        closed = json.loads(closed_objects(json.dumps(schema)))
        return closed["$defs"]["Base"].get("additionalProperties") is False

    alone, combined = {"$ref": "#/$defs/Base"}, {"allOf": [{"$ref": "#/$defs/Base"}, an(z=SHORT)]}
    assert definition(a=alone, b={"anyOf": [alone, {"type": "null"}]})
    assert not definition(a=alone, b=combined)
    assert not definition(a={**alone, "required": ["q"]})


def test_alternatives_are_closed_beside_an_empty_list_of_properties() -> None:
    """Tools without `properties` get an empty list of them."""
    schema = {"type": "object", "properties": {}, "oneOf": [an(a=SHORT), an(b=SHORT)]}
    closed = json.loads(closed_objects(json.dumps(schema)))
    assert [each.get("additionalProperties") for each in closed["oneOf"]] == [False, False]


def test_the_forms_of_an_object_keep_what_each_alternative_requires() -> None:
    schema = {"allOf": [an(a=SHORT)], "anyOf": [an(b=SHORT), an([], c=SHORT)]}
    assert SchemaDocument(schema).object_forms(schema) == (
        ObjectForm(("a", "b"), frozenset("ab")),
        ObjectForm(("a", "c"), frozenset("a")),
    )
    itself: dict[str, Any] = {"anyOf": [{"$ref": "#"}, an(a=SHORT)]}
    assert SchemaDocument(itself).object_forms(itself) == (ObjectForm(("a",), frozenset("a")),)
    many = {"allOf": [{"anyOf": [an(**{f"{k}{i}": SHORT}) for i in range(3)]} for k in "abcd"]}
    forms = SchemaDocument(many).object_forms(many)
    assert len(forms) <= 16
    assert {name for form in forms for name in form.names} == {
        f"{k}{i}" for k in "abcd" for i in range(3)
    }


@pytest.mark.parametrize(
    "schema, expected",
    [
        ({"type": "integer", "minimum": 2**60, "maximum": 2**60 + 1}, [2**60, 2**60 + 1]),
        ({"type": "integer", "exclusiveMinimum": ID, "maximum": ID + 1}, [ID + 1]),
        ({"type": "number", "minimum": 0, "maximum": 0.3, "multipleOf": 0.1}, [0, 0.1, 0.2, 0.3]),
        ({"type": "integer", "minimum": 1, "maximum": 9}, None),
        ({"type": "integer", "minimum": 2**60}, None),
        ({"type": "integer", "minimum": 2**60, "maximum": 2**61}, None),
        ({"type": "number", "minimum": 0.1, "maximum": 0.3}, None),
    ],
    ids=str,
)
def test_a_range_that_a_float_could_blur_is_listed(schema: Any, expected: Any) -> None:
    list_few_numbers(schema)
    assert schema.get("enum") == expected
