"""Tests of labelled tables: the conversion of cells to right answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eliza_ffi.decisions.examples import read_examples
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Question, Score
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.tables import open_table
from eliza_ffi.tables.labels import LabelledRows, label_columns, right_answer

PREDICATE = Predicate("It is urgent.", "urgent")
CHOICE = Choice("Which?", ["sales", "billing", True], "topic")
BOTH = Choice("Which?", ["true", True], "both")
SCORE = Score("How?", ["calm", "3", "furious"], "anger")
STARS = Score("How good?", ["1", "2", "3", "4", "5"], "stars")
HALVES = Score("How good?", ["1.0", "1.5", "2.0"], "halves")
LABELS = MultiLabel("About?", ["a; b", "c", False], "tags")


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
        *((STARS, value, "1") for value in (1, "1.0")),
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
def test_a_cell_is_converted_to_an_answer(question: Question, value: Any, answer: Any) -> None:
    found = right_answer(question, value)
    assert found == answer
    assert type(found) is type(answer)


@pytest.mark.parametrize(
    ("question", "value", "message"),
    [
        (PREDICATE, "maybe", "expected true or false, got 'maybe'"),
        (CHOICE, "Sales", "expected one of 'sales', 'billing', True, got 'Sales'"),
        (SCORE, "5", "expected one of 'calm', '3', 'furious' or a level from 0 to 2, got '5'"),
        (SCORE, 1.5, "got 1.5"),
        *((STARS, value, "expected one of .*'5', got ") for value in (0, "0.0", 6)),
        (SCORE, -1, "got -1"),
        (LABELS, "d", "expected one of .*, got 'd'"),
        (LABELS, "[", "expected a JSON list"),
        (LABELS, 7, "expected a list of labels, got 7"),
    ],
)
def test_an_impossible_answer_is_rejected(question: Question, value: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        right_answer(question, value)


@pytest.mark.parametrize("value", [0, 1, 2, 4.0, "2", "2.0", "5", 5])
@pytest.mark.parametrize("question", [SCORE, STARS, HALVES])
def test_a_level_means_the_same_in_a_table_and_in_an_example(question: Score, value: Any) -> None:
    try:
        (target,) = read_examples([question], [("x", {question.name: value})]).targets[0]
    except InvalidArgumentError:
        with pytest.raises(InvalidArgumentError):
            right_answer(question, value)
        return
    answer = right_answer(question, value)
    assert answer == question.levels[target].label
    (again,) = read_examples([question], [("x", {question.name: answer})]).targets[0]
    assert again == target


def labelled(path: Path, questions: tuple[Question, ...], **named: str) -> LabelledRows:
    table = open_table(path)
    return LabelledRows(table, "body", questions, label_columns(table, questions, named))


def test_examples_are_inputs_with_their_right_answers(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("body,urgent,t\na,yes,sales\n,no,sales\nb,,billing\nc\n", encoding="utf-8")
    rows = labelled(path, (PREDICATE, CHOICE), topic="t")
    assert list(rows) == [("a", {"urgent": True, "topic": "sales"}), ("b", {"topic": "billing"})]
    assert rows.left_out == [
        "in.csv, line 3: column 'body' is empty",
        "in.csv, line 5: expected 3 fields as in the header, got 1",
    ]
    assert len(list(rows)) == 2
    assert len(rows.left_out) == 2
    rows.limit = 1
    assert len(list(rows)) == 1


def test_right_answers_in_jsonl_can_be_any_json(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    rows = [{"body": [{"role": "user", "content": "x"}], "tags": ["c"], "anger": 1}, {"body": 5}]
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = list(labelled(path, (LABELS, SCORE)))
    assert found == [(rows[0]["body"], {"tags": ["c"], "anger": "3"}), (5, {})]


def test_a_wrong_cell_is_reported_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("body,urgent\na,yes\nb,perhaps\n", encoding="utf-8")
    with pytest.raises(
        InvalidArgumentError, match=r"in\.csv, line 3, column 'urgent': .* got 'perhaps'"
    ):
        list(labelled(path, (PREDICATE,)))


def test_all_wrong_cells_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    cells = "".join(f"a,{'yes' if i % 2 else i},sales\n" for i in range(40))
    path.write_text(f"body,urgent,topic\n{cells}b,no,Sales\n", encoding="utf-8")
    with pytest.raises(InvalidArgumentError) as caught:
        list(labelled(path, (PREDICATE, CHOICE)))
    lines = str(caught.value).split("\n")
    assert lines[0] == "in.csv, line 4, column 'urgent': expected true or false, got '2'"
    assert lines[1] == "  in.csv, line 6, column 'urgent': expected true or false, got '4'"
    assert lines[-1] == "  and 10 more cells" and len(lines) == 11
    with pytest.raises(InvalidArgumentError, match="line 42, column 'topic': .* got 'Sales'"):
        list(labelled(path, (CHOICE,)))


def test_unknown_questions_and_missing_columns_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("body,urgent\n", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match="no column 'topic' with right answers"):
        labelled(path, (PREDICATE, CHOICE))
    with pytest.raises(InvalidArgumentError, match="unknown question: 'tone'"):
        labelled(path, (PREDICATE,), tone="urgent")
    with pytest.raises(InvalidArgumentError, match="no column 'x'"):
        labelled(path, (PREDICATE,), urgent="x")


def test_a_table_with_other_kinds_is_no_file_of_labels(tmp_path: Path) -> None:
    """Its rows with the same number would otherwise replace each other."""
    path = tmp_path / "in.csv"
    path.write_text("row,body,urgent,kind\n1,a,yes,mail\n1,b,no,mail\n", encoding="utf-8")
    expected = r"in\.csv, line 3, column 'kind': expected chosen or random, .* got 'mail'"
    with pytest.raises(InvalidArgumentError, match=expected):
        list(labelled(path, (PREDICATE,)))


def test_malformed_lines_of_a_file_of_labels_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    lines = "1,a,yes,random\n2,b\n3\n4,d,no,chosen\n"
    path.write_text(f"row,body,urgent,kind\n{lines}", encoding="utf-8")
    rows = labelled(path, (PREDICATE,))
    rows.only = "random"
    assert list(rows) == [("a", {"urgent": True})]
    assert [each.partition(": ")[0] for each in rows.left_out] == [
        "in.csv, line 3",
        "in.csv, line 4",
    ]
