"""The text around an input: chat or plain, with the question before or after the input.

In plain text with the question first, the description of each option is an example of an input to
which the option is the answer; docs/explanation/measurements.md has figures. Examples come before
the input in the same form, in a chat as turns of the user and the assistant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .prompts import RenderedQuestion
from .questions import Choice, Predicate

PromptOrder = Literal["question-first", "input-first"]
PROMPT_ORDERS: tuple[PromptOrder, ...] = ("question-first", "input-first")

PromptFormat = Literal["chat", "plain"]
PROMPT_FORMATS: tuple[PromptFormat, ...] = ("chat", "plain")

INPUT = "Text: "
ANSWER = "\nAnswer: "


@dataclass(frozen=True)
class Shot:
    """An example in a prompt: the text of an input, and the index of its right option."""

    text: str
    option: int


@dataclass(frozen=True)
class Frame:
    """The text around an input, which the answer follows directly. `turns` has the roles and the
    contents of earlier messages; it is empty for plain text."""

    turns: tuple[tuple[str, str], ...]
    before: str
    after: str

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(role for role, _ in self.turns)

    def with_input(self, input: str) -> str:
        """Return the text with an input. If it is empty, strip line breaks at both ends."""
        text = f"{self.before}{input}{self.after}"
        return text if input else text.strip("\n")


def frame(
    asked: RenderedQuestion, form: PromptFormat, order: PromptOrder, shots: tuple[Shot, ...] = ()
) -> Frame:
    answered = [(shot.text.strip(), asked.label_of(shot.option)) for shot in shots]
    if form == "chat":
        return _chat(asked, order, answered)
    before, after = _plain(asked, order)
    before += "".join(f"{INPUT}{text}{after}{label}\n\n" for text, label in answered)
    return Frame((), before + INPUT, after)


def _chat(asked: RenderedQuestion, order: PromptOrder, answered: list[tuple[str, str]]) -> Frame:
    before, after = (
        (f"{asked.text}\n\n", "") if order == "question-first" else ("", f"\n\n{asked.text}")
    )
    turns: list[tuple[str, str]] = []
    for text, label in answered:
        turns += [("user", before + text + after), ("assistant", label)]
        if order == "question-first":
            before = ""  # the question is in the first message
    return Frame(tuple(turns), before, after)


def _plain(asked: RenderedQuestion, order: PromptOrder) -> tuple[str, str]:
    if order == "input-first":
        return "", f"\n\n{asked.text}{ANSWER}"
    question = asked.question
    is_hidden = isinstance(question, Choice) and not question.lists_options
    if is_hidden or isinstance(question, Predicate) or asked.options[0].is_lettered:
        return f"{asked.text}\n\n", ANSWER
    described = (f"{INPUT}{option.meaning}{ANSWER}{option.label}\n\n" for option in asked.options)
    return f"{question.instructions.strip()}\n\n" + "".join(described), ANSWER
