"""Arrays of objects are written an item at a time: their keys are known text."""

from __future__ import annotations

import random
from typing import Any

import pytest
from json_schema_check import is_valid, made_up_text

from eliza_ffi.model import Model
from eliza_ffi.shapes import FieldFill
from eliza_ffi.skeleton import Skeleton
from eliza_ffi.skeleton.placed_span import Filled
from eliza_ffi.skeleton.rows import CHARACTERS_OF_A_TOKEN, Rows

STRING = {"type": "string", "maxLength": 5}
ITEM = {
    "type": "object",
    "properties": {
        "name": {"enum": ["tea", "milk"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 5000},
        "text": STRING,
    },
    "required": ["name", "count", "text"],
    "additionalProperties": False,
}


def of(items: Any, **more: Any) -> dict[str, Any]:
    rows = {"type": "array", "items": items, **more}
    return {
        "type": "object",
        "properties": {"rows": rows, "last": {"type": "boolean"}},
        "required": ["rows", "last"],
        "additionalProperties": False,
    }


NESTED = {
    "type": "object",
    "properties": {"inner": {"type": "array", "items": ITEM, "minItems": 1, "maxItems": 2}},
    "required": ["inner"],
}
SCHEMAS = {
    "from none to some": of(ITEM, maxItems=3),
    "from one to some": of(ITEM, minItems=1, maxItems=3),
    "from two to some": of(ITEM, minItems=2, maxItems=3),
    "one or none": of(ITEM, maxItems=1),
    "any number": of(ITEM),
    "two or more": of(ITEM, minItems=2),
    "rows in rows": of(NESTED, maxItems=2),
    "an array itself": {"type": "array", "items": ITEM, "maxItems": 2},
    "objects of objects": of({"properties": {"at": ITEM}, "required": ["at"]}, maxItems=2),
}


def written(skeleton: Skeleton, rng: random.Random, max_tokens: int | None = None) -> str:
    """Return an answer as filling could write it, each choice and each value at random."""
    text = ""
    script = skeleton.script(max_tokens)
    placed = next(script)
    while True:
        follow = rng.choice(placed.follow) if placed.follow else ""
        value = ""
        if not placed.is_literal:
            texts = placed.texts
            value = rng.choice(texts) if texts else made_up_text(placed.dfa(), rng)
        text += placed.before + value + placed.after + follow
        try:
            placed = script.send(Filled(value, follow))
        except StopIteration:
            return text


@pytest.mark.slow
@pytest.mark.parametrize("max_tokens", [None, 0, 30])
@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_written_item_by_item_is_what_the_whole_value_may_be(
    name: str, max_tokens: int | None
) -> None:
    schema = SCHEMAS[name]
    skeleton = Skeleton.from_json_schema(schema)
    rng = random.Random(name)
    seen = set()
    for _ in range(40):
        text = written(skeleton, rng, max_tokens)
        value = skeleton.parse(text)
        assert is_valid(value, schema), text
        assert skeleton.matches(text)
        seen.add(len(value["rows"] if isinstance(value, dict) else value))
    rows = schema["properties"]["rows"] if "properties" in schema else schema
    least, most = rows.get("minItems", 0), rows.get("maxItems", 3)
    assert seen >= set(range(least, most + 1))


@pytest.mark.parametrize("temperature", [0.0, 2.0])
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_model_fills_them(tiny_model: Model, name: str, temperature: float) -> None:
    schema = SCHEMAS[name]
    skeleton = Skeleton.from_json_schema(schema)
    result = tiny_model.fill("Answer: ", skeleton, max_tokens=40, temperature=temperature)
    assert is_valid(result.value, schema), result.text
    assert skeleton.matches(result.text)


def test_values_alone_are_spans_and_take_passes(tiny_model: Model) -> None:
    item = {"properties": {"kind": {"enum": ["a", "b"]}, "sure": {"type": "boolean"}}}
    skeleton = Skeleton.from_json_schema({"type": "array", "items": item, "maxItems": 3})
    result = tiny_model.fill("Answer: ", skeleton)
    names = [f"{i}.{key}" for i in range(len(result.value)) for key in ("kind", "sure")]
    assert [span.key for span in result.spans] == names
    assert {span.index for span in result.spans} == {0}
    assert [span.value for span in result.spans] == [
        each[key] for each in result.value for key in ("kind", "sure")
    ]
    # As elizaOS's form has it, the array is one value: every token of it takes a pass.
    whole = tiny_model.fill("Answer: ", skeleton.to_dict())
    assert len(whole.spans) == 1
    assert result.forward_passes <= 3 * (len(names) + 2)
    if whole.text == result.text and len(result.value) > 1:
        assert result.forward_passes < whole.forward_passes


def test_an_array_that_the_limit_ends_says_so_and_has_its_keys_for_nothing(
    tiny_model: Model,
) -> None:
    item = {"properties": {"kind": {"enum": ["a", "b"]}, "sure": {"type": "boolean"}}}
    skeleton = Skeleton.from_json_schema({"type": "array", "items": item, "minItems": 4})
    result = tiny_model.fill("Answer: ", skeleton, max_tokens=1)
    assert len(result.value) == 4
    assert [span.truncated for span in result.spans] == [False] * 7 + [True]
    assert result.truncated
    assert result.forward_passes <= 3 * 8
    bounded = Skeleton.from_json_schema(
        {"type": "array", "items": item, "minItems": 4, "maxItems": 4}
    )
    same = tiny_model.fill("Answer: ", bounded, max_tokens=1)
    assert (same.text, same.truncated) == (result.text, False)


def test_items_are_told_of_as_they_come(tiny_model: Model) -> None:
    told = list(tiny_model.fill_stream("Answer: ", SCHEMAS["from two to some"], max_tokens=20))
    paths = [each.path for each in told if isinstance(each, FieldFill)]
    assert paths.index(("rows", 0, "name")) < paths.index(("rows", 1)) < paths.index(("rows",))


def test_an_array_without_an_end_is_one_value_unless_a_limit_is_given() -> None:
    skeleton = Skeleton.from_json_schema(SCHEMAS["any number"])
    assert [placed.span.key for placed in skeleton.placed] == ["rows", "last"]
    assert isinstance(skeleton.placed[0].span.rows, Rows)
    script = skeleton.script()
    assert next(script) is skeleton.placed[0]


@pytest.mark.parametrize("max_tokens", [1, 50, 200])
def test_an_array_ends_behind_the_item_with_which_it_comes_to_its_limit(max_tokens: int) -> None:
    skeleton = Skeleton.from_json_schema(of(ITEM))
    text, n_cuts = "", 0
    script = skeleton.script(max_tokens)
    placed = next(script)
    while True:
        follow = next((each for each in placed.follow if "{" in each), "")
        value = {"enum": '"milk"', "integer": "7", "pattern": "abc", "boolean": "true"}.get(
            placed.span.kind, ""
        )
        text += placed.before + value + placed.after + follow
        n_cuts += placed.tells_of_limit
        try:
            placed = script.send(Filled(value, follow))
        except StopIteration:
            break
    assert n_cuts == 1
    rows = skeleton.parse(text)["rows"]
    item = '{"name":"milk","count":7,"text":"abc"},'
    wanted = CHARACTERS_OF_A_TOKEN * max_tokens
    assert wanted <= len(rows) * len(item) <= wanted + 3 * len(item)


def test_rows_are_no_part_of_the_form_or_of_what_is_equal() -> None:
    skeleton = Skeleton.from_json_schema(SCHEMAS["from none to some"])
    again = Skeleton.from_dict(skeleton.to_dict())
    assert again == skeleton
    assert hash(again.spans[0]) == hash(skeleton.spans[0])
    assert again.placed[0].span.rows is None
