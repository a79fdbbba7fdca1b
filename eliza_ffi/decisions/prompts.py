"""How a question is put to a model, in words.

The input comes first and the question behind it, in one turn of the user:

    {input}

    {instructions}
    Answer with one of:
    - {option}: {description}
    - {option}

so that all questions about an input begin alike and it is read once. The model's answer begins with
the label of an option. Labels are the options' own texts, or letters:

    Answer with the letter of one of:
    A. {option}: {description}
    B. {option}

A predicate's options are ``yes`` and ``no``. The levels of a score are listed from one end, and the
line above them says from which: ``Answer with one of these levels, lowest first:``.
"""

from __future__ import annotations

import operator
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ..checks import check_kind, check_one_of, wrong
from ..errors import InvalidArgumentError
from .questions import Choice, Predicate, Score, Value, refuse_not_text, text_of

__all__ = [
    "LABEL_STYLES",
    "Asked",
    "AskedQuestion",
    "LabelStyle",
    "ShownOption",
    "as_one_input",
    "ask",
    "check_one_input",
    "input_text",
    "option_count",
    "refuse_media",
]

LabelStyle = Literal["text", "letters"]

LABEL_STYLES: tuple[LabelStyle, ...] = ("text", "letters")

AskedQuestion: TypeAlias = "Predicate | Choice | Score"
"""A question that has one answer."""

YES, NO = "yes", "no"


@dataclass(frozen=True)
class ShownOption:
    """An option as a prompt shows it.

    Attributes
    ----------
    label : str
        What the model is to answer with.
    text : str
    description : str or None
    is_lettered : bool
        Whether the label is a letter that stands for the text.
    """

    label: str
    text: str
    description: str | None = None
    is_lettered: bool = False

    @property
    def line(self) -> str:
        """The option in a list."""
        mark = f"{self.label}. " if self.is_lettered else "- "
        described = f": {_one_line(self.description)}" if self.description else ""
        return mark + _one_line(self.text) + described


@dataclass(frozen=True)
class Asked:
    """A question as it is put to a model: its options with their labels, in an order.

    Attributes
    ----------
    question : Predicate, Choice or Score
    options : tuple of ShownOption
        In the order they are shown.
    order : tuple of int
        Which of the question's options each of them is.
    """

    question: AskedQuestion
    options: tuple[ShownOption, ...]
    order: tuple[int, ...]

    @property
    def text(self) -> str:
        """The question and its options, as the module says."""
        by_letter = self.options[0].is_lettered
        head = "Answer with the letter of one of" if by_letter else "Answer with one of"
        if isinstance(self.question, Score):
            head += " these levels" + self._direction
        lines = "\n".join(option.line for option in self.options)
        return f"{self.question.instructions.strip()}\n{head}:\n{lines}"

    @property
    def _direction(self) -> str:
        """From which end the options are listed, if from one."""
        upward = tuple(range(len(self.order)))
        return {upward: ", lowest first", upward[::-1]: ", highest first"}.get(self.order, "")


def ask(
    question: AskedQuestion, labels: LabelStyle = "text", order: Sequence[int] | None = None
) -> Asked:
    """Put a question into words.

    Parameters
    ----------
    question
    labels
        What the model answers with: the options' texts, or letters in the order they are shown.
    order
        Which of the question's options is shown first, second, ...; None = as they were given.

    Raises
    ------
    InvalidArgumentError
        If `labels` is neither, or `order` not an order of the options.
    """
    check_kind("question", question, (Predicate, Choice, Score), "a Predicate, Choice or Score")
    check_one_of("labels", labels, LABEL_STYLES)
    options = _options(question)
    order = range(len(options)) if order is None else order
    try:
        order = tuple(map(operator.index, order))
    except TypeError:
        raise wrong("order", "a list of the options' places", order) from None
    if sorted(order) != list(range(len(options))):
        raise InvalidArgumentError(f"not an order of {len(options)} options: {order}")
    texts = [options[i][0] for i in order]
    marks = _letters(len(options)) if labels == "letters" else texts
    shown = [
        ShownOption(mark, text, options[i][1], labels == "letters")
        for mark, text, i in zip(marks, texts, order, strict=True)
    ]
    return Asked(question, tuple(shown), order)


