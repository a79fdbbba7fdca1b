"""What stands in a row of the output: the input's columns, the answers, and what went wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..decisions.answers import (
    Answer,
    ChoiceAnswer,
    Decision,
    LabelsAnswer,
    PredicateAnswer,
    ScoreAnswer,
    name_of,
)
from ..decisions.questions import Choice, Labels, Predicate, Question, Score, Value
from ..errors import InvalidArgumentError
from .rows import TableRow, json_value

__all__ = ["AnswerCounts", "OutputColumns", "answer_parts", "called_apart", "cell_text"]

ROW, REVIEW, ERROR = "row", "review", "error"


class OutputColumns:
    """The columns of an output.

    They are ``row``, those kept of the input, and for each question ``NAME`` (the answer: true or
    false, the choice, the expected level, the labels that fit), ``NAME_probability`` (that it is
    true, of the choice, of the likeliest level), ``NAME_label`` (of a score, the likeliest level),
    ``NAME_confidence``, ``NAME_option_mass`` where it was asked for and ``NAME_probabilities``;
    then ``review`` where there is a bound for it, and ``error``.

    Parameters
    ----------
    questions
    kept
        Columns of the input. One that is called like one of the others is called ``input_...``.
    probabilities
        Whether ``NAME_probabilities`` are columns: a mapping from each option to its own.
    option_mass
    min_confidence
        A row is for review where an answer's confidence is lower, or the model abstained.
        None = nobody reviews.

    Attributes
    ----------
    names : tuple of str
    kept : dict of str to str
        The kept columns by what they are called in the output.

    Raises
    ------
    InvalidArgumentError
        If two questions come to columns of one name.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        kept: Sequence[str] = (),
        *,
        probabilities: bool = True,
        option_mass: bool = False,
        min_confidence: float | None = None,
    ) -> None:
        self._min_confidence = min_confidence
        self._kinds = {name_of(each.name, i): each for i, each in enumerate(questions)}
        ours = [(ROW, "int")]
        for name, question in self._kinds.items():
            ours.append((name, _answer_type(question)))
            if not isinstance(question, Labels):
                ours.append((f"{name}_probability", "float"))
            if isinstance(question, Score):
                ours.append((f"{name}_label", "text"))
            ours.append((f"{name}_confidence", "float"))
            if option_mass and not isinstance(question, Labels):
                ours.append((f"{name}_option_mass", "float"))
            if probabilities:
                ours.append((f"{name}_probabilities", "text"))
        if min_confidence is not None:
            ours.append((REVIEW, "bool"))
        ours.append((ERROR, "text"))
        self._types: dict[str, str] = {}
        for name, kind in ours:
            if name in self._types:
                raise InvalidArgumentError(
                    f"two columns of the output would be called {name!r}: rename a question"
                )
            self._types[name] = kind
        self.kept: dict[str, str] = called_apart(kept, self._types)
        self.names = (ROW, *self.kept, *(name for name in self._types if name != ROW))

    def cells(
        self, row: TableRow, decision: Decision | None, error: str | None = None
    ) -> dict[str, Any]:
        """Return a row of the output, its values as JSON has them.

        Parameters
        ----------
        row
        decision
            None where there is none; then nothing is said of the answers.
        error
            Why there is none.
        """
        cells: dict[str, Any] = dict.fromkeys(self.names)
        cells[ROW] = row.number
        for called, name in self.kept.items():
            cells[called] = json_value(row.fields.get(name))
        cells[ERROR] = json_value(error)  # which may name a file whose name is not UTF-8
        if decision is None:
            return cells
        for name, answer in decision.items():
            found = {f"{name}{part}": value for part, value in answer_parts(answer).items()}
            cells.update((each, value) for each, value in found.items() if each in self._types)
        if self._min_confidence is not None:
            cells[REVIEW] = any(
                answer.abstained or answer.confidence < self._min_confidence
                for answer in decision.values()
            )
        return cells

    @property
    def questions(self) -> Mapping[str, Question]:
        """The questions by their names."""
        return self._kinds

    @property
    def types(self) -> Mapping[str, str]:
        """The types of the columns that are not kept: int, bool, float, text or texts.

        A text may stand for a value of another kind, as JSON.
        """
        return self._types


