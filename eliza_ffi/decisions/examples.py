"""Labelled examples: inputs with the right answers, and the scores of a model for them."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_several, found, wrong
from ..errors import InvalidArgumentError
from ..terminal import counted
from .answers import by_name, expand, name_of, parts_of
from .prompts import AskedQuestion
from .questions import Choice, MultiLabel, Predicate, Question, Score, Value, text_of

UNLABELLED = -1
"""The target of a question that an example does not answer."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?")


@dataclass(frozen=True, eq=False)
class Examples:
    """Hold inputs with the right options of questions that have one answer each. `targets`, shape
    [n_inputs, n_questions], has the indices of the right options in the order of the question (true
    is 0); :data:`UNLABELLED` = not answered."""

    inputs: tuple[Any, ...]
    targets: NDArray[np.intp]


def named_questions(questions: Sequence[Question]) -> tuple[tuple[str, AskedQuestion], ...]:
    """Split questions into questions with one answer each, and name each one.

    A label of :class:`~eliza_ffi.decisions.MultiLabel` becomes a predicate, such as ``"topics:
    sport"``.
    """
    named: list[tuple[str, AskedQuestion]] = []
    for i, question in enumerate(questions):
        name = name_of(question.name, i)
        if isinstance(question, MultiLabel):
            predicates: tuple[Any, ...] = expand(question)
            pairs = zip(question.labels, predicates, strict=True)
            named += [(f"{name}: {text_of(label.value)}", asked) for label, asked in pairs]
        else:
            named.append((name, question))
    return tuple(named)


def for_each_question(what: str, given: Any, questions: Sequence[Question]) -> list[Any]:
    """Return a value for each question of :func:`named_questions`.

    `given` is one value for all, or a mapping from the names of all questions. A question with
    several labels has one value. `what` names the values in errors.
    """
    names = by_name(questions)
    if not isinstance(given, Mapping):
        return [given] * len(named_questions(questions))
    listed = ", ".join(map(repr, names))
    for name in given:
        if name not in names:
            raise InvalidArgumentError(f"{what}: expected questions among {listed}, got {name!r}")
    for name in names:
        if name not in given:
            raise InvalidArgumentError(
                f"{what}: expected one for each of {listed}, got none for {name!r}"
            )
    return [given[name] for name, _, parts in parts_of(questions) for _ in parts]


def option_names(question: AskedQuestion) -> tuple[str, ...]:
    return tuple(map(text_of, question.values))


def option_place(what: str, question: AskedQuestion, option: Any) -> int:
    """Return the index of an option that its value or its name gives; `what` begins the error."""
    values, names = list(question.values), option_names(question)
    if option in values:
        return values.index(option)
    if str(option) in names:
        return names.index(str(option))
    listed = ", ".join(map(repr, names))
    raise InvalidArgumentError(f"{what}: expected one of {listed}, got {option!r}")


def level_of(question: Score, answer: Any) -> int:
    """Return the index of the level that an answer names, 0 for the lowest.

    The answer is a label or a number, also as a string. A number that equals a label is that level
    (2, 2.0 and ``"2.0"`` mean ``"2"``); otherwise it is an index, unless all labels are numbers.
    """
    labels = question.values
    numbers = [_number(label) for label in labels]
    has_indices = None in numbers
    text = answer if isinstance(answer, str) else _number_text(answer)
    if text is not None:
        if text in labels:
            return labels.index(text)
        number = _number(text)
        if number is not None and number in numbers:
            return numbers.index(number)
        if number is not None and has_indices and number in range(len(labels)):
            return int(number)
    listed = ", ".join(map(repr, labels))
    level = f" or a level from 0 to {len(labels) - 1}" if has_indices else ""
    raise InvalidArgumentError(f"expected one of {listed}{level}, got {answer!r}")


