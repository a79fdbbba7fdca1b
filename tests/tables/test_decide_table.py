"""Tests of ``decide_table``, with a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eliza_ffi import cli
from eliza_ffi.decisions import Choice
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.model import Model
from eliza_ffi.tables import decide_table

TEAM = Choice("Which team?", ["billing", "sales"], "team")
OPTIONS: Any = {"n_slots": 1, "n_threads": 1}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    texts = ["I was charged twice!", "", "What do ten of them cost?", "x " * 3000]
    path.write_text("\n".join(["body", *(f'"{each}"' for each in texts)]))
    return path


def test_the_function_does_the_same_as_the_command(
    library: object, table: Path, tmp_path: Path
) -> None:
    with Model(**OPTIONS) as model:
        result = decide_table(model, table, "body", TEAM, tmp_path / "out.jsonl", top=1)
    assert (result.counts.rows, result.counts.errors, result.is_whole) == (4, 2, True)
    command = ["decide", str(table), "--column", "body", "--n-slots", "1", "--threads", "1"]
    command += ["--ask", "Which team?", "--option", "billing", "--option", "sales"]
    command += ["--name", "team", "--top", "1", "--output"]
    assert cli.main([*command, str(tmp_path / "command.jsonl")]) == 0
    written = [(tmp_path / name).read_bytes() for name in ("out.jsonl", "command.jsonl")]
    assert written[0] == written[1]
    assert cli.main([*command, str(tmp_path / "out.jsonl")]) == 0  # it resumes the same job


def test_wrong_arguments_of_the_function_are_named(
    plain_model: Model, table: Path, tmp_path: Path
) -> None:
    for column, questions, settings, message in (
        ("text", TEAM, {}, "no column 'text'"),
        ("body", [], {}, "1 to 400 questions"),
        ("body", TEAM, {"min_probability": 2}, "min_probability must be a number from 0 to 1"),
    ):
        output = tmp_path / "out.csv"
        with pytest.raises(InvalidArgumentError, match=message):
            decide_table(plain_model, table, column, questions, output, **settings)
        assert not list(tmp_path.glob("out*"))
    with pytest.raises(TypeError, match=r"decide_table\(\) has no keyword 'min_probabilty'; did"):
        decide_table(plain_model, table, "body", TEAM, tmp_path / "x.csv", min_probabilty=0.5)  # type: ignore[call-arg]
