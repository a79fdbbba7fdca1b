"""Run the program ``batch_loop``, the lower limit for decoding several sequences in one batch."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eliza_ffi.library.loading import Library

from ..model.together import Written

DEFAULTS, EQUAL = "defaults", "equal"
"""The program's settings: llama.cpp's defaults, or eliza-ffi's settings."""

UNTOLD = -1
"""Stands for a generated token whose id the program did not report."""


@dataclass(frozen=True)
class Expected:
    """The tokens of the loop, and their margins.

    Attributes
    ----------
    margins : tuple of tuple of float
        For each token the difference between its logit and the second best logit.
    """

    written: Written
    margins: tuple[tuple[float, ...], ...]

    def partings(self, other: Sequence[Sequence[int]]) -> list[float]:
        """Return the margin at the first different token, for each stream that differs.

        Passes of different shapes round differently, so a small margin is not an error.
        """
        found = []
        for mine, theirs, margins in zip(self.written.tokens, other, self.margins, strict=True):
            for token, their_token, margin in zip(mine, theirs, margins, strict=False):
                if their_token not in (token, UNTOLD):
                    found.append(margin)
                    break
        return found


@dataclass(frozen=True)
class BatchLoop:
    """The program.

    Attributes
    ----------
    settings : str
        `DEFAULTS` or `EQUAL`.
    """

    program: Path
    settings: str = EQUAL

    @classmethod
    def find(cls) -> BatchLoop:
        """Find the program in the library's folder.

        Raises
        ------
        SystemExit
            If it has not been built.
        """
        program = Library().path.with_name("batch_loop")
        if not program.is_file():
            raise SystemExit(f"{program} is missing: run 'make bench-streams'")
        return cls(program)

    def write(
        self, model: Path, prompts: Sequence[Sequence[int]], n_tokens: int, n_threads: int
    ) -> Written:
        """Generate `n_tokens` tokens after each prompt."""
        return self._run(model, prompts, n_tokens, n_threads).written

    def expect(
        self, model: Path, prompts: Sequence[Sequence[int]], n_tokens: int, n_threads: int
    ) -> Expected:
        """Generate tokens with their margins. Ignore the times: computing margins takes time."""
        return self._run(model, prompts, n_tokens, n_threads, "margins")

    def _run(
        self,
        model: Path,
        prompts: Sequence[Sequence[int]],
        n_tokens: int,
        n_threads: int,
        *more: str,
    ) -> Expected:
        lines = "".join(" ".join(map(str, prompt)) + "\n" for prompt in prompts)
        command = [self.program, model, n_tokens, n_threads, self.settings, *more]
        done = subprocess.run(
            [str(part) for part in command], input=lines, capture_output=True, text=True
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip() or f"batch_loop exited with {done.returncode}")
        sequences = json.loads(done.stdout)
        return Expected(
            Written(
                tokens=tuple(tuple(one["tokens"]) for one in sequences),
                seconds=tuple(tuple(one["seconds"]) for one in sequences),
            ),
            tuple(tuple(one["margins"]) for one in sequences),
        )
