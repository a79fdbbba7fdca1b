"""Measure the answers of several methods to one data set with one model."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from eliza_ffi.decisions import Choice
from eliza_ffi.learning.metrics import flip_rate
from eliza_ffi.model import Model

from ..parts.figures import attempt, in_turns
from .datasets import DataSet, Question
from .learned import FromReadings, Readings
from .methods import AnswerMethod, Ask, Subject
from .metrics import Probabilities, figures_of

TURN_ROWS = 100
"""Rows that a method answers before the next method's turn."""

FLIP_ROWS = 100
"""The most rows that are also answered with the options in reverse order."""

WARM_UP_ROWS = 10
"""Rows that a method answers before it is measured. A prior needs at least as many inputs."""

TIMED_ROWS, TIMED_TURNS = 20, 4
"""The rows that methods without a time answer once more in the first sample, and the turns."""

SETTLING_SECONDS = 0.2
"""The pause before each turn. The previous method's threads keep spinning for a moment."""


def measure_cells(
    name: str,  # the name of the model in the results
    path: Path,  # the file of the model
    data: DataSet,
    seed: int,
    methods: Sequence[AnswerMethod],
    n_rows: int,
    # Seconds after which a method gets no more turns. Its figures are then about fewer rows.
    budget: float,
    n_threads: int = 0,  # compute threads of the language models; 0 = eliza-ffi's default number
    known: Readings | None = None,  # what methods that learn have read for other samples
) -> list[dict[str, Any]]:
    """Measure methods on the first test rows, and return the figures of each method.

    The methods take turns, so a slow moment of the machine affects them all. A method that fails
    has only a ``problem``.
    """
    problems: dict[str, str] = {}
    rows = data.test[:n_rows]
    targets, texts = data.targets(rows), [text for text, _ in rows]
    with ExitStack() as stack:
        model = stack.enter_context(Model(path, n_threads=n_threads))
        n_used = int(model.describe()["threads"])
        subject = Subject(path, model, data, rows, n_used, {} if known is None else known)
        runs = {}
        for method in methods:
            ask = attempt(problems, method.name, method.open, subject, stack)
            if ask is not None:
                runs[method.name] = _Run(data, ask)
                warm_up = texts[: min(WARM_UP_ROWS, method.most_rows // 10)]
                attempt(problems, method.name, ask, data.question, warm_up)
        most = {method.name: method.most_rows for method in methods}
        begins = range(0, len(texts), TURN_ROWS)
        for begin, names in zip(begins, in_turns(runs, len(begins)), strict=True):
            for each in names:
                turn = texts[begin : min(begin + TURN_ROWS, most[each])]
                if turn and runs[each].seconds < budget:
                    attempt(problems, each, runs[each].take_turn, turn)
        for method in methods:
            if method.reads_options and method.name in runs and isinstance(data.question, Choice):
                attempt({}, method.name, runs[method.name].ask_reversed, texts, budget)
        learned = {
            name: run.ask.decide for name, run in runs.items() if isinstance(run.ask, FromReadings)
        }
        times = {} if seed or not learned else _times(learned, subject, texts[:TIMED_ROWS])
    cells = []
    for method in methods:
        cell: dict[str, Any] = {"model": name, "data": data.name, "method": method.name}
        cell["seed"] = seed
        cell |= {"n_labels": method.labels_used(data), "n_rows": n_rows}
        if method.name in problems:
            cell["problem"] = problems[method.name].replace(str(path), path.name)
        else:
            cell |= runs[method.name].figures(targets)
            if not method.is_timed:
                cell |= {"rows_per_second": None, "cpu_ms": times.get(method.name)}
        cells.append(cell)
        print(" ".join(str(value) for value in cell.values())[:160], file=sys.stderr)
    return cells


def _times(
    ways: Mapping[str, Callable[[Question, Sequence[str]], Any]],
    subject: Subject,
    texts: Sequence[str],
) -> dict[str, float]:
    """Return the CPU time of a row in milliseconds, measured with some rows."""
    seconds = dict.fromkeys(ways, 0.0)
    parts = [texts[i::TIMED_TURNS] for i in range(TIMED_TURNS)]
    for turn, names in enumerate(in_turns(ways, TIMED_TURNS + 1)):
        for i, each in enumerate(names):
            # Each input begins differently, so that the KV cache knows it from no other turn.
            part = [f"({turn}.{i}) {text}" for text in parts[turn - 1]]
            cpu = _cpu_seconds()
            ways[each](subject.data.question, part)
            seconds[each] += (_cpu_seconds() - cpu) * (turn > 0)  # the first turn warms up
    return {name: 1000 * each / len(texts) for name, each in seconds.items()}


class _Run:
    """The answers of a method, and their cost."""

    def __init__(self, data: DataSet, ask: Ask) -> None:
        self._question, self.ask = data.question, ask
        self._answered: list[Probabilities] = []
        self._reversed: Probabilities | None = None
        self.seconds = self.cpu_seconds = 0.0

    def take_turn(self, texts: Sequence[str]) -> None:
        """Answer the next rows."""
        time.sleep(SETTLING_SECONDS)
        cpu, begin = _cpu_seconds(), time.perf_counter()
        self._answered.append(self.ask(self._question, texts))
        self.seconds += time.perf_counter() - begin
        self.cpu_seconds += _cpu_seconds() - cpu

    def ask_reversed(self, texts: Sequence[str], budget: float) -> None:
        """Answer some rows with the options in reverse order."""
        assert isinstance(self._question, Choice)
        question = replace(self._question, choices=self._question.choices[::-1])
        n_rows = sum(map(len, self._answered))
        per_row = max(self.seconds / n_rows, 1e-9)
        n_rows = min(n_rows, FLIP_ROWS, max(int(budget / per_row), 1))
        self._reversed = self.ask(question, texts[:n_rows])[:, ::-1]

    def figures(self, targets: Sequence[int]) -> dict[str, Any]:
        """Return the figures of all answered rows."""
        found = np.concatenate(self._answered)
        answers = found.argmax(axis=1)
        flips = None
        if self._reversed is not None:
            flips = flip_rate([answers[: len(self._reversed)], self._reversed.argmax(axis=1)])
        return figures_of(found, targets[: len(found)]) | {
            "flips": flips,
            "rows_per_second": len(found) / self.seconds,
            "cpu_ms": 1000 * self.cpu_seconds / len(found),
        }


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and its running children; only Linux reports those."""
    seconds = time.process_time()
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
        if int(fields[1]) == os.getpid():
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds
