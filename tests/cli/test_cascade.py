"""``--then``: a second model for rows whose answer may still change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import Run

from eliza_ffi._resources import default_model_path

OTHER = str(default_model_path())
ASKED = ("--ask", "Which team?", "--option", "billing", "--option", "sales", "--name", "team")


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "mails.csv"
    texts = ["I was charged twice!", "Do you sell lamps?", "Hello.", "Refund my card."]
    lines = [f"{text},{'billing' if 'card' in text or 'ch' in text else 'sales'}" for text in texts]
    path.write_text("text,team\n" + "\n".join(lines) + "\n")
    return str(path)


def test_a_second_model_is_asked_about_open_rows(run: Run, table: str) -> None:
    asked = (*ASKED, "--then", OTHER, "--orders", "2", "--json")
    of_table = ("decide", table, "--column", "text", *asked, "--output")
    summary = run(*of_table, "out.jsonl", "--then-below", "0.9").json
    rows = [json.loads(line) for line in Path("out.jsonl").read_text().splitlines()]
    counts = {str(n): [row["stage"] for row in rows].count(n) for n in (1, 2)}
    assert {name: n for name, n in counts.items() if n} == summary["stages"]
    assert all(row["stage"] == 2 or row["team_probability"] >= 0.9 for row in rows)
    assert run(*of_table, "all.jsonl").json["stages"] == {"2": 4}
    found = run("decide", "--input", "Refund my card.", *asked).json
    assert found["stage"] == 2 and len(found["model"]) == 2
    last = json.loads(Path("all.jsonl").read_text().splitlines()[-1])
    probability = {
        each["value"]: each["probability"] for each in found["answers"][0]["probabilities"]
    }
    assert last["team_probability"] == pytest.approx(max(probability.values()), abs=0.03)
    shown = run(*of_table[:-2], "--output", "out.jsonl", "--then-below", "0.9").out
    assert "ended at  source " in shown


def test_the_thresholds_of_calibrate_are_used(run: Run, table: str) -> None:
    many = Path("many.csv")
    lines = Path(table).read_text().splitlines()
    many.write_text(
        "\n".join([lines[0], *(f"{i} {line}" for i in range(10) for line in lines[1:])])
    )
    asked = (*ASKED, "--column", "text", "--then", OTHER)
    certified = ("--certify", "agreement", "--at", "0.8", "--output", "team.json")
    out = run("calibrate", str(many), *asked, *certified).out
    assert "team: the agreement is at least 80.0% with 90% confidence" in " ".join(out.split())
    summary = run(
        *("decide", table, *asked, "--calibration", "team.json", "--output", "out.jsonl", "--json")
    ).json
    assert summary["calibrated"] is True and sum(summary["stages"].values()) == 4
    assert "agreement is at least 80.0%" in summary["certificate"]
    assert summary["cpu_seconds"]["1"] > 0
    fitted = ("--then", OTHER, "--calibration", "team.json")
    shown = run("evaluate", table, "--column", "text", *fitted).out
    assert "agreement is at least 80.0%" in " ".join(shown.split()) and "ms a row" in shown
    report = run("evaluate", table, "--column", "text", *fitted, "--json").json
    assert sum(report["rows"].values()) == 4 and report["questions"][0]["n"] == 4
    more = ("--adaptive", "--teach", "--json")
    taught = run("calibrate", str(many), *asked, *certified, *more).json
    assert (taught["n_taught"], "calibration" in taught["sources"][0]) == (20, True)
    certified = ("--certify", "accuracy", "--at", "0.999", "--output", "team.json")
    said = run("calibrate", table, *asked, *certified, code=1).err
    assert "team: no threshold keeps a target of 99.9% with 90% confidence" in said


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--then-below", "0.5"], "--then-below requires --then"),
        (["--then", OTHER, "--encoder", OTHER], "--then cannot be combined with --encoder"),
        (
            ["--then", OTHER, "--allowed-probability"],
            "--allowed-probability cannot be combined with --then",
        ),
        (["--then", OTHER, "--prior", "inputs"], "cannot be combined with --prior inputs"),
    ],
)
def test_wrong_options_are_explained(run: Run, table: str, options: list[str], reason: str) -> None:
    of_table = ("decide", table, "--column", "text", *ASKED, "--output", "out.csv")
    assert reason in run(*of_table, *options, code=2).err


def test_a_certificate_needs_a_second_model(run: Run, table: str) -> None:
    command = ("calibrate", table, "--column", "text", *ASKED, "--output", "x.json", "--at", "0.9")
    assert "--at requires --certify" in run(*command, code=2).err
    assert "--teach requires --then" in run(*command[:-2], "--teach", code=2).err
