"""``eliza-ffi demo``: choose labels and answer questions for the bundled example messages."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .. import _resources
from ..async_model import AsyncModel
from ..decisions import ChoiceAnswer, Decision, PredicateAnswer, Question, ScoreAnswer, as_questions
from ..model import Model
from ..terminal import terminal_width, text_table, wrap
from .console import add_model_arguments, add_options, open_model, print_json, run_interruptibly
from .demo_prompts import SHOULD_RESPOND_CHOICES, planner_prompt, should_respond_prompt

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


def demo_cases(task: str) -> Iterator[DemoCase]:
    """Yield the cases of a task, ``"planner"`` or ``"should-respond"``, from its fixture file."""
    fixture = json.loads(_resources.fixture_path(f"{task}.json").read_text(encoding="utf-8"))
    for case in fixture["cases"]:
        message = case["input"]
        if task == "planner":
            actions = case["availableActions"]
            prompt = planner_prompt(message, actions)
            labels = tuple(action["name"] for action in actions)
            expected = case["expected_action_name"]
        else:
            prompt = should_respond_prompt(message, case["channelType"])
            labels, expected = SHOULD_RESPOND_CHOICES, case["expected"]
        yield DemoCase(task, case["id"], message, prompt, labels, expected)


@dataclass(frozen=True)
class DemoRow:
    """The model's answer to one case.

    `forward_passes` excludes the passes that read the prompt; `milliseconds` includes them.
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


def add_demo_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_options(parser, {"--json": "print JSON: one object instead of the tables"})
    add_model_arguments(parser)


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
            print(f"{wrap(summary_line(task, summarize(decided_cases)), terminal_width())}\n")
    total = summarize(rows)
    decided = await decide_all(AsyncModel.of(model))
    if not as_json:
        print(f"decisions: {len(decided)} messages, {len(decided[0].answers)} questions each\n")
        print(f"{decision_table(decided, width)}\n")
        print(f"{wrap(decision_summary(decided), terminal_width())}\n")
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
        print(wrap(summary_line("total", total), terminal_width()))
    return 1 if total.invalid_outputs else 0


def summary_line(name: str, summary: DemoCounts) -> str:
    """Format the sums as one line."""
    return (
        f"{name}: {summary.correct} of {summary.choices} right ({summary.accuracy:.0%}), "
        f"{summary.choices_per_second:.1f} choices per second, "
        f"forward passes after the prompts: {summary.forward_passes}, "
        f"invalid outputs: {summary.invalid_outputs}"
    )


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


@dataclass(frozen=True)
class DecisionRow:
    """The model's answers about one message; `wrong` names the questions with other answers.

    `answers` maps questions to values and probabilities. `forward_passes` and `milliseconds`
    include reading the message.
    """

    message: str
    answers: Mapping[str, tuple[Any, float]]
    wrong: tuple[str, ...]
    forward_passes: int
    milliseconds: float


def decision_cases() -> tuple[tuple[Question, ...], list[Mapping[str, Any]]]:
    """Return the questions, and the messages with their expected answers."""
    path = _resources.fixture_path("decisions.json")
    read = json.loads(path.read_text(encoding="utf-8"))
    return as_questions(read["questions"]), read["cases"]


async def decide_all(model: AsyncModel) -> list[DecisionRow]:
    """Ask all questions about each message."""
    questions, cases = decision_cases()
    return [_row(case, await model.decide(case["input"], questions)) for case in cases]


def decision_table(rows: Iterable[DecisionRow], width: int) -> str:
    """Format the rows as a table `width` columns wide; an ``x`` marks unexpected answers."""
    listed = list(rows)
    names = list(listed[0].answers)
    lines = [["message", *names, "passes", "ms"]]
    for row in listed:
        cells = [row.message]
        for name in names:
            value, probability = row.answers[name]
            mark = " x" if name in row.wrong else ""
            cells.append(f"{_value_text(value)} {probability:.0%}{mark}")
        lines.append([*cells, str(row.forward_passes), f"{row.milliseconds:.1f}"])
    return text_table(lines, left=1 + len(names), width=width, names=1)


def decision_summary(rows: Iterable[DecisionRow]) -> str:
    """Format the sums as one line."""
    listed = list(rows)
    n = sum(len(row.answers) for row in listed)
    right = n - sum(len(row.wrong) for row in listed)
    seconds = sum(row.milliseconds for row in listed) / 1e3
    return (
        f"decisions: {right} of {n} right ({right / n:.0%}), {n / seconds:.1f} a second, "
        f"forward passes: {sum(row.forward_passes for row in listed)}"
    )


def _row(case: Mapping[str, Any], decision: Decision) -> DecisionRow:
    expected = case["expected"]
    answers = {name: _answer(answer) for name, answer in decision.items()}
    return DecisionRow(
        message=case["input"],
        answers=answers,
        wrong=tuple(name for name, (value, _) in answers.items() if value != expected[name]),
        forward_passes=decision.usage.forward_passes,
        milliseconds=decision.usage.seconds * 1e3,
    )


def _answer(answer: Any) -> tuple[Any, float]:
    if isinstance(answer, PredicateAnswer):
        return answer.value, max(answer.distribution)
    if isinstance(answer, ScoreAnswer):
        return answer.label, answer.probability
    assert isinstance(answer, ChoiceAnswer)
    return answer.choice, answer.probability


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
