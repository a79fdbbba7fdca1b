"""Questions about many inputs at once, where one that goes wrong is its own failure only."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..batches import run_many
from ..decisions.answers import Decision
from ..decisions.asking import ScoreJob, is_of_row
from ..decisions.deciding import DecisionRun, settings_for
from ..decisions.questions import Question
from ..decisions.wire import as_questions
from ..errors import InvalidArgumentError
from ..model import Model
from ..tables.job import input_of
from ..tables.rows import TableRow, json_value

__all__ = [
    "Outcome",
    "ask_each",
    "ask_together",
    "inputs_of",
    "or_error",
    "or_raised",
    "questions_of",
]

Outcome = Decision | Exception
"""A decision, or why there is none; only what :func:`is_of_row`."""


def inputs_of(cells: Iterable[Any], column: str) -> list[Any]:
    """Return the inputs that are in cells of a column, and the error in place of what is none."""
    return [or_error(input_of, TableRow(0, "", {column: cell}), column) for cell in cells]


def questions_of(cell: Any) -> tuple[Question, ...]:
    """Return the questions that are in a cell: as JSON, or as lists and structs.

    Raises
    ------
    InvalidArgumentError
        If there are none, or one is malformed.
    """
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError) as error:
            raise InvalidArgumentError(f"questions are not JSON: {error}") from None
    if cell is None:
        raise InvalidArgumentError("no questions")
    return as_questions(_said(json_value(cell)))


def ask_together(
    model: Model, inputs: Sequence[Any], questions: Sequence[Question], settings: Mapping[str, Any]
) -> list[Outcome]:
    """Ask the same questions about inputs.

    Parameters
    ----------
    model
    inputs
        Some may be exceptions, which stay what they are.
    questions
    settings
        Of :meth:`Model.decide_many`.

    Raises
    ------
    ElizaError
        If it is not a row's own failure.
    """
    good = [each for each in inputs if not isinstance(each, Exception)]
    found = iter(model.decide_many(good, questions, return_exceptions=True, **settings))
    return [each if isinstance(each, Exception) else or_raised(next(found)) for each in inputs]


def ask_each(
    model: Model,
    inputs: Sequence[Any],
    questions: Sequence[Any],
    settings: Mapping[str, Any],
) -> list[Outcome]:
    """Ask questions of its own about each input.

    Parameters
    ----------
    model
    inputs
    questions
        One sequence of questions for each input. Both may be exceptions.
    settings
        Of :meth:`Model.decide`.

    Raises
    ------
    ElizaError
        If it is not a row's own failure.
    """

    def start(row: tuple[Any, Any]) -> ScoreJob[Decision]:
        for each in row:
            if isinstance(each, Exception):
                raise each
        given, own = row
        checked = settings_for(model.session, own, stream={}, **settings)
        decision = DecisionRun(model.session, given, own, checked)
        return ScoreJob(model.session, decision.args, decision.decision)

    found = run_many(
        zip(inputs, questions, strict=True),
        start,
        at_once=model.session.decisions_at_once(None),
        total=None,
        progress=None,
        return_exceptions=True,
    )
    return [or_raised(each) for each in found]


def or_error(call: Any, *arguments: Any) -> Any:
    """Return what a call returns, or the exception that says what is wrong with a row."""
    try:
        return call(*arguments)
    except InvalidArgumentError as error:
        return error


def or_raised(found: Any) -> Any:
    """Return a result or a row's own failure; what is a failure of more than that is raised."""
    if isinstance(found, Exception) and not is_of_row(found):
        raise found
    return found


def _said(value: Any) -> Any:
    """Leave out what is None: a struct's field that other rows have."""
    if isinstance(value, Mapping):
        return {key: _said(each) for key, each in value.items() if each is not None}
    return [_said(each) for each in value] if isinstance(value, list) else value
