"""Read labelled examples from a table: inputs with the right answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from ..decisions.answers import by_name
from ..decisions.examples import level_of
from ..decisions.questions import Choice, Predicate, Question, Score, Value, text_of
from ..errors import InvalidArgumentError
from .decider import input_of
from .label_file import KIND, ROW, read_kinds
from .rows import InputTable, TableRow, check_column, json_value

MAX_CELLS = 10
"""How many cells with impossible answers an error lists."""

_TRUE = {"true", "yes", "y", "t", "1"}
_FALSE = {"false", "no", "n", "f", "0"}


@dataclass
class LabelledRows:
    """The labelled examples in the first `limit` rows of a table: inputs and their right answers.

    `column` has the inputs, and `labels` the column of each question's right answers; see
    :func:`label_columns`. A question without a column has no answers. While the examples are read,
    the rows without a usable input are added to `left_out`, with the reasons, and the places of the
    others to `places`. `numbers` has their numbers in the table that was labelled; None for an
    input that is in no table.

    If the table is a file of ``eliza-ffi label``, `kinds` has the kind of each example, and `only`
    selects a kind. If it has several labels of a row, the last one counts.
    """

    table: InputTable
    column: str
    questions: tuple[Question, ...]
    labels: Mapping[str, str]
    limit: int | None = None
    only: str | None = None
    left_out: list[str] = field(default_factory=list)
    places: list[str] = field(default_factory=list)
    numbers: list[int | None] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in (self.column, *self.labels.values()):
            check_column(self.table, name)

    def __iter__(self) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Yield the inputs with the right answers.

        At the end, raise an error that lists the cells that are no possible answers.
        """
        self.left_out.clear()
        self.places.clear()
        self.numbers.clear()
        self.kinds.clear()
        has_kinds = is_label_file(self.table)
        wrong: list[str] = []
        wanted = {self.column, *self.labels.values(), *([ROW, KIND] if has_kinds else [])}
        rows = islice(self.table.rows(columns=wanted), self.limit)
        for row in _last_labels(rows, self.column) if has_kinds else rows:
            number: int | None = row.number
            kind = ""
            if has_kinds and row.error is None:
                number = None if row.fields.get(ROW) in (None, "") else number_of(row)
                kind, _ = read_kinds(row.place, [], row.fields.get(KIND))
                if self.only not in (None, kind):
                    continue
            try:
                input = input_of(row, self.column)
            except InvalidArgumentError as error:
                self.left_out.append(f"{row.place}: {error}")
                continue
            self.places.append(row.place)
            self.numbers.append(number)
            self.kinds.append(kind)
            yield input, _answers(row, self.questions, self.labels, wrong)
        _raise_wrong(wrong)

    def leave_out(self, example: int, why: str) -> None:
        """Add an example to :attr:`left_out`. Pass this method to `evaluate` as ``on_skip``."""
        self.left_out.append(f"{self.places[example]}: {why}")


def is_label_file(table: InputTable) -> bool:
    """Return whether a table is a file of ``eliza-ffi label``."""
    return (*table.columns[:1], *table.columns[-1:]) == (ROW, KIND)


def given_answers(table: InputTable, questions: Sequence[Question]) -> dict[int, dict[str, Any]]:
    """Return the answers in an output of ``eliza-ffi decide``, by the number of the row.

    They are in the form of :func:`right_answer`, so that they can be compared with labels. Raise
    InvalidArgumentError if a column is missing, a row has no number or occurs twice, or a cell is
    not a possible answer.
    """
    columns = {
        name: f"{name}_label" if isinstance(question, Score) else name
        for name, question in by_name(questions).items()
    }
    for column in (ROW, *columns.values()):
        check_column(table, column)
    wrong: list[str] = []
    found = {
        number: _answers(row, questions, columns, wrong)
        for number, row in numbered_rows(table, columns.values())
    }
    _raise_wrong(wrong)
    return found


def numbered_rows(table: InputTable, columns: Iterable[str]) -> Iterator[tuple[int, TableRow]]:
    """Yield the rows of an output of ``eliza-ffi decide``, each once, with their numbers."""
    numbers = set()
    for row in table.rows(columns={ROW, *columns}):
        number = number_of(row)
        if number in numbers:
            raise InvalidArgumentError(f"{row.place}: row {number} is there twice")
        numbers.add(number)
        yield number, row


