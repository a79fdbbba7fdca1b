"""The text of a question as a model sees it, without the input:

    {instructions}
    Answer with one of:
    - {option}: {description}

If the model answers with letters, the lines are ``A. {option}: {description}``.
"""

from __future__ import annotations

import operator
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..checks import check_kind, check_one_of, check_whole, wrong
from ..errors import InvalidArgumentError, NotTextError
from .questions import Choice, Predicate, Score, refuse_not_text, text_of

AnswerStyle = Literal["text", "letters"]

ANSWER_STYLES: tuple[AnswerStyle, ...] = ("text", "letters")

AskedQuestion: TypeAlias = "Predicate | Choice | Score"
"""A question with a single answer."""

YES, NO = "yes", "no"

MIN_WORD = 3
"""Shorter words of a description, such as "a" or "of", say nothing about an option."""

MAX_WORDS = 24
"""How many words of a description are read as answers."""


@dataclass(frozen=True)
class ShownOption:
    """Describe an option as a prompt shows it.

    Attributes
    ----------
    label : str
        The text that the model writes to choose this option.
    text : str
    description : str or None
    is_lettered : bool
        Whether the label is a letter instead of the text of the option.
    """

    label: str
    text: str
    description: str | None = None
    is_lettered: bool = False

    @property
    def meaning(self) -> str:
        """The description of the option, or its text if it has none."""
        return self.description or self.text

    @property
    def words(self) -> list[str]:
        """The first words of the description, each one once."""
        return _words(self.description or "")[:MAX_WORDS]

    @property
    def in_words(self) -> ShownOption:
        """The same option, with a word of its description instead of a label that is a code.

        The word ends the first part of the description, which the other parts then explain.
        """
        if not is_code(self.label):
            return self
        first, *rest = re.split(r"[,;:.()]\s*", self.description or "", maxsplit=1)
        word = (_words(first) or self.words)[-1]
        return ShownOption(word, word, rest[0] if rest and _words(rest[0]) else self.description)

    @property
    def line(self) -> str:
        """The line of the option in the prompt's list."""
        mark = f"{self.label}. " if self.is_lettered else "- "
        described = f": {_one_line(self.description)}" if self.description else ""
        return mark + _one_line(self.text) + described


@dataclass(frozen=True)
class RenderedQuestion:
    """A question with its options in the order of the prompt, and their labels.

    Attributes
    ----------
    question : Predicate, Choice or Score
    options : tuple of ShownOption
        The options in the order of the prompt. Empty if the prompt does not list the options, and
        a search finds the most probable ones.
    order : tuple of int
        For each shown option, its index among the question's options.
    """

    question: AskedQuestion
    options: tuple[ShownOption, ...]
    order: tuple[int, ...]

    def label_of(self, option: int) -> str:
        """Return the label of an option, given its index among the question's options."""
        option = check_whole("option", option, 0, option_count(self.question) - 1)
        if self.options:
            return self.options[self.order.index(option)].label
        return options_of(self.question)[option][0]

    @property
    def answers(self) -> list[list[str]] | None:
        """The answers that stand for each shown option: its label and the words that describe it.

        A label that is a code does not count. None if an option has no words: the mean over several
        answers varies less than a single one, so the options could not be compared.
        """
        found = []
        for option in self.options:
            others = {each.label for each in self.options} - {option.label}
            words = [word for word in option.words if word not in others]
            if not words or option.is_lettered or isinstance(self.question, Predicate):
                return None
            first = [] if is_code(option.label) else [option.label]
            found.append(list(dict.fromkeys([*first, *words])))
        return found

    @property
    def text(self) -> str:
        """The question and its options, in the format that the module describes."""
        if isinstance(self.question, Choice) and not self.question.lists_options:
            return self.question.instructions.strip()
        by_letter = self.options[0].is_lettered
        head = "Answer with the letter of one of" if by_letter else "Answer with one of"
        if isinstance(self.question, Score):
            upward = tuple(range(len(self.order)))
            directions = {upward: ", lowest first", upward[::-1]: ", highest first"}
            head += " these levels" + directions.get(self.order, "")
        lines = "\n".join(option.line for option in self.options)
        return f"{self.question.instructions.strip()}\n{head}:\n{lines}"


def ask(
    question: AskedQuestion, answer_style: AnswerStyle = "text", order: Sequence[int] | None = None
) -> RenderedQuestion:
    """Choose labels and an order for the options of a question.

    >>> ask(Choice("Which team?", ["billing", "login"]), "letters").label_of(1)
    'B'

    Parameters
    ----------
    answer_style
        The labels that the model answers with: ``"text"``, the texts of the options, or
        ``"letters"``. The first option shown has the first letter.
    order
        The indices of the question's options in the order of the prompt, each one once. None keeps
        the question's order.
    """
    check_kind("question", question, (Predicate, Choice, Score), "a Predicate, Choice or Score")
    check_one_of("answer_style", answer_style, ANSWER_STYLES)
    if answer_style == "letters" and isinstance(question, Choice) and not question.lists_options:
        raise InvalidArgumentError(
            f'answer_style="letters" needs a prompt that lists the options, but the question with '
            f"{len(question.options)} options does not: pass show_options=True, or leave "
            "answer_style out"
        )
    options = options_of(question)
    order = range(len(options)) if order is None else order
    try:
        order = tuple(map(operator.index, order))
    except TypeError:
        raise wrong("order", "a list of the options' indices", order) from None
    if sorted(order) != list(range(len(options))):
        raise InvalidArgumentError(
            f"order must contain each index from 0 to {len(options) - 1} once, got {order}"
        )
    texts = [options[i][0] for i in order]
    marks = _letters(len(options)) if answer_style == "letters" else texts
    shown = [
        ShownOption(mark, text, options[i][1], answer_style == "letters")
        for mark, text, i in zip(marks, texts, order, strict=True)
    ]
    return RenderedQuestion(question, tuple(shown), order)


