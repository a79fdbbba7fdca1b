"""Whatever a schema says: what its skeleton writes is valid, by a check that shares nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from gbnf_reader import Gbnf
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from json_schema_check import is_valid, made_up, read
from schema_strategies import schemas

from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.skeleton.response import Skeleton


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(schemas(), st.integers(0, 10**6))
def test_what_is_written_for_any_schema_is_valid(schema: Any, seed: int) -> None:
    try:
        skeleton = Skeleton.from_json_schema(schema)
    except InvalidArgumentError as error:
        assert str(error)
        assume(False)
    rng = random.Random(seed)
    for _ in range(4):
        text = made_up(skeleton, rng)
        try:
            assert is_valid(read(text), schema), text
        except RecursionError:
            return  # of a schema that refers to itself for the same value
        assert skeleton.matches(text)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(schemas(), st.integers(0, 10**6))
def test_the_grammar_of_any_schema_has_what_is_written(schema: Any, seed: int) -> None:
    try:
        skeleton = Skeleton.from_json_schema(schema)
    except InvalidArgumentError:
        assume(False)
    text = made_up(skeleton, random.Random(seed))
    assume(len(text) < 60)
    assert Gbnf(skeleton.to_gbnf()).accepts(text)
