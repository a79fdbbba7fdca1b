"""Progress in one line of standard error, for work long enough that one wonders."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

from ..tables import TableStep
from ..terminal import bar

__all__ = ["ProgressBar", "RowProgress"]

WIDTH = 30
"""Characters of a bar."""

PATIENCE = 0.4
REDRAWN = 0.1
LABELS = {"load": "loading the model", "prefill": "reading the prompt"}


class _ProgressLine:
    """A line that is drawn anew, and erased at the end.

    Parameters
    ----------
    stream
        None = standard error.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_drawn = False

    def draw(self, line: str) -> None:
        """Replace the line."""
        self._stream.write(f"\r\x1b[K{line[: _columns(self._stream)]}")
        self._stream.flush()
        self._is_drawn = True

    def erase(self) -> None:
        """Leave the line empty, also when the work broke off."""
        if self._is_drawn:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._is_drawn = False


class ProgressBar(_ProgressLine):
    """Draws how far a stage has come, once it has taken 0.4 seconds, and erases itself at its end.

    Silent where `stream` is not a terminal.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._stage = ""
        self._begin = 0.0

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
            share = max(fraction, 0.0)
            self.draw(f"{LABELS.get(stage, stage)} {share:4.0%} {bar(share, WIDTH)}")


class RowProgress(_ProgressLine):
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
        super().__init__(stream)
        self._limit = limit
        self._begin = self._drawn = time.monotonic()

    def __call__(self, step: TableStep) -> None:
        """Take notice of a row."""
        now = time.monotonic()
        if now - self._drawn < REDRAWN or not self._stream.isatty():
            return
        self._drawn = now
        self.draw(self._line(step, now - self._begin))

    def _line(self, step: TableStep, seconds: float) -> str:
        done, before = step.done, step.done_before
        if self._limit is not None:  # whichever comes first
            done = max(done, step.rows / self._limit)
            before = max(before, (step.rows - step.new_rows) / self._limit)
        done = min(done, 1.0)
        said = f"{step.rows:,} rows  {done:4.0%}  {step.new_rows / seconds:,.1f} rows/s"
        if done > before:
            said += f"  {_clock(seconds * (1.0 - done) / (done - before))} left"
        return f"{said}  {bar(done, WIDTH)}"


def _columns(stream: TextIO) -> int:
    """Return how many columns there are for a line that the cursor must not leave."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except OSError:
        size = os.terminal_size((80, 24))
    return (shutil.get_terminal_size(size).columns or 80) - 1


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(max(seconds, 0.0)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