def is_code(label: str) -> bool:
    """Return whether a label is an identifier with a part that is not a word: ``Q3_TEAM_B``.

    Such a part has a digit, a single letter or no vowel. A code means nothing to a model.
    """
    parts = re.findall(r"[^\W_]+", label)
    is_identifier = label.isascii() and not re.search(r"\s", label.strip())
    return is_identifier and any(
        len(part) == 1 or re.search(r"\d", part) or not re.search("[aeiouy]", part.lower())
        for part in parts
    )


def _words(text: str) -> list[str]:
    return list(dict.fromkeys(re.findall(rf"[^\W\d_]{{{MIN_WORD},}}", text)))


def option_count(question: AskedQuestion) -> int:
    return len(question.values)


def input_text(input: Any) -> str:
    """Convert an input to text: a conversation turn by turn, other data as JSON.

    >>> input_text({"mail": "I paid twice!"})
    '{"mail": "I paid twice!"}'

    Parameters
    ----------
    input
        A string, which is returned unchanged, a sequence of messages (mappings with a ``role`` and
        a ``content``), or JSON.

    Raises
    ------
    InvalidArgumentError
        If the input is None or has none of these forms, or if it contains images, audio or files.
    """
    if input is None:
        raise wrong("input", "a string, a list of messages or JSON", input)
    if isinstance(input, str):
        return input
    if is_conversation(input):
        return "\n".join(turn_text(message) for message in input)
    _refuse_parts(input)
    try:
        return text_of(input, "input")
    except InvalidArgumentError as error:
        if isinstance(input, type | Mapping | Sequence) or not isinstance(input, Iterable):
            raise
        hint = "for several inputs use decide_many()"
        raise InvalidArgumentError(f"{error}; {hint}") from error


def check_one_input(input: Any) -> None:
    """Raise InvalidArgumentError for a list of strings, which usually means several inputs."""
    if _is_strings(input):
        hint = "to ask about each string use decide_many(); otherwise join the strings"
        raise wrong("input", "one input", input, hint)


def as_one_input(input: Any) -> Any:
    """Convert a list of strings to a tuple, which :func:`check_one_input` accepts."""
    return tuple(input) if _is_strings(input) else input


def _is_strings(input: Any) -> bool:
    return isinstance(input, list) and bool(input) and all(isinstance(s, str) for s in input)


def refuse_media(part: Mapping[str, Any]) -> None:
    """Reject a message part whose type contains ``image``, ``audio`` or ``file``."""
    kind = str(part.get("type", ""))
    if "image" in kind or "audio" in kind or "file" in kind:
        raise NotTextError(f"the input has a part of type {kind!r}: only text is supported")


def options_of(question: AskedQuestion) -> list[tuple[str, str | None]]:
    if isinstance(question, Predicate):
        return [(YES, question.if_true), (NO, question.if_false)]
    if isinstance(question, Score):
        return [(level.label, level.description) for level in question.levels]
    descriptions = [option.description for option in question.options]
    return list(zip(question.texts, descriptions, strict=True))


def _letters(n: int) -> list[str]:
    """Return n labels A, B, ..., or for more than 26 options AA, AB, ...: none is a prefix of
    another."""
    letters = string.ascii_uppercase
    if n <= len(letters):
        return list(letters[:n])
    return [first + second for first in letters for second in letters][:n]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def is_conversation(input: Any) -> bool:
    is_list = isinstance(input, Sequence) and not isinstance(input, bytes) and bool(input)
    return is_list and all(isinstance(item, Mapping) and _is_item(item) for item in input)


def _is_item(item: Mapping[Any, Any]) -> bool:
    return "content" in item if "role" in item else item.get("type") in list(_CALLS)


_CALLS = {
    "function_call": ("name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call": ("name", "input"),
    "custom_tool_call_output": ("call_id", "output"),
}
"""Items of a conversation that are not messages, with the two fields that the text shows."""


def turn_text(item: Mapping[str, Any]) -> str:
    if "role" not in item:
        head, body = _CALLS[item["type"]]
        name = item["type"].replace("_", " ")
        return f"{name} {text_of(item.get(head, ''))}: {_content_text(item.get(body))}"
    parts = [_content_text(item["content"])]
    if item.get("tool_calls"):
        parts.append(text_of(item["tool_calls"]))
    return f"{item['role']}: " + "\n".join(filter(None, parts))


def _content_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence) and all(isinstance(part, Mapping) for part in content):
        return "\n".join(_part_text(part) for part in content)
    return text_of(content)


def _refuse_parts(input: Any) -> None:
    """Reject images, audio and files in JSON that looks like a conversation in another format."""
    items = input.get("messages") if isinstance(input, Mapping) else input
    for item in items if isinstance(items, list | tuple) else ():
        content = item.get("content") if isinstance(item, Mapping) else None
        for part in (item, *(content if isinstance(content, list | tuple) else ())):
            refuse_not_text(part, "the input has")


def _part_text(part: Mapping[str, Any]) -> str:
    refuse_media(part)
    for name in ("text", "refusal"):
        if isinstance(part.get(name), str):
            return str(part[name])
    return text_of(part)
