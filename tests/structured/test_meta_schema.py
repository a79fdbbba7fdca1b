"""Every keyword of a schema is checked before the schema is compiled."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any
from urllib.parse import urljoin

import jsonschema
import pytest
from jsonschema_specifications import REGISTRY

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.limits import checked_schema
from eliza_ffi.structured.shape import shape_of
from eliza_ffi.structured.validation import checked_value

DRAFTS = (
    jsonschema.Draft4Validator,
    jsonschema.Draft7Validator,
    jsonschema.Draft201909Validator,
    jsonschema.Draft202012Validator,
)
WRONG: tuple[Any, ...] = (None, True, 5, 1.5, -1, "text", [], [5], {}, {"a": 5}, {"a": "text"})


def keywords(draft: Any) -> list[str]:
    meta = draft.META_SCHEMA
    parts = [REGISTRY.contents(urljoin(meta["$id"], one["$ref"])) for one in meta.get("allOf", [])]
    return sorted({name for part in [meta, *parts] for name in part.get("properties", {})})


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_keyword_with_a_value_of_a_wrong_type_is_named(draft: Any) -> None:
    """jsonschema decides, as the oracle, which values are right."""
    names = keywords(draft)
    assert {"required", "items", "minimum", "pattern"} <= set(names)
    n_wrong = 0
    for name in set(names) - {"$schema"}:
        for value in WRONG:
            schema = {"$schema": draft.META_SCHEMA["$schema"], name: value}
            if (name, value) == ("enum", []):
                continue  # which only draft 4 forbids
            try:
                draft.check_schema(schema)
            except jsonschema.SchemaError:
                n_wrong += 1
                named = re.escape(name)
                place = f'#(/{named}|: "(min|max)imum" is a required property)'  # as in draft 4
                with pytest.raises(InvalidArgumentError, match=f"at {place}"):
                    shape_of(schema)
                inside = {"$schema": schema["$schema"], "properties": {"x": {name: value}}}
                with pytest.raises(InvalidArgumentError, match="JSON schema at #/properties/x"):
                    checked_schema(inside)
            else:
                checked_schema(schema)
    assert n_wrong > 100


@pytest.mark.parametrize("schema", [None, 5, "text", []])
def test_a_schema_is_an_object_or_a_bool(schema: Any) -> None:
    with pytest.raises(
        InvalidArgumentError, match='JSON schema at #: .* is not of types .*"object"'
    ):
        checked_schema(schema)


@pytest.mark.parametrize("named", [5, [], {}, True])
def test_a_draft_is_named_by_a_string(named: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"JSON schema at #/\$schema: expected a string"):
        checked_schema({"$schema": named})


@pytest.mark.parametrize("name", ["strin", ["string", "strin"]])
def test_an_unknown_type_is_named(name: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r'#/type(/1)?: "strin" is not one of \["array"'):
        checked_schema({"type": name})


def test_numbers_that_json_cannot_write_are_rejected() -> None:
    with pytest.raises(InvalidArgumentError, match="the schema is not JSON"):
        checked_schema({"maximum": float("nan")})


def test_a_long_value_is_shortened_in_the_message() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        checked_schema({"items": ["text"] * 10_000})
    assert "is not of type" in str(caught.value)
    assert len(str(caught.value)) < 300
    with pytest.raises(InvalidArgumentError, match='#/required: the value is not of type "array"'):
        checked_schema({"required": 5, "description": "x" * 70_000})


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        ({"items": [{"enum": [0]}, {"enum": [1]}], "minItems": 2, "maxItems": 2}, [0, 1], [1, 0]),
        ({"properties": {"a": {"items": [{"type": "null"}]}}}, {"a": [None]}, {"a": [1]}),
        ({"minimum": 3, "exclusiveMinimum": True, "type": "integer"}, 4, 3),
    ],
)
def test_forms_of_older_drafts_need_no_name(schema: Any, right: Any, wrong: Any) -> None:
    """Many programs write such schemas without ``$schema``."""
    validated = partial(checked_value, json.dumps(schema))
    assert validated(json.dumps(right)) == right
    with pytest.raises(InvalidArgumentError):
        validated(json.dumps(wrong))
    with pytest.raises(InvalidArgumentError, match="JSON schema at #/"):
        checked_schema({**schema, "required": 5})
    with pytest.raises(InvalidArgumentError, match="JSON schema at #/"):
        checked_schema({"$schema": jsonschema.Draft202012Validator.META_SCHEMA["$id"], **schema})
