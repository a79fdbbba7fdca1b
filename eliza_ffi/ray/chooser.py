"""Choose for the rows of a Ray dataset."""

from __future__ import annotations

import json
import math
import os
import string
from collections.abc import Mapping
from typing import Any

from ..chat.prompt import Prompt
from ..checks import check_text
from ..choices.label_set import LabelSet, as_label_set
from ..errors import InvalidArgumentError
from ..session.options import ChoiceMode, Tokenization
from ..session.runs import choice_run
from ..session.task import Task
from ..tables import DecidedRow, TableRow, decide_rows
from ..tables.columns import ERROR
from .batch import arrow_table, read_json, rows_of, with_cells
from .resources import open_worker_model


class ChooserActor:
    """Choose a label for each row of a dataset; pass this class to ``map_batches``.

    The constructor loads the model as :class:`DeciderActor` does. The columns of a batch are kept.
    The added columns are ``NAME`` (the label), ``NAME_probability``, with `probabilities` also
    ``NAME_confidence`` and ``NAME_probabilities`` (JSON), and finally ``error``.

    Parameters
    ----------
    prompt
        The prompt, with ``{COLUMN}`` for the value of a column, as in :meth:`Prompt.format`. The
        values of a row are always plain text, even if they spell a control token. The answer
        follows the prompt directly.
    labels
        The labels for every row, in any form that :meth:`~eliza_ffi.Model.choose` accepts. The
        output contains the text that the model writes for a label.
    labels_column
        Instead of `labels`: a column with the labels of each row, as a list or as JSON.
    messages_column
        Instead of `prompt`: a column with conversations.
    name
        The name of the label's column, and the prefix of the other added columns except ``error``.
    model, model_options
        See :class:`DeciderActor`.
    mode, temperature, tokenization
        See :meth:`~eliza_ffi.Model.choose`.
    probabilities
        Compute the probability of every label, as in :meth:`~eliza_ffi.Model.choose`.

    Raises
    ------
    InvalidArgumentError
        If the labels or the settings are invalid for all rows.
    ModelError
        If the model does not exist on the node.
    """

    def __init__(
        self,
        prompt: str | None = None,
        labels: Any = None,
        *,
        labels_column: str | None = None,
        messages_column: str | None = None,
        name: str = "choice",
        model: str | os.PathLike[str] | None = None,
        model_options: Mapping[str, Any] | None = None,
        mode: ChoiceMode | None = None,
        temperature: float = 1.0,
        tokenization: Tokenization = "canonical",
        probabilities: bool = False,
    ) -> None:
        if (labels is None) == (labels_column is None):
            raise InvalidArgumentError("pass exactly one of labels and labels_column")
        if (prompt is None) == (messages_column is None):
            raise InvalidArgumentError("pass exactly one of prompt and messages_column")
        self._prompt = prompt
        fields_of("" if prompt is None else prompt)
        self._messages_column = messages_column
        self._labels = None if labels is None else as_label_set(labels)
        self._labels_column = labels_column
        self._name = name
        self._settings: dict[str, Any] = {
            "mode": mode,
            "temperature": temperature,
            "tokenization": tokenization,
            "probabilities": probabilities,
        }
        self._model = open_worker_model(model, model_options)
        if self._labels is not None:
            # Wrong labels or settings would fail in every row, so fail before the first one.
            self._model.choose("a test", self._labels, **self._settings)

    def __call__(self, batch: Any) -> Any:
        table = arrow_table(batch)
        named = (self._messages_column, self._labels_column, *fields_of(self._prompt or ""))
        rows = rows_of(table, [each for each in named if each is not None])
        decided = decide_rows(rows, self._task, self._model.session.at_once(None))
        return with_cells(table, list(map(self._cells, decided)), self._types)

    def _task(self, row: TableRow) -> Task[Any]:
        prompt: Any
        if self._messages_column is not None:
            prompt = _messages(row.fields[self._messages_column], self._messages_column)
        else:
            prompt = _filled(self._prompt or "", row.fields)
        labels = self._labels
        if self._labels_column is not None:
            labels = _label_set_in(row.fields[self._labels_column])
        assert labels is not None
        run = choice_run(self._model.session, prompt, labels, method="choose", **self._settings)
        return Task(self._model.session, run, read=lambda chosen: (chosen, labels.texts))

    def _cells(self, decided: DecidedRow) -> dict[str, Any]:
        cells: dict[str, Any] = dict.fromkeys(self._types)
        if decided.error is not None:
            return cells | {ERROR: decided.error}
        chosen, texts = decided.decision
        cells[self._name] = texts[chosen.index]
        probability = chosen.probability
        cells[f"{self._name}_probability"] = None if math.isnan(probability) else probability
        if chosen.probabilities is not None:
            cells[f"{self._name}_confidence"] = chosen.confidence
            by_text = zip(texts, chosen.probabilities.values(), strict=True)
            cells[f"{self._name}_probabilities"] = json.dumps(dict(by_text), ensure_ascii=False)
        return cells

    @property
    def _types(self) -> dict[str, str]:
        parts = {"": "text", "_probability": "float"}
        if self._settings["probabilities"]:
            parts |= {"_confidence": "float", "_probabilities": "text"}
        return {**{f"{self._name}{part}": kind for part, kind in parts.items()}, ERROR: "text"}


def fields_of(prompt: str) -> list[str]:
    check_text("prompt", prompt)
    try:
        parsed = list(string.Formatter().parse(prompt))
    except ValueError as error:
        raise InvalidArgumentError(f"prompt: expected a valid format string: {error}") from error
    return list(dict.fromkeys(name for _, name, _, _ in parsed if name is not None))


def _filled(prompt: str, fields: Mapping[str, Any]) -> Prompt:
    values = {name: fields[name] for name in fields_of(prompt)}
    for name, cell in values.items():
        if cell is None:
            raise InvalidArgumentError(f"no value in column {name!r}")
    return Prompt.format(prompt, **values)


def _messages(cell: Any, column: str) -> Any:
    if not isinstance(cell, list) or not cell:
        raise InvalidArgumentError(f"no conversation in column {column!r}")
    return cell


def _label_set_in(cell: Any) -> LabelSet[Any]:
    return as_label_set(read_json(cell, "labels"))
