"""``eliza-ffi compare``, with tables of answers and with the embedded model."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from command import Run

from eliza_ffi.decisions import Choice
from eliza_ffi.evidence import Calibration
from eliza_ffi.learning.labelling import interval
from eliza_ffi.learning.metrics import mcnemar
from eliza_ffi.model import Model

TEXTS = ("search the web for cats", "write a mail to him", "find mails about cats")
QUESTION = {"type": "choice", "instructions": "What is wanted?"}
ASKED = ["--ask", "What is wanted?", "--option", "search", "--option", "email", "--name", "wanted"]
N = 12


def write(name: str, columns: list[str], rows: list[list[Any]]) -> str:
    with Path(name).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])
    return name


def answers(name: str, given: list[str], first: int = 1) -> str:
    rows = [[first + i, f"text {first + i}", each] for i, each in enumerate(given)]
    return write(name, ["row", "body", "wanted"], rows)


@pytest.fixture
def labels(run: Run) -> str:
    """Labels of the rows 1 to 12 in another order. Those of even rows are random."""
    rows: list[list[Any]] = [
        [i, f"text {i}", "search" if i <= 6 else "email", "chosen" if i % 2 else "random"]
        for i in range(N, 0, -1)
    ]
    return write("labels.csv", ["row", "body", "wanted", "kind"], rows)


def test_answers_in_tables_are_compared_on_the_random_rows(run: Run, labels: str) -> None:
    old = answers("old.csv", ["search"] * 4 + ["email"] * 8)
    new = answers("new.csv", ["search"] * N)
    found = run("compare", old, new, "--labels", labels, *ASKED, "--json").json
    assert found["costs"] == {"before": None, "after": None}
    wanted = found["questions"]["wanted"]
    # The rows 2, 4, 6, 8, 10 and 12: 6 is right only after, the last three only before.
    assert (wanted["n"], wanted["gained"], wanted["lost"]) == (6, 1, 3)
    assert (wanted["before"], wanted["after"]) == (pytest.approx(5 / 6), 0.5)
    assert wanted["before_interval"] == list(interval(5, 6, 0.95))
    assert (wanted["p"], wanted["verdict"]) == (mcnemar(1, 3), "unclear")
    assert wanted["changed"][0] == {
        **{"place": "labels.csv, line 2", "right": "email", "before": "email", "after": "search"},
        "input": "text 12",
    }
    assert len(wanted["changed"]) == 4
    out = run("compare", old, new, "--labels", labels, *ASKED, "--output", "rows.csv").out
    assert "6 random rows" in out and "No significant difference. 1 row gained, 3 lost" in out
    rows = list(csv.DictReader(Path("rows.csv").read_text(encoding="utf-8").splitlines()))
    assert [{**each, "question": "wanted"} for each in wanted["changed"]] == rows


def test_labels_may_have_another_delimiter_and_a_limit(run: Run) -> None:
    Path("labelled.csv").write_text("body;wanted\n" + "a text;search\n" * 4)
    old = answers("old.csv", ["search"] * 4)
    Path(old).write_text(Path(old).read_text().replace("body", "other"))
    command = ["compare", old, old, "--labels", "labelled.csv", "--column", "body", *ASKED]
    assert "pass --delimiter ';'" in run(*command, code=1).err
    command += ["--delimiter", ";", "--limit", "3", "--json"]
    assert run(*command).json["questions"]["wanted"]["n"] == 3
    assert "a table needs a --column" in run(*command[:5], *ASKED, code=2).err


def test_a_worse_table_is_called_worse_and_missing_answers_are_counted(run: Run) -> None:
    labelled = write(
        "labelled.csv", ["body", "wanted"], [[f"text {i}", "email"] for i in range(1, 41)]
    )
    old = answers("old.csv", ["email"] * 40)
    new = answers("new.csv", ["search"] * 30 + [""] * 3 + ["email"] * 7)
    command = ["compare", old, new, "--labels", labelled, "--column", "body", *ASKED]
    found = run(*command, "--json").json["questions"]["wanted"]
    assert (found["n"], found["before_unanswered"], found["after_unanswered"]) == (37, 0, 3)
    assert found["verdict"] == "worse" and found["difference_interval"][1] < 0
    out = run(*command).out
    assert "The new answers are worse. 0 rows gained, 30 lost" in out
    assert "Rows without an answer: 0 before, 3 now." in out and "and 20 more rows" in out
    back = run("compare", new, old, *command[3:], "--json").json["questions"]["wanted"]
    assert back["verdict"] == "better"


def test_scores_labels_and_predicates_are_read_from_tables(run: Run) -> None:
    questions = {
        "level": {"type": "score", "instructions": "?", "criteria": ["low", "high"]},
        "true": {"type": "predicate", "instructions": "It is true."},
        "topics": {"type": "labels", "instructions": "?", "labels": ["a", "b"]},
    }
    Path("questions.json").write_text(json.dumps(questions))
    columns = ["row", "level", "level_label", "true", "topics"]
    old = write("old.csv", columns, [[1, 0.2, "low", "true", '["a"]'], [2, 0.9, "high", "", ""]])
    new = write("new.csv", columns, [[1, 0.8, "high", "false", "[]"], [2, 0.9, "high", "", ""]])
    labelled = write(
        "right.csv",
        ["body", "level", "true", "topics"],
        [["one", "low", "no", "a;b"], ["two", "1", "yes", "a"]],
    )
    command = ["compare", old, new, "--labels", labelled, "--column", "body"]
    found = run(*command, "--questions", "questions.json", "--json").json["questions"]
    assert {name: (each["n"], each["before"], each["after"]) for name, each in found.items()} == {
        "level": (2, 1.0, 0.5),
        "true": (1, 0.0, 1.0),
        "topics: a": (1, 1.0, 0.0),
        "topics: b": (1, 0.0, 0.0),
    }


def test_two_wordings_and_a_table_are_asked_and_timed(run: Run, tiny_model: Model) -> None:
    texts = [f"{TEXTS[i % 3]} {i}" for i in range(9)]
    right = ["email" if i % 3 == 1 else "search" for i in range(9)]
    labelled = write("in.csv", ["body", "wanted"], list(map(list, zip(texts, right, strict=True))))
    wordings = {"old": "Is it a cat?", "new": "What is wanted?"}
    expected = {}
    for name, words in wordings.items():
        asked = {"wanted": {**QUESTION, "instructions": words, "choices": ["search", "email"]}}
        Path(f"{name}.json").write_text(json.dumps(asked))
        question = Choice(words, ["search", "email"], "wanted")
        expected[name] = [tiny_model.decide(text, question)[0].choice for text in texts]
    command = ["--labels", labelled, "--column", "body", "--json"]
    found = run("compare", "old.json", "new.json", *command).json
    wanted = found["questions"]["wanted"]
    for side, name in (("before", "old"), ("after", "new")):
        hits = [a == b for a, b in zip(expected[name], right, strict=True)]
        assert wanted[side] == pytest.approx(sum(hits) / 9)
        assert found["costs"][side]["seconds"] > 0 and found["costs"][side]["input_tokens"] > 9
    table = answers("table.csv", expected["old"])
    Path(table).write_text(Path(table).read_text().replace("body", "text"))
    mixed = run("compare", table, "new.json", *command).json
    assert mixed["questions"]["wanted"] == wanted
    assert mixed["costs"]["before"] is None and mixed["costs"]["after"] is not None
    shown = run("compare", table, "new.json", *command[:-1]).out
    assert "ms/row" in shown


@pytest.mark.parametrize("risk", [[], ["--risk", "0.4"]])
def test_two_calibrations_give_the_same_as_calibrate_compare(
    run: Run, tiny_model: Model, risk: list[str]
) -> None:
    rows: list[list[Any]] = [
        [i, f"{TEXTS[i % 3]} {i}", "email" if i % 3 == 1 and i != 31 else "search", kind]
        for i, kind in enumerate(["chosen"] * 30 + ["random"] * 30)
    ]
    labels = write("labels.csv", ["row", "body", "wanted", "kind"], rows)
    command = ["calibrate", labels, "--column", "body", *ASKED]
    cat = ["--ask", "Is it a cat?", *ASKED[2:]]
    run(*command[:4], *cat, "--method", "frequencies", "--output", "old.json")
    command += ["--method", "head", *risk, "--compare", "old.json", "--output", "new.json"]
    expected = run(*command, "--json").json["compared"]
    found = run("compare", "old.json", "new.json", "--labels", labels, "--json").json
    assert found["questions"] == expected
    wanted = expected["wanted"]
    assert wanted["lost"] + wanted["gained"] > 0
    for side, path in (("before", "old.json"), ("after", "new.json")):
        calibration = Calibration.load(path)
        hits = [
            tiny_model.decide(text, calibration.asked, calibration=calibration)[0].choice == right
            for _, text, right, _ in rows[30:]
        ]
        assert wanted[side] == pytest.approx(sum(hits) / 30)
    assert wanted["n"] == calibration.questions[0].n_examples == 30
    out = run(*command).out
    assert f"wanted, 30 random rows: accuracy {wanted['before']:.3f} (" in " ".join(out.split())
    assert wanted["changed"][0]["place"] in out


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["old.csv", "new.csv"], 2, "--labels is required"),
        (["old.csv", "short.csv", *ASKED], 1, "old.csv has row 12, but short.csv has not"),
        (["old.csv", "old.csv"], 2, "no questions: give --questions"),
        (["old.csv", "labelled.csv", *ASKED], 1, "labelled.csv has no column 'row'"),
        (["old.csv", "twice.csv", *ASKED], 1, "twice.csv, line 3: row 1 is there twice"),
        (["old.csv", "word.csv", *ASKED], 1, "column 'row': expected the number of a row, got 'x'"),
        (["old.csv", "option.csv", *ASKED], 1, "expected one of 'search', 'email', got 'call'"),
        (["other.csv", "other.csv", *ASKED], 1, "labels.csv, line 2: row 12 is not in other.csv"),
        (["moved.csv", "moved.csv", *ASKED], 1, "moved.csv is about another table"),
        (["old.csv", "old.csv", *ASKED, "--labels", "empty.jsonl"], 2, "a table needs a --column"),
        (["old.csv", "none.json"], 1, "no such file"),
        (["old.csv", "broken.json"], 1, "broken.json is not JSON"),
        (["old.csv", "q.json", *ASKED], 1, "q.json asks for other answers"),
        (["old.csv", "new.csv", *ASKED, "--model", "x.gguf"], 2, "--model requires"),
        (["old.csv", "new.csv", *ASKED, "--after-model", "x.gguf"], 2, "--after-model requires"),
        (["old.csv", "new.csv", *ASKED, "--output", "old.csv"], 1, "is the first thing to compare"),
    ],
)
def test_what_cannot_be_compared_is_named(
    run: Run, labels: str, command: list[str], code: int, message: str
) -> None:
    for name in ("old.csv", "new.csv"):
        answers(name, ["search"] * N)
    answers("short.csv", ["search"] * (N - 1))
    answers("other.csv", ["search"] * 3)
    answers("option.csv", ["search"] * (N - 1) + ["call"])
    write("labelled.csv", ["body", "wanted"], [["text", "search"]])
    write("twice.csv", ["row", "wanted"], [[1, "search"], [1, "email"]])
    write("word.csv", ["row", "wanted"], [["x", "search"]])
    write("moved.csv", ["row", "body", "wanted"], [[i, "text", "email"] for i in range(1, N + 1)])
    Path("broken.json").write_text("{")
    Path("empty.jsonl").write_text("")
    asked = {"wanted": {**QUESTION, "choices": ["search", "call"]}}
    Path("q.json").write_text(json.dumps(asked))
    more = [] if "--labels" in message or "--labels" in command else ["--labels", labels]
    assert message in " ".join(run("compare", *command, *more, code=code).err.split())


def test_labels_that_are_no_option_are_named(run: Run, labels: str) -> None:
    old = answers("old.csv", ["yes"] * N)
    asked = ["--ask", "?", "--option", "yes", "--option", "no", "--name", "wanted"]
    err = run("compare", old, old, "--labels", labels, *asked, code=1).err
    assert "labels.csv, line 2, column 'wanted': expected one of 'yes', 'no', got 'email'" in err
