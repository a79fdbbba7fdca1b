"""Decide the rows of a table, and write an output. An interrupted job can be resumed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..decisions.prompts import input_text
from ..decisions.questions import with_top
from ..decisions.wire import as_questions, question_to
from ..errors import ElizaError, InvalidArgumentError
from ..evidence.auto_prompts import N_SAMPLE
from ..evidence.cascade import Cascade, as_cascade_calibration
from ..evidence.deciding import DecideSettings
from ..evidence.doubts import reasons_to_doubt
from ..evidence.self_training import MIN_ROWS
from ..session.requests import check_keywords
from .cascade import CascadeDecider
from .columns import AnswerCounts, OutputColumns
from .decider import Decider, RowDecider, input_of, inputs_of
from .file_formats import format_of, open_table, write_output
from .learning import LearnedAnswers, LearnedRows
from .parquet import load_pyarrow
from .rows import InputTable, check_column, is_unicode
from .store import JobStore, content_hash, replace_file

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
    doubts : list of str
        Signs that a prompt does not work.
    learned : dict of str to LearnedAnswers
        The result of learning from the rows, for each question; empty without ``learn``.
    cpu_seconds : dict of int to float
        The CPU time in which each source of a cascade read rows in this run, 1 for the first.
    certificate : str or None
        What the calibration of a cascade has certified.
    """

    counts: AnswerCounts
    new_rows: int
    seconds: float
    is_whole: bool
    doubts: list[str]
    learned: dict[str, LearnedAnswers]
    cpu_seconds: dict[int, float]
    certificate: str | None


Progress = Callable[[TableStep], Any]


def run(
    table: InputTable,
    decider: Decider,
    output: Path,
    *,
    keep: Sequence[str] | None = None,
    top: int | None = None,
    limit: int | None = None,
    overwrite: bool = False,
    retry_errors: bool = False,
    progress: Progress | None = None,
) -> TableResult:
    """Answer questions about every row of a table, and write the answers to a file.

    The output has one row for each row of the table, in the same order. It is written at the end.
    Until then its rows are in ``OUTPUT.job``. If a run was interrupted or killed, the next run of
    the same job resumes after the last row that was decided.

    Parameters
    ----------
    output
        A ``.jsonl``, ``.csv``, ``.tsv`` or ``.parquet`` file.
    keep
        The columns of the table to copy to the output; None = all.
    top
        Add a column with the `top` most probable options of each choice.
    limit
        The number of the last row to decide. A later run can resume after this row.
    overwrite
        Discard an existing output and decide all rows.
    retry_errors
        Also decide again the rows of an existing output that have errors.
    progress
        Called after every decided row.

    Raises
    ------
    InvalidArgumentError
        If the table lacks a column, the format of the output is unsupported, or the output exists
        and does not belong to this job: another table, other questions or other settings.
    ElizaError
        If another process is running the job, or the table was changed during the run.
    """
    begin = time.monotonic()
    if decider.learns:
        check_enough(table, decider.column, limit)
    job = _Job(table, decider, output, keep, top)
    description = {"input": content_hash(table.path), **job.description}
    with closing(JobStore(job.output, description, overwrite=overwrite)) as store:
        known = store.facts.get("prior")
        prior = decider.begin(table, known)
        if prior is not None and known is None:
            store.note(prior=prior)
        n_new, is_whole = job.decide(store, limit, retry_errors, progress)
        for stage in range(1, decider.n_stages):
            n_new = max(n_new, job.decide(store, limit, retry_errors, progress, stage)[0])
        rows: Iterable[dict[str, Any]] = store
        learned = {}
        if decider.learns:
            least = decider.settings.get("min_probability", 0.0)
            rows = LearnedRows(store, store.kept(), job.columns, decider.learns, least)
        counts = AnswerCounts(job.columns, rows)
        if isinstance(rows, LearnedRows):
            learned = rows.report()
        if not store.is_written():
            job.write(store, rows)
    doubts = decider.reasons_to_doubt() or [
        reason
        for name, answers in counts.answers.items()
        for reason in reasons_to_doubt(name, answers, ())
    ]
    seconds, cpu_seconds = time.monotonic() - begin, dict(decider.cpu_seconds)
    more = (learned, cpu_seconds, decider.certificate)
    return TableResult(counts, n_new, seconds, is_whole, doubts, *more)


