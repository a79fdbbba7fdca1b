"""``eliza-ffi demo``: the bundled messages, decided by the model, one row as each is finished."""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from ..async_model import AsyncModel
from ..choices.choice_set import string_choices
from ..measuring.cases import Case, cases_of
from ..model import Model
from .console import open_model, run_interruptibly, shorten
from .demo_decisions import decide_all, decision_summary, decision_table

__all__ = ["DemoCounts", "DemoRow", "decide", "run_demo", "summarize"]

TASKS = {"planner": "planner", "should_respond": "should-respond"}
"""The tasks whose answers are names, and what they are called here."""

NUMBER_COLUMNS = (("prob", 6), ("tokens", 6), ("passes", 6), ("ms", 8))
NARROWEST_MESSAGE = 16


@dataclass(frozen=True)
class DemoRow:
    """What the model made of a case.

    Attributes
    ----------
    output : str
        What was generated, whether it is one of the choices or not.
    valid : bool
        Whether it is.
    probability : float
        Of the choice, among the choices.
    tokens : int
        Tokens generated.
    forward_passes : int
        Passes through the model beyond those of the prompt.
    milliseconds : float
        From the prompt's tokens to the choice, prefill included.
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
    """Counts over some rows; `accuracy` is 0 to 1."""

    choices: int
    correct: int
    accuracy: float
    invalid_outputs: int
    choices_per_second: float
    forward_passes: int


async def decide(model: Model, case: Case) -> DemoRow:
    """Run one case through the streaming runner."""
    streamed: list[str] = []
    args = model.choice_args(
        case.prompt + case.opening, string_choices(case.choices), on_text_chunk=streamed.append
    )
    begin = time.perf_counter()
    result = await model.runner.generate_with_usage(args)
    elapsed = time.perf_counter() - begin
    # Taken as it was streamed, so that an output that is none of the choices is seen as one.
    output = "".join(streamed)
    leaf, stats = result.leaf, result.stats
    return DemoRow(
        task=TASKS[case.task],
        id=case.id,
        message=case.message,
        expected=str(case.expected_name),
        output=output,
        valid=output in case.choices,
        probability=0.0 if leaf is None else math.exp(leaf.logprob),
        tokens=len(result.tokens),
        forward_passes=0 if stats is None else stats.passes_after_prompt,
        milliseconds=elapsed * 1e3,
    )


def summarize(rows: Iterable[DemoRow]) -> DemoCounts:
    """Count over some rows; there must be at least one."""
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
    """Decide all cases and answer questions about messages.

    Returns 1 if an output was none of the choices, which must not happen.
    """
    with open_model(arguments) as model:
        return run_interruptibly(_run(model, as_json=arguments.json))


async def _run(model: Model, *, as_json: bool) -> int:
    rows: list[DemoRow] = []
    for of_fixtures, task in TASKS.items():
        cases = list(cases_of(of_fixtures))
        table = Table(cases, shutil.get_terminal_size((100, 24)).columns)
        if not as_json:
            print(f"{task}: {len(cases)} messages\n\n{table.head()}")
        for case in cases:
            rows.append(await decide(model, case))
            if not as_json:
                print(table.row(rows[-1]), flush=True)
        if not as_json:
            done = summarize(row for row in rows if row.task == task)
            print(f"\n{summary_line(task, done)}\n")
    total = summarize(rows)
    decided = await decide_all(AsyncModel.of(model))
    if not as_json:
        print(f"decisions: {len(decided)} messages, {len(decided[0].answers)} questions each\n")
        print(f"{decision_table(decided, shutil.get_terminal_size((100, 24)).columns)}\n")
        print(f"{decision_summary(decided)}\n")
    if as_json:
        by_task = {
            task: summarize(row for row in rows if row.task == task) for task in TASKS.values()
        }
        report = {
            "model": model.path,
            "rows": [asdict(row) for row in rows],
            "summaries": {name: asdict(summary) for name, summary in by_task.items()},
            "total": asdict(total),
            "decisions": [asdict(row) for row in decided],
        }
        print(json.dumps(report, ensure_ascii=False))
    else:
        print(summary_line("total", total))
    return 1 if total.invalid_outputs else 0


def summary_line(name: str, summary: DemoCounts) -> str:
    """Return the counts as one readable line."""
    return (
        f"{name}: {summary.correct} of {summary.choices} right ({summary.accuracy:.0%}), "
        f"{summary.choices_per_second:.1f} choices per second, "
        f"forward passes beyond the prompts: {summary.forward_passes}, "
        f"invalid outputs: {summary.invalid_outputs}"
    )


class Table:
    """Lines up rows in a terminal of `width` columns; the message takes what room is left."""

    def __init__(self, cases: Iterable[Case], width: int) -> None:
        listed = list(cases)
        self._expected = _longest("expected", (str(case.expected_name) for case in listed))
        self._chosen = _longest("chosen", (name for case in listed for name in case.choices))
        fixed = self._expected + self._chosen + sum(size for _, size in NUMBER_COLUMNS)
        gaps = 2 * (3 + len(NUMBER_COLUMNS))
        room = width - fixed - gaps - 1
        self._message = max(
            NARROWEST_MESSAGE, min(room, _longest("message", (case.message for case in listed)))
        )

    def head(self) -> str:
        """Return the line that names the columns."""
        return self._line(
            " ", "message", "expected", "chosen", [name for name, _ in NUMBER_COLUMNS]
        )

    def row(self, row: DemoRow) -> str:
        """Return the line of a row; it begins with a mark where the choice is not the expected."""
        numbers = [
            f"{row.probability:.1%}",
            str(row.tokens),
            str(row.forward_passes),
            f"{row.milliseconds:.1f}",
        ]
        mark = " " if row.output == row.expected else "x"
        return self._line(mark, row.message, row.expected, row.output, numbers)

    def _line(self, mark: str, message: str, expected: str, chosen: str, numbers: list[str]) -> str:
        cells: list[Any] = [
            mark,
            f"{shorten(message, self._message):<{self._message}}",
            f"{expected:<{self._expected}}",
            f"{chosen:<{self._chosen}}",
        ]
        cells += [
            f"{number:>{size}}" for number, (_, size) in zip(numbers, NUMBER_COLUMNS, strict=True)
        ]
        return "  ".join(cells)


def _longest(head: str, texts: Iterable[str]) -> int:
    return max(len(head), *(len(text) for text in texts))
