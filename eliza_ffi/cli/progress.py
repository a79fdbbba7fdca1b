"""Progress of long work, in one line of standard error."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from ..tables import TableStep
from ..terminal import bar, counted

WIDTH = 30
"""Length of the bar, in characters."""

DELAY_SECONDS = 0.4
"""A stage that takes less time gets no bar."""

REDRAW_SECONDS = 0.1
"""Shortest time between two redraws of a table's progress."""

LABELS = {
    "download": "downloading the model",
    "load": "loading the model",
    "prefill": "reading the prompt",
}


PREPARING = "preparing the questions"
"""Before the first row, the model may answer questions about inputs that favour no option."""


class _ProgressLine:
    """A line of standard error that is redrawn in place and erased at the end."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._n_drawn = 0

    def begin(self) -> None:
        if self._stream.isatty():
            self.draw(PREPARING)

    def draw(self, line: str) -> None:
        """Draw `line` in place of the line before, truncated to the terminal's width."""
        columns = _columns(self._stream)
        line = line[:columns]
        # Erase with spaces, because a Windows console may print escape codes instead.
        self._stream.write(f"\r{line:{min(self._n_drawn, columns)}}")
        self._stream.flush()
        self._n_drawn = len(line)

    def erase(self) -> None:
        """Erase the line. Call this at the end of the work, even if the work failed."""
        if self._n_drawn:
            self._stream.write(f"\r{'':{self._n_drawn}}\r")
            self._stream.flush()
            self._n_drawn = 0


class ProgressBar(_ProgressLine):
    """Draws the progress of a stage of more than 0.4 seconds, if standard error is a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._stage = ""
        self._begin = 0.0

    def __call__(self, stage: str, fraction: float) -> None:
        """Report the progress of `stage`; `fraction` is the fraction done, 0 to 1."""
        if not self._stream.isatty():
            return
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._begin = stage, now
        if fraction >= 1.0:
            self._stage = ""
            self.erase()
        elif now - self._begin >= DELAY_SECONDS:
            done = max(fraction, 0.0)
            self.draw(f"{LABELS.get(stage, stage)} {done:4.0%} {bar(done, WIDTH)}")


class RowProgress(_ProgressLine):
    """Draws rows, rows per second and the time left, if standard error is a terminal.

    `limit` is the last row to decide; None = the table's last row.
    """

    def __init__(self, limit: int | None = None) -> None:
        super().__init__()
        self._limit = limit
        self._begin = self._drawn = time.monotonic()

    def __call__(self, step: TableStep) -> None:
        now = time.monotonic()
        if now - self._drawn < REDRAW_SECONDS or not self._stream.isatty():
            return
        self._drawn = now
        self.draw(self._line(step, now - self._begin))

    def count(self, n: int, total: int | None) -> None:
        """Report that `n` inputs of `total` are done."""
        self(TableStep(n, n, n / total if total else 0.0, 0.0))

    def _line(self, step: TableStep, seconds: float) -> str:
        done, before = step.done, step.done_before
        if self._limit is not None:  # the job ends at the limit or at the table's end
            done = max(done, step.rows / self._limit)
            before = max(before, (step.rows - step.new_rows) / self._limit)
        done = min(done, 1.0)
        line = f"{counted(step.rows, 'row')}  {done:4.0%}  {step.new_rows / seconds:,.1f} rows/s"
        if done > before:
            line += f"  {_clock(seconds * (1.0 - done) / (done - before))} left"
        return f"{line}  {bar(done, WIDTH)}"


@contextmanager
def preparing() -> Iterator[None]:
    line = _ProgressLine()
    line.begin()
    try:
        yield
    finally:
        line.erase()


def _columns(stream: TextIO) -> int:
    """Return the longest line that the terminal does not wrap, in columns."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except OSError:
        size = os.terminal_size((80, 24))
    return (shutil.get_terminal_size(size).columns or 80) - 1


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
