"""Tests of the demo: it decides every bundled message, and its totals are right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command import Run
from rich.cells import cell_len

from eliza_ffi import AsyncModel
from eliza_ffi.cli import demo
from eliza_ffi.cli.demo import (
    DemoCase,
    DemoRow,
    decide,
    decision_cases,
    demo_cases,
    demo_table,
    summarize,
)
from eliza_ffi.decisions import Choice, Predicate, Score
from eliza_ffi.library.loading import Library
from eliza_ffi.model import Model

ROW = DemoRow(
    task="planner",
    id="one",
    message="say hi\nback",
    expected="REPLY",
    output="REPLY",
    valid=True,
    probability=0.987,
    tokens=2,
    forward_passes=1,
    milliseconds=12.34,
)


@pytest.fixture(scope="session")
def options(library: Library, random_model_path: Callable[..., Path]) -> list[str]:
    path = random_model_path("llama-spm", n_embd=64, n_layers=2, seed=1)
    return ["--model", str(path), "--library", str(library.path), "--threads", "1"]


def test_the_cases_are_read_from_the_fixtures() -> None:
    planner = list(demo_cases("planner"))
    should_respond = list(demo_cases("should-respond"))
    assert (len(planner), len(should_respond)) == (15, 32)
    assert {case.labels for case in should_respond} == {("RESPOND", "IGNORE", "STOP")}
    assert len({case.labels for case in planner}) > 5
    for case in planner + should_respond:
        assert case.expected in case.labels
        assert case.message[:10] in case.prompt


def test_the_decisions_table_has_all_messages_and_counts_right_answers(
    eliza: Run, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = eliza("demo", *options).out.splitlines()
    begin = lines.index("decisions: 12 messages, 3 questions each")
    questions, cases = decision_cases()
    assert lines[begin + 2].split() == [
        "message",
        *(q.name or "" for q in questions),
        "passes",
        "ms",
    ]
    rows = lines[begin + 3 : begin + 3 + len(cases)]
    for case, row in zip(cases, rows, strict=True):
        assert row.startswith(case["input"][:20])
    n_wrong = sum(row.count(" x") for row in rows)
    assert lines[begin + 4 + len(cases)].startswith(f"decisions: {36 - n_wrong} of 36 right")


def test_the_expected_decisions_are_possible_answers() -> None:
    questions, cases = decision_cases()
    for case in cases:
        for question in questions:
            expected = case["expected"][question.name]
            if isinstance(question, Predicate):
                assert isinstance(expected, bool)
            elif isinstance(question, Score):
                assert expected in [level.label for level in question.levels]
            else:
                assert isinstance(question, Choice)
                assert expected in [option.value for option in question.options]


@pytest.mark.slow
def test_the_choice_tables_have_all_messages_and_totals(
    eliza: Run, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    lines = eliza("demo", *options).out.splitlines()
    assert all(cell_len(line) <= 90 for line in lines)
    for case in [*demo_cases("planner"), *demo_cases("should-respond")]:
        assert any(case.message[:8].strip() in line for line in lines)
    summaries = [line for line in lines if "choices per second" in line]
    assert [line.split(":")[0] for line in summaries] == ["planner", "should-respond", "total"]
    assert " of 47 right" in summaries[-1]
    assert " ".join(lines).count("invalid outputs: 0") == 3


def test_json_has_all_rows_and_the_same_totals(eliza: Run, options: list[str]) -> None:
    report = eliza("demo", "--json", *options).json
    assert len(report["rows"]) == report["total"]["choices"] == 47
    assert all(row["valid"] for row in report["rows"])
    correct = sum(row["output"] == row["expected"] for row in report["rows"])
    assert report["total"]["correct"] == correct
    assert sum(task["correct"] for task in report["summaries"].values()) == correct


def test_an_invalid_output_is_counted_and_exits_with_1(
    eliza: Run, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def decide_wrongly(model: Model, case: DemoCase) -> DemoRow:
        row = await decide(model, case)
        return row if case.id != "dm-greeting" else replace(row, output="RESP", valid=False)

    monkeypatch.setattr(demo, "decide", decide_wrongly)
    assert "invalid outputs: 1" in eliza("demo", *options, code=1).out.splitlines()[-1]


def test_validity_is_judged_by_the_streamed_text(
    options: list[str], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(demo_cases("should-respond"))
    with Model(options[1], library=library, n_threads=1) as model:
        assert asyncio.run(decide(model, case)).valid
        # Give the library labels that the case does not have, so that the output is invalid.
        other = asyncio.run(decide(model, replace(case, labels=("OTHER",))))
        assert other.valid
        assert other.output == "OTHER"
        choose = AsyncModel.choose
        monkeypatch.setattr(
            AsyncModel,
            "choose",
            lambda self, prompt, choices, **more: choose(self, prompt, ["ELSE"], **more),
        )
        row = asyncio.run(decide(model, case))
    assert row.output == "ELSE"
    assert not row.valid


def test_summarize_counts_rows() -> None:
    rows = [ROW, replace(ROW, output="IGNORE"), replace(ROW, output="x", valid=False)]
    total = summarize(rows)
    assert (total.choices, total.correct, total.invalid_outputs) == (3, 1, 1)
    assert total.accuracy == pytest.approx(1 / 3)
    assert total.choices_per_second == pytest.approx(1e3 / 12.34)
    assert total.forward_passes == 3


def test_rows_are_aligned_and_wrong_rows_are_marked() -> None:
    head, right, wrong = demo_table([ROW, replace(ROW, output="IGNORE")], 100).splitlines()
    assert len(head) == len(right) == len(wrong)
    assert " ".join(right.split()) == "say hi back REPLY REPLY 98.7% 2 1 12.3"
    assert " ".join(wrong.split()) == "x say hi back REPLY IGNORE 98.7% 2 1 12.3"


@pytest.mark.parametrize("width", [50, 60, 72, 90, 200])
def test_a_table_with_wide_characters_fits_every_width(width: int) -> None:
    messages = ["你好\uff0c提醒我明天开会" * 9, "\U0001f389" * 70, "e\u0301te\u0301", "plain"]
    shown = demo_table([replace(ROW, message=message) for message in messages], width)
    assert all(cell_len(line) <= width for line in shown.splitlines())
    assert shown.count("98.7%") == len(messages)


@pytest.mark.parametrize("task", demo.TASKS)
def test_the_embedded_model_is_right_on_seven_of_ten_messages(tiny_model: Model, task: str) -> None:
    async def decide_all() -> list[DemoRow]:
        return [await decide(tiny_model, case) for case in demo_cases(task)]

    total = summarize(asyncio.run(decide_all()))
    assert total.invalid_outputs == 0
    assert total.accuracy >= 0.7