def read_examples(questions: Sequence[Question], examples: Iterable[tuple[Any, Any]]) -> Examples:
    """Read labelled examples: pairs of an input and a mapping from question names to right answers.

    The name of an unnamed question is its index, ``"0"`` for the first. If there is only one
    question, its right answer can take the place of the mapping. The answer to a predicate is a
    bool, 1 or 0; to a choice the value of the option; to a score the level in a form that
    :func:`level_of` accepts; and to labels a list of the labels that fit. A question is unanswered
    if its name is missing or its answer is None. Errors name the example.
    """
    asked = by_name(questions)
    inputs, targets = [], []
    listed = check_several("examples", examples, "a list of pairs of an input and right answers")
    for i, example in enumerate(listed):
        value, answers = _pair(i, example, list(asked))
        unknown = [name for name in answers if name not in asked]
        if unknown:
            raise InvalidArgumentError(
                f"example {i} answers {unknown[0]!r}, but no question has that name; the "
                f"questions are {', '.join(map(repr, asked))}"
            )
        inputs.append(value)
        row: list[int] = []
        for name, question in asked.items():
            try:
                row += _targets(question, answers.get(name))
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"example {i}, {name!r}: {error}") from None
        targets.append(row)
    n_questions = len(named_questions(questions))
    return Examples(tuple(inputs), np.array(targets, dtype=np.intp).reshape(-1, n_questions))


def _pair(index: int, example: Any, names: Sequence[str]) -> tuple[Any, Mapping[str, Any]]:
    is_pair = isinstance(example, Sequence) and not isinstance(example, str | bytes)
    if not is_pair or len(example) != 2:
        answers = "a right answer" if len(names) == 1 else "right answers"
        hint = f"it has {counted(len(example), 'item')}" if is_pair else ""
        raise wrong(f"example {index}", f"a pair of an input and {answers}", example, hint)
    value, answers = example
    if isinstance(answers, Mapping):
        return value, answers
    if len(names) == 1:
        return value, {names[0]: answers}
    raise InvalidArgumentError(
        f"example {index}: expected a mapping from the questions {', '.join(map(repr, names))} to "
        f"right answers, got {found(answers)}"
    )


def _targets(question: Question, answer: Any) -> list[int]:
    """Return the index of the right option. Labels have one index for each label."""
    if answer is None:
        return [UNLABELLED] * (len(question.labels) if isinstance(question, MultiLabel) else 1)
    if isinstance(question, Score):
        return [level_of(question, answer)]
    if isinstance(question, Choice):
        return [_index_of(answer, question.values)]
    if isinstance(question, Predicate):
        is_truth = isinstance(answer, bool | np.bool_)
        is_number = isinstance(answer, int | float | np.number) and answer in (0, 1)
        if not (is_truth or is_number):
            raise InvalidArgumentError(
                f"the answer to a predicate must be True or False, or 1 or 0, got {answer!r}"
            )
        return [0 if answer else 1]
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise InvalidArgumentError(
            f"the answer to labels must be a list of the labels that fit, got {answer!r}"
        )
    values = [label.value for label in question.labels]
    fitting = {_index_of(value, values) for value in answer}
    return [0 if i in fitting else 1 for i in range(len(values))]


def _number_text(answer: Any) -> str | None:
    """Return the text of a number in a table; None if the answer is not a number."""
    if isinstance(answer, bool | np.bool_):
        return None
    if isinstance(answer, float | np.floating):
        return json.dumps(float(answer))
    try:
        return str(operator.index(answer))
    except (TypeError, ValueError):  # ValueError: an integer of thousands of digits
        return None


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _index_of(answer: Any, values: Sequence[Value]) -> int:
    value = bool(answer) if isinstance(answer, np.bool_) else answer
    if isinstance(value, str | bool | Enum) and value in values:
        return values.index(value)
    texts = [text_of(each) if isinstance(each, Enum) else None for each in values]
    if isinstance(value, str) and value in texts:
        return texts.index(value)
    raise InvalidArgumentError(f"expected one of {', '.join(map(repr, values))}, got {answer!r}")
