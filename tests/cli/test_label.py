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
    assert "3 labels, accuracy " in out
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
    assert "30 labels. To fit the model to them:" in out
    assert len({line[0] for line in labels()[1:]}) == 30
    table = ["labels.csv", "--column", "body", *ASKED]
    assert "wanted" in run("calibrate", *table, "--output", "calibration.json").out


def test_only_random_rows_of_a_file_of_labels_measure(run: Run) -> None:
    rows = [[str(i), f"{('search the web', 'write a mail')[i % 2]} {i}"] for i in range(60)]
    with Path("labels.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["row", "body", "wanted", "kind"])
        for i, row in enumerate(rows):
            kind = "random" if i < 25 else "random, none" if i < 27 else "chosen"
            table.writerow([*row, "" if "none" in kind else ("search", "email")[i % 2], kind])
    given = ["labels.csv", "--column", "body", *ASKED]
    report = json.loads(run("evaluate", *given, "--json").out)
    assert report["questions"][0]["n"] == 25
    out, err = run("calibrate", *given, "--risk", "0.4", "--json", "--output", "c.json")
    assert json.loads(out)["wanted"]["threshold"]["n"] == 25
    assert json.loads(out)["wanted"]["examples"] == 33
    assert "2 random rows without an answer cannot be certified" in " ".join(err.split())


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--predicate", "It is urgent."], 2, "label needs one question with one answer"),
        (["--risk", "0"], 2, "--risk must be above 0 and below 1"),
        (["--output", "nowhere/labels.csv"], 1, "nowhere"),
        (["--column", "subject"], 1, "no column 'subject'"),
    ],
)
def test_wrong_arguments(run: Run, more: list[str], code: int, message: str) -> None:
    assert message in run(*COMMAND, *more, code=code).err
    assert not Path("labels.csv").exists()


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
