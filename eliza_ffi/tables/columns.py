"""The columns of an output: kept columns of the input, answers, and errors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..checks import check_whole
from ..decisions.answers import (
    Answer,
    ChoiceAnswer,
    Decision,
    MultiLabelAnswer,
    PredicateAnswer,
    ScoreAnswer,
    name_of,
)
from ..decisions.questions import Choice, MultiLabel, Predicate, Question, Score, Value, value_text
from ..errors import InvalidArgumentError
from .rows import TableRow, json_value

ROW, REASONING, REVIEW, ERROR = "row", "reasoning", "review", "error"


class OutputColumns:
    """The columns of an output.

    The first column is ``row``, followed by the kept columns of the input. Each question adds:

    - ``NAME``: the answer (true or false, the choice, the expected level, or the labels that fit)
    - ``NAME_probability``: the probability that a predicate is true, or the probability of the
      choice or of the most probable level; not for labels
    - ``NAME_label``: the most probable level of a score
    - ``NAME_confidence``
    - ``NAME_allowed_probability``: if `allowed_probability` is True; not for labels
    - ``NAME_certified``: if `certified` is True; whether the answer is certified
    - ``NAME_set``: if `certified` is True; the options that may be right, as JSON; not for labels
    - ``NAME_probabilities``: if `probabilities` is True; maps each option to its probability
    - ``NAME_top``: if `top` is given, the `top` most probable options of a choice with their
      probabilities

    The last columns are ``reasoning``, if `reasoning` is True, ``review``, if `min_confidence` is
    given, and ``error``.

    Parameters
    ----------
    kept
        Columns of the input to copy. A column with the same name as another output column gets the
        prefix ``input_``.
    min_confidence
        Mark a row for review if an answer has a lower confidence or the model abstained. None = no
        column ``review``.

    Attributes
    ----------
    names : tuple of str
    kept : dict of str to str
        The kept columns: from the name in the output to the name in the input.
    questions : dict of str to Question
    types : dict of str to str
        The types of all columns except the kept ones: int, bool, float, text or texts. A column of
        the type text may contain other values as JSON.

    Raises
    ------
    InvalidArgumentError
        If two columns of the output would have the same name.
    """

    def __init__(
        self,
        questions: Sequence[Question],
        kept: Sequence[str] = (),
        *,
        probabilities: bool = True,
        allowed_probability: bool = False,
        certified: bool = False,
        top: int | None = None,
        reasoning: bool = False,
        min_confidence: float | None = None,
    ) -> None:
        self._min_confidence = min_confidence
        self._top = top if top is None else check_whole("top", top, 1)
        self.questions = {name_of(each.name, i): each for i, each in enumerate(questions)}
        added = [(ROW, "int")]
        for name, question in self.questions.items():
            has_one = not isinstance(question, MultiLabel)
            parts = (
                ("", _answer_type(question), True),
                ("_probability", "float", has_one),
                ("_label", "text", isinstance(question, Score)),
                ("_confidence", "float", True),
                ("_allowed_probability", "float", has_one and allowed_probability),
                ("_certified", "bool", certified),
                ("_set", "text", has_one and certified),
                ("_probabilities", "text", probabilities),
                ("_top", "text", top is not None and isinstance(question, Choice)),
            )
            added += [(f"{name}{part}", kind) for part, kind, is_wanted in parts if is_wanted]
        if reasoning:
            added.append((REASONING, "text"))
        if min_confidence is not None:
            added.append((REVIEW, "bool"))
        added.append((ERROR, "text"))
        self.types: dict[str, str] = {}
        for name, kind in added:
            if name in self.types:
                raise InvalidArgumentError(
                    f"two columns of the output would have the name {name!r}: rename a question"
                )
            self.types[name] = kind
        self.kept: dict[str, str] = called_apart(kept, self.types)
        self.names = (ROW, *self.kept, *(name for name in self.types if name != ROW))

    def cells(
        self, row: TableRow, decision: Decision | None, error: str | None = None
    ) -> dict[str, Any]:
        """Return a row of the output, with JSON values.

        Parameters
        ----------
        decision
            The decision; None = leave the answers empty.
        error
            Why there is no decision.
        """
        cells: dict[str, Any] = dict.fromkeys(self.names)
        cells[ROW] = row.number
        for output_name, name in self.kept.items():
            cells[output_name] = json_value(row.fields.get(name))
        cells[ERROR] = json_value(error)  # the message may contain a file name that is not UTF-8
        if decision is None:
            return cells
        for name, answer in decision.items():
            found = {f"{name}{part}": value for part, value in answer_parts(answer).items()}
            cells.update((each, value) for each, value in found.items() if each in self.types)
            if self._top is not None and isinstance(answer, ChoiceAnswer):
                cells[f"{name}_top"] = answer.top(self._top)
        if REASONING in self.types:
            cells[REASONING] = decision.reasoning
        if self._min_confidence is not None:
            cells[REVIEW] = any(
                answer.abstained or answer.confidence < self._min_confidence
                for answer in decision.values()
            )
        return cells


class AnswerCounts:
    """Counts the rows of an output and their answers.

    Attributes
    ----------
    rows, errors, review, reasoned : int
    first_error : str or None
        The error of the first row that has one.
    answers : dict of str to Counter
        For each question, the number of rows with each answer: true or false, the choice, the most
        probable level of a score, or a label that fits.
    unanswered : Counter
        For each question, the number of rows without an error whose answer is empty, because the
        model abstained or no label fits.
    """

    def __init__(self, columns: OutputColumns) -> None:
        self._columns = columns
        self.rows = self.errors = self.review = self.reasoned = 0
        self.first_error: str | None = None
        self.answers: dict[str, Counter[str]] = {name: Counter() for name in columns.questions}
        self.unanswered: Counter[str] = Counter()

    def add(self, cells: Mapping[str, Any]) -> None:
        """Count a row from :meth:`OutputColumns.cells`."""
        self.rows += 1
        if cells[ERROR] is not None:
            self.errors += 1
            self.first_error = self.first_error or cells[ERROR]
            return
        if REVIEW in self._columns.types:
            self.review += bool(cells[REVIEW])
        if REASONING in self._columns.types:
            self.reasoned += cells[REASONING] is not None
        for name, question in self._columns.questions.items():
            answer = cells[name]
            # If the model abstained, the answer is empty, but the label column contains a level.
            if answer is None or answer == []:
                self.unanswered[name] += 1
            elif isinstance(question, MultiLabel):
                self.answers[name].update(map(cell_text, answer))
            elif isinstance(question, Score):
                self.answers[name][cells[f"{name}_label"]] += 1
            else:
                self.answers[name][cell_text(answer)] += 1


def called_apart(kept: Sequence[str], reserved: Collection[str]) -> dict[str, str]:
    """Map output names to kept columns; a reserved name gets the prefix ``input_``."""
    taken = {*reserved, *kept}
    apart = {}
    for name in kept:
        output_name = name
        if name in reserved:
            output_name = f"input_{name}"
            while output_name in taken:
                output_name = f"input_{output_name}"
            taken.add(output_name)
        apart[output_name] = name
    return apart


def cell_text(value: Any) -> str:
    """Format a value for CSV: None as an empty string, strings unchanged, all else as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def answer_parts(answer: Answer) -> dict[str, Any]:
    """Map the suffix of each column of an answer to the column's value.

    The suffix of the answer itself is ``""``. Labels have fewer columns than other answers.
    """
    if isinstance(answer, MultiLabelAnswer):
        parts: dict[str, Any] = {"": list(answer.value), "_confidence": answer.confidence}
    else:
        parts = {
            "": answer.value,
            "_probability": answer.probability,
            "_confidence": answer.confidence,
            "_allowed_probability": answer.allowed_probability,
            "_set": None if answer.set is None else list(answer.set),
        }
        if isinstance(answer, ScoreAnswer):
            parts["_label"] = answer.label
    return parts | {"_certified": answer.certified, "_probabilities": _probabilities(answer)}


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
    return {value_text(value, texts): probability for value, probability in pairs}


def _answer_type(question: Question) -> str:
    if isinstance(question, Predicate):
        return "bool"
    if isinstance(question, Score):
        return "float"
    if isinstance(question, Choice):
        return "bool" if all(isinstance(each.value, bool) for each in question.options) else "text"
    return "texts"
