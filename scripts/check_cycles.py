#!/usr/bin/env python3
"""Open and close a model thousands of times: memory, files and threads must stay what they were.

    $ make check-cycles                                  # 5,000 times, a minute
    $ make check-cycles CHECK_ARGS='--cycles 500 --use'  # choose and write each time, too

Compares what the process holds after a tenth of the cycles, when all that is made once has been
made, with what it holds after the last. Exit code 1 where it grew. Needs Linux's /proc.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from eliza_ffi.model import Model

MOST_MIB = 3.0
"""What the memory may grow by: an allocator's moods, and far less than a kilobyte a cycle."""


@dataclass(frozen=True)
class Held:
    """What the process holds.

    Attributes
    ----------
    mib : float
        Resident memory.
    objects : int
        That Python's collector knows.
    files, threads : int
    """

    mib: float
    objects: int
    files: int
    threads: int

    @staticmethod
    def now() -> Held:
        """Return what this process holds, garbage collected."""
        gc.collect()
        # Glibc keeps what was freed for whoever asks next: that is nobody's leak.
        getattr(ctypes.CDLL(None), "malloc_trim", int)(0)
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return Held(
            mib=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
            objects=len(gc.get_objects()),
            files=sum(1 for _ in Path("/proc/self/fd").iterdir()),
            threads=sum(1 for _ in Path("/proc/self/task").iterdir()),
        )

    def __str__(self) -> str:
        return (
            f"{self.mib:.2f} MiB, {self.objects:,} objects, {self.files} files, "
            f"{self.threads} threads"
        )


def cycles(count: int, use: bool = False, path: str | None = None) -> tuple[Held, Held]:
    """Open and close a model so many times; return what was held after a tenth, and after all."""
    early = Held.now()
    for done in range(1, count + 1):
        with Model(path) as model:
            if use:
                model.choose("message: hello\naction: ", ["RESPOND", "IGNORE"])
                model.generate("Once", 2)
        if done == max(count // 10, 1):
            early = Held.now()
    return early, Held.now()


def growth(early: Held, late: Held) -> str:
    """Return what grew, and an empty text where nothing did."""
    grown = [
        f"{name} by {after - before:.2f}"
        for name, before, after, most in (
            ("MiB", early.mib, late.mib, MOST_MIB),
            ("objects", early.objects, late.objects, 100),
            ("files", early.files, late.files, 0),
            ("threads", early.threads, late.threads, 0),
        )
        if after - before > most
    ]
    return ", ".join(grown)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Open and close a model again and again.")
    parser.add_argument("--cycles", type=int, default=5000, metavar="N", help="default: 5000")
    parser.add_argument("--use", action="store_true", help="choose and write in each of them")
    parser.add_argument("--model", metavar="FILE", help="default: the embedded model")
    options = parser.parse_args(arguments)
    begin = time.perf_counter()
    early, late = cycles(options.cycles, options.use, options.model)
    took = time.perf_counter() - begin
    print(f"after {max(options.cycles // 10, 1):,} cycles: {early}")
    print(f"after {options.cycles:,} cycles: {late}; {1000 * took / options.cycles:.1f} ms each")
    if grown := growth(early, late):
        print(f"check_cycles: what the process holds grew: {grown}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
