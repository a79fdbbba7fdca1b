"""The JSON Schema that editors use accepts the question files that the reader accepts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from write_question_schema import SCHEMA, question_schema

from eliza_ffi.cli.questions import read_question_file
from eliza_ffi.errors import InvalidArgumentError

URGENT = {"type": "predicate", "instructions": "It is urgent."}
TEAM = {"type": "choice", "instructions": "Which team?", "choices": ["a", {"value": "b"}, True]}
NOUL = {"type": "noul", "criteria": {"true": "it is urgent", "false": None}}
MANY = {**TEAM, "choices": [f"option {i}" for i in range(300)], "show_options": True, "top": 2}
RIGHT = [
    URGENT,
    [URGENT, TEAM],
    {"urgent": URGENT, "team": TEAM, "many": MANY},
    {"$schema": "questions.schema.json", "urgent": NOUL},
    {"$schema": "questions.schema.json", "questions": [URGENT]},
    {"questions": {"urgent": URGENT}},
    {"questions": URGENT},
    {"topics": {"type": "labels", "instructions": "Is it about this?", "labels": {"a": "b"}}},
    {
        "team": {
            "type": "choice",
            "instructions": {"ask": 1},
            "criteria": {"a": None, "b": {"c": 1}},
        }
    },
    {"anger": {"type": "score", "instructions": ["How?"], "levels": ["calm", {"label": "b"}]}},
    {"anger": {"type": "score", "instructions": "How angry?", "criteria": ["calm", {"min": 5}]}},
]
WRONG = [
    [],
    {},
    "urgent",
    {"urgent": "It is urgent."},
    {"questions": [URGENT], "more": 1},
    {"urgent": {**URGENT, "criteria": {}}},
    {"team": {**TEAM, "criteria": {"a": None, "b": None}}},
    {"team": {**TEAM, "choices": ["a"]}},
    {"team": {**TEAM, "choices": ["a", 1]}},
    {"team": {**TEAM, "choices": {"a": None, " ": None}}},
    {"team": {**TEAM, "top": 0}},
    {"anger": {"type": "score", "instructions": "How angry?", "levels": {"a": None, "b": None}}},
    {"urgent": {"type": "noul", "criteria": {"true": " "}}},
]


def test_the_schema_is_up_to_date() -> None:
    """``python scripts/write_question_schema.py`` writes it."""
    assert SCHEMA.read_text(encoding="utf-8") == question_schema()


@pytest.mark.parametrize(
    ("written", "is_right"), [(each, True) for each in RIGHT] + [(each, False) for each in WRONG]
)
def test_the_schema_accepts_what_the_reader_accepts(
    written: Any, is_right: bool, tmp_path: Path
) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert jsonschema.Draft202012Validator(schema).is_valid(written) == is_right
    path = tmp_path / "questions.json"
    path.write_text(json.dumps(written), encoding="utf-8")
    if is_right:
        assert read_question_file(path)
    else:
        with pytest.raises(InvalidArgumentError, match=r"questions\.json: "):
            read_question_file(path)