def decide_table(
    model: Any,
    table: str | os.PathLike[str],
    column: str,
    questions: Any,
    output: str | os.PathLike[str],
    *,
    delimiter: str | None = None,
    keep: Sequence[str] | None = None,
    top: int | None = None,
    limit: int | None = None,
    overwrite: bool = False,
    retry_errors: bool = False,
    progress: Progress | None = None,
    learn: bool = False,
    **settings: Unpack[DecideSettings],
) -> TableResult:
    """Do the same as ``eliza-ffi decide TABLE``: answer questions about every row of a file.

    Parameters
    ----------
    model
        An open :class:`~eliza_ffi.Model`, or a :class:`~eliza_ffi.Cascade`: each source reads all
        of its rows before the next one begins.
    table
        A ``.csv``, ``.tsv``, ``.jsonl`` or ``.parquet`` file.
    column
        The column with the inputs: strings, in JSONL and Parquet also conversations and other JSON.
    questions
        In any form that :func:`~eliza_ffi.decisions.as_questions` accepts.
    delimiter
        The character between the fields of a CSV file; None = a comma, or a tab for ``.tsv``.
    output, keep, top, limit, overwrite, retry_errors, progress
        See :func:`run`, which also lists the errors.
    learn
        When all rows are read, learn from them without labels, and answer all of them again
        from values that were kept; see :mod:`eliza_ffi.learning.self_training`. If the rows do not
        agree, the model's own answers are kept. The probabilities are not calibrated. This needs
        60 different rows, and a model with hidden states.
    **settings
        The keyword arguments of :meth:`~eliza_ffi.Model.decide_many` about prompts and answers.
    """
    check_keywords("decide_table", settings, DecideSettings.__annotations__.keys())
    opened = open_table(Path(table), delimiter)
    check_column(opened, column)
    sample = inputs_of(opened, column, N_SAMPLE)
    asked = with_top(as_questions(questions), top)
    decider: Decider
    if isinstance(model, Cascade):
        if learn or settings.keys() - {"calibration", "min_probability"}:
            raise InvalidArgumentError(
                "a cascade takes only calibration and min_probability: give other settings to its "
                "sources"
            )
        fitted = as_cascade_calibration(settings.get("calibration"))
        least = settings.get("min_probability", 0.0)
        decider = CascadeDecider(model, column, asked, sample, fitted, least)
    else:
        decider = RowDecider(model, column, asked, settings, sample, learn)
    return run(
        opened,
        decider,
        Path(output),
        keep=keep,
        top=top,
        limit=limit,
        overwrite=overwrite,
        retry_errors=retry_errors,
        progress=progress,
    )


def check_enough(table: InputTable, column: str, limit: int | None) -> None:
    """Raise InvalidArgumentError if a table has too few different inputs to learn from."""
    texts = set()
    for row in islice(table.rows(columns={column}), limit):
        with suppress(InvalidArgumentError):
            texts.add(input_text(input_of(row, column)))
        if len(texts) >= MIN_ROWS:
            return
    raise InvalidArgumentError(
        f"learn needs at least {MIN_ROWS} different rows, got {len(texts)}"
        + ("" if limit is None else f" in the first {limit:,}")
    )


