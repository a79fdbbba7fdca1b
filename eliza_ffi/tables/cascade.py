"""Decide the rows of a table with a cascade: each source reads its rows before the next is opened.

What the sources have said about a row is kept in the job's file until the row has its answer. So a
job that was interrupted resumes with the source that it had reached, and opens no earlier one.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from typing import Any

import numpy as np

from ..decisions.prompts import as_one_input
from ..decisions.questions import Question
from ..errors import InvalidArgumentError
from ..evidence.cascade import Cascade, CascadeCalibration, CascadePlan, FunctionSource, Reading
from ..evidence.question_plan import is_of_row
from .decider import DecidedRow, Decider, input_of
from .rows import TableRow
from .store import JobStore

OF_FUNCTION, OF_ENCODER, OF_DECODER = 64, 32, 4
"""How many rows a source reads at once. They are lost if the process is killed."""


class CascadeDecider(Decider):
    """Decides rows with the sources of a cascade, one source after the other."""

    def __init__(
        self,
        cascade: Cascade,
        column: str,
        questions: Sequence[Question],
        sample: Sequence[Any],
        calibration: CascadeCalibration | None = None,
        min_probability: float = 0.0,
    ) -> None:
        self.column, self.questions, self._sample = column, questions, sample
        self._plan = CascadePlan(cascade, questions, calibration, min_probability)
        self._sources, self.n_stages = cascade.sources, len(cascade.sources)
        self.cpu_seconds = self._seconds = defaultdict[int, float](float)
        self.certificate = None if calibration is None else str(calibration)
        may_review = isinstance(self._sources[-1], FunctionSource) or (
            calibration is not None and any(each.abstains for each in calibration.questions)
        )
        self.settings = {
            "min_probability": min_probability,
            "abstain": "risk" if may_review else None,
            "think": any(each.settings.get("think") for each in self._sources),
            "stage": True,
        }
        self.described = {
            "sources": [
                [each.name, {name: _shown(value) for name, value in each.settings.items()}]
                for each in self._sources
            ],
            "calibration": None if calibration is None else asdict(calibration),
            "below": cascade.below,
            "min_probability": min_probability,
        }

    @contextmanager
    def opened(self, stage: int, store: JobStore, kept: Mapping[int, str | None]) -> Iterator[None]:
        """Open a source, which must be the one of an earlier run of the job."""
        self._kept, source, fact = kept, self._sources[stage], f"source {stage}"
        self._number = stage + 1
        for place, each in enumerate(self._sources[:stage]):
            each.compares = store.facts[f"source {place}"]["compares"]
        fitted = self._plan.fitted(stage)
        with source.opened(self.questions, fitted, self._sample) as (self._read, found):
            found = {**found, "compares": source.compares}
            if store.facts.setdefault(fact, found) != found:
                raise InvalidArgumentError(
                    f"the job was started with another model or other prompts of {source.name}: "
                    "use the same, another output, or --overwrite"
                )
            store.note(**{fact: found})
            is_function = isinstance(source, FunctionSource)
            of_model = OF_ENCODER if source.compares else OF_DECODER
            self._n_rows = source.rows_at_once or (OF_FUNCTION if is_function else of_model)
            yield

    def decide_rows(self, rows: Iterable[TableRow]) -> Generator[DecidedRow, None, None]:
        waiting = iter(rows)
        while batch := list(islice(waiting, self._n_rows)):
            found: dict[int, Any] = {}
            for row in batch:
                try:
                    found[row.number] = as_one_input(input_of(row, self.column))
                except InvalidArgumentError as error:
                    found[row.number] = error
            usable = [each for each, given in found.items() if not isinstance(given, Exception)]
            read = self._read([found[each] for each in usable], on_error=of_row)
            found.update(zip(usable, read, strict=True))
            times = [each.cpu_seconds for each in read if isinstance(each, Reading)]
            self._seconds[self._number] += sum(times)
            for row in batch:
                yield self._decided(row, found[row.number])

    def _decided(self, row: TableRow, found: Reading | Exception) -> DecidedRow:
        kept = self._kept.get(row.number)
        if not isinstance(found, Reading):  # the row stays at this source, for --retry-errors
            return DecidedRow(row, None, f"{row.place}: {found}" if row.place else str(found), kept)
        before = [[np.array(x) if isinstance(x, list) else x for x in said] for said in _read(kept)]
        readings = [*before, found.said]
        decision = self._plan.decision(readings, found.usage, found.reasoning)
        if not self._plan.is_open(readings):
            return DecidedRow(row, decision)
        return DecidedRow(row, decision, kept=json.dumps(readings, default=np.ndarray.tolist))

    def stage_of(self, kept: str | None) -> int:
        return len(_read(kept))


def _read(kept: str | None) -> list[Any]:
    read: list[Any] = json.loads(kept or "[]")
    return read


def of_row(place: int, error: Exception) -> Exception:
    """Return the error of a row; raise an error that is not about the row."""
    if not is_of_row(error):
        raise error
    return error


def _shown(value: Any) -> str:
    return str(getattr(value, "digest", value))
