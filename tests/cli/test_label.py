"""``eliza-ffi label``: keys from a pipe and from a terminal, and a kill between two keys."""

from __future__ import annotations

import csv
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import Run

from eliza_ffi.learning.labelling import LabelCounts, status
from eliza_ffi.learning.thresholds import certify, looks
from eliza_ffi.library.loading import Library

ASKED = ["--ask", "What is wanted?", "--option", "search", "--option", "email", "--name", "wanted"]
COMMAND = ["label", "in.csv", "--column", "body", "--output", "labels.csv", *ASKED]


@pytest.fixture(autouse=True)
def table(tmp_path: Path) -> None:
    with (tmp_path / "in.csv").open("w", encoding="utf-8", newline="") as file:
        texts = ("search the web for cats", "write a mail to")
        csv.writer(file).writerows([["body"], *([f"{texts[i % 2]} {i}"] for i in range(30))])


def press(monkeypatch: pytest.MonkeyPatch, *keys: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{key}\n" for key in keys)))


def labels() -> list[list[str]]:
    with Path("labels.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def test_keys_label_rows_and_a_later_session_goes_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    press(monkeypatch, "1", "2", "n", "s", "9", "q")
    out = run(*COMMAND).out
    assert "1 search   2 email" in out
    assert "3 labelled rows, accuracy " in out
    assert "'9' is no answer: 1 to 2, n none fits" in out
    assert out.splitlines()[-1].startswith("eliza-ffi calibrate labels.csv ")
    head, *lines = labels()
    assert head == ["row", "body", "wanted", "kind"]
    assert [line[2:] for line in lines] == [
        ["search", "chosen"],
        ["email", "random"],
        ["", "chosen, none"],
        ["", "random, skipped"],
    ]
    press(monkeypatch, "u", "1", "2")
    run(*COMMAND)
    assert labels()[:4] == [head, *lines[:3]]
    assert len(labels()) == 6
    assert labels()[4] == [*lines[3][:2], "search", "random"]


def test_every_row_can_be_labelled_and_the_file_is_one_for_calibrate(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [str(1 + i % 2) for i in range(30)]
    press(monkeypatch, *rows)
    out = run(*COMMAND).out
    assert "Every row that was drawn is labelled." in out
    assert "30 labelled rows. To calibrate with this file:" in out
    assert len({line[0] for line in labels()[1:]}) == 30
    table = ["labels.csv", "--column", "body", *ASKED]
    assert "wanted" in run("calibrate", *table, "--output", "calibration.json").out


def test_only_random_rows_of_a_file_of_labels_measure(run: Run) -> None:
    with Path("labels.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["row", "body", "wanted", "kind"])
        for i in range(58):
            text, answer = (("search the web", "search"), ("write a mail", "email"))[i // 2 % 2]
            is_none = i in (49, 51)
            kind = ("chosen", "random, none" if is_none else "random")[i % 2]
            table.writerow([i, f"{text} {i}", "" if is_none else answer, kind])
    given = ["labels.csv", "--column", "body", *ASKED]
    report = json.loads(run("evaluate", *given, "--json").out)
    assert report["questions"][0]["n"] == 27
    out, err = run("calibrate", *given, "--risk", "0.4", "--json", "--output", "c.json")
    look = max(each for each in looks(0.4, 0.9) if each <= 27)
    assert json.loads(out)["wanted"]["threshold"]["n"] == look == 20
    assert json.loads(out)["wanted"]["examples"] == 20  # the chosen rows before the look
    err = " ".join(err.split())
    assert "16 labelled rows after the certificate with 20 random rows are not used" in err
    assert "2 random rows without an answer cannot be certified" in err


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--risk", "0"], 2, "--risk must be above 0 and below 1"),
        (["--risk", "wanted=1"], 2, "--risk must be above 0 and below 1"),
        (["--risk", "needed=0.1"], 1, "--risk: expected questions among 'wanted', got 'needed'"),
        (["--output", "nowhere/labels.csv"], 1, "nowhere"),
        (["--column", "subject"], 1, "no column 'subject'"),
        (["--output", "labels.jsonl"], 2, "--output must end in .csv, got 'labels.jsonl'"),
    ],
)
def test_wrong_arguments(run: Run, more: list[str], code: int, message: str) -> None:
    assert message in run(*COMMAND, *more, code=code).err
    assert not Path("labels.csv").exists()


def test_a_row_asks_every_question_and_each_key_can_be_undone(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = [*COMMAND, "--predicate", "It is urgent.", "--name", "urgent"]
    press(monkeypatch, "1", "2", "n", "q")
    out = run(*two, "--risk", "0.1", "--risk", "urgent=0.2").out
    assert "wanted: 0 labelled rows" in out
    assert "urgent: 0 labelled rows" in out
    head, *lines = labels()
    assert head == ["row", "body", "wanted", "urgent", "kind"]
    assert [line[2:] for line in lines] == [
        ["search", "", "chosen"],
        ["search", "false", "chosen"],
        ["", "", "random, none"],  # the second question is still open
    ]
    press(monkeypatch, "s", "u", "u", "u", "q")
    run(*two)
    assert labels() == [head, lines[0]]
    press(monkeypatch, "1", "2", "1", "q")
    run(*two)
    assert [line[2:] for line in labels()[2:]] == [
        ["search", "true", "chosen"],
        ["email", "", "random"],
        ["email", "true", "random"],
    ]
    given = ["labels.csv", "--column", "body", *ASKED, "--predicate", "It is urgent."]
    assert (
        json.loads(run("evaluate", *given, "--name", "urgent", "--json").out)["overall"]["n"] == 2
    )


def test_suspicious_labels_are_shown_again_without_the_models_answer(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model would persuade people otherwise."""
    rows = {}
    for line in Path("in.csv").read_text(encoding="utf-8").splitlines()[1:]:
        rows[line] = "search" if line.startswith("search") else "email"
    wrong = list(rows)[12]
    with Path("labels.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["row", "body", "wanted", "kind"])
        for number, (text, answer) in enumerate(rows.items(), 1):
            given = "email" if text == wrong else answer
            table.writerow([number, text, given, ("chosen", "random")[number // 2 % 2]])
    press(monkeypatch, "9", "1")
    out = run(*COMMAND).out
    shown = out[out.index("1 answer may be wrong. Please look again:") :]
    assert wrong in shown
    assert "your answer: email" in shown
    assert "the model:" not in shown
    assert "'9' is no answer: 1 to 2, n none fits   k keep" in shown
    assert len(labels()) == 32
    assert labels()[-1] == ["13", wrong, "search", "chosen"]
    assert "30 labelled rows. To calibrate" in out
    given = ["labels.csv", "--column", "body", *ASKED]
    press(monkeypatch, "k")
    assert "may be wrong" not in run(*COMMAND).out
    assert json.loads(run("evaluate", *given, "--json").out)["overall"]["n"] == 15


@pytest.mark.parametrize(
    ("n_wrong", "n", "expected"),
    [
        (0, 5, "7 labelled rows, accuracy 1.00 (0.30 to 0.70, 5 random rows)"),
        (0, 50, "a certificate for 5 % errors needs about 118 random rows (next test at 118)"),
        (3, 50, "too many errors to automate with 5 % errors (next test at 118)"),
        (0, 118, "certified at 118: 100% can be automated with at most 5 % errors (next test at"),
    ],
)
def test_the_screen_says_what_the_labels_can_certify(n_wrong: int, n: int, expected: str) -> None:
    right = [i >= n_wrong for i in range(n)]
    certificate = certify([0.97] * n, right, risk=0.05, at_looks=True)
    following = next(look for look in looks(0.05, 0.9) if look > n)
    counts = LabelCounts(2, n, n - n_wrong, 0.3, 0.7, certificate, following)
    assert expected in status(counts)


def test_a_file_that_does_not_match_the_table_is_left_alone(run: Run) -> None:
    text = "row,body,wanted,kind\n1,something else,search,random\n"
    Path("labels.csv").write_text(text, encoding="utf-8")
    said = " ".join(run(*COMMAND, code=1).err.split())
    assert "label 1: row 1 of the table has another input now" in said
    assert Path("labels.csv").read_text(encoding="utf-8") == text


def test_the_labels_cannot_replace_the_table_or_a_folder(run: Run) -> None:
    before = Path("in.csv").read_bytes()
    assert "in.csv is the input" in run(*COMMAND, "--output", "in.csv", code=1).err
    Path("folder").mkdir()
    assert "Cannot write to a folder" in run(*COMMAND, "--output", "folder", code=1).err
    assert Path("in.csv").read_bytes() == before


@pytest.mark.skipif(sys.platform == "win32", reason="there is no pseudo-terminal")
def test_one_key_labels_a_row_in_a_terminal_and_a_kill_loses_none(
    run: Run, library: Library
) -> None:
    command = [sys.executable, "-m", "eliza_ffi", *COMMAND]
    command += ["--library", str(library.path), "--threads", "1"]
    control, terminal = os.openpty()
    process = subprocess.Popen(command, stdin=terminal, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        for n, key in enumerate(b"12"):
            wait_for(process.stdout, b"q quit")
            os.write(control, bytes([key]))  # without Enter
            deadline = time.monotonic() + 60
            while not Path("labels.csv").is_file() or len(labels()) < n + 2:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
    finally:
        process.kill()
        os.close(control)
        os.close(terminal)
    assert [line[2] for line in labels()[1:]] == ["search", "email"]


def wait_for(stream: io.BufferedReader, text: bytes) -> None:
    read = b""
    while text not in read:
        ready, _, _ = select.select([stream], [], [], 60)
        piece = os.read(stream.fileno(), 4096) if ready else b""
        assert piece, read.decode()
        read += piece