class AnswerCounts:
    """How many rows there are, with which answers.

    Attributes
    ----------
    rows, errors, review : int
    first_error : str or None
        Of the first row that has one.
    answers : dict of str to Counter
        For each question, how many rows have an answer: true or false, a choice, the likeliest
        level of a score, a label that fits.
    """

    def __init__(self, columns: OutputColumns) -> None:
        self._columns = columns
        self.rows = self.errors = self.review = 0
        self.first_error: str | None = None
        self.answers: dict[str, Counter[str]] = {name: Counter() for name in columns.questions}

    def add(self, cells: Mapping[str, Any]) -> None:
        """Count a row, as :meth:`OutputColumns.cells` returns it or as it was read from a file."""
        self.rows += 1
        if has_error(cells):
            self.errors += 1
            self.first_error = self.first_error or cell_text(cells.get(ERROR))
        if REVIEW in self._columns.types:
            self.review += cell_text(cells.get(REVIEW)) == "true"
        for name, question in self._columns.questions.items():
            # An answer that the model abstained from is none, though a level was likeliest.
            answer = cell_text(cells.get(name))
            if not answer:
                continue
            if isinstance(question, Labels):
                self.answers[name].update(cell_text(label) for label in json.loads(answer))
            elif isinstance(question, Score):
                self.answers[name][cell_text(cells.get(f"{name}_label"))] += 1
            else:
                self.answers[name][answer] += 1


def called_apart(kept: Sequence[str], ours: Collection[str]) -> dict[str, str]:
    """Return kept columns by what they are called beside ours: ``input_...`` where names meet."""
    taken = {*ours, *kept}
    apart = {}
    for name in kept:
        called = name
        if name in ours:
            called = f"input_{name}"
            while called in taken:
                called = f"input_{called}"
            taken.add(called)
        apart[called] = name
    return apart


def has_error(cells: Mapping[str, Any]) -> bool:
    """Return whether a row has no answers, as it was made or as it was read from a file."""
    return bool(cell_text(cells.get(ERROR)))


def cell_text(value: Any) -> str:
    """Return a value as CSV has it: nothing for None, a text as it is, anything else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def answer_parts(answer: Answer) -> dict[str, Any]:
    """Return what the columns of an answer hold, by the ends of their names.

    They are ``""`` for the answer itself, ``_probability`` and so on; labels have fewer.
    """
    if isinstance(answer, LabelsAnswer):
        parts: dict[str, Any] = {"": list(answer.value), "_confidence": answer.confidence}
    else:
        parts = {
            "": answer.value,
            "_probability": answer.probability,
            "_confidence": answer.confidence,
            "_option_mass": answer.option_mass,
        }
        if isinstance(answer, ScoreAnswer):
            parts["_label"] = answer.label
    return parts | {"_probabilities": _probabilities(answer)}


def _probabilities(answer: Answer) -> dict[str, float]:
    if isinstance(answer, PredicateAnswer):
        return dict(zip(("true", "false"), answer.distribution, strict=True))
    if isinstance(answer, ScoreAnswer):
        return dict(answer.levels)
    if isinstance(answer, ChoiceAnswer):
        pairs: list[tuple[Value, float]] = list(answer.options)
    else:
        pairs = [(label, each.probability) for label, each in answer.answers]
    texts = [value for value, _ in pairs if isinstance(value, str)]
    return {_key(value, texts): probability for value, probability in pairs}


def _key(value: Value, texts: Sequence[str]) -> str:
    """Return a value as a key of JSON; a bool beside a text that reads like it is marked."""
    if isinstance(value, str):
        return value
    text = cell_text(value)
    return f"{text} (bool)" if text in texts else text


def _answer_type(question: Question) -> str:
    if isinstance(question, Predicate):
        return "bool"
    if isinstance(question, Score):
        return "float"
    if isinstance(question, Choice):
        return "bool" if all(isinstance(each.value, bool) for each in question.options) else "text"
    return "texts"
