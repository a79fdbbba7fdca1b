"""Tests of ``eliza-ffi decide``: questions, output, tables, interrupts and progress."""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fake_decider
import pytest
import table_work
from checkout import ROOT
from command import Run, parsers
from fake_decider import FakeDecider, take_place
from job_rows import stored_rows
from rich.cells import cell_len

from eliza_ffi import __version__
from eliza_ffi.cli.bars import decision_text
from eliza_ffi.cli.console import model_options
from eliza_ffi.cli.main import build_parser
from eliza_ffi.cli.questions import read_asking, read_questions
from eliza_ffi.decisions.answers import Decision, DecisionUsage, answer_of, collect, expand
from eliza_ffi.decisions.questions import Choice, MultiLabel, Predicate, Question, Score
from eliza_ffi.decisions.wire import question_to
from eliza_ffi.evidence.calibration import Calibration
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

FAMILY = "\U0001f469\u200d\U0001f469\u200d\U0001f467"
CHOICE = Choice("Which team?", ["billing", "sales"], "team")
PREDICATE = Predicate("It is urgent.", "urgent")
SCORE = Score("How angry?", ["calm", "cross"], "anger")
AS_OPTIONS = [
    *("--ask", "Which team?", "--option", "billing", "--option", "sales", "--name", "team"),
    *("--predicate", "It is urgent.", "--name", "urgent"),
    *("--score", "How angry?", "--level", "calm", "--name", "anger", "--level", "cross"),
]

HELLO = ("--predicate", "x", "--input", "hello")
TABLE = ("in.csv", "--column", "body", "--output", "out.csv", "--predicate", "x")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDecider:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    model = FakeDecider(path)
    take_place(monkeypatch, model)
    return model


@pytest.fixture
def questions(tmp_path: Path) -> str:
    path = tmp_path / "questions.json"
    path.write_text(json.dumps([question_to(each) for each in (CHOICE, PREDICATE, SCORE)]))
    return str(path)


def questions_of(*options: str) -> tuple[Question, ...]:
    return read_questions(build_parser().parse_args(["decide", *options]))


def write_table(folder: Path, n_rows: int = 12) -> str:
    path = folder / "in.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = [[str(i), f"text {i}" if i % 5 else ""] for i in range(1, n_rows + 1)]
        csv.writer(file).writerows([["id", "body"], *rows])
    return str(path)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# ---- questions ---------------------------------------------------------------------------------


def test_options_and_a_file_give_the_same_questions(questions: str) -> None:
    assert questions_of(*AS_OPTIONS) == (CHOICE, PREDICATE, SCORE)
    assert questions_of("--questions", questions) == (CHOICE, PREDICATE, SCORE)


def test_a_file_can_have_questions_by_name_or_under_the_key_questions(tmp_path: Path) -> None:
    by_name = {
        each.name: {key: value for key, value in question_to(each).items() if key != "name"}
        for each in (CHOICE, PREDICATE, SCORE)
    }
    for content in (by_name, {"questions": by_name}, {"questions": list(by_name.values())}):
        path = tmp_path / "q.json"
        path.write_text(json.dumps(content))
        assert len(questions_of("--questions", str(path))) == 3
    path.write_text(json.dumps({"questions": question_to(PREDICATE)}))
    (found,) = questions_of("--questions", str(path))
    assert (found.name, found.instructions) == ("questions", "It is urgent.")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML needs Python 3.11")
