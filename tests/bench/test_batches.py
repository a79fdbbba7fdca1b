"""The benchmark of many prompts beside a loop over them, on inputs that take no time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import batches as bench_batches
from bench.batches import (
    GATHER,
    LOOP,
    MANY,
    OWN,
    SHARED,
    TEXTS,
    BatchEffort,
    markdown,
    measure_task,
)
from bench.parts.machine import machine_facts
from eliza_ffi.model import Model

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task", [OWN, SHARED, TEXTS])
def test_every_way_answers_every_prompt(tiny_model: Model, task: str) -> None:
    with bench_batches.ways_of(tiny_model, task, n_tokens=2) as ways:
        prompts = [tiny_model.prompt_tokens(f"message {i}: ") for i in range(3)]
        answers = [way(prompts) for way in ways.values()]
    assert answers == [answers[0]] * 3
    assert len(answers[0]) == 3


def test_a_way_is_compared_with_the_loop_of_its_round(tiny_model: Model) -> None:
    found = measure_task(tiny_model, OWN, BatchEffort(prompts=2, tokens=2, rounds=2), settling=0.0)
    assert list(found) == [LOOP, MANY, GATHER]
    assert found[LOOP]["times_the_loop"] == [1.0, 1.0, 1.0]
    low, middle, high = found[MANY]["times_the_loop"]
    assert 0 < low <= middle <= high


def test_the_table_shows_ratios_with_their_quartiles(tmp_path: Path) -> None:
    ways: dict[str, Any] = {
        LOOP: {"per_second": 10.0, "times_the_loop": [1.0, 1.0, 1.0]},
        MANY: {"per_second": 21.0, "times_the_loop": [1.9, 2.1, 2.2]},
        GATHER: {"per_second": 20.0, "times_the_loop": [1.8, 2.0, 2.1]},
    }
    cell = {"model": "m", "task": TEXTS, "prompts": 16, "ways": ways}
    results = {"machine": machine_facts(), "cells": [cell]}
    shown = markdown(results)
    assert "| m, texts | 16 | 10.0 | 21.0 | 2.10 (1.90 to 2.20) | 20.0 | 2.00 (1.80 to " in shown
    (tmp_path / "batches.json").write_text(json.dumps(results), encoding="utf-8")
    docs = tmp_path / "page.md"
    docs.write_text("<!-- bench:batches:begin -->\n<!-- bench:batches:end -->\n", encoding="utf-8")
    assert bench_batches.main(["--render", "--out", str(tmp_path), "--docs", str(docs)]) == 0
    assert "2.10 (1.90 to 2.20)" in docs.read_text(encoding="utf-8")
