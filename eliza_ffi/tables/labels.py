"""Labelled tables: inputs with the answers that are right, from columns of a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ..decisions.answers import name_of
from ..decisions.examples import level_of
from ..decisions.questions import Choice, Predicate, Question, Score, Value
from ..errors import InvalidArgumentError
from .job import input_of
from .rows import InputTable, TableRow, check_column, json_value

__all__ = ["LabelledRows", "label_columns", "right_answer"]

_TRUE = {"true", "yes", "y", "t", "1"}
_FALSE = {"false", "no", "n", "f", "0"}


@dataclass
class LabelledRows:
    """The examples of a labelled table.

    Attributes
    ----------
    table : InputTable
    column : str
        Of the inputs.
    questions : tuple of Question
    labels : dict of str to str
        The columns of the right answers by the questions' names; see :func:`label_columns`.
    limit : int or None
        Only so many rows, the first.
    left_out : list of str
        Rows that have no usable input, and why; known once the examples were read.
    places : list of str
        Where the examples are, as far as they were read.
    """

    table: InputTable
    column: str
    questions: tuple[Question, ...]
    labels: Mapping[str, str]
    limit: int | None = None
    left_out: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in (self.column, *self.labels.values()):
            check_column(self.table, name)

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield inputs with their right answers.

        Raises
        ------
        InvalidArgumentError
            If a label is none of a question's answers.
        """
        self.left_out.clear()
        self.places.clear()
        wanted = {self.column, *self.labels.values()}
        for row in islice(self.table.rows(columns=wanted), self.limit):
            try:
                given = input_of(row, self.column)
            except InvalidArgumentError as error:
                self.left_out.append(f"{row.place}: {error}")
                continue
            self.places.append(row.place)
            yield given, self._answers(row)

    def leave_out(self, example: int, why: str) -> None:
        """Note that an example turned out to be none, as ``on_skip`` of `evaluate` tells it."""
        self.left_out.append(f"{self.places[example]}: {why}")

    def _answers(self, row: TableRow) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        for place, question in enumerate(self.questions):
            name = name_of(question.name, place)
            try:
                answer = right_answer(question, row.fields.get(self.labels[name]))
            except InvalidArgumentError as error:
                raise InvalidArgumentError(
                    f"{row.place}, column {self.labels[name]!r}: {error}"
                ) from None
            if answer is not None:
                answers[name] = answer
        return answers


def label_columns(
    table: InputTable, questions: Sequence[Question], named: Mapping[str, str]
) -> dict[str, str]:
    """Return the column of each question's right answers: the one named, or one called like it.

    Raises
    ------
    InvalidArgumentError
        If a question has no column, or one is named for what is no question.
    """
    names = [name_of(question.name, place) for place, question in enumerate(questions)]
    for name in named:
        if name not in names:
            raise InvalidArgumentError(
                f"no question is called {name!r}; there are {', '.join(map(repr, names))}"
            )
    columns = table.all_columns()
    for name in names:
        if name not in named and name not in columns:
            raise InvalidArgumentError(
                f"{table.path} has no column {name!r} with right answers: give --label "
                f"{name}=COLUMN, or call the question like its column (--name)"
            )
    return {name: named.get(name, name) for name in names}


def right_answer(question: Question, value: Any) -> Any:
    """Return the answer that a label stands for; None where there is none.

    Parameters
    ----------
    question
    value
        A cell of the table. Of a predicate true, yes, 1 and the like; of a choice the option; of a
        score the level, by :func:`~eliza_ffi.decisions.examples.level_of`; of labels those that
        fit, as a list, as JSON or with ``;`` between them, none as ``[]``. None and an empty text
        are no label.

    Returns
    -------
    bool, str or list
        Of a score the level's label.

    Raises
    ------
    InvalidArgumentError
        If it stands for no answer to this question.
    """
    value = json_value(value)
    if isinstance(value, str):
        value = value.strip()
    if value is None or value == "":
        return None
    if isinstance(question, Predicate):
        return _truth(value)
    if isinstance(question, Choice):
        return _option(value, [option.value for option in question.options])
    if isinstance(question, Score):
        # Not its place, which might be another level's label.
        return question.levels[level_of(question, value)].label
    return _fitting(value, [label.value for label in question.labels])


def _truth(value: Any) -> bool:
    text = str(value).lower().removesuffix(".0")  # of a 1 among fractions
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise InvalidArgumentError(f"{value!r} is neither true nor false")


def _option(value: Any, options: Sequence[Value]) -> Value:
    for option in options:
        if type(option) is type(value) and option == value:
            return option
    # A table may not tell true from "true": where only one of them is an option, it is that.
    for option in options:
        if _text(option) == _text(value):
            return option
    # Programs write True and TRUE.
    for option in options:
        if isinstance(option, bool) and _text(option) == _text(value).lower():
            return option
    raise InvalidArgumentError(f"{value!r} is none of {', '.join(map(repr, options))}")


def _fitting(value: Any, options: Sequence[Value]) -> list[Value]:
    if isinstance(value, str):
        value = _listed(value, options)
    if not isinstance(value, list):
        raise InvalidArgumentError(f"{value!r} is no list of labels")
    return [_option(each, options) for each in value]


def _listed(text: str, options: Sequence[Value]) -> Any:
    if text in options:
        return [text]
    if text.startswith("["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise InvalidArgumentError(f"{text!r} is no JSON: {error}") from None
    return [part.strip() for part in text.split(";") if part.strip()]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
