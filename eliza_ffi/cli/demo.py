"""``eliza-ffi demo``: choose labels and answer questions for the bundled example messages."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _resources
from ..async_model import AsyncModel
from ..decisions import ChoiceAnswer, PredicateAnswer, ScoreAnswer, as_questions
from ..model import Model
from ..terminal import terminal_width, text_table, wrap
from .console import add_model_arguments, add_options, open_model, print_json, run_interruptibly

TASKS = ("planner", "should-respond")
"""The tasks in which a name is chosen."""

FILE_WIDTH = 100
"""Columns of the tables if standard output is not a terminal."""


@dataclass(frozen=True)
class DemoCase:
    """One case of the demo. The label follows the prompt directly."""

    task: str
    id: str
    message: str
    prompt: str
    labels: tuple[str, ...]
    expected: str


def _fixture(name: str) -> Any:
    return json.loads(_resources.fixture_path(f"{name}.json").read_text(encoding="utf-8"))


def demo_cases(task: str) -> list[DemoCase]:
    """Return the cases of a task, ``"planner"`` or ``"should-respond"``."""
    return [
        DemoCase(
            task, case["id"], case["input"], case["prompt"], tuple(case["labels"]), case["expected"]
        )
        for case in _fixture("demo")["cases"]
        if case["task"] == task
    ]


async def choose(model: Model, case: DemoCase) -> dict[str, Any]:
    """Let the model choose in one case.

    `forward_passes` excludes the passes that read the prompt; `milliseconds` includes them.
    """
    streamed: list[str] = []
    choice = await AsyncModel.of(model).choose(case.prompt, case.labels, on_text=streamed.append)
    # Use the streamed text, not choice.value, so that an output that is not a label is noticed.
    output = "".join(streamed)
    return {
        **{"task": case.task, "id": case.id, "message": case.message, "expected": case.expected},
        "output": output,
        "valid": output in case.labels,
        "probability": choice.probability,
        "tokens": len(choice.tokens),
        "forward_passes": max(choice.forward_passes, 0),
        "milliseconds": choice.seconds * 1e3,
    }


def summarize(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    correct = sum(row["output"] == row["expected"] for row in rows)
    return {
        "choices": len(rows),
        "correct": correct,
        "accuracy": correct / len(rows),
        "invalid_outputs": sum(not row["valid"] for row in rows),
        "choices_per_second": len(rows) * 1e3 / sum(row["milliseconds"] for row in rows),
        "forward_passes": sum(row["forward_passes"] for row in rows),
    }


async def decide_all(model: Model) -> list[dict[str, Any]]:
    """Ask all questions about each message. `wrong` names the questions with other answers."""
    read, rows = _fixture("decisions"), []
    questions = as_questions(read["questions"])
    for case in read["cases"]:
        decision = await AsyncModel.of(model).decide(case["input"], questions)
        answers = {name: _answer(answer) for name, answer in decision.items()}
        wrong = [name for name, (value, _) in answers.items() if value != case["expected"][name]]
        rows.append(
            {
                **{"message": case["input"], "answers": answers, "wrong": wrong},
                "forward_passes": decision.usage.forward_passes,
                "milliseconds": decision.usage.seconds * 1e3,
            }
        )
    return rows


def _answer(answer: Any) -> tuple[Any, float]:
    if isinstance(answer, PredicateAnswer):
        return answer.value, max(answer.distribution)
    if isinstance(answer, ScoreAnswer):
        return answer.label, answer.probability
    assert isinstance(answer, ChoiceAnswer)
    return answer.choice, answer.probability


# ---- The command --------------------------------------------------------------------------------


def add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    add_options(parser, {"--json": "print JSON: one object instead of the tables"})
    add_model_arguments(parser)


def run_demo(arguments: argparse.Namespace) -> int:
    """Run all cases and decisions, and print the results.

    Returns 0, or 1 if an output was not a label, which must not happen.
    """
    with open_model(arguments) as model:
        return run_interruptibly(_run(model, as_json=arguments.json))


async def _run(model: Model, *, as_json: bool) -> int:
    rows: list[dict[str, Any]] = []
    summaries: dict[str, dict[str, Any]] = {}
    width = terminal_width() or FILE_WIDTH
    for task in TASKS:
        chosen = [await choose(model, case) for case in demo_cases(task)]
        rows += chosen
        summaries[task] = summarize(chosen)
        if not as_json:
            print(f"{task}: {len(chosen)} messages\n\n{demo_table(chosen, width)}\n")
            print(f"{wrap(_summary_line(task, summaries[task]), terminal_width())}\n")
    decided = await decide_all(model)
    total = summarize(rows)
    if as_json:
        report = {"model": model.path, "rows": rows, "summaries": summaries, "total": total}
        print_json({**report, "decisions": decided})
    else:
        n = len(decided[0]["answers"])
        print(f"decisions: {len(decided)} messages, {n} questions each\n")
        print(f"{_decision_table(decided, width)}\n")
        print(f"{wrap(_decision_line(decided), terminal_width())}\n")
        print(wrap(_summary_line("total", total), terminal_width()))
    return 1 if total["invalid_outputs"] else 0


def _summary_line(name: str, summary: Mapping[str, Any]) -> str:
    return (
        f"{name}: {summary['correct']} of {summary['choices']} right ({summary['accuracy']:.0%}), "
        f"{summary['choices_per_second']:.1f} choices per second, "
        f"forward passes after the prompts: {summary['forward_passes']}, "
        f"invalid outputs: {summary['invalid_outputs']}"
    )


def demo_table(rows: Sequence[Mapping[str, Any]], width: int) -> str:
    """Format the rows as a table; an ``x`` marks each output that is not the expected one."""
    lines = [["", "message", "expected", "chosen", "prob", "tokens", "passes", "ms"]]
    for row in rows:
        mark = "" if row["output"] == row["expected"] else "x"
        facts = (row["probability"], row["tokens"], row["forward_passes"], row["milliseconds"])
        numbers = "{:.1%} {} {} {:.1f}".format(*facts).split()
        lines.append([mark, row["message"], row["expected"], row["output"], *numbers])
    return text_table(lines, left=4, width=width)


def _decision_table(rows: Sequence[Mapping[str, Any]], width: int) -> str:
    """Format the rows as a table `width` columns wide; an ``x`` marks unexpected answers."""
    lines = [["message", *rows[0]["answers"], "passes", "ms"]]
    for row in rows:
        cells = [row["message"]]
        for name, (value, probability) in row["answers"].items():
            text = {True: "yes", False: "no"}.get(value, value)
            cells.append(f"{text} {probability:.0%}{' x' if name in row['wrong'] else ''}")
        lines.append([*cells, str(row["forward_passes"]), f"{row['milliseconds']:.1f}"])
    return text_table(lines, left=len(lines[0]) - 2, width=width, names=1)


def _decision_line(rows: Sequence[Mapping[str, Any]]) -> str:
    n = sum(len(row["answers"]) for row in rows)
    right = n - sum(len(row["wrong"]) for row in rows)
    seconds = sum(row["milliseconds"] for row in rows) / 1e3
    return (
        f"decisions: {right} of {n} right ({right / n:.0%}), {n / seconds:.1f} a second, "
        f"forward passes: {sum(row['forward_passes'] for row in rows)}"
    )
