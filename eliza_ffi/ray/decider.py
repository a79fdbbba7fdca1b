"""Decide for the rows of a Ray dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..checks import check_flag
from ..decisions.answers import Decision, name_of
from ..decisions.deciding import DecideSettings, plan_of
from ..decisions.fingerprint import fingerprint_of
from ..decisions.learning.calibration import as_calibration
from ..decisions.learning.input_prior import given_calibration, with_input_prior
from ..decisions.questions import Question, with_top
from ..decisions.reasoning import decision_task, inputs_at_once
from ..decisions.wire import as_questions
from ..errors import InvalidArgumentError
from ..model import Model
from ..session.batches import run_many
from ..session.task import Task
from ..tables.columns import ERROR, ROW, OutputColumns, answer_parts, cell_text
from ..tables.job import input_of
from ..tables.parquet import arrow_type, load_pyarrow
from ..tables.row_decider import RowDecider
from ..tables.rows import TableRow, json_value
from .batch import (
    arrow_table,
    cells_of,
    or_error,
    or_raised,
    raise_error,
    read_json,
    with_cells,
    with_columns,
)
from .resources import open_worker_model

if TYPE_CHECKING:
    from typing_extensions import Unpack

Outcome = Decision | Exception
"""A decision, or the error of a single row."""

ANSWERS = "answers"

ANSWER_TYPES = {
    "name": "text",
    "answer": "text",
    "probability": "float",
    "label": "text",
    "confidence": "float",
    "allowed_probability": "float",
    "probabilities": "text",
}
"""The fields of the column ``answers`` with their types, which are those of `OutputColumns`."""


class DeciderActor:
    """Answer questions about a column of a dataset; pass this class to ``map_batches``.

    The constructor loads the model once per actor, with as many threads as the actor has CPUs, and
    with all layers on the GPU if the actor has one. The columns of a batch are kept. The added
    columns are the same as in a table's output: for each question ``NAME``, ``NAME_probability``,
    ``NAME_label`` (scores only), ``NAME_confidence`` and the optional columns; then ``error``. With
    `questions_column`, the added columns are ``answers``, a list with a struct for each question,
    and ``error``.

    A row that cannot be answered has an ``error`` and no answers. Any other failure is raised.

    Parameters
    ----------
    column
        The column with the inputs: strings, conversations or other JSON.
    questions
        The questions about every row, in any form that :meth:`~eliza_ffi.Model.decide` accepts.
    questions_column
        Instead of `questions`: a column with the questions of each row, as JSON or as lists and
        structs.
    model
        The absolute path of a model, the same on every node, or its name on Hugging Face; None =
        the embedded model.
    model_options
        More arguments of :class:`~eliza_ffi.Model`, such as ``n_ctx`` and ``n_slots``; they
        override the resources that Ray has assigned.
    probabilities
        Add a column ``NAME_probabilities`` with JSON.
    top
        Add a column ``NAME_top`` with JSON to each choice: its most probable options, at most this
        many, with their probabilities.
    min_confidence
        Add a column ``review``: true if an answer's confidence is lower, or the model abstained.
    sample
        Some of the inputs, whose tokens are counted for ``prompt_order="auto"``.
    **settings
        The keyword arguments of :meth:`~eliza_ffi.Model.decide`, except `timeout`. With `think` and
        `questions`, a column ``reasoning`` is added, too.

    Raises
    ------
    InvalidArgumentError
        If the questions or the settings are invalid for all rows.
    ModelError
        If the model does not exist on the node.

    Examples
    --------
    >>> ds.map_batches(  # doctest: +SKIP
    ...     DeciderActor,
    ...     fn_constructor_kwargs={"column": "body", "questions": questions, "model": "/m.gguf"},
    ...     compute=ray.data.ActorPoolStrategy(size=8),
    ...     num_cpus=4,
    ...     batch_size=256,
    ...     batch_format="pyarrow",
    ... )
    """

    def __init__(
        self,
        column: str,
        questions: Any = None,
        *,
        questions_column: str | None = None,
        model: str | os.PathLike[str] | None = None,
        model_options: Mapping[str, Any] | None = None,
        probabilities: bool = False,
        top: int | None = None,
        min_confidence: float | None = None,
        sample: Sequence[Any] | None = None,
        **settings: Unpack[DecideSettings],
    ) -> None:
        if (questions is None) == (questions_column is None):
            raise InvalidArgumentError("pass exactly one of questions and questions_column")
        if questions is None and min_confidence is not None:
            raise InvalidArgumentError("min_confidence requires questions, not questions_column")
        check_flag("probabilities", probabilities)
        self._column = column
        self._questions_column = questions_column
        self._questions = () if questions is None else with_top(as_questions(questions), top)
        calibration = given_calibration(settings)
        self._columns = OutputColumns(
            self._questions,
            probabilities=probabilities,
            allowed_probability=settings.get("allowed_probability", False),
            certified=calibration is not None and calibration.can_certify,
            top=top,
            reasoning=bool(settings.get("think")),
            min_confidence=min_confidence,
        )
        self._model = open_worker_model(model, model_options)
        own = with_input_prior(self._model, self._questions, None, settings)
        self._given: Mapping[str, Any] = {
            **own,
            "calibration": as_calibration(own.get("calibration")),
        }
        if self._questions:
            self._rows = RowDecider(self._model, self._questions, self._given, sample)

    @property
    def described(self) -> dict[str, Any]:
        """The model's fingerprint, and the settings that affect the answers, as JSON.

        Raises
        ------
        InvalidArgumentError
            If the rows have their own questions, because each then has its own settings.
        """
        if not self._questions:
            raise InvalidArgumentError("described requires questions, not questions_column")
        return {"model": fingerprint_of(self._model), **self._rows.described}

    def decide(self, inputs: Sequence[Any]) -> list[Outcome]:
        """Return a decision for each input, or the error of this input.

        Exceptions among the inputs are returned unchanged.

        Raises
        ------
        ElizaError
            If a failure does not concern a single input.
        """
        return _run_each(
            inputs, lambda input: self._rows.task(raise_error(input)), self._rows.at_once
        )

    def __call__(self, batch: Any) -> Any:
        """Return the batch with the added columns, as a ``pyarrow.Table``."""
        table = arrow_table(batch)
        cells = cells_of(table, self._column)
        inputs = [or_error(_input_in, cell, self._column) for cell in cells]
        if self._questions_column is None:
            return self._with_answers(table, inputs)
        return self._with_own_answers(table, inputs, self._questions_column)

    def _with_answers(self, table: Any, inputs: Sequence[Any]) -> Any:
        row = TableRow(0, "", {})
        rows = [
            self._columns.cells(row, *_decision_and_error(asked)) for asked in self.decide(inputs)
        ]
        types = {name: kind for name, kind in self._columns.types.items() if name != ROW}
        return with_cells(table, rows, types)

    def _with_own_answers(self, table: Any, inputs: Sequence[Any], column: str) -> Any:
        questions = [or_error(_questions_in, cell) for cell in cells_of(table, column)]
        asked = [
            _decision_and_error(each)
            for each in decide_each(self._model, inputs, questions, self._given)
        ]
        pa = load_pyarrow()
        fields = pa.struct([(name, arrow_type(pa, kind)) for name, kind in ANSWER_TYPES.items()])
        answers = pa.array([_listed(decision) for decision, _ in asked], pa.list_(fields))
        errors = pa.array([error for _, error in asked], pa.string())
        return with_columns(table, {ANSWERS: answers, ERROR: errors})


def decide_each(
    model: Model, inputs: Iterable[Any], questions: Iterable[Any], settings: Mapping[str, Any]
) -> list[Outcome]:
    """Answer a separate list of questions about each input.

    An exception among the inputs or the questions becomes the outcome of its row. A failure that
    does not concern a single row is raised. `settings` are arguments of :meth:`Model.decide`.
    """

    def start(row: tuple[Any, Any]) -> Task[Decision]:
        input, own = map(raise_error, row)
        return decision_task(model.session, input, plan_of(model, own, settings))

    pairs = zip(inputs, questions, strict=True)
    return _run_each(pairs, start, inputs_at_once(model.session, settings.get("think", 0), None))


def _run_each(
    items: Iterable[Any], start: Callable[[Any], Task[Decision]], at_once: int
) -> list[Any]:
    """Run the tasks of all items; return their results, or the errors of single items."""
    return run_many(
        items,
        start,
        at_once=at_once,
        total=None,
        progress=None,
        on_error=lambda i, error: or_raised(error),
    )


def _input_in(cell: Any, column: str) -> Any:
    return input_of(TableRow(0, "", {column: cell}), column)


def _questions_in(cell: Any) -> tuple[Question, ...]:
    if cell is None:
        raise InvalidArgumentError("no questions")
    questions = json_value(read_json(cell, "questions"))
    return as_questions(questions if isinstance(cell, str) else _without_none(questions))


def _without_none(value: Any) -> Any:
    """Remove fields that are None. In a struct column every row has the fields of all rows."""
    if isinstance(value, Mapping):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value


def _decision_and_error(asked: Outcome) -> tuple[Decision | None, str | None]:
    return (None, str(asked)) if isinstance(asked, Exception) else (asked, None)


def _listed(decision: Decision | None) -> list[dict[str, Any]] | None:
    """Return the answers as a list of structs, in the order of the questions."""
    if decision is None:
        return None
    found = []
    for index, answer in enumerate(decision.answers):
        parts = answer_parts(answer)
        cells = {name: parts.get(f"_{name}") for name in ANSWER_TYPES}
        cells["name"] = name_of(answer.name, index)
        cells["answer"] = None if parts[""] is None else cell_text(parts[""])
        cells["probabilities"] = json.dumps(parts["_probabilities"], ensure_ascii=False)
        found.append(cells)
    return found
