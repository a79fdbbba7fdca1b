"""Decide for the rows of a Ray dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..checks import check_flag
from ..decisions.answers import Decision, name_of
from ..decisions.questions import Question, with_top
from ..decisions.wire import as_questions
from ..errors import InvalidArgumentError
from ..evidence.calibration import as_calibration
from ..evidence.cascade import Cascade, as_cascade_calibration
from ..evidence.deciding import DecideSettings, refuse_input_prior
from ..evidence.reasoning import inputs_at_once, question_task
from ..session.task import Task
from ..tables import OutputColumns, RowDecider, TableRow, decide_rows
from ..tables.columns import ERROR, ROW, answer_parts, cell_text
from ..tables.decider import input_of
from ..tables.parquet import arrow_type, load_pyarrow
from ..tables.rows import json_value
from .batch import arrow_table, read_json, rows_of, with_cells, with_columns
from .cascade import decide_whole
from .resources import open_worker_model

if TYPE_CHECKING:
    from typing_extensions import Unpack

ANSWERS = "answers"

OF_CASCADE = ("calibration", "min_probability", "abstain", "allowed_probability")
"""The settings that the models of a cascade do not have."""

ANSWER_TYPES = {
    "name": "text",
    "answer": "text",
    "probability": "float",
    "label": "text",
    "confidence": "float",
    "allowed_probability": "float",
    "probabilities": "text",
}
"""The fields of the column ``answers`` with their types, as in `OutputColumns`."""


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
    sample
        Some of the inputs, whose tokens are counted for ``prompt_order="auto"``.
    then, below
        More models, which are asked about inputs whose answer may still change: those of a
        :class:`~eliza_ffi.Cascade`. All are open at the same time. A column ``stage`` is added. The
        calibration is one of a cascade.
    **settings
        The keyword arguments of :meth:`~eliza_ffi.Model.decide`, except `timeout`. With `think` and
        `questions`, a column ``reasoning`` is added, too. With `min_probability` or `abstain`, a
        column ``review`` is added: true if the model abstained from an answer.

    Raises
    ------
    InvalidArgumentError
        If the questions or the settings are invalid for all rows.
    ModelError
        If the model does not exist on the node.
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
        sample: Sequence[Any] | None = None,
        then: Sequence[str | os.PathLike[str]] = (),
        below: float = 1.0,
        **settings: Unpack[DecideSettings],
    ) -> None:
        if (questions is None) == (questions_column is None):
            raise InvalidArgumentError("pass exactly one of questions and questions_column")
        if then and questions is None:
            raise InvalidArgumentError("then needs questions: it cannot have a questions_column")
        self._column = column
        self._questions_column = questions_column
        asked = () if questions is None else with_top(as_questions(questions), top)
        self._settings: dict[str, Any] = {**settings}
        fitted, found = None, settings.get("calibration")
        if then:
            fitted = as_cascade_calibration(found)
            may_review = fitted is not None and any(each.abstains for each in fitted.questions)
            shown = {"stage": True, "abstain": "risk" if may_review else None}
        else:
            self._settings["calibration"] = as_calibration(found)
            shown = self._settings if asked else {}
        self._columns = OutputColumns(
            asked,
            settings=shown,
            probabilities=check_flag("probabilities", probabilities),
            top=top,
        )
        self._model = open_worker_model(model, model_options)
        refuse_input_prior(settings)
        if then:
            own = {name: value for name, value in settings.items() if name not in OF_CASCADE}
            models = [self._model, *(open_worker_model(path, model_options) for path in then)]
            cascade = Cascade([(each, own) for each in models], below=below)
            least = settings.get("min_probability", 0.0)
            self._decide: Any = partial(decide_whole, cascade, column, asked, fitted, least)
        elif asked:
            rows = RowDecider(self._model, column, asked, self._settings, sample)
            self._decide = rows.decide_rows

    def __call__(self, batch: Any) -> Any:
        table = arrow_table(batch)
        if self._questions_column is not None:
            return self._with_own_answers(table, self._questions_column)
        rows = [
            self._columns.cells(each.row, each.decision, each.error)
            for each in self._decide(rows_of(table, [self._column]))
        ]
        types = {name: kind for name, kind in self._columns.types.items() if name != ROW}
        return with_cells(table, rows, types)

    def _with_own_answers(self, table: Any, column: str) -> Any:
        def start(row: TableRow) -> Task[Decision]:
            input, questions = input_of(row, self._column), _questions_in(row.fields[column])
            return question_task(self._model, input, questions, self._settings)

        at_once = inputs_at_once(self._model.session, self._settings.get("think", 0), None)
        decided = list(decide_rows(rows_of(table, [self._column, column]), start, at_once))
        pa = load_pyarrow()
        fields = pa.struct([(name, arrow_type(pa, kind)) for name, kind in ANSWER_TYPES.items()])
        answers = pa.array([_listed(each.decision) for each in decided], pa.list_(fields))
        errors = pa.array([each.error for each in decided], pa.string())
        return with_columns(table, {ANSWERS: answers, ERROR: errors})


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


def _listed(decision: Decision | None) -> list[dict[str, Any]] | None:
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
