"""A table decided: rows in, answers out, in order, as far as it has come when it is broken off."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..decisions.answers import Decision
from ..decisions.asking import is_of_row
from ..decisions.prompts import input_text
from ..decisions.questions import Question
from ..decisions.wire import question_to
from ..errors import ContextFullError, ElizaError, InvalidArgumentError
from ..session.batches import run_in_order
from .columns import AnswerCounts, OutputColumns
from .file_formats import format_of
from .files import content_hash, replace_file
from .output import write_output
from .parquet import load_pyarrow
from .rows import InputTable, TableRow, check_column, is_unicode, json_value
from .store import JobStore

__all__ = [
    "DecidedRow",
    "TableJob",
    "TableResult",
    "TableStep",
    "decide_rows",
    "input_of",
]

LOOK_AHEAD = 8
"""Rows that may have begun whose answers are not written yet, for each that runs at once."""

Decide = Callable[[Any], Decision]
"""Answers the questions about an input; called on several threads."""


@dataclass(frozen=True)
class DecidedRow:
    """A row, and the decision about it or why there is none."""

    row: TableRow
    decision: Decision | None
    error: str | None = None

    @classmethod
    def failed(cls, row: TableRow, error: Exception) -> DecidedRow:
        """Return a row without a decision, and where it is and why."""
        return cls(row, None, f"{row.place}: {error}")


DecideAll = Callable[[Iterable[TableRow]], "Generator[DecidedRow, None, None]"]
"""Takes rows, and yields them decided."""


@dataclass(frozen=True)
class TableStep:
    """How far a job has come.

    Attributes
    ----------
    rows : int
        Of the output.
    new_rows : int
        Of those, decided now and not in an earlier run.
    done : float
        The share of the table, 0 to 1.
    done_before : float
        The share that was done when this run began.
    """

    rows: int
    new_rows: int
    done: float
    done_before: float


@dataclass(frozen=True)
class TableResult:
    """What a job came to.

    Attributes
    ----------
    counts : AnswerCounts
        Of all rows of the output, those of earlier runs included.
    new_rows : int
        Rows decided in this run.
    seconds : float
        That this run took.
    is_whole : bool
        Whether the table came to its end; not, where a limit was reached.
    """

    counts: AnswerCounts
    new_rows: int
    seconds: float
    is_whole: bool


class TableJob:
    """Questions about every row of a table, answered into a file.

    The output's rows are in the order of the table's, one for each. Run again, after it was
    interrupted or killed, the job resumes after the last row that was decided.

    Parameters
    ----------
    table
    column
        The column whose values are the inputs: texts, in JSONL and Parquet also conversations and
        other JSON.
    questions
    output
        A ``.jsonl``, ``.csv``, ``.tsv`` or ``.parquet`` file. It is written when a run ends. Until
        then its rows are in ``OUTPUT.job``, which later runs need.
    keep
        The table's columns that stand in the output as well; None = all.
    settings
        All that the answers depend on besides table and questions, as JSON: a fingerprint of the
        model, how it is asked. An output of others is not gone on with.
    option_mass, min_confidence
        See :class:`OutputColumns`.

    Raises
    ------
    InvalidArgumentError
        If the table lacks a column, or the output is no table or the input itself.
    """

    def __init__(
        self,
        table: InputTable,
        column: str,
        questions: Sequence[Question],
        output: Path,
        *,
        keep: Sequence[str] | None = None,
        settings: Mapping[str, Any],
        option_mass: bool = False,
        min_confidence: float | None = None,
    ) -> None:
        for name in (column, *(keep or ())):
            check_column(table, name)
        self._format = format_of(output)
        if output.exists() and output.samefile(table.path):
            raise InvalidArgumentError(f"{output} is the input: name another file for the output")
        if self._format == "parquet":
            load_pyarrow()  # now, not after hours
        self.table = table
        self.column = column
        self.output = output
        kept = list(dict.fromkeys(table.all_columns() if keep is None else keep))
        self.columns = OutputColumns(
            questions,
            kept,
            probabilities=self._format == "jsonl",
            option_mass=option_mass,
            min_confidence=min_confidence,
        )
        self._description = {
            "column": column,
            "keep": kept,
            "min_confidence": min_confidence,
            "output": self._format,
            "questions": [question_to(question) for question in questions],
            **settings,
        }
        if self._format == "parquet":
            self._check_names()
        # Kept columns, never looked at: Python could not hold everything that is in them.
        self._copies_kept = self._format == format_of(table.path) == "parquet"

    def run(
        self,
        decide: Decide,
        *,
        at_once: int,
        cancel: Callable[[], Any] | None = None,
        limit: int | None = None,
        overwrite: bool = False,
        retry_errors: bool = False,
        progress: Callable[[TableStep], Any] | None = None,
    ) -> TableResult:
        """Decide what is not decided yet.

        Parameters
        ----------
        decide
            Where it raises what :func:`is_of_row`, the row has an error; any other exception ends
            the run.
        at_once
            How many rows are asked about together.
        cancel
            Ends the calls of `decide` that are running, where the run is broken off. Without it
            they are waited for.
        limit, overwrite, retry_errors, progress
            As :meth:`run_rows`, which is what it raises, too.
        """

        def decide_all(rows: Iterable[TableRow]) -> Generator[DecidedRow, None, None]:
            return decide_rows(decide, rows, self.column, at_once=at_once, cancel=cancel)

        return self.run_rows(
            decide_all,
            limit=limit,
            overwrite=overwrite,
            retry_errors=retry_errors,
            progress=progress,
        )

    def run_rows(
        self,
        decide_all: DecideAll,
        *,
        limit: int | None = None,
        overwrite: bool = False,
        retry_errors: bool = False,
        progress: Callable[[TableStep], Any] | None = None,
    ) -> TableResult:
        """Decide what is not decided yet, by whoever takes all rows and yields them decided.

        Parameters
        ----------
        decide_all
            Yields the rows in their order, and is closed where the run is broken off.
        limit
            The row to end at. A later run may go on behind it.
        overwrite
            Begin anew where there is an output.
        retry_errors
            Where there is an output, first decide its rows anew that have an error.
        progress
            Called after every row that was decided.

        Raises
        ------
        InvalidArgumentError
            If there is an output already that is not of this job.
        ElizaError
            If another process is running it, or changed the table during the run.
        """
        begin = time.monotonic()
        description = {"input": content_hash(self.table.path), **self._description}
        counts = AnswerCounts(self.columns)
        with JobStore(self.output, description, overwrite=overwrite) as store:
            n_again = 0
            if retry_errors:
                n_again = self._retry(store, description, decide_all, limit, progress)
            for cells in store:
                counts.add(cells)
            n_before = store.n_rows
            left = None if limit is None else max(limit - n_before, 0)
            steps = _ToldSteps(store, progress)
            with (
                closing(_Watched(self._rows_behind(n_before), left)) as rows,
                closing(self._decided(decide_all, rows)) as decided_rows,
            ):
                for row, cells in decided_rows:
                    store.append(cells)
                    counts.add(cells)
                    steps.tell(row)
            if not self._is_same_input(description):
                store.make_useless()
                raise self._input_changed()
            if not store.is_written():
                self._write(store, description)
            n_new = n_again + store.n_rows - n_before
        return TableResult(counts, n_new, time.monotonic() - begin, rows.is_at_end)

    def _decided(
        self, decide_all: DecideAll, rows: Iterable[TableRow]
    ) -> Generator[tuple[TableRow, dict[str, Any]], None, None]:
        """Yield rows with what the output has of them."""
        with closing(decide_all(rows)) as decided_rows:
            for decided in decided_rows:
                cells = self.columns.cells(decided.row, decided.decision, decided.error)
                yield decided.row, cells

    def _rows_behind(self, n: int) -> Iterator[TableRow]:
        """Read the rows of the table behind the first n, with what is needed of them."""
        wanted = {self.column}
        if not self._copies_kept:
            wanted.update(self.columns.kept.values())
        return self.table.rows(n, wanted)

    def _retry(
        self,
        store: JobStore,
        description: Mapping[str, Any],
        decide_all: DecideAll,
        limit: int | None,
        progress: Callable[[TableStep], Any] | None,
    ) -> int:
        """Decide the rows with errors anew, and return how many these were.

        The others stay as they are until all of these are decided.
        """
        numbers = store.failed(limit)
        if not numbers:
            store.take_retried()  # a run that was killed has left them
            return 0
        steps = _ToldSteps(store, progress)
        rows = (row for row in self._rows_behind(min(numbers) - 1) if row.number in numbers)
        with closing(rows), closing(self._decided(decide_all, rows)) as decided_rows:
            for row, cells in decided_rows:
                store.add_retried(cells)
                steps.tell(row)
        if not self._is_same_input(description):
            store.forget_retried()
            raise self._input_changed()
        store.take_retried()
        return steps.n_told

    def _write(self, store: JobStore, description: Mapping[str, Any]) -> None:
        """Write the output, so that it is there whole or not at all."""
        part = self.output.with_name(self.output.name + ".part")
        write_output(part, self._format, store, self.columns, self.table)
        if self._copies_kept and not self._is_same_input(description):  # it was just read again
            store.make_useless()
            raise self._input_changed()
        store.note_output(part)
        replace_file(part, self.output)

    def _is_same_input(self, description: Mapping[str, Any]) -> bool:
        return content_hash(self.table.path) == str(description["input"])

    def _input_changed(self) -> ElizaError:
        return ElizaError(
            f"{self.table.path} was changed while the job was running: some rows may be of the "
            f"old table and some of the new one; run the job again with --overwrite"
        )

    def _check_names(self) -> None:
        """Raise InvalidArgumentError if the name of a column is not Unicode text."""
        for name in self.columns.names:
            if is_unicode(name):
                continue
            key = self.columns.kept.get(name)
            what, way_out = f"the question's name {name!r}", "rename the question"
            if key is not None:
                row = next(row for row in self.table.rows() if key in row.fields)
                what, way_out = f"{row.place}: the key {key!r}", "keep other columns (--keep)"
            raise InvalidArgumentError(
                f"{what} cannot name a column of a Parquet file: expected Unicode text, found a "
                f"lone surrogate; {way_out}, or write .jsonl"
            )


def decide_rows(
    decide: Decide,
    rows: Iterable[TableRow],
    column: str,
    *,
    at_once: int,
    cancel: Callable[[], Any] | None = None,
) -> Generator[DecidedRow, None, None]:
    """Ask about rows, several at once, and yield them in their order.

    Parameters
    ----------
    decide
        As of :meth:`TableJob.run`.
    rows
    column
        The column whose values are the inputs.
    at_once
        How many together.
    cancel
        As of :meth:`TableJob.run`.
    """

    def start(row: TableRow) -> _RowJob:
        return _RowJob(decide, row, column, cancel)

    results = run_in_order(rows, start, at_once=at_once, look_ahead=at_once * LOOK_AHEAD)
    with closing(results):
        yield from results


def input_of(row: TableRow, column: str) -> Any:
    """Return the input of a row.

    Raises
    ------
    InvalidArgumentError
        If it has none, or one that is no text.
    """
    if row.error is not None:
        raise InvalidArgumentError(row.error)
    value = row.fields.get(column)
    if value is None:
        raise InvalidArgumentError(f"no value in column {column!r}")
    given = value if isinstance(value, str) else json_value(value)
    text = input_text(given)
    if not text.strip():
        raise InvalidArgumentError(f"nothing in column {column!r}")
    if not is_unicode(text):
        raise InvalidArgumentError(f"column {column!r} is not UTF-8")
    return given


class _RowJob:
    """The questions about one row."""

    def __init__(
        self, decide: Decide, row: TableRow, column: str, cancel: Callable[[], Any] | None
    ) -> None:
        self._decide = decide
        self._row = row
        self._column = column
        self._cancel = cancel

    def run(self) -> DecidedRow:
        try:
            return DecidedRow(self._row, self._decide(input_of(self._row, self._column)))
        except (InvalidArgumentError, ContextFullError) as error:
            if not is_of_row(error):
                raise
            return DecidedRow.failed(self._row, error)

    def cancel(self) -> None:
        if self._cancel is not None:
            self._cancel()


class _ToldSteps:
    """Tells how far a job has come.

    Attributes
    ----------
    n_told : int
        Rows that were decided now.
    """

    def __init__(self, store: JobStore, progress: Callable[[TableStep], Any] | None) -> None:
        self.n_told = 0
        self._store = store
        self._progress = progress
        self._is_from_the_first = store.n_rows == 0
        self._done_before: float | None = None

    def tell(self, row: TableRow) -> None:
        """Tell of a row that was decided and is in the store."""
        self.n_told += 1
        if self._progress is None:
            return
        if self._done_before is None:
            self._done_before = 0.0 if self._is_from_the_first else row.done
        self._progress(TableStep(self._store.n_rows, self.n_told, row.done, self._done_before))


class _Watched:
    """Rows up to a limit, and whether it was the table that ended them."""

    def __init__(self, rows: Iterator[TableRow], limit: int | None) -> None:
        self.is_at_end = False
        self._is_over = False
        self._rows = rows
        self._left = limit

    def __iter__(self) -> _Watched:
        return self

    def __next__(self) -> TableRow:
        if self._is_over:
            raise StopIteration
        try:
            row = next(self._rows)
        except StopIteration:
            self.is_at_end = self._is_over = True
            raise
        if self._left == 0:  # read to know whether there is one more
            self._is_over = True
            raise StopIteration
        if self._left is not None:
            self._left -= 1
        return row

    def close(self) -> None:
        close = getattr(self._rows, "close", None)
        if close is not None:
            close()
