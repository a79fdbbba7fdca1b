"""A progress bar on standard error, for work long enough that one wonders."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

from ..tables import TableStep

__all__ = ["ProgressBar", "RowProgress"]

WIDTH = 30
NARROWEST = 5
"""Characters that a bar has, and those that it has left in a narrow terminal."""

PATIENCE = 0.4
REDRAWN = 0.1
LABELS = {"load": "loading the model", "prefill": "reading the prompt"}


class ProgressBar:
    """Draws how far a stage has come, once it has taken 0.4 seconds, and erases itself at its end.

    Silent where `stream` is not a terminal.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._stage = ""
        self._begin = 0.0
        self._is_drawn = False

    def __call__(self, stage: str, fraction: float) -> None:
        """Take notice that `stage` has come to `fraction`, 0 to 1."""
        if not self._stream.isatty():
            return
        now = time.monotonic()
        if stage != self._stage:
            self._stage, self._begin = stage, now
        if fraction >= 1.0:
            self._stage = ""
            self.erase()
        elif now - self._begin >= PATIENCE:
            self._draw(fraction)

    def erase(self) -> None:
        """Leave the line empty, also when the work broke off."""
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False

    def _draw(self, fraction: float) -> None:
        label = LABELS.get(self._stage, self._stage)
        said = f" {fraction:4.0%}"
        bar = _bar(max(fraction, 0.0), _columns(self._stream) - len(label) - len(said) - 1)
        self._stream.write(f"\r{label} {bar}{said}")
        self._stream.flush()
        self._is_drawn = True


class RowProgress:
    """Draws how far a table has come: rows, their rate, and the time that is left.

    Silent where `stream` is not a terminal.

    Parameters
    ----------
    limit
        The row at which it ends, if not at the table's end.
    stream
        None = standard error.
    """

    def __init__(self, limit: int | None = None, stream: TextIO | None = None) -> None:
        self._limit = limit
        self._stream = sys.stderr if stream is None else stream
        self._begin = self._drawn = time.monotonic()
        self._is_drawn = False

    def __call__(self, step: TableStep) -> None:
        """Take notice of a row."""
        now = time.monotonic()
        if now - self._drawn < REDRAWN or not self._stream.isatty():
            return
        self._drawn = now
        line = self._line(step, now - self._begin, _columns(self._stream))
        self._stream.write(f"\r\x1b[K{line}")
        self._stream.flush()
        self._is_drawn = True

    def erase(self) -> None:
        """Leave the line empty."""
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False

    def _line(self, step: TableStep, seconds: float, width: int) -> str:
        done, before = step.done, step.done_before
        if self._limit is not None:  # whichever comes first
            done = max(done, step.rows / self._limit)
            before = max(before, (step.rows - step.new_rows) / self._limit)
        done = min(done, 1.0)
        rows, said = f"{step.rows:,} rows ", f" {done:4.0%}"
        said += f"  {step.new_rows / seconds:,.1f} rows/s"
        if done > before:
            said += f"  {_clock(seconds * (1.0 - done) / (done - before))} left"
        return (rows + _bar(done, width - len(rows) - len(said)) + said)[:width]


def _columns(stream: TextIO) -> int:
    """Return how many columns there are for a line that the cursor must not leave."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except OSError:
        size = os.terminal_size((80, 24))
    return (shutil.get_terminal_size(size).columns or 80) - 1


def _bar(share: float, room: int) -> str:
    """Return a bar of as many characters as there is room for, but at least some."""
    width = min(max(room - 2, NARROWEST), WIDTH)
    full = round(share * width)
    return f"[{'#' * full}{'.' * (width - full)}]"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
