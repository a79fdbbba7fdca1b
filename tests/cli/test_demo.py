"""Tests of the demo: it decides every bundled message, and its totals are right."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import demo_prompts
import pytest
from command import Run
from demo_prompts import DEMO
from rich.cells import cell_len

from eliza_ffi import AsyncModel
from eliza_ffi.cli import demo
from eliza_ffi.cli.demo import choose, demo_cases, demo_table, summarize
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model


@pytest.fixture(scope="session")
def options(library: Library, random_model_path: Callable[..., Path]) -> list[str]:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    return ["--model", str(path), "--library", str(library.path), "--threads", "1"]


def test_the_cases_are_those_of_the_fixtures() -> None:
    assert json.loads(DEMO.read_text(encoding="utf-8"))["cases"] == demo_prompts.demo_cases()
    planner, should_respond = map(demo_cases, demo.TASKS)
    assert (len(planner), len(should_respond)) == (15, 32)
    assert {case.labels for case in should_respond} == {("RESPOND", "IGNORE", "STOP")}
    assert len({case.labels for case in planner}) > 5
    for case in planner + should_respond:
        assert case.expected in case.labels and case.message[:10] in case.prompt


@pytest.mark.slow
def test_the_tables_have_all_messages_and_totals(
    eliza: Run, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    out = eliza("demo", *options).out
    lines = out.splitlines()
    assert all(cell_len(line) <= 90 for line in lines)
    for case in [*demo_cases("planner"), *demo_cases("should-respond")]:
        assert any(case.message[:8].strip() in line for line in lines)
    summaries = [line for line in lines if "choices per second" in line]
    assert [line.split(":")[0] for line in summaries] == ["planner", "should-respond", "total"]
    assert " of 47 right" in summaries[-1]
    assert " ".join(lines).count("invalid outputs: 0") == 3
    _, _, decisions = out.partition("decisions: 12 messages, 3 questions each\n")
    table, _, line = decisions.partition("\ndecisions: ")
    assert table.count("%") == 36
    assert line.startswith(f"{36 - table.count('% x')} of 36 right")


def test_json_has_all_rows_and_the_same_totals(eliza: Run, options: list[str]) -> None:
    report = eliza("demo", "--json", *options).json
    assert len(report["rows"]) == report["total"]["choices"] == 47
    assert all(row["valid"] for row in report["rows"])
    correct = sum(row["output"] == row["expected"] for row in report["rows"])
    assert report["total"]["correct"] == correct
    assert report["total"]["accuracy"] == pytest.approx(correct / 47)
    assert sum(task["correct"] for task in report["summaries"].values()) == correct
    seconds = sum(row["milliseconds"] for row in report["rows"]) / 1e3
    assert report["total"]["choices_per_second"] == pytest.approx(47 / seconds)
    assert [len(row["answers"]) for row in report["decisions"]] == [3] * 12


def test_an_output_that_is_no_label_is_counted_and_exits_with_1(
    eliza: Run, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = AsyncModel.choose

    async def choose_wrongly(self: AsyncModel, prompt: str, labels: Any, **more: Any) -> Any:
        first = demo_cases("planner")[0].prompt
        return await plain(self, prompt, ["ELSE"] if prompt == first else labels, **more)

    monkeypatch.setattr(AsyncModel, "choose", choose_wrongly)
    assert "invalid outputs: 1" in eliza("demo", *options, code=1).out.splitlines()[-1]


@pytest.mark.parametrize("width", [50, 60, 72, 90, 200])
def test_a_table_with_wide_characters_fits_every_width(width: int) -> None:
    messages = ["你好\uff0c提醒我明天开会" * 9, "\U0001f389" * 70, "e\u0301te\u0301", "plain"]
    row = {"expected": "REPLY", "output": "REPLY", "probability": 0.987, "tokens": 2}
    row |= {"forward_passes": 1, "milliseconds": 12.34}
    shown = demo_table([{**row, "message": message} for message in messages], width)
    assert all(cell_len(line) <= width for line in shown.splitlines())
    assert shown.count("98.7%") == len(messages)


@pytest.mark.parametrize("task", demo.TASKS)
def test_the_embedded_model_is_right_on_seven_of_ten_messages(tiny_model: Model, task: str) -> None:
    async def choose_all() -> list[dict[str, Any]]:
        return [await choose(tiny_model, case) for case in demo_cases(task)]

    total = summarize(asyncio.run(choose_all()))
    assert total["invalid_outputs"] == 0 and total["accuracy"] >= 0.7
