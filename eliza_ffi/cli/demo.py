"""``eliza-ffi demo``: the bundled messages, decided by the model, one row as each is finished."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass

from ..async_model import AsyncModel
from ..measuring.terminal_text import pad, printable, shorten, text_width, wrap
from ..model import Model
from .console import open_model, run_interruptibly
from .demo_cases import Case, cases_of
from .demo_decisions import decide_all, decision_summary, decision_table
from .screen import terminal_width

__all__ = ["DemoCounts", "DemoRow", "decide", "run_demo", "summarize"]

TASKS = {"planner": "planner", "should_respond": "should-respond"}
"""The tasks whose answers are names, and what they are called here."""

NUMBER_COLUMNS = {"prob": 6, "tokens": 6, "passes": 6, "ms": 8}
LEFT_OUT = ("tokens", "passes", "ms", "prob")
"""Which figures a narrow terminal does without, the first of them first."""

FILE_WIDTH = 100
"""Columns of the tables where no terminal shows them."""

GAP = "  "
NARROW_MESSAGE = 16
NARROWEST = 8
"""Columns of a message for which figures are left out, and those of whatever is cut."""


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
    """Run one case."""
    streamed: list[str] = []
    choice = await AsyncModel.of(model).choose(
        case.prompt + case.opening, case.choices, on_text_chunk=streamed.append
    )
    # Taken as it was streamed, so that an output that is none of the choices is seen as one.
    output = "".join(streamed)
    return DemoRow(
        task=TASKS[case.task],
        id=case.id,
        message=case.message,
        expected=str(case.expected_name),
        output=output,
        valid=output in case.choices,
        probability=choice.probability,
        tokens=len(choice.tokens),
        forward_passes=max(choice.forward_passes, 0),
        milliseconds=choice.elapsed * 1e3,
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
    width = terminal_width() or FILE_WIDTH
    for of_fixtures, task in TASKS.items():
        cases = list(cases_of(of_fixtures))
        table = Table(cases, width)
        if not as_json:
            print(f"{task}: {len(cases)} messages\n\n{table.head()}")
        for case in cases:
            rows.append(await decide(model, case))
            if not as_json:
                print(table.row(rows[-1]), flush=True)
        if not as_json:
            done = summarize(row for row in rows if row.task == task)
            print(f"\n{_wrapped(summary_line(task, done))}\n")
    total = summarize(rows)
    decided = await decide_all(AsyncModel.of(model))
    if not as_json:
        print(f"decisions: {len(decided)} messages, {len(decided[0].answers)} questions each\n")
        print(f"{decision_table(decided, width)}\n")
        print(f"{_wrapped(decision_summary(decided))}\n")
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
        print(_wrapped(summary_line("total", total)))
    return 1 if total.invalid_outputs else 0


def summary_line(name: str, summary: DemoCounts) -> str:
    """Return the counts as one readable line."""
    return (
        f"{name}: {summary.correct} of {summary.choices} right ({summary.accuracy:.0%}), "
        f"{summary.choices_per_second:.1f} choices per second, "
        f"forward passes beyond the prompts: {summary.forward_passes}, "
        f"invalid outputs: {summary.invalid_outputs}"
    )


def _wrapped(text: str) -> str:
    return "\n".join(wrap(text, terminal_width()))


class Table:
    """Lines up rows in a terminal of `width` columns; the message takes what room is left.

    Where that is little, figures are left out, and at last the names of the answers are cut.
    """

    def __init__(self, cases: Iterable[Case], width: int) -> None:
        listed = list(cases)
        self._expected = _widest("expected", (str(case.expected_name) for case in listed))
        self._chosen = _widest("chosen", (name for case in listed for name in case.choices))
        room = width - 1 - 3 * len(GAP)  # a mark, and three cells behind it
        if room - self._expected - self._chosen < NARROWEST:
            self._expected = self._chosen = max((room - NARROWEST) // 2, NARROWEST)
        room -= self._expected + self._chosen
        self._numbers = dict(NUMBER_COLUMNS)
        for name in LEFT_OUT:
            if room - self._numbers_width() < NARROW_MESSAGE:
                del self._numbers[name]
        room -= self._numbers_width()
        message = _widest("message", (case.message for case in listed))
        self._message = max(NARROWEST, min(room, message))

    def head(self) -> str:
        """Return the line that names the columns."""
        return self._line(
            " ", "message", "expected", "chosen", {name: name for name in self._numbers}
        )

    def row(self, row: DemoRow) -> str:
        """Return the line of a row; it begins with a mark where the choice is not the expected."""
        numbers = {
            "prob": f"{row.probability:.1%}",
            "tokens": str(row.tokens),
            "passes": str(row.forward_passes),
            "ms": f"{row.milliseconds:.1f}",
        }
        mark = " " if row.output == row.expected else "x"
        return self._line(mark, row.message, row.expected, row.output, numbers)

    def _line(
        self, mark: str, message: str, expected: str, chosen: str, numbers: Mapping[str, str]
    ) -> str:
        texts = ((message, self._message), (expected, self._expected), (chosen, self._chosen))
        cells = [pad(shorten(printable(text), size), size) for text, size in texts]
        cells += [pad(numbers[name], size, right=True) for name, size in self._numbers.items()]
        return GAP.join([mark, *cells])

    def _numbers_width(self) -> int:
        return sum(len(GAP) + size for size in self._numbers.values())


def _widest(head: str, texts: Iterable[str]) -> int:
    return max(map(text_width, (head, *texts)))
