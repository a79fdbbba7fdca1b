"""The decisions of ``eliza-ffi demo``: the same questions about each of several messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import _resources
from ..async_model import AsyncModel
from ..decisions import ChoiceAnswer, Decision, PredicateAnswer, Question, ScoreAnswer, as_questions
from ..terminal import text_table

__all__ = ["DecisionRow", "decide_all", "decision_cases", "decision_summary", "decision_table"]


@dataclass(frozen=True)
class DecisionRow:
    """The model's answers about one message.

    Attributes
    ----------
    message : str
    answers : mapping from str to (value, float)
        For each question, the answer and its probability.
    wrong : tuple of str
        The questions whose answer is not the expected one.
    forward_passes : int
        Forward passes, including the passes that read the message.
    milliseconds : float
        Time from the message to the answers.
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
