"""Cascades on a Ray cluster give the answers of one machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eliza_ffi import Model, cli
from eliza_ffi._resources import default_model_path
from eliza_ffi.decisions import Choice
from eliza_ffi.errors import InvalidArgumentError
from eliza_ffi.evidence import Cascade
from eliza_ffi.ray import DeciderActor
from eliza_ffi.ray.cascade import SourceDecider
from eliza_ffi.tables import TableRow

TEAM = Choice("Which team?", ["billing", "sales"], "team")
TEXTS = [
    f"{text} {i}" for i in range(12) for text in ("I was charged twice!", "Do you sell lamps?")
]
OTHER = str(default_model_path())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "in.csv"
    path.write_text("body\n" + "".join(f"{text}\n" for text in TEXTS) + '""\n')
    return path


@pytest.mark.slow
def test_workers_answer_as_one_machine_does(
    cluster: Any, tiny_model: Model, table: Path, tmp_path: Path
) -> None:
    decisions = tiny_model.decide_many(TEXTS, Choice("Which team?", ["billing", "sales"]))
    below = str(float(np.median([each[0].probability for each in decisions])))
    command = ["decide", str(table), "--column", "body", "--ask", "Which team?"]
    command += ["--option", "billing", "--option", "sales", "--then", OTHER, "--then-below", below]
    command += ["--n-slots", "1", "--threads", "1", "--output"]
    here, there = tmp_path / "here.jsonl", tmp_path / "there.jsonl"
    assert cli.main([*command, str(here)]) == 0
    assert cli.main([*command, str(there), "--ray", "local", "--workers", "2"]) == 0
    rows = [json.loads(line) for line in there.read_text().splitlines()]
    assert {row["stage"] for row in rows if row["error"] is None} == {1, 2}
    assert "is empty" in rows[-1]["error"]
    assert there.read_bytes() == here.read_bytes()


def test_a_worker_reads_rows_with_one_source(tiny_model: Model) -> None:
    decider = SourceDecider(tiny_model, "input", [TEAM], {"orders": 2}, TEXTS[:2], fitted=None)
    assert decider.described["compares"] is False
    rows = [TableRow(i, "", {"input": text}) for i, text in enumerate([TEXTS[0], "x " * 9000])]
    (first, second) = decider.decide_rows(rows)
    expected: Any = Cascade([(tiny_model, {"orders": 2})]).decide(TEXTS[0], TEAM)["team"]
    assert np.exp(first.decision.said[0]) == pytest.approx(expected.distribution, abs=0.02)
    assert first.decision.cpu_seconds > 0
    assert second.decision is None and "context" in (second.error or "")
    with pytest.raises(InvalidArgumentError, match="for another model"):
        fitted = {"source": "another", "prompts": {}}
        SourceDecider(tiny_model, "input", [TEAM], {}, TEXTS[:2], fitted=fitted)


def test_an_actor_of_a_dataset_holds_all_models(tiny_model: Model) -> None:
    pa = pytest.importorskip("pyarrow")
    actor = DeciderActor("body", TEAM, then=[OTHER], below=0.99, probabilities=True)
    table = actor(pa.table({"body": [*TEXTS[:4], ""]}))
    cascade = Cascade([tiny_model, tiny_model], below=0.99)
    expected = cascade.decide_many(TEXTS[:4], TEAM)
    found = table.to_pylist()
    assert [row["stage"] for row in found] == [*(each.stage for each in expected), None]
    assert [row["team"] for row in found[:4]] == [each["team"].value for each in expected]
    assert "is empty" in found[-1]["error"]
    with pytest.raises(InvalidArgumentError, match="then needs questions"):
        DeciderActor("body", questions_column="asked", then=[OTHER])
