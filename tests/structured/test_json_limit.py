"""No object of a JSON answer has a property twice, wherever the object stands in the schema."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np
import pytest
from compiled import schema_masks
from hypothesis import given, settings
from hypothesis import strategies as st

from eliza_ffi import Model
from eliza_ffi.errors import InvalidAnswerError
from eliza_ffi.structured.json_limit import JsonLimit, JsonTokens
from eliza_ffi.structured.schema_walk import may_repeat_names

BOOLEAN = {"type": "boolean"}
OPEN = {"type": "object", "additionalProperties": BOOLEAN}
SCHEMAS: dict[str, Any] = {
    "an open object": {**OPEN, "properties": {"a": BOOLEAN}, "required": ["a"]},
    "a map": OPEN,
    "anyOf": {"anyOf": [OPEN, {"type": "string", "maxLength": 3}]},
    "oneOf": {"oneOf": [OPEN, {"type": "null"}]},
    "allOf": {"allOf": [OPEN, {"minProperties": 2}]},
    "a map in a list": {"type": "array", "items": {"anyOf": [OPEN, BOOLEAN]}, "minItems": 1},
    "patterns": {
        **{"type": "object", "additionalProperties": False, "minProperties": 2},
        **{"patternProperties": {"^x-[a-z]{1,3}$": BOOLEAN}, "maxProperties": 3},
    },
    "a pattern with a name that cannot be continued": {
        **{"type": "object", "additionalProperties": False, "maxProperties": 4},
        "patternProperties": {"^(a|b[0-9]+)$": BOOLEAN},
    },
}
PROMPTS = ("x-a and x-b", '{"a":true,"a":true,"a":true,', '{"\\u0061":true,"a":true,')


def names_of(text: str) -> Iterator[list[str]]:
    """Yield the names of each object in a JSON text."""
    found: list[list[str]] = []

    def note(fields: list[tuple[str, Any]]) -> dict[str, Any]:
        found.append([name for name, _ in fields])
        return dict(fields)

    json.loads(text, object_pairs_hook=note)
    yield from found


@pytest.mark.parametrize("name", SCHEMAS)
def test_no_object_has_a_name_twice(tiny_model: Model, name: str) -> None:
    options: Any = {"max_tokens": 50, "on_limit": "close"}
    most = 0
    for seed, prompt in enumerate(PROMPTS):
        for temperature in (0.0, 1.0, 8.0):
            result = tiny_model.fill(
                prompt, SCHEMAS[name], temperature=temperature, seed=seed, **options
            )
            for names in names_of(result.text):
                assert len(names) == len(set(names)), result.text
                most = max(most, len(names))
    assert most > 1


def test_an_answer_ends_with_an_error_if_no_other_name_is_left(tiny_model: Model) -> None:
    schema = {"type": "object", "additionalProperties": False, "minProperties": 3}
    with pytest.raises(InvalidAnswerError, match="a name that the object already has"):
        tiny_model.fill("x", {**schema, "patternProperties": {"^a$|^b$": BOOLEAN}})


TEXTS = st.text(st.sampled_from('ab"\\/ \u00e9\U0001f600{}[]:,\n'), max_size=4)
VALUES = st.recursive(
    st.booleans() | TEXTS | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(TEXTS, inner), max_size=3),
    max_leaves=12,
)


def as_text(value: Any, dice: random.Random) -> str:
    """Return JSON in which lists of pairs are objects, and strings have random escapes."""
    if isinstance(value, list) and value and all(isinstance(each, tuple) for each in value):
        pairs = [f"{as_text(name, dice)}: {as_text(each, dice)}" for name, each in value]
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(as_text(each, dice) for each in value) + "]"
    return json.dumps(value, ensure_ascii=dice.random() < 0.5)


def first_repeat(text: str) -> int | None:
    """Return the length of the shortest beginning of a text in which an object repeats a name.

    A slow reader of one character after the other.
    """
    objects: list[list[str] | None] = []
    at = 0
    while at < len(text):
        char, at = text[at], at + 1
        if char in "{[":
            objects.append([] if char == "{" else None)
        elif char in "}]":
            objects.pop()
        elif char == '"':
            string, end = json.JSONDecoder().raw_decode(text, at - 1)
            names = objects[-1] if objects else None
            at = end
            if names is not None and text[end : end + 1] == ":":
                if string in names:
                    return at
                names.append(string)
    return None


@settings(deadline=None)
@given(VALUES, st.integers(0, 10**6))
def test_a_repeated_name_is_found_at_its_closing_quote(
    tiny_model: Model, value: Any, seed: int
) -> None:
    dice = random.Random(seed)
    text = as_text(value, dice)
    repeat = first_repeat(text)
    data = text.encode()
    limit = JsonLimit(JsonTokens(tiny_model.vocabulary()), True)
    at = 0
    end = len(data) if repeat is None else len(text[: repeat - 1].encode())
    while at < end:
        size = dice.randint(1, min(5, end - at))
        assert not limit.repeats(data[at : at + size])
        limit.push(data[at : at + size])
        at += size
    assert limit.repeats(data[at:]) == (repeat is not None)


@pytest.mark.parametrize(
    "written",
    [
        '{"ab":1,"',
        '{"ab":1,"a',
        '{"ab":1',
        '{"ab":1,"\\u0061',
        '{"x":{"ab":1},"ab":[1,"',
        '{"ab":{"ab":1},"',
        '{"\\"":1,"',
        '{"\\"":1,"\\',
        '{"\\u00e9":1,"',
    ],
)
def test_all_tokens_that_repeat_a_name_are_candidates(tiny_model: Model, written: str) -> None:
    """The reference tries every token of the vocabulary."""
    vocabulary = tiny_model.vocabulary()
    limit = JsonLimit(JsonTokens(vocabulary), True)
    limit.push(written.encode())
    candidates = set(limit.candidates())
    repeating = [
        token
        for token, text in enumerate(vocabulary.texts)
        if token not in vocabulary.controls and limit.repeats(text)
    ]
    assert candidates >= set(repeating)
    assert len(candidates) < 2000 or "\\" in written


def test_masks_of_a_long_map_allow_new_names(tiny_model: Model) -> None:
    masks = schema_masks(tiny_model.session.guidance(), OPEN)
    source = masks.start()
    text = "{" + ",".join(f'"name {i}":true' for i in range(50)) + ',"name '
    source.accept_all(masks.tokens_of(text))
    mask = source.mask()
    tokens = {text: token for token, text in enumerate(tiny_model.vocabulary().texts)}
    for wanted, is_allowed in ((b"5", True), (b"x", True), (b'"', True)):
        token = tokens[wanted]
        assert bool(mask[token // 32] >> np.uint32(token % 32) & 1) == is_allowed
    source.accept(tokens[b"5"])
    mask, token = source.mask(), tokens[b'"']
    assert not mask[token // 32] >> np.uint32(token % 32) & 1


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "object", "properties": {"a": {}}}, True),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "string"}},
                "additionalProperties": False,
            },
            False,
        ),
        ({"additionalProperties": False, "patternProperties": {"^x": {"type": "null"}}}, True),
        ({"type": ["object", "null"]}, True),
        ({"type": "array", "items": {"enum": [1, {"a": 2}]}}, False),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, False),
        ({"anyOf": [{"type": "string"}, {"type": "object"}]}, True),
        ({"$ref": "#/$defs/x", "$defs": {"x": {}}}, True),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "number"}}}, False),
        (True, True),
        (False, False),
    ],
)
def test_names_are_tracked_only_where_they_could_repeat(schema: object, expected: bool) -> None:
    assert may_repeat_names(schema) is expected


FEW_NAMES: dict[str, Any] = {
    "a pattern": {
        "patternProperties": {"^[ab]$": {"type": "boolean"}},
        "additionalProperties": False,
    },
    "patterns that overlap": {
        "properties": {"a": {"enum": [True, 1]}},
        "patternProperties": {"^[ab]$": {"type": "boolean"}, "^(?:b|cc)$": {"const": True}},
        "additionalProperties": False,
    },
    "digits": {"patternProperties": {r"^\d$": {"const": 1}}, "additionalProperties": False},
    "the pattern of all names": {
        "propertyNames": {"pattern": "^k[0-3]$"},
        "additionalProperties": {"type": "boolean"},
    },
}


@pytest.mark.parametrize("name", FEW_NAMES)
def test_an_object_with_all_names_of_a_pattern_ends(tiny_model: Model, name: str) -> None:
    schema = {"type": "object", **FEW_NAMES[name]}
    for seed in range(8):
        result = tiny_model.fill("JSON: ", schema, temperature=1.5, seed=seed, max_tokens=200)
        jsonschema.validate(result.value, schema)
    source = schema_masks(tiny_model.session.guidance(), schema).start()
    name_of_last = {"digits": "9", "the pattern of all names": "k3"}.get(name, "b")
    text = "{" + json.dumps(name_of_last) + (":1" if name == "digits" else ":true")
    tokens = schema_masks(tiny_model.session.guidance(), schema).tokens_of(text)
    source.accept_all(tokens)
    assert source.allowed("", ["}"])
    assert bool(source.allowed("", [","])) == (name == "patterns that overlap")
