"""A decision for people: each question, its answer, and bars of probability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..decisions.answers import (
    Answer,
    Decision,
    LabelsAnswer,
    PredicateAnswer,
    ScoreAnswer,
)
from ..decisions.questions import Question, text_of
from ..measuring.terminal_text import pad, printable, shorten, text_width, wrap
from .screen import Screen

__all__ = ["decision_lines"]

MOST_OPTIONS = 12
"""Options that are shown, the likeliest; the others are summed up."""

LONGEST_BAR = 40


def decision_lines(
    questions: Sequence[Question], decision: Decision, screen: Screen
) -> Iterator[str]:
    """Yield a decision's lines.

    Parameters
    ----------
    questions
    decision
        About these.
    screen
    """
    for question, answer in zip(questions, decision.answers, strict=True):
        yield from _headline(question, answer, screen)
        yield from _bars(answer, screen)
        yield ""
    usage = decision.usage
    kind = "calibrated" if decision.calibrated else "uncalibrated"
    yield from wrap(
        f"{kind} probabilities; {usage.input_tokens} tokens, {usage.cached_tokens} of them cached, "
        f"{usage.passes} passes, {usage.seconds * 1e3:.1f} ms",
        screen.width,
    )


def _headline(question: Question, answer: Answer, screen: Screen) -> Iterator[str]:
    """Yield the question, cut if need be, and its answer: behind it, or below if it is long."""
    title = printable(question.instructions if answer.name is None else answer.name)
    said = " ".join(_said(answer).split())
    title = shorten(title, max(screen.width - text_width(said) - 2, 16))
    if text_width(title) + 2 + text_width(said) <= screen.width:
        yield f"{title}: {screen.bold(said)}"
        return
    yield f"{title}:"
    for line in wrap(said, screen.width - 2):
        yield f"  {screen.bold(line)}"


def _said(answer: Answer) -> str:
    if isinstance(answer, LabelsAnswer):
        return ", ".join(printable(text_of(value)) for value in answer.value) or "none"
    if answer.abstained:
        return "abstained"
    if isinstance(answer, PredicateAnswer):
        said = "yes" if answer.value else "no"
    elif isinstance(answer, ScoreAnswer):
        said = f"{answer.score:.2f} of 0 to {len(answer.levels) - 1}, {printable(answer.label)}"
    else:
        said = printable(text_of(answer.choice))
    said += f" (confidence {answer.confidence:.0%}"
    if answer.option_mass is not None:
        said += f", option mass {answer.option_mass:.0%}"
    return said + ")"


def _bars(answer: Answer, screen: Screen) -> Iterator[str]:
    """Yield a line for each option; levels in their order, others the likeliest first."""
    if isinstance(answer, PredicateAnswer):
        shown = list(zip(("yes", "no"), answer.distribution, strict=True))
    elif isinstance(answer, ScoreAnswer):
        shown = list(answer.levels)
    elif isinstance(answer, LabelsAnswer):
        each = [(text_of(value), found.probability) for value, found in answer.answers]
        shown = sorted(each, key=lambda option: option[1], reverse=True)
    else:
        shown = [(text_of(value), probability) for value, probability in answer.ranked()]
    more = shown[MOST_OPTIONS:] if len(shown) > MOST_OPTIONS + 1 else []
    shown = shown[: len(shown) - len(more)]
    room = max(screen.width // 2, 16)
    labels = [shorten(printable(label), room) for label, _ in shown]
    width = max(text_width(label) for label in labels)
    bar = min(screen.width - width - 12, LONGEST_BAR)
    for label, (_, probability) in zip(labels, shown, strict=True):
        line = f"  {pad(label, width)}  {probability:6.1%}  {screen.bar(probability, bar)}"
        yield line.rstrip()
    if more:
        rest = sum(probability for _, probability in more)
        yield f"  and {len(more)} more, together {rest:.1%}"