def test_a_question_file_can_be_toml(tmp_path: Path) -> None:
    path = tmp_path / "q.toml"
    path.write_text(
        '[team]\ntype = "choice"\ninstructions = "Which team?"\nchoices = ["billing", "sales"]\n'
        '[urgent]\ntype = "predicate"\ninstructions = "It is urgent."\n'
    )
    assert questions_of("--questions", str(path)) == (CHOICE, PREDICATE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "no questions: give --questions"),
        (["--option", "a"], "--option 'a' must follow --ask"),
        (["--predicate", "x", "--option", "a"], "--option 'a' must follow --ask"),
        (["--ask", "x", "--level", "a"], "--level 'a' must follow --score"),
        (["--name", "a"], "--name 'a' must follow a question"),
        (["--predicate", "x", "--name", "a", "--name", "b"], "the question is already named 'a'"),
        (["--ask", "x"], "--ask 'x' needs 2 or more of --option, got 0"),
        (["--ask", "x", "--option", "a,b"], "of --option, got 1: repeat --option for each"),
        (["--score", "x", "--level", "a,b"], "of --level, got 1: repeat --level for each"),
        (["--predicate", "x", "--prompt", "y"], "no argument '--prompt': did you mean --input?"),
        (["--predicate", "x", "--questions", "q.json"], "cannot be combined with --questions"),
        (["--predicate", "x", "--input", "y", "--input-file", "z"], "not allowed with"),
        (["--predicate", "x", "--input", " "], "the input is empty"),
        (["--predicate", "x", "--input", "y", "--output", "z.csv"], "--output requires a TABLE"),
        (["--predicate", "x", "--input", "y", "--limit", "1"], "--limit requires a TABLE"),
        (["--predicate", "x", "--input", "y", "--overwrite"], "--overwrite requires a TABLE"),
        (["--predicate", "x", "--input", "y", "--retry-errors"], "--retry-errors requires a TABLE"),
        (["--predicate", "x", "in.csv", "--input", "y"], "--input cannot be combined with a table"),
        (["--predicate", "x", "in.csv"], "a table needs a --column"),
        (["--predicate", "\udce9", "--input", "y"], "one of its options is not UTF-8"),
        (["--predicate", "x", "Hello!"], "there is no table 'Hello!': give a text with --input"),
        (["--predicate", "x", "in.csv", "--column", "body"], "a table needs an --output"),
        (["--predicate", "x", "in.csv", "--column", "b", "--limit", "0"], "--limit: expected 1"),
        (["--predicate", "x", "in.csv", "--column", "b", "--delimiter", "::"], "one character"),
        (["--predicate", "x", "in.csv", "--column", "b", "--delimiter", '"'], "cannot be '\"'"),
        (["--predicate", "x", "in.jsonl", "--column", "b", "--delimiter", ";"], ".csv or .tsv"),
        ([*HELLO, "--min-probability", "2"], "expected a number from 0 to 1"),
        (["--predicate", "x", "--input", "y", "--orders", "0"], "--orders: expected 1 or more"),
        (["--predicate", "x", "--input", "y", "--n-slots", "0"], "--n-slots: expected 1 or more"),
        ([*TABLE, "--ray", "local"], "--ray requires --workers"),
        ([*TABLE, "--ray", "local", "--workers", "0"], "--ray requires --workers"),
        ([*TABLE, "--workers", "2"], "--workers requires --ray"),
        ([*TABLE, "--save-prior", "p.json"], "--save-prior requires --prior inputs"),
        ([*TABLE, "--learn", "--think", "5"], "--think cannot be combined with --learn"),
        (
            [*TABLE, "--learn", "--calibration", "c"],
            "--calibration cannot be combined with --learn",
        ),
        ([*HELLO, "--learn"], "--learn requires a TABLE"),
        (["--predicate", "x", "--input", "y", "--ray", "local"], "--ray requires a TABLE"),
        (["--predicate", "x", "--input", "y", "--workers", "2"], "--workers requires a TABLE"),
    ],
)
def test_a_wrong_command_line_exits_with_2(
    eliza: Run,
    options: list[str],
    message: str,
    model: FakeDecider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_table(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert message in eliza("decide", *options, code=2).err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "q.json: expected JSON, or TOML in a file whose name ends in .toml: "),
        ('[{"type": "choice", "instructions": "x", "choices": ["a"]}]', "2 to 100000 options"),
        ("[" * 100_000, "q.json: "),
    ],
)
def test_a_malformed_question_file_is_named(
    eliza: Run, content: str, message: str, model: FakeDecider, tmp_path: Path
) -> None:
    (tmp_path / "q.json").write_text(content)
    command = ["decide", "--input", "x", "--questions", str(tmp_path / "q.json")]
    out, err = eliza(*command, code=1)
    assert message in err
    assert (out, err.count("\n")) == ("", 1)


