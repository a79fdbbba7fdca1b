"""Oversized and invalid constraints: each is rejected with the reason."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from compiled import schema_masks

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.model import Model
from eliza_ffi.structured import Lark, Regex, compile_time
from eliza_ffi.structured.guidance import Guidance
from eliza_ffi.structured.limits import (
    DEEPEST,
    MAX_BYTES,
    MAX_FIELDS,
    MAX_SCHEMA_BYTES,
    MAX_VALUES,
    checked_schema,
    checked_text,
)
from eliza_ffi.structured.schema import grammar_of_text

STRING = {"type": "string"}


def nested(levels: int, around: Callable[[Any], Any]) -> Any:
    made: Any = STRING
    for _ in range(levels):
        made = around(made)
    return made


def fields(n: int) -> dict[str, Any]:
    return {f"f{i}": STRING for i in range(n)}


AT_MOST = f"expected at most {MAX_VALUES} values"
TOO_DEEP = f"the schema is nested deeper than {DEEPEST} levels"
MANY = fields(MAX_FIELDS + 1)

# Large schemas are functions, so that they are created only in their own tests.
HOSTILE_SCHEMAS: dict[str, tuple[Any, str]] = {
    "a million values": (
        lambda: {"properties": {"a/b": {"enum": list(range(10**6))}}},
        f"at #/properties/a~1b/enum/{MAX_VALUES}: {AT_MOST}",
    ),
    "too many values in several enums": (
        {"anyOf": [{"enum": list(range(20_000))}, {"enum": list(range(20_000, 40_000))}]},
        f"at #/anyOf/1/enum/.*: {AT_MOST}",
    ),
    "nested values": ({"enum": [{"a": [i]} for i in range(20_000)]}, f"at #/enum/.*: {AT_MOST}"),
    "a large constant": (lambda: {"const": list(range(10**6))}, f"at #/const/.*: {AT_MOST}"),
    "many fields": (
        {"items": {"properties": MANY}},
        f"at #/items: properties: expected at most {MAX_FIELDS} fields, got {len(MANY)}",
    ),
    "many patternProperties": ({"patternProperties": MANY}, "at #: patternProperties: expected at"),
    "a long text": ({"const": "x" * 2**20}, f"at most {MAX_SCHEMA_BYTES} bytes"),
    "deep items": (
        lambda: nested(100_000, lambda inner: {"items": inner}),
        f"at #/items/items/.*: {TOO_DEEP}",
    ),
    "deep lists": (
        lambda: {"enum": [nested(100_000, lambda inner: [inner])]},
        f"at #/enum/0/0/0.*: {TOO_DEEP}",
    ),
    "a schema that refers to itself": ({"$ref": "#"}, "refers to itself for the same value"),
    "a lone surrogate": ({"properties": {"a": {"const": "\ud800"}}}, "at #/properties/a/const: "),
    "a lone surrogate as a name": ({"properties": {"\udfff": {}}}, "expected strings as keys"),
    "a name that is not a string": ({"properties": {1: {}}}, "expected strings as keys, got 1"),
    "not JSON": ({"const": {1, 2}}, "not JSON"),
    "false": (False, "false allows no value"),
    "alternatives times alternatives": (
        {"allOf": [{"anyOf": [{"minimum": i}, {"minimum": -i}]} for i in range(40)]},
        "schema too large",
    ),
    "a keyword that llguidance does not support": (
        {"properties": {"not": {"items": {"pattern": r"(a)\1"}}}},
        "at #/properties/not/items/pattern: .*backref",
    ),
}


@pytest.mark.parametrize("name", HOSTILE_SCHEMAS)
def test_a_hostile_schema_is_rejected_with_the_reason(tiny_model: Model, name: str) -> None:
    schema, reason = HOSTILE_SCHEMAS[name]
    schema = schema() if callable(schema) else schema
    with pytest.raises(InvalidArgumentError, match=reason):
        schema_masks(tiny_model.session.guidance(), schema)


@pytest.mark.parametrize(
    ("language", "constraint", "reason"),
    [
        ("regex", "a" * (MAX_BYTES + 1), f"at most {MAX_BYTES} bytes"),
        ("regex", "é" * (MAX_BYTES // 2 + 1), f"at most {MAX_BYTES} bytes"),
        ("regex", "(", "rejected the regular expression"),
        ("regex", "(" * 2000 + "a" + ")" * 2000, "rejected the regular expression"),
        ("regex", "a\ud800", "the regular expression has a lone surrogate"),
        ("regex", b"a", "a regular expression must be a string, got bytes"),
        ("regex", "a{3,2}", "rejected the regular expression"),
        ("lark", 'start: "a"\n' * 10**5, f"at most {MAX_BYTES} bytes"),
        ("lark", "start: (", "rejected the Lark grammar"),
        ("lark", "start: " + "(" * 5000 + '"a"' + ")" * 5000, "too deeply nested"),
        ("lark", 'start: "\ud800"', "the Lark grammar has a lone surrogate"),
        ("lark", 'start: "a\0"', "rejected the Lark grammar"),
        ("lark", "start: start", "no text can match the Lark grammar"),
        ("lark", "", "rejected the Lark grammar"),
        ("lark", 'start: %json {"multipleOf": 2147483648}', "#/multipleOf: .* too large"),
    ],
)
def test_hostile_expressions_and_grammars_are_rejected_with_the_reason(
    tiny_model: Model, language: str, constraint: Any, reason: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        getattr(tiny_model.session.guidance(), language)(constraint)


@pytest.mark.slow
def test_nested_repetitions_are_compiled_or_rejected(tiny_model: Model) -> None:
    """llguidance either counts repetitions without expanding them, or raises an error."""
    guidance = tiny_model.session.guidance()
    for pattern in ("(a|b|cd){100000}", "((a{1000}){1000}){1000}", "(a|b)*a(a|b){2000}"):
        try:
            assert guidance.regex(pattern).start().mask().any()
        except InvalidArgumentError as error:
            assert "too many expressions" in str(error)


N_RULES = 3000
RULES = [f'r{i}: "x" r{(7 * i + 1) % N_RULES} | "x"' for i in range(N_RULES)]
MANY_RULES = "\n".join(["start: " + " | ".join(f"r{i}" for i in range(N_RULES)), *RULES])


@pytest.mark.parametrize(
    "shape", [Regex("]{1000}" * 1000), Lark(MANY_RULES)], ids=["expressions", "items"]
)
def test_a_shape_that_is_too_complex_is_an_error_of_its_author(
    tiny_model: Model, shape: Regex | Lark
) -> None:
    """llguidance can find this only when it computes masks during a generation."""
    with pytest.raises(InvalidArgumentError, match=r"too complex: .* (too many expr|max is 2000)"):
        tiny_model.fill("Hello.", shape, max_tokens=20)
    assert tiny_model.fill("Hello.", Regex("a|b")).text in ("a", "b")


def test_constraints_within_the_limits_are_accepted(tiny_model: Model) -> None:
    guidance = tiny_model.session.guidance()
    for schema in (
        {"enum": [f"value {i}" for i in range(MAX_VALUES)]},
        {"properties": fields(500), "required": list(fields(500))},
        {"const": "a\0b", "type": "string"},
        {"properties": {"enum": {"const": 1}, "const": {"enum": [2]}}},
        nested(DEEPEST // 2, lambda inner: {"items": inner}),
    ):
        assert schema_masks(guidance, schema).start().mask().any()
    assert guidance.regex("a\0b").start().mask().any()


def test_a_schema_at_all_limits_passes_the_check() -> None:
    schema = {
        "properties": fields(MAX_FIELDS),
        "enum": list(range(MAX_VALUES)),
        "items": nested(DEEPEST - 1, lambda inner: {"items": inner})["items"],
    }
    assert json.loads(checked_schema(schema)) == schema
    assert checked_text("text", "a" * MAX_BYTES) == "a" * MAX_BYTES


def two_of_two(n: int, keyword: str) -> dict[str, Any]:
    """Return a schema of n levels, each with two alternatives."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(n):
        objects = [{"type": "object", "properties": {c: schema}, "required": [c]} for c in "ab"]
        schema = {keyword: objects}
    return schema


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_a_schema_that_takes_too_long_is_rejected(
    keyword: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = checked_schema(two_of_two(8, keyword))
    monkeypatch.setattr(compile_time, "MAX_SECONDS", 0.005)
    with pytest.raises(InvalidArgumentError, match="takes more than 0.005 s to compile"):
        grammar_of_text(text)
    monkeypatch.undo()
    assert grammar_of_text(text).grammar


def test_a_constraint_does_not_wait_for_another_that_is_compiled(
    tiny_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    guidance = tiny_model.session.guidance()
    begun, go_on = threading.Event(), threading.Event()
    compiled = Guidance._compiled

    def slow(self: Guidance, key: Any) -> Any:
        if "slow" in key.grammar:
            begun.set()
            assert go_on.wait(60)
        return compiled(self, key)

    monkeypatch.setattr(Guidance, "_compiled", slow)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(guidance.regex, "slow")
        assert begun.wait(60)
        try:
            assert guidance.regex("quick").start().allowed("", ["quick"])
            assert not waiting.done()
        finally:
            go_on.set()
        assert waiting.result() is guidance.regex("slow")
