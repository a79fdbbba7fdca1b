"""Ask a model in SQL, in DuckDB. Requires the extra ``duckdb``.

>>> import duckdb
>>> from eliza_ffi import Model
>>> from eliza_ffi.decisions import Choice
>>> from eliza_ffi.duckdb import register
>>> connection = duckdb.connect()
>>> register(connection, Model(), {"team": Choice("Which team?", ["billing", "delivery"])})
>>> connection.sql("SELECT decide('Where is my parcel?', 'team')").fetchall()
[('delivery',)]
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from .checks import check_whole
from .decisions.answers import name_of
from .decisions.questions import Question
from .decisions.wire import as_questions
from .errors import InvalidArgumentError, NotSupportedError
from .evidence.calibration import as_calibration
from .evidence.deciding import DecideSettings, refuse_input_prior
from .session.requests import check_keywords
from .structured.json_text import read_json
from .tables.columns import ERROR, ROW, OutputColumns, cell_text
from .tables.decider import RowDecider
from .tables.parquet import arrow_array, arrow_type, load_pyarrow
from .tables.rows import TableRow

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from typing_extensions import Unpack

__all__ = ["register"]

TEXT = "text"

SQL_TYPES = {
    "int": "BIGINT",
    "bool": "BOOLEAN",
    "float": "DOUBLE",
    "text": "VARCHAR",
    "texts": "VARCHAR[]",
}
"""DuckDB's type for each type in :attr:`OutputColumns.types`."""

logger = logging.getLogger("eliza_ffi")


def register(
    connection: DuckDBPyConnection,
    model: Any,
    questions: Any = None,
    *,
    cached_texts: int = 100_000,
    **settings: Unpack[DecideSettings],
) -> None:
    """Add the SQL functions ``decide(text, question)`` and ``decide_all(text)`` to a connection.

    ``decide`` returns the answer to one question as VARCHAR: ``true`` or ``false``, the option, the
    mean level of a score, or the labels that fit as JSON. The question is the name of one of
    `questions`, or a question as JSON. The answer is NULL if the text is NULL or empty, if the
    model abstained, or if there is an error, which is logged.

    ``decide_all`` answers all of `questions`, which share the forward passes that read the text. It
    returns a STRUCT with the columns that ``eliza-ffi decide`` writes for a table, from the answers
    to ``error``; ``unnest(decide_all(text))`` makes them columns.

    DuckDB passes up to 2,048 rows at once. Each different text among them is decided once, and
    several at the same time. If the connection has these functions already, they are replaced. The
    model must stay open.

    Parameters
    ----------
    connection
        A connection of the package ``duckdb``.
    model
        An open :class:`~eliza_ffi.Model`.
    questions
        In any form that :func:`~eliza_ffi.decisions.as_questions` accepts; None = only
        ``decide`` with questions as JSON.
    cached_texts
        The number of texts whose answers are kept, for each set of questions.
    **settings
        The keyword arguments of :meth:`~eliza_ffi.Model.decide`, except `timeout`. A calibration is
        for all of `questions`, and ``decide`` then also asks all of them.

    Raises
    ------
    InvalidArgumentError
        If a question or a setting is invalid.
    NotSupportedError
        If ``duckdb`` or ``pyarrow`` is not installed.
    """
    duckdb = _load_duckdb()
    check_keywords("register", settings, DecideSettings.__annotations__.keys())
    refuse_input_prior(settings)
    calibration = as_calibration(settings.get("calibration"))
    functions = _Functions(
        model,
        () if questions is None else as_questions(questions),
        {**settings, "calibration": calibration},
        check_whole("cached_texts", cached_texts, 0),
    )
    text = duckdb.sqltype("VARCHAR")
    struct = duckdb.struct_type(
        {name: duckdb.sqltype(SQL_TYPES[kind]) for name, kind in functions.types.items()}
    )
    add = partial(connection.create_function, type="arrow", null_handling="special")
    for name in ("decide", "decide_all"):
        with suppress(duckdb.InvalidInputException):  # there is none yet
            connection.remove_function(name)
    add("decide", functions.decide, [text, text], text)
    add("decide_all", functions.decide_all, [text], struct)


def _load_duckdb() -> Any:
    try:
        load_pyarrow()
        return importlib.import_module("duckdb")
    except (ImportError, NotSupportedError):
        raise NotSupportedError(
            "SQL functions require duckdb and pyarrow: pip install 'eliza-ffi[duckdb]'"
        ) from None


