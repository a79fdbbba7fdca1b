"""Questions about the rows of a Ray dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..checks import check_flag
from ..decisions.answers import Decision, name_of
from ..decisions.asking import WritePrompt
from ..decisions.calibration import Calibration, as_calibration
from ..decisions.fingerprint import fingerprint_of
from ..decisions.prompts import LabelStyle
from ..decisions.scoring import Rule
from ..decisions.wire import as_questions
from ..errors import InvalidArgumentError
from ..tables.columns import ERROR, ROW, OutputColumns, answer_parts, cell_text
from ..tables.parquet import arrow_array, arrow_type, load_pyarrow
from ..tables.rows import TableRow
from .arrow import arrow_table, cells_of, text_array, with_columns
from .asking import Outcome, ask_each, ask_together, inputs_of, or_error, questions_of
from .share import open_worker_model

__all__ = ["DeciderActor"]

ANSWERS = "answers"

TEST_INPUT = "a test"


class DeciderActor:
    """Answers questions about a column; what Ray Data makes an actor of.

    The model is loaded once, where this is made, with as many threads as Ray gave the actor CPUs,
    and with all layers on the GPU if it gave one. Columns of the batch come out as they were, and
    behind them those of the answers, as in a table's output: for each question ``NAME``,
    ``NAME_probability``, ``NAME_label`` (of a score), ``NAME_confidence`` and what was asked for
    besides, then ``error``. Where the questions are in a column they are ``answers``, a list with a
    struct for each question, and ``error``.

    A row that cannot be answered has an ``error`` and no answers. What is not a row's own failure
    is raised.

    Parameters
    ----------
    column
        The column with the inputs: texts, conversations, other JSON.
    questions
        The same for all rows, in any form that :meth:`~eliza_ffi.Model.decide` takes.
    questions_column
        Instead, the column with each row's own: as JSON, or as lists and structs.
    model
        A ``.gguf`` file or a bundle, an absolute path that is the same on every node; None = the
        embedded model.
    model_options
        More arguments of :class:`~eliza_ffi.Model`, such as ``n_ctx`` and ``n_slots``; they go
        before what Ray gave.
    labels, orders, prompt, scoring, option_mass, abstain_below
        As :meth:`~eliza_ffi.Model.decide`.
    calibration
        A calibration, or its file.
    probabilities
        Whether ``NAME_probabilities`` are columns, as JSON.
    min_confidence
        Adds ``review``: whether an answer is less sure than this, or the model abstained.

    Raises
    ------
    InvalidArgumentError
        If the questions or the settings are wrong for every row.
    ModelError
        If this node has no such model.

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
        labels: LabelStyle | None = None,
        orders: int | None = None,
        prompt: WritePrompt | None = None,
        scoring: Rule | None = None,
        calibration: Calibration | str | os.PathLike[str] | None = None,
        option_mass: bool = False,
        abstain_below: float = 0.0,
        probabilities: bool = False,
        min_confidence: float | None = None,
    ) -> None:
        if (questions is None) == (questions_column is None):
            raise InvalidArgumentError("give either questions or questions_column")
        if questions is None and min_confidence is not None:
            raise InvalidArgumentError("min_confidence goes with the same questions for all rows")
        check_flag("probabilities", probabilities)
        check_flag("option_mass", option_mass)
        self._column = column
        self._questions_column = questions_column
        self._settings: dict[str, Any] = {
            "labels": labels,
            "orders": orders,
            "prompt": prompt,
            "scoring": scoring,
            "calibration": as_calibration(calibration),
            "option_mass": option_mass,
            "abstain_below": abstain_below,
        }
        self._questions = () if questions is None else as_questions(questions)
        self._columns = OutputColumns(
            self._questions,
            probabilities=probabilities,
            option_mass=option_mass,
            min_confidence=min_confidence,
        )
        self._model = open_worker_model(model, model_options)
        if self._questions:
            # What is wrong with the questions or the calibration would be wrong in every row.
            self._model.decide(TEST_INPUT, self._questions, **self._settings)

    @property
    def fingerprint(self) -> str:
        """The model's fingerprint."""
        return fingerprint_of(self._model)

    def decide(self, inputs: Sequence[Any]) -> list[Outcome]:
        """Return a decision for each input, or the error that only this input has.

        Exceptions among the inputs are returned as they are.
        """
        return ask_together(self._model, inputs, self._questions, self._settings)

    def __call__(self, batch: Any) -> Any:
        """Return a batch with its answers, as a ``pyarrow.Table``."""
        table = arrow_table(batch)
        inputs = inputs_of(cells_of(table, self._column), self._column)
        if self._questions_column is None:
            return self._with_answers(table, inputs)
        return self._with_own_answers(table, inputs, self._questions_column)

    def _with_answers(self, table: Any, inputs: Sequence[Any]) -> Any:
        row = TableRow(0, "", {})
        rows = [
            self._columns.cells(row, *_decision_and_error(asked)) for asked in self.decide(inputs)
        ]
        pa = load_pyarrow()
        ours = {
            name: arrow_array(pa, arrow_type(pa, kind), [cells[name] for cells in rows])
            for name, kind in self._columns.types.items()
            if name != ROW
        }
        return with_columns(table, ours)

    def _with_own_answers(self, table: Any, inputs: Sequence[Any], column: str) -> Any:
        questions = [or_error(questions_of, cell) for cell in cells_of(table, column)]
        asked = [
            _decision_and_error(each)
            for each in ask_each(self._model, inputs, questions, self._settings)
        ]
        pa = load_pyarrow()
        answers = pa.array([_listed(decision) for decision, _ in asked], _answers_type(pa))
        return with_columns(table, {ANSWERS: answers, ERROR: text_array([e for _, e in asked])})


def _decision_and_error(asked: Outcome) -> tuple[Decision | None, str | None]:
    return (None, str(asked)) if isinstance(asked, Exception) else (asked, None)


def _listed(decision: Decision | None) -> list[dict[str, Any]] | None:
    """Return answers as a list of structs, in the order of the questions."""
    if decision is None:
        return None
    found = []
    for place, answer in enumerate(decision.answers):
        parts = answer_parts(answer)
        value = parts[""]
        found.append(
            {
                "name": name_of(answer.name, place),
                "answer": None if value is None else cell_text(value),
                "probability": parts.get("_probability"),
                "label": parts.get("_label"),
                "confidence": parts["_confidence"],
                "option_mass": parts.get("_option_mass"),
                "probabilities": json.dumps(parts["_probabilities"], ensure_ascii=False),
            }
        )
    return found


def _answers_type(pa: Any) -> Any:
    text, number = pa.string(), pa.float64()
    return pa.list_(
        pa.struct(
            {
                "name": text,
                "answer": text,
                "probability": number,
                "label": text,
                "confidence": number,
                "option_mass": number,
                "probabilities": text,
            }.items()
        )
    )
