"""Forty shapes of answers as schemas, half of them as pydantic writes its models.

Each has a name, and whether a skeleton says it: a text that it could write, or the reason why not.
"""

from __future__ import annotations

from typing import Any

__all__ = ["SHAPES"]


def model(title: str, defs: dict[str, Any] | None = None, **properties: Any) -> dict[str, Any]:
    """Return the schema of a model whose fields are all required, as pydantic writes it."""
    schema: dict[str, Any] = {"properties": {}, "required": list(properties), "title": title}
    for name, each in properties.items():
        schema["properties"][name] = {"title": name.title(), **each}
    if defs:
        schema["$defs"] = defs
    return {**schema, "type": "object"}


STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
NULL, BOOLEAN = {"type": "null"}, {"type": "boolean"}
POINT = model("Point", x=NUMBER, y=NUMBER)
COLOUR = {"enum": ["red", "green"], "title": "Colour", "type": "string"}
CAT = model("Cat", kind={"const": "cat", "type": "string"}, lives=INTEGER)
DOG = model("Dog", kind={"const": "dog", "type": "string"}, good=BOOLEAN)
NODE = model("Node", value=INTEGER, children={"items": {"$ref": "#/$defs/Node"}, "type": "array"})
LINK = model(
    "Link",
    value=INTEGER,
    next={"anyOf": [{"$ref": "#/$defs/Link"}, NULL], "default": None},
)

