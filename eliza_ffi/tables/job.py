"""Decide the rows of a table in order, with an output that an interrupted job can resume."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from ..decisions.answers import Decision
from ..decisions.asking import is_of_row
from ..decisions.auto_prompts import sample_of
from ..decisions.prompts import input_text
from ..decisions.questions import Question
from ..decisions.wire import question_to
from ..errors import ContextFullError, ElizaError, InvalidArgumentError
from ..session.batches import run_in_order
from .columns import AnswerCounts, OutputColumns
from .file_formats import format_of, write_output
from .parquet import load_pyarrow
from .rows import InputTable, TableRow, check_column, is_unicode, json_value
from .store import JobStore, content_hash, replace_file

LOOK_AHEAD = 8
"""The maximum number of rows that have begun but are not yet written, as a multiple of the number
of rows that are decided at the same time."""

Decide = Callable[[Any], Decision]
"""Answers the questions about an input. It is called on several threads."""


@dataclass(frozen=True)
class DecidedRow:
    """A row with its decision, or with the error that prevented one."""

    row: TableRow
    decision: Decision | None
    error: str | None = None

    @classmethod
    def failed(cls, row: TableRow, error: Exception) -> DecidedRow:
        """Return a row without a decision; the error names the row's place and the cause."""
        return cls(row, None, f"{row.place}: {error}")


DecideAll = Callable[[Iterable[TableRow]], "Generator[DecidedRow, None, None]"]
"""Takes rows, and yields the decided rows in the same order."""


@dataclass(frozen=True)
class TableStep:
    """The progress of a job.

    Attributes
    ----------
    rows : int
        Rows of the output so far.
    new_rows : int
        Rows that this run decided.
    done : float
        The fraction of the table that is done, 0 to 1.
    done_before : float
        The fraction that was done when this run started.
    """

    rows: int
    new_rows: int
    done: float
    done_before: float


@dataclass(frozen=True)
class TableResult:
    """The result of a run.

    Attributes
    ----------
    counts : AnswerCounts
        Counts over all rows of the output, including rows of earlier runs.
    new_rows : int
        Rows that this run decided.
    seconds : float
        The duration of this run.
    is_whole : bool
        Whether all rows of the table are decided; False if the limit ended the run.
    """

    counts: AnswerCounts
    new_rows: int
    seconds: float
    is_whole: bool


