"""The grammars of tool calls allow rendered calls, and forbid arguments that violate the schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from real_templates import real_formats, template_names

from eliza_ffi import Model
from eliza_ffi.chat.call_format import CallFormat, Hole, Member, Members, write_arguments
from eliza_ffi.chat.call_grammar import call_grammar
from eliza_ffi.chat.tool_messages import GENERIC
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.structured.schema_walk import SchemaDocument

INDENTS = "CohereForAI-c4ai-command-r-plus-tool_use"

INNER = {"$ref": "#/$defs/inner"}
SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "share": {"type": "number", "minimum": 0, "maximum": 1},
        "kind": {"type": "string", "enum": ["one", "two words"]},
        "is_so": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
        "inner": INNER,
    },
    "required": ["text"],
    "additionalProperties": False,
    "$defs": {
        "inner": {
            **{"type": "object", "additionalProperties": False},
            "properties": {"x": {"type": "integer"}, "more": {"type": "array", "items": INNER}},
        }
    },
}
VALID: list[dict[str, Any]] = [
    {"text": ""},
    {"text": "Rome & Oslo", "count": -12, "share": 0.5, "kind": "two words"},
    {"text": "a\nb", "is_so": True, "list": ["x"], "inner": {}},
    {"text": "42", "list": ["x", "y z"], "inner": {"x": 1, "more": [{"x": 2}, {"more": []}]}},
]
INVALID: list[dict[str, Any]] = [
    {},
    {"text": "a", "other": 1},
    {"text": "a", "count": 1.5},
    {"text": "a", "kind": "three"},
    {"text": "a", "list": []},
    {"text": "a", "list": ["x", "y", "z"]},
    {"text": "a", "inner": {"y": 1}},
]


PIECES = ("<p=", Hole.KEY, ">", Hole.VALUE, "</p>")
KINDS = dict.fromkeys(("number", "boolean", "null", "array", "object"), Member(PIECES, "json"))
TAGGED = CallFormat(
    call=("<c>", Hole.NAME, Hole.ARGUMENTS, "</c>"),
    arguments=Members({**KINDS, "string": Member(PIECES, "raw")}),
)


NAMES = sorted({*template_names()} - {INDENTS})


def plain(text: str) -> Sequence[str | int]:
    return [text]


def allows(model: Model, format: CallFormat, schema: dict[str, Any], arguments: Any) -> bool:
    """Return whether the grammar of a call allows arguments as the template writes them."""
    constraint = call_grammar(format, schema, "((", "))", plain)
    source = model.session.guidance().masks(constraint).start()
    for token in model.tokenize(f"(({write_arguments(format, arguments)}))"):
        if not source.mask()[token // 32] >> token % 32 & 1:
            return False
        source.accept(token)
    return source.may_end


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_grammar_allows_calls_as_the_template_writes_them(tiny_model: Model, name: str) -> None:
    for arguments in VALID:
        assert allows(tiny_model, real_formats()[name], SCHEMA, arguments), arguments


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_grammar_forbids_arguments_that_violate_the_schema(
    tiny_model: Model, name: str
) -> None:
    for arguments in INVALID:
        assert not allows(tiny_model, real_formats()[name], SCHEMA, arguments), arguments


def test_a_string_ends_at_its_closing_text(tiny_model: Model) -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
    assert allows(tiny_model, TAGGED, schema, {"x": "a </q> b"})
    assert not allows(tiny_model, TAGGED, schema, {"x": "a </p> b"})


def test_the_length_of_a_string_without_quotes_is_enforced(tiny_model: Model) -> None:
    limits = {"type": "string", "minLength": 2, "maxLength": 3}
    schema = {"type": "object", "properties": {"x": limits}, "required": ["x"]}
    found = [allows(tiny_model, TAGGED, schema, {"x": "a" * n}) for n in range(1, 5)]
    assert found == [False, True, True, False]


def test_an_argument_may_have_several_types(tiny_model: Model) -> None:
    kinds = {"type": ["boolean", "null", "array"], "items": {"type": "integer"}}
    schema = {"type": "object", "properties": {"x": kinds}, "required": ["x"]}
    for value in (True, None, [1, 2]):
        assert allows(tiny_model, TAGGED, schema, {"x": value})
    for value in (7, "text", ["a"]):
        assert not allows(tiny_model, TAGGED, schema, {"x": value})


def test_numbers_in_a_call_have_a_limited_number_of_digits(tiny_model: Model) -> None:
    inner = {"type": "object", "properties": {"n": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"x": inner}, "required": ["x"]}
    for format in (TAGGED, GENERIC):
        assert allows(tiny_model, format, schema, {"x": {"n": 10**18}})
        assert not allows(tiny_model, format, schema, {"x": {"n": 10**19}})


def test_a_call_takes_schemas_that_llguidance_alone_rejects(tiny_model: Model) -> None:
    number = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
    names = {"type": "object", "additionalProperties": {"pattern": "^(?!b)[ab]$", "type": "string"}}
    schema = {"type": "object", "properties": {"n": number, "x": names}, "required": ["n", "x"]}
    for format in (TAGGED, GENERIC):
        assert allows(tiny_model, format, schema, {"n": -7, "x": {"y": "a"}})
        assert not allows(tiny_model, format, schema, {"n": 1.5, "x": {"y": "a"}})
        assert not allows(tiny_model, format, schema, {"n": 1, "x": {"y": "c"}})


def test_each_schema_reference_is_followed_only_once() -> None:
    many = {f"x{i}": {"anyOf": [{"$ref": f"#/$defs/x{i + 1}"}] * 9} for i in range(9)}
    root = {"$defs": {**many, "x9": {"type": "boolean"}}}
    assert list(SchemaDocument(root).alternatives({"$ref": "#/$defs/x0"})) == [{"type": "boolean"}]


def test_an_unsupported_required_argument_is_named_in_the_error() -> None:
    members = Members({"string": Member(("<p=", Hole.KEY, ">", Hole.VALUE, "</p>"), "raw")})
    format = replace(TAGGED, arguments=members)
    schema = {"type": "object", "properties": {"x": {"type": "null"}}}
    call_grammar(format, schema, "", "", plain)
    with pytest.raises(InvalidArgumentError, match="cannot write the argument 'x'"):
        call_grammar(format, {**schema, "required": ["x"]}, "", "", plain)
