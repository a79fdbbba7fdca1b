"""A progress bar on standard error, for work long enough that one wonders."""

from __future__ import annotations

import sys
import time
from typing import TextIO

__all__ = ["ProgressBar"]

WIDTH = 30
PATIENCE = 0.4
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
        full = round(max(fraction, 0.0) * WIDTH)
        label = LABELS.get(self._stage, self._stage)
        self._stream.write(f"\r{label} [{'#' * full}{'.' * (WIDTH - full)}] {fraction:4.0%}")
        self._stream.flush()
        self._is_drawn = True
