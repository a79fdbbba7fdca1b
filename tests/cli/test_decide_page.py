"""Tests of the commands in docs/guides/tables.md."""

from __future__ import annotations

import csv
import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from checkout import ROOT
from command import Run
from pages import differences

from eliza_ffi.cli.main import build_parser
from eliza_ffi.library.loading import LIBRARY_VARIABLE, Library

PAGE = (ROOT / "docs" / "guides" / "tables.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def commands(block: str) -> list[list[str]]:
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix("$ ")) for line in lines if "eliza-ffi " in line]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="TOML needs Python 3.11")
def test_the_commands_run_in_order(
    eliza: Run,
    library: Library,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(LIBRARY_VARIABLE, str(library.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "questions.toml").write_text(blocks("toml")[0], encoding="utf-8")
    (tmp_path / "mails.csv").write_text(blocks("csv")[0], encoding="utf-8")
    run = [words for block in blocks("console") for words in commands(block)]
    assert len(run) == 5
    for words in run:
        assert eliza(*words[1:]).out.strip()
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["error"] is None for row in rows] == [True, True, True, False, True, True]
    assert list(rows[0])[:3] == ["row", "id", "team"]
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        decided = list(csv.DictReader(file))
    assert ",".join(decided[0]).startswith("row,id,body,input_team,input_urgent,team,team_prob")
    columns, _, *shown = (line.split("|")[1:-1] for line in re.findall(r"^\|.*", PAGE, re.M)[:8])
    for row, cells in zip(decided, shown, strict=True):
        got = " ".join(row[column.strip()] for column in columns)
        assert differences(" ".join(cells), got) == []
    exec(blocks("python")[0], {})
    assert capsys.readouterr().out == blocks("text")[0]


def test_commands_that_need_other_files_parse() -> None:
    shown = [words for block in blocks("sh") for words in commands(block)]
    assert [words[1] for words in shown] == ["decide", "decide", "count"]
    for words in shown:
        build_parser().parse_args(words[1:])
