"""Examples: inputs with the answers that are right, and asking about them."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import check_several
from ..errors import ContextFullError, ElizaError, InvalidArgumentError
from .answers import name_of
from .asking import How, ask_many
from .models.model_asking import decision_model_of
from .prompts import AskedQuestion, input_text
from .questions import Choice, Labels, Predicate, Question, Score, Value, text_of
from .scoring import QuestionScores

__all__ = [
    "UNTOLD",
    "Examples",
    "ask_examples",
    "is_made",
    "level_of",
    "named_questions",
    "option_names",
    "read_examples",
]

Progress = Callable[[int, "int | None"], Any]
"""Takes how many inputs were asked about and how many there are."""

OnSkip = Callable[[int, str], Any]
"""Takes the place of an example that is left out, and why."""

UNTOLD = -1
"""Stands for the right option of a question where an example does not tell it."""

_NUMBER = re.compile(r"[+-]?[0-9]{1,15}(\.[0-9]{1,15})?")


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs, and the right options of questions with one answer each.

    Attributes
    ----------
    inputs : tuple
    targets : array of int, shape [n_inputs, n_questions]
        Which option is right: 0 for true and 1 for false, else in the order they are given;
        :data:`UNTOLD` where an example does not tell.
    """

    inputs: tuple[Any, ...]
    targets: NDArray[np.intp]

    def __len__(self) -> int:
        return len(self.inputs)


def named_questions(questions: Sequence[Question]) -> tuple[tuple[str, AskedQuestion], ...]:
    """Return the questions with one answer each that questions come to, with what to call them.

    The predicates that :class:`~eliza_ffi.decisions.Labels` come to are called by question and
    label, as in ``"topics: sport"``.
    """
    named: list[tuple[str, AskedQuestion]] = []
    for place, question in enumerate(questions):
        name = name_of(question.name, place)
        if isinstance(question, Labels):
            pairs = zip(question.labels, question.predicates, strict=True)
            named += [(f"{name}: {text_of(label.value)}", asked) for label, asked in pairs]
        else:
            named.append((name, question))
    return tuple(named)


def option_names(question: AskedQuestion) -> tuple[str, ...]:
    """Return what to call a question's options in a table."""
    if isinstance(question, Predicate):
        return "true", "false"
    if isinstance(question, Score):
        return tuple(level.label for level in question.levels)
    return tuple(text_of(option.value) for option in question.options)


def level_of(question: Score, answer: Any) -> int:
    """Return the place of the level that an answer stands for, 0 for the lowest.

    Parameters
    ----------
    question
    answer
        The label; or a number, as a number or a text: the label that is this number, if there is
        one, as 2, 2.0 and ``"2.0"`` are the label ``"2"``, and else the level at this place.

    Raises
    ------
    InvalidArgumentError
        If it is neither.
    """
    labels = [level.label for level in question.levels]
    text = answer if isinstance(answer, str) else _number_text(answer)
    if text is not None:
        if text in labels:
            return labels.index(text)
        number = _number(text)
        numbers = [_number(label) for label in labels]
        if number is not None and number in numbers:
            return numbers.index(number)
        if number is not None and number in range(len(labels)):
            return int(number)
    listed = ", ".join(map(repr, labels))
    raise InvalidArgumentError(f"{answer!r} is none of {listed}, nor 0 to {len(labels) - 1}")


def read_examples(
    questions: Sequence[Question], examples: Iterable[tuple[Any, Mapping[str, Any]]]
) -> Examples:
    """Return inputs, and which options are right.

    Parameters
    ----------
    questions
    examples
        Pairs of an input and the right answers to questions by their names, or by their places
        where they have none (``"0"`` for the first): for a predicate a bool, for a choice the
        option's value, for a score the level by :func:`level_of`, for labels those that fit. A
        question that is not in there, or is None, is not told.

    Raises
    ------
    InvalidArgumentError
        If one is malformed or answers what is not asked; the text says which.
    """
    by_name = {name_of(question.name, place): question for place, question in enumerate(questions)}
    inputs, targets = [], []
    listed = check_several("examples", examples, "a list of pairs of an input and right answers")
    for place, example in enumerate(listed):
        given, answers = _pair(place, example)
        unknown = [name for name in answers if name not in by_name]
        if unknown:
            raise InvalidArgumentError(
                f"example {place} answers {unknown[0]!r}, and no question is called that"
            )
        inputs.append(given)
        row: list[int] = []
        for name, question in by_name.items():
            try:
                row += _targets(question, answers.get(name))
            except InvalidArgumentError as error:
                raise InvalidArgumentError(f"example {place}, {name!r}: {error}") from None
        targets.append(row)
    n_questions = len(named_questions(questions))
    return Examples(tuple(inputs), np.array(targets, dtype=np.intp).reshape(-1, n_questions))


def is_made(model: Any, how: How) -> bool:
    """Return whether a model is asked in a form of its own, that it was made for.

    Such a model has one order of the options and one scoring rule, and no others can be tried.
    """
    session = getattr(model, "session", None)
    return session is not None and how.prompt is None and decision_model_of(session) is not None


