"""Schemas designed to take long: each is compiled or rejected quickly.

Schemas that exceed the limits of sizes are in ``test_limits.py``.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from compiled import schema_grammar

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.model import Model
from eliza_ffi.structured import compile_time
from eliza_ffi.structured.limits import MAX_CHAIN

STRING = {"type": "string"}
CLOSED = {"unevaluatedProperties": False}
DEFINITIONS: dict[str, Any] = {"$defs": {f"d{i}": {} for i in range(8000)}}


def fan(n: int, keyword: str) -> dict[str, Any]:
    """Return a schema with n references that expand to 2**n schemas."""

    def twice(target: str) -> dict[str, Any]:
        both = [{"$ref": target}, {"$ref": target}]
        if keyword == "properties":
            return {keyword: dict(zip("ab", both, strict=True))}
        return {keyword: both}

    defs: dict[str, Any] = {f"d{i}": twice(f"#/$defs/d{i + 1}") for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{n}": STRING}}


def fields(n: int, schema: Any) -> dict[str, Any]:
    return {"properties": {f"f{i}": schema(i) for i in range(n)}}


def several(least: int, items: Any) -> dict[str, Any]:
    return {"items": items, "minItems": least}


# Large schemas are functions, so that they are created only in their own tests.
COMPILED: dict[str, Any] = {
    "a fan of properties": fan(25, "properties"),
    "a fan of alternatives": fan(25, "anyOf"),
    "a fan of requirements": fan(25, "allOf"),
    "alternatives": {"oneOf": [{"minLength": i, "maxLength": i} for i in range(900)]},
    "a huge enum in an array": {"items": {"enum": [f"value {i}" for i in range(8000)]}},
    "long bounds": fields(
        300, lambda i: {"type": "number", "minimum": -(10**300) + i, "maximum": 10**300}
    ),
    "long strings": fields(300, lambda i: {"type": "string", "maxLength": 500 + i}),
    "long strings in an array": {
        "items": fields(30, lambda i: {"type": "string", "minLength": 500, "maxLength": 600 + i})
    },
    "many items": several(60, several(60, several(60, STRING))),
    "unique items with many values": {"items": {"enum": list(range(600))}, "uniqueItems": True},
    "alternatives that differ late": {
        "anyOf": [
            {"items": [{"enum": [0, 1]}] * i + [{"const": 1}] + [{"enum": [0, 1]}] * (40 - i)}
            for i in range(40)
        ]
    },
    "many dependent schemas": {
        **fields(300, lambda i: STRING),
        "dependentSchemas": {f"f{i}": {"required": [f"g{i}"]} for i in range(300)},
    },
    "many names and many patterns": {
        **fields(400, lambda i: STRING),
        "patternProperties": {f"a{{1,{i + 100}}}": {} for i in range(400)},
    },
    "patterns whose automata are large": {
        **fields(50, lambda i: STRING),
        "patternProperties": {f"(a|b)*a(a|b){{{i}}}c": {} for i in range(60)},
    },
    "many conditions": {
        **fields(20, lambda i: {"enum": [1, 2, 3]}),
        "allOf": [
            {"if": {"properties": {f"f{i}": {"const": 1}}}, "then": {"required": [f"f{i - 1}"]}}
            for i in range(1, 20)
        ],
    },
    "many anyOf in sequence": {"allOf": [{"anyOf": [{"minimum": i}]} for i in range(400)]},
    "strings that match one of many patterns": {
        **STRING,
        "oneOf": [{"pattern": f"^x{i}[a-z]*$"} for i in range(300)],
    },
    "strings that must not match large patterns": {
        **STRING,
        "allOf": [{"not": {"pattern": f"^(a|b)*a(a|b){{{i}}}$"}} for i in range(1, 20)],
    },
    "many fields with large arrays": fields(
        60, lambda i: several(8 + i % 5, several(8, several(8, {"items": STRING})))
    ),
    "many fields with an unsupported keyword": fields(
        3000, lambda i: {"type": "array", "contains": {}}
    ),
    "a pattern with many conditions": {"pattern": "^" + "a(?!b)" * 20_000},
    "a pattern with a long beginning": {"pattern": f"^{'a' * 300_000}(?!b)$"},
    "one of many fields": {**fields(1500, lambda i: STRING), "maxProperties": 1},
}

REJECTED: dict[str, tuple[Any, str]] = {
    "circular references": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        "refers to itself for the same value",
    ),
    "many references without a target": (
        {**DEFINITIONS, "anyOf": [{"$ref": f"{i}"} for i in range(1000)]},
        "is not present in a registry",
    ),
    **{
        f"{keyword} with too many digits for Python": ({keyword: 10**5000}, "not JSON")
        for keyword in ("minimum", "multipleOf", "minItems")
    },
    "a long pointer": ({"$ref": "#/" + "a/" * 100_000}, r"at #/\$ref: "),
    "an index of many digits": ({"$ref": "#/a/" + "9" * 5000, "a": [1]}, r"at #/\$ref: "),
    "many scopes of unevaluatedProperties": (
        {"allOf": [{"properties": {f"p{i}": {}}, **CLOSED} for i in range(300)]},
        "schema too large",
    ),
}


@pytest.fixture(autouse=True)
def unlimited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_time, "MAX_SECONDS", 60.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_a_schema_that_could_take_long_is_compiled(name: str) -> None:
    # The time itself is not tested: the limits are on sizes, so that the result is deterministic.
    assert schema_grammar(COMPILED[name]).grammar


@pytest.mark.slow
@pytest.mark.parametrize("name", REJECTED)
def test_a_hostile_schema_is_rejected(name: str) -> None:
    schema, reason = REJECTED[name]
    with pytest.raises(InvalidArgumentError, match=reason):
        schema_grammar(schema() if callable(schema) else schema)


def chain(n: int, link: Any) -> dict[str, Any]:
    """Return a schema with n definitions, each of which refers to the next one."""
    defs = {f"d{i}": link(f"#/$defs/d{i + 1}") for i in range(n)}
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{n}": STRING}}


def percent(target: str) -> dict[str, Any]:
    return {"items": {"$ref": target.replace("d", "%64")}}


CHAINS: dict[str, Any] = {
    "references": lambda: chain(8000, lambda target: {"$ref": target}),
    "properties": lambda: chain(8000, lambda target: {"properties": {"a": {"$ref": target}}}),
    "items": lambda: chain(8000, lambda target: {"items": {"$ref": target}}),
    "alternatives": lambda: chain(8000, lambda target: {"anyOf": [{"$ref": target}, {}]}),
    "encoded references": lambda: chain(8000, percent),
    "anchors": lambda: {
        "$ref": "#a0",
        "$defs": {f"a{i}": {"$anchor": f"a{i}", "$ref": f"#a{i + 1}"} for i in range(2000)},
    },
    "references in an order of their own": lambda: {
        "allOf": [{"$ref": f"#/$defs/d{i}"} for i in range(2000, 0, -1)],
        **chain(2000, lambda target: {"items": {"$ref": target}}),
    },
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_long_chain_of_references_is_rejected(name: str) -> None:
    """It would overflow llguidance's stack, which ends the process."""
    with pytest.raises(InvalidArgumentError, match="nested too deeply"):
        schema_grammar(CHAINS[name]())