SHAPES: dict[str, tuple[Any, str | None, str]] = {
    # name: (schema, a text that could be written, None if it is refused; what the error says)
    "a model of scalars": (
        model("User", name=STRING, age=INTEGER, tall=BOOLEAN, height=NUMBER),
        '{"name":"a","age":3,"tall":true,"height":1.5}',
        "",
    ),
    "an optional field": (
        model("User", nick={"anyOf": [STRING, NULL], "default": None}),
        '{"nick":null}',
        "",
    ),
    "a field with a default": (model("Page", n={"type": "integer", "default": 1}), '{"n":2}', ""),
    "a field of any value": (model("Box", inside={}), '{"inside":[1,{"a":null}]}', ""),
    "a literal": (model("Reply", mood={"enum": ["glad", "sad"]}), '{"mood":"sad"}', ""),
    "an enumeration": (
        model("Car", {"Colour": COLOUR}, colour={"$ref": "#/$defs/Colour"}),
        '{"colour":"red"}',
        "",
    ),
    "a model in a model": (
        model("Line", {"Point": POINT}, a={"$ref": "#/$defs/Point"}, b={"$ref": "#/$defs/Point"}),
        '{"a":{"x":1,"y":2},"b":{"x":0.5,"y":-1}}',
        "",
    ),
    "a list of models": (
        model("Path", {"Point": POINT}, at={"items": {"$ref": "#/$defs/Point"}, "type": "array"}),
        '{"at":[{"x":1,"y":2},{"x":0,"y":0}]}',
        "",
    ),
    "an optional model": (
        model("Pin", {"Point": POINT}, at={"anyOf": [{"$ref": "#/$defs/Point"}, NULL]}),
        '{"at":{"x":1,"y":2}}',
        "",
    ),
    "a list of strings": (
        model("Tags", tags={"items": STRING, "type": "array"}),
        '{"tags":[]}',
        "",
    ),
    "a list with bounds": (
        model("Tags", tags={"items": STRING, "minItems": 1, "maxItems": 3, "type": "array"}),
        '{"tags":["a","b"]}',
        "",
    ),
    "a list of enumerated values": (
        model("Mix", {"Colour": COLOUR}, of={"items": {"$ref": "#/$defs/Colour"}, "type": "array"}),
        '{"of":["red","red"]}',
        "",
    ),
    "a set of enumerated values": (
        model(
            "Mix",
            {"Colour": COLOUR},
            of={"items": {"$ref": "#/$defs/Colour"}, "type": "array", "uniqueItems": True},
        ),
        '{"of":["red","green"]}',
        "",
    ),
    "a set of strings": (
        model("Tags", tags={"items": STRING, "type": "array", "uniqueItems": True}),
        '{"tags":["a"]}',
        "",
    ),
    "a tuple": (
        model(
            "Pair",
            pair={"prefixItems": [INTEGER, STRING], "minItems": 2, "maxItems": 2, "type": "array"},
        ),
        '{"pair":[1,"a"]}',
        "",
    ),
    "a dictionary of numbers": (
        model("Marks", marks={"additionalProperties": NUMBER, "type": "object"}),
        '{"marks":{"a":1,"b":2.5}}',
        "",
    ),
    "a dictionary of models": (
        model("Map", {"Point": POINT}, at={"additionalProperties": {"$ref": "#/$defs/Point"}}),
        '{"at":{"home":{"x":1,"y":2}}}',
        "",
    ),
    "any dictionary": (
        model("Bag", bag={"additionalProperties": True, "type": "object"}),
        '{"bag":{"a":[1]}}',
        "",
    ),
    "a whole number with bounds": (
        model("Vote", stars={"type": "integer", "minimum": 1, "maximum": 5}),
        '{"stars":5}',
        "",
    ),
    "a positive number": (
        model("Price", price={"type": "number", "exclusiveMinimum": 0}),
        '{"price":0.01}',
        "",
    ),
    "a probability": (
        model("Guess", sure={"type": "number", "minimum": 0, "maximum": 1}),
        '{"sure":0.75}',
        "",
    ),
    "multiples": (model("Steps", n={"type": "integer", "multipleOf": 25}), '{"n":-125}', ""),
    "decimal multiples": (
        model("Price", price={"type": "number", "multipleOf": 0.01}),
        '{"price":12}',
        "",
    ),
    "a string of some length": (
        model("Name", name={"type": "string", "minLength": 1, "maxLength": 20}),
        '{"name":"Grüße"}',
        "",
    ),
    "a string of a pattern": (
        model("Code", code={"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$", "maxLength": 6}),
        '{"code":"AB-123"}',
        "",
    ),
    "a lookahead": (
        model("Code", code={"type": "string", "pattern": "^(?=a)[a-z]+$"}),
        None,
        r"at #/properties/code: .*lookahead",
    ),
    "a date and a time": (
        model("Log", at={"format": "date-time", "type": "string"}),
        '{"at":"2026-02-28T01:02:03Z"}',
        "",
    ),
    "an identifier": (
        model("Row", id={"format": "uuid", "type": "string"}),
        '{"id":"00000000-0000-0000-0000-00000000000f"}',
        "",
    ),
    "a choice of scalars": (
        model("Cell", cell={"anyOf": [INTEGER, STRING, BOOLEAN]}),
        '{"cell":true}',
        "",
    ),
    "a choice of models": (
        model(
            "Home",
            {"C": CAT, "D": DOG},
            pet={"anyOf": [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/D"}]},
        ),
        '{"pet":{"kind":"dog","good":true}}',
        "",
    ),
    "models told apart by a field": (
        model(
            "Home",
            {"C": CAT, "D": DOG},
            pets={
                "type": "array",
                "items": {
                    "discriminator": {"propertyName": "kind", "mapping": {"cat": "#/$defs/C"}},
                    "oneOf": [{"$ref": "#/$defs/C"}, {"$ref": "#/$defs/D"}],
                },
            },
        ),
        '{"pets":[{"kind":"cat","lives":9},{"kind":"dog","good":false}]}',
        "",
    ),
    "one of two that may both be valid": (
        model("Either", of={"oneOf": [NUMBER, {"type": "integer", "minimum": 3}]}),
        None,
        "at #/properties/of: .* only one may be",
    ),
    "a tree": (
        {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"},
        '{"value":1,"children":[{"value":2,"children":[]}]}',
        "",
    ),
    "a linked list": (
        {"$defs": {"Link": LINK}, "$ref": "#/$defs/Link"},
        '{"value":1,"next":{"value":2,"next":null}}',
        "",
    ),
    "what contains itself without end": (
        {"properties": {"again": {"$ref": "#"}}, "required": ["again"]},
        None,
        "contains itself without end",
    ),
    "a schema of draft 4": (
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "id": "person",
            "type": "object",
            "properties": {"age": {"type": "number", "minimum": 0, "exclusiveMinimum": True}},
            "definitions": {},
            "additionalProperties": False,
        },
        '{"age":0.5}',
        "",
    ),
    "all of several": (
        {"allOf": [POINT, {"properties": {"x": {"minimum": 0}}}], "unevaluatedProperties": False},
        '{"x":1,"y":-1}',
        "",
    ),
    "if and then": (
        {
            "properties": {"kind": {"enum": ["card", "cash"]}},
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "card"}}},
            "then": {"properties": {"number": {"pattern": "^[0-9]{4}$"}}, "required": ["number"]},
        },
        '{"kind":"card","number":"1234"}',
        "",
    ),
    "a reference to elsewhere": (
        {"items": {"$ref": "https://example.org/schema.json"}},
        None,
        r"at #/items: \$ref 'https://example.org/schema.json' is not supported",
    ),
    "an array that contains": (
        {"type": "array", "contains": INTEGER},
        None,
        "at #: contains is not supported",
    ),
}