def ask_examples(
    model: Any,
    inputs: Sequence[Any],
    questions: Sequence[AskedQuestion],
    wanted: NDArray[np.bool_],
    how: How,
    *,
    whole: bool,
    called: str = "example",
    progress: Progress | None = None,
    on_skip: OnSkip | None = None,
) -> tuple[list[list[QuestionScores]], NDArray[np.bool_]]:
    """Ask each question about the inputs for which it is wanted.

    Inputs of which the same questions are wanted are asked about together, and what is not wanted
    is not asked.

    Parameters
    ----------
    model, inputs, questions
    wanted
        Shape [n_inputs, n_questions].
    how, whole
        As :func:`~eliza_ffi.decisions.asking.ask_many` has them.
    called
        What an input is called in an error, before its number.
    progress
        Called with how many of the inputs are done and how many there are.
    on_skip
        Called with the place of each input that cannot be asked about, and why; nothing of it is
        asked then. None = that is an error, which ends the others.

    Returns
    -------
    list of list of QuestionScores
        For each question those of the inputs of which it was asked, in their order.
    array of bool, shape [n_inputs, n_questions]
        Which these are: those that are wanted, but for skipped inputs.

    Raises
    ------
    InvalidArgumentError, ContextFullError
        If an input cannot be asked about, or with `on_skip` none; the text names it.
    """

    def failed(rows: Sequence[int], place: int, error: ElizaError) -> str:
        row, why = rows[place], str(error)
        kind = ContextFullError if isinstance(error, ContextFullError) else InvalidArgumentError
        if kind is ContextFullError:
            why = f"a text of {len(input_text(inputs[row])):,} characters: {why}"
        if on_skip is None:
            raise kind(f"{called} {row}: {why}") from error
        return why

    groups: dict[tuple[int, ...], list[int]] = {}
    for row in range(len(inputs)):
        places = tuple(int(place) for place in np.flatnonzero(wanted[row]))
        if places:
            groups.setdefault(places, []).append(row)
    total = sum(map(len, groups.values()))
    found: dict[tuple[int, int], QuestionScores] = {}
    skipped: dict[int, str] = {}
    done = 0
    for places, rows in groups.items():
        answered = ask_many(
            model,
            [inputs[row] for row in rows],
            [questions[place] for place in places],
            how,
            whole=whole,
            progress=_after(done, total, progress),
            failed=partial(failed, rows),
        )
        for row, scores in zip(rows, answered, strict=True):
            if isinstance(scores, str):
                skipped[row] = scores
                continue
            found.update({(place, row): one for place, one in zip(places, scores, strict=True)})
        done += len(rows)
    asked = wanted.copy()
    for row in sorted(skipped):
        asked[row] = False
        assert on_skip is not None, "what is not skipped was raised"
        on_skip(row, skipped[row])
    if skipped and len(skipped) == total:
        first, why = min(skipped.items())
        raise InvalidArgumentError(f"no {called} can be asked about; {called} {first}: {why}")
    scores = [
        [found[place, int(row)] for row in np.flatnonzero(asked[:, place])]
        for place in range(len(questions))
    ]
    return scores, asked


def _after(before: int, total: int, progress: Progress | None) -> Progress | None:
    """Return a `progress` for a part, of which `before` others are done."""
    return None if progress is None else lambda done, _: progress(before + done, total)


def _pair(place: int, example: Any) -> tuple[Any, Mapping[str, Any]]:
    is_pair = isinstance(example, Sequence) and not isinstance(example, str | bytes)
    if not is_pair or len(example) != 2 or not isinstance(example[1], Mapping):
        raise InvalidArgumentError(
            f"example {place} must be an input and a mapping from questions to right answers"
        )
    return example[0], example[1]


def _targets(question: Question, answer: Any) -> list[int]:
    """Return the right option of each question with one answer."""
    if isinstance(question, Labels):
        return _fitting(question, answer)
    if answer is None:
        return [UNTOLD]
    if isinstance(question, Predicate):
        if not isinstance(answer, bool | np.bool_):
            raise InvalidArgumentError(f"a predicate is True or False, not {answer!r}")
        return [0 if answer else 1]
    if isinstance(question, Choice):
        return [_place_of(answer, [option.value for option in question.options])]
    return [level_of(question, answer)]


def _fitting(question: Labels, answer: Any) -> list[int]:
    values = [label.value for label in question.labels]
    if answer is None:
        return [UNTOLD] * len(values)
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        raise InvalidArgumentError(f"labels are answered with those that fit, not {answer!r}")
    places = {_place_of(value, values) for value in answer}
    return [0 if place in places else 1 for place in range(len(values))]


def _number_text(answer: Any) -> str | None:
    """Return a number as a table has it; None for what is none."""
    if isinstance(answer, bool | np.bool_):
        return None
    if isinstance(answer, float | np.floating):
        return json.dumps(float(answer))
    try:
        return str(operator.index(answer))
    except (TypeError, ValueError):  # ValueError: of thousands of digits
        return None


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _place_of(answer: Any, values: Sequence[Value]) -> int:
    if isinstance(answer, str | bool | np.bool_):
        is_text = isinstance(answer, str)
        for place, value in enumerate(values):
            # True and "true" are two values.
            if isinstance(value, str) == is_text and value == answer:
                return place
    raise InvalidArgumentError(f"{answer!r} is none of {', '.join(map(repr, values))}")
