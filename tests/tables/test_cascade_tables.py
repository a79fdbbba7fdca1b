"""Tables that a cascade decides: one source after the other, also after an interruption."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from job_rows import stored_rows

from eliza_ffi import Model
from eliza_ffi.decisions import Choice
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence import Cascade
from eliza_ffi.tables import TableResult, decide_table

TEAM = Choice("Which team?", ["billing", "shipping"], "team")
N_ROWS = 150
CALLS: list[tuple[str, int]] = []


def first(inputs: list[Any], questions: Any) -> list[str | None]:
    """Answer every third row."""
    CALLS.append(("first", len(inputs)))
    return ["billing" if int(each) % 3 == 0 else None for each in inputs]


def second(inputs: list[Any], questions: Any) -> list[str | None]:
    """Answer all other rows except those that are divisible by 5."""
    CALLS.append(("second", len(inputs)))
    if "DIE" in os.environ and len([each for each, _ in CALLS if each == "second"]) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return [None if int(each) % 5 == 0 else "shipping" for each in inputs]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("body\n" + "".join(f"{i}\n" for i in range(N_ROWS)))
    return path


def decide(table: Path, output: Path, *sources: Any, **more: Any) -> TableResult:
    cascade = Cascade(sources or (first, second))
    return decide_table(cascade, table, "body", TEAM, output, **more)


def rows_of(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_a_source_reads_its_rows_before_the_next_begins(table: Path, tmp_path: Path) -> None:
    CALLS.clear()
    result = decide(table, output := tmp_path / "out.jsonl")
    assert [name for name, _ in CALLS] == ["first"] * 3 + ["second"] * 2
    assert sum(n for name, n in CALLS if name == "second") == 100  # of 150 rows
    for i, row in enumerate(rows_of(output)):
        expected = "billing" if i % 3 == 0 else "shipping" if i % 5 else None
        assert (row["team"], row["stage"]) == (expected, 1 if i % 3 == 0 else 2)
        assert row["review"] is (expected is None)
    assert result.counts.stages == {1: 50, 2: 100} and result.counts.review == 20


def test_a_job_that_was_killed_between_sources_resumes_where_it_was(
    table: Path, tmp_path: Path
) -> None:
    decide(table, whole := tmp_path / "whole.jsonl")
    output = tmp_path / "out.jsonl"
    command = [sys.executable, __file__, str(table), str(output)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DIE": "1"}
    killed = subprocess.run(command, env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL and not output.exists()
    n_before = len(stored_rows(output))
    assert n_before == 150 + 64  # the second source has decided one batch
    CALLS.clear()
    decide(table, output)
    assert CALLS == [("second", 36)]  # the first one is not asked again
    assert output.read_bytes() == whole.read_bytes()


def test_a_source_that_fails_leaves_its_rows_open(table: Path, tmp_path: Path) -> None:
    decide(table, whole := tmp_path / "whole.jsonl")
    output, fails = tmp_path / "out.jsonl", [True]

    def broken(inputs: list[Any], questions: Any) -> list[str | None]:
        if fails:
            raise ConnectionError("no answer from the host")
        return second(inputs, questions)

    broken.__name__ = "second"
    with pytest.raises(ConnectionError):
        decide(table, output, first, broken)
    assert not output.exists() and len(stored_rows(output)) == N_ROWS
    fails.clear()
    CALLS.clear()
    decide(table, output, first, broken)
    assert {name for name, _ in CALLS} == {"second"}
    assert output.read_bytes() == whole.read_bytes()
    with pytest.raises(InvalidArgumentError, match="different settings: sources"):
        decide(table, output, second, first)


def test_models_are_opened_only_for_their_rows(
    tiny_model: Model, table: Path, tmp_path: Path
) -> None:
    """A row that a model cannot read has an error, and is decided again only if asked."""
    long = tmp_path / "long.csv"
    long.write_text(table.read_text() + "7 " + "x " * 9000 + "\n")

    def some(inputs: list[Any], questions: Any) -> list[str | None]:
        return ["billing" if each.isdigit() and int(each) > 3 else None for each in inputs]

    cascade = (some, tiny_model)
    result = decide(long, output := tmp_path / "out.jsonl", *cascade)
    assert result.counts.stages == {1: 146, 2: 4} and result.counts.errors == 1
    found = rows_of(output)
    alone: Any = tiny_model.decide("2", TEAM)["team"]
    assert found[2]["team_probability"] == pytest.approx(alone.probability, abs=0.03)
    assert "context" in found[-1]["error"] and found[-1]["team"] is None
    before = len(stored_rows(output))
    decide(long, output, *cascade)
    assert len(stored_rows(output)) == before
    decide(long, output, *cascade, retry_errors=True)
    assert len(stored_rows(output)) == before + 1


def test_a_cascade_takes_no_settings_of_models(table: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="a cascade takes only calibration"):
        decide(table, tmp_path / "out.jsonl", think=3)


if __name__ == "__main__":
    decide(Path(sys.argv[1]), Path(sys.argv[2]))