class _Functions:
    """The SQL functions of a model. Their arguments and results are arrays of Arrow."""

    def __init__(
        self, model: Any, questions: Sequence[Question], settings: Mapping[str, Any], n_cached: int
    ) -> None:
        self._model, self._settings, self._n_cached = model, settings, n_cached
        self._pa = load_pyarrow()
        self._questions = {name_of(each.name, i): each for i, each in enumerate(questions)}
        self._all = self._cached_answers(questions, settings) if questions else None
        self._asked: dict[str, tuple[str, _CachedAnswers]] = {}
        self._lock = Lock()
        columns = {ERROR: "text"} if self._all is None else self._all.columns.types
        self.types = {name: kind for name, kind in columns.items() if name != ROW}

    def decide(self, texts: Any, questions: Any) -> Any:
        names = questions.to_pylist()
        rows: dict[str, list[int]] = {}  # by question
        for row, (text, name) in enumerate(zip(texts.to_pylist(), names, strict=True)):
            if text is not None and name is not None:
                rows.setdefault(name, []).append(row)
        found: list[str | None] = [None] * len(names)
        given = texts.to_pylist()
        for name, places in rows.items():
            column, asked = self._for(name)
            for row, cells in zip(places, asked.cells([given[i] for i in places]), strict=True):
                answer = None if cells is None else cells[column]
                found[row] = None if answer is None else cell_text(answer)
        return self._pa.array(found, self._pa.string())

    def decide_all(self, texts: Any) -> Any:
        if self._all is None:
            raise InvalidArgumentError(
                "decide_all() needs questions: pass them to eliza_ffi.duckdb.register()"
            )
        rows = self._all.cells(texts.to_pylist())
        kinds = {name: arrow_type(self._pa, kind) for name, kind in self.types.items()}
        columns = [
            arrow_array(self._pa, kind, [None if row is None else row[name] for row in rows])
            for name, kind in kinds.items()
        ]
        is_null = self._pa.array([row is None for row in rows])
        return self._pa.StructArray.from_arrays(columns, names=list(kinds), mask=is_null)

    def _for(self, name: str) -> tuple[str, _CachedAnswers]:
        """Return the column of a question's answers, and what answers it."""
        with self._lock:
            if name not in self._asked:
                self._asked[name] = self._new(name)
            return self._asked[name]

    def _new(self, name: str) -> tuple[str, _CachedAnswers]:
        if name in self._questions:
            if self._all is not None and self._settings["calibration"] is not None:
                return name, self._all
            return name, self._cached_answers([self._questions[name]], self._settings)
        if not name.lstrip().startswith("{"):
            names = ", ".join(map(repr, self._questions)) or "none"
            raise InvalidArgumentError(
                f"unknown question: {name!r:.80}; expected the name of a question of register() "
                f"({names}), or a question as JSON"
            )
        if self._settings["calibration"] is not None:
            raise InvalidArgumentError(
                "a question as JSON cannot be combined with a calibration: use the name of a "
                "question of register()"
            )
        asked, *others = as_questions(read_json(name))
        if others:
            raise InvalidArgumentError(
                f"decide() asks one question, got {1 + len(others)}: pass them to register(), and "
                f"use decide_all()"
            )
        return name_of(asked.name, 0), self._cached_answers([asked], self._settings)

    def _cached_answers(
        self, questions: Sequence[Question], settings: Mapping[str, Any]
    ) -> _CachedAnswers:
        return _CachedAnswers(self._model, questions, settings, self._n_cached)


class _CachedAnswers:
    """Answers questions about texts, and keeps the answers.

    `columns` describes the cells of an answered text.
    """

    def __init__(
        self, model: Any, questions: Sequence[Question], settings: Mapping[str, Any], n_cached: int
    ) -> None:
        self.columns = OutputColumns(questions, settings=settings)
        self._decider = RowDecider(model, TEXT, questions, settings, None)
        self._n_cached = n_cached
        self._cells: dict[str, dict[str, Any]] = {}
        self._lock = Lock()  # DuckDB may call from several threads, which could ask the same

    def cells(self, texts: Sequence[str | None]) -> list[dict[str, Any] | None]:
        """Return the cells of each text; None if it is missing or blank."""
        wanted = dict.fromkeys(text for text in texts if text is not None and text.strip())
        with self._lock:
            kept = self._cells
            found = {text: kept[text] for text in wanted if text in kept}
            new = [text for text in wanted if text not in found]
            for decided in self._decider.decide_rows(
                TableRow(i, "", {TEXT: text}) for i, text in enumerate(new, 1)
            ):
                cells = self.columns.cells(decided.row, decided.decision, decided.error)
                text = decided.row.fields[TEXT]
                found[text] = kept[text] = cells
                if decided.error is not None:
                    logger.warning("no answer for the text %.60r: %s", text, decided.error)
            for text in list(kept)[: max(len(kept) - self._n_cached, 0)]:
                del kept[text]  # the oldest
        return [None if text is None else found.get(text) for text in texts]