def test_a_chain_of_references_within_the_limit_is_compiled() -> None:
    schema = chain(MAX_CHAIN // 2 - 1, lambda target: {"items": {"$ref": target}})
    assert schema_grammar(schema).grammar


def test_many_definitions_may_refer_to_each_other() -> None:
    each = {"properties": {c: {"$ref": f"#/$defs/{c}"} for c in "abcdefghijklmnopqrst"}}
    assert schema_grammar({**each, "$defs": dict.fromkeys("abcdefghijklmnopqrst", each)}).grammar


@pytest.mark.parametrize("name", ["rules", "terminals", "a schema"])
def test_a_long_chain_in_a_lark_grammar_is_rejected(tiny_model: Model, name: str) -> None:
    links = chain(2000, lambda target: {"items": {"$ref": target}})
    lines = {
        "rules": [f'r{i}: "{i}" r{i + 1}?' for i in range(5000)],
        "terminals": [f'R{i}: "{i}" R{i + 1}' for i in range(5000)],
        "a schema": [f"r0: %json {json.dumps(links)}"],
    }[name]
    rule = lines[0].split(":")[0]
    grammar = "\n".join([f"start: {rule}", *lines, f'{rule[0]}5000: "z"'])
    with pytest.raises(InvalidArgumentError, match="nested too deeply"):
        tiny_model.session.guidance().lark(grammar)