class TableJob:
    """Answer questions about every row of a table, and write the answers to a file.

    The output has one row for each row of the table, in the same order. If a run was interrupted or
    killed, the next run resumes after the last row that was decided.

    Parameters
    ----------
    column
        The column with the inputs: strings, in JSONL and Parquet also conversations and other JSON.
    output
        A ``.jsonl``, ``.csv``, ``.tsv`` or ``.parquet`` file. It is written when a run ends. Until
        then its rows are in ``OUTPUT.job``, which later runs need.
    keep
        The columns of the table to copy to the output; None = all.
    settings
        Everything that affects the answers, except the table and the questions, as JSON: a
        fingerprint of the model, and the settings for prompts and scoring. A job resumes only with
        the same settings.
    **columns
        More arguments of :class:`OutputColumns`.

    Raises
    ------
    InvalidArgumentError
        If the table lacks a column, the format of the output is unsupported, or the output is the
        input.
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
        **columns: Any,
    ) -> None:
        for name in (column, *(keep or ())):
            check_column(table, name)
        self._format = format_of(output)
        if output.exists() and output.samefile(table.path):
            raise InvalidArgumentError(f"{output} is the input: name another file for the output")
        if self._format == "parquet":
            load_pyarrow()  # fail now if it is missing, not after hours of work
        self.table = table
        self.column = column
        # If the output is a link, the file that it points to is replaced, not the link.
        self.output = output.resolve() if output.is_symlink() else output
        kept = list(dict.fromkeys(table.all_columns() if keep is None else keep))
        self.columns = OutputColumns(
            questions, kept, probabilities=self._format == "jsonl", **columns
        )
        self._description = {
            "column": column,
            "keep": kept,
            "min_confidence": columns.get("min_confidence"),
            "top": columns.get("top"),
            "output": self._format,
            "questions": [question_to(question) for question in questions],
            **settings,
        }
        if self._format == "parquet":
            self._check_names()
        # Kept columns are copied without reading their values, because Python cannot represent all
        # values of Parquet.
        self._copies_kept = self._format == format_of(table.path) == "parquet"

    def run_rows(
        self,
        decide_all: DecideAll,
        *,
        limit: int | None = None,
        overwrite: bool = False,
        retry_errors: bool = False,
        progress: Callable[[TableStep], Any] | None = None,
        with_prior: Callable[[str | None], str] | None = None,
        resume: Callable[[AnswerCounts], Any] | None = None,
    ) -> TableResult:
        """Decide the rows that are not decided yet, with a generator that takes all of them.

        Parameters
        ----------
        decide_all
            Yields the decided rows in order. It is closed if the run is interrupted.
        limit
            The number of the last row to decide. A later run can resume after this row.
        overwrite
            Discard an existing output and decide all rows.
        retry_errors
            First decide again the rows of an existing output that have errors.
        progress
            Called after every decided row.
        with_prior
            Called before the first row, with the prior that an earlier run of the job stored, or
            None. Returns the prior, which is stored for later runs.
        resume
            Called before the first new row, with the counts of the rows that are decided.

        Raises
        ------
        InvalidArgumentError
            If the output exists and does not belong to this job.
        ElizaError
            If another process is running the job, or the table was changed during the run.
        """
        begin = time.monotonic()
        description = {"input": content_hash(self.table.path), **self._description}
        counts = AnswerCounts(self.columns)
        with JobStore(self.output, description, overwrite=overwrite) as store:
            if with_prior is not None:
                stored = store.prior()
                prior = with_prior(stored)
                if stored is None:
                    store.keep_prior(prior)
            n_new = 0
            if retry_errors:
                n_new = self._retry(store, description, decide_all, limit, progress)
            for cells in store:
                counts.add(cells)
            if resume is not None:
                resume(counts)

            def append(cells: dict[str, Any]) -> None:
                store.append(cells)
                counts.add(cells)

            left = None if limit is None else max(limit - store.n_rows, 0)
            with closing(self._rows_after(store.n_rows)) as rows:
                n_new += self._decide(store, islice(rows, left), decide_all, append, progress)
                is_whole = next(rows, None) is None
            self._check_input(description, store.invalidate)
            if not store.is_written():
                self._write(store, description)
        return TableResult(counts, n_new, time.monotonic() - begin, is_whole)

    def _rows_after(self, n: int) -> Generator[TableRow, None, None]:
        """Read the rows of the table after the first n, with the required columns."""
        wanted = {self.column}
        if not self._copies_kept:
            wanted.update(self.columns.kept.values())
        return self.table.rows(n, wanted)

    def _decide(
        self,
        store: JobStore,
        rows: Iterable[TableRow],
        decide_all: DecideAll,
        add: Callable[[dict[str, Any]], Any],
        progress: Callable[[TableStep], Any] | None,
    ) -> int:
        """Decide rows, pass their output cells to `add`, and return their number."""
        is_empty = store.n_rows == 0
        n, done_before = 0, 0.0
        with closing(decide_all(rows)) as decided_rows:
            for n, decided in enumerate(decided_rows, 1):
                row = decided.row
                add(self.columns.cells(row, decided.decision, decided.error))
                if n == 1 and not is_empty:
                    done_before = row.done
                if progress is not None:
                    progress(TableStep(store.n_rows, n, row.done, done_before))
        return n

    def _retry(
        self,
        store: JobStore,
        description: Mapping[str, Any],
        decide_all: DecideAll,
        limit: int | None,
        progress: Callable[[TableStep], Any] | None,
    ) -> int:
        """Decide the rows with errors again, and return their number.

        The output does not change until all of these rows are decided.
        """
        n_decided = 0
        # A killed run may have left finished retries, even if no row has an error now.
        if numbers := store.failed(limit):
            with closing(self._rows_after(min(numbers) - 1)) as rows:
                failed = (row for row in rows if row.number in numbers)
                n_decided = self._decide(store, failed, decide_all, store.add_retried, progress)
            self._check_input(description, store.forget_retried)
        store.replace_retried()
        return n_decided

    def _write(self, store: JobStore, description: Mapping[str, Any]) -> None:
        """Write the output to a temporary file, and move it into place."""
        part = self.output.with_name(self.output.name + ".part")
        write_output(part, self._format, store, self.columns, self.table)
        # Copying the kept columns has read the table again, and it may have changed.
        if self._copies_kept:
            self._check_input(description, store.invalidate)
        store.note_output(part)
        replace_file(part, self.output)

    def _check_input(self, description: Mapping[str, Any], discard: Callable[[], None]) -> None:
        """Call `discard` and raise ElizaError if the table has changed since the run began."""
        if content_hash(self.table.path) != description["input"]:
            discard()
            raise ElizaError(
                f"{self.table.path} was changed while the job was running, so some answers may be "
                f"about the old version; run the job again with --overwrite"
            )

    def _check_names(self) -> None:
        """Raise InvalidArgumentError if the name of a column is not Unicode text."""
        for name in self.columns.names:
            if is_unicode(name):
                continue
            key = self.columns.kept.get(name)
            what, next_step = f"the question's name {name!r}", "rename the question"
            if key is not None:
                row = next(row for row in self.table.rows() if key in row.fields)
                what, next_step = f"{row.place}: the key {key!r}", "keep other columns (--keep)"
            raise InvalidArgumentError(
                f"{what} cannot name a column of a Parquet file: expected Unicode text, found a "
                f"lone surrogate; {next_step}, or write .jsonl"
            )


def decide_rows(
    decide: Decide,
    rows: Iterable[TableRow],
    column: str,
    *,
    at_once: int,
    cancel: Callable[[], None] | None = None,
) -> Generator[DecidedRow, None, None]:
    """Decide several rows at the same time, and yield them in order.

    Parameters
    ----------
    decide
        Decides one input. An exception for which :func:`is_of_row` is True becomes the error of the
        row. Any other exception ends the run.
    column
        The column with the inputs.
    at_once
        How many rows to decide at the same time.
    cancel
        Cancels the running calls of `decide` if the generator is closed or fails. None = wait for
        them.
    """

    def run(row: TableRow) -> DecidedRow:
        return _decide_row(decide, row, column)

    end = cancel or (lambda: None)
    results = run_in_order(rows, run, end, at_once=at_once, look_ahead=at_once * LOOK_AHEAD)
    with closing(results):
        yield from results


def inputs_of(table: InputTable, column: str, most: int) -> list[Any]:
    """Return up to `most` usable inputs of a table, evenly spaced; the same in every run."""
    kept: list[Any] = []
    step, n = 1, 0
    for row in table.rows(columns={column}):
        try:
            input = input_of(row, column)
        except InvalidArgumentError:  # the job will report it
            continue
        if n % step == 0:
            kept.append(input)
        n += 1
        if len(kept) == 2 * most:
            kept, step = kept[::2], 2 * step
    return sample_of(kept, most)


def input_of(row: TableRow, column: str) -> Any:
    """Return the input of a row; raise if the row or its input cannot be used."""
    if row.error is not None:
        raise InvalidArgumentError(row.error)
    value = row.fields.get(column)
    if value is None:
        raise InvalidArgumentError(f"no value in column {column!r}")
    input = value if isinstance(value, str) else json_value(value)
    text = input_text(input)
    if not text.strip():
        raise InvalidArgumentError(f"column {column!r} is empty")
    if not is_unicode(text):
        raise InvalidArgumentError(f"column {column!r} is not UTF-8")
    return input


def _decide_row(decide: Decide, row: TableRow, column: str) -> DecidedRow:
    try:
        return DecidedRow(row, decide(input_of(row, column)))
    except (InvalidArgumentError, ContextFullError) as error:
        if not is_of_row(error):
            raise
        return DecidedRow.failed(row, error)
