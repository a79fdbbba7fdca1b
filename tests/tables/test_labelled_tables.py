"""Labelled tables: which cells stand for which answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eliza_ffi.decisions.examples import read_examples
from eliza_ffi.decisions.questions import Choice, Labels, Predicate, Question, Score
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.tables import open_table
from eliza_ffi.tables.labels import LabelledRows, label_columns, right_answer

PREDICATE = Predicate("It is urgent.", "urgent")
CHOICE = Choice("Which?", ["sales", "billing", True], "topic")
BOTH = Choice("Which?", ["true", True], "both")
SCORE = Score("How?", ["calm", "3", "furious"], "anger")
STARS = Score("How good?", ["1", "2", "3", "4", "5"], "stars")
HALVES = Score("How good?", ["1.0", "1.5", "2.0"], "halves")
LABELS = Labels("About?", ["a; b", "c", False], "tags")


@pytest.mark.parametrize(
    ("question", "value", "answer"),
    [
        *((PREDICATE, value, True) for value in ("true", "Yes", " 1 ", 1, True, "T", "1.0", 1.0)),
        *((PREDICATE, value, False) for value in ("FALSE", "no", 0, False, 0.0)),
        *((question, "", None) for question in (PREDICATE, CHOICE, SCORE, LABELS)),
        (PREDICATE, None, None),
        (CHOICE, "billing", "billing"),
        (CHOICE, "true", True),
        *((CHOICE, value, True) for value in (True, "True", "TRUE")),
        (LABELS, "c; False", ["c", False]),
        (BOTH, "true", "true"),
        (BOTH, True, True),
        (SCORE, "furious", "furious"),
        *((SCORE, value, "3") for value in ("3", 3, 3.0, "3.0", "1", 1)),
        (SCORE, "0", "calm"),
        *((SCORE, value, "furious") for value in (2, 2.0, "2", "2.0")),
        *((STARS, value, "2") for value in (2, 2.0, "2", "2.0")),
        *((STARS, value, "1") for value in (0, 1, "0.0")),
        (HALVES, 2, "2.0"),
        (HALVES, 1.5, "1.5"),
        (LABELS, "c", ["c"]),
        (LABELS, "c; false", ["c", False]),
        (LABELS, "a; b", ["a; b"]),
        (LABELS, '["a; b", "c"]', ["a; b", "c"]),
        (LABELS, ["c"], ["c"]),
        (LABELS, "[]", []),
    ],
)
def test_a_cell_stands_for_an_answer(question: Question, value: Any, answer: Any) -> None:
    found = right_answer(question, value)
    assert found == answer
    assert type(found) is type(answer)


@pytest.mark.parametrize(
    ("question", "value", "said"),
    [
        (PREDICATE, "maybe", "'maybe' is neither true nor false"),
        (CHOICE, "Sales", "'Sales' is none of 'sales', 'billing', True"),
        (SCORE, "5", "expected one of 'calm', '3', 'furious' or a level from 0 to 2, got '5'"),
        (SCORE, 1.5, "got 1.5"),
        (SCORE, -1, "got -1"),
        (LABELS, "d", "'d' is none of"),
        (LABELS, "[", "no JSON"),
        (LABELS, 7, "7 is no list"),
    ],
)
def test_a_cell_that_stands_for_none_is_named(question: Question, value: Any, said: str) -> None:
    with pytest.raises(InvalidArgumentError, match=said):
        right_answer(question, value)


@pytest.mark.parametrize("value", [0, 1, 2, 4.0, "2", "2.0", "5", 5])
@pytest.mark.parametrize("question", [SCORE, STARS, HALVES])
def test_a_level_is_the_same_in_a_table_and_in_an_example(question: Score, value: Any) -> None:
    try:
        (target,) = read_examples([question], [("x", {question.name: value})]).targets[0]
    except InvalidArgumentError:
        with pytest.raises(InvalidArgumentError):
            right_answer(question, value)
        return
    told = right_answer(question, value)
    assert told == question.levels[target].label
    (again,) = read_examples([question], [("x", {question.name: told})]).targets[0]
    assert again == target


def labelled(path: Path, questions: tuple[Question, ...], **named: str) -> LabelledRows:
    table = open_table(path)
    return LabelledRows(table, "body", questions, label_columns(table, questions, named))


def test_examples_are_inputs_with_the_answers_that_are_told(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("body,urgent,t\na,yes,sales\n,no,sales\nb,,billing\nc\n", encoding="utf-8")
    rows = labelled(path, (PREDICATE, CHOICE), topic="t")
    assert list(rows) == [("a", {"urgent": True, "topic": "sales"}), ("b", {"topic": "billing"})]
    assert rows.left_out == [
        "in.csv, line 3: nothing in column 'body'",
        "in.csv, line 5: 1 fields, where the header has 3",
    ]
    assert len(list(rows)) == 2
    assert len(rows.left_out) == 2
    rows.limit = 1
    assert len(list(rows)) == 1


def test_labels_of_jsonl_may_be_any_json(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    rows = [{"body": [{"role": "user", "content": "x"}], "tags": ["c"], "anger": 1}, {"body": 5}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = list(labelled(path, (LABELS, SCORE)))
    assert found == [(rows[0]["body"], {"tags": ["c"], "anger": "3"}), (5, {})]


def test_a_wrong_label_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("body,urgent\na,yes\nb,perhaps\n", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match=r"in\.csv, line 3, column 'urgent': 'perhaps'"):
        list(labelled(path, (PREDICATE,)))


def test_a_question_without_a_column_and_a_column_without_a_question_are_named(
    tmp_path: Path,
) -> None:
    path = tmp_path / "in.csv"
    path.write_text("body,urgent\n", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match="no column 'topic' with right answers"):
        labelled(path, (PREDICATE, CHOICE))
    with pytest.raises(InvalidArgumentError, match="no question is called 'tone'"):
        labelled(path, (PREDICATE,), tone="urgent")
    with pytest.raises(InvalidArgumentError, match="no column 'x'"):
        labelled(path, (PREDICATE,), urgent="x")