class _Job:
    """The table, the decider, and the columns of the output; see :func:`run`."""

    def __init__(
        self,
        table: InputTable,
        decider: Decider,
        output: Path,
        keep: Sequence[str] | None,
        top: int | None,
    ) -> None:
        for name in (decider.column, *(keep or ())):
            check_column(table, name)
        self._format = format_of(output)
        if output.exists() and output.samefile(table.path):
            raise InvalidArgumentError(f"{output} is the input: name another file for the output")
        if self._format == "parquet":
            load_pyarrow()  # fail now if it is missing, not after hours of work
        self.table, self._decider = table, decider
        # If the output is a link, the file that it points to is replaced, not the link.
        self.output = output.resolve() if output.is_symlink() else output
        kept = list(dict.fromkeys(table.all_columns() if keep is None else keep))
        self.columns = OutputColumns(
            decider.questions,
            kept,
            decider.settings,
            probabilities=self._format == "jsonl",
            top=top,
        )
        self.description = {
            "column": decider.column,
            "keep": kept,
            "top": top,
            "output": self._format,
            "questions": [question_to(question) for question in decider.questions],
            **decider.described,
        }
        if self._format == "parquet":
            self._check_names()
        # Kept columns are copied without reading their values, because Python cannot represent all
        # values of Parquet.
        self._copies_kept = self._format == format_of(table.path) == "parquet"

    def decide(
        self,
        store: JobStore,
        limit: int | None,
        retry_errors: bool,
        progress: Progress | None,
        stage: int = 0,
    ) -> tuple[int, bool]:
        """Decide the rows that have no answers; return their number, and whether none is left.

        The first stage decides all rows, later ones those that are kept for them.
        """
        n_before, end = store.n_rows, store.end
        last = n_before if limit is None else limit
        failed = {number for number in store.failed if retry_errors and number <= last}
        again: dict[int, str | None] = dict.fromkeys(failed)
        if self._decider.n_stages > 1:
            again = {
                number: kept
                for number, kept in enumerate(islice(store.kept(), last), 1)
                if (number in failed or (kept is not None and number not in store.failed))
                and self._decider.stage_of(kept) == stage
            }
        if stage and not again:
            return 0, True
        n_left = None if limit is None else len(again) + max(limit - n_before, 0)
        if stage:
            n_left = len(again)
        wanted = {self._decider.column}
        if not self._copies_kept:
            wanted.update(self.columns.kept.values())
        n_new, done_before = 0, 0.0
        with closing(self.table.rows(min(again, default=n_before + 1) - 1, wanted)) as every:
            rows = (row for row in every if row.number > n_before or row.number in again)
            wanted_rows = islice(rows, n_left)
            first = list(islice(wanted_rows, 1))  # if none is left, do not open a model
            with (
                self._decider.opened(stage, store, again) if first else nullcontext(),
                closing(self._decider.decide_rows(chain(first, wanted_rows))) as decided_rows,
            ):
                for n_new, decided in enumerate(decided_rows if first else (), 1):
                    row = decided.row
                    cells = self.columns.cells(row, decided.decision, decided.error)
                    store.append(cells, decided.kept)
                    if n_new == 1 and n_before:
                        done_before = row.done
                    if progress is not None:
                        progress(TableStep(store.n_rows, n_new, row.done, done_before))
            is_whole = next(rows, None) is None
        self._check_input(store, end)
        return n_new, is_whole

    def write(self, store: JobStore, rows: Iterable[dict[str, Any]]) -> None:
        """Write the output to a temporary file, and move it into place."""
        part = self.output.with_name(self.output.name + ".part")
        write_output(part, self._format, rows, self.columns, self.table)
        if self._copies_kept:  # this has read the table again, and it may have changed
            self._check_input(store, store.end)
        store.note_output(part)
        replace_file(part, self.output)

    def _check_input(self, store: JobStore, end: int) -> None:
        """If the table has changed, discard what follows `end` in the store; raise ElizaError."""
        if content_hash(self.table.path) != store.facts["job"]["input"]:
            store.cut(end)
            raise ElizaError(
                f"{self.table.path} was changed while the job was running, so some answers may be "
                f"about the old version; the answers of this run are discarded"
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
