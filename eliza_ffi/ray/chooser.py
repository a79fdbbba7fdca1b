"""Choose for the rows of a Ray dataset."""

from __future__ import annotations

import json
import math
import os
import string
from collections.abc import Mapping, Sequence
from typing import Any

from ..chat.prompt import Prompt
from ..checks import check_text
from ..choices.label_set import LabelSet, as_label_set
from ..errors import InvalidArgumentError
from ..session.options import ChoiceMode, Tokenization
from ..tables.columns import ERROR
from .batch import arrow_table, cells_of, or_error, or_raised, read_json, with_cells
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
        """Return the batch with the added columns, as a ``pyarrow.Table``."""
        table = arrow_table(batch)
        labels = self._label_sets(table)
        chosen = self._chosen(self._prompts(table), labels)
        rows = [self._cells(each, own) for each, own in zip(chosen, labels, strict=True)]
        return with_cells(table, rows, self._types)

    def _prompts(self, table: Any) -> list[Any]:
        if self._prompt is None:
            assert self._messages_column is not None
            column = self._messages_column
            return [or_error(_messages, cell, column) for cell in cells_of(table, column)]
        columns = {name: cells_of(table, name) for name in fields_of(self._prompt)}
        rows = [{name: cells[i] for name, cells in columns.items()} for i in range(table.num_rows)]
        return [or_error(_filled, self._prompt, row) for row in rows]

    def _label_sets(self, table: Any) -> list[Any]:
        if self._labels is not None:
            return [self._labels] * table.num_rows
        assert self._labels_column is not None
        return [or_error(_label_set_in, cell) for cell in cells_of(table, self._labels_column)]

    def _chosen(self, prompts: Sequence[Any], labels: Sequence[Any]) -> list[Any]:
        """Return the chosen label for each prompt, or the error of this row."""
        chosen = [
            next((each for each in pair if isinstance(each, Exception)), None)
            for pair in zip(prompts, labels, strict=True)
        ]
        good = [i for i, error in enumerate(chosen) if error is None]
        if good:
            found = self._model.choose_many(
                [prompts[i] for i in good],
                [labels[i] for i in good],
                return_exceptions=True,
                **self._settings,
            )
            for i, each in zip(good, found, strict=True):
                chosen[i] = or_raised(each)
        return chosen

    def _cells(self, chosen: Any, labels: Any) -> dict[str, Any]:
        cells: dict[str, Any] = dict.fromkeys(self._types)
        if isinstance(chosen, Exception):
            return cells | {ERROR: str(chosen)}
        cells[self._name] = labels.texts[chosen.index]
        probability = chosen.probability
        cells[f"{self._name}_probability"] = None if math.isnan(probability) else probability
        if chosen.probabilities is not None:
            cells[f"{self._name}_confidence"] = chosen.confidence
            by_text = zip(labels.texts, chosen.probabilities.values(), strict=True)
            cells[f"{self._name}_probabilities"] = json.dumps(dict(by_text), ensure_ascii=False)
        return cells

    @property
    def _types(self) -> dict[str, str]:
        parts = {"": "text", "_probability": "float"}
        if self._settings["probabilities"]:
            parts |= {"_confidence": "float", "_probabilities": "text"}
        return {**{f"{self._name}{part}": kind for part, kind in parts.items()}, ERROR: "text"}


def fields_of(prompt: str) -> list[str]:
    """Return the columns that a prompt refers to."""
    check_text("prompt", prompt)
    try:
        parsed = list(string.Formatter().parse(prompt))
    except ValueError as error:
        raise InvalidArgumentError(f"prompt: expected a valid format string: {error}") from error
    return list(dict.fromkeys(name for _, name, _, _ in parsed if name is not None))


def _filled(prompt: str, row: Mapping[str, Any]) -> Prompt:
    for name, cell in row.items():
        if cell is None:
            raise InvalidArgumentError(f"no value in column {name!r}")
    return Prompt.format(prompt, **row)


def _messages(cell: Any, column: str) -> Any:
    if not isinstance(cell, list) or not cell:
        raise InvalidArgumentError(f"no conversation in column {column!r}")
    return cell


def _label_set_in(cell: Any) -> LabelSet[Any]:
    return as_label_set(read_json(cell, "labels"))
