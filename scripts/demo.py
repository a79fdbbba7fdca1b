#!/usr/bin/env python3
"""Choose actions and answer questions for the messages of bench/eliza_1, with the embedded model.

An ``x`` marks each answer that is not the expected one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from demo_prompts import FIXTURES, SHOULD_RESPOND_CHOICES, planner_prompt, should_respond_prompt

from eliza_ffi import Model
from eliza_ffi.decisions.answers import given_answer
from eliza_ffi.terminal import terminal_width, text_table

FILE_WIDTH = 100
"""Columns of the tables if standard output is not a terminal."""


def fixture(name: str) -> Any:
    """Return the content of a fixture file."""
    return json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))


def demo_cases(task: str) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
    """Yield the message, the prompt, the labels and the expected label of each case of a task."""
    for case in fixture(task)["cases"]:
        if task == "planner":
            actions = case["availableActions"]
            labels = tuple(action["name"] for action in actions)
            prompt, expected = planner_prompt(case["input"], actions), case["expected_action_name"]
        else:
            prompt = should_respond_prompt(case["input"], case["channelType"])
            labels, expected = SHOULD_RESPOND_CHOICES, case["expected"]
        yield case["input"], prompt, labels, expected


def choose_all(model: Model, task: str) -> list[list[str]]:
    """Return a row of the table for each case of a task; the first cell marks wrong choices."""
    rows = [["", "message", "expected", "chosen", "prob", "passes", "ms"]]
    for message, prompt, labels, expected in demo_cases(task):
        choice = model.choose(prompt, labels)
        mark = "" if choice.value == expected else "x"
        figures = [f"{choice.probability:.1%}", str(max(choice.forward_passes, 0))]
        rows.append(
            [mark, message, expected, choice.value, *figures, f"{choice.seconds * 1e3:.1f}"]
        )
    return rows


def decide_all(model: Model) -> list[list[str]]:
    """Return a row of the table for each message that questions are asked about."""
    read = fixture("decisions")
    rows = [["message", *read["questions"], "ms"]]
    for case in read["cases"]:
        decision = model.decide(case["input"], read["questions"])
        cells = [case["input"]]
        for name, answer in decision.items():
            value = given_answer(answer)
            text = {True: "yes", False: "no"}.get(value, value)
            mark = "" if value == case["expected"][name] else " x"
            cells.append(f"{text} {max(answer.distribution):.0%}{mark}")
        rows.append([*cells, f"{decision.usage.seconds * 1e3:.1f}"])
    return rows


def main() -> None:
    """Print a table for each task, and how many answers are right."""
    width = terminal_width() or FILE_WIDTH
    with Model() as model:
        for task in ("planner", "should-respond"):
            begin = time.monotonic()
            rows = choose_all(model, task)
            n, wrong = len(rows) - 1, sum(row[0] == "x" for row in rows)
            print(f"{task}: {n} messages\n\n{text_table(rows, left=4, width=width)}\n")
            rate = n / (time.monotonic() - begin)
            print(f"{task}: {n - wrong} of {n} right ({1 - wrong / n:.0%}), {rate:.1f} a second\n")
        rows = decide_all(model)
        answers = [cell for row in rows[1:] for cell in row[1:-1]]
        right = sum(not cell.endswith(" x") for cell in answers)
        print(f"decisions: {len(rows) - 1} messages, {len(rows[0]) - 2} questions each\n")
        print(f"{text_table(rows, left=len(rows[0]) - 1, width=width, names=1)}\n")
        print(f"decisions: {right} of {len(answers)} right ({right / len(answers):.0%})")


if __name__ == "__main__":
    main()
