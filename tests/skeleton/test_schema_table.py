"""Forty shapes of answers, and whether a skeleton says each."""

from __future__ import annotations

import random

import pytest
from json_schema_check import is_valid, made_up, read
from schema_table import SHAPES

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.model import Model
from eliza_ffi.skeleton.response import Skeleton

SAID = [name for name, (_, text, _) in SHAPES.items() if text is not None]


def test_there_are_forty_of_which_few_are_refused() -> None:
    assert len(SHAPES) == 40
    assert len(SAID) == 34


@pytest.mark.parametrize("name", SAID)
def test_all_that_is_written_is_valid(name: str) -> None:
    schema, text, _ = SHAPES[name]
    skeleton = Skeleton.from_json_schema(schema)
    assert text is not None
    assert is_valid(read(text), schema)
    assert skeleton.matches(text)
    rng = random.Random(name)
    for _ in range(20):
        written = made_up(skeleton, rng)
        assert is_valid(read(written), schema), written
        assert skeleton.matches(written)


@pytest.mark.parametrize("name", sorted(SHAPES.keys() - SAID))
def test_what_is_refused_is_named_with_its_place(name: str) -> None:
    schema, _, reason = SHAPES[name]
    with pytest.raises(InvalidArgumentError, match=reason):
        Skeleton.from_json_schema(schema)


def test_a_model_fills_all_of_them(tiny_model: Model) -> None:
    for name in SAID:
        schema = SHAPES[name][0]
        skeleton = Skeleton.from_json_schema(schema)
        for temperature in (0.0, 2.0):
            result = tiny_model.fill("Answer: ", skeleton, max_tokens=24, temperature=temperature)
            assert is_valid(result.value, schema), (name, result.text)
            assert skeleton.matches(result.text), name