def number_of(row: TableRow) -> int:
    """Return the number in the column ``row``; raise InvalidArgumentError without one."""
    if row.error is not None:
        raise InvalidArgumentError(f"{row.place}: {row.error}")
    cell: Any = row.fields.get(ROW)
    if isinstance(cell, bool) or not str(cell).isdecimal():
        raise InvalidArgumentError(
            f"{row.place}, column {ROW!r}: expected the number of a row, got {cell!r:.80}"
        )
    return int(cell)


def _answers(
    row: TableRow, questions: Sequence[Question], columns: Mapping[str, str], wrong: list[str]
) -> dict[str, Any]:
    """Return the answers in a row; add those that are not possible to `wrong`."""
    answers: dict[str, Any] = {}
    for name, question in by_name(questions).items():
        if name not in columns:
            continue
        try:
            answer = right_answer(question, row.fields.get(columns[name]))
        except InvalidArgumentError as error:
            wrong.append(f"{row.place}, column {columns[name]!r}: {error}")
            continue
        if answer is not None:
            answers[name] = answer
    return answers


def _raise_wrong(wrong: Sequence[str]) -> None:
    if wrong:
        more = [f"and {len(wrong) - MAX_CELLS:,} more cells"] if len(wrong) > MAX_CELLS else []
        raise InvalidArgumentError("\n  ".join([*wrong[:MAX_CELLS], *more]))


def _last_labels(rows: Iterable[TableRow], column: str) -> Iterable[TableRow]:
    """Return the last line of each row, or of each input that is in no table."""
    found: dict[Any, TableRow] = {}
    for row in rows:
        number = row.place if row.error else row.fields.get(ROW)
        found[row.fields.get(column) if number in (None, "") else (number,)] = row
    return found.values()


def label_columns(
    table: InputTable,
    questions: Sequence[Question],
    named: Mapping[str, str],
    *,
    may_miss: bool = False,
) -> dict[str, str]:
    """Return the column with each question's right answers.

    The default is the column with the question's name; `named` overrides it. If `may_miss` is true,
    a question for which there is none is left out. Otherwise this is an error.
    """
    names = list(by_name(questions))
    for name in named:
        if name not in names:
            raise InvalidArgumentError(
                f"unknown question: {name!r}; the questions are {', '.join(map(repr, names))}"
            )
    columns = table.all_columns()
    if may_miss:
        names = [name for name in names if name in named or name in columns]
    for name in names:
        if name not in named and name not in columns:
            raise InvalidArgumentError(
                f"{table.path} has no column {name!r} with right answers: give --target "
                f"{name}=COLUMN, or give the question the name of its column (--name)"
            )
    return {name: named.get(name, name) for name in names}


def right_answer(question: Question, value: Any) -> Any:
    """Convert a cell of a labelled table to an answer; None if the cell is empty.

    For a predicate, the cell is true, yes, y, t or 1; or false, no, n, f or 0. For a choice it is
    the option. For a score it is the level, as for
    :func:`~eliza_ffi.decisions.examples.level_of`; the answer is its label. For labels, it is a
    list of the labels that fit, a JSON list or labels separated by ``;``; ``[]`` if none fits.
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
        # Return the label and not the index, which might be the label of another level.
        return question.levels[level_of(question, value)].label
    return _fitting(value, [label.value for label in question.labels])


def _truth(value: Any) -> bool:
    text = str(value).lower().removesuffix(".0")  # 1 in a column of floats is read as 1.0
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise InvalidArgumentError(f"expected true or false, got {value!r}")


def _option(value: Any, options: Sequence[Value]) -> Value:
    for option in options:
        if type(option) is type(value) and option == value:
            return option
    # Some tables cannot distinguish True from "true", so accept either if only one is an option.
    for option in options:
        if text_of(option) == text_of(value):
            return option
    # Some programs write True or TRUE.
    for option in options:
        if isinstance(option, bool) and text_of(option) == text_of(value).lower():
            return option
    raise InvalidArgumentError(f"expected one of {', '.join(map(repr, options))}, got {value!r}")


def _fitting(value: Any, options: Sequence[Value]) -> list[Value]:
    if isinstance(value, str):
        value = _listed(value, options)
    if not isinstance(value, list):
        raise InvalidArgumentError(f"expected a list of labels, got {value!r}")
    return [_option(each, options) for each in value]


def _listed(text: str, options: Sequence[Value]) -> Any:
    if text in options:
        return [text]
    if text.startswith("["):
        try:
            return json.loads(text)
        except ValueError as error:
            raise InvalidArgumentError(f"expected a JSON list, got {text!r}: {error}") from None
    return [part.strip() for part in text.split(";") if part.strip()]
