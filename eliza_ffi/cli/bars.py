"""A decision for people: each question, its answer, and bars of probability."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from ..decisions.answers import (
    Answer,
    Decision,
    LabelsAnswer,
    PredicateAnswer,
    ScoreAnswer,
)
from ..decisions.questions import Question, text_of
from .console import printable, shorten

__all__ = ["Screen", "decision_lines", "text_width"]

MOST_OPTIONS = 12
"""Options that are shown, the likeliest; the others are summed up."""

LONGEST_BAR = 40
EIGHTHS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Screen:
    """What a terminal, or a file, can show.

    Attributes
    ----------
    width : int
        In columns.
    blocks : bool
        Whether bars are drawn with block characters; else with ``#``.
    colour : bool
        Whether there are colours, as ``NO_COLOR`` allows them.
    """

    width: int = 80
    blocks: bool = False
    colour: bool = False

    @classmethod
    def of(cls, stream: TextIO) -> Screen:
        """Return what a stream can show."""
        is_terminal = stream.isatty()
        return cls(
            width=max(shutil.get_terminal_size((80, 24)).columns, 40),
            blocks=_can_write(stream, EIGHTHS + "█"),
            colour=is_terminal
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") not in (None, "dumb"),
        )

    def bar(self, share: float, width: int) -> str:
        """Return a bar for a share of 0 to 1; whatever is more than nothing shows."""
        if not self.blocks:
            return "#" * round(share * width)
        eighths = round(share * width * 8)
        return ("█" * (eighths // 8) + EIGHTHS[eighths % 8]).rstrip()

    def bold(self, text: str) -> str:
        """Return a text in bold, where that can be shown."""
        return f"\x1b[1m{text}\x1b[0m" if self.colour else text


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
        title = printable(question.instructions if answer.name is None else answer.name)
        said = _said(answer)
        title = shorten(title, max(screen.width - text_width(said) - 2, 16))
        yield f"{title}: {screen.bold(said)}"
        yield from _bars(answer, screen)
        yield ""
    usage = decision.usage
    kind = "calibrated" if decision.calibrated else "uncalibrated"
    yield (
        f"{kind} probabilities; {usage.input_tokens} tokens, {usage.cached_tokens} of them cached, "
        f"{usage.passes} passes, {usage.seconds * 1e3:.1f} ms"
    )


def text_width(text: str) -> int:
    """Return how many columns a text takes in a terminal."""
    return sum(
        0
        if unicodedata.combining(character)
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )


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
    labels = [_cut(printable(label), room) for label, _ in shown]
    width = max(text_width(label) for label in labels)
    bar = min(screen.width - width - 12, LONGEST_BAR)
    for label, (_, probability) in zip(labels, shown, strict=True):
        gap = " " * (width - text_width(label))
        line = f"  {label}{gap}  {probability:6.1%}  {screen.bar(probability, bar)}"
        yield line.rstrip()
    if more:
        rest = sum(probability for _, probability in more)
        yield f"  and {len(more)} more, together {rest:.1%}"


def _cut(text: str, width: int) -> str:
    """Return a text on one line, cut to a width in columns."""
    line = " ".join(text.split())
    if text_width(line) <= width:
        return line
    room = width - 3
    for n, character in enumerate(line):
        room -= text_width(character)
        if room < 0:
            return line[:n] + "..."
    return line


def _can_write(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