def option_count(question: AskedQuestion) -> int:
    """Return how many options a question has."""
    if isinstance(question, Predicate):
        return 2
    return len(question.levels if isinstance(question, Score) else question.options)


def input_text(given: Any) -> str:
    """Return an input in words: a text as it is, a conversation turn by turn, other data as JSON.

    Parameters
    ----------
    given
        A text, a sequence of messages (mappings with a ``role`` and a ``content``), or JSON.

    Raises
    ------
    InvalidArgumentError
        If it is none of these, None, or has an image in it.
    """
    if given is None:
        raise InvalidArgumentError("the input is None")
    if isinstance(given, str):
        return given
    if _is_conversation(given):
        return "\n".join(_turn(message) for message in given)
    _refuse_parts(given)
    try:
        return text_of(given, "input")
    except InvalidArgumentError as error:
        if isinstance(given, type | Mapping | Sequence) or not isinstance(given, Iterable):
            raise
        hint = "for several inputs use decide_many()"
        raise InvalidArgumentError(f"{error}; {hint}") from error


def check_one_input(given: Any) -> None:
    """Raise InvalidArgumentError for a list of strings, which usually means several inputs."""
    if _is_strings(given):
        hint = "for an answer to each string use decide_many(); to ask about all, join them"
        raise wrong("input", "one input", given, hint)


def as_one_input(given: Any) -> Any:
    """Return an input of a table or a request, so that a list of strings is one input, too."""
    return tuple(given) if _is_strings(given) else given


def _is_strings(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(s, str) for s in given)


def refuse_media(part: Mapping[str, Any]) -> None:
    """Refuse a part of a message that is no text, whatever its type is called exactly."""
    kind = str(part.get("type", ""))
    if "image" in kind or "audio" in kind or "file" in kind:
        raise InvalidArgumentError(f"the input has a part of type {kind!r}: only text is read")


def _options(question: AskedQuestion) -> list[tuple[str, str | None]]:
    """Return the text and the description of each option."""
    if isinstance(question, Predicate):
        return [(YES, question.if_true), (NO, question.if_false)]
    if isinstance(question, Score):
        return [(level.label, level.description) for level in question.levels]
    texts = [option.value for option in question.options if isinstance(option.value, str)]
    return [(value_text(option.value, texts), option.description) for option in question.options]


def value_text(value: Value, texts: Sequence[str]) -> str:
    """Return a value in words; a text that reads like a bool among the options is quoted."""
    if isinstance(value, str):
        return value
    text = text_of(value)
    return f"{text} (bool)" if text in texts else text


def _letters(n: int) -> list[str]:
    """Return A, B, ..., or where these are too few AA, AB, ...: no label begins another one."""
    letters = string.ascii_uppercase
    if n <= len(letters):
        return list(letters[:n])
    return [first + second for first in letters for second in letters][:n]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _is_conversation(given: Any) -> bool:
    return (
        isinstance(given, Sequence)
        and not isinstance(given, bytes)
        and bool(given)
        and all(isinstance(item, Mapping) and _is_item(item) for item in given)
    )


def _is_item(item: Mapping[Any, Any]) -> bool:
    return "content" in item if "role" in item else _kind(item) in _CALLS


def _kind(item: Mapping[Any, Any]) -> str:
    kind = item.get("type")
    return kind if isinstance(kind, str) else ""


_CALLS = {
    "function_call": ("name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call": ("name", "input"),
    "custom_tool_call_output": ("call_id", "output"),
}
"""Items of a conversation that are no messages, and what they say."""


def _turn(item: Mapping[str, Any]) -> str:
    kind = _kind(item)
    if kind in _CALLS and "role" not in item:
        head, body = _CALLS[kind]
        name = kind.replace("_", " ")
        return f"{name} {text_of(item.get(head, ''))}: {_content_text(item.get(body))}"
    said = [_content_text(item["content"])]
    if item.get("tool_calls"):
        said.append(text_of(item["tool_calls"]))
    return f"{item['role']}: " + "\n".join(filter(None, said))


def _content_text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, Sequence) and all(isinstance(part, Mapping) for part in content):
        return "\n".join(_part_text(part) for part in content)
    return text_of(content)


def _refuse_parts(given: Any) -> None:
    """Refuse parts that are no text in what is JSON to us and a conversation to others."""
    items = given.get("messages") if isinstance(given, Mapping) else given
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
