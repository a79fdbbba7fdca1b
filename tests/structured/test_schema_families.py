"""Realistic schemas in several families: all returned values are valid.

The schemas were written for this test. They imitate schemas of function calls, of public
configuration files and of cluster resources.
"""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import jsonschema
import pytest
from compiled import schema_masks
from random_answers import random_answer

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.model import Model
from eliza_ffi.structured.validation import checked_value

STRING, INTEGER, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "number"}
BOOLEAN, NULL = {"type": "boolean"}, {"type": "null"}
DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
DRAFT_7 = {"$schema": "http://json-schema.org/draft-07/schema#"}
FILLS = 5


def an(required: list[str] | None = None, /, **properties: Any) -> dict[str, Any]:
    """Return an object schema. All fields are required unless `required` is given."""
    names = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": names}


def closed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "additionalProperties": False}


def some(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/definitions/{name}"}


def nullable(*kinds: str) -> dict[str, Any]:
    return {"type": [*kinds, "null"]}


QUANTITY = {"oneOf": [nullable("string"), nullable("number")]}
TIME = {"type": ["string", "null"], "format": "date-time"}
LABELS = {"type": ["object", "null"], "additionalProperties": nullable("string")}
META = an([], name=nullable("string"), labels=LABELS, creationTimestamp=TIME)
ZIP = {"type": "string", "pattern": "^\\d{5}$"}
WORD = {"type": "string", "pattern": "^[a-z][a-z0-9_-]*$", "maxLength": 30}

SMALL: dict[str, Any] = {
    "a transfer": an(amount={"type": "number", "exclusiveMinimum": 0}, to=STRING, note=STRING),
    "a shape": {
        "oneOf": [an(of={"const": "circle"}, radius=NUMBER), an(of={"const": "box"}, side=NUMBER)]
    },
    "a contact": an(mail={"type": "string", "format": "email"}, at=TIME),
    "a volume": an(["name"], name=STRING, limits={"additionalProperties": QUANTITY}, path=NULL),
    "a resource": an([], kind={"type": "string", "enum": ["Deployment"]}, metadata=META),
    "a headline": {**an(basic=STRING), "patternProperties": {".*": STRING}},
    "a name": {**DRAFT_4, "type": "string", "minLength": 1},
    "a price": {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 99999999999.98},
    "a level": {"enum": ["debug", "info", "warn"], "default": "info"},
    "a number or its name": {"type": ["integer", "string"]},
    "a dictionary": {"type": "object", "additionalProperties": STRING},
    "a dictionary of words": closed({**an(), "patternProperties": {"^[a-z]+$": BOOLEAN}}),
    "a list of files": some(STRING, minItems=1),
    "a version": {"type": "string", "pattern": "^[0-9]+\\.[0-9]+(\\.[0-9]+)?$"},
    "anything": {},
}
MIDDLE: dict[str, Any] = {
    "a package": {
        **DRAFT_4,
        **an(["name"], name=WORD, private=BOOLEAN, keywords=some(STRING, uniqueItems=True)),
    },
    "a linter": an(
        [], extends={"anyOf": [STRING, some(STRING)]}, rules={"additionalProperties": INTEGER}
    ),
    "a point": {**DRAFT_4, **an(type={"enum": ["Point"]}, coordinates=some(NUMBER, minItems=2))},
    "a job": {
        "definitions": {"step": closed(an(["run"], run=STRING, name=STRING))},
        **an(steps=some(ref("step"), minItems=1, maxItems=4), needs=some(WORD)),
    },
    "a tree of pages": {
        "definitions": {"page": an(title=STRING, pages=some(ref("page")))},
        **an(home=ref("page")),
    },
    "an address, written out": {**DRAFT_7, **an(["street"], street=STRING, zip=ZIP)},
    "a person who extends a thing": {
        "definitions": {"thing": an(id=INTEGER)},
        "allOf": [ref("thing"), an(name=STRING), {"properties": {"id": {"minimum": 1}}}],
    },
    "either a file or text": {
        **an([], file=STRING, text=STRING, mode={"enum": ["a", "w"]}),
        "oneOf": [{"required": ["file"]}, {"required": ["text"]}],
    },
    "a card or cash": {
        **an(["by"], by={"enum": ["card", "cash"]}, number=STRING),
        "if": {"properties": {"by": {"const": "card"}}},
        "then": {"required": ["number"]},
        "else": {"properties": {"number": False}},
    },
    "credit needs an address": {
        **an(["name"], name=STRING, credit=INTEGER, address=STRING),
        "dependencies": {"credit": ["address"]},
    },
    "a field that adds requirements": {
        **an([], a=BOOLEAN, b=INTEGER),
        "dependencies": {"a": {"properties": {"c": STRING}, "required": ["c"]}},
    },
    "never both": {
        **an([], allow=some(STRING), deny=some(STRING)),
        "not": {"required": ["allow", "deny"]},
    },
    "exactly one": {**an([], http=STRING, exec=STRING, tcp=STRING), "maxProperties": 1},
    "extensions beside fields": closed(
        {**an(["info"], info=STRING), "patternProperties": {"^x-": {}}}
    ),
    "a name that is not taken": an(name={"type": "string", "not": {"enum": ["root", "admin"]}}),
    "a path that is not hidden": an(
        path={"type": "string", "pattern": "^[a-z./]+$", "not": {"pattern": "^\\."}}
    ),
    "a row": {**DRAFT_7, **some([INTEGER, STRING, {"enum": [True, None]}], additionalItems=False)},
    "a range of a month": an(
        day={"type": "integer", "minimum": 1, "maximum": 31},
        share={"type": "number", "minimum": 0, "maximum": 1, "exclusiveMaximum": 1},
    ),
    "a list or one": {"anyOf": [{"$ref": "#/definitions/it"}, some({"$ref": "#/definitions/it"})]}
    | {"definitions": {"it": closed(an(id=INTEGER))}},
    "a pattern with look-around": an(
        ["id"], id=INTEGER, code={"type": "string", "pattern": "^(?!x)[a-z]+$"}
    ),
}
QUESTIONS = [
    closed(an(kind={"const": "text"}, label=STRING, most=INTEGER)),
    closed(an(kind={"const": "choice"}, label=STRING, options=some(STRING))),
    closed(an(["kind"], kind={"const": "break"}, label=STRING)),
]
TEAMS = some(an(["name"], name=STRING, players=some(an(name=STRING, n=INTEGER))))
BOARD = an([], rows=some(some(INTEGER, minItems=3, maxItems=3)))
HARD: dict[str, Any] = {
    "a survey": an(title=STRING, questions=some({"oneOf": QUESTIONS})),
    "an expression": {
        "definitions": {
            "value": {"anyOf": [NUMBER, ref("sum")]},
            "sum": an(left=ref("value"), right=ref("value")),
        },
        **ref("sum"),
    },
    "a game": {**DRAFT_7, **some(an(["id", "teams"], id=STRING, teams=TEAMS, board=BOARD))},
    "a form of several schemas": {
        **DRAFT_7,
        "definitions": {
            "base": an(["id"], id=STRING, at={"type": "string", "format": "date"}),
            "money": an(amount=NUMBER, currency={"enum": ["EUR", "USD"]}),
        },
        "allOf": [ref("base"), {"properties": {"price": ref("money")}, "required": ["price"]}],
        "anyOf": [an(tax={"const": "none"}), an(tax=ref("money"))],
    },
    "conditions one after the other": {
        **an(["type"], type={"enum": ["a", "b", "c"]}, n=INTEGER, s=STRING),
        "allOf": [
            {"if": an([], type={"const": "a"}), "then": {"required": ["n"]}},
            {"if": an([], type={"const": "b"}), "then": an([], s={"maxLength": 3})},
        ],
    },
    "unevaluatedProperties across scopes": {
        "allOf": [an(a=INTEGER)],
        "anyOf": [an(b=STRING), an(c=BOOLEAN)],
        "unevaluatedProperties": False,
    },
    "a matrix of jobs": an(
        os=some({"enum": ["linux", "mac"]}, uniqueItems=True, minItems=1),
        exclude=some({"additionalProperties": {"type": ["string", "number", "boolean"]}}),
    ),
    "a pipeline of steps of many kinds": {
        "definitions": {
            "cmd": {"anyOf": [STRING, some(STRING)]},
            "wait": closed(an(wait=nullable("string"))),
            "run": closed(an(["run"], run=ref("cmd"), env={"additionalProperties": STRING})),
            "block": closed(an(["block"], block=STRING, fields=some(closed(an(key=WORD))))),
        },
        **an(steps=some({"anyOf": [ref("wait"), ref("run"), ref("block"), {"const": "wait"}]})),
    },
}
SCHEMAS = SMALL | MIDDLE | HARD


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_all_returned_values_are_valid(tiny_model: Model, name: str) -> None:
    schema = SCHEMAS[name]
    reader = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    reader.check_schema(schema)
    masks = schema_masks(tiny_model.session.guidance(), schema)
    validate = partial(checked_value, json.dumps(schema))
    texts, dice = tiny_model.vocabulary().texts, random.Random(name)
    for _ in range(FILLS):
        text = random_answer(masks, texts, dice)
        if text is None:
            continue
        try:
            value = validate(text)
        except InvalidArgumentError:
            assert masks.relaxed
            continue
        if name != "a price":  # jsonschema computes multipleOf in binary fractions
            assert [error.message for error in reader(schema).iter_errors(value)] == [], text
