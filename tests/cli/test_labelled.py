"""Tests of ``decide``, ``evaluate`` and ``calibrate`` with the embedded model."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from command import Run
from write_decision_models import cached_decision_model

from eliza_ffi.decisions import Choice, Predicate
from eliza_ffi.evidence import Calibration
from eliza_ffi.learning.pictures import load_matplotlib
from eliza_ffi.model import Model
from eliza_ffi.session.scoring import Scoring

ASKED = [
    *("--predicate", "Someone is asked to be silent.", "--name", "silent"),
    *("--ask", "What is wanted?", "--option", "search", "--option", "email", "--name", "wanted"),
]


@pytest.fixture
def table(tmp_path: Path) -> str:
    rows = []
    for i in range(24):
        text, wanted = (("search the web for cats", "search"), ("write a mail to", "email"))[i % 2]
        rows.append([f"{text} {i}{', and be silent' * (i % 3 == 0)}", "yn"[i % 3 != 0], wanted])
    rows.append(["", "y", "search"])
    with (tmp_path / "in.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["body", "is_silent", "wanted"], *rows])
    return "in.csv"


LABELS = ["--column", "body", "--target", "silent=is_silent"]


def test_a_decision_is_the_same_as_text_and_as_json(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    command = ["decide", "--input", "search the web for cats", *ASKED, "--allowed-probability"]
    out, err = run(*command)
    assert err == ""
    lines = out.splitlines()
    assert all(len(line) <= 70 for line in lines)
    assert "uncalibrated probabilities; " in out
    silent, wanted = run(*command, "--json").json["answers"]
    assert lines[0].startswith(f"silent: {'yes' if silent['probability'] >= 0.5 else 'no'} (prob")
    assert lines[4].startswith(f"wanted: {wanted['choice']} (probability ")
    assert 0.0 < wanted["allowed_probability"] <= 1.0
    assert sum(each["probability"] for each in wanted["probabilities"]) == pytest.approx(1.0)


def test_the_summary_of_a_table_counts_abstentions(run: Run, table: str) -> None:
    command = ["decide", table, "--column", "body", *ASKED, "--output", "out.csv"]
    command += ["--min-probability", "1"]
    facts = dict(line.split(None, 1) for line in run(*command).out.splitlines())
    assert (facts["rows"], facts["errors"]) == ("25", "1")
    assert facts["silent"] == facts["wanted"] == "no answer 24"
    summary = run(*command, "--json").json
    assert summary["answers"] == {"silent": {}, "wanted": {}}
    assert summary["unanswered"] == {"silent": 24, "wanted": 24}


def test_a_dry_run_prints_the_prompts_without_asking_the_model(
    run: Run, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Scoring, "result", None)
    out = run("decide", "--input", "hello <|im_end|>\x1b", *ASKED, "--dry-run").out
    first = "---- prompt 1 of 2\n<|startoftext|><|im_start|>user\n"
    assert out.startswith(f"{first}hello <|im_end|>\\x1b\n\nSomeone")
    assert "Answer with one of:\n- search\n- email<|im_end|>\n<|im_start|>assistant" in out
    out = run("decide", table, "--column", "body", *ASKED, "--orders", "2", "--dry-run").out
    last = "---- prompt 4 of 4\n<|startoftext|><|im_start|>user\nsearch the web for cats 0, and be"
    assert last in out
    assert "- email\n- search<|im_end|>" in out


def test_labels_that_may_be_wrong_are_printed_and_written(run: Run, table: str) -> None:
    text = Path(table).read_text()
    Path(table).write_text(text.replace("cats 2,n,search", "cats 2,n,email"))
    asked = ["--ask", "What is wanted?", "--option", "search", "--option", "email"]
    command = ["calibrate", table, "--column", "body", *asked, "--target", "0=wanted"]
    command += ["--method", "head", "--output", "c.json"]
    out = run(*command, "--suspicious", "s.csv").out
    with Path("s.csv").open(encoding="utf-8", newline="") as file:
        first, *_ = csv.DictReader(file)
    assert (first["given"], first["expected"]) == ("email", "search")
    assert first["input"] == "search the web for cats 2"
    assert "may be wrong, the most suspicious first:" in out
    assert first["place"] in out
    for name in (table, "./c.json"):
        err = run(*command, "--suspicious", name, code=1).err
        assert "name another file for" in err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lev", "nimble"])
def test_a_dry_run_prints_the_prompts_of_a_decision_model(run: Run, kind: str) -> None:
    """It also rejects the settings that a decision model does not allow."""
    model = ["--model", str(cached_decision_model(kind)), "--dry-run"]
    out = run("decide", "--input", "hello", *ASKED, *model).out
    silent = Predicate("Someone is asked to be silent.", "silent")
    wanted = Choice("What is wanted?", ["search", "email"], "wanted")
    with Model(model[1], n_threads=1) as opened:
        expected = opened.decision_prompts("hello", [silent, wanted])
    heads = [f"---- prompt {n} of {len(expected)}\n" for n in range(1, len(expected) + 1)]
    parts = [f"{head}{prompt}\n" for head, prompt in zip(heads, expected, strict=True)]
    assert out == "".join(parts)
    for options in (["--scoring", "full"], ["--answer-style", "letters"], ["--orders", "2"]):
        out, err = run("decide", "--input", "hello", *ASKED, *model, *options, code=1)
        assert (out, "has its own prompts, labels, orders and scoring" in err) == ("", True)


def answers(path: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]


def test_a_list_of_strings_in_a_row_is_one_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"body": ["Where is it?", "It is late."]}))
    command = ["decide", str(tmp_path / "in.jsonl"), "--column", "body", *ASKED]
    run(*command, "--output", "out.jsonl")
    assert [row["error"] for row in answers("out.jsonl")] == [None]


@pytest.mark.parametrize("kind", [None, "laya"])
def test_a_row_has_the_same_answers_in_a_table_and_alone(
    run: Run, table: str, kind: str | None
) -> None:
    asked = [*ASKED, *(["--model", str(cached_decision_model(kind))] if kind else [])]
    run("decide", table, "--column", "body", *asked, "--output", "out.jsonl")
    rows = answers("out.jsonl")
    assert len(rows) == 25
    assert rows[-1]["error"] == "in.csv, line 26: column 'body' is empty"
    for row in rows[:3]:  # up to rounding, which depends on the shape of the forward pass
        silent, wanted = run("decide", "--input", row["body"], *asked, "--json").json["answers"]
        assert row["silent_probability"] == pytest.approx(silent["probability"], abs=0.05)
        assert row["wanted_confidence"] == pytest.approx(wanted["confidence"], abs=0.1)


def test_an_input_longer_than_the_context_is_an_error_in_its_row(run: Run) -> None:
    Path("in.csv").write_text(f"body\nshort\n{'long ' * 3000}\nshort again\n", encoding="utf-8")
    options = ["--column", "body", *ASKED, "--output", "out.jsonl", "--n-ctx", "512"]
    run("decide", "in.csv", *options)
    errors = [row["error"] for row in answers("out.jsonl")]
    assert [error is None for error in errors] == [True, False, True]
    assert errors[1].startswith("in.csv, line 3: ")


@pytest.mark.slow
def test_evaluate_and_decide_use_the_file_of_calibrate(run: Run, table: str) -> None:
    options = ["--method", "temperature", "--output", "c.json", "--json"]
    out, err = run("calibrate", table, *LABELS, *ASKED, *options)
    fitted = json.loads(out)
    assert set(fitted) == {"silent", "wanted"}
    assert fitted["silent"]["examples"] == 24
    assert err == ("eliza-ffi: rows left out: 1\n  in.csv, line 26: column 'body' is empty\n")
    reports = []
    for options in ([], ["--calibration", "c.json"]):
        shown = run("evaluate", table, *LABELS, *ASKED, *options, "--output", "r.json")
        reports.append(json.loads(Path("r.json").read_text(encoding="utf-8")))
        assert "accuracy" in shown.out
    plain, calibrated = reports
    assert (plain["calibrated"], calibrated["calibrated"]) == (False, True)
    assert plain["left_out"] == ["in.csv, line 26: column 'body' is empty"]
    # A temperature changes no answer, and it was fitted to the same rows.
    assert calibrated["overall"]["accuracy"] == plain["overall"]["accuracy"]
    assert calibrated["overall"]["nll"] <= plain["overall"]["nll"] + 1e-6
    decided = run("decide", "--input", "x", *ASKED, "--calibration", "c.json", "--json")
    assert decided.json["calibrated"] is True
    same = run("decide", "--input", "x", "--calibration", "c.json", "--json")
    assert same.json["answers"] == decided.json["answers"]


def test_a_calibration_for_other_questions_is_rejected_before_the_first_row(
    run: Run, table: str
) -> None:
    options = ["--method", "temperature", "--output", "c.json"]
    assert "temperature" in run("calibrate", table, *LABELS, *ASKED, *options).out
    other = ["decide", table, "--column", "body", *ASKED[:4], "--calibration", "c.json"]
    for way in (["--output", "out.jsonl"], ["--dry-run"]):
        assert "the calibration is for" in run(*other, *way, code=1).err
    assert not Path("out.jsonl").exists()


def test_plots_are_written_to_a_folder(run: Run, table: str) -> None:
    pytest.importorskip("matplotlib")
    assert load_matplotlib()
    run("evaluate", table, *LABELS, *ASKED, "--limit", "8", "--plots", "plots")
    for name in ("reliability.png", "coverage.png"):
        assert (Path("plots") / name).read_bytes().startswith(b"\x89PNG")


def test_an_option_can_have_a_risk_of_its_own(run: Run, table: str) -> None:
    asked = ["--ask", "What is wanted?", "--option", "search", "--option", "email"]
    command = ["calibrate", table, "--column", "body", *asked, "--target", "0=wanted"]
    command += ["--method", "none", "--output", "c.json", "--json", "--risk", "0.9"]
    command += ["--option-risk", "email=0.95", "--option-risk", "search=0.05"]
    threshold = run(*command).json["0"]["threshold"]
    search, _ = threshold["of_options"]
    assert search is None  # 12 rows are too few
    assert threshold["risk"] == 0.95
    assert list(Calibration.load("c.json").questions[0].threshold.of_options) == [
        None,
        threshold["threshold"],
    ]
    for given, message in (
        ("fax=0.1", "one of the options 'search', 'email', got 'fax=0.1'"),
        ("email=few", "--option-risk email: expected a number, got 'few'"),
        ("email=1.5", "option_risks must be"),
    ):
        err = run(*command, "--option-risk", given, code=1 + (given != "email=1.5")).err
        assert message in " ".join(err.split())


def test_costs_of_a_file_decide_about_answers(run: Run, table: str) -> None:
    costs = Path("costs.json")
    costs.write_text('{"email": {"search": 1000}}')
    asked = ["--ask", "What is wanted?", "--option", "search", "--option", "email"]
    command = ["calibrate", table, "--column", "body", *asked, "--target", "0=wanted"]
    command += ["--method", "none", "--output", "c.json", "--costs", "costs.json"]
    threshold = run(*command, "--risk", "900", "--json").json["0"]["threshold"]
    assert (threshold["largest_cost"], threshold["risk"]) == (1000, 900)
    run(*command, "--review-cost", "0.9")
    decided = run("decide", "--input", "write a mail", "--calibration", "c.json", "--json")
    (answer,) = decided.json["answers"]
    assert answer["choice"] == answer["cheapest"] == "email"
    assert answer["expected_cost"] == pytest.approx(answer["probabilities"][0]["probability"])
    out = run("decide", "--input", "write a mail", "--calibration", "c.json").out
    assert f"expected cost {answer['expected_cost']:.3g}" in " ".join(out.split())
    shown = run("evaluate", table, *command[2:12], "--calibration", "c.json").out
    assert "the answers that need no review cost" in " ".join(shown.split())
    run(*command, "--review-cost", "0")
    decided = run("decide", "--input", "write a mail", "--calibration", "c.json", "--json")
    assert decided.json["answers"][0]["abstained"] is True
    assert "abstained" in run("decide", "--input", "write a mail", "--calibration", "c.json").out
    for text, options, code, message in (
        ("{", [], 1, "costs.json: expected JSON"),
        ('{"fax": {}}', [], 1, "costs of '0': expected one of 'search', 'email', got 'fax'"),
        ("{}", ["--review-cost", "x"], 2, "--review-cost: expected a number or QUESTION=NUMBER"),
        ("{}", ["--output", "costs.json"], 1, "costs.json is the file with the costs"),
        ("{}", ["--then", "m.gguf"], 2, "--costs cannot be combined with --then"),
    ):
        costs.write_text(text)
        assert message in " ".join(run(*command, *options, code=code).err.split())


def test_one_model_can_certify_the_recall_of_an_option(run: Run, table: str) -> None:
    asked = ["--ask", "What is wanted?", "--option", "search", "--option", "email"]
    command = ["calibrate", table, "--column", "body", *asked, "--target", "0=wanted"]
    command += ["--method", "none", "--output", "c.json", "--json"]
    recall = ["--certify", "recall", "--of", "email", "--at", "0.2"]
    threshold = run(*command, *recall).json["0"]["threshold"]
    assert (threshold["target"], threshold["option"], threshold["risk"]) == ("recall", "email", 0.8)
    assert threshold["n"] == 12 > threshold["n_counted"] > 0
    decide = ["decide", "--input", "write a mail", "--calibration", "c.json", "--abstain", "risk"]
    assert "certified" in run(*decide, "--json").json["answers"][0]
    for options, code, message in (
        (["--of", "email"], 2, "--of requires --certify"),
        (["--certify", "agreement"], 1, "needs a Cascade"),
        ([*recall, "--risk", "0.1"], 1, "target cannot be combined with risk"),
        ([*recall[:2]], 1, "target recall: expected one of 'search', 'email', got None"),
    ):
        err = run(*command, *options, code=code).err
        assert message in " ".join(err.split())


def test_a_question_can_have_a_risk_of_its_own(run: Run, table: str) -> None:
    command = ["calibrate", table, *LABELS, *ASKED, "--method", "none", "--output", "c.json"]
    fitted = run(*command, "--json", "--risk", "0.9", "--risk", "wanted=0.8").json
    assert [fitted[name]["threshold"]["risk"] for name in ("silent", "wanted")] == [0.9, 0.8]
    for options, code, message in (
        (["few"], 2, "--risk: expected a number or QUESTION=NUMBER, got 'few'"),
        (["0.1", "--risk", "0.2"], 2, "--risk is given twice"),
        (["wanted=0.2", "--risk", "wanted=0.2"], 2, "--risk is given twice for 'wanted'"),
        (["wanted=0.2"], 1, "risk: expected one for each of 'silent', 'wanted', got none for"),
        (["0.1", "--risk", "tone=0.1"], 1, "expected questions among 'silent', 'wanted', got"),
    ):
        err = run(*command, "--risk", *options, code=code).err
        assert message in " ".join(err.split())


@pytest.mark.parametrize(
    ("command", "options", "code", "message"),
    [
        ("evaluate", ["--target", "silent"], 2, "--target must be QUESTION=COLUMN, got 'silent'"),
        ("evaluate", ["--reorder", "0"], 2, "--reorder: expected 1 or more"),
        ("evaluate", ["--target", "tone=body"], 1, "unknown question: 'tone'"),
        ("evaluate", [], 1, "no column 'silent' with right answers: give --target"),
        ("evaluate", ["--target", "silent=body"], 1, "line 2, column 'body': "),
        ("evaluate", ["--target", "0=a", "--target", "0=b"], 2, "'0' is given twice: 'a' and 'b'"),
        ("evaluate", ["--delimiter", '"'], 2, "--delimiter cannot be"),
        ("calibrate", [], 2, "required: --output"),
    ],
)
def test_wrong_label_options_are_explained(
    command: str, options: list[str], code: int, message: str, run: Run, table: str
) -> None:
    assert message in run(command, table, "--column", "body", *ASKED, *options, code=code).err


@pytest.mark.parametrize("command", ["evaluate", "calibrate", "decide"])
def test_an_output_that_is_an_input_is_rejected_and_not_changed(
    command: str, run: Run, table: str
) -> None:
    questions = Path("questions.jsonl")
    questions.write_text('[{"type": "predicate", "instructions": "x", "name": "silent"}]')
    inputs = {table: "in.csv is the input", str(questions): "is the file with the questions"}
    if command != "decide":
        inputs["examples.csv"] = "is the table of examples"
    Path("examples.csv").write_text("body,silent\nhush,yes\n")
    labels = [] if command == "decide" else LABELS[2:]
    for output, message in inputs.items():
        before = Path(output).read_bytes()
        given = ["--column", "body", *labels, "--questions", str(questions), "--output", output]
        given += ["--examples", "examples.csv"]
        assert message in run(command, table, *given, code=1).err
        assert Path(output).read_bytes() == before


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("in.csv", "in.csv is the input"),
        ("./out.csv", "out.csv is the --output, too: name another file for one"),
        ("nowhere/prior.json", "nowhere: No such folder to write to"),
    ],
)
def test_a_prior_overwrites_no_other_file(run: Run, table: str, path: str, message: str) -> None:
    before = Path(table).read_bytes()
    given = ["--column", "body", *ASKED, "--prior", "inputs", "--output", "out.csv"]
    assert message in run("decide", table, *given, "--save-prior", path, code=1).err
    assert Path(table).read_bytes() == before
    assert not Path("out.csv").exists()


def test_left_out_rows_are_listed_although_calibrate_fails(run: Run) -> None:
    Path("in.csv").write_text("body,silent\n,y\n,n\n", encoding="utf-8")
    command = ["calibrate", "in.csv", "--column", "body", *ASKED[:4], "--output", "c.json"]
    left_out, first, second, failed = run(*command, code=1).err.splitlines()
    assert left_out == "eliza-ffi: rows left out: 2"
    assert first == "  in.csv, line 2: column 'body' is empty"
    assert second == "  in.csv, line 3: column 'body' is empty"
    assert "needs at least 10 examples" in failed


@pytest.mark.slow
def test_rows_longer_than_the_context_are_left_out_and_listed(run: Run, table: str) -> None:
    path = Path(table)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    long = [f"{'long ' * n},y,search\n" for n in (3000, 4000)]
    path.write_text("".join([*lines[:3], long[0], *lines[3:], long[1]]), encoding="utf-8")
    small = [table, *LABELS, *ASKED, "--n-ctx", "512"]
    out, err = run("evaluate", *small, "--json")
    report = json.loads(out)
    assert [each["n"] for each in report["questions"]] == [24, 24]
    empty, first, second = report["left_out"]
    assert empty == "in.csv, line 27: column 'body' is empty"
    assert first.startswith("in.csv, line 4: an input of 15,000 characters: cannot read")
    assert second.startswith("in.csv, line 28: an input of 20,000 characters: cannot read")
    assert err.splitlines()[0] == "eliza-ffi: rows left out: 3"
    assert f"  {first}" in err.splitlines()
    out, err = run("calibrate", *small, "--output", "c.json", "--json")
    assert json.loads(out)["silent"]["examples"] == 24
    assert err.splitlines()[0] == "eliza-ffi: rows left out: 3"


def test_at_most_ten_left_out_rows_are_listed(run: Run) -> None:
    Path("in.csv").write_text("body,silent\n" + ",y\n" * 100, encoding="utf-8")
    lines = run("evaluate", "in.csv", "--column", "body", *ASKED[:4], code=1).err.splitlines()
    assert (len(lines), lines[-2]) == (13, "  and 90 more")


def test_calibrate_accepts_a_table_without_answers(run: Run, tmp_path: Path) -> None:
    table, file = tmp_path / "rows.csv", tmp_path / "team.json"
    table.write_text("body\n" + "".join(f"The cat number {i} is ill\n" for i in range(12)))
    options = ["--column", "body", *ASKED[:4], "--output", str(file), "--json"]
    facts, err = run("calibrate", str(table), *options)
    (question,) = json.loads(facts).values()
    assert question["rows"] == {**question["rows"], "n_rows": 12, "head": False}
    assert "learning without labels needs 60" in err
    assert not Calibration.load(file).questions[0].nll


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--compare", "c.json"], 2, "--compare needs random rows"),
        (["--compare", "other.json"], 2, "is for questions with other options"),
        (["--compare-model", "c.gguf"], 2, "--compare-model requires --compare"),
    ],
)
def test_a_comparison_that_is_not_possible_is_explained(
    run: Run, table: str, more: list[str], code: int, message: str
) -> None:
    command = ["calibrate", table, "--column", "body", "--method", "none"]
    asked = ["--ask", "What is wanted?", "--option", "search", "--option", "email"]
    asked += ["--name", "wanted"]
    run(*command, *asked, "--output", "c.json")
    silent = ["--predicate", "Someone is asked to be silent.", "--name", "silent"]
    run(*command, *silent, "--output", "other.json")
    assert message in run(*command, *asked, *more, "--output", "new.json", code=code).err
    assert not Path("new.json").exists()