# ---- one input ---------------------------------------------------------------------------------


def piped(data: bytes) -> io.TextIOWrapper:
    """Return standard input as in the C locale, where bytes that are not UTF-8 are decoded too."""
    return io.TextIOWrapper(io.BytesIO(data), encoding="utf-8", errors="surrogateescape")


def test_the_input_can_come_from_an_option_a_file_or_standard_input(
    eliza: Run, model: FakeDecider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mail.txt").write_text("hello\n", encoding="utf-8")
    for source in (["--input", "hello"], ["--input-file", str(tmp_path / "mail.txt")], []):
        monkeypatch.setattr(sys, "stdin", piped(b"hello\r\n"))
        eliza("decide", *source, *AS_OPTIONS)
    assert [given for given, _ in model.asked] == ["hello"] * 3
    (tmp_path / "chat.json").write_text('[{"role": "user", "content": "hi"}]')
    command = ["decide", "--messages", str(tmp_path / "chat.json"), *AS_OPTIONS, "--json"]
    facts = eliza(*command).json
    assert model.asked[-1][0] == [{"role": "user", "content": "hi"}]
    assert [answer["name"] for answer in facts["answers"]] == ["team", "urgent", "anger"]
    assert facts["model"] == model.path
    assert facts["calibrated"] is False


def test_invalid_utf8_is_rejected_with_its_place(
    eliza: Run, model: FakeDecider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = "Grüße,\nder Caf".encode() + b"\xe9 ist zu\n"
    path = tmp_path / "mail.txt"
    path.write_bytes(data)
    for what, source, line in (
        ("standard input", [], 2),
        (str(path), ["--input-file", str(path)], 2),
        ("--input", ["--input", os.fsdecode(data.splitlines()[1])], 1),
    ):
        monkeypatch.setattr(sys, "stdin", piped(data))
        message = f"eliza-ffi: {what} is not UTF-8: byte 8 of line {line} is 0xe9\n"
        assert eliza("decide", *source, *AS_OPTIONS, code=1).err == message
    assert model.asked == []


def test_a_malformed_conversation_file_is_rejected(
    eliza: Run, model: FakeDecider, tmp_path: Path
) -> None:
    path = tmp_path / "chat.json"
    path.write_text('["hello"]')
    for command in (["decide", *AS_OPTIONS], ["choose", "--label", "a"]):
        said = eliza(*command, "--messages", str(path), code=1).err
        assert said.startswith(f"eliza-ffi: {path}: message 0 must be a mapping")
    assert model.asked == []


def test_prompt_and_scoring_options_are_passed_to_the_model(eliza: Run, model: FakeDecider) -> None:
    options = ["--answer-style", "letters", "--orders", "3", "--scoring", "full"]
    options += ["--allowed-probability", "--prompt-format", "plain", "--prior", "none"]
    given = ["--input", "x", "--min-probability", "0.4", "--think", "5"]
    eliza("decide", *AS_OPTIONS, *options, *given)
    not_given = dict.fromkeys(("prompt_order", "calibration", "examples", "abstain"))
    prompts = {"answer_style": "letters", "orders": 3, "prompt_format": "plain", "prior": "none"}
    scores = {"scoring": "full", "allowed_probability": True, "min_probability": 0.4, "think": 5}
    assert model.asked == [("x", {**not_given, **prompts, **scores})]


def test_a_calibration_is_read_and_rejects_another_rule(
    eliza: Run, model: FakeDecider, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    Calibration(
        model="any",
        scoring="full",
        answer_style="letters",
        orders=2,
        prompt="default",
        questions=(),
    ).save(path)
    command = ["decide", "--input", "x", *AS_OPTIONS, "--calibration", str(path)]
    arguments = build_parser().parse_args(command)
    calibration = read_asking(arguments, arguments.calibration)["calibration"]
    facts = (calibration.scoring, calibration.answer_style, calibration.orders)
    assert facts == ("full", "letters", 2)
    message = eliza(*command, "--scoring", "constrained", code=1).err
    assert "the calibration is for another scoring: expected 'full', got 'constrained'" in message
    assert model.asked == []


# ---- bars --------------------------------------------------------------------------------------


def decision_of(*answers: tuple[Question, list[list[float]]], **more: Any) -> Decision:
    made = [
        collect(
            question, [answer_of(e, p, **more) for e, p in zip(expand(question), each, strict=True)]
        )
        for question, each in answers
    ]
    return Decision(tuple(made), DecisionUsage(12, 3, 2, 0.0123))


def test_a_decision_is_shown_with_bars_sorted_by_probability() -> None:
    decision = decision_of((CHOICE, [[0.25, 0.75]]), (PREDICATE, [[0.1, 0.9]]))
    blocks = decision_text((CHOICE, PREDICATE), decision, 40).split("\n\n")
    team, urgent = ([line.split() for line in block.splitlines()] for block in blocks[:2])
    assert team[0] == ["team:", "sales", "(probability", "75%)"]
    assert [line[:2] for line in team[1:]] == [["sales", "75.0%"], ["billing", "25.0%"]]
    assert len(team[1][2]) > 2 * len(team[2][2])
    starts = [line.index("%") + 3 for line in blocks[0].splitlines()[1:]]
    assert starts == [
        line.index(bar)
        for line, bar in zip(blocks[0].splitlines()[1:], (team[1][2], team[2][2]), strict=True)
    ]
    assert urgent[0] == ["urgent:", "no", "(probability", "90%)"]
    assert [line[:2] for line in urgent[1:]] == [["yes", "10.0%"], ["no", "90.0%"]]
    assert " ".join(blocks[2].split()) == (
        "uncalibrated probabilities; 12 tokens, 3 of them cached, 2 passes, 12.3 ms"
    )


def test_levels_keep_their_order_and_all_labels_are_shown() -> None:
    labels = MultiLabel("About?", ["a", "b"], "tags")
    decision = decision_of((SCORE, [[0.25, 0.75]]), (labels, [[0.9, 0.1], [0.2, 0.8]]))
    lines = decision_text((SCORE, labels), decision, 60).splitlines()
    assert lines[0] == "anger: 0.75 of 0 to 1, cross (probability 75%)"
    assert [line.split()[0] for line in lines[1:3]] == ["calm", "cross"]
    assert lines[4] == "tags: a"
    assert [line.split()[:2] for line in lines[5:7]] == [["a", "90.0%"], ["b", "20.0%"]]


def test_options_beyond_the_limit_are_summed_up() -> None:
    many = Choice("Which?", [f"option {i}" for i in range(100)], "many")
    lines = decision_text((many,), decision_of((many, [[0.01] * 100])), 80).splitlines()
    assert lines[13] == "  and 88 more, together 88.0%"


def test_allowed_probability_and_abstention_are_shown() -> None:
    with_mass = decision_of((CHOICE, [[0.5, 0.5]]), allowed_probability=0.1)
    shown = decision_text((CHOICE,), with_mass, 80)
    assert shown.startswith("team: billing (probability 50%, allowed probability 10%)\n")
    abstained = decision_of((CHOICE, [[0.5, 0.5]]), min_probability=0.6)
    assert decision_text((CHOICE,), abstained, 80).startswith("team: abstained\n")


@pytest.mark.parametrize("width", [40, 60, 200])
def test_lines_fit_the_terminal_for_any_option_text(width: int) -> None:
    options = ["日本語" * 40, "a\x1b[31m\nb" * 30, "e\u0301" * 90, f"{FAMILY} x"]
    question = Choice(f"{FAMILY} Which? " * 30, options)
    decision = decision_of((question, [[0.7, 0.1, 0.1, 0.1]]))
    lines = decision_text((question,), decision, width).splitlines()
    assert all(cell_len(line) <= width for line in lines)
    assert not any("\x1b" in line for line in lines)
    at = {cell_len(line[: line.index(".0%")]) for line in lines if ".0%" in line}
    assert len(at) == 1
    joined = "".join(line.strip() for line in lines)
    assert "日本語" * 40 in joined  # the answer is not truncated


# ---- tables ------------------------------------------------------------------------------------


@pytest.fixture
def decide_table(eliza: Run, model: FakeDecider, tmp_path: Path, questions: str) -> Run:
    """Return a function that decides the column body of a table in `tmp_path`."""

    def run(table: str, output: str, *options: str, code: int = 0) -> Any:
        command = ["decide", str(tmp_path / table), "--column", "body", "--questions", questions]
        return eliza(*command, "--output", str(tmp_path / output), *options, code=code)

    return run


def test_a_table_is_decided_and_summarized(decide_table: Run, tmp_path: Path) -> None:
    write_table(tmp_path)
    out, err = decide_table("in.csv", "out.jsonl", "--min-probability", "0.7")
    output = tmp_path / "out.jsonl"
    rows = rows_of(output)
    assert [row["id"] for row in rows] == [str(i) for i in range(1, 13)]
    assert [row["row"] for row in rows if row["error"]] == [5, 10]
    facts = dict(line.split(None, 1) for line in out.splitlines() if "for review" not in line)
    assert (facts["rows"], facts["errors"], facts["output"]) == ("12", "2", str(output))
    assert "rows/s" in facts
    review = sum(row["review"] is True for row in rows)
    assert f"for review  {review}" in out
    teams = [row["team"] for row in rows if not row["error"]]
    assert f"sales {teams.count('sales')}" in facts["team"]
    expected = "rows with errors: 2, the first: in.csv, line 6: column 'body' is empty"
    assert err == f"eliza-ffi: {expected}\n"
    summary = decide_table("in.csv", "out.jsonl", "--min-probability", "0.7", "--json").json
    assert (summary["rows"], summary["new_rows"], summary["errors"]) == (12, 0, 2)
    assert summary["answers"]["team"]["sales"] == teams.count("sales")


@pytest.mark.parametrize(
    ("name", "text", "options", "message"),
    [
        (
            "in.csv",
            "id;body\n1;x\n",
            [],
            "if ';' separates the fields of the file, pass --delimiter",
        ),
        ("in.csv", "id\tbody\n1\tx\n", [], r"pass --delimiter '\t'"),
        ("in.csv", "id|body\n1|x\n", [], "pass --delimiter '|'"),
        ("in.csv", "id;a, b;body\n1;x;y\n", [], "pass --delimiter ';'"),
        ("in.tsv", "id,body\n1,x\n", [], "pass --delimiter ','"),
        ("in.csv", "id,body\n1,x\n", ["--delimiter", ";"], "pass --delimiter ','"),
        ("in.csv", "id,body\n1,x\n", ["--keep", "id, body"], "'id, body' names several columns"),
    ],
)
@pytest.mark.parametrize("command", ["decide", "evaluate", "calibrate"])
def test_a_wrong_delimiter_or_list_of_columns_is_explained(
    eliza: Run,
    model: FakeDecider,
    tmp_path: Path,
    command: str,
    name: str,
    text: str,
    options: list[str],
    message: str,
) -> None:
    if command != "decide" and "--keep" in options:
        pytest.skip("only decide has --keep")
    table = tmp_path / name
    table.write_text(text, encoding="utf-8")
    asked = ["--column", "body", "--predicate", "x", "--output", str(tmp_path / "out.csv")]
    assert message in eliza(command, str(table), *asked, *options, code=1).err


def test_examples_with_another_delimiter_are_explained(
    eliza: Run, model: FakeDecider, tmp_path: Path
) -> None:
    examples = tmp_path / "examples.csv"
    examples.write_text("input;urgent\nx;yes\n", encoding="utf-8")
    command = ["decide", "--input", "x", "--predicate", "It is urgent.", "--name", "urgent"]
    said = eliza(*command, "--examples", str(examples), code=1).err
    assert "';' seems to separate its fields; separate them by commas" in said


def test_think_adds_the_reasoning_to_answers_and_tables(
    eliza: Run, tmp_path: Path, library: object
) -> None:
    asked = ["--predicate", "It is urgent.", "--think", "8"]
    shown = eliza("decide", "--input", "hello", *asked).out
    reasoning = eliza("decide", "--input", "hello", *asked, "--json").json["reasoning"]
    assert reasoning
    assert shown.startswith(f"reasoning: {reasoning.split()[0]}")

    output = tmp_path / "out.jsonl"
    table = ["decide", write_table(tmp_path, 2), "--column", "body", "--output", str(output)]
    eliza(*table, *asked)
    assert all(row["reasoning"] for row in rows_of(output))
    assert "started with different settings: think" in eliza(*table, *asked[:-1], "9", code=1).err


def test_learn_prints_what_the_rows_changed(eliza: Run, tmp_path: Path, library: object) -> None:
    table = ["decide", write_table(tmp_path, 100), "--column", "body"]
    asked = ["--ask", "Which?", "--option", "billing", "--option", "sales", "--name", "team"]
    asked += ["--n-slots", "1", "--threads", "1", "--learn", "--output"]
    summary = eliza(*table, *asked, str(tmp_path / "out.jsonl"), "--json").json
    found = summary["learned"]["team"]
    assert summary["calibrated"] is False
    assert len(found["shown"]) == min(found["changed"], 10)
    assert found["changed"] == 0 or found["accepted"]
    assert "heads of two halves of 80 rows agree on" in found["reasons"][0]
    shown = eliza(*table, *asked, str(tmp_path / "out.jsonl")).out
    assert f"team: {found['changed']:,} answer" in shown and " of 80 changed, not cal" in shown
    for each in found["shown"]:
        assert f"  row {each['row']}: {each['before']} -> {each['after']}" in shown
    said = eliza(*table, *asked, str(tmp_path / "x.csv"), "--limit", "20", code=1).err
    assert "learn needs at least 60 different rows, got 16 in the first 20" in said


def test_keep_selects_the_copied_columns(decide_table: Run, tmp_path: Path) -> None:
    write_table(tmp_path)
    for keep, kept in ((["--keep", "id"], ["id"]), (["--keep", "-"], []), ([], ["id", "body"])):
        decide_table("in.csv", f"{len(kept)}.jsonl", *keep)
        row = rows_of(tmp_path / f"{len(kept)}.jsonl")[0]
        assert list(row)[: 2 + len(kept)] == ["row", *kept, "team"]


def test_a_job_with_another_model_or_other_settings_is_rejected(
    decide_table: Run, tmp_path: Path
) -> None:
    write_table(tmp_path)
    command = ("in.csv", "out.csv")
    output = tmp_path / "out.csv"
    decide_table(*command, "--limit", "3")
    before = output.read_bytes()
    said = decide_table(*command, "--answer-style", "letters", code=1).err
    assert "started with different settings: answer style" in said
    (tmp_path / "model.gguf").write_bytes(b"GGUF another")
    assert "started with different settings: model" in decide_table(*command, code=1).err
    assert output.read_bytes() == before
    decide_table(*command, "--overwrite")
    assert len(output.read_bytes().splitlines()) == 13


def test_a_table_without_answers_exits_with_1(decide_table: Run, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("body\ntoo long\ntoo long\n", encoding="utf-8")
    out, err = decide_table("in.csv", "out.jsonl", code=1)
    errors = [f"in.csv, line {line}: it does not fit" for line in (2, 3)]
    assert [row["error"] for row in rows_of(tmp_path / "out.jsonl")] == errors
    assert "errors" in out
    assert err == f"eliza-ffi: rows with errors: 2, the first: {errors[0]}\n"


def test_an_unclosed_quote_is_reported_although_the_command_succeeds(
    decide_table: Run, tmp_path: Path
) -> None:
    text = 'body\nfine\n"not closed\n' + "swallowed\n" * 1000
    (tmp_path / "in.csv").write_text(text, encoding="utf-8")
    said = decide_table("in.csv", "out.csv").err
    assert "rows with errors: 1, the first: in.csv, lines 3 to 1003: " in said


def test_retry_errors_decides_rows_with_errors_again(
    decide_table: Run, model: FakeDecider, tmp_path: Path
) -> None:
    (tmp_path / "in.csv").write_text("body\na\ntoo long\n\nb\ntoo long\n", encoding="utf-8")
    command = ("in.csv", "out.csv", "--json")
    assert decide_table(*command).json["errors"] == 2
    model.has_room = True
    assert decide_table(*command).json["errors"] == 2
    model.asked.clear()
    out, err = decide_table(*command, "--retry-errors")
    summary = json.loads(out)
    assert (summary["rows"], summary["new_rows"], summary["errors"], err) == (4, 2, 0, "")
    assert [given for given, _ in model.asked] == ["a test", "too long", "too long"]
    decide_table("in.csv", "whole.csv")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    said = decide_table(*command, "--retry-errors", "--overwrite", code=2).err
    assert "--retry-errors cannot be combined with --overwrite" in said


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ("none.csv", [], "none.csv"),
        ("in.csv", ["--column", "text"], "no column 'text'; its columns are 'id', 'body'"),
        ("in.csv", ["--keep", "date"], "no column 'date'"),
        ("in.csv", ["--output", "out.txt"], "unsupported table format: out.txt (supported: .csv"),
        ("in.csv", ["--output", "in.csv"], "is the input"),
        ("in.csv", ["--delimiter", ";"], "no column 'body'; its columns are 'id,body'"),
    ],
)
def test_a_failed_job_exits_with_1_and_leaves_no_output(
    decide_table: Run,
    table: str,
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_table(tmp_path)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.iterdir())
    out, err = decide_table(table, "out.csv", *options, code=1)
    assert message in err
    assert (out, err.count("\n")) == ("", 1)
    assert sorted(tmp_path.iterdir()) == before


def started(tmp_path: Path, questions: str, output: Path) -> subprocess.Popen[str]:
    """Start the command in its own process, with a model that takes 4 ms per decision."""
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    options = ["--column", "body", "--questions", questions, "--output", str(output)]
    paths = os.pathsep.join([str(ROOT), str(Path(table_work.__file__).parent)])
    return subprocess.Popen(
        [
            *(sys.executable, fake_decider.__file__, str(tmp_path / "model.gguf")),
            *("decide", str(tmp_path / "in.csv"), *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def wait_for_rows(process: subprocess.Popen[str], output: Path, n_rows: int) -> None:
    while len(stored_rows(output)) <= n_rows:
        assert process.poll() is None
        time.sleep(0.005)


@pytest.mark.slow
def test_an_interrupt_exits_with_130_and_says_how_to_resume(
    model: FakeDecider, tmp_path: Path, questions: str
) -> None:
    write_table(tmp_path, 300)
    output = tmp_path / "out.jsonl"
    process = started(tmp_path, questions, output)
    wait_for_rows(process, output, 0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert out == ""
    assert err.startswith(
        f"eliza-ffi: interrupted; the rows decided so far are kept in {output}.job"
    )
    assert err.endswith("run the same command without --overwrite\n")
    assert 0 < len(stored_rows(output)) < 300
    assert not output.exists()
    process = started(tmp_path, questions, output)
    out, err = process.communicate()
    assert process.returncode == 0
    assert " of them decided earlier" in out
    assert [row["row"] for row in rows_of(output)] == list(range(1, 301))


@contextmanager
def busy_machine() -> Iterator[None]:
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"])
        for _ in range(2 * (os.cpu_count() or 1))
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.slow
def test_runs_with_batching_off_write_the_same_bytes(
    eliza: Run, library: Library, tmp_path: Path, questions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runs differ in timing, in the contents of the cache, and in how many rows a run decides.

    Without the option, the outputs differ in about a third of these rows.
    """
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    sentence = "I was charged twice please pay it back where do I find the invoice of March"
    words = sentence.split()
    draw = random.Random(1)
    rows = [
        [" ".join([*words[: draw.randrange(12)], *draw.choices(words, k=draw.randrange(1, 60))])]
        for _ in range(30)
    ]
    with (tmp_path / "in.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["body"], *rows])
    command = ["decide", str(tmp_path / "in.csv"), "--column", "body", "--questions", questions]
    command += ["--batching", "off", "--output"]

    def run(name: str, *options: str) -> bytes:
        eliza(*command, str(tmp_path / name), *options)
        return (tmp_path / name).read_bytes()

    whole = run("whole.jsonl")
    assert b'"team_probabilities": {"billing": 0.' in whole
    with busy_machine():
        assert run("busy.jsonl") == whole
    for n_rows in ("9", "10", "21"):
        run("resumed.jsonl", "--limit", n_rows)
    assert run("resumed.jsonl") == whole


# ---- all commands ------------------------------------------------------------------------------


def flags() -> dict[str, dict[str, argparse.Action]]:
    found: dict[str, dict[str, argparse.Action]] = {}
    for command, parser in parsers().items():
        for action in parser._actions:
            for flag in action.option_strings:
                found.setdefault(flag, {})[command] = action
    return found


OWN_MEANINGS = {"--learn"}
"""A table learns from its rows, a server from the labels in files."""

SHARED = {flag: of for flag, of in flags().items() if len(of) > 1 and flag not in OWN_MEANINGS}

OWN_VALUES = {"--mode"}
"""Flags with a list of values that differs between commands."""


@pytest.mark.parametrize("flag", SHARED)
def test_a_flag_has_the_same_meaning_in_every_command(flag: str) -> None:
    actions = list(SHARED[flag].values())
    for of in ("type", "nargs", "metavar", "dest"):
        assert len({str(getattr(action, of)) for action in actions}) == 1, of
    if flag not in OWN_VALUES:
        assert len({str(action.choices) for action in actions}) == 1
    # The help text before the colon is the meaning of the flag; a command may add details after it.
    meanings = {str(action.help).partition(":")[0].partition("(")[0].strip() for action in actions}
    assert len(meanings) == 1


def test_every_command_that_opens_a_model_has_the_model_options() -> None:
    shared = ("--library", "--n-ctx", "--threads", "--device", "--batching", "--seed")
    for flag in (*shared, "--flash-attn"):
        assert set(flags()[flag]) == set(flags()["--model"])
    assert {"decide", "evaluate", "calibrate", "serve", "choose"} <= set(flags()["--model"])


def test_flash_attn_sets_the_option_of_the_model() -> None:
    arguments = build_parser().parse_args(["serve", "--flash-attn", "on"])
    assert model_options(arguments)["options"] == {"flash_attn": "on"}


def test_version_names_the_package_the_library_and_llama_cpp(eliza: Run, library: Any) -> None:
    package, found, llama_cpp = eliza("--version").out.splitlines()
    assert package == f"eliza-ffi {__version__}"
    assert found.startswith(f"libelizainference {__version__}, ABI 12, ")
    assert str(library.path) in found
    assert llama_cpp.startswith("llama.cpp b")


def test_version_without_a_library_prints_the_package_version(
    eliza: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, str(tmp_path / "none.so"))
    out = eliza("--version").out
    assert out.startswith(f"eliza-ffi {__version__}\nno libelizainference: ")
