"""``eliza-ffi demo``: choose labels and answer questions for the bundled example messages."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ..async_model import AsyncModel
from ..model import Model
from ..terminal import terminal_width, text_table, wrap
from .console import open_model, print_json, run_interruptibly
from .demo_cases import DemoCase, demo_cases
from .demo_decisions import decide_all, decision_summary, decision_table

__all__ = ["DemoCounts", "DemoRow", "decide", "run_demo", "summarize"]

TASKS = ("planner", "should-respond")
"""The tasks in which a name is chosen."""

FILE_WIDTH = 100
"""Columns of the tables if standard output is not a terminal."""


@dataclass(frozen=True)
class DemoRow:
    """The model's answer to one case.

    Attributes
    ----------
    output : str
        The generated text.
    valid : bool
        Whether the text is a label of the case.
    probability : float
        The probability of the chosen label among the labels.
    tokens : int
        The number of generated tokens.
    forward_passes : int
        Forward passes after the prompt was read.
    milliseconds : float
        Time from the tokenized prompt to the result, prefill included.
    """

    task: str
    id: str
    message: str
    expected: str
    output: str
    valid: bool
    probability: float
    tokens: int
    forward_passes: int
    milliseconds: float


@dataclass(frozen=True)
class DemoCounts:
    """Sums over rows; `accuracy` is 0 to 1."""

    choices: int
    correct: int
    accuracy: float
    invalid_outputs: int
    choices_per_second: float
    forward_passes: int


async def decide(model: Model, case: DemoCase) -> DemoRow:
    """Let the model choose in one case."""
    streamed: list[str] = []
    choice = await AsyncModel.of(model).choose(case.prompt, case.labels, on_text=streamed.append)
    # Use the streamed text, not choice.value, so that an output that is not a label is noticed.
    output = "".join(streamed)
    return DemoRow(
        task=case.task,
        id=case.id,
        message=case.message,
        expected=case.expected,
        output=output,
        valid=output in case.labels,
        probability=choice.probability,
        tokens=len(choice.tokens),
        forward_passes=max(choice.forward_passes, 0),
        milliseconds=choice.seconds * 1e3,
    )


def summarize(rows: Iterable[DemoRow]) -> DemoCounts:
    """Sum up one or more rows."""
    listed = list(rows)
    correct = sum(row.output == row.expected for row in listed)
    seconds = sum(row.milliseconds for row in listed) / 1e3
    return DemoCounts(
        choices=len(listed),
        correct=correct,
        accuracy=correct / len(listed),
        invalid_outputs=sum(not row.valid for row in listed),
        choices_per_second=len(listed) / seconds,
        forward_passes=sum(row.forward_passes for row in listed),
    )


def run_demo(arguments: argparse.Namespace) -> int:
    """Run all cases and decisions, and print the results.

    Returns 0, or 1 if an output was not a label, which must not happen.
    """
    with open_model(arguments) as model:
        return run_interruptibly(_run(model, as_json=arguments.json))


async def _run(model: Model, *, as_json: bool) -> int:
    rows: list[DemoRow] = []
    width = terminal_width() or FILE_WIDTH
    for task in TASKS:
        cases = list(demo_cases(task))
        decided_cases = [await decide(model, case) for case in cases]
        rows += decided_cases
        if not as_json:
            print(f"{task}: {len(cases)} messages\n\n{demo_table(decided_cases, width)}\n")
            print(f"{_wrapped(summary_line(task, summarize(decided_cases)))}\n")
    total = summarize(rows)
    decided = await decide_all(AsyncModel.of(model))
    if not as_json:
        print(f"decisions: {len(decided)} messages, {len(decided[0].answers)} questions each\n")
        print(f"{decision_table(decided, width)}\n")
        print(f"{_wrapped(decision_summary(decided))}\n")
    if as_json:
        by_task = {task: summarize(row for row in rows if row.task == task) for task in TASKS}
        report = {
            "model": model.path,
            "rows": [asdict(row) for row in rows],
            "summaries": {name: asdict(summary) for name, summary in by_task.items()},
            "total": asdict(total),
            "decisions": [asdict(row) for row in decided],
        }
        print_json(report)
    else:
        print(_wrapped(summary_line("total", total)))
    return 1 if total.invalid_outputs else 0


def summary_line(name: str, summary: DemoCounts) -> str:
    """Format the sums as one line."""
    return (
        f"{name}: {summary.correct} of {summary.choices} right ({summary.accuracy:.0%}), "
        f"{summary.choices_per_second:.1f} choices per second, "
        f"forward passes after the prompts: {summary.forward_passes}, "
        f"invalid outputs: {summary.invalid_outputs}"
    )


def _wrapped(text: str) -> str:
    return wrap(text, terminal_width())


def demo_table(rows: Iterable[DemoRow], width: int) -> str:
    """Format the rows as a table; an ``x`` marks each output that is not the expected one."""
    lines = [["", "message", "expected", "chosen", "prob", "tokens", "passes", "ms"]]
    for row in rows:
        lines.append(
            [
                "" if row.output == row.expected else "x",
                *(row.message, row.expected, row.output, f"{row.probability:.1%}"),
                *(str(row.tokens), str(row.forward_passes), f"{row.milliseconds:.1f}"),
            ]
        )
    return text_table(lines, left=4, width=width)
