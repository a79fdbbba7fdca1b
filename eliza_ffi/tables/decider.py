"""Decide the rows of a table with one model, several at the same time, in the table's order."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ..checks import check_flag
from ..decisions.answers import Decision
from ..decisions.examples import named_questions
from ..decisions.fingerprint import fingerprint_of
from ..decisions.prompts import as_one_input, input_text
from ..decisions.questions import Question
from ..errors import InvalidArgumentError
from ..evidence.auto_prompts import sample_of
from ..evidence.calibration import Calibration
from ..evidence.deciding import (
    DecideSettings,
    DecisionPlan,
    Settings,
    never_certified_text,
    settings_for,
)
from ..evidence.doubts import Doubts
from ..evidence.question_plan import WantedHidden, is_of_row
from ..evidence.reasoning import decision_task, inputs_at_once
from ..learning.fitting import can_learn_from_rows, features_of_rows
from ..learning.input_prior import N_INPUTS, fit_input_prior
from ..session.batches import Running, run_in_order
from ..session.task import Task
from .learning import kept_of
from .rows import InputTable, TableRow, is_unicode, json_value
from .store import JobStore

LOOK_AHEAD = 8
"""The maximum number of rows that have begun but are not yet written, as a multiple of the number
of rows that are decided at the same time."""

TEST_INPUT = "a test"


@dataclass(frozen=True)
class DecidedRow:
    """A row with its decision, or with the error that prevented one."""

    row: TableRow
    decision: Any
    error: str | None = None
    kept: str | None = None  # what :mod:`.tables.learning` needs of the row


class Decider:
    """Answers the same questions about the rows of a table.

    Attributes
    ----------
    column : str
        The column with the inputs.
    questions : sequence of Question
    settings : Mapping
        The keyword arguments of :meth:`~eliza_ffi.Model.decide`.
    described : dict
        The model's fingerprint, and everything else that affects the answers, as JSON.
    learns : tuple of int
        The places of the single questions that learn from the rows.
    n_stages : int
        How many times rows are read: once for each source of a cascade.
    cpu_seconds : dict of int to float
        The CPU time of each source of a cascade, 1 for the first.
    certificate : str or None
        What was certified about a cascade.
    """

    column: str
    questions: Sequence[Question]
    settings: Mapping[str, Any]
    described: dict[str, Any]
    learns: tuple[int, ...] = ()
    n_stages = 1
    cpu_seconds: Mapping[int, float] = MappingProxyType({})
    certificate: str | None = None

    def opened(
        self, stage: int, store: JobStore, kept: Mapping[int, str | None]
    ) -> AbstractContextManager[None]:
        """Open the source of a stage; `kept` has what is kept of the rows that it decides."""
        return nullcontext()

    def stage_of(self, kept: str | None) -> int:
        """Return the stage that a row has reached."""
        return 0

    def begin(self, table: InputTable, prior: str | None) -> str | None:
        """Prepare for the rows, and return the prior of the inputs, if there is one.

        `prior` is the prior of an earlier run.
        """
        return None

    def decide_rows(self, rows: Iterable[TableRow]) -> Generator[DecidedRow, None, None]:
        """Yield the decided rows in order. If the generator is closed, running calls end."""
        raise NotImplementedError

    def reasons_to_doubt(self) -> list[str]:
        """Return signs that a prompt does not work, other than those in the answers."""
        return []


class RowDecider(Decider):
    """Decides rows with a model in this process.

    `settings` are the keyword arguments of :meth:`~eliza_ffi.Model.decide`. With
    ``prior="inputs"``, call :meth:`begin` before the first row. `sample` has some of the inputs,
    whose tokens are counted for ``prompt_order="auto"``. `prior` is the prior of the inputs.
    `never_certified` has the questions whose answers are all empty with ``abstain="risk"``. With
    `learn`, the states of the rows are kept, and questions can learn from them.

    Questions or settings that do not suit the model, or leave every answer empty, raise here,
    because then every row would fail.
    """

    def __init__(
        self,
        model: Any,
        column: str,
        questions: Sequence[Question],
        settings: DecideSettings | Mapping[str, Any],
        sample: Sequence[Any] | None,
        learn: bool = False,
    ) -> None:
        self.column, self.questions = column, questions
        self.settings: Mapping[str, Any] = settings
        self.prior: Calibration | None = None
        self._model, self._sample = model, sample
        self._needs_prior = settings.get("prior") == "inputs"
        self._learns = check_flag("learn", learn)
        self._use({**settings, "prior": None} if self._needs_prior else settings)
        self.never_certified = self._plan.never_certified()
        if len(self.never_certified) == len(questions):
            raise InvalidArgumentError(never_certified_text(self.never_certified))
        own = self._plan.settings
        self.described = {
            "model": fingerprint_of(model),
            **own.described(),
            "prior_of": settings.get("prior"),
            "learn": list(self.learns),
        }
        Task(model.session, self._plan.question_plan.prior_runs(model.session)).run()
        test = replace(own, think=min(own.think, 1), recentring=None, hidden=None)
        plan = DecisionPlan(model.session, questions, test)
        decision_task(model.session, TEST_INPUT, plan).run()  # without counting it

    def begin(self, table: InputTable, prior: str | None) -> str | None:
        if self._needs_prior:
            if prior is None:
                inputs = inputs_of(table, self.column, N_INPUTS)
                self.prior = fit_input_prior(self._model, self.questions, inputs, self.settings)
            else:
                self.prior = Calibration.from_text(prior)
            self._use({**self.settings, "prior": None, "calibration": self.prior})
        return None if self.prior is None else self.prior.to_text()

    def decide_rows(self, rows: Iterable[TableRow]) -> Generator[DecidedRow, None, None]:
        session, plan = self._model.session, self._plan
        kept: dict[int, str] = {}

        def start(row: TableRow) -> Task[Decision]:
            input = self._input(row)

            def keep(logs: Sequence[Any], scores: Sequence[Any]) -> None:
                states = [scores[place].hidden[0] for place in self.learns]
                own = [logs[place] for place in self.learns]
                kept[row.number] = kept_of(input_text(input), own, states)

            on_scores = keep if self.learns else None
            return decision_task(session, input, plan, doubts=self._doubts, on_scores=on_scores)

        at_once = inputs_at_once(session, plan.settings.think, None)
        for decided in decide_rows(plan.question_plan.ahead(rows, self._input), start, at_once):
            yield replace(decided, kept=kept.pop(decided.row.number, None))

    def reasons_to_doubt(self) -> list[str]:
        return self._doubts.reasons()

    def _input(self, row: TableRow) -> Any:
        return as_one_input(input_of(row, self.column))

    def _use(self, arguments: Mapping[str, Any]) -> None:
        session, questions = self._model.session, self.questions
        settings = settings_for(session, questions, arguments, inputs=self._sample)
        if self._learns:
            settings = replace(settings, hidden=self._hidden(settings))
        self._plan = DecisionPlan(session, questions, settings)
        self._doubts = Doubts(self._plan)

    def _hidden(self, settings: Settings) -> WantedHidden:
        """Return the states to keep; raise if no question can learn from the rows."""
        if settings.calibration is not None and not settings.calibration.is_prior:
            raise InvalidArgumentError(
                "learn cannot be combined with a calibration, which already has what labels or "
                "rows taught"
            )
        if settings.think:
            raise InvalidArgumentError(
                "learn cannot be combined with think: rows learn from answers without reasoning"
            )
        asked = [question for _, question in named_questions(self.questions)]
        if not can_learn_from_rows(self._model, settings.prompts):
            raise InvalidArgumentError(
                "learn needs hidden states, which this model does not return: a reranker, a "
                "decision model, or an older library"
            )
        found = features_of_rows(self._model, asked, settings.prompts)
        self.learns = tuple([place for place, each in enumerate(found) if each is not None])
        if not self.learns:
            raise InvalidArgumentError(
                "learn needs a predicate, a choice of at most 255 options or labels, and with an "
                "encoder no labels: scores cannot learn from rows"
            )
        features = tuple(() if each is None else (each,) for each in found)
        return WantedHidden(features, (True,) * len(asked))


def decide_rows(
    rows: Iterable[TableRow], start: Callable[[TableRow], Task[Any]], at_once: int
) -> Generator[DecidedRow, None, None]:
    """Run a task for each row, `at_once` at the same time, and yield the decided rows in order.

    An exception for which :func:`is_of_row` is True becomes the error of its row. Any other one
    ends the generator. If the generator ends early, the running tasks are cancelled.
    """
    running = Running(start)

    def decide(row: TableRow) -> DecidedRow:
        try:
            return DecidedRow(row, running.run(row))
        except Exception as error:
            if not is_of_row(error):
                raise
            return DecidedRow(row, None, f"{row.place}: {error}" if row.place else str(error))

    ahead = at_once * LOOK_AHEAD
    with closing(
        run_in_order(rows, decide, running.cancel, at_once=at_once, look_ahead=ahead)
    ) as decided:
        yield from decided


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
