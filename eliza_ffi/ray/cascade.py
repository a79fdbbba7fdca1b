"""Cascades whose models run on the workers of a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from ..decisions.prompts import as_one_input
from ..decisions.questions import Question
from ..errors import InvalidArgumentError
from ..evidence.cascade import Cascade, CascadeCalibration, ModelSource, Opened, Reading
from ..tables import DecidedRow, Decider, TableRow
from ..tables.cascade import of_row
from ..tables.decider import input_of
from .table import BATCH_ROWS, TableWorkers

INPUT = "input"


class SourceDecider(Decider):
    """Reads rows with one source of a cascade, on a worker. A decision is a `Reading`."""

    def __init__(
        self,
        model: Any,
        column: str,
        questions: Sequence[Question],
        settings: Mapping[str, Any],
        sample: Sequence[Any],
        learn: bool = False,
        *,
        fitted: Mapping[str, Any] | None,
    ) -> None:
        self.column, source = column, ModelSource(model, settings)
        self._opened = ExitStack()  # until the worker ends
        self._read, found = self._opened.enter_context(source.opened(questions, fitted, sample))
        self.described = {**found, "compares": source.compares}

    def decide_rows(self, rows: Iterable[TableRow]) -> Generator[DecidedRow, None, None]:
        listed = list(rows)
        given = [row.fields[self.column] for row in listed]
        for row, each in zip(listed, self._read(given, on_error=of_row), strict=True):
            is_read = isinstance(each, Reading)
            yield DecidedRow(row, each if is_read else None, None if is_read else str(each))


class WorkersSource(ModelSource):
    """A source of a cascade on the workers of a cluster, which open its model when it is asked.

    `workers` returns :class:`.TableWorkers` for the arguments after their number.
    """

    def __init__(
        self,
        workers: Callable[..., TableWorkers],
        n_workers: int,
        settings: Mapping[str, Any],
        name: str,
    ) -> None:
        super().__init__(workers, settings, name)
        self.rows_at_once = BATCH_ROWS * n_workers

    @contextmanager
    def opened(
        self, questions: Sequence[Question], fitted: Mapping[str, Any] | None, sample: Sequence[Any]
    ) -> Iterator[Opened]:
        workers: Any = self.open
        makes = partial(SourceDecider, fitted=fitted)
        with workers(INPUT, questions, self.settings, sample, makes=makes) as running:
            found = dict(running.described)
            self.compares = found.pop("compares")
            yield partial(_read, running), found


def _read(
    workers: TableWorkers,
    inputs: Sequence[Any],
    on_error: Callable[[int, Exception], Any],
    **_: Any,
) -> list[Any]:
    rows = (TableRow(i, "", {INPUT: given}) for i, given in enumerate(inputs))
    return [
        on_error(each.row.number, InvalidArgumentError(each.error)) if each.error else each.decision
        for each in workers.decide_rows(rows)
    ]


def decide_whole(
    cascade: Cascade,
    column: str,
    questions: Sequence[Question],
    calibration: CascadeCalibration | None,
    min_probability: float,
    rows: Iterable[TableRow],
) -> list[DecidedRow]:
    """Decide rows with a cascade whose models are all open."""
    listed = list(rows)
    given: dict[int, Any] = {}
    errors: dict[int, str] = {}
    for place, row in enumerate(listed):
        try:
            given[place] = as_one_input(input_of(row, column))
        except InvalidArgumentError as error:
            errors[place] = str(error)
    found = cascade.decide_many(
        list(given.values()),
        questions,
        calibration=calibration,
        min_probability=min_probability,
        return_exceptions=True,
    )
    decisions = dict(zip(given, found, strict=True))
    for place, each in decisions.items():
        if isinstance(each, Exception):
            errors[place] = str(of_row(place, each))
    return [
        DecidedRow(row, None if i in errors else decisions[i], errors.get(i))
        for i, row in enumerate(listed)
    ]
