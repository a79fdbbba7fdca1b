"""`bench.attention`: flash attention on and off, and its table."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import attention
from bench.attention import Task, measure
from bench.parts.machine import machine_facts
from eliza_ffi._resources import default_model_path

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task", [Task(8, reused=8), Task(8, streams=2)])
def test_a_row_compares_the_times_of_both_settings(
    monkeypatch: pytest.MonkeyPatch, task: Task
) -> None:
    monkeypatch.setitem(attention.SUBJECTS, 64, SimpleNamespace(path=default_model_path))
    cell = measure(64, task, rounds=2)
    assert cell["head_size"] == 64
    assert cell["off"] > 0.0 and cell["on"] > 0.0
    low, middle, high = cell["on_over_off"]
    assert 0.0 < low <= middle <= high


def test_the_table_is_rendered_into_a_document(tmp_path: Path) -> None:
    cell: dict[str, Any] = {
        "head_size": 64,
        "off": 20.0,
        "on": 30.0,
        "on_over_off": [1.4, 1.5, 1.6],
    }
    tasks = [Task(4000), Task(30, reused=2000), Task(400, streams=16), Task(2000, streams=1)]
    results = {
        "machine": machine_facts(),
        "cells": [{**cell, "task": task.name} for task in tasks],
    }
    results["cells"][0]["other_programs"] = 0.5
    (tmp_path / "attention.json").write_text(json.dumps(results), encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text("<!-- bench:attention:begin --><!-- bench:attention:end -->", encoding="utf-8")
    assert attention.main(["--render", "--out", str(tmp_path), "--docs", str(page)]) == 0
    written = page.read_text(encoding="utf-8")
    assert "Disturbed by other programs: choice, prompt of 4,000, head size 64 (0.5" in written
    for name in (
        "choice, prompt of 4,000",
        "choice, prompt of 2,000 reused + 30 new",
        "text, 16 streams, prompt of 400",
        "text, 1 stream, prompt of 2,000",
    ):
        assert f"| {name} | 64 | 20.0 | 30.0 | 1.50 (1.40-1.60) |" in written
