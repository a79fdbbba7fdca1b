"""The columns of an output: kept columns of the input, answers, and errors."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

from ..checks import check_whole
from ..decisions.answers import (
    Answer,
    ChoiceAnswer,
    Decision,
    MultiLabelAnswer,
    ScoreAnswer,
    by_name,
    by_text,
)
from ..decisions.questions import (
    Choice,
    MultiLabel,
    Predicate,
    Question,
    Score,
    plain_value,
)
from ..errors import InvalidArgumentError
from ..evidence.calibration import Calibration
from ..evidence.deciding import can_abstain
from .rows import TableRow, json_value

ROW, REASONING, REVIEW, STAGE, ERROR = "row", "reasoning", "review", "stage", "error"


class OutputColumns:
    """The columns of an output.

    They are ``row``, the kept columns of the input, for each question ``NAME`` and ``NAME_...``,
    ``reasoning``, ``review`` and ``stage`` if the settings request them, and ``error``.
    docs/guides/tables.md describes each.

    Parameters
    ----------
    kept
        Columns of the input to copy. A column with the same name as another output column gets the
        prefix ``input_``.
    settings
        The keyword arguments of :meth:`~eliza_ffi.Model.decide`. A calibration is not a path.

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
        settings: Mapping[str, Any] = MappingProxyType({}),
        *,
        probabilities: bool = True,
        top: int | None = None,
    ) -> None:
        self._top = top if top is None else check_whole("top", top, 1)
        calibration: Calibration | None = settings.get("calibration")
        certified = calibration is not None and calibration.can_certify
        fitted = () if calibration is None else calibration.questions
        has_costs = any(each.costs is not None for each in fitted)
        unfamiliar = calibration is not None and calibration.knows_unfamiliar
        allowed_probability = bool(settings.get("allowed_probability"))
        self.questions = by_name(questions)
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
                ("_prediction_set", "text", has_one and certified),
                ("_expected_cost", "float", has_one and has_costs),
                ("_unfamiliar", "bool", unfamiliar),
                ("_probabilities", "text", probabilities),
                ("_top", "text", top is not None and isinstance(question, Choice)),
            )
            added += [(f"{name}{part}", kind) for part, kind, is_wanted in parts if is_wanted]
        if settings.get("think"):
            added.append((REASONING, "text"))
        if can_abstain(settings):
            added.append((REVIEW, "bool"))
        if settings.get("stage"):
            added.append((STAGE, "int"))
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
            cells |= self.answer_cells(name, answer)
        if REASONING in self.types:
            cells[REASONING] = decision.reasoning
        if REVIEW in self.types:
            cells[REVIEW] = any(answer.abstained for answer in decision.values())
        if STAGE in self.types:
            cells[STAGE] = decision.stage
        return cells

    def answer_cells(self, name: str, answer: Answer) -> dict[str, Any]:
        """Return the cells of an answer to the question `name`, with JSON values."""
        parts = answer_parts(answer)
        if self._top is not None and isinstance(answer, ChoiceAnswer):
            parts["_top"] = answer.top(self._top)
        cells = {f"{name}{part}": value for part, value in parts.items()}
        return {each: value for each, value in cells.items() if each in self.types}


class AnswerCounts:
    """Counts the rows of an output, from :meth:`OutputColumns.cells`, and their answers.

    Attributes
    ----------
    rows, errors, review : int
    first_error : str or None
        The error of the first row that has one.
    stages : Counter
        For a cascade, how many rows ended at each source, 1 for the first.
    answers : dict of str to Counter
        For each question, the number of rows with each answer: true or false, the choice, the most
        probable level of a score, or a label that fits.
    unanswered : Counter
        For each question, the number of rows without an error whose answer is empty, because the
        model abstained or no label fits.
    """

    def __init__(self, columns: OutputColumns, rows: Iterable[Mapping[str, Any]] = ()) -> None:
        self._columns = columns
        self.rows = self.errors = self.review = 0
        self.first_error: str | None = None
        self.stages: Counter[int] = Counter()
        self.answers: dict[str, Counter[str]] = {name: Counter() for name in columns.questions}
        self.unanswered: Counter[str] = Counter()
        for cells in rows:
            self._add(cells)

    def _add(self, cells: Mapping[str, Any]) -> None:
        self.rows += 1
        if cells[ERROR] is not None:
            self.errors += 1
            self.first_error = self.first_error or cells[ERROR]
            return
        if REVIEW in self._columns.types:
            self.review += bool(cells[REVIEW])
        if STAGE in self._columns.types:
            self.stages[cells[STAGE]] += 1
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
        value = None if answer.value is None else list(answer.value)
        parts: dict[str, Any] = {"": value, "_confidence": answer.confidence}
    else:
        parts = {
            "": plain_value(answer.value) if isinstance(answer.value, Enum) else answer.value,
            "_probability": answer.probability,
            "_confidence": answer.confidence,
            "_allowed_probability": answer.allowed_probability,
            "_expected_cost": answer.expected_cost,
            "_prediction_set": None
            if answer.prediction_set is None
            else list(map(plain_value, answer.prediction_set)),
        }
        if isinstance(answer, ScoreAnswer):
            parts["_label"] = answer.label
    parts |= {"_certified": answer.certified, "_unfamiliar": answer.unfamiliar}
    return parts | {"_probabilities": by_text(answer)}


def _answer_type(question: Question) -> str:
    if isinstance(question, Predicate):
        return "bool"
    if isinstance(question, Score):
        return "float"
    if isinstance(question, Choice):
        return "bool" if all(isinstance(each.value, bool) for each in question.options) else "text"
    return "texts"
